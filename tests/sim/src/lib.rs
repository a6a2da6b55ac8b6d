//! The simulator: many real clients and real engines on real SQLite, in one process, with one fake clock.
//!
//! A seed decides everything in a run: which requests are made and when, and what the network, the disks, the clocks,
//! the handler and other people do to them. The same seed makes the same run. First there are faults. Then they end,
//! and everything must settle.
//!
//! - [`plan`]: what a seed decides; [`mutant`]: mistakes on purpose, and [`lies`]: what a key says then; [`shrink`]:
//!   smaller plans
//! - [`server`]: the keys, each with its engine, reached through the real router; [`deposits`]: the handler;
//!   [`snapshot`]: what a key stores
//! - [`tab`] and [`store`]: browsers, their tabs, and what these share; [`curl`]: requests made by hand; [`letter`]:
//!   messages on the wire
//! - `sim`: the run, a queue of events in the order of time; `tabs`, `sharing`, `curls`, `administrator`, `faults`,
//!   `putting_back` and [`wire`]: the events
//! - [`oracle`]: what must hold
//! - [`sessions`]: another run for sessions and batches, with its own server and oracle
//! - [`remote`]: another run for requests that are executed elsewhere, likewise
//! - [`effects`]: another run for effects, likewise
//! - [`together`]: another run for requests that are committed together, likewise
//! - [`marks`]: what must happen in some seeds
//!
//! Invariants:
//! - There is no wall clock, no sleeping, and no randomness except from the seed.
//! - The oracle looks at effects and tables in SQLite, at the wire, and at what callers got, never into the code under
//!   test.

mod administrator;
pub mod curl;
mod curls;
pub mod deposits;
pub mod effects;
mod faults;
pub mod letter;
pub mod lies;
pub mod marks;
pub mod mutant;
pub mod oracle;
pub mod plan;
mod putting_back;
pub mod remote;
pub mod server;
pub mod sessions;
mod sharing;
pub mod shrink;
mod sim;
pub mod snapshot;
pub mod store;
pub mod stored;
pub mod tab;
mod tabs;
pub mod together;
pub mod wire;

pub use mutant::Mutant;
pub use plan::Plan;

use oracle::Violation;
use semel_core::rules;
use sim::Sim;
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A run that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: &'static str,
    /// What happened.
    pub what: String,
}

thread_local! {
    /// Where the last panic of this thread happened.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Has panics reported as failures instead of printed.
pub fn be_quiet() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|place| format!("{}:{}: ", place.file(), place.line()));
        PLACE.set(place.unwrap_or_default());
    }));
}

/// Runs a plan to its end. Returns what happened, by name.
pub fn run(plan: &Plan, mutant: Option<Mutant>) -> Result<BTreeSet<String>, Failure> {
    go(plan, mutant, false).0
}

/// Runs a plan. Returns a line for each event.
pub fn trace(plan: &Plan, mutant: Option<Mutant>) -> Vec<String> {
    go(plan, mutant, true).1
}

fn go(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> (Result<BTreeSet<String>, Failure>, Vec<String>) {
    let (mut sim, mut sessions) = (Sim::new(plan, mutant, is_traced), sessions::Run::new(plan, mutant, is_traced));
    let mut remote = (plan.remote.wishes > 0).then(|| remote::Run::new(plan, mutant, is_traced));
    let mut effects = (plan.effects.transfers > 0).then(|| effects::Run::new(plan, mutant, is_traced));
    let mut together = (plan.together.wishes > 0).then(|| together::Run::new(plan, mutant, is_traced));
    let all = || {
        sim.run()?;
        let mut seen = std::mem::take(&mut sim.oracle.seen);
        seen.append(&mut sessions.run()?);
        if let Some(remote) = &mut remote {
            seen.append(&mut remote.run()?);
        }
        if let Some(effects) = &mut effects {
            seen.append(&mut effects.run()?);
        }
        if let Some(together) = &mut together {
            seen.append(&mut together.run()?);
        }
        Ok::<_, Violation>(seen)
    };
    let ended = catch_unwind(AssertUnwindSafe(|| rules::without(mutant.and_then(Mutant::rule), all)));
    let result = match ended {
        Ok(Ok(seen)) => Ok(seen),
        Ok(Err(violation)) => Err(Failure { kind: violation.kind, what: violation.what }),
        Err(panic) => Err(Failure { kind: "panic", what: format!("{}{}", PLACE.take(), text_of(&*panic)) }),
    };
    let (remote, effects) = (remote.and_then(|remote| remote.trace), effects.and_then(|effects| effects.trace));
    let together = together.and_then(|together| together.trace);
    let traces = [sim.trace.take(), sessions.trace.take(), remote, effects, together];
    (result, traces.into_iter().flatten().flatten().collect())
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}
