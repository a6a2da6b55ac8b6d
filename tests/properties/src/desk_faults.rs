//! Faults among many requests, and which requests are rolled back by themselves.

use crate::desk_handler::{Asked, Book, UNDOING};
use crate::source::Source;
use semel_support::{Call, Reply, World};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A fault comes before one of this many statements.
const STATEMENTS_MAX: usize = 48;

/// A fault among many requests.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The statement fails.
    Fails(u64),
    /// The disk is full.
    Full(u64),
    /// The object dies.
    Crash(u64),
}

impl Fault {
    /// Chooses a fault.
    pub fn of(source: &mut Source<'_>) -> Self {
        let fault = source.pick(&[Self::Fails as fn(u64) -> Self, Self::Full, Self::Crash]);
        fault(source.below(STATEMENTS_MAX) as u64)
    }
}

/// Does `work` with a fault, or with a panic of the handler. `None`: the object died.
pub fn with_fault<T>(
    world: &mut World<Book>,
    fault: Option<Fault>,
    work: impl FnOnce(&mut World<Book>) -> T,
) -> Option<T> {
    match fault {
        Some(Fault::Fails(n)) => world.database.fail(n),
        Some(Fault::Full(n)) => world.database.full(n),
        Some(Fault::Crash(n)) => world.database.crash_before(n),
        None => {}
    }
    let done = catch_unwind(AssertUnwindSafe(|| work(world)));
    world.database.calm();
    match done {
        Ok(done) if !world.database.has_crashed() => return Some(done),
        // A panic of the check itself is not one of the handler.
        Err(panic) if !panic.is::<Asked>() => std::panic::resume_unwind(panic),
        _ => world.restart(),
    }
    None
}

/// Whether the handler panics on a request.
pub fn panics(call: &Call) -> bool {
    call.url().0 == "/panics"
}

/// Whether an answer shows that the request was rolled back, as a whole or in part.
pub fn undoes(call: &Call, reply: &Reply) -> bool {
    let path = call.url().0;
    let is_done = matches!(reply.only("semel-status"), "executed" | "replayed");
    ["/nested", "/tally/nested", "/sends/nested"].contains(&path)
        || !is_done && (UNDOING.contains(&path) || panics(call) || path.starts_with("/semel/"))
        || reads(call)
}

fn reads(call: &Call) -> bool {
    call.method().reads() && !call.url().0.starts_with("/semel/")
}

/// Whether an element of a batch may be rolled back, as a whole or in part.
pub fn may_be_undone(element: &Value) -> bool {
    let path = element["path"].as_str().unwrap_or_default();
    path == "/panics" || UNDOING.contains(&path) || element["method"] == "GET" || path.starts_with("/semel/")
}
