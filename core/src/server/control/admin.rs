//! An administrator's requests to a key, under `/semel/v1/admin/keys/{key}`: what they ask, and the answers to those that only read.
//!
//! Invariants:
//! - Nobody but the administrator is answered, wherever a request came from.
//! - A request that reads writes nothing, and leaves an untouched key untouched.
//! - No answer reads more than a bounded number of rows.

use super::wire_outcome;
use crate::header::INSTANT_MAX;
use crate::id::{Invalid, RequestId, percent_decoded};
use crate::message::{Method, Response};
use crate::path::Path;
use crate::problem::{Code, Executed, Problem};
use crate::server::answer::Answer;
use crate::server::attempt::turn::{Loaded, Turn};
use crate::server::config::FOREVER_S;
use crate::server::effects::{EFFECT_ID_DIGITS, Mending};
use crate::server::handler::NO_EFFECTS;
use crate::server::json::write::{self, Object};
use crate::server::storage::record::{LatestDeadline, Record, State, TombstoneKind};
use crate::server::storage::rows;
use crate::server::storage::sql::SqlError;
use crate::server::storage::survey::{self, Glance, TIMES_ROWS_MAX};

/// The most records in a page.
pub const PAGE_RECORDS_MAX: i64 = 200;
const PAGE_RECORDS_DEFAULT: i64 = 50;
/// The most steps of a plot.
pub const STEPS_MAX: i64 = 500;

/// What an administrator asks of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admin {
    /// `GET`: what the key holds.
    Show,
    /// `DELETE`: delete all of the key.
    DeleteKey,
    /// `GET records`
    Records {
        /// The page begins after this id.
        after: String,
        /// The most records in the page.
        limit: i64,
        /// Only records in the state with this number; `None`: in any state.
        state: Option<i64>,
    },
    /// `GET times`
    Times {
        /// The first instant, in Unix ms.
        from_ms: i64,
        /// The length of a step, in ms.
        step_ms: i64,
        /// The number of steps.
        count: i64,
    },
    /// `GET records/{id}`
    Record(RequestId),
    /// `DELETE records/{id}`: reduce the record to a tombstone.
    DeleteRecord(RequestId),
    /// `POST records/{id}/resolve`: settle a request in doubt.
    Resolve(RequestId),
    /// `POST cancel`
    Cancel,
    /// `GET effects`: what waits to be sent, and what is parked.
    Effects {
        /// The page begins after the parked effect with this number.
        after: i64,
        /// The most parked effects in the page.
        limit: i64,
    },
    /// `POST effects/{id}/retry`, `POST effects/{id}/drop`, `POST effects/{id}/park`
    Mend(String, Mending),
}

impl Admin {
    /// Whether the request changes something.
    pub fn changes(&self) -> bool {
        matches!(self, Self::DeleteKey | Self::DeleteRecord(_) | Self::Resolve(_) | Self::Cancel | Self::Mend(..))
    }
}

/// Reads the method, the segments after the key, and the query; `None` if they are of no such request.
pub fn parse(method: &Method, rest: &[&str], path: &Path) -> Result<Option<Admin>, Invalid> {
    let admin = match (method, rest) {
        (Method::Get | Method::Head, []) => Admin::Show,
        (Method::Delete, []) => Admin::DeleteKey,
        (Method::Get | Method::Head, ["records"]) => {
            let mut query = Query::of(path.with_query())?;
            let limit = query.integer("limit", 1, PAGE_RECORDS_MAX)?.unwrap_or(PAGE_RECORDS_DEFAULT);
            let after = query.take("after").map(RequestId::new).transpose()?;
            let named = |word: String| state_named(&word).ok_or_else(|| Invalid::new("there is no such state"));
            let state = query.take("state").map(named).transpose()?;
            query.end()?;
            Admin::Records { after: after.map(|id| id.as_str().to_owned()).unwrap_or_default(), limit, state }
        }
        (Method::Get | Method::Head, ["times"]) => {
            let mut query = Query::of(path.with_query())?;
            let from_ms = query.needed("from", 0, INSTANT_MAX)?;
            let step_ms = query.needed("step", 1, INSTANT_MAX)?;
            let count = query.needed("count", 1, STEPS_MAX)?;
            query.end()?;
            Admin::Times { from_ms, step_ms, count }
        }
        (Method::Get | Method::Head, ["records", id]) => Admin::Record(RequestId::new(*id)?),
        (Method::Delete, ["records", id]) => Admin::DeleteRecord(RequestId::new(*id)?),
        (Method::Post, ["records", id, "resolve"]) => Admin::Resolve(RequestId::new(*id)?),
        (Method::Post, ["cancel"]) => Admin::Cancel,
        (Method::Get | Method::Head, ["effects"]) => {
            let mut query = Query::of(path.with_query())?;
            let limit = query.integer("limit", 1, PAGE_RECORDS_MAX)?.unwrap_or(PAGE_RECORDS_DEFAULT);
            let after = query.integer("after", 0, INSTANT_MAX)?.unwrap_or(0);
            query.end()?;
            Admin::Effects { after, limit }
        }
        (Method::Post, ["effects", id, "retry"]) => Admin::Mend(effect(id)?, Mending::Retry),
        (Method::Post, ["effects", id, "drop"]) => Admin::Mend(effect(id)?, Mending::Drop),
        (Method::Post, ["effects", id, "park"]) => Admin::Mend(effect(id)?, Mending::Park),
        _ => return Ok(None),
    };
    Ok(Some(admin))
}

