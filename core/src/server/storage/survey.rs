//! An administrator's queries over all records of a key.
//!
//! Invariants:
//! - Only [`clear`] writes.
//! - Each request looks at a bounded number of rows, except for the one that deletes all of them.

use super::packed;
use super::record::{Record, State};
use super::retention::Sweep;
use super::rows::{bare_columns, from_bare_row, number};
use super::sql::{Sql, SqlError, Value};
use super::tombstones;
use crate::id::RequestId;
use crate::rules::{Rule, holds};

/// The most rows of each table that a plot looks at.
pub const TIMES_ROWS_MAX: i64 = 10_000;
/// The most rows that a page of the records in one state looks at.
pub const STATE_ROWS_MAX: i64 = 10_000;
/// The most rows among which the oldest is searched for. Searching more would make requests wait.
const OLDEST_ROWS_MAX: i64 = 1_000;
/// How many rows with packed tombstones are read at a time.
const PACKED_ROWS_MAX: i64 = 256;

/// A record without its outcome, with the outcome's status and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glance {
    /// The id.
    pub id: RequestId,
    /// The record; fingerprint and outcome are empty.
    pub record: Record,
    /// The status of the outcome.
    pub status: Option<i64>,
    /// The bytes of the outcome's body.
    pub bytes: Option<i64>,
}

/// Up to `limit` records with ids after `after`, in the order of ids, without packed tombstones.
///
/// With the [number](super::rows::number) of a state, it returns only records in that state, among the first
/// [`STATE_ROWS_MAX`] rows. If there are that many rows, it also returns the last of them in whatever state, since the
/// next page begins after it.
pub fn glance(sql: &dyn Sql, after: &str, limit: i64, state: Option<i64>) -> Result<Vec<Glance>, SqlError> {
    // char(127) sorts after all ids.
    let statement = [
        "WITH far AS (SELECT id FROM semel_records WHERE id > ?1 AND ?3 > 0 ORDER BY id LIMIT 1 OFFSET ?4) SELECT ",
        &bare_columns(),
        ", id, status, length(body) FROM semel_records WHERE id > ?1 AND id <= coalesce((SELECT id FROM far), char(127)) \
         AND (?3 IN (0, state) OR id IN far) ORDER BY id LIMIT +?2",
    ]
    .concat();
    let arguments = [after.into(), limit.into(), state.unwrap_or_default().into(), (STATE_ROWS_MAX - 1).into()];
    let rows = sql.exec(&statement, &arguments)?;
    let glance = |mut row: Vec<Value>| {
        let bytes = row.pop()?.as_integer();
        let status = row.pop()?.as_integer();
        let id = RequestId::new(row.pop()?.into_text()?).ok()?;
        let record = from_bare_row(row)?;
        // A request in doubt stores in this column where it was sent.
        let status = status.filter(|_| matches!(record.state, State::Executed(..)));
        Some(Glance { id, record, status, bytes })
    };
    rows.into_iter().map(|row| glance(row).ok_or_else(unreadable)).collect()
}

/// How many records and tombstones fall into each step of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// Records, by step.
    pub records: Vec<i64>,
    /// Tombstones, by step. A packed one counts at the time of its row: of the acknowledgement, or of the record that carries it.
    pub tombstones: Vec<i64>,
    /// Whether there may be more rows of packed tombstones than were looked at.
    pub is_truncated: bool,
}

