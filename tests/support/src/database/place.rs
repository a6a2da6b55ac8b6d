//! Where a database is kept: in its own folder, or in memory.
//!
//! Invariants:
//! - What a connection has not committed is gone once the object has left the connection.
//! - A test sees only what is committed. A folder is read by another connection, so also during a transaction. Memory
//!   has only one connection, and nobody reads while it has an open transaction.

use rusqlite::Connection;
use rusqlite::backup::Backup;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The statements of a connection that stay prepared at most.
const STATEMENTS_MAX: usize = 64;

pub enum Place {
    /// The folder, which is removed when this is dropped.
    Folder(PathBuf),
    /// The connection, unless an object has it.
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
    /// Makes a new folder. One that is there already is what a killed process with the same number has left.
    pub fn folder() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let folder = numbered(NUMBER.fetch_add(1, Ordering::Relaxed));
            match std::fs::create_dir(&folder) {
                Ok(()) => return Self::Folder(folder),
                Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{}: {error}", folder.display()),
            }
        }
    }

    /// Makes a place in memory.
    pub fn memory() -> Self {
        let connection = Connection::open_in_memory().expect("memory");
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        Self::Memory(RefCell::new(Some(connection)))
    }

    /// Makes another place of the same kind, which is empty.
    pub fn another(&self) -> Self {
        match self {
            Self::Folder(_) => Self::folder(),
            Self::Memory(_) => Self::memory(),
        }
    }

    /// The connection for an object.
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

    /// Takes back the connection from an object.
    pub fn leave(&self, connection: Connection) {
        if let Self::Memory(left) = self {
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").expect("a transaction is open");
            }
            left.replace(Some(connection));
        }
    }

    /// Looks at what is committed. `connection`: the object's, if there is one.
    pub fn look<T>(&self, connection: Option<&Connection>, look: impl FnOnce(&Connection) -> T) -> T {
        let Self::Memory(left) = self else { return look(&self.open()) };
        let left = left.borrow();
        let connection = connection.or(left.as_ref()).expect("a connection");
        assert!(connection.is_autocommit(), "in memory nobody sees what is committed while a transaction is open");
        look(connection)
    }

    /// Replaces everything here by everything in `from`.
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

fn numbered(number: u64) -> PathBuf {
    std::env::temp_dir().join(format!("semel-{}-{number}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::{Place, numbered};
    use std::fs;

    #[test]
    fn a_folder_that_a_killed_process_of_the_same_number_has_left_is_not_used() {
        let left: Vec<_> = (0..100).map(numbered).filter(|folder| fs::create_dir(folder).is_ok()).collect();
        let place = Place::folder();
        let Place::Folder(folder) = &place else { panic!("it is a folder") };
        assert!(!left.contains(folder));
        left.iter().for_each(|folder| fs::remove_dir(folder).expect("it is empty"));
    }
}
