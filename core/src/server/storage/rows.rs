//! The rows of records.
//!
//! Invariants:
//! - One row a record, written whole, but for what an attempt adds that does not execute.
//! - A row that can't be read is an error, never a record that is not there.
//! - Principals and header lines that come again are a number in the row, and are never told apart from those that are not.

use super::packed::Bundle;
use super::record::{Finds, LatestDeadline, Outcome, Record, State, TombstoneKind};
use super::sql::{Row, Sql, SqlError, Value};
use crate::fingerprint::Fingerprint;
use crate::id::{Principal, RequestId};
use crate::message::Headers;
use crate::problem::Executed;
use crate::server::json::write::array;
use std::sync::Arc;

/// The number that stands for a state in a row.
pub(in crate::server) mod number {
    pub const EXECUTED: i64 = 1;
    pub const POISONED: i64 = 2;
    pub const CANCELLED: i64 = 3;
    pub const SUSPECT: i64 = 4;
    pub const ACKNOWLEDGED: i64 = 5;
    pub const EXPIRED: i64 = 6;
    pub const DISPATCHED: i64 = 7;
    /// Those that are records; the others are tombstones and cancelled ids.
    pub const RECORDS: [i64; 4] = [EXECUTED, POISONED, SUSPECT, DISPATCHED];
}

/// At most so many texts have a number: what a key is asked with differs little. The others stay in their rows.
const TEXTS_MAX: i64 = 128;
/// A longer text gets no number, so that all of them are a few pages at most.
pub(super) const TEXT_BYTES_MAX: usize = 256;

/// All columns.
pub(super) const COLUMNS: &str = "id, principal, first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, carried, \
     fingerprint, status, headers, body";

/// The principal of a row as text.
pub(super) const PRINCIPAL: &str = "CASE typeof(principal) WHEN 'integer' \
     THEN (SELECT text FROM semel_texts WHERE number = principal) ELSE principal END";
const HEADERS: &str = "CASE typeof(headers) WHEN 'integer' \
     THEN (SELECT text FROM semel_texts WHERE number = headers) ELSE headers END";
/// What comes between, with as much as is enough to judge what becomes of a record.
const BARE: &str = "first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, carried";

/// Reads the record of an id.
pub fn find(sql: &dyn Sql, id: &RequestId) -> Result<Option<Record>, SqlError> {
    sql.desk().map_or_else(|| read(sql, id, false), |desk| desk.find(id, false))
}

/// The columns of a record without fingerprint and outcome, as [`from_bare_row`] takes them.
pub(super) fn bare_columns() -> String {
    format!("{PRINCIPAL}, {BARE}")
}

fn columns(is_bare: bool) -> String {
    if is_bare { bare_columns() } else { format!("{}, body", columns_before_body()) }
}

fn columns_before_body() -> String {
    format!("{PRINCIPAL}, {BARE}, fingerprint, status, {HEADERS}")
}

/// Reads the record of an id without fingerprint and outcome.
pub fn find_bare(sql: &dyn Sql, id: &RequestId) -> Result<Option<Record>, SqlError> {
    sql.desk().map_or_else(|| read(sql, id, true), |desk| desk.find(id, true))
}

/// Reads the record of an id from the tables.
pub(super) fn read(sql: &dyn Sql, id: &RequestId, is_bare: bool) -> Result<Option<Record>, SqlError> {
    let statement = format!("SELECT {} FROM semel_records WHERE id = ?1 LIMIT 1", columns(is_bare));
    let rows = sql.exec(&statement, &[id.as_str().into()])?;
    let record = |row| if is_bare { from_bare_row(row) } else { from_row(row) };
    rows.into_iter().next().map(|row| record(row).ok_or_else(|| unreadable(id))).transpose()
}

/// A record that was read with others.
pub(super) struct Found {
    pub id: RequestId,
    /// `None`: there is a row, which is to be read by itself.
    pub record: Option<Record>,
    /// Whether fingerprint and outcome are left out.
    pub is_bare: bool,
}

/// An outcome with a longer body is not read together with others: all of them are in memory at once then.
const TOGETHER_BYTES_MAX: i64 = 16 << 10;