/// Counts by time, among the first [`TIMES_ROWS_MAX`] rows in the order of ids and as many chunks of packed tombstones.
/// Times are in Unix ms.
pub fn times(sql: &dyn Sql, from_ms: i64, step_ms: i64, count: usize, now_ms: i64) -> Result<Times, SqlError> {
    // In an object, arguments are floats, so their quotient would be a float as well.
    let statement = "SELECT (at_ms - CAST(?1 AS INTEGER)) / CAST(?2 AS INTEGER) AS step, sum(state IN (?4, ?5, ?6, ?7)), count(*) \
         FROM (SELECT at_ms, state FROM semel_records ORDER BY id LIMIT +?8) WHERE at_ms >= ?1 GROUP BY step HAVING step < ?3";
    let range = [from_ms, step_ms, count as i64].map(Value::from);
    let states = number::RECORDS.map(Value::from);
    let arguments = [range.as_slice(), &states, &[TIMES_ROWS_MAX.into()]].concat();
    let mut times = Times { records: vec![0; count], tombstones: vec![0; count], is_truncated: false };
    for row in sql.exec(statement, &arguments)? {
        let value = |column: usize| row.get(column).and_then(Value::as_integer).ok_or_else(unreadable);
        let (step, records, all) = (value(0)?, value(1)?, value(2)?);
        let step = usize::try_from(step).map_err(|_| unreadable())?;
        let (Some(of_records), Some(of_tombstones)) = (times.records.get_mut(step), times.tombstones.get_mut(step))
        else {
            return Err(unreadable());
        };
        (*of_records, *of_tombstones) = (records, all - records);
    }
    let carrying = "SELECT id, at_ms, carried FROM (SELECT id, at_ms, carried FROM semel_records ORDER BY id LIMIT +?3) \
         WHERE id > ?1 AND carried IS NOT NULL ORDER BY id LIMIT +?2";
    let chunks = "SELECT chunk, at_ms, entries FROM (SELECT chunk, at_ms, entries FROM semel_tombstones ORDER BY chunk LIMIT +?3) \
         WHERE chunk > ?1 ORDER BY chunk LIMIT +?2";
    for (statement, first) in [(carrying, Value::from("")), (chunks, Value::from(0))] {
        let rows_read = each_packed(sql, statement, first, |at_ms, entries| {
            let step = at_ms.checked_sub(from_ms).filter(|since_ms| *since_ms >= 0).map(|since_ms| since_ms / step_ms);
            let step = step.and_then(|step| usize::try_from(step).ok());
            if let Some(of_tombstones) = step.and_then(|step| times.tombstones.get_mut(step)) {
                *of_tombstones += packed::count_lasting(entries, now_ms).ok_or_else(unreadable)?;
            }
            Ok(())
        })?;
        times.is_truncated |= rows_read >= TIMES_ROWS_MAX;
    }
    Ok(times)
}

/// Calls `read` with the instant and the bytes of each row with packed tombstones, reading a page at a time. Returns how
/// many rows there were.
fn each_packed(
    sql: &dyn Sql,
    statement: &str,
    first: Value,
    mut read: impl FnMut(i64, &[u8]) -> Result<(), SqlError>,
) -> Result<i64, SqlError> {
    let mut after = first;
    let mut rows_read = 0;
    loop {
        let rows = sql.exec(statement, &[after.clone(), PACKED_ROWS_MAX.into(), TIMES_ROWS_MAX.into()])?;
        let is_last = (rows.len() as i64) < PACKED_ROWS_MAX;
        for row in rows {
            let [place, at_ms, entries] = <[Value; 3]>::try_from(row).map_err(|_| unreadable())?;
            let (at_ms, entries) = at_ms.as_integer().zip(entries.into_blob()).ok_or_else(unreadable)?;
            read(at_ms, &entries)?;
            rows_read += 1;
            after = place;
        }
        if is_last {
            return Ok(rows_read);
        }
    }
}

/// The instant of the oldest row, in Unix ms. If there are many rows, it is the oldest that the sweep knows of. The sweep
/// ignores requests in doubt, which may be older.
pub(in crate::server) fn oldest_ms(sql: &dyn Sql, rows: i64, sweep: &Sweep) -> Result<Option<i64>, SqlError> {
    if rows > OLDEST_ROWS_MAX {
        return Ok(sweep.oldest_ms());
    }
    number_of(sql, "SELECT min(at_ms) FROM semel_records")
}

/// The latest first-sent of all rows, in Unix seconds.
pub fn latest_first_sent_s(sql: &dyn Sql) -> Result<Option<i64>, SqlError> {
    number_of(sql, "SELECT max(first_sent_s) FROM semel_records")
}

/// Deletes all records except packed tombstones, which lapse within minutes. No row says when their requests were first
/// sent, so no fence can replace them.
pub fn clear(sql: &dyn Sql, now_ms: i64) -> Result<(), SqlError> {
    if holds(Rule::PackedOutliveKey) {
        tombstones::put_carried(sql, now_ms)?;
    }
    sql.exec("DELETE FROM semel_records", &[])?;
    sql.exec("DELETE FROM semel_texts", &[]).map(|_| ())
}

fn number_of(sql: &dyn Sql, statement: &str) -> Result<Option<i64>, SqlError> {
    let rows = sql.exec(statement, &[])?;
    match rows.first().and_then(|row| row.first()) {
        Some(Value::Null) => Ok(None),
        Some(value) => value.as_integer().map(Some).ok_or_else(unreadable),
        None => Err(unreadable()),
    }
}

fn unreadable() -> SqlError {
    SqlError("a row of semel_records is unreadable".to_owned())
}
