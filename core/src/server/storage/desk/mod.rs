//! The desk: storage in front of storage, which reads rows of requests ahead in one statement and writes them behind in a few.
//!
//! Requests that are committed together share a desk for as long as their owner's transaction lasts. A request by itself
//! has its own desk while it is worked on. The new state of a record ([`records`]) or of a place ([`places`]) stays in
//! memory until all requests have run, or until something else reads or writes the tables. A lookup by id is answered
//! from memory. The same holds for what a handler keeps in memory ([`super::state`]).
//!
//! Invariants:
//! - A read sees what was written before, whether or not the tables have it yet.
//! - A shared desk can't undo a single request. If one request undoes what it did, the whole transaction has to be undone
//!   ([`Desk::is_undone`]), and each request runs again by itself. So a request costs no transaction of its own.
//! - A request with its own desk has its own transactions. What waits is written before a transaction ends, and dropped if it is undone.
//! - The amount that waits to be written is bounded.

mod by_id;
mod places;
mod recent;
mod records;
mod shape;

use super::record::Record;
use super::rows;
use super::sql::{Ended, Rollback, Row, Sql, SqlError, Value};
use super::state::{State, States};
use crate::id::RequestId;
use crate::rules::{Rule, holds};
use crate::server::storage::sessions;
use crate::server::storage::sessions::state::{Session, Taken};
use crate::session::SessionName;
use places::Places;
use recent::Recent;
use records::{Records, Texts};
use std::cell::{Cell, RefCell};

/// All waiting rows are written once their outcomes have more bytes than this.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// What a desk leaves to the next one. It must be thrown away if anything changes the engine's tables without a desk.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    texts: Texts,
    recent: Recent,
}

/// Storage in front of storage; see the module.
pub struct Desk<'a> {
    sql: &'a dyn Sql,
    records: RefCell<Records>,
    places: RefCell<Places>,
    texts: RefCell<Texts>,
    recent: RefCell<Recent>,
    states: RefCell<States>,
    /// The size of the outcomes that wait, in bytes.
    bytes: Cell<usize>,
    is_undone: Cell<bool>,
    /// Whether many requests share it, in a transaction of its owner.
    is_shared: bool,
    /// Whether the only user of this desk has begun a transaction.
    is_open: Cell<bool>,
    /// Whether that transaction has no savepoint: see [`Sql::lightly`].
    is_light: Cell<bool>,
}

impl<'a> Desk<'a> {
    /// A desk that many requests share. `sql` must have an open transaction; `kept` is what the desk before it has left.
    pub fn shared(sql: &'a dyn Sql, kept: Kept) -> Self {
        Self { is_shared: true, ..Self::of_one(sql, kept) }
    }

    /// A desk for one request.
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

    /// What the next desk can use: nothing, if something was undone.
    pub fn into_kept(self) -> Kept {
        if self.is_undone.get() {
            return Kept::default();
        }
        Kept { texts: self.texts.into_inner(), recent: self.recent.into_inner() }
    }

    /// Whether a request has undone what it did, so that all of the transaction has to be undone.
    pub fn is_undone(&self) -> bool {
        self.is_undone.get() && holds(Rule::DeskUndone)
    }

    /// Says that all of the transaction has to be undone.
    pub fn undo(&self) {
        self.is_undone.set(true);
    }

    /// Reads ahead the records that are to be acknowledged, without their outcomes, and the records of `ids`. Most of
    /// these ids have none, except for a replay. What is already known is not read again.
    pub fn read_ahead(&self, acknowledged: &[&RequestId], ids: &[RequestId]) -> Result<(), SqlError> {
        // A request in a session has no id.
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

    /// Writes all that waits. Unchanged records stay in memory.
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

    /// Sets what becomes of a record; `None` deletes it. It may be written later.
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

    /// Sets what becomes of a place. It may be written later.
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

    /// Deletes the places up to and including a number, perhaps later.
    pub(in crate::server) fn delete_places(&self, session: i64, up_to_seq: i64) -> Result<(), SqlError> {
        if self.places.borrow_mut().delete(session, up_to_seq) {
            return Ok(());
        }
        self.write()?;
        sessions::rows::write_deleted(self.sql, session, up_to_seq)
    }

    /// The handler's value of that type, loaded if it is not known.
    pub(in crate::server) fn state<S: State>(&self) -> Result<S, SqlError> {
        if let Some(known) = self.states.borrow().get() {
            return Ok(known);
        }
        self.states.borrow_mut().load(self.sql)
    }

    /// Takes a value of the handler's, to be stored later.
    pub(in crate::server) fn put<S: State>(&self, state: S) -> Result<(), SqlError> {
        self.states.borrow_mut().put(state, self.sql)
    }

    /// Stores the values that the handler has put. Those that may wait until the commit wait, if many requests share the
    /// desk, or if nothing may be written before the end.
    pub(in crate::server) fn store_own(&self) -> Result<(), SqlError> {
        let mut states = self.states.borrow_mut();
        if self.is_shared || self.is_light.get() { states.write_own(self.sql) } else { states.write_all(self.sql) }
    }

    /// Runs a transaction of the only user of this desk, and writes what waits at its end. On a shared desk it only runs `body`.
    fn run_in(&self, is_light: bool, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        if self.is_shared {
            return body().map_or_else(
                |Rollback| {
                    self.undo();
                    // The rest of the attempt must not try again to store what could not be stored.
                    self.states.take();
                    Ok(Ended::RolledBack)
                },
                |()| Ok(Ended::Committed),
            );
        }
        // A nested transaction, of the handler: when it is undone, only its own writes may be lost.
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
            // A text that was given a number in this transaction has lost it.
            self.texts.take();
            self.recent.take();
            self.states.take();
        }
        failed.map_or(ended, Err)
    }

    /// Prepares for a statement that may read what waits, or change what is known.
    fn before(&self, statement: &str) -> Result<(), SqlError> {
        let reads = statement.starts_with("SELECT ");
        // The engine writes only to its own tables. Any other statement that writes is the handler's, and one that reads may be.
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

/// Whether a statement that does not read writes to one of the engine's tables.
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
