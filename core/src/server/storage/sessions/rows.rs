//! The rows of sessions and of their places.
//!
//! Invariants:
//! - A row that can't be read is an error; it never counts as a missing session or place.
//! - The row of a place is written once, complete. An acknowledgement deletes it, or, if it is the last of its session,
//!   removes its outcome.

use super::state::{Epochs, Rows, Session, Taken, TakenState};
use crate::fingerprint::Fingerprint;
use crate::id::Principal;
use crate::server::storage::crashes::Count;
use crate::server::storage::rows::{number, outcome_of, outcome_values};
use crate::server::storage::sql::{Row, Sql, SqlError, Value};
use crate::session::SessionName;
use std::sync::Arc;

/// Reads a session; `None` if there is none.
pub fn find(sql: &dyn Sql, name: &SessionName) -> Result<Option<Session>, SqlError> {
    sql.desk().map_or_else(|| read(sql, name), |desk| desk.session(name))
}

/// Reads a session from the tables, past the desk.
pub(in crate::server) fn read(sql: &dyn Sql, name: &SessionName) -> Result<Option<Session>, SqlError> {
    let statement = "SELECT number, principal, epochs, closed_seq, closed_ack, crashes, is_started, at_ms FROM semel_sessions \
         WHERE name = ?1 LIMIT 1";
    let Some(row) = sql.exec(statement, &[name.as_str().into()])?.into_iter().next() else { return Ok(None) };
    let mut session = session_of(row).ok_or_else(unreadable)?;
    session.rows = rows_of(sql, session.number)?;
    Ok(Some(session))
}

fn session_of(row: Row) -> Option<Session> {
    let [number, principal, epochs, closed_seq, closed_ack, crashes, is_started, at_ms] =
        <[Value; 8]>::try_from(row).ok()?;
    Some(Session {
        number: number.as_integer()?,
        principal: Principal::new(principal.into_text()?).ok()?,
        epochs: Epochs::from_bytes(&epochs.into_blob()?)?,
        closed_seq: closed_seq.as_integer()?,
        closed_ack: closed_ack.as_integer()?,
        count: Count { crashes: crashes.as_integer()?, is_started: is_started.as_integer()? == 1 },
        at_ms: at_ms.as_integer()?,
        rows: None,
    })
}

/// What the rows of a session's places span; `None` if no place has a row.
pub fn rows_of(sql: &dyn Sql, session: i64) -> Result<Option<Rows>, SqlError> {
    let statement = "SELECT (SELECT seq FROM semel_places WHERE session = +?1 ORDER BY seq LIMIT 1), seq, state, at_ms \
         FROM semel_places WHERE session = +?1 ORDER BY seq DESC LIMIT 1";
    let Some(row) = sql.exec(statement, &[session.into()])?.into_iter().next() else { return Ok(None) };
    let integer = |column: usize| row.get(column).and_then(Value::as_integer).ok_or_else(unreadable);
    let is_last_acknowledged = integer(2)? == number::ACKNOWLEDGED;
    Ok(Some(Rows { first: integer(0)?, last: integer(1)?, is_last_acknowledged, last_ms: integer(3)? }))
}

/// Reads a place; `None` if it has no row.
pub fn find_taken(sql: &dyn Sql, session: &Session, seq: i64) -> Result<Option<Taken>, SqlError> {
    if !session.rows.is_some_and(|rows| (rows.first..=rows.last).contains(&seq)) {
        return Ok(None);
    }
    sql.desk().map_or_else(|| read_taken(sql, session, seq), |desk| desk.taken(session, seq))
}

/// Reads a place from the tables, past the desk.
pub(in crate::server) fn read_taken(sql: &dyn Sql, session: &Session, seq: i64) -> Result<Option<Taken>, SqlError> {
    let statement = "SELECT epoch, at_ms, state, fingerprint, status, headers, body FROM semel_places \
         WHERE session = ?1 AND seq = ?2 LIMIT 1";
    let rows = sql.exec(statement, &[session.number.into(), seq.into()])?;
    rows.into_iter().next().map(|row| taken_of(row).ok_or_else(unreadable)).transpose()
}

fn taken_of(row: Row) -> Option<Taken> {
    let [epoch, at_ms, state, fingerprint, status, headers, body] = <[Value; 7]>::try_from(row).ok()?;
    let state = match state.as_integer()? {
        number::EXECUTED => {
            let outcome = outcome_of(&status, headers, body)?;
            TakenState::Executed(Fingerprint::from_bytes(&fingerprint.into_blob()?)?, Arc::new(outcome))
        }
        number::POISONED => TakenState::Poisoned(Fingerprint::from_bytes(&fingerprint.into_blob()?)?),
        number::CANCELLED => TakenState::Cancelled,
        number::ACKNOWLEDGED => TakenState::Acknowledged,
        _ => return None,
    };
    Some(Taken { epoch: epoch.as_integer()?, at_ms: at_ms.as_integer()?, state })
}

/// All columns of a place.
pub(in crate::server) const COLUMNS: &str = "session, seq, epoch, at_ms, state, fingerprint, status, headers, body";

/// Writes a place.
pub fn put_taken(sql: &dyn Sql, session: i64, seq: i64, taken: &Taken) -> Result<(), SqlError> {
    sql.desk().map_or_else(|| write_taken(sql, session, seq, taken), |desk| desk.put_taken(session, seq, taken))
}