fn effect(id: &str) -> Result<String, Invalid> {
    let is_id = id.len() == EFFECT_ID_DIGITS && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_id { Ok(id.to_owned()) } else { Err(Invalid::new("the id of an effect is 32 hexadecimal digits")) }
}

/// The parameters of a query that have not been taken yet.
pub(in crate::server) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query of a path.
    pub(in crate::server) fn of(path: &str) -> Result<Self, Invalid> {
        let search = path.split_once('?').map_or("", |(_, search)| search);
        let decoded = |text: &str| percent_decoded(&text.replace('+', " "));
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((decoded(name)?, decoded(value)?))
        };
        search.split('&').filter(|part| !part.is_empty()).map(pair).collect::<Result<_, _>>().map(Self)
    }

    pub(in crate::server) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(each, _)| each == name)?;
        Some(self.0.remove(at).1)
    }

    pub(in crate::server) fn integer(&mut self, name: &str, min: i64, max: i64) -> Result<Option<i64>, Invalid> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match text.parse::<i64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(Invalid::new(format!("{name}: not an integer from {min} to {max}"))),
        }
    }

    fn needed(&mut self, name: &str, min: i64, max: i64) -> Result<i64, Invalid> {
        self.integer(name, min, max)?.ok_or_else(|| Invalid::new(format!("the query has no {name}")))
    }

    /// Fails if any parameter is left: it is unknown, or occurs twice.
    pub(in crate::server) fn end(self) -> Result<(), Invalid> {
        match self.0.first() {
            Some((name, _)) => Err(Invalid::new(format!("the query has {name:?}, unknown or once more"))),
            None => Ok(()),
        }
    }
}

/// The word for the state of a record.
pub fn state_of(record: &Record) -> &'static str {
    match record.state {
        State::Executed(..) => "executed",
        State::Poisoned(_) => "poisoned",
        State::Cancelled { .. } => "cancelled",
        State::Suspect { .. } => "suspect",
        State::Dispatched { .. } => "in-doubt",
        State::Tombstone { kind: TombstoneKind::Acknowledged, .. } => "acknowledged",
        State::Tombstone { kind: TombstoneKind::Expired, .. } => "expired",
    }
}

/// The words for the states, in the order of [their numbers](crate::server::storage::rows::number), which begin at 1.
const STATES: [&str; 7] = ["executed", "poisoned", "cancelled", "suspect", "acknowledged", "expired", "in-doubt"];

/// The number of the state with that word.
fn state_named(word: &str) -> Option<i64> {
    STATES.iter().zip(1..).find(|(each, _)| **each == word).map(|(_, number)| number)
}

/// Whether the request of a record ran.
pub fn executed_of(record: &Record) -> Executed {
    match record.state {
        State::Executed(..) => Executed::Yes,
        State::Poisoned(_) => Executed::No,
        State::Tombstone { executed, .. } => executed,
        State::Dispatched { .. } => Executed::Unknown,
        // Without a first-sent, an earlier record of the request may have left.
        State::Cancelled { .. } | State::Suspect { .. } if record.first_sent_s.is_none() => Executed::Unknown,
        State::Cancelled { .. } | State::Suspect { .. } => Executed::No,
    }
}

fn record_json(
    id: &RequestId,
    (record, is_packed): (&Record, bool),
    status: Option<i64>,
    bytes: Option<i64>,
) -> Object {
    let deadline_ms = match record.deadline {
        LatestDeadline::At(deadline_ms) => Some(deadline_ms),
        LatestDeadline::None => None,
    };
    let lapses_ms = match record.state {
        State::Tombstone { lapses_ms, .. } => Some(lapses_ms),
        State::Cancelled { lapses_ms } => lapses_ms,
        State::Executed(..) | State::Poisoned(_) | State::Suspect { .. } | State::Dispatched { .. } => None,
    };
    let crashes = match record.state {
        State::Suspect { crashes, .. } => Some(crashes),
        _ => None,
    };
    // Memory knows only that a packed tombstone exists, and until when.
    let known = Some(record).filter(|_| !is_packed);
    Object::default()
        .with("id", id.as_str())
        .with("state", state_of(record))
        .with("principal", known.map(|record| record.principal.as_str()))
        .with("firstSent", record.first_sent_s)
        .with("at", known.map(|record| record.at_ms))
        .with("deadline", deadline_ms.filter(|_| !is_packed))
        // With a retention for ever, a record never lapses.
        .with("lapses", lapses_ms.filter(|lapses_ms| *lapses_ms < FOREVER_S * 1000))
        .with("executed", executed_of(record).as_str())
        .with("status", status)
        .with("bytes", bytes)
        .with("crashes", crashes)
}

fn read(body: Object) -> Answer {
    let mut response = Response::json(200, body.end());
    response.headers.append("cache-control", "no-store");
    Answer::read(response)
}

