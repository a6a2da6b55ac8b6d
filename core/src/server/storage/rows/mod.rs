//! The rows of records.
//!
//! Invariants:
//! - A record is one row. The row is written whole, except by [`put_seen`]: an attempt that doesn't execute changes only some columns.
//! - A row that can't be read is an error. It is never taken for a missing record.
//!
//! This file has the statements about one id or a page of ids, and `together` those about many ids. `columns` and `state` convert a
//! record to a row and back. `texts` has the texts for which rows store a number.

mod columns;
mod state;
mod texts;
mod together;

use super::record::{Record, State};
use super::sql::{Row, Sql, SqlError, Value};
use crate::id::RequestId;
use columns::{columns, deadline_value, from_row};
use state::finds_number;

pub(super) use columns::{COLUMNS, PRINCIPAL, bare_columns, from_bare_row, write};
pub(super) use state::{outcome_of, outcome_values};
pub(super) use texts::{TEXT_BYTES_MAX, number as number_of_text, stands_for};
pub(super) use together::{Found, delete_all, read_executed, read_whole};

/// The number that stands for a state in a row.
pub(in crate::server) mod number {
    pub const EXECUTED: i64 = 1;
    pub const POISONED: i64 = 2;
    pub const CANCELLED: i64 = 3;
    pub const SUSPECT: i64 = 4;
    pub const ACKNOWLEDGED: i64 = 5;
    pub const EXPIRED: i64 = 6;
    pub const DISPATCHED: i64 = 7;
    /// The states that count as records. The others are tombstones and cancelled ids.
    pub const RECORDS: [i64; 4] = [EXECUTED, POISONED, SUSPECT, DISPATCHED];
}

/// Reads the record of an id.
pub fn find(sql: &dyn Sql, id: &RequestId) -> Result<Option<Record>, SqlError> {
    sql.desk().map_or_else(|| read(sql, id, false), |desk| desk.find(id, false))
}

/// Reads the record of an id without fingerprint and outcome.
pub fn find_bare(sql: &dyn Sql, id: &RequestId) -> Result<Option<Record>, SqlError> {
    sql.desk().map_or_else(|| read(sql, id, true), |desk| desk.find(id, true))
}

/// Reads the record of an id from the tables, past the desk.
pub(super) fn read(sql: &dyn Sql, id: &RequestId, is_bare: bool) -> Result<Option<Record>, SqlError> {
    let statement =
        format!("SELECT {} FROM semel_records WHERE id = ?1 LIMIT 1", if is_bare { bare_columns() } else { columns() });
    let rows = sql.exec(&statement, &[id.as_str().into()])?;
    let record = |row| if is_bare { from_bare_row(row) } else { from_row(row) };
    rows.into_iter().next().map(|row| record(row).ok_or_else(|| unreadable(id))).transpose()
}

/// Sorts after every id, because ids are printable.
pub const ABOVE_ALL: &str = "\u{7f}";

/// Up to `limit` records with ids below `above`, in descending order of ids, without fingerprints and outcomes.
pub fn page(sql: &dyn Sql, above: &str, limit: i64) -> Result<Vec<(RequestId, Record)>, SqlError> {
    let statement =
        format!("SELECT {}, id FROM semel_records WHERE id < ?1 ORDER BY id DESC LIMIT +?2", bare_columns());
    let rows = sql.exec(&statement, &[above.into(), limit.into()])?;
    rows.into_iter().map(|row| with_id(row, from_bare_row)).collect()
}

/// The highest ids that have a row, at most `limit`, in descending order.
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

/// Writes what an attempt that didn't execute changed: what [`Record::seen_again`] returns, and of a dispatched record also how an
/// attempt finds out what became of it, and its `at_ms`. Returns whether the row exists.
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

/// Deletes the records with ids below `above`, down to and including `last`.
pub fn delete_page(sql: &dyn Sql, above: &str, last: &RequestId) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_records WHERE id < ?1 AND id >= ?2", &[above.into(), last.as_str().into()]).map(|_| ())
}

/// Takes the id from the end of a row, and reads the rest with `record`.
fn with_id<T>(mut row: Row, record: impl FnOnce(Row) -> Option<T>) -> Result<(RequestId, T), SqlError> {
    let id = row.pop().and_then(Value::into_text).and_then(|id| RequestId::new(id).ok());
    id.zip(record(row)).ok_or_else(unreadable_row)
}

fn unreadable_row() -> SqlError {
    SqlError("a row of semel_records is unreadable".to_owned())
}

fn unreadable(id: &RequestId) -> SqlError {
    SqlError(format!("the record of {:?} is unreadable", id.as_str()))
}
