//! A key's tables in memory: they stand in for SQLite, but are cheap to copy and to compare.
//!
//! Invariants:
//! - An unknown statement ends the check with its text, and is never guessed. So whoever changes a statement of the engine
//!   notices at once.
//! - A statement that writes many rows has the effect of one statement for each.

use crate::effect_tables::EffectTables;
use crate::session_tables::SessionTables;
use crate::values;
use semel_core::server::storage::sql::Row;
use semel_core::server::{SqlError, Value};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// A row of a record: its columns without the id, in the order of the engine's statements.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored(pub(crate) Row);

// No column holds a float, so equality is total.
impl Eq for Stored {}

impl Hash for Stored {
    fn hash<S: Hasher>(&self, state: &mut S) {
        for value in &self.0 {
            std::mem::discriminant(value).hash(state);
            match value {
                Value::Null => {}
                Value::Integer(value) => value.hash(state),
                Value::Real(value) => value.to_bits().hash(state),
                Value::Text(value) => value.hash(state),
                Value::Blob(value) => value.hash(state),
            }
        }
    }
}

/// The handler's statement.
pub const EFFECT: &str = "INSERT INTO effects";

/// The columns of [`Stored`] that are read by themselves.
pub(crate) mod column {
    pub const ALL: &str = "id, principal, first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, carried, \
         fingerprint, status, headers, body";
    pub const PRINCIPAL: usize = 0;
    pub const FIRST_SENT_S: usize = 1;
    pub const AT_MS: usize = 2;
    pub const DEADLINE_MS: usize = 3;
    pub const STATE: usize = 4;
    pub const LAPSES_MS: usize = 5;
    pub const EXECUTED: usize = 8;
    pub const CARRIED: usize = 9;
    /// From here on: fingerprint, status, headers and body.
    pub const FINGERPRINT: usize = 10;
}

/// A committed effect of the handler.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Effect {
    /// The request id.
    pub id: String,
    /// The authenticated principal.
    pub principal: String,
    /// The body of the request.
    pub payload: String,
    /// The attempt's deadline.
    pub deadline_ms: Option<i64>,
    /// The attempt's first-sent.
    pub first_sent_s: Option<i64>,
    /// The key's clock.
    pub at_ms: i64,
}

/// The engine's row about the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Meta {
    pub(crate) engine_version: i64,
    pub(crate) handler_version: i64,
    pub(crate) fence_s: i64,
    pub(crate) clock_ms: i64,
    pub(crate) forgotten_s: i64,
    pub(crate) has_key: bool,
    pub(crate) is_registered: bool,
    pub(crate) epoch: i64,
    pub(crate) forgets_s: i64,
}

/// What is committed. No text has a number here, so that every record is stored in one way only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tables {
    pub(crate) meta: Option<Meta>,
    pub(crate) records: BTreeMap<String, Stored>,
    /// The packed tombstones that no record carries. For each chunk: when it was written, when the last of its tombstones lapses,
    /// their principal, and the tombstones.
    pub(crate) chunks: BTreeMap<i64, (i64, i64, String, Vec<u8>)>,
    pub(crate) sessions: SessionTables,
    pub(crate) sent: EffectTables,
    /// The handler's table, in the order of commits.
    pub effects: Vec<Effect>,
}

impl Tables {
    /// How many records are unacknowledged, or how many are not.
    pub fn count(&self, unacknowledged: bool) -> usize {
        let is_unacknowledged = |row: &&Stored| matches!(row.state(), 1 | 2 | 4 | 7);
        self.records.values().filter(|row| is_unacknowledged(row) == unacknowledged).count()
    }

    /// The highest epoch that was given.
    pub(crate) fn epoch(&self) -> i64 {
        self.meta.as_ref().map_or(0, |meta| meta.epoch)
    }

    /// Whether the key has been used.
    pub fn is_used(&self) -> bool {
        self.meta.is_some()
    }

    /// Whether the outcome of an id is still kept.
    pub fn keeps_outcome(&self, id: &str) -> bool {
        self.records.get(id).is_some_and(|row| row.state() == 1)
    }

    /// Whether the start of an id is recorded without an outcome.
    pub fn is_dispatched(&self, id: &str) -> bool {
        self.records.get(id).is_some_and(|row| row.state() == 7)
    }
}