/// Reads the records of ids from the tables, all in one statement; those with a long body are each to be read by itself.
pub(super) fn read_whole(sql: &dyn Sql, ids: &[RequestId]) -> Result<Vec<Found>, SqlError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    // Without its body an outcome can't be read.
    let columns = format!("{}, iif(length(body) <= {TOGETHER_BYTES_MAX}, body, NULL)", columns_before_body());
    let (statement, arguments) = of_ids(&columns, &ids.iter().collect::<Vec<_>>());
    let found = |row| with_id(row, |row| Some(from_row(row))).map(|(id, record)| Found { id, record, is_bare: false });
    sql.exec(&statement, &arguments)?.into_iter().map(found).collect()
}

/// Reads from the tables, in one statement, which of ids have a row, and of those that were executed the record without fingerprint and outcome:
/// that is what becomes a tombstone, and what crosses to JavaScript for it are half as many values.
pub(super) fn read_executed(sql: &dyn Sql, ids: &[&RequestId]) -> Result<Vec<Found>, SqlError> {
    let columns = [PRINCIPAL, ", first_sent_s, at_ms, deadline_ms, carried, state"].concat();
    let (statement, arguments) = of_ids(&columns, ids);
    let record = |row: Row| {
        let [principal, first_sent_s, at_ms, deadline_ms, carried, state] = <[Value; 6]>::try_from(row).ok()?;
        if state.as_integer()? != number::EXECUTED {
            return Some(None);
        }
        let [lapses_ms, crashes, is_started, executed] = [const { Value::Null }; 4];
        let times = [first_sent_s, at_ms, deadline_ms, state];
        let rest = [lapses_ms, crashes, is_started, executed, carried];
        from_bare_row([principal].into_iter().chain(times).chain(rest).collect()).map(Some)
    };
    let found = |row| with_id(row, record).map(|(id, record)| Found { id, record, is_bare: true });
    sql.exec(&statement, &arguments)?.into_iter().map(found).collect()
}

/// The statement that reads these columns, and the id, of ids, and its arguments.
fn of_ids(columns: &str, ids: &[&RequestId]) -> (String, Vec<Value>) {
    let select = ["SELECT ", columns, ", id FROM semel_records WHERE id "].concat();
    let text = |id: &RequestId| id.as_str().into();
    // A request and the one that it acknowledges are what most come with. For a list SQLite makes a table, which takes it as long as a row.
    match *ids {
        [one] => (select + "= ?1", vec![text(one)]),
        [one, other] if one != other => {
            ([&select, "= ?1 UNION ALL ", &select, "= ?2"].concat(), vec![text(one), text(other)])
        }
        _ => (select + "IN (SELECT value FROM json_each(?1))", vec![list(ids.iter().copied()).into()]),
    }
}

/// Ids as an array in JSON.
fn list<'a>(ids: impl IntoIterator<Item = &'a RequestId>) -> String {
    array(ids.into_iter().map(RequestId::as_str)).into_text()
}

/// A row with the id at its end.
fn with_id<T>(mut row: Row, record: impl FnOnce(Row) -> Option<T>) -> Result<(RequestId, T), SqlError> {
    let id = row.pop().and_then(Value::into_text).and_then(|id| RequestId::new(id).ok());
    id.zip(record(row)).ok_or_else(unreadable_row)
}

/// Above all ids, which are printable.
pub const ABOVE_ALL: &str = "\u{7f}";

/// Up to `limit` records with ids below `above`, the last first, without fingerprints and outcomes.
pub fn page(sql: &dyn Sql, above: &str, limit: i64) -> Result<Vec<(RequestId, Record)>, SqlError> {
    let statement =
        format!("SELECT {}, id FROM semel_records WHERE id < ?1 ORDER BY id DESC LIMIT +?2", bare_columns());
    let rows = sql.exec(&statement, &[above.into(), limit.into()])?;
    rows.into_iter().map(|row| with_id(row, from_bare_row)).collect()
}

/// Up to `limit` ids that have a row, the last first.
pub(super) fn last_ids(sql: &dyn Sql, limit: usize) -> Result<Vec<RequestId>, SqlError> {
    let statement = "SELECT id FROM semel_records ORDER BY id DESC LIMIT +?1";
    let id = |row: Row| row.into_iter().next()?.into_text().and_then(|id| RequestId::new(id).ok());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    sql.exec(statement, &[limit.into()])?.into_iter().map(|row| id(row).ok_or_else(unreadable_row)).collect()
}

/// Writes the record of an id, whole.
pub fn put(sql: &dyn Sql, id: &RequestId, record: &Record) -> Result<(), SqlError> {
    sql.desk().map_or_else(|| write(sql, id, record), |desk| desk.change(id, Some(record)))
}

