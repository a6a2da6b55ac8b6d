//! Records: what a key keeps of a request, and their rows.
//!
//! Invariants:
//! - A record answers only its principal.
//! - Outcome and fingerprint leave together; whether the request ran stays as long as the row.
//! - A tombstone outlives every attempt that may still arrive: it lapses 60 s after the latest deadline.

use super::sql::{Row, Sql, SqlError, Value};
use crate::fingerprint::Fingerprint;
use crate::header::Attempt;
use crate::id::{Principal, RequestId};
use crate::message::Headers;
use crate::problem::Executed;

/// How long a tombstone stays after the latest deadline that an attempt may carry.
pub const TOMBSTONE_GRACE_MS: i64 = 60_000;
/// Deadlines are kept rounded up to this, so that a run of replays writes a row once in ten seconds, not each time.
pub const DEADLINE_GRAIN_MS: i64 = 10_000;

/// The recorded answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The status.
    pub status: u16,
    /// The handler's headers, as recorded.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

/// The latest deadline of all attempts of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatestDeadline {
    /// Every attempt so far carried one; this is the latest, rounded up.
    At(i64),
    /// An attempt carried none.
    None,
}

impl LatestDeadline {
    /// The first attempt's.
    pub fn of(deadline_ms: Option<i64>) -> Self {
        match deadline_ms {
            Some(deadline_ms) => {
                Self::At(deadline_ms.saturating_add(DEADLINE_GRAIN_MS - 1) / DEADLINE_GRAIN_MS * DEADLINE_GRAIN_MS)
            }
            None => Self::None,
        }
    }

    /// With other attempts.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(one), Self::At(other)) => Self::At(one.max(other)),
            _ => Self::None,
        }
    }
}

/// Why a tombstone says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TombstoneKind {
    /// The client acknowledged the outcome.
    Acknowledged,
    /// The outcome was kept for the retention.
    Expired,
}

/// Where a request is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It ran, and this is its outcome.
    Executed(Fingerprint, Outcome),
    /// The handler crashed on it too often.
    Poisoned(Fingerprint),
    /// It was cancelled before it ran. `lapses_ms`: only for one without first-sent, in its second retention.
    Cancelled {
        /// When it may leave.
        lapses_ms: Option<i64>,
    },
    /// The handler crashed on it, or may have; it may run again. See [`super::suspicion`].
    Suspect {
        /// How often it crashed.
        crashes: i64,
        /// Whether it was started since, and has not ended.
        is_started: bool,
    },
    /// Its outcome is gone, and it must not run again.
    Tombstone {
        /// Why.
        kind: TombstoneKind,
        /// Whether it ran.
        executed: Executed,
        /// When it may leave.
        lapses_ms: i64,
    },
}

/// What a key keeps of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose it is.
    pub principal: Principal,
    /// When it was first sent, in Unix s.
    pub first_sent_s: Option<i64>,
    /// The key's clock at the last change of its state, in Unix ms.
    pub at_ms: i64,
    /// The latest deadline seen.
    pub deadline: LatestDeadline,
    /// Where it is in its life.
    pub state: State,
}

/// How many records came, less those that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Unacknowledged records.
    pub records: i64,
    /// Tombstones and cancelled ids.
    pub tombstones: i64,
}

impl Change {
    /// A record came.
    pub fn came(&mut self, record: &Record) {
        *self.limit_of(record) += 1;
    }

    /// A record left.
    pub fn left(&mut self, record: &Record) {
        *self.limit_of(record) -= 1;
    }

    /// Which limit a record counts against.
    fn limit_of(&mut self, record: &Record) -> &mut i64 {
        match record.state {
            State::Executed(..) | State::Poisoned(_) | State::Suspect { .. } => &mut self.records,
            State::Cancelled { .. } | State::Tombstone { .. } => &mut self.tombstones,
        }
    }
}

impl Record {
    /// The record, protected from the attempts that another record of the id has seen as well.
    pub fn over(self, found: Option<&Self>) -> Self {
        match found {
            Some(found) => Self {
                first_sent_s: latest_first_sent(found.first_sent_s, self.first_sent_s),
                deadline: found.deadline.and(self.deadline),
                ..self
            },
            None => self,
        }
    }

    /// The record after one more attempt; `None` if that changes nothing.
    ///
    /// What protects an id must hold for every attempt of it: the latest deadline and the latest first-sent count, and one
    /// attempt without stands for all.
    pub fn seen_again(&self, attempt: &Attempt, now_ms: i64, retention_s: i64) -> Option<Self> {
        let mut record = Self {
            first_sent_s: latest_first_sent(self.first_sent_s, attempt.first_sent_s),
            deadline: self.deadline.and(LatestDeadline::of(attempt.deadline_ms)),
            ..self.clone()
        };
        if let State::Tombstone { lapses_ms, .. } = &mut record.state {
            // An attempt past what the client announced: the tombstone must outlive it too.
            let needed_ms = match LatestDeadline::of(attempt.deadline_ms) {
                LatestDeadline::At(deadline_ms) => deadline_ms + TOMBSTONE_GRACE_MS,
                LatestDeadline::None if self.deadline == LatestDeadline::None => *lapses_ms,
                LatestDeadline::None => now_ms + retention_s * 1000,
            };
            *lapses_ms = needed_ms.max(*lapses_ms);
        }
        (record != *self).then_some(record)
    }

