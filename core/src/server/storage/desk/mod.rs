//! The rows of requests: read ahead in one statement, and written behind in a few.
//!
//! A desk is storage in front of storage: for requests that are committed together as long as one transaction that its owner has begun, for
//! another as long as it is worked on. What becomes of a record ([`records`]) or of
//! a place ([`places`]) stays in memory until all have run, or until something asks the tables for it; whoever asks for it by its id has
//! it from here. So it is with what a handler keeps in memory ([`super::state`]).
//!
//! Invariants:
//! - Who asks sees what was written before, whether or not the tables have it yet.
//! - Where many share it, nothing is undone here: where one of the requests undoes what it did, all of the transaction has to be
//!   ([`Desk::is_undone`]), and each is to run by itself. So a request costs no transaction of its own.
//! - A request that has it to itself has transactions of its own. What waits is written before one ends, and dropped where one is undone.
//! - What waits to be written is bounded.

mod places;
mod recent;
mod records;

use super::record::Record;
use super::rows;
use super::sql::{Ended, Rollback, Row, Sql, SqlError, Value};
use super::state::{State, States};
use crate::fingerprint::Fingerprint;
use crate::id::RequestId;
use crate::rules::{Rule, holds};
use crate::server::storage::sessions;
use crate::server::storage::sessions::state::{Session, Taken};
use crate::session::SessionName;
use places::Places;
use recent::Recent;
use records::{Records, Texts};
use std::cell::{Cell, RefCell};

/// When outcomes of so many bytes wait, all are written.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// An object's SQLite takes so many arguments of a statement.
const ARGUMENTS_MAX: usize = 100;

/// What a desk leaves to the next. Whatever changes the engine's tables without a desk has it thrown away.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    texts: Texts,
    recent: Recent,
}

/// See the module.
pub struct Desk<'a> {
    sql: &'a dyn Sql,
    records: RefCell<Records>,
    places: RefCell<Places>,
    texts: RefCell<Texts>,
    recent: RefCell<Recent>,
    states: RefCell<States>,
    /// Of the outcomes that wait.
    bytes: Cell<usize>,
    is_undone: Cell<bool>,
    /// Whether many share it, in a transaction of its owner's.
    is_shared: bool,
    /// Whether who has it to themselves has begun a transaction.
    is_open: Cell<bool>,
    /// Whether that has no means to undo what it writes: see [`Sql::lightly`].
    is_light: Cell<bool>,
}

impl<'a> Desk<'a> {
    /// A desk that many share, in front of storage in which a transaction is open. `kept`: what the one before it has left.
    pub fn shared(sql: &'a dyn Sql, kept: Kept) -> Self {
        Self { is_shared: true, ..Self::of_one(sql, kept) }
    }

    /// A desk of one request.
    pub fn of_one(sql: &'a dyn Sql, Kept { texts, recent }: Kept) -> Self {
        Self {
            sql,
            is_shared: false,
            is_open: Cell::new(false),
            is_light: Cell::new(false),
            records: RefCell::default(),
            places: RefCell::default(),
            texts: RefCell::new(texts),
            recent: RefCell::new(recent),
            states: RefCell::default(),
            bytes: Cell::new(0),
            is_undone: Cell::new(false),
        }
    }

    /// What is of use to the next desk: nothing, where something was undone.
    pub fn into_kept(self) -> Kept {
        if self.is_undone.get() {
            return Kept::default();
        }
        Kept { texts: self.texts.into_inner(), recent: self.recent.into_inner() }
    }

    /// Whether one of the requests has undone what it did, which is still there.
    pub fn is_undone(&self) -> bool {
        self.is_undone.get() && holds(Rule::DeskUndone)
    }

    /// Has all of it undone.
    pub fn undo(&self) {
        self.is_undone.set(true);
    }

