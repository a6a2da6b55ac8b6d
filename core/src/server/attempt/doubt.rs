//! Requests that were sent to where they are executed: what the host has to send, and what is answered while the outcome
//! is not known. This module does no I/O; [`crate::server::engine::remote`] makes the calls and takes their results.

use crate::problem::{Code, Problem};
use crate::server::storage::record::{Finds, State};

/// What the host has to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Call {
    /// The request. What was committed before must be durable first.
    Dispatch {
        /// How often it was dispatched, this time included.
        times: i64,
    },
    /// A read of this path and query.
    Probe {
        /// Path and query.
        path: String,
        /// How often the request was dispatched.
        times: i64,
        /// Whether it was dispatched so long ago that a 404 proves that there is nothing.
        is_proof: bool,
    },
}

/// Whether a new attempt of a dispatched request finds out what became of it.
pub(in crate::server) fn finds_out(state: &State, now_ms: i64) -> bool {
    match state {
        State::Dispatched { finds: Finds::Until(until_ms), .. } => now_ms < *until_ms,
        State::Dispatched { finds: Finds::Asked(_), .. } => true,
        _ => false,
    }
}

/// The problem of a dispatched request, for a caller that sends no attempt. If none of it is under way, the next attempt
/// would be told the same.
pub(in crate::server) fn unsettled(state: &State, is_under_way: bool, now_ms: i64) -> Problem {
    if is_under_way {
        return in_flight();
    }
    if finds_out(state, now_ms) {
        let detail = "it was sent to the upstream, and no outcome came; send the same request again to find out";
        return Problem::new(Code::InFlight, detail);
    }
    outcome_unknown()
}

/// The problem of a request that is under way, or whose next attempt finds out what became of it.
pub(in crate::server) fn in_flight() -> Problem {
    Problem::new(Code::InFlight, "it was sent to the upstream, and its outcome is not known yet")
}

/// The problem of a request that has to wait for one that is under way.
pub(in crate::server) fn locked() -> Problem {
    Problem::new(Code::Locked, "another request of this key is under way to the upstream")
}

/// The problem of a request that stays in doubt.
pub(in crate::server) fn outcome_unknown() -> Problem {
    Problem::new(
        Code::OutcomeUnknown,
        "it was sent to the upstream, and no outcome came; an administrator can resolve it",
    )
}