    /// The tombstone that an acknowledgement makes of it; `None` if it is not to be acknowledged.
    ///
    /// A cancelled id has no outcome to free, and leaves by the fence alone.
    pub fn acknowledged(&self, by: &Principal, until_ms: Option<i64>, now_ms: i64, retention_s: i64) -> Option<Self> {
        let executed = match self.state {
            State::Executed(..) => Executed::Yes,
            State::Poisoned(_) => Executed::No,
            State::Cancelled { .. } | State::Suspect { .. } | State::Tombstone { .. } => return None,
        };
        if *by != self.principal {
            return None;
        }
        let (deadline, lapses_ms) = match (self.deadline, until_ms) {
            (LatestDeadline::At(seen_ms), Some(until_ms)) => {
                (self.deadline, seen_ms.max(until_ms) + TOMBSTONE_GRACE_MS)
            }
            // No deadline bounds what may still arrive, so the fence has to: see `retention::fate`.
            (LatestDeadline::At(seen_ms), None) => {
                (LatestDeadline::None, (now_ms + retention_s * 1000).max(seen_ms + TOMBSTONE_GRACE_MS))
            }
            (LatestDeadline::None, _) => {
                (LatestDeadline::None, (now_ms + retention_s * 1000).max(until_ms.unwrap_or(0) + TOMBSTONE_GRACE_MS))
            }
        };
        let state = State::Tombstone { kind: TombstoneKind::Acknowledged, executed, lapses_ms };
        Some(Self { at_ms: now_ms, deadline, state, ..self.clone() })
    }
}

/// The first-sent that holds for both: the later, or none if one has none.
fn latest_first_sent(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.zip(other).map(|(one, other)| one.max(other))
}

/// The number that stands for a state in a row.
mod number {
    pub const EXECUTED: i64 = 1;
    pub const POISONED: i64 = 2;
    pub const CANCELLED: i64 = 3;
    pub const SUSPECT: i64 = 4;
    pub const ACKNOWLEDGED: i64 = 5;
    pub const EXPIRED: i64 = 6;
}

const COLUMNS: &str = "principal, first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, fingerprint, status, headers, body";

/// Reads the record of an id.
pub fn find(sql: &dyn Sql, id: &RequestId) -> Result<Option<Record>, SqlError> {
    let statement = format!("SELECT {COLUMNS} FROM semel_records WHERE id = ?1 LIMIT 1");
    let rows = sql.exec(&statement, &[id.as_str().into()])?;
    rows.into_iter().next().map(|row| from_row(row).ok_or_else(|| unreadable(id))).transpose()
}

/// Up to `limit` records with ids after `after`, in the order of ids, without fingerprints and outcomes: enough for
/// [`crate::server::retention`] to tell which of them leave.
pub fn page(sql: &dyn Sql, after: &str, limit: i64) -> Result<Vec<(RequestId, Record)>, SqlError> {
    let rows = sql.exec(
        "SELECT principal, first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, zeroblob(32), 0, '', x'', id \
         FROM semel_records WHERE id > ?1 ORDER BY id LIMIT ?2",
        &[after.into(), limit.into()],
    )?;
    rows.into_iter()
        .map(|mut row| {
            let id = row.pop().and_then(Value::into_text).and_then(|id| RequestId::new(id).ok());
            id.zip(from_row(row)).ok_or_else(|| SqlError("a row of semel_records is unreadable".to_owned()))
        })
        .collect()
}

/// Writes the record of an id, whole.
pub fn put(sql: &dyn Sql, id: &RequestId, record: &Record) -> Result<(), SqlError> {
    let mut lapses_ms = Value::Null;
    let mut crashes = Value::Null;
    let mut is_started = Value::Null;
    let mut executed = Value::Null;
    let mut fingerprint = Value::Null;
    let mut outcome = [Value::Null, Value::Null, Value::Null];
    let state = match &record.state {
        State::Executed(print, recorded) => {
            fingerprint = print.as_bytes().into();
            outcome = [
                i64::from(recorded.status).into(),
                recorded.headers.to_lines().into(),
                recorded.body.as_slice().into(),
            ];
            number::EXECUTED
        }
        State::Poisoned(print) => {
            fingerprint = print.as_bytes().into();
            number::POISONED
        }
        State::Cancelled { lapses_ms: lapses } => {
            lapses_ms = (*lapses).into();
            number::CANCELLED
        }
        State::Suspect { crashes: count, is_started: started } => {
            crashes = (*count).into();
            is_started = i64::from(*started).into();
            number::SUSPECT
        }
        State::Tombstone { kind, executed: ran, lapses_ms: lapses } => {
            lapses_ms = (*lapses).into();
            executed = i64::from(*ran == Executed::Yes).into();
            match kind {
                TombstoneKind::Acknowledged => number::ACKNOWLEDGED,
                TombstoneKind::Expired => number::EXPIRED,
            }
        }
    };
    let [status, headers, body] = outcome;
    let arguments = [
        id.as_str().into(),
        record.principal.as_str().into(),
        record.first_sent_s.into(),
        record.at_ms.into(),
        deadline_value(record.deadline),
        state.into(),
        lapses_ms,
        crashes,
        is_started,
        executed,
        fingerprint,
        status,
        headers,
        body,
    ];
    let statement = format!(
        "INSERT OR REPLACE INTO semel_records (id, {COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
    );
    sql.exec(&statement, &arguments).map(|_| ())
}