impl Stored {
    pub(crate) fn integer(&self, column: usize) -> Option<i64> {
        self.0.get(column).and_then(Value::as_integer)
    }

    pub(crate) fn state(&self) -> i64 {
        self.integer(column::STATE).unwrap_or_default()
    }

    pub(crate) fn row(&self, is_bare: bool) -> Row {
        let mut row = self.0.clone();
        if is_bare {
            row.truncate(column::FINGERPRINT);
        }
        row
    }
}

pub(crate) fn text(arguments: &[Value], at: usize) -> Result<String, SqlError> {
    let value = arguments.get(at).cloned().and_then(Value::into_text);
    value.ok_or_else(|| SqlError(format!("argument {at} is no text")))
}

pub(crate) fn integer(arguments: &[Value], at: usize) -> Result<i64, SqlError> {
    arguments.get(at).and_then(Value::as_integer).ok_or_else(|| SqlError(format!("argument {at} is no integer")))
}

impl Tables {
    pub(crate) fn exec(&mut self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        let starts = |start: &str| statement.starts_with(start);
        if starts("SELECT") {
            self.select(statement, arguments)
        } else if starts("INSERT OR REPLACE INTO semel_records ") {
            for row in values::rows(statement, arguments)? {
                self.records.insert(text(&row, 0)?, Stored(row[1..].to_vec()));
            }
            // Principals and header lines never have numbers here.
            Ok(if statement.contains(" RETURNING ") { vec![vec![0.into(), 0.into()]] } else { Vec::new() })
        } else if starts("INSERT INTO semel_records ") {
            let rows = values::rows(statement, arguments)?;
            rows.iter().map(|row| self.add(row)).collect()
        } else if starts("UPDATE semel_records SET id = ") {
            let mut written = Vec::new();
            for (row, gone) in values::replaced(statement, (column::ALL, "id = ?"), arguments)? {
                if self.records.remove(&text(&[gone], 0)?).is_some() {
                    written.push(self.add(&row)?);
                }
            }
            Ok(written)
        } else if statement
            == "UPDATE semel_records SET first_sent_s = ?2, deadline_ms = ?3, lapses_ms = ?4, executed = coalesce(?5, executed), \
                at_ms = ?6 WHERE id = ?1 RETURNING 1"
        {
            let Some(Stored(row)) = self.records.get_mut(&text(arguments, 0)?) else { return Ok(Vec::new()) };
            for (column, value) in
                [column::FIRST_SENT_S, column::DEADLINE_MS, column::LAPSES_MS].into_iter().zip(&arguments[1..])
            {
                row[column] = value.clone();
            }
            if arguments[4] != Value::Null {
                row[column::EXECUTED] = arguments[4].clone();
            }
            row[column::AT_MS] = arguments[5].clone();
            Ok(vec![vec![1.into()]])
        } else if starts("DELETE FROM semel_records WHERE id = ?1") {
            self.records.remove(&text(arguments, 0)?);
            Ok(Vec::new())
        } else if statement == "DELETE FROM semel_records WHERE id IN (SELECT value FROM json_each(?1))" {
            for id in values::ids(arguments)? {
                self.records.remove(&id);
            }
            Ok(Vec::new())
        } else if starts("INSERT INTO semel_texts ") {
            Ok(Vec::new())
        } else if starts("DELETE FROM semel_records WHERE id < ?1 AND id >= ?2") {
            let (above, last) = (text(arguments, 0)?, text(arguments, 1)?);
            self.records.retain(|id, _| *id >= above || *id < last);
            Ok(Vec::new())
        } else {
            self.change(statement, arguments)
        }
    }

    /// Writes a record whose id has no row yet. The row that it returns counts as one written row.
    fn add(&mut self, row: &[Value]) -> Result<Row, SqlError> {
        match self.records.insert(text(row, 0)?, Stored(row[1..].to_vec())) {
            Some(_) => Err(SqlError("UNIQUE constraint failed: semel_records.id".to_owned())),
            None => Ok(vec![1.into()]),
        }
    }