/// Writes the record of an id into the tables.
pub(super) fn write(sql: &dyn Sql, id: &RequestId, record: &Record) -> Result<(), SqlError> {
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
        State::Dispatched { fingerprint: print, times, first_ms, finds, whither } => {
            fingerprint = print.as_bytes().into();
            crashes = (*times).into();
            is_started = (*first_ms).into();
            executed = finds_number(*finds).into();
            // It has no status yet.
            outcome[0] = (*whither).into();
            number::DISPATCHED
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
    let texts = [record.principal.as_str().into(), headers.clone()];
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
        carried_value(&record.carried),
        fingerprint,
        status,
        headers,
        body,
    ];
    let statement = format!(
        "INSERT OR REPLACE INTO semel_records ({COLUMNS}) VALUES (?1, {}, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, \
         {}, ?15) RETURNING typeof(principal) = 'text', typeof(headers) = 'text'",
        number_of("?2"),
        number_of("?14"),
    );
    let written = sql.exec(&statement, &arguments)?.into_iter().next().unwrap_or_default();
    for (text, is_text) in texts.iter().zip(&written) {
        if let Value::Text(text) = text
            && is_text.as_integer() == Some(1)
            && text.len() <= TEXT_BYTES_MAX
        {
            number(sql, text)?;
        }
    }
    Ok(())
}

/// What an attempt finds out by, as a number: an instant until then; less than 0 the one before which nothing is proven. All are after 1970.
fn finds_number(finds: Finds) -> i64 {
    match finds {
        Finds::Until(until_ms) => until_ms,
        Finds::Asked(proves_ms) => proves_ms.wrapping_neg(),
    }
}

/// The number of a text, else the text itself.
fn number_of(argument: &str) -> String {
    format!("coalesce((SELECT number FROM semel_texts WHERE text = {argument}), {argument})")
}

/// In SQL, an argument that is a text or the number of one: what comes from JavaScript is a float.
pub(super) fn stands_for(argument: &str) -> String {
    format!("iif(typeof({argument}) = 'text', {argument}, CAST({argument} AS INTEGER))")
}

/// The number of a text. It is given one, for the rows to come, if it has none and there is one to be given.
pub(super) fn number(sql: &dyn Sql, text: &str) -> Result<Option<i64>, SqlError> {
    let number = |rows: Vec<Row>| rows.first().and_then(|row| row.first()).and_then(Value::as_integer);
    let known = number(sql.exec("SELECT number FROM semel_texts WHERE text = ?1", &[text.into()])?);
    if known.is_some() {
        return Ok(known);
    }
    let statement =
        "INSERT INTO semel_texts (text) SELECT ?1 WHERE (SELECT count(*) FROM semel_texts) < ?2 RETURNING number";
    sql.exec(statement, &[text.into(), TEXTS_MAX.into()]).map(number)
}

/// Writes what an attempt that did not execute changed: what [`Record::seen_again`] gives, that it was told the worst, and from when on a call counts.
/// Answers whether there is a row.
pub fn put_seen(sql: &dyn Sql, id: &RequestId, record: &Record) -> Result<bool, SqlError> {
    let (lapses_ms, executed) = match record.state {
        State::Tombstone { lapses_ms, .. } => (Some(lapses_ms), None),
        State::Cancelled { lapses_ms } => (lapses_ms, None),
        State::Dispatched { finds, .. } => (None, Some(finds_number(finds))),
        State::Executed(..) | State::Poisoned(_) | State::Suspect { .. } => (None, None),
    };
    let arguments = [
        id.as_str().into(),
        record.first_sent_s.into(),
        deadline_value(record.deadline),
        lapses_ms.into(),
        executed.into(),
        record.at_ms.into(),
    ];
    let statement = "UPDATE semel_records SET first_sent_s = ?2, deadline_ms = ?3, lapses_ms = ?4, executed = coalesce(?5, executed), \
                     at_ms = ?6 WHERE id = ?1 RETURNING 1";
    Ok(!sql.exec(statement, &arguments)?.is_empty())
}

/// Deletes the record of an id.
pub fn delete(sql: &dyn Sql, id: &RequestId) -> Result<(), SqlError> {
    sql.desk().map_or_else(
        || sql.run("DELETE FROM semel_records WHERE id = ?1", &[id.as_str().into()]).map(|_| ()),
        |desk| desk.change(id, None),
    )
}

