//! The tables of sessions in memory, beside those of [`crate::tables`].
//!
//! Invariant: an unknown statement is an error with its text, and is never guessed.

use crate::tables::{Stored, integer, text};
use crate::values;
use semel_core::server::storage::sql::Row;
use semel_core::server::{SqlError, Value};
use std::collections::BTreeMap;

/// The rows of sessions and of their places.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SessionTables {
    /// By number: the name, and the other columns in the order of the table.
    sessions: BTreeMap<i64, (String, Stored)>,
    /// By session and seq: the other columns in the order of the table.
    places: BTreeMap<(i64, i64), Stored>,
}

/// The columns of a session after its name.
mod column {
    pub const EPOCHS: usize = 1;
    pub const CLOSED_SEQ: usize = 2;
    pub const CLOSED_ACK: usize = 3;
    pub const CRASHES: usize = 4;
    pub const IS_STARTED: usize = 5;
    pub const AT_MS: usize = 6;
}

/// The columns of a place after its seq.
mod place {
    pub const ALL: &str = "session, seq, epoch, at_ms, state, fingerprint, status, headers, body";
    pub const AT_MS: usize = 1;
    pub const STATE: usize = 2;
}

impl SessionTables {
    /// How many places of all sessions have a row.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn of(&self, session: i64) -> impl DoubleEndedIterator<Item = (i64, &Stored)> {
        self.places.range((session, 0)..=(session, i64::MAX)).map(|((_, seq), row)| (*seq, row))
    }

    fn newest_ms(&self, session: i64) -> Value {
        self.of(session).next_back().map_or(Value::Null, |(_, Stored(row))| row[place::AT_MS].clone())
    }

    pub(crate) fn select(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        if statement.starts_with("SELECT count(*), max(max(at_ms,") {
            let used = |(number, (_, Stored(row))): (&i64, &(String, Stored))| {
                let (at_ms, newest_ms) = (row[column::AT_MS].as_integer(), self.newest_ms(*number).as_integer());
                (at_ms.max(newest_ms), newest_ms.and(at_ms.max(newest_ms)))
            };
            let (all, open): (Vec<_>, Vec<_>) = self.sessions.iter().map(used).unzip();
            let latest = all.iter().flatten().max().copied();
            let (oldest, due) = (all.iter().flatten().min().copied(), open.into_iter().flatten().min());
            return Ok(vec![vec![(all.len() as i64).into(), latest.into(), oldest.into(), due.into()]]);
        }
        if statement.contains("FROM semel_sessions WHERE name = ?1 LIMIT 1") {
            let name = text(arguments, 0)?;
            let found = self.sessions.iter().find(|(_, (each, _))| *each == name);
            return Ok(found
                .map(|(number, (_, Stored(row)))| [&[Value::from(*number)], row.as_slice()].concat())
                .into_iter()
                .collect());
        }
        if statement.contains("FROM semel_sessions WHERE number > ?1 ORDER BY number LIMIT +?2") {
            let after = integer(arguments, 0)?;
            let row = |(number, (_, Stored(row))): (&i64, &(String, Stored))| {
                let columns = [column::CLOSED_SEQ, column::CLOSED_ACK, column::AT_MS].map(|column| row[column].clone());
                [&[Value::from(*number)], columns.as_slice(), &[self.newest_ms(*number)]].concat()
            };
            return Ok(self.sessions.range(after + 1..).take(integer(arguments, 1)? as usize).map(row).collect());
        }
        if statement.starts_with("SELECT (SELECT seq FROM semel_places WHERE session = +?1 ORDER BY seq LIMIT 1)") {
            let session = integer(arguments, 0)?;
            let (first, last) = (self.of(session).next(), self.of(session).next_back());
            let row = first.zip(last).map(|((first, _), (last, Stored(row)))| {
                vec![first.into(), last.into(), row[place::STATE].clone(), row[place::AT_MS].clone()]
            });
            return Ok(row.into_iter().collect());
        }
        if statement.ends_with("FROM semel_places WHERE session = ?1 AND seq = ?2 LIMIT 1") {
            let found = self.places.get(&(integer(arguments, 0)?, integer(arguments, 1)?));
            return Ok(found.map(|Stored(row)| row.clone()).into_iter().collect());
        }
        Err(SqlError(format!("unknown here: {statement}")))
    }

    pub(crate) fn change(&mut self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        let starts = |start: &str| statement.starts_with(start);
        if starts("INSERT INTO semel_sessions (name, principal, epochs, closed_seq, ") {
            let number = self.sessions.last_key_value().map_or(0, |(number, _)| *number) + 1;
            let zero = || Value::from(0);
            let (principal, epochs) = (arguments[1].clone(), arguments[2].clone());
            let row = vec![principal, epochs, zero(), zero(), zero(), zero(), arguments[3].clone()];
            self.sessions.insert(number, (text(arguments, 0)?, Stored(row)));
            return Ok(Vec::new());
        }
        if starts("INSERT OR REPLACE INTO semel_places (session, seq, epoch, at_ms, state, ") {
            let rows = values::rows(statement, arguments)?;
            for row in &rows {
                self.places.insert((integer(row, 0)?, integer(row, 1)?), Stored(row[2..].to_vec()));
            }
            return Ok(rows.iter().map(|_| vec![1.into()]).collect());
        }
        if starts("UPDATE semel_places SET session = ") {
            let shape = (place::ALL, "session = +?1 AND seq = ?");
            let mut found = Vec::new();
            for (row, gone) in values::replaced(statement, shape, arguments)? {
                if self.places.remove(&(integer(arguments, 0)?, integer(&[gone], 0)?)).is_some() {
                    self.places.insert((integer(&row, 0)?, integer(&row, 1)?), Stored(row[2..].to_vec()));
                    found.push(vec![1.into()]);
                }
            }
            return Ok(found);
        }
        if statement == "DELETE FROM semel_sessions" {
            self.sessions.clear();
            return Ok(Vec::new());
        }
        if statement == "DELETE FROM semel_places" {
            self.places.clear();
            return Ok(Vec::new());
        }
        let session = integer(arguments, 0)?;
        let columns: &[usize] = match statement {
            "DELETE FROM semel_places WHERE session = ?1 AND seq <= ?2" => {
                let up_to = integer(arguments, 1)?;
                self.places.retain(|(of, seq), _| *of != session || *seq > up_to);
                return Ok(Vec::new());
            }
            "DELETE FROM semel_places WHERE session = ?1" => {
                self.places.retain(|(of, _), _| *of != session);
                return Ok(Vec::new());
            }
            "DELETE FROM semel_sessions WHERE number = ?1" => {
                self.sessions.remove(&session);
                return Ok(Vec::new());
            }
            _ if starts("UPDATE semel_places SET state = ?3, fingerprint = NULL, status = NULL,") => {
                if let Some(Stored(row)) = self.places.get_mut(&(session, integer(arguments, 1)?)) {
                    row[place::STATE] = arguments[2].clone();
                    row[place::STATE + 1..].fill(Value::Null);
                }
                return Ok(Vec::new());
            }
            "UPDATE semel_sessions SET crashes = ?2, is_started = ?3 WHERE number = ?1" => {
                &[column::CRASHES, column::IS_STARTED]
            }
            "UPDATE semel_sessions SET epochs = ?2, crashes = ?3, is_started = ?4, at_ms = ?5 WHERE number = ?1" => {
                &[column::EPOCHS, column::CRASHES, column::IS_STARTED, column::AT_MS]
            }
            "UPDATE semel_sessions SET closed_seq = ?2, closed_ack = ?3, at_ms = ?4 WHERE number = ?1" => {
                &[column::CLOSED_SEQ, column::CLOSED_ACK, column::AT_MS]
            }
            _ => return Err(SqlError(format!("unknown here: {statement}"))),
        };
        let Some((_, Stored(row))) = self.sessions.get_mut(&session) else { return Ok(Vec::new()) };
        for (column, value) in columns.iter().zip(&arguments[1..]) {
            row[*column] = value.clone();
        }
        Ok(Vec::new())
    }
}
