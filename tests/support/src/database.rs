//! SQLite in a file, behind the engine's trait, that can die before any statement.
//!
//! Invariants:
//! - Every statement counts: `BEGIN`, `SAVEPOINT`, `COMMIT`, `RELEASE` and `ROLLBACK` too. A crash falls between two of them.
//! - After a crash every call fails and nothing open is committed, as for an object that dies; only a reopened
//!   database goes on.
//! - What a test looks at comes through a connection of its own, so it is committed.

use rusqlite::types::{Value as SqliteValue, ValueRef};
use rusqlite::{Connection, params_from_iter};
use semel_core::server::sql::{Ended, Rollback, Row};
use semel_core::server::{Sql, SqlError, Value};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest integer that reaches an object's SQLite unchanged.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// What is to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// After so many more statements, the object dies.
    Crash(u64),
    /// After so many more statements, one fails.
    Fail(u64),
}

/// A database in a temporary folder of its own.
pub struct Database {
    folder: PathBuf,
    /// `None`: it has died.
    connection: RefCell<Option<Connection>>,
    depth: Cell<u32>,
    fault: Cell<Fault>,
    statements: Cell<u64>,
}

impl Default for Database {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(self.connection.take());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

impl Database {
    /// A new, empty database.
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("semel-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let database = Self {
            folder,
            connection: RefCell::new(None),
            depth: Cell::new(0),
            fault: Cell::new(Fault::None),
            statements: Cell::new(0),
        };
        database.reopen();
        database
    }

    /// Drops the connection, and all that it has not committed, and opens the file again.
    pub fn reopen(&self) {
        drop(self.connection.take());
        let connection = self.open();
        // The machine does not die in these tests, only the object.
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").expect("pragmas");
        connection.set_prepared_statement_cache_capacity(64);
        self.connection.replace(Some(connection));
        self.depth.set(0);
        self.fault.set(Fault::None);
    }

    /// Lets the object die before the `n`th statement from now, counted from 0.
    pub fn crash_before(&self, n: u64) {
        self.fault.set(Fault::Crash(n));
    }

    /// Lets the `n`th statement from now fail, counted from 0. The object lives on.
    pub fn fail(&self, n: u64) {
        self.fault.set(Fault::Fail(n));
    }

    /// Whether the object has died.
    pub fn has_crashed(&self) -> bool {
        self.connection.borrow().is_none()
    }

    /// How many statements there were.
    pub fn statements(&self) -> u64 {
        self.statements.get()
    }

    /// How many rows this connection has inserted, updated and deleted.
    pub fn rows_written(&self) -> u64 {
        self.connection.borrow().as_ref().map_or(0, Connection::total_changes)
    }

    /// Asks for what is committed. A table that does not exist has no rows.
    pub fn query(&self, statement: &str) -> Vec<Row> {
        match query(&self.open(), statement, &[]) {
            Ok(rows) => rows,
            Err(error) if error.to_string().contains("no such table") => Vec::new(),
            Err(error) => panic!("{statement}: {error}"),
        }
    }

    /// Asks for one number; 0 where there is no table or no row.
    pub fn number(&self, statement: &str) -> i64 {
        self.query(statement).first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(0)
    }

    /// Changes what is committed, behind the engine's back.
    pub fn tamper(&self, statement: &str) {
        self.open().execute(statement, []).expect(statement);
    }

    /// The names of all tables.
    pub fn tables(&self) -> Vec<String> {
        let rows = self.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
        rows.into_iter().flatten().filter_map(Value::into_text).collect()
    }

    fn open(&self) -> Connection {
        Connection::open(self.folder.join("key.sqlite")).expect("a database in the temporary folder")
    }

    /// Before every statement: counts it, and lets come what was asked for.
    fn step(&self) -> Result<(), SqlError> {
        self.statements.set(self.statements.get() + 1);
        match self.fault.get() {
            Fault::None => {}
            Fault::Crash(0) => drop(self.connection.take()),
            Fault::Crash(n) => self.fault.set(Fault::Crash(n - 1)),
            Fault::Fail(0) => {
                self.fault.set(Fault::None);
                return Err(SqlError("this statement was to fail".to_owned()));
            }
            Fault::Fail(n) => self.fault.set(Fault::Fail(n - 1)),
        }
        if self.has_crashed() { Err(SqlError("the object has died".to_owned())) } else { Ok(()) }
    }

    fn run(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        let connection = self.connection.borrow();
        let Some(connection) = connection.as_ref() else { return Err(SqlError("the object has died".to_owned())) };
        query(connection, statement, arguments).map_err(|error| SqlError(error.to_string()))
    }