fn not_found(why: &str) -> Answer {
    Answer::problem(&Problem::new(Code::NotFound, why))
}

impl Turn<'_> {
    /// Answers a request that only reads.
    pub(in crate::server) fn tell(&self, loaded: &Loaded, admin: &Admin) -> Result<Answer, SqlError> {
        if loaded.versions.engine == 0 {
            return Ok(not_found("nobody has used this key"));
        }
        match admin {
            Admin::Records { after, limit, state } => self.tell_records(after, *limit, *state),
            Admin::Times { from_ms, step_ms, count } => self.tell_times(loaded, *from_ms, *step_ms, *count),
            Admin::Record(id) => self.tell_record(loaded, id),
            Admin::Effects { after, limit } => {
                let told = self.handler.tell_effects(self.sql, self.outbox, *after, *limit)?;
                Ok(told.map_or_else(|| not_found(NO_EFFECTS), read))
            }
            Admin::Show
            | Admin::DeleteKey
            | Admin::DeleteRecord(_)
            | Admin::Resolve(_)
            | Admin::Cancel
            | Admin::Mend(..) => self.tell_key(loaded),
        }
    }

    fn tell_key(&self, loaded: &Loaded) -> Result<Answer, SqlError> {
        let with_count = |counters: Object, (status, count)| counters.with(status, count);
        let counters = self.counters.iter().fold(Object::default(), with_count);
        let body = Object::default()
            .with("key", self.arrival.key.as_str())
            .with("now", self.instant.now_ms)
            .with("records", loaded.count.records)
            .with("tombstones", loaded.count.tombstones)
            .with("inDoubt", loaded.in_doubt(self.sql, self.under_way)?)
            .with("bytes", self.sql.database_bytes()?)
            .with("sessions", loaded.sessions.count)
            .with("oldest", survey::oldest_ms(self.sql, loaded.rows(), &loaded.sweep)?)
            .with("retentionSeconds", self.config.retention())
            .with("fence", self.instant.fence_s)
            .with("forgottenBefore", self.instant.forgotten_s)
            .with("recordsMax", self.config.records_max)
            .with("tombstonesMax", self.config.tombstones_max)
            .with("sessionsMax", self.config.sessions_max)
            .with("bytesMax", self.config.bytes_max)
            .with("counters", counters.end());
        Ok(read(body))
    }

    fn tell_records(&self, after: &str, limit: i64, state: Option<i64>) -> Result<Answer, SqlError> {
        // One more record than asked for shows whether there is a next page. If a state is asked for, there is one as
        // long as anything was found.
        let mut glances = survey::glance(self.sql, after, limit + 1, state)?;
        let has_more = glances.len() as i64 > limit || state.is_some();
        glances.truncate(usize::try_from(limit).unwrap_or_default());
        let next = glances.last().filter(|_| has_more).map(|last| last.id.as_str());
        let is_meant = |glance: &&Glance| state.is_none() || state == state_named(state_of(&glance.record));
        let record =
            |Glance { id, record, status, bytes }: &Glance| record_json(id, (record, false), *status, *bytes).end();
        let records = write::array(glances.iter().filter(is_meant).map(record));
        Ok(read(Object::default().with("records", records).with("next", next)))
    }

    fn tell_times(&self, loaded: &Loaded, from_ms: i64, step_ms: i64, count: i64) -> Result<Answer, SqlError> {
        let times =
            survey::times(self.sql, from_ms, step_ms, usize::try_from(count).unwrap_or_default(), self.instant.now_ms)?;
        let body = Object::default()
            .with("from", from_ms)
            .with("step", step_ms)
            .with("records", write::array(times.records))
            .with("tombstones", write::array(times.tombstones));
        let is_truncated = times.is_truncated || loaded.rows() > TIMES_ROWS_MAX;
        Ok(read(body.with_some("truncated", Some(true).filter(|_| is_truncated))))
    }

    fn tell_record(&self, loaded: &Loaded, id: &RequestId) -> Result<Answer, SqlError> {
        let row = rows::find(self.sql, id)?;
        let is_packed = row.is_none();
        let packed = || loaded.packed.find(id, self.arrival.principal, None, self.instant.now_ms);
        let Some(record) = row.or_else(packed) else {
            return Ok(Answer::problem(&Problem::new(Code::NotSeen, "this key has no record of this id")));
        };
        let (fingerprint, outcome) = match &record.state {
            State::Executed(fingerprint, outcome) => (Some(fingerprint), Some(outcome)),
            State::Poisoned(fingerprint) | State::Dispatched { fingerprint, .. } => (Some(fingerprint), None),
            _ => (None, None),
        };
        let status = outcome.map(|outcome| i64::from(outcome.status));
        let bytes = outcome.map(|outcome| outcome.body.len() as i64);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let body = record_json(id, (&record, is_packed), status, bytes)
            .with("outcome", outcome.map(|outcome| wire_outcome(outcome)))
            .with("fingerprint", fingerprint.map(|fingerprint| hex(fingerprint.as_bytes())).as_deref());
        Ok(read(body))
    }
}