/// Deletes the records of ids from the tables.
pub(super) fn delete_all<'a>(sql: &dyn Sql, ids: impl Iterator<Item = &'a RequestId>) -> Result<(), SqlError> {
    let mut ids = ids.peekable();
    if ids.peek().is_none() {
        return Ok(());
    }
    sql.run("DELETE FROM semel_records WHERE id IN (SELECT value FROM json_each(?1))", &[list(ids).into()]).map(|_| ())
}

/// Deletes the records with ids below `above`, down to `last`.
pub fn delete_page(sql: &dyn Sql, above: &str, last: &RequestId) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_records WHERE id < ?1 AND id >= ?2", &[above.into(), last.as_str().into()]).map(|_| ())
}

pub(super) fn carried_value(carried: &Bundle) -> Value {
    Some(carried.as_bytes()).filter(|carried| !carried.is_empty()).into()
}

pub(super) fn deadline_value(deadline: LatestDeadline) -> Value {
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

/// A record without fingerprint and outcome, which may be large: both are empty.
pub(super) fn from_bare_row(mut row: Row) -> Option<Record> {
    row.extend([const { Value::Null }; 4]);
    read_row(row, true)
}

fn from_row(row: Row) -> Option<Record> {
    read_row(row, false)
}

fn read_row(row: Row, is_bare: bool) -> Option<Record> {
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
        carried,
        fingerprint,
        status,
        headers,
        body,
    ] = <[Value; 14]>::try_from(row).ok()?;
    let tombstone = |kind| {
        // Whatever can't be read must not be told as `no`: the client would make a new request.
        let executed = [Executed::No, Executed::Yes, Executed::Unknown]
            .into_iter()
            .find(|each| executed.as_integer() == Some(executed_number(*each)))?;
        Some(State::Tombstone { kind, executed, lapses_ms: lapses_ms.as_integer()? })
    };
    let print = |fingerprint: Value| match is_bare {
        true => Fingerprint::from_bytes(&[0; 32]),
        false => Fingerprint::from_bytes(&fingerprint.into_blob()?),
    };
    let state = match state.as_integer()? {
        number::EXECUTED => {
            let outcome = match is_bare {
                true => Outcome { status: 200, headers: Headers::new(), body: Vec::new() },
                false => Outcome {
                    status: u16::try_from(status.as_integer()?).ok().filter(|status| (200..=599).contains(status))?,
                    headers: Headers::from_stored(&headers.into_text()?)?,
                    body: body.into_blob()?,
                },
            };
            State::Executed(print(fingerprint)?, Arc::new(outcome))
        }
        number::POISONED => State::Poisoned(print(fingerprint)?),
        number::CANCELLED => State::Cancelled { lapses_ms: optional(&lapses_ms)? },
        number::SUSPECT => {
            let is_started = match is_started.as_integer()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            State::Suspect { crashes: crashes.as_integer().filter(|crashes| *crashes >= 0)?, is_started }
        }
        number::DISPATCHED => State::Dispatched {
            fingerprint: print(fingerprint)?,
            times: crashes.as_integer().filter(|times| *times > 0)?,
            first_ms: is_started.as_integer()?,
            // Of one that was told the worst, versions before this wrote a 2: an instant that has passed; and of one that is asked for nothing.
            finds: match optional(&executed)?.unwrap_or(-1) {
                proves_ms @ ..0 => Finds::Asked(proves_ms.wrapping_neg()),
                until_ms => Finds::Until(until_ms),
            },
            whither: optional(&status)?,
        },
        number::ACKNOWLEDGED => tombstone(TombstoneKind::Acknowledged)?,
        number::EXPIRED => tombstone(TombstoneKind::Expired)?,
        _ => return None,
    };
    let carried = match carried {
        Value::Null => Bundle::default(),
        carried => Bundle::from_bytes(carried.into_blob()?)?,
    };
    let deadline = optional(&deadline_ms)?.map_or(LatestDeadline::None, LatestDeadline::At);
    Some(Record {
        principal: Principal::new(principal.into_text()?).ok()?,
        first_sent_s: optional(&first_sent_s)?,
        at_ms: at_ms.as_integer()?,
        deadline,
        state,
        carried,
    })
}

fn unreadable_row() -> SqlError {
    SqlError("a row of semel_records is unreadable".to_owned())
}

fn unreadable(id: &RequestId) -> SqlError {
    SqlError(format!("the record of {:?} is unreadable", id.as_str()))
}