    fn command(&self, outermost: &str, nested: &str) -> Result<(), SqlError> {
        self.step()?;
        let depth = self.depth.get();
        let command = if depth == 0 { outermost.to_owned() } else { nested.replace('?', &format!("nested_{depth}")) };
        self.run(&command, &[]).map(|_| ())
    }

    fn undo(&self) -> Result<(), SqlError> {
        self.command("ROLLBACK", "ROLLBACK TO ?")?;
        if self.depth.get() > 0 { self.command("", "RELEASE ?") } else { Ok(()) }
    }
}

impl Sql for Database {
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        self.step()?;
        for argument in arguments {
            if let Value::Integer(integer) = argument
                && integer.unsigned_abs() > INTEGER_MAX
            {
                return Err(SqlError(format!("{integer} is past 2^53 - 1")));
            }
        }
        self.run(statement, arguments)
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.command("BEGIN IMMEDIATE", "SAVEPOINT ?")?;
        self.depth.set(self.depth.get() + 1);
        let asked = body();
        self.depth.set(self.depth.get() - 1);
        match asked {
            Ok(()) => match self.command("COMMIT", "RELEASE ?") {
                Ok(()) => Ok(Ended::Committed),
                Err(error) => {
                    // Of a commit that fails nothing may stay; of a dead object nothing does.
                    drop(self.undo());
                    Err(error)
                }
            },
            Err(Rollback) => self.undo().map(|()| Ended::RolledBack),
        }
    }
}

fn query(connection: &Connection, statement: &str, arguments: &[Value]) -> rusqlite::Result<Vec<Row>> {
    let mut prepared = connection.prepare_cached(statement)?;
    let columns = prepared.column_count();
    let mut found = prepared.query(params_from_iter(arguments.iter().map(to_sqlite)))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push((0..columns).map(|column| row.get_ref(column).map(from_sqlite)).collect::<Result<_, _>>()?);
    }
    Ok(rows)
}

fn to_sqlite(value: &Value) -> SqliteValue {
    match value.clone() {
        Value::Null => SqliteValue::Null,
        Value::Integer(integer) => SqliteValue::Integer(integer),
        Value::Real(real) => SqliteValue::Real(real),
        Value::Text(text) => SqliteValue::Text(text),
        Value::Blob(bytes) => SqliteValue::Blob(bytes),
    }
}

fn from_sqlite(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => Value::Integer(integer),
        ValueRef::Real(real) => Value::Real(real),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_table() -> Database {
        let database = Database::new();
        database.exec("CREATE TABLE t (n INTEGER)", &[]).unwrap();
        database
    }

    fn insert(database: &Database, n: i64) -> Result<(), Rollback> {
        database.exec("INSERT INTO t VALUES (?1)", &[n.into()]).map(|_| ()).map_err(|_| Rollback)
    }

    fn sum(database: &Database) -> i64 {
        database.number("SELECT sum(n) FROM t")
    }

    #[test]
    fn a_transaction_that_is_undone_leaves_nothing_and_its_parent_goes_on() {
        let database = with_table();
        let ended = database.transaction(&mut || {
            insert(&database, 1)?;
            let inner = database.transaction(&mut || {
                insert(&database, 10)?;
                Err(Rollback)
            });
            assert_eq!(inner, Ok(Ended::RolledBack));
            let inner = database.transaction(&mut || insert(&database, 100));
            assert_eq!(inner, Ok(Ended::Committed));
            assert_eq!(sum(&database), 0, "nothing is seen before the commit");
            Ok(())
        });
        assert_eq!((ended, sum(&database)), (Ok(Ended::Committed), 101));
        assert_eq!(database.transaction(&mut || insert(&database, 5).and(Err(Rollback))), Ok(Ended::RolledBack));
        assert_eq!(sum(&database), 101);
    }

    #[test]
    fn a_crash_before_the_commit_leaves_nothing_and_lasts_until_the_file_is_opened_again() {
        for (n, kept) in [(0, 0), (1, 0), (2, 0), (3, 1)] {
            let database = with_table();
            database.crash_before(n);
            let ended = database.transaction(&mut || insert(&database, 1));
            assert_eq!(ended.is_ok(), kept == 1, "{n}");
            assert!(database.exec("SELECT 1", &[]).is_err());
            assert!(database.has_crashed());
            database.reopen();
            assert_eq!(sum(&database), kept, "{n}");
            assert!(database.exec("SELECT 1", &[]).is_ok());
        }
    }

    #[test]
    fn a_statement_that_fails_fails_once() {
        let database = with_table();
        database.fail(2);
        assert!(database.transaction(&mut || insert(&database, 1)).is_err(), "the commit fails");
        assert_eq!(sum(&database), 0);
        assert_eq!(database.transaction(&mut || insert(&database, 1)), Ok(Ended::Committed));
    }
}