/// Writes what an attempt that did not execute changed: what [`Record::seen_again`] gives.
pub fn put_seen(sql: &dyn Sql, id: &RequestId, record: &Record) -> Result<(), SqlError> {
    let lapses_ms = match record.state {
        State::Tombstone { lapses_ms, .. } => Some(lapses_ms),
        State::Cancelled { lapses_ms } => lapses_ms,
        State::Executed(..) | State::Poisoned(_) | State::Suspect { .. } => None,
    };
    let arguments = [id.as_str().into(), record.first_sent_s.into(), deadline_value(record.deadline), lapses_ms.into()];
    let statement = "UPDATE semel_records SET first_sent_s = ?2, deadline_ms = ?3, lapses_ms = ?4 WHERE id = ?1";
    sql.exec(statement, &arguments).map(|_| ())
}

/// Deletes the record of an id.
pub fn delete(sql: &dyn Sql, id: &RequestId) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_records WHERE id = ?1", &[id.as_str().into()]).map(|_| ())
}

/// What all records come to: asked once, when an object starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// How many there are.
    pub count: Change,
    /// The latest clock in any row, in Unix ms.
    pub clock_ms: i64,
}

/// Counts all rows.
pub fn totals(sql: &dyn Sql) -> Result<Totals, SqlError> {
    let rows = sql.exec(
        "SELECT count(*), coalesce(sum(state IN (?1, ?2, ?3)), 0), coalesce(max(at_ms), 0) FROM semel_records",
        &[number::EXECUTED.into(), number::POISONED.into(), number::SUSPECT.into()],
    )?;
    let value = |column: usize| rows.first().and_then(|row| row.get(column)).and_then(Value::as_integer);
    match (value(0), value(1), value(2)) {
        (Some(all), Some(records), Some(clock_ms)) => {
            Ok(Totals { count: Change { records, tombstones: all - records }, clock_ms })
        }
        _ => Err(SqlError("semel_records could not be counted".to_owned())),
    }
}

fn deadline_value(deadline: LatestDeadline) -> Value {
    match deadline {
        LatestDeadline::At(deadline_ms) => deadline_ms.into(),
        LatestDeadline::None => Value::Null,
    }
}

fn from_row(row: Row) -> Option<Record> {
    let [
        principal,
        first_sent_s,
        at_ms,
        deadline_ms,
        state,
        lapses_ms,
        crashes,
        is_started,
        executed,
        fingerprint,
        status,
        headers,
        body,
    ] = <[Value; 13]>::try_from(row).ok()?;
    let executed = if executed.as_integer() == Some(1) { Executed::Yes } else { Executed::No };
    let tombstone = |kind| Some(State::Tombstone { kind, executed, lapses_ms: lapses_ms.as_integer()? });
    let state = match state.as_integer()? {
        number::EXECUTED => {
            let outcome = Outcome {
                status: u16::try_from(status.as_integer()?).ok()?,
                headers: Headers::from_lines(&headers.into_text()?),
                body: body.into_blob()?,
            };
            State::Executed(Fingerprint::from_bytes(&fingerprint.into_blob()?)?, outcome)
        }
        number::POISONED => State::Poisoned(Fingerprint::from_bytes(&fingerprint.into_blob()?)?),
        number::CANCELLED => State::Cancelled { lapses_ms: lapses_ms.as_integer() },
        number::SUSPECT => {
            State::Suspect { crashes: crashes.as_integer()?, is_started: is_started.as_integer() == Some(1) }
        }
        number::ACKNOWLEDGED => tombstone(TombstoneKind::Acknowledged)?,
        number::EXPIRED => tombstone(TombstoneKind::Expired)?,
        _ => return None,
    };
    let deadline = deadline_ms.as_integer().map_or(LatestDeadline::None, LatestDeadline::At);
    Some(Record {
        principal: Principal::new(principal.into_text()?).ok()?,
        first_sent_s: first_sent_s.as_integer(),
        at_ms: at_ms.as_integer()?,
        deadline,
        state,
    })
}

fn unreadable(id: &RequestId) -> SqlError {
    SqlError(format!("the record of {:?} is unreadable", id.as_str()))
}
