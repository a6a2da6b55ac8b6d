//! A handler whose requests are executed elsewhere, with requests for it, and results of their execution.
//!
//! Invariant: the handler writes an effect first, so that a test sees what becomes of that.

use crate::call::{Call, post};
use crate::world::{START_S, World};
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::engine::remote::{Call as Sent, Ended};
use semel_core::server::handler::Policy;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql};
use std::cell::{Cell, RefCell};

/// The handler.
#[derive(Debug)]
pub struct Elsewhere {
    /// What to do with a request in doubt.
    pub policy: RefCell<Policy>,
    /// The number that stands for the other side.
    pub whither: Cell<i64>,
    /// Whether [`Handler::is_remote`] says that requests are executed elsewhere.
    pub says_so: Cell<bool>,
    /// How often the handler was called.
    pub calls: Cell<u64>,
}

impl Elsewhere {
    /// Makes the handler with a policy.
    pub fn new(policy: Policy) -> Self {
        Self { policy: RefCell::new(policy), whither: Cell::new(0), says_so: Cell::new(true), calls: Cell::new(0) }
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

    fn whither(&self, _request: &Request) -> i64 {
        self.whither.get()
    }

    fn handle(&self, context: &mut Context<'_>, _request: &Request) -> Result<Response, Failure> {
        self.calls.set(self.calls.get() + 1);
        context.sql.exec("INSERT INTO effects (id) VALUES ('none')", &[])?;
        Err(Failure::Remote(self.policy.borrow().clone()))
    }
}

/// A key whose requests are executed elsewhere, by a policy.
pub fn remote(policy: Policy) -> World<Elsewhere> {
    World::of(Elsewhere::new(policy), Config { open: true, retention_s: 1000, ..Config::default() })
}

/// A key whose requests in doubt are sent again, for a minute.
pub fn resend() -> World<Elsewhere> {
    remote(Policy::Resend { dedup_s: 60 })
}

/// A key whose requests in doubt are probed for, with a proof after half a minute.
pub fn probe() -> World<Elsewhere> {
    remote(Policy::Probe { path: "/orders/1".to_owned(), timeout_s: 20, settle_s: 30 })
}

/// A request to be dispatched.
pub fn order(id: &str) -> Call {
    post("/orders").id(id).first_sent_s(START_S).body("one")
}

/// The result that the other side has answered.
pub fn answered(status: u16, body: &str) -> Ended {
    Ended::Answered(Response { status, headers: Headers::from_iter([("x-from", "elsewhere")]), body: body.into() })
}

/// The result that nothing is known of the request.
pub fn lost() -> Ended {
    Ended::Unknown("the connection was lost".to_owned())
}

/// The result that nothing was sent.
pub fn refused() -> Ended {
    Ended::Unreachable("connection refused".to_owned())
}

/// Sends an attempt whose request has to be dispatched, for the `times`th time.
#[track_caller]
pub fn dispatched(world: &mut World<Elsewhere>, call: &Call, times: i64) -> Sent {
    world.send(call).is_problem(409, "in-flight", "unknown", "same-id");
    let sent = world.take_call().expect("something to send");
    assert_eq!(sent, Sent::Dispatch { times });
    sent
}

/// Leaves a request in doubt: it was sent, and no answer came.
#[track_caller]
pub fn in_doubt(world: &mut World<Elsewhere>, id: &str) {
    let sent = dispatched(world, &order(id), 1);
    world.settle(&order(id), &sent, lost());
}

/// Sends an attempt that gets a problem, and for which nothing has to be sent.
#[track_caller]
pub fn is_told(world: &mut World<Elsewhere>, call: &Call, status: u16, code: &str, executed: &str, retry: &str) {
    world.send(call).is_problem(status, code, executed, retry);
    assert_eq!(world.take_call(), None);
}

/// Asserts that a `404` proves nothing until this much time has passed, and then proves that nothing is there. Returns the call
/// that is sent for that.
#[track_caller]
pub fn sent_again_after(world: &mut World<Elsewhere>, call: &Call, needs_ms: i64, of: &str) -> Sent {
    world.pass_ms(needs_ms - 1);
    world.send(call);
    let early = world.take_call().expect("a probe");
    world.settle(call, &early, answered(404, "")).is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!(world.take_call(), None, "it may have its effect yet: {of}");
    world.pass_ms(1);
    world.send(call);
    let late = world.take_call().expect("a probe");
    world.settle(call, &late, answered(404, ""));
    world.take_call().unwrap_or_else(|| panic!("it is proven that nothing is there, so it is sent: {of}"))
}
