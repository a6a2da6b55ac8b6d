//! What an administrator asks of all rows of a key at once.
//!
//! Invariants:
//! - Nothing is written here but by [`clear`].
//! - What a request asks of many rows is bounded, but for one walk over the instants of all.

use super::record::Record;
use super::rows::{BARE_COLUMNS, from_row, number};
use super::sql::{Sql, SqlError, Value};
use crate::id::RequestId;

/// So many rows are looked at for a plot.
pub const TIMES_ROWS_MAX: i64 = 100_000;

/// A record without its outcome, and how large that is.
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

/// Up to `limit` records with ids after `after`, in the order of ids.
pub fn glance(sql: &dyn Sql, after: &str, limit: i64) -> Result<Vec<Glance>, SqlError> {
    let statement = format!(
        "SELECT {BARE_COLUMNS}, id, status, length(body) FROM semel_records WHERE id > ?1 ORDER BY id LIMIT ?2"
    );
    let rows = sql.exec(&statement, &[after.into(), limit.into()])?;
    let glance = |mut row: Vec<Value>| {
        let bytes = row.pop()?.as_integer();
        let status = row.pop()?.as_integer();
        let id = RequestId::new(row.pop()?.into_text()?).ok()?;
        Some(Glance { id, record: from_row(row)?, status, bytes })
    };
    rows.into_iter().map(|row| glance(row).ok_or_else(unreadable)).collect()
}

/// How many records and tombstones have their instant in each step of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// Records, by step.
    pub records: Vec<i64>,
    /// Tombstones, by step.
    pub tombstones: Vec<i64>,
}

/// Counts by time, among the first [`TIMES_ROWS_MAX`] rows in the order of ids.
pub fn times(sql: &dyn Sql, from_ms: i64, step_ms: i64, count: usize) -> Result<Times, SqlError> {
    // In an object arguments are floats, and their quotient would be one.
    let statement = "SELECT (at_ms - CAST(?1 AS INTEGER)) / CAST(?2 AS INTEGER) AS step, sum(state IN (?4, ?5, ?6)), count(*) \
         FROM (SELECT at_ms, state FROM semel_records ORDER BY id LIMIT ?7) WHERE at_ms >= ?1 GROUP BY step HAVING step < ?3";
    let arguments = [
        from_ms.into(),
        step_ms.into(),
        (count as i64).into(),
        number::EXECUTED.into(),
        number::POISONED.into(),
        number::SUSPECT.into(),
        TIMES_ROWS_MAX.into(),
    ];
    let mut times = Times { records: vec![0; count], tombstones: vec![0; count] };
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
    Ok(times)
}

/// The instant of the oldest row, in Unix ms.
pub fn oldest_ms(sql: &dyn Sql) -> Result<Option<i64>, SqlError> {
    number_of(sql, "SELECT min(at_ms) FROM semel_records")
}

/// The latest first-sent of all rows, in Unix s.
pub fn latest_first_sent_s(sql: &dyn Sql) -> Result<Option<i64>, SqlError> {
    number_of(sql, "SELECT max(first_sent_s) FROM semel_records")
}

/// Deletes all rows.
pub fn clear(sql: &dyn Sql) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_records", &[]).map(|_| ())
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