    /// Reads, without their outcomes, the records that are to be acknowledged, and those of ids: of these there is none, but where one is replayed. What
    /// is known already is not read again.
    pub fn read_ahead(&self, acknowledged: &[&RequestId], ids: &[RequestId]) -> Result<(), SqlError> {
        // A request of a session has none.
        if acknowledged.is_empty() && ids.is_empty() {
            return Ok(());
        }
        let mut recent = self.recent.borrow_mut();
        recent.begin(self.sql)?;
        let acknowledged: Vec<_> = acknowledged.iter().copied().filter(|id| recent.bare(id).is_none()).collect();
        let ids: Vec<_> = ids.iter().filter(|id| recent.has(id) != Some(false)).cloned().collect();
        let found = match acknowledged.as_slice() {
            [] => rows::read_whole(self.sql, &ids)?,
            _ => rows::read_executed(self.sql, &acknowledged.iter().copied().chain(&ids).collect::<Vec<_>>())?,
        };
        let more = self.records.borrow_mut().know(&acknowledged, &ids, found);
        if !more.is_empty() {
            let found = rows::read_whole(self.sql, &more)?;
            self.records.borrow_mut().know(&[], &more, found);
        }
        Ok(())
    }

    /// Writes all that waits. What is known of other records stays known.
    pub fn write(&self) -> Result<(), SqlError> {
        self.bytes.set(0);
        let (changed, places) = (self.records.borrow_mut().take_changed(), self.places.take());
        if !holds(Rule::DeskWritten) {
            return Ok(());
        }
        changed.write(self.sql, &mut self.texts.borrow_mut(), &mut self.recent.borrow_mut())?;
        places.write(self.sql)?;
        self.states.borrow_mut().write_all(self.sql)
    }

    fn waits(&self, bytes: usize) -> Result<(), SqlError> {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        if self.bytes.get() > WAITING_BYTES_MAX { self.write() } else { Ok(()) }
    }

    pub(in crate::server) fn find(&self, id: &RequestId, is_bare: bool) -> Result<Option<Record>, SqlError> {
        if let Some(known) = self.records.borrow().find(id, is_bare) {
            return Ok(known);
        }
        match self.recent.borrow().bare(id) {
            Some(known) if is_bare || known.is_none() => Ok(known.cloned()),
            _ => rows::read(self.sql, id, is_bare),
        }
    }

    /// Has a record written, or deleted.
    pub(in crate::server) fn change(&self, id: &RequestId, record: Option<&Record>) -> Result<(), SqlError> {
        let bytes = self.records.borrow_mut().change(id, record, &self.recent.borrow());
        self.waits(bytes)
    }

    pub(in crate::server) fn session(&self, name: &SessionName) -> Result<Option<Session>, SqlError> {
        if let Some(session) = self.places.borrow().session(name) {
            return Ok(Some(session));
        }
        let found = sessions::rows::read(self.sql, name)?;
        if let Some(session) = &found {
            self.places.borrow_mut().open(name, session);
        }
        Ok(found)
    }

    pub(in crate::server) fn taken(&self, session: &Session, seq: i64) -> Result<Option<Taken>, SqlError> {
        match self.places.borrow().taken(session.number, seq) {
            Some(known) => Ok(known),
            None => sessions::rows::read_taken(self.sql, session, seq),
        }
    }

    /// Has a place written.
    pub(in crate::server) fn put_taken(&self, session: i64, seq: i64, taken: &Taken) -> Result<(), SqlError> {
        let waits = self.places.borrow_mut().put(session, seq, taken);
        match waits {
            Some(bytes) => self.waits(bytes),
            None => {
                self.write()?;
                sessions::rows::write_taken(self.sql, session, seq, taken)
            }
        }
    }

    /// Has the places up to a number deleted.
    pub(in crate::server) fn delete_places(&self, session: i64, up_to_seq: i64) -> Result<(), SqlError> {
        if self.places.borrow_mut().delete(session, up_to_seq) {
            return Ok(());
        }
        self.write()?;
        sessions::rows::write_deleted(self.sql, session, up_to_seq)
    }

    /// What a handler keeps in memory.
    pub(in crate::server) fn state<S: State>(&self) -> Result<S, SqlError> {
        if let Some(known) = self.states.borrow().get() {
            return Ok(known);
        }
        self.states.borrow_mut().load(self.sql)
    }

