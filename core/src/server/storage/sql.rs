//! Storage: one small trait over SQLite, in an object or in a test process.
//!
//! Invariants:
//! - Synchronous: between the first write of a transaction and its end, nothing else runs.
//! - A transaction that ends with an error leaves nothing behind. Transactions nest.
//! - Numbers cross the object's boundary as `f64`, so no integer is past 2^53 - 1: one that SQL computes beyond comes back as a float.
//! - A statement is prepared once. SQLite plans by the value of an argument that limits, or that several rows may have which are put in order or
//!   joined, and prepares again for the next; `+?1` keeps the value from it.

use super::desk::Desk;
use std::fmt;

/// A value of a row or an argument.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `NULL`
    Null,
    /// An integer within 2^53 - 1 of zero.
    Integer(i64),
    /// A float. In an object, an integer too that SQL has computed past 2^53 - 1: rounded.
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
    /// The integer, if it is one that a row may hold. SQLite in an object hands integers over as floats.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value).filter(|value| value.unsigned_abs() < 1 << 53),
            Self::Real(value) if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 => Some(*value as i64),
            _ => None,
        }
    }

    /// The text, if it is some.
    pub fn into_text(self) -> Option<String> {
        match self {
            Self::Text(value) => Some(value),
            _ => None,
        }
    }

    /// The bytes, if it is some.
    pub fn as_blob(&self) -> Option<&[u8]> {
        match self {
            Self::Blob(value) => Some(value),
            _ => None,
        }
    }

    /// The same, taken out.
    pub fn into_blob(self) -> Option<Vec<u8>> {
        match self {
            Self::Blob(value) => Some(value),
            _ => None,
        }
    }
}

/// A row: its values in the order of the columns.
pub type Row = Vec<Value>;

/// Why a statement or a commit failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError(pub String);

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a transaction's body answers to undo all that it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollback;

/// How a transaction ended, when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All is written.
    Committed,
    /// The body asked for it, and nothing is written.
    RolledBack,
}

/// One SQLite database.
pub trait Sql {
    /// Runs one statement and returns all its rows. Arguments are `?1`, `?2`, in order.
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError>;

    /// Runs one statement that gives no rows. Answers how many it has written, or more: what an index has is counted by some.
    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError>;

    /// Runs `body` in a transaction.
    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError>;

    /// The same, without the means to undo what `body` writes, where that is dear: it writes nothing before all that may ask to be undone is over. Should
    /// it be undone all the same once something is written, whoever has the storage ends, and nothing of the turn is committed.
    fn lightly(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.transaction(body)
    }

    /// How many bytes the database has, without its free pages.
    fn database_bytes(&self) -> Result<u64, SqlError>;

    /// What has the engine's rows, where requests are committed together; `None`: nothing but the tables has.
    fn desk(&self) -> Option<&Desk<'_>> {
        None
    }
}

/// Runs `body` in a transaction that is undone if it answers an error.
pub fn atomically<T, E: From<SqlError>>(sql: &dyn Sql, body: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    transact(sql, false, body)
}

/// The same; where it `is_light`, by [`Sql::lightly`].
pub(in crate::server) fn transact<T, E: From<SqlError>>(
    sql: &dyn Sql,
    is_light: bool,
    body: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let mut body = Some(body);
    let mut result = None;
    let mut work = || {
        // The body is run once: storage that asks again gets a rollback.
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