/// Writes a place to the tables, past the desk.
pub(in crate::server) fn write_taken(sql: &dyn Sql, session: i64, seq: i64, taken: &Taken) -> Result<(), SqlError> {
    let mut outcome = [Value::Null, Value::Null, Value::Null];
    let (state, fingerprint) = match &taken.state {
        TakenState::Executed(fingerprint, recorded) => {
            outcome = outcome_values(recorded);
            (number::EXECUTED, fingerprint.as_bytes().into())
        }
        TakenState::Poisoned(fingerprint) => (number::POISONED, fingerprint.as_bytes().into()),
        TakenState::Cancelled => (number::CANCELLED, Value::Null),
        TakenState::Acknowledged => (number::ACKNOWLEDGED, Value::Null),
    };
    let [status, headers, body] = outcome;
    let statement =
        format!("INSERT OR REPLACE INTO semel_places ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)");
    let (epoch, at_ms) = (taken.epoch.into(), taken.at_ms.into());
    sql.exec(
        &statement,
        &[session.into(), seq.into(), epoch, at_ms, state.into(), fingerprint, status, headers, body],
    )?;
    Ok(())
}

/// Deletes the places up to and including a number.
pub fn delete_places(sql: &dyn Sql, session: i64, up_to_seq: i64) -> Result<(), SqlError> {
    sql.desk().map_or_else(|| write_deleted(sql, session, up_to_seq), |desk| desk.delete_places(session, up_to_seq))
}

/// Deletes the places up to and including a number from the tables, past the desk.
pub(in crate::server) fn write_deleted(sql: &dyn Sql, session: i64, up_to_seq: i64) -> Result<(), SqlError> {
    let statement = "DELETE FROM semel_places WHERE session = ?1 AND seq <= ?2";
    sql.exec(statement, &[session.into(), up_to_seq.into()]).map(|_| ())
}

/// Removes the outcome of a place that was acknowledged, and keeps its row.
pub fn reduce(sql: &dyn Sql, session: i64, seq: i64) -> Result<(), SqlError> {
    let statement = "UPDATE semel_places SET state = ?3, fingerprint = NULL, status = NULL, headers = NULL, body = NULL \
         WHERE session = ?1 AND seq = ?2";
    sql.exec(statement, &[session.into(), seq.into(), number::ACKNOWLEDGED.into()]).map(|_| ())
}

/// Writes the count of crashes of the session's next place.
pub fn put_count(sql: &dyn Sql, session: i64, count: Count) -> Result<(), SqlError> {
    let statement = "UPDATE semel_sessions SET crashes = ?2, is_started = ?3 WHERE number = ?1";
    sql.exec(statement, &[session.into(), count.crashes.into(), i64::from(count.is_started).into()]).map(|_| ())
}

/// Writes a new session.
pub fn insert(
    sql: &dyn Sql,
    name: &SessionName,
    principal: &Principal,
    epochs: &Epochs,
    now_ms: i64,
) -> Result<(), SqlError> {
    let statement = "INSERT INTO semel_sessions (name, principal, epochs, closed_seq, closed_ack, crashes, is_started, at_ms) \
         VALUES (?1, ?2, ?3, 0, 0, 0, 0, ?4)";
    let epochs = epochs.to_bytes();
    let arguments = [name.as_str().into(), principal.as_str().into(), epochs.as_slice().into(), now_ms.into()];
    sql.exec(statement, &arguments).map(|_| ())
}

/// Writes a new holder, with the count of crashes of the next place.
pub fn put_epochs(sql: &dyn Sql, session: i64, epochs: &Epochs, count: Count, now_ms: i64) -> Result<(), SqlError> {
    let statement =
        "UPDATE semel_sessions SET epochs = ?2, crashes = ?3, is_started = ?4, at_ms = ?5 WHERE number = ?1";
    let epochs = epochs.to_bytes();
    let (crashes, is_started) = (count.crashes.into(), i64::from(count.is_started).into());
    sql.exec(statement, &[session.into(), epochs.as_slice().into(), crashes, is_started, now_ms.into()]).map(|_| ())
}

/// Writes the last number and the last acknowledged number of an idle session, and when it was last used.
pub fn put_closed(sql: &dyn Sql, session: i64, seq: i64, ack: i64, used_ms: i64) -> Result<(), SqlError> {
    let statement = "UPDATE semel_sessions SET closed_seq = ?2, closed_ack = ?3, at_ms = ?4 WHERE number = ?1";
    sql.exec(statement, &[session.into(), seq.into(), ack.into(), used_ms.into()]).map(|_| ())
}

/// Deletes a session with its places.
pub fn delete(sql: &dyn Sql, session: i64) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_places WHERE session = ?1", &[session.into()])?;
    sql.exec("DELETE FROM semel_sessions WHERE number = ?1", &[session.into()]).map(|_| ())
}

/// Deletes all sessions.
pub fn clear(sql: &dyn Sql) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_places", &[])?;
    sql.exec("DELETE FROM semel_sessions", &[]).map(|_| ())
}

pub(in crate::server) fn unreadable() -> SqlError {
    SqlError("a row of a session is unreadable".to_owned())
}
