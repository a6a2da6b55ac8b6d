//! The tables of effects. The first effect creates them, so a key without effects pays nothing. Their names all begin with `semel_effect`.
//!
//! Invariant: each row of `semel_effects` waits to be sent, and the numbers of a lane have no gap.

use super::lane::{Lane, Opened, Target};
use crate::problem::Executed;
use crate::server::storage::sql::{Row, Sql, SqlError, Value};

/// Looks for the table that is created last.
const HAS: &str = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'semel_effects_parked' LIMIT 1";
const CREATE: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS semel_effect_lanes (number INTEGER PRIMARY KEY, target TEXT NOT NULL UNIQUE, seq INTEGER NOT NULL, \
     sure INTEGER, previous INTEGER NOT NULL, epoch INTEGER NOT NULL, boundary INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS semel_effects (lane INTEGER NOT NULL, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL, closing TEXT, \
     id TEXT NOT NULL, method TEXT NOT NULL, url TEXT NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL, \
     PRIMARY KEY (lane, seq)) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS semel_effects_parked (number INTEGER PRIMARY KEY, target TEXT NOT NULL, at_ms INTEGER NOT NULL, \
     id TEXT NOT NULL, method TEXT NOT NULL, url TEXT NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL, \
     parked_ms INTEGER NOT NULL, executed TEXT NOT NULL, reason TEXT NOT NULL) STRICT",
];

/// An effect without its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The key's clock when it was made, in Unix ms.
    pub at_ms: i64,
    /// Its id, which never changes.
    pub id: String,
    pub method: String,
    /// Path and query; for an outside address, the whole URL.
    pub url: String,
    /// One `name:value` a line.
    pub headers: String,
    pub body: Vec<u8>,
}

/// The first effect of a lane.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    pub seq: i64,
    /// Why its place is to be closed; `None` if it is not.
    pub closing: Option<String>,
    pub stored: Stored,
}

/// What is shown of an effect. Bodies and headers are not read for it: those of many effects would fill an isolate's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub at_ms: i64,
    pub id: String,
    pub method: String,
    pub url: String,
    /// The size of its body.
    pub bytes: i64,
}

/// What is shown of a parked effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Parked {
    pub number: i64,
    pub target: String,
    pub told: Told,
    pub parked_ms: i64,
    pub executed: String,
    pub reason: String,
}

pub fn has_tables(sql: &dyn Sql) -> Result<bool, SqlError> {
    sql.exec(HAS, &[]).map(|rows| !rows.is_empty())
}

pub fn create(sql: &dyn Sql) -> Result<(), SqlError> {
    // The statements would change nothing, but one look costs less than three of them.
    if has_tables(sql)? {
        return Ok(());
    }
    CREATE.iter().try_for_each(|statement| sql.exec(statement, &[]).map(|_| ()))
}

/// How many effects are parked.
pub fn count_parked(sql: &dyn Sql) -> Result<i64, SqlError> {
    if !has_tables(sql)? {
        return Ok(0);
    }
    number(&sql.exec("SELECT count(*) FROM semel_effects_parked", &[])?).ok_or_else(unreadable)
}

/// How many effects wait or are parked, each counted up to `max`.
pub fn count(sql: &dyn Sql, max: i64) -> Result<i64, SqlError> {
    let statement = "SELECT (SELECT count(*) FROM (SELECT 1 FROM semel_effects LIMIT +?1)) + \
                     (SELECT count(*) FROM (SELECT 1 FROM semel_effects_parked LIMIT +?1))";
    number(&sql.exec(statement, &[max.into()])?).ok_or_else(unreadable)
}

fn number(rows: &[Row]) -> Option<i64> {
    rows.first()?.first()?.as_integer()
}

fn unreadable() -> SqlError {
    SqlError("a row of the effects can't be read".to_owned())
}

/// Gives out the next number of a lane, and returns the lane as it was before. `is_open`: whether this object holds the session of a lane.
pub fn lane_of(sql: &dyn Sql, target: &Target, is_open: impl Fn(i64) -> bool) -> Result<Lane, SqlError> {
    let text = target.text();
    let rows = sql.exec(
        "SELECT number, seq, sure, previous, epoch, boundary FROM semel_effect_lanes WHERE target = ?1",
        &[text.as_str().into()],
    )?;
    let Some(row) = rows.first() else {
        let statement = "INSERT INTO semel_effect_lanes (target, seq, sure, previous, epoch, boundary) VALUES (?1, 1, 0, 0, 0, 0) RETURNING number";
        let number = number(&sql.exec(statement, &[text.into()])?).ok_or_else(unreadable)?;
        return Ok(Lane { number, target: target.clone(), seq: 0, sure: Some(0), previous: 0, epoch: 0, boundary: 0 });
    };
    let lane = lane_of_row(target.clone(), row)?;
    let sure = lane.sure.or_else(|| Some(lane.seq).filter(|_| !is_open(lane.number)));
    sql.exec(
        "UPDATE semel_effect_lanes SET seq = ?2, sure = ?3 WHERE number = ?1",
        &[lane.number.into(), (lane.seq + 1).into(), sure.into()],
    )?;
    Ok(lane)
}

