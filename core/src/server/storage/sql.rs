//! Storage: one small trait over SQLite, in a Durable Object or in a test process.
//!
//! Invariants:
//! - Synchronous: between the first write of a transaction and its end, nothing else runs.
//! - A transaction that ends with an error leaves nothing behind. Transactions nest.
//! - Numbers cross the object's boundary as `f64`, so no integer is past 2^53 - 1. If SQL computes a larger one, it comes back as a float.
//! - A statement is prepared once. SQLite's plan depends on the value of an argument in a `LIMIT`, and of one that may
//!   match several rows which are ordered or joined; it would prepare the statement again for the next value. `+?1` hides
//!   the value from the planner.

use super::desk::Desk;
use std::fmt;

/// A value in a row, or an argument of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `NULL`
    Null,
    /// An integer within 2^53 - 1 of zero.
    Integer(i64),
    /// A float. In an object, also an integer past 2^53 - 1 that SQL computed, rounded.
    Real(f64),
    /// UTF-8 text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Blob(value.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Value {
    /// The integer, if a row may hold it; `None` for anything else. SQLite in an object returns integers as floats.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value).filter(|value| value.unsigned_abs() < 1 << 53),
            Self::Real(value) if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 => Some(*value as i64),
            _ => None,
        }
    }

    /// The text; `None` for another type.
    pub fn into_text(self) -> Option<String> {
        match self {
            Self::Text(value) => Some(value),
            _ => None,
        }
    }

    /// The bytes; `None` for another type.
    pub fn as_blob(&self) -> Option<&[u8]> {
        match self {
            Self::Blob(value) => Some(value),
            _ => None,
        }
    }

    /// The bytes, taken out; `None` for another type.
    pub fn into_blob(self) -> Option<Vec<u8>> {
        match self {
            Self::Blob(value) => Some(value),
            _ => None,
        }
    }
}

/// A row: its values in the order of the columns.
pub type Row = Vec<Value>;

/// Why a statement or a commit failed, in words for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError(pub String);

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returned by the body of a transaction to undo all that it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollback;

/// How a transaction ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All of it is written.
    Committed,
    /// The body asked to undo it, and nothing is written.
    RolledBack,
}

/// One SQLite database.
pub trait Sql {
    /// Runs one statement and returns all its rows. Arguments are `?1`, `?2`, in order.
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError>;

    /// Runs one statement that returns no rows. Returns how many rows it wrote, or more, since some implementations also
    /// count index entries.
    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError>;

    /// Runs `body` in a transaction.
    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError>;

    /// Runs `body` in a transaction that may have no savepoint, where a savepoint is expensive. `body` must write nothing
    /// until nothing can ask for a rollback any more. If it asks for one after a write all the same, the owner of the
    /// storage ends, and nothing of its turn is committed.
    fn lightly(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.transaction(body)
    }

    /// The size of the database in bytes, without its free pages.
    fn database_bytes(&self) -> Result<u64, SqlError>;

    /// The desk that keeps rows of the engine in memory, in front of the tables; `None` if the tables alone have them.
    fn desk(&self) -> Option<&Desk<'_>> {
        None
    }
}

/// Runs `body` in a transaction that is undone if `body` returns an error, which is passed on.
pub fn atomically<T, E: From<SqlError>>(sql: &dyn Sql, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    transact(sql, false, body)
}

/// As [`atomically`]; by [`Sql::lightly`] if `is_light`.
pub(in crate::server) fn transact<T, E: From<SqlError>>(
    sql: &dyn Sql,
    is_light: bool,
    body: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let mut body = Some(body);
    let mut result = None;
    let mut work = || {
        // The body runs once: an implementation that calls it again gets a rollback.
        let Some(body) = body.take() else { return Err(Rollback) };
        let outcome = body();
        let ended = if outcome.is_ok() { Ok(()) } else { Err(Rollback) };
        result = Some(outcome);
        ended
    };
    let ended = if is_light { sql.lightly(&mut work) } else { sql.transaction(&mut work) };
    match (ended, result) {
        (Ok(Ended::RolledBack), Some(Err(error))) => Err(error),
        (Ok(Ended::Committed), Some(Ok(value))) => Ok(value),
        (Err(error), _) => Err(E::from(error)),
        (Ok(_), _) => Err(E::from(SqlError("the transaction did not end as its body asked".to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_reads_as_an_integer_only_if_it_is_whole_and_within_the_safe_range() {
        for (value, integer) in [
            (3.0, Some(3)),
            (-9_007_199_254_740_991.0, Some(-9_007_199_254_740_991)),
            (1.5, None),
            (-0.5, None),
            (9_007_199_254_740_992.0, None),
            (-9_007_199_254_740_992.0, None),
            (1e300, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(Value::Real(value).as_integer(), integer, "{value}");
        }
        assert_eq!(Value::Integer(1 << 53).as_integer(), None);
        assert_eq!(Value::Integer((1 << 53) - 1).as_integer(), Some((1 << 53) - 1));
    }
}
