//! Storage that tells whether anything was written to it.

use super::sql::{Ended, Rollback, Row, Sql, SqlError, Value};
use std::cell::Cell;

/// Wraps storage and notes whether anything was written.
pub(in crate::server) struct Watched<'a> {
    sql: &'a dyn Sql,
    has_written: Cell<bool>,
}

impl<'a> Watched<'a> {
    pub fn new(sql: &'a dyn Sql) -> Self {
        Self { sql, has_written: Cell::new(false) }
    }

    /// Whether anything was written that is not known to be undone.
    pub fn has_written(&self) -> bool {
        self.has_written.get()
    }
}

impl Sql for Watched<'_> {
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        if !statement.starts_with("SELECT ") {
            self.has_written.set(true);
        }
        self.sql.exec(statement, arguments)
    }

    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError> {
        self.has_written.set(true);
        self.sql.run(statement, arguments)
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        let before = self.has_written.get();
        let ended = self.sql.transaction(body);
        if ended == Ok(Ended::RolledBack) {
            self.has_written.set(before);
        }
        ended
    }

    fn database_bytes(&self) -> Result<u64, SqlError> {
        self.sql.database_bytes()
    }
}