    /// Has it stored.
    pub(in crate::server) fn put<S: State>(&self, state: S) -> Result<(), SqlError> {
        self.states.borrow_mut().put(state, self.sql)
    }

    /// Has what was put stored; where many share the desk, or nothing is to be written before the end, but for what is kept until then.
    pub(in crate::server) fn store_own(&self) -> Result<(), SqlError> {
        let mut states = self.states.borrow_mut();
        if self.is_shared || self.is_light.get() { states.write_own(self.sql) } else { states.write_all(self.sql) }
    }

    /// A transaction of whoever has it to themselves: what waits is written at its end.
    fn run_in(&self, is_light: bool, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        if self.is_shared {
            return body().map_or_else(
                |Rollback| {
                    self.undo();
                    // What could not be stored is not tried again by what is left of the attempt.
                    self.states.take();
                    Ok(Ended::RolledBack)
                },
                |()| Ok(Ended::Committed),
            );
        }
        // One within another, of the handler's: what it undoes is its own.
        if self.is_open.get() {
            self.write()?;
        }
        let is_within = self.is_open.replace(true);
        let is_light = is_light && !is_within;
        let was_light = self.is_light.replace(is_light);
        let mut failed = None;
        let mut work = || {
            body()?;
            self.write().map_err(|error| {
                failed = Some(error);
                Rollback
            })
        };
        let ended = if is_light { self.sql.lightly(&mut work) } else { self.sql.transaction(&mut work) };
        self.is_open.set(is_within);
        self.is_light.set(was_light);
        if !matches!(ended, Ok(Ended::Committed)) {
            self.undo();
            self.records.take();
            self.places.take();
            // A text that was given a number in it has that no longer.
            self.texts.take();
            self.recent.take();
            self.states.take();
        }
        failed.map_or(ended, Err)
    }

    /// Before a statement that may ask for what waits, or change what is known.
    fn before(&self, statement: &str) -> Result<(), SqlError> {
        let reads = statement.starts_with("SELECT ");
        // What the engine writes is in its own tables; whatever else writes is a handler's, and so may be what reads.
        let is_handlers = reads || !writes_to_engines(statement);
        if is_handlers {
            self.states.borrow_mut().write_all(self.sql)?;
            if !reads {
                self.states.take();
            }
        }
        let is_concerned = statement.match_indices('_').any(|(at, _)| {
            let (before, name) = statement.split_at(at);
            let tables = ["_records", "_texts", "_places", "_sessions"];
            before.ends_with("semel") && tables.iter().any(|table| name.starts_with(table))
        });
        if is_concerned {
            self.write()?;
            if !reads {
                self.records.take();
                self.texts.take();
                self.recent.take();
            }
        }
        Ok(())
    }
}

/// Whether a statement that does not read writes to a table of the engine's.
fn writes_to_engines(statement: &str) -> bool {
    let targets = ["INSERT INTO ", "INSERT OR REPLACE INTO ", "INSERT OR IGNORE INTO ", "UPDATE ", "DELETE FROM "];
    targets.iter().find_map(|begin| statement.strip_prefix(begin)).is_some_and(|target| target.starts_with("semel_"))
}

impl Sql for Desk<'_> {
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        self.before(statement)?;
        self.sql.exec(statement, arguments)
    }

    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError> {
        self.before(statement)?;
        self.sql.run(statement, arguments)
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.run_in(false, body)
    }

    fn lightly(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.run_in(true, body)
    }

    fn database_bytes(&self) -> Result<u64, SqlError> {
        self.sql.database_bytes()
    }

    fn desk(&self) -> Option<&Desk<'_>> {
        Some(self)
    }
}

/// How rows are written that have some values in common, as many in one statement as it takes arguments. It is made once.
///
/// What a row has of its own is handed over as one value, bytes that SQL takes apart: each value takes the runtime a third of a µs, and as
/// long again to be made.
struct Shape {
    table: &'static str,
    /// How many values the rows have in common.
    common: usize,
    /// New rows.
    insert: Statements,
    /// New rows in place of others.
    replace: Statements,
}

/// How many rows each writes. They are few, for each is a statement of its own that has to be compiled and kept.
type Statements = [(usize, String); 7];

