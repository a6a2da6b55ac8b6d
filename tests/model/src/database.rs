//! A key's database in memory: its tables, and the faults of its storage.
//!
//! Invariant: a transaction that is rolled back leaves nothing behind but the note that the handler crashed.

use crate::tables::{EFFECT, Tables};
use semel_core::server::storage::sql::{Ended, Rollback, Row};
use semel_core::server::{Sql, SqlError, Value};
use std::cell::{Cell, RefCell};

/// How a handler crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// It panics, and the object lives on.
    Panic,
    /// It ends the process.
    End,
}

impl Crash {
    /// The statement by which the handler reports the crash.
    fn as_statement(self) -> &'static str {
        match self {
            Self::Panic => "the handler crashes",
            Self::End => "the handler ends the process",
        }
    }
}

/// A fault of the storage, which comes once. Statements are counted from 0; the beginning and the end of the outermost
/// transaction count too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// No fault.
    Fine,
    /// This statement fails.
    Fails(u16),
    /// The handler's first statement fails, and then a statement after it, counted from there.
    FailsAgain(u16),
    /// This many commits fail, one after the other.
    CommitsFail(u16),
    /// The process ends before this statement.
    Ends(u16),
}

/// What a transaction that ends with an error rolls back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// What it wrote itself.
    Own,
    /// Everything since the tables were these. No storage does this for a nested transaction.
    Since(Box<Tables>),
    /// Nothing. No storage does this either.
    Nothing,
}

/// The tables while the engine works on them.
#[derive(Debug)]
pub struct Database {
    tables: RefCell<Tables>,
    undo: Undo,
    crash: Cell<Option<Crash>>,
    fate: Cell<Fate>,
    statements: Cell<u16>,
    depth: Cell<u16>,
}

impl Database {
    /// Opens tables.
    pub fn open(tables: Tables) -> Self {
        Self {
            tables: RefCell::new(tables),
            undo: Undo::Own,
            crash: Cell::new(None),
            fate: Cell::new(Fate::Fine),
            statements: Cell::new(0),
            depth: Cell::new(0),
        }
    }

    /// The same database with this fault to come.
    pub fn bound_to(self, fate: Fate) -> Self {
        self.fate.set(fate);
        self
    }

    /// The same database within an open transaction that ends later. Each of the engine's transactions is nested in it, and rolls
    /// back as `undo` says.
    pub fn nested(self, undo: Undo) -> Self {
        self.depth.set(1);
        Self { undo, ..self }
    }

    /// The fault that has yet to come.
    pub fn fate(&self) -> Fate {
        self.fate.get()
    }

    /// Runs before each statement and before the end of the outermost transaction.
    fn step(&self, is_commit: bool, statement: &str) -> Result<(), SqlError> {
        let number = self.statements.replace(self.statements.get() + 1);
        let (next, has_ended) = match self.fate.get() {
            Fate::Fails(n) if n == number => (Some(Fate::Fine), false),
            Fate::FailsAgain(n) if statement == EFFECT => (Some(Fate::Fails(number + 1 + n)), false),
            Fate::CommitsFail(n) if is_commit => {
                (Some(if n > 1 { Fate::CommitsFail(n - 1) } else { Fate::Fine }), false)
            }
            Fate::Ends(n) if n == number => (Some(Fate::Fine), true),
            _ => (None, false),
        };
        if has_ended {
            self.crash.set(Some(Crash::End));
        }
        // If the engine goes on after the process ended, nothing of it is kept.
        if let Some(fate) = next {
            self.fate.set(fate);
        } else if self.crash.get() != Some(Crash::End) {
            return Ok(());
        }
        Err(SqlError("the storage failed".to_owned()))
    }

    /// The committed tables.
    pub fn close(self) -> Tables {
        self.tables.into_inner()
    }

    /// How the handler crashed during a transaction, if it did.
    pub fn crash(&self) -> Option<Crash> {
        self.crash.get()
    }
}

impl Sql for Database {
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        self.step(false, statement)?;
        let crash = [Crash::Panic, Crash::End].into_iter().find(|crash| crash.as_statement() == statement);
        if let Some(crash) = crash {
            self.crash.set(Some(crash));
            return Err(SqlError("crashed".to_owned()));
        }
        let done = self.tables.borrow_mut().exec(statement, arguments);
        // The engine would treat an unknown statement in a group as a failure of the group and execute the requests one by one.
        // Nobody would notice, so this asserts.
        assert!(!matches!(&done, Err(SqlError(text)) if text.starts_with("unknown here")), "{done:?}");
        done
    }

    /// A statement that writes returns a row for each row that it has written.
    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError> {
        self.exec(statement, arguments).map(|written| written.len() as u64)
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        let is_outermost = self.depth.get() == 0;
        if is_outermost {
            self.step(false, "")?;
        }
        let before = self.tables.borrow().clone();
        self.depth.set(self.depth.get() + 1);
        let ended = body();
        self.depth.set(self.depth.get() - 1);
        let committed = match ended {
            Ok(()) if is_outermost => self.step(true, "").map(|()| Ended::Committed),
            Ok(()) => Ok(Ended::Committed),
            Err(Rollback) => Ok(Ended::RolledBack),
        };
        if committed != Ok(Ended::Committed) {
            match &self.undo {
                Undo::Own => self.tables.replace(before),
                Undo::Since(begun) => self.tables.replace(Tables::clone(begun)),
                Undo::Nothing => before,
            };
        }
        committed
    }

    /// No scope depends on the size.
    fn database_bytes(&self) -> Result<u64, SqlError> {
        Ok(0)
    }
}