fn lane_of_row(target: Target, row: &Row) -> Result<Lane, SqlError> {
    let at = |column: usize| row.get(column).and_then(Value::as_integer);
    match (at(0), at(1), at(3), at(4), at(5)) {
        (Some(number), Some(seq), Some(previous), Some(epoch), Some(boundary)) => {
            Ok(Lane { number, target, seq, sure: at(2), previous, epoch, boundary })
        }
        _ => Err(unreadable()),
    }
}

pub fn lane(sql: &dyn Sql, number: i64) -> Result<Option<Lane>, SqlError> {
    let statement =
        "SELECT number, seq, sure, previous, epoch, boundary, target FROM semel_effect_lanes WHERE number = ?1";
    let rows = sql.exec(statement, &[number.into()])?;
    let Some(row) = rows.into_iter().next() else { return Ok(None) };
    let target = row.get(6).cloned().and_then(Value::into_text).and_then(|text| Target::of_text(&text));
    lane_of_row(target.ok_or_else(unreadable)?, &row).map(Some)
}

pub fn put(sql: &dyn Sql, lane: i64, seq: i64, stored: &Stored) -> Result<(), SqlError> {
    let Stored { at_ms, id, method, url, headers, body } = stored;
    sql.exec(
        "INSERT INTO semel_effects (lane, seq, at_ms, id, method, url, headers, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        &[
            lane.into(),
            seq.into(),
            (*at_ms).into(),
            id.as_str().into(),
            method.as_str().into(),
            url.as_str().into(),
            headers.as_str().into(),
            body.as_slice().into(),
        ],
    )
    .map(|_| ())
}

/// The next lane after a number that has something to send, with the number of its first effect.
pub fn next_lane(sql: &dyn Sql, after: i64) -> Result<Option<(i64, i64)>, SqlError> {
    let statement = "SELECT lane, seq FROM semel_effects WHERE lane > ?1 ORDER BY lane, seq LIMIT 1";
    let rows = sql.exec(statement, &[after.into()])?;
    let Some(row) = rows.first() else { return Ok(None) };
    let at = |column: usize| row.get(column).and_then(Value::as_integer).ok_or_else(unreadable);
    Ok(Some((at(0)?, at(1)?)))
}

pub fn head(sql: &dyn Sql, lane: i64) -> Result<Option<Head>, SqlError> {
    let statement = "SELECT seq, closing, at_ms, id, method, url, headers, body FROM semel_effects WHERE lane = +?1 ORDER BY seq LIMIT 1";
    let Some((seq, closing, rest)) = first(sql, statement, lane.into())? else { return Ok(None) };
    let stored = stored(&rest).ok_or_else(unreadable)?;
    Ok(Some(Head { seq, closing, stored }))
}

/// What is shown of the first effect of a lane, with its number and why its place is to be closed.
pub fn head_told(sql: &dyn Sql, lane: i64) -> Result<Option<(i64, Option<String>, Told)>, SqlError> {
    let statement = "SELECT seq, closing, at_ms, id, method, url, length(body) FROM semel_effects WHERE lane = +?1 ORDER BY seq LIMIT 1";
    let Some((seq, closing, rest)) = first(sql, statement, lane.into())? else { return Ok(None) };
    Ok(Some((seq, closing, told(&rest).ok_or_else(unreadable)?)))
}

/// The first row that a statement finds: a number, a text or `NULL`, and the rest.
fn first(sql: &dyn Sql, statement: &str, argument: Value) -> Result<Option<(i64, Option<String>, Row)>, SqlError> {
    let rows = sql.exec(statement, &[argument])?;
    let Some(mut row) = rows.into_iter().next() else { return Ok(None) };
    let rest = row.split_off(row.len().min(2));
    let number = row.first().and_then(Value::as_integer).ok_or_else(unreadable)?;
    Ok(Some((number, row.pop().and_then(Value::into_text), rest)))
}

fn told(values: &[Value]) -> Option<Told> {
    let text = |column: usize| values.get(column).cloned().and_then(Value::into_text);
    let at = |column: usize| values.get(column).and_then(Value::as_integer);
    Some(Told { at_ms: at(0)?, id: text(1)?, method: text(2)?, url: text(3)?, bytes: at(4)? })
}

fn stored(values: &[Value]) -> Option<Stored> {
    let text = |column: usize| values.get(column).cloned().and_then(Value::into_text);
    Some(Stored {
        at_ms: values.first()?.as_integer()?,
        id: text(1)?,
        method: text(2)?,
        url: text(3)?,
        headers: text(4)?,
        body: values.get(5).cloned().and_then(Value::into_blob)?,
    })
}

pub fn delete(sql: &dyn Sql, lane: i64, seq: i64) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_effects WHERE lane = ?1 AND seq = ?2", &[lane.into(), seq.into()]).map(|_| ())
}

