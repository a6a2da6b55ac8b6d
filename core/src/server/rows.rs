//! The rows of records.
//!
//! Invariants:
//! - One row a record, written whole, but for what an attempt adds that does not execute.
//! - A row that can't be read is an error, never a record that is not there.

use super::record::{Change, LatestDeadline, Outcome, Record, State, TombstoneKind};
use super::sql::{Row, Sql, SqlError, Value};
use crate::fingerprint::Fingerprint;
use crate::id::{Principal, RequestId};
use crate::message::Headers;
use crate::problem::Executed;

/// The number that stands for a state in a row.
pub(super) mod number {
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

/// In place of fingerprint and outcome, which may be large: enough to judge what becomes of a record.
pub(super) const BARE_COLUMNS: &str = "principal, first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, \
     zeroblob(32), 200, '', x''";

/// Reads the record of an id without fingerprint and outcome.
pub fn find_bare(sql: &dyn Sql, id: &RequestId) -> Result<Option<Record>, SqlError> {
    let statement = format!("SELECT {BARE_COLUMNS} FROM semel_records WHERE id = ?1 LIMIT 1");
    let rows = sql.exec(&statement, &[id.as_str().into()])?;
    rows.into_iter().next().map(|row| from_row(row).ok_or_else(|| unreadable(id))).transpose()
}

/// Up to `limit` records with ids after `after`, in the order of ids, without fingerprints and outcomes.
pub fn page(sql: &dyn Sql, after: &str, limit: i64) -> Result<Vec<(RequestId, Record)>, SqlError> {
    let statement = format!("SELECT {BARE_COLUMNS}, id FROM semel_records WHERE id > ?1 ORDER BY id LIMIT ?2");
    let rows = sql.exec(&statement, &[after.into(), limit.into()])?;
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
            executed = executed_number(*ran).into();
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

fn executed_number(executed: Executed) -> i64 {
    match executed {
        Executed::No => 0,
        Executed::Yes => 1,
        Executed::Unknown => 2,
    }
}

/// An integer or nothing; the outer `None` is neither.
fn optional(value: &Value) -> Option<Option<i64>> {
    match value {
        Value::Null => Some(None),
        value => value.as_integer().map(Some),
    }
}

pub(super) fn from_row(row: Row) -> Option<Record> {
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
    let tombstone = |kind| {
        // Whatever can't be read must not be told as `no`: the client would make a new request.
        let executed = [Executed::No, Executed::Yes, Executed::Unknown]
            .into_iter()
            .find(|each| executed.as_integer() == Some(executed_number(*each)))?;
        Some(State::Tombstone { kind, executed, lapses_ms: lapses_ms.as_integer()? })
    };
    let state = match state.as_integer()? {
        number::EXECUTED => {
            let outcome = Outcome {
                status: u16::try_from(status.as_integer()?).ok().filter(|status| (200..=599).contains(status))?,
                headers: Headers::from_stored(&headers.into_text()?)?,
                body: body.into_blob()?,
            };
            State::Executed(Fingerprint::from_bytes(&fingerprint.into_blob()?)?, outcome)
        }
        number::POISONED => State::Poisoned(Fingerprint::from_bytes(&fingerprint.into_blob()?)?),
        number::CANCELLED => State::Cancelled { lapses_ms: optional(&lapses_ms)? },
        number::SUSPECT => {
            let is_started = match is_started.as_integer()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            State::Suspect { crashes: crashes.as_integer().filter(|crashes| *crashes >= 0)?, is_started }
        }
        number::ACKNOWLEDGED => tombstone(TombstoneKind::Acknowledged)?,
        number::EXPIRED => tombstone(TombstoneKind::Expired)?,
        _ => return None,
    };
    let deadline = optional(&deadline_ms)?.map_or(LatestDeadline::None, LatestDeadline::At);
    Some(Record {
        principal: Principal::new(principal.into_text()?).ok()?,
        first_sent_s: optional(&first_sent_s)?,
        at_ms: at_ms.as_integer()?,
        deadline,
        state,
    })
}

fn unreadable(id: &RequestId) -> SqlError {
    SqlError(format!("the record of {:?} is unreadable", id.as_str()))
}