    fn change(&mut self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        if statement.contains("CREATE TABLE semel_") {
            return Ok(Vec::new());
        }
        if statement.contains("semel_effect") {
            return self.sent.change(statement, arguments);
        }
        if statement.contains("semel_sessions") || statement.contains("semel_places") {
            return self.sessions.change(statement, arguments);
        }
        if statement == "INSERT INTO semel_tombstones (at_ms, lapses_ms, principal, entries) VALUES (?1, ?2, ?3, ?4)" {
            let entries = arguments.get(3).cloned().and_then(Value::into_blob).unwrap_or_default();
            let chunk = (integer(arguments, 0)?, integer(arguments, 1)?, text(arguments, 2)?, entries);
            let last = self.chunks.last_key_value().map_or(0, |(chunk, _)| *chunk);
            self.chunks.insert(last + 1, chunk);
            return Ok(Vec::new());
        }
        if statement == "DELETE FROM semel_tombstones WHERE chunk <= ?1" {
            let last = integer(arguments, 0)?;
            self.chunks.retain(|chunk, _| *chunk > last);
            return Ok(Vec::new());
        }
        if statement.starts_with("INSERT INTO semel_meta ") {
            self.meta = Some(Meta::default());
            return Ok(Vec::new());
        }
        if statement.starts_with("INSERT INTO semel_tombstones ")
            && statement.ends_with(", carried FROM semel_records WHERE carried IS NOT NULL")
        {
            let (at_ms, lapses_ms) = (integer(arguments, 0)?, integer(arguments, 1)?);
            let last = self.chunks.last_key_value().map_or(0, |(chunk, _)| *chunk);
            let carried = self.records.values().filter_map(|Stored(row)| {
                let principal = row[column::PRINCIPAL].clone().into_text()?;
                Some((at_ms, lapses_ms, principal, row[column::CARRIED].clone().into_blob()?))
            });
            self.chunks.extend((last + 1..).zip(carried));
            return Ok(Vec::new());
        }
        if statement == "DELETE FROM semel_texts" {
            return Ok(Vec::new());
        }
        if statement == "DELETE FROM semel_totals" {
            return Ok(Vec::new());
        }
        if statement == "DELETE FROM semel_records" {
            self.records.clear();
            return Ok(Vec::new());
        }
        if statement.starts_with("PRAGMA ") {
            return Ok(Vec::new());
        }
        if statement == EFFECT {
            self.effects.push(Effect {
                id: text(arguments, 0)?,
                principal: text(arguments, 1)?,
                payload: text(arguments, 2)?,
                deadline_ms: arguments.get(3).and_then(Value::as_integer),
                first_sent_s: arguments.get(4).and_then(Value::as_integer),
                at_ms: integer(arguments, 5)?,
            });
            return Ok(vec![vec![(self.effects.len() as i64).into()]]);
        }
        let Some(meta) = &mut self.meta else { return Err(SqlError(format!("no table: {statement}"))) };
        match statement {
            "UPDATE semel_meta SET key = ?1" => meta.has_key = true,
            "UPDATE semel_meta SET is_registered = ?1" => meta.is_registered = integer(arguments, 0)? == 1,
            "UPDATE semel_meta SET epoch = ?1" => meta.epoch = integer(arguments, 0)?,
            "UPDATE semel_meta SET engine_version = ?1" => meta.engine_version = integer(arguments, 0)?,
            "UPDATE semel_meta SET handler_version = ?1" => meta.handler_version = integer(arguments, 0)?,
            "UPDATE semel_meta SET fence_s = max(fence_s, ?1), clock_ms = max(clock_ms, ?2)" => {
                meta.fence_s = meta.fence_s.max(integer(arguments, 0)?);
                meta.clock_ms = meta.clock_ms.max(integer(arguments, 1)?);
            }
            "UPDATE semel_meta SET forgets_s = max(forgets_s, ?1)" => {
                meta.forgets_s = meta.forgets_s.max(integer(arguments, 0)?);
            }
            "UPDATE semel_meta SET forgotten_s = max(forgotten_s, ?1)" => {
                meta.forgotten_s = meta.forgotten_s.max(integer(arguments, 0)?);
            }
            _ => return Err(SqlError(format!("unknown here: {statement}"))),
        }
        Ok(Vec::new())
    }
}
