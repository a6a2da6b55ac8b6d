//! Decides about an attempt. This module does no I/O, so the checkers explore this very code.
//!
//! Invariants, in the order of the checks:
//! - The record comes first: a request with an outcome is answered from it, however late the attempt is.
//! - An attempt with another fingerprint or principal learns nothing of the record.
//! - Then come the fence and the deadline: what can't be proven new, or comes too late, is refused.

use crate::fingerprint::Fingerprint;
use crate::id::Principal;
use crate::problem::{Code, Executed, Problem};
use crate::rules::{Rule, holds};
use crate::server::storage::record::{Record, State, TombstoneKind};
use crate::server::storage::retention::Instant;

const CANCELLED: &str = "cancelled before it ran; it never will";

/// The attempt, as far as the decision needs it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Who asks.
    pub principal: &'a Principal,
    /// The fingerprint of the request; `None` for a cancellation, which names an id whatever its request was.
    pub fingerprint: Option<&'a Fingerprint>,
    /// When the request was first sent, in Unix seconds.
    pub first_sent_s: Option<i64>,
    /// The attempt's deadline, in Unix ms.
    pub deadline_ms: Option<i64>,
}

impl Asked<'_> {
    fn is_before(&self, fence_s: i64) -> bool {
        holds(Rule::Fence) && self.first_sent_s.is_some_and(|first_sent_s| first_sent_s < fence_s)
    }
}

/// What to do with the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Answer with the recorded outcome.
    Replay,
    /// Run the handler.
    Execute,
    /// The request was sent to where it is executed, and its outcome is not known.
    Doubt,
    /// Answer with a problem.
    Refuse(Problem),
}

impl Decision {
    /// Whether the id belongs to another request. Then the attempt changes nothing of the record.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Refuse(problem) if problem.code == Code::FingerprintMismatch)
    }
}

/// Decides what to do with an attempt.
pub fn decide(record: Option<&Record>, asked: &Asked<'_>, instant: Instant) -> Decision {
    match record {
        Some(record) if holds(Rule::Principal) && !record.answers(asked.principal) => {
            return Decision::Refuse(mismatch());
        }
        // A suspect has no outcome, so it is judged like a new request.
        None | Some(Record { state: State::Suspect { .. }, .. }) => {}
        Some(record) if !holds_for(&record.state) => {}
        // Without a first-sent, an earlier record of the cancelled id may have left. So an attempt that comes too late
        // can't be told whether the request ran.
        Some(Record { state: State::Cancelled { .. }, first_sent_s: None, .. }) => {
            let cancelled = || Problem::new(Code::Cancelled, CANCELLED);
            return Decision::Refuse(too_late(asked, instant).unwrap_or_else(cancelled));
        }
        Some(record) => return decide_recorded(record, asked),
    }
    too_late(asked, instant).map_or(Decision::Execute, Decision::Refuse)
}

/// Why a request without a record must not begin: it is before the fence, or past its deadline.
fn too_late(asked: &Asked<'_>, instant: Instant) -> Option<Problem> {
    if asked.is_before(instant.fence_s) {
        return Some(outside_window(asked, instant));
    }
    check_deadline(asked.deadline_ms, instant.now_ms).err()
}

/// Checks that a request with this deadline may begin now.
pub fn check_deadline(deadline_ms: Option<i64>, now_ms: i64) -> Result<(), Problem> {
    if holds(Rule::Deadline) && deadline_ms.is_some_and(|deadline_ms| deadline_ms < now_ms) {
        let detail = "the deadline is before Semel-Now; this attempt did not run";
        return Err(Problem::new(Code::AttemptExpired, detail));
    }
    Ok(())
}

/// Whether the rule holds by which a record in this state keeps its id from running.
fn holds_for(state: &State) -> bool {
    holds(match state {
        State::Executed(..) => Rule::Replay,
        State::Poisoned(_) => Rule::Poisoned,
        State::Cancelled { .. } => Rule::Cancelled,
        State::Tombstone { .. } => Rule::Tombstone,
        State::Dispatched { .. } => Rule::DoubtHolds,
        State::Suspect { .. } => return true,
    })
}

fn decide_recorded(record: &Record, asked: &Asked<'_>) -> Decision {
    let same = |recorded: &Fingerprint| {
        !holds(Rule::Fingerprint) || asked.fingerprint.is_none_or(|fingerprint| fingerprint == recorded)
    };
    match &record.state {
        State::Executed(fingerprint, _) | State::Poisoned(fingerprint) | State::Dispatched { fingerprint, .. }
            if !same(fingerprint) =>
        {
            Decision::Refuse(mismatch())
        }
        State::Executed(..) => Decision::Replay,
        State::Poisoned(_) => Decision::Refuse(poisoned()),
        State::Cancelled { .. } => Decision::Refuse(Problem::new(Code::Cancelled, CANCELLED)),
        State::Tombstone { kind, executed, .. } => Decision::Refuse(gone(*kind, *executed)),
        State::Dispatched { .. } => Decision::Doubt,
        State::Suspect { .. } => Decision::Execute,
    }
}

/// The problem of a request before the fence. Its code depends on whether an administrator or age has moved the fence there.
fn outside_window(asked: &Asked<'_>, instant: Instant) -> Problem {
    let Instant { forgotten_s, aged_s, .. } = instant;
    let is_moved = |first_sent_s| first_sent_s < forgotten_s || forgotten_s > 0 && first_sent_s >= aged_s;
    if asked.first_sent_s.is_some_and(is_moved) {
        return Problem::new(
            Code::Forgotten,
            "an administrator made this key forget requests that were first sent this early",
        );
    }
    let detail = "first sent before the time that this key still remembers; nobody can tell whether it ran";
    Problem::new(Code::OutsideWindow, detail)
}

fn mismatch() -> Problem {
    Problem::new(
        Code::FingerprintMismatch,
        "this id is in use for another request; a new request needs an id of its own",
    )
}

/// The problem of an id on which the handler crashed too often.
pub fn poisoned() -> Problem {
    Problem::new(Code::Poisoned, "the handler crashed on it each time, and nothing of it was kept; it won't run again")
}

fn gone(kind: TombstoneKind, executed: Executed) -> Problem {
    match kind {
        TombstoneKind::Acknowledged => {
            Problem::new(Code::Acknowledged, "acknowledged before, so its outcome was freed")
        }
        TombstoneKind::Expired => {
            Problem::new(Code::OutcomeExpired, "its outcome was kept for the retention and is gone")
        }
    }
    .with_executed(executed)
}
