//! A handler that has everything sent to where it is executed.
//!
//! Invariant: it writes first, so that a test sees what becomes of that.

use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::remote::Policy;
use semel_core::server::sql::SqlError;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql};
use std::cell::{Cell, RefCell};

/// The handler.
#[derive(Debug)]
pub struct Elsewhere {
    /// What becomes of what is in doubt.
    pub policy: RefCell<Policy>,
    /// Whether it says before that it has requests sent.
    pub says_so: Cell<bool>,
    /// How often it was asked.
    pub calls: Cell<u64>,
}

impl Elsewhere {
    /// With a policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy: RefCell::new(policy), says_so: Cell::new(true), calls: Cell::new(0) }
    }
}

impl Handler for Elsewhere {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _method: &Method, _path: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec("CREATE TABLE effects (number INTEGER PRIMARY KEY, id TEXT NOT NULL) STRICT", &[]).map(|_| ())
    }

    fn is_remote(&self, _method: &Method, _path: &Path) -> bool {
        self.says_so.get()
    }

    fn handle(&self, context: &mut Context<'_>, _request: &Request) -> Result<Response, Failure> {
        self.calls.set(self.calls.get() + 1);
        context.sql.exec("INSERT INTO effects (id) VALUES ('none')", &[])?;
        Err(Failure::Remote(self.policy.borrow().clone()))
    }
}