pub fn close(sql: &dyn Sql, lane: i64, seq: i64, reason: &str) -> Result<(), SqlError> {
    let statement = "UPDATE semel_effects SET closing = ?3 WHERE lane = ?1 AND seq = ?2";
    sql.exec(statement, &[lane.into(), seq.into(), reason.into()]).map(|_| ())
}

pub fn park(
    sql: &dyn Sql,
    target: &Target,
    stored: &Stored,
    now_ms: i64,
    executed: Executed,
    reason: &str,
) -> Result<(), SqlError> {
    let Stored { at_ms, id, method, url, headers, body } = stored;
    sql.exec(
        "INSERT INTO semel_effects_parked (target, at_ms, id, method, url, headers, body, parked_ms, executed, reason) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        &[
            target.text().into(),
            (*at_ms).into(),
            id.as_str().into(),
            method.as_str().into(),
            url.as_str().into(),
            headers.as_str().into(),
            body.as_slice().into(),
            now_ms.into(),
            executed.as_str().into(),
            reason.into(),
        ],
    )
    .map(|_| ())
}

/// The lane in which the effect with that id waits.
pub fn lane_with(sql: &dyn Sql, id: &str) -> Result<Option<i64>, SqlError> {
    sql.exec("SELECT lane FROM semel_effects WHERE id = ?1 LIMIT 1", &[id.into()]).map(|rows| number(&rows))
}

/// The lowest number of a lane beyond `seq`.
pub fn first_beyond(sql: &dyn Sql, lane: i64, seq: i64) -> Result<Option<i64>, SqlError> {
    let rows =
        sql.exec("SELECT min(seq) FROM semel_effects WHERE lane = +?1 AND seq > ?2", &[lane.into(), seq.into()])?;
    Ok(number(&rows))
}

/// Writes what a take-over changes.
pub fn open(sql: &dyn Sql, Opened { lane, kept, shift }: &Opened) -> Result<(), SqlError> {
    if *shift != 0 {
        // The numbers go through negative values, because an intermediate number may be in use.
        let statement = "UPDATE semel_effects SET seq = -(seq + ?3) WHERE lane = +?1 AND seq > ?2";
        sql.exec(statement, &[lane.number.into(), (*kept).into(), (*shift).into()])?;
        sql.exec("UPDATE semel_effects SET seq = -seq WHERE lane = ?1 AND seq < 0", &[lane.number.into()])?;
    }
    let statement = "UPDATE semel_effect_lanes SET seq = ?2, sure = NULL, previous = ?3, epoch = ?4, boundary = ?5 WHERE number = ?1";
    let values = [lane.number, lane.seq, lane.previous, lane.epoch, lane.boundary];
    sql.exec(statement, &values.map(Value::from)).map(|_| ())
}

/// Deletes lanes on which nothing waits: a later take-over finds out where the session stands.
pub fn sweep(sql: &dyn Sql) -> Result<(), SqlError> {
    let statement = "DELETE FROM semel_effect_lanes WHERE NOT EXISTS (SELECT 1 FROM semel_effects WHERE lane = number)";
    sql.exec(statement, &[]).map(|_| ())
}

pub fn delete_lane(sql: &dyn Sql, number: i64) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_effect_lanes WHERE number = ?1", &[number.into()]).map(|_| ())
}

pub fn parked(sql: &dyn Sql, after: i64, limit: i64) -> Result<Vec<Parked>, SqlError> {
    let statement = "SELECT number, target, parked_ms, executed, reason, at_ms, id, method, url, length(body) \
                     FROM semel_effects_parked WHERE number > ?1 ORDER BY number LIMIT +?2";
    let parked = |row: &Row| {
        let text = |column: usize| row.get(column).cloned().and_then(Value::into_text);
        let at = |column: usize| row.get(column).and_then(Value::as_integer);
        Some(Parked {
            number: at(0)?,
            target: text(1)?,
            parked_ms: at(2)?,
            executed: text(3)?,
            reason: text(4)?,
            told: told(row.get(5..)?)?,
        })
    };
    let rows = sql.exec(statement, &[after.into(), limit.into()])?;
    rows.iter().map(parked).collect::<Option<_>>().ok_or_else(unreadable)
}

/// The parked effect with that id: its number, its target, and all of it.
pub fn parked_with(sql: &dyn Sql, id: &str) -> Result<Option<(i64, String, Stored)>, SqlError> {
    let statement =
        "SELECT number, target, at_ms, id, method, url, headers, body FROM semel_effects_parked WHERE id = ?1 LIMIT 1";
    let Some((number, target, rest)) = first(sql, statement, id.into())? else { return Ok(None) };
    Ok(Some((number, target.ok_or_else(unreadable)?, stored(&rest).ok_or_else(unreadable)?)))
}

pub fn delete_parked(sql: &dyn Sql, number: i64) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_effects_parked WHERE number = ?1", &[number.into()]).map(|_| ())
}