impl Shape {
    /// `insert`: how. `columns`: all of a table, parted by commas, and what each is made of: what the rows have in common is `?1` and so on, the bytes
    /// of each `column1`. Of the row that goes for it `is_gone` holds.
    fn new(
        insert: &str,
        table: &'static str,
        (columns, values): (&str, &[&str]),
        common: usize,
        is_gone: &str,
    ) -> Self {
        let into = [insert, " INTO ", table, " (", columns, ")"].concat();
        let set = columns.split(", ").zip(values).map(|(column, value)| [column, " = ", value].concat());
        let set = ["UPDATE ", table, " SET ", &set.collect::<Vec<_>>().join(", ")].concat();
        let values = values.join(", ");
        let statements = |alone: String, before: &str, after: &str| {
            [64, 32, 16, 8, 4, 2, 1].map(|length| match length {
                // What there is to choose from takes as long as the row itself.
                1 => (1, alone.replace("column1", &format!("?{}", common + 1))),
                _ => (length, [before, &choices(common, length), after].concat()),
            })
        };
        let insert = [&into, " VALUES (", &values, ")"].concat();
        let replace = [&set, " WHERE ", is_gone].concat();
        let (into, set) = ([&into, " SELECT ", &values, " FROM (VALUES "].concat(), [&set, " FROM (VALUES "].concat());
        let replaced = [") WHERE ", is_gone].concat();
        let (insert, replace) = (statements(insert, &into, ")"), statements(replace, &set, &replaced));
        Self { table, common, insert, replace }
    }

    /// Writes new rows.
    fn insert(&self, sql: &dyn Sql, common: &[Value], rows: Vec<Value>) -> Result<(), SqlError> {
        self.write(sql, &self.insert, common, rows)
    }

    /// Writes new rows in place of others. The platform counts one row for the two.
    fn replace(&self, sql: &dyn Sql, common: &[Value], rows: Vec<Value>) -> Result<(), SqlError> {
        self.write(sql, &self.replace, common, rows)
    }

    /// That a row is where it was is known from memory. One that is not there is an error, for the new one would be nowhere.
    fn write(
        &self,
        sql: &dyn Sql,
        statements: &Statements,
        common: &[Value],
        rows: Vec<Value>,
    ) -> Result<(), SqlError> {
        let mut rest = rows.into_iter();
        for (length, statement) in statements {
            while rest.len() >= *length && self.common + length <= ARGUMENTS_MAX {
                let arguments: Vec<Value> = common.iter().cloned().chain(rest.by_ref().take(*length)).collect();
                if sql.run(statement, &arguments)? < *length as u64 {
                    return Err(SqlError(["a row of ", self.table, " is not where it was"].concat()));
                }
            }
        }
        Ok(())
    }
}

/// The bytes of so many rows, as arguments.
fn choices(common: usize, length: usize) -> String {
    let arguments: Vec<String> = (1..=length).map(|n| format!("(?{})", common + n)).collect();
    arguments.join(", ")
}

/// The bytes of a row, that begin with a fingerprint and numbers, of as many digits as any has.
fn row(print: &Fingerprint, numbers: &[i64], parts: &[&[u8]]) -> Value {
    let length = parts.iter().fold(at(numbers.len()), |length, part| length + part.len());
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(print.as_bytes());
    for number in numbers {
        let mut digits = [b' '; DIGITS];
        let mut buffer = itoa::Buffer::new();
        let written = buffer.format(*number).as_bytes();
        digits.iter_mut().zip(written).for_each(|(to, from)| *to = *from);
        bytes.extend_from_slice(&digits);
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Value::Blob(bytes)
}

/// In SQL, the fingerprint of such a row.
const PRINT: &str = "substr(column1, 1, 32)";
const DIGITS: usize = 20;

/// Where the `n`th number is, counted from 1 as SQLite does; so as well what comes after so many.
const fn at(n: usize) -> usize {
    32 + n * DIGITS + 1
}

/// In SQL, the `n`th number.
fn number(n: usize) -> String {
    format!("CAST(substr(column1, {}, {DIGITS}) AS INTEGER)", at(n))
}
