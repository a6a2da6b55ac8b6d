//! Requests that were sent to where they are executed: what the host is to send, and what is told of one whose outcome is not known. Pure: the calls and
//! what comes of them are in [`crate::server::engine::remote`].

use crate::problem::{Code, Problem};
use crate::server::storage::record::{Finds, State};

/// What the host is to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Call {
    /// The request. What was committed before must be durable first.
    Dispatch {
        /// How often it was dispatched, with this time.
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

/// Whether an attempt of what was dispatched finds out what became of it.
pub(in crate::server) fn finds_out(state: &State, now_ms: i64) -> bool {
    match state {
        State::Dispatched { finds: Finds::Until(until_ms), .. } => now_ms < *until_ms,
        State::Dispatched { finds: Finds::Asked(_), .. } => true,
        _ => false,
    }
}

/// What is told of what was dispatched to who sends no attempt. Where none of it is under way, it is as much as its next attempt would be told.
pub(in crate::server) fn unsettled(state: &State, is_under_way: bool, now_ms: i64) -> Problem {
    if is_under_way {
        return in_flight();
    }
    if finds_out(state, now_ms) {
        let detail =
            "it was sent to where it is executed, and no outcome came; the same request, sent again, finds out";
        return Problem::new(Code::InFlight, detail);
    }
    outcome_unknown()
}

/// The problem of a request that is under way, or of which the next attempt finds out what became of it.
pub(in crate::server) fn in_flight() -> Problem {
    Problem::new(Code::InFlight, "it was sent to where it is executed, and its outcome is not known yet")
}

/// The problem of what has to wait for a request that is under way.
pub(in crate::server) fn locked() -> Problem {
    Problem::new(Code::Locked, "another request of this key is under way to where it is executed")
}

/// The problem of a request that stays in doubt.
pub(in crate::server) fn outcome_unknown() -> Problem {
    Problem::new(
        Code::OutcomeUnknown,
        "it was sent to where it is executed, and no outcome came; an administrator can resolve it",
    )
}
