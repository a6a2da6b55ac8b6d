//! Where a database is kept: in a folder of its own, or in memory.
//!
//! Invariants:
//! - What a connection has not committed is gone once it was left.
//! - What is looked at is committed. A folder is looked at by a connection of its own, and so also from within a transaction; memory has one
//!   connection, and nobody looks while that has a transaction open.

use rusqlite::Connection;
use rusqlite::backup::Backup;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many statements of a connection stay prepared.
const STATEMENTS_MAX: usize = 64;

pub enum Place {
    /// Removed with it.
    Folder(PathBuf),
    /// The connection, as long as nobody has it.
    Memory(RefCell<Option<Connection>>),
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Folder(folder) = self {
            drop(std::fs::remove_dir_all(folder));
        }
    }
}

impl Place {
    /// A new folder.
    pub fn folder() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("semel-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        Self::Folder(folder)
    }

    /// A place in memory.
    pub fn memory() -> Self {
        let connection = Connection::open_in_memory().expect("memory");
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Self::Memory(RefCell::new(Some(connection)))
    }

    /// Another of the same kind, which is empty.
    pub fn another(&self) -> Self {
        match self {
            Self::Folder(_) => Self::folder(),
            Self::Memory(_) => Self::memory(),
        }
    }

    /// The connection of an object.
    pub fn connect(&self) -> Connection {
        let Self::Memory(connection) = self else {
            let connection = self.open();
            // The machine does not die in these tests, only the object.
            connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL").expect("pragmas");
            connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
            return connection;
        };
        connection.take().expect("one connection at a time")
    }

    /// An object leaves its connection.
    pub fn leave(&self, connection: Connection) {
        if let Self::Memory(left) = self {
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").expect("a transaction is open");
            }
            left.replace(Some(connection));
        }
    }

    /// Looks at what is committed; `connection` is the object's, where there is one.
    pub fn look<T>(&self, connection: Option<&Connection>, look: impl FnOnce(&Connection) -> T) -> T {
        let Self::Memory(left) = self else { return look(&self.open()) };
        let left = left.borrow();
        let connection = connection.or(left.as_ref()).expect("a connection");
        assert!(connection.is_autocommit(), "in memory nobody sees what is committed while a transaction is open");
        look(connection)
    }

    /// Puts all that there is elsewhere in the place of all that is here.
    pub fn fill(&self, connection: Option<Connection>, from: &Connection) {
        let mut connection = connection.unwrap_or_else(|| self.connect());
        let copied = Backup::new(from, &mut connection).and_then(|backup| backup.step(-1));
        copied.expect("a copy");
        self.leave(connection);
    }

    fn open(&self) -> Connection {
        match self {
            Self::Folder(folder) => {
                Connection::open(folder.join("key.sqlite")).expect("a database in a temporary folder")
            }
            Self::Memory(_) => panic!("memory has one connection"),
        }
    }
}
