//! SQLite behind the engine's trait [`Sql`]. It can die before any statement.
//!
//! Invariants:
//! - Every statement counts, also `BEGIN`, `SAVEPOINT`, `COMMIT`, `RELEASE` and `ROLLBACK`. A crash happens between two
//!   of them.
//! - Only the object sees what is held back, and it is lost with the object. A full disk rolls back the whole open
//!   transaction.
//! - After a crash, every call fails and nothing open is committed, as for an object that dies. Only a reopened
//!   database goes on.
//! - A test sees only what is committed.

use place::Place;
use rusqlite::{Connection, StatementStatus, params_from_iter};
use semel_core::server::storage::sql::{Ended, Rollback, Row};
use semel_core::server::{Sql, SqlError, Value};
use std::cell::{Cell, RefCell};
use values::{bytes_in, from_sqlite, to_sqlite};

/// The largest integer that reaches an object's SQLite unchanged.
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// What goes wrong, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// After this many more statements, the object dies.
    Crash(u64),
    /// After this many more statements, one fails.
    Fail(u64),
    /// After this many more statements, the disk is full.
    Full(u64),
    /// At the first statement with this beginning, the object dies.
    CrashAt(&'static str),
    /// This many statements with this beginning fail.
    FailAt(&'static str, u32),
    /// The first statement with this beginning fails, and another after this many more.
    FailAgain(&'static str, u64),
}

/// A database.
pub struct Database {
    place: Place,
    /// `None` once the object has died.
    connection: RefCell<Option<Connection>>,
    depth: Cell<u32>,
    /// Whether commits are held back. Then `depth` begins at 1.
    is_holding: Cell<bool>,
    /// Whether a full disk has rolled back the open transaction.
    is_undone: Cell<bool>,
    fault: Cell<Fault>,
    statements: Cell<u64>,
    /// The number of transactions that an object would make without a savepoint. Here they have one.
    pub light: Cell<u64>,
    bytes_read: Cell<usize>,
    steps: Cell<u64>,
    prepared_again: RefCell<Vec<String>>,
    /// Whether a nested transaction is kept instead of rolled back. No real database does that; a checker must notice
    /// it.
    pub keeps_nested: Cell<bool>,
}

impl Default for Database {
    fn default() -> Self {
        Self::new()
    }
}

/// All records, with their texts instead of numbers. Where several are written together, the order decides which number
/// a text gets.
pub const RECORDS: &str = "SELECT id, \
    CASE typeof(principal) WHEN 'integer' THEN (SELECT text FROM semel_texts WHERE number = principal) ELSE principal END, \
    first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, carried, fingerprint, status, \
    CASE typeof(headers) WHEN 'integer' THEN (SELECT text FROM semel_texts WHERE number = headers) ELSE headers END, body \
    FROM semel_records ORDER BY id";

impl Database {
    /// Makes a new, empty database in its own temporary folder.
    pub fn new() -> Self {
        Self::at(Place::folder())
    }

    /// Makes a database in memory, which takes a fraction of the time.
    pub fn in_memory() -> Self {
        Self::at(Place::memory())
    }

    fn at(place: Place) -> Self {
        let database = Self {
            place,
            connection: RefCell::new(None),
            depth: Cell::new(0),
            is_holding: Cell::new(false),
            light: Cell::new(0),
            is_undone: Cell::new(false),
            fault: Cell::new(Fault::None),
            statements: Cell::new(0),
            bytes_read: Cell::new(0),
            steps: Cell::new(0),
            prepared_again: RefCell::default(),
            keeps_nested: Cell::new(false),
        };
        database.reopen();
        database
    }

    /// Makes another database of the same kind, with all that is committed by now.
    pub fn copy(&self) -> Self {
        let copy = Self::at(self.place.another());
        self.look(|from| copy.place.fill(copy.connection.take(), from));
        copy.reopen();
        copy
    }

    /// Drops the connection with all that it has not committed, and opens the database again.
    pub fn reopen(&self) {
        self.die();
        self.connection.replace(Some(self.place.connect()));
        self.depth.set(0);
        self.is_holding.set(false);
        self.is_undone.set(false);
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

    /// Lets the disk be full at the `n`th statement from now, counted from 0. With it, SQLite rolls back the whole open
    /// transaction. The object lives on, unless commits are held back, which are then lost as well.
    pub fn full(&self, n: u64) {
        self.fault.set(Fault::Full(n));
    }

    /// Lets the object die before the first statement with this beginning.
    pub fn crash_at(&self, beginning: &'static str) {
        self.fault.set(Fault::CrashAt(beginning));
    }

    /// Lets the next `times` statements with this beginning fail. The object lives on.
    pub fn fail_at(&self, beginning: &'static str, times: u32) {
        self.fault.set(Fault::FailAt(beginning, times));
    }

    /// Lets the first statement with this beginning fail, and then the `n`th after it, counted from 0. The object lives
    /// on, unless the second one is a rollback.
    pub fn fail_again(&self, beginning: &'static str, n: u64) {
        self.fault.set(Fault::FailAgain(beginning, n));
    }

    /// Whether the fault has not happened yet.
    pub fn awaits_fault(&self) -> bool {
        !self.has_crashed() && self.fault.get() != Fault::None
    }

    /// Removes the fault.
    pub fn calm(&self) {
        self.fault.set(Fault::None);
    }

    /// Holds commits back, like a slow disk behind the platform's output gate: until [`Database::release`], a crash
    /// loses them.
    pub fn hold(&self) {
        self.ask("BEGIN IMMEDIATE", &[]).expect("no transaction is open");
        self.depth.set(1);
        self.is_holding.set(true);
    }

    /// Makes durable what was held back.
    pub fn release(&self) {
        self.ask("COMMIT", &[]).expect("a transaction is open");
        self.depth.set(0);
        self.is_holding.set(false);
    }

    /// Rolls back the open transactions, through which a panic has gone, as the runtime does it. What is held back
    /// stays.
    pub fn unwind(&self) {
        if !self.is_holding() {
            return self.reopen();
        }
        if self.depth.replace(1) > 1 && !self.has_crashed() {
            self.ask("ROLLBACK TO nested_1", &[]).expect("it is open");
            self.ask("RELEASE nested_1", &[]).expect("it is open");
        }
        self.fault.set(Fault::None);
    }

    /// Whether commits are held back.
    pub fn is_holding(&self) -> bool {
        self.is_holding.get()
    }

    /// The rows that the object sees between two requests, including what is held back. A table that does not exist has
    /// no rows.
    pub fn peek(&self, statement: &str) -> Vec<Row> {
        if self.has_crashed() {
            return self.query(statement);
        }
        match self.ask(statement, &[]) {
            Ok(rows) => rows,
            Err(SqlError(error)) if error.contains("no such table") => Vec::new(),
            Err(SqlError(error)) => panic!("{statement}: {error}"),
        }
    }

    /// Whether the object has died.
    pub fn has_crashed(&self) -> bool {
        self.connection.borrow().is_none()
    }

    /// The number of statements so far.
    pub fn statements(&self) -> u64 {
        self.statements.get()
    }

    /// The steps that SQLite's machine took for all statements. A statement that looks at each row takes some for each.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// The bytes of texts and blobs in all rows that were read.
    pub fn bytes_read(&self) -> usize {
        self.bytes_read.get()
    }

    /// The statements that had to be prepared again since the last call.
    pub fn prepared_again(&self) -> Vec<String> {
        self.prepared_again.take()
    }

    /// The rows that this connection has inserted, updated and deleted.
    pub fn rows_written(&self) -> u64 {
        self.connection.borrow().as_ref().map_or(0, Connection::total_changes)
    }

    /// The rows that are committed. A table that does not exist has no rows.
    pub fn query(&self, statement: &str) -> Vec<Row> {
        match self.look(|connection| query(connection, statement, &[])) {
            Ok(rows) => rows,
            Err(error) if error.to_string().contains("no such table") => Vec::new(),
            Err(error) => panic!("{statement}: {error}"),
        }
    }

    /// A single number; 0 if there is no table or no row.
    pub fn number(&self, statement: &str) -> i64 {
        self.query(statement).first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(0)
    }

    /// Changes what is committed, behind the engine's back.
    pub fn tamper(&self, statement: &str) {
        self.look(|connection| connection.execute(statement, [])).expect(statement);
    }

    /// Runs statements that make tables and rows, behind the engine's back.
    pub fn fill(&self, script: &str) {
        self.look(|connection| connection.execute_batch(script)).expect("a script");
    }

    /// The names of all tables.
    pub fn tables(&self) -> Vec<String> {
        let rows = self.query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
        rows.into_iter().flatten().filter_map(Value::into_text).collect()
    }

    /// Calls `look` with a connection that sees what is committed.
    fn look<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        self.place.look(self.connection.borrow().as_ref(), look)
    }

    /// Ends the connection, so that only what is committed stays.
    fn die(&self) {
        if let Some(connection) = self.connection.take() {
            self.place.leave(connection);
        }
    }

    /// Before every statement: counts it, and lets the fault happen.
    fn step(&self, statement: &str) -> Result<(), SqlError> {
        self.statements.set(self.statements.get() + 1);
        match self.fault.get() {
            Fault::None => {}
            Fault::Crash(0) => self.die(),
            Fault::Crash(n) => self.fault.set(Fault::Crash(n - 1)),
            // A rollback that fails ends the object.
            Fault::Fail(0) | Fault::Full(0) if statement.starts_with("ROLLBACK") => self.die(),
            Fault::Fail(0) => {
                self.fault.set(Fault::None);
                return Err(SqlError("this statement was to fail".to_owned()));
            }
            Fault::Fail(n) => self.fault.set(Fault::Fail(n - 1)),
            Fault::Full(0) if self.is_holding() => self.die(),
            Fault::Full(0) => {
                self.fault.set(Fault::None);
                if self.depth.get() > 0 {
                    drop(self.ask("ROLLBACK", &[]));
                    self.is_undone.set(true);
                }
                return Err(SqlError("database or disk is full".to_owned()));
            }
            Fault::Full(n) => self.fault.set(Fault::Full(n - 1)),
            Fault::CrashAt(beginning) if statement.starts_with(beginning) => self.die(),
            Fault::FailAt(beginning, times) if statement.starts_with(beginning) => {
                self.fault.set(if times > 1 { Fault::FailAt(beginning, times - 1) } else { Fault::None });
                return Err(SqlError("this statement was to fail".to_owned()));
            }
            Fault::FailAgain(beginning, n) if statement.starts_with(beginning) => {
                self.fault.set(Fault::Fail(n));
                return Err(SqlError("this statement was to fail".to_owned()));
            }
            Fault::CrashAt(_) | Fault::FailAt(..) | Fault::FailAgain(..) => {}
        }
        if self.has_crashed() { Err(SqlError("the object has died".to_owned())) } else { Ok(()) }
    }

    fn ask(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        let connection = self.connection.borrow();
        let Some(connection) = connection.as_ref() else { return Err(SqlError("the object has died".to_owned())) };
        let Asked { rows, is_again, steps } =
            asked(connection, statement, arguments).map_err(|error| SqlError(error.to_string()))?;
        self.steps.set(self.steps.get() + steps);
        self.bytes_read.set(self.bytes_read.get() + rows.iter().map(bytes_in).sum::<usize>());
        if is_again {
            self.prepared_again.borrow_mut().push(statement.to_owned());
        }
        Ok(rows)
    }

    fn command(&self, outermost: &str, nested: &str) -> Result<(), SqlError> {
        let depth = self.depth.get();
        let command = if depth == 0 { outermost.to_owned() } else { nested.replace('?', &format!("nested_{depth}")) };
        self.step(&command)?;
        self.ask(&command, &[]).map(|_| ())
    }

    fn undo(&self) -> Result<(), SqlError> {
        if self.depth.get() > 0 && self.keeps_nested.get() {
            return self.command("", "RELEASE ?");
        }
        self.command("ROLLBACK", "ROLLBACK TO ?")?;
        if self.depth.get() > 0 { self.command("", "RELEASE ?") } else { Ok(()) }
    }
}

impl Sql for Database {
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        self.step(statement)?;
        if self.is_undone.get() {
            return Err(SqlError("the transaction was undone when the disk was full".to_owned()));
        }
        for argument in arguments {
            if let Value::Integer(integer) = argument
                && integer.unsigned_abs() > INTEGER_MAX
            {
                return Err(SqlError(format!("{integer} is past 2^53 - 1")));
            }
        }
        self.ask(statement, arguments)
    }

    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError> {
        self.exec(statement, arguments)?;
        Ok(self.connection.borrow().as_ref().map_or(0, Connection::changes))
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.command("BEGIN IMMEDIATE", "SAVEPOINT ?")?;
        self.depth.set(self.depth.get() + 1);
        let asked = body();
        self.depth.set(self.depth.get() - 1);
        let ended = self.end(asked);
        if self.depth.get() == 0 {
            self.is_undone.set(false);
        }
        ended
    }

    fn lightly(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.light.set(self.light.get() + 1);
        self.transaction(body)
    }

    fn database_bytes(&self) -> Result<u64, SqlError> {
        // This counts as no statement, since an object's size is none that could fail by itself.
        self.ask(DATABASE_BYTES, &[]).map(|rows| bytes_of(&rows))
    }
}

impl Database {
    fn end(&self, asked: Result<(), Rollback>) -> Result<Ended, SqlError> {
        match asked {
            Ok(()) => match self.command("COMMIT", "RELEASE ?") {
                Ok(()) => Ok(Ended::Committed),
                Err(error) => {
                    // Nothing of a failed commit may stay. Of a dead object, nothing does.
                    drop(self.undo());
                    Err(error)
                }
            },
            Err(Rollback) => self.undo().map(|()| Ended::RolledBack),
        }
    }
}

/// Runs one statement and reads all its rows.
pub fn query(connection: &Connection, statement: &str, arguments: &[Value]) -> rusqlite::Result<Vec<Row>> {
    asked(connection, statement, arguments).map(|asked| asked.rows)
}

/// The result of a statement.
struct Asked {
    rows: Vec<Row>,
    /// Whether it had to be prepared again: because tables changed, or because SQLite plans by the values of its
    /// arguments.
    is_again: bool,
    /// The steps that SQLite's machine took.
    steps: u64,
}

fn asked(connection: &Connection, statement: &str, arguments: &[Value]) -> rusqlite::Result<Asked> {
    let mut prepared = connection.prepare_cached(statement)?;
    let columns = prepared.column_count();
    let mut found = prepared.query(params_from_iter(arguments.iter().map(to_sqlite)))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push((0..columns).map(|column| row.get_ref(column).map(from_sqlite)).collect::<Result<_, _>>()?);
    }
    drop(found);
    let is_again = prepared.reset_status(StatementStatus::RePrepare) > 0;
    let steps = u64::try_from(prepared.reset_status(StatementStatus::VmStep)).unwrap_or(0);
    Ok(Asked { rows, is_again, steps })
}

/// The statement for the size of a database, as an object has it.
pub const DATABASE_BYTES: &str =
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size";

/// The answer to [`DATABASE_BYTES`].
pub fn bytes_of(rows: &[Row]) -> u64 {
    let bytes = rows.first().and_then(|row| row.first()).and_then(Value::as_integer).expect("a size");
    u64::try_from(bytes).expect("no database is less than empty")
}

mod place;
#[cfg(test)]
mod tests;
mod values;
