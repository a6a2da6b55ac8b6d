//! SQLite in memory behind the engine's trait: a database for each input, thousands a second.
//!
//! Invariant: a statement that fails does so before it has done anything.

use rusqlite::Connection;
use semel_core::server::storage::sql::{Ended, Rollback, Row};
use semel_core::server::{Sql, SqlError, Value};
use semel_support::database::{DATABASE_BYTES, bytes_of, query};
use std::cell::Cell;

/// A database that is gone when it is dropped.
pub struct Memory {
    connection: Connection,
    depth: Cell<u32>,
    fails_in: Cell<Option<u64>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// A new, empty database.
    pub fn new() -> Self {
        let connection = Connection::open_in_memory().expect("memory");
        connection.set_prepared_statement_cache_capacity(64);
        Self { connection, depth: Cell::new(0), fails_in: Cell::new(None) }
    }

    /// Lets the `n`th statement from now fail, counted from 0; `None`: no statement.
    pub fn fail(&self, n: Option<u64>) {
        self.fails_in.set(n);
    }

    /// Changes what is stored, behind the engine's back. Nothing is changed if the STRICT table refuses the value.
    pub fn damage(&self, statement: &str, value: &Value) {
        drop(query(&self.connection, statement, std::slice::from_ref(value)));
    }

    /// Whether a failure that was asked for has yet to come.
    pub fn is_to_fail(&self) -> bool {
        self.fails_in.get().is_some()
    }

    /// Reads one number; 0 if there is no table or no row.
    pub fn number(&self, statement: &str, arguments: &[Value]) -> i64 {
        let rows = query(&self.connection, statement, arguments).unwrap_or_default();
        rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(0)
    }

    fn ask(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        match self.fails_in.get() {
            Some(0) => {
                self.fails_in.set(None);
                return Err(SqlError("this statement was to fail".to_owned()));
            }
            Some(n) => self.fails_in.set(Some(n - 1)),
            None => {}
        }
        query(&self.connection, statement, arguments).map_err(|error| SqlError(error.to_string()))
    }

    fn command(&self, outermost: &str, nested: &str) -> Result<(), SqlError> {
        let depth = self.depth.get();
        let command = if depth == 0 { outermost.to_owned() } else { nested.replace('?', &format!("nested_{depth}")) };
        self.ask(&command, &[]).map(|_| ())
    }

    /// Rolls back. The failure was asked for the transaction and not for its rollback: an object whose storage can't roll back
    /// would be dead.
    fn undo(&self) -> Result<(), SqlError> {
        self.fail(None);
        self.command("ROLLBACK", "ROLLBACK TO ?")?;
        if self.depth.get() > 0 { self.command("", "RELEASE ?") } else { Ok(()) }
    }
}

impl Sql for Memory {
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        for argument in arguments {
            if let Value::Integer(integer) = argument
                && integer.unsigned_abs() >= 1 << 53
            {
                return Err(SqlError(format!("{integer} is past 2^53 - 1")));
            }
        }
        self.ask(statement, arguments)
    }

    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError> {
        self.exec(statement, arguments).map(|_| self.connection.changes())
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.command("BEGIN", "SAVEPOINT ?")?;
        self.depth.set(self.depth.get() + 1);
        let asked = body();
        self.depth.set(self.depth.get() - 1);
        match asked {
            Ok(()) => match self.command("COMMIT", "RELEASE ?") {
                Ok(()) => Ok(Ended::Committed),
                Err(error) => {
                    self.undo()?;
                    Err(error)
                }
            },
            Err(Rollback) => self.undo().map(|()| Ended::RolledBack),
        }
    }

    fn database_bytes(&self) -> Result<u64, SqlError> {
        self.ask(DATABASE_BYTES, &[]).map(|rows| bytes_of(&rows))
    }
}
