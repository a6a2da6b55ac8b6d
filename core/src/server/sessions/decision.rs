//! Decides about an attempt that names a place in a session. This module does no I/O, so the checkers explore this very code.
//!
//! Invariants, in the order of the checks:
//! - Another principal learns nothing of a session except that the name is taken.
//! - A place that was taken answers the epoch that took it, however late the attempt is and however old the epoch.
//! - An epoch that is over takes no place, and no epoch takes a number beyond the next.
//! - The next number of the current epoch runs. Only its own deadline can stop it, and no other clock.

use crate::fingerprint::Fingerprint;
use crate::id::Principal;
use crate::problem::{Code, Executed, Position, Problem};
use crate::rules::{Rule, holds};
use crate::server::attempt::decision::{Decision, check_deadline, poisoned};
use crate::server::storage::sessions::state::{Known, Session, Taken, TakenState, WINDOW};

/// The attempt, as far as the decision needs it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The epoch that it names.
    pub epoch: i64,
    /// The number that it names.
    pub seq: i64,
    /// The fingerprint of the request; `None` for a cancellation, which names a place whatever its request was.
    pub fingerprint: Option<&'a Fingerprint>,
    /// The attempt's deadline, in Unix ms.
    pub deadline_ms: Option<i64>,
}

/// The session, if the principal owns it (`None` owns all), or else the problem.
pub fn open(session: Option<Session>, principal: Option<&Principal>) -> Result<Session, Problem> {
    let session = session.ok_or_else(unknown)?;
    if holds(Rule::SessionOwned) && principal.is_some_and(|principal| *principal != session.principal) {
        return Err(Problem::new(Code::Forbidden, "the session belongs to another principal"));
    }
    Ok(session)
}

/// The number up to which no outcome is to be kept after an attempt has acknowledged up to `ack`.
pub fn freed(session: &Session, epoch: i64, ack: i64) -> i64 {
    if epoch == session.epochs.current() || !holds(Rule::AckOfCurrent) {
        session.freed_with(ack)
    } else {
        session.freed_seq()
    }
}

/// Decides what to do with an attempt. `freed_seq`: the number up to which no outcome is to be kept by now.
pub fn decide(session: &Session, taken: Option<&Taken>, asked: &Asked<'_>, freed_seq: i64, now_ms: i64) -> Decision {
    let Asked { epoch, seq, .. } = *asked;
    let (current, next) = (session.epochs.current(), session.last_seq() + 1);
    let of_epoch = |taken: &&Taken| taken.epoch == epoch || !holds(Rule::PlaceOfEpoch);
    if let Some(taken) = taken.filter(of_epoch).filter(|taken| holds_for(&taken.state)) {
        return decide_taken(taken, asked);
    }
    let refusal = match session.epochs.known(epoch, session.last_seq()) {
        Known::Held { after, .. } if seq <= after => (Rule::OwnNumbers, not_its_own(after)),
        Known::Held { last, .. } if seq <= last => (Rule::PlaceGone, gone(session, seq)),
        Known::Held { .. } if epoch == current => (Rule::NoGap, gap(next)),
        Known::Held { .. } | Known::Never => (Rule::Fenced, fenced(current)),
        Known::TooOld if holds(Rule::FencedUnknown) => (Rule::Fenced, fenced(current).with_executed(Executed::Unknown)),
        Known::TooOld => (Rule::Fenced, fenced(current)),
        Known::Ahead => (Rule::EpochKnown, unknown()),
    };
    let (rule, problem) = refusal;
    if (epoch, seq) != (current, next) && holds(rule) {
        return Decision::Refuse(problem);
    }
    if seq > freed_seq + WINDOW && holds(Rule::Window) {
        let detail = format!("{WINDOW} places are not acknowledged, as many as may be");
        return Decision::Refuse(Problem::new(Code::Capacity, detail));
    }
    check_deadline(asked.deadline_ms, now_ms).map_or_else(Decision::Refuse, |()| Decision::Execute)
}

/// Whether the rule holds by which a place in this state does not run again.
fn holds_for(state: &TakenState) -> bool {
    holds(match state {
        TakenState::Executed(..) => Rule::PlaceReplay,
        TakenState::Poisoned(_) => Rule::PlacePoisoned,
        TakenState::Cancelled => Rule::PlaceCancelled,
        TakenState::Acknowledged => Rule::PlaceGone,
    })
}

fn decide_taken(taken: &Taken, asked: &Asked<'_>) -> Decision {
    let same = |recorded: &Fingerprint| {
        !holds(Rule::PlaceFingerprint) || asked.fingerprint.is_none_or(|fingerprint| fingerprint == recorded)
    };
    match &taken.state {
        TakenState::Executed(recorded, _) | TakenState::Poisoned(recorded) if !same(recorded) => {
            let detail = "this place is in use for another request; a new request needs the next number";
            Decision::Refuse(Problem::new(Code::FingerprintMismatch, detail))
        }
        TakenState::Executed(..) => Decision::Replay,
        TakenState::Poisoned(_) => Decision::Refuse(poisoned()),
        TakenState::Cancelled => {
            Decision::Refuse(Problem::new(Code::Cancelled, "cancelled before it ran; it never will"))
        }
        TakenState::Acknowledged => Decision::Refuse(acknowledged()),
    }
}

fn gone(session: &Session, seq: i64) -> Problem {
    if session.has_lapsed(seq) {
        Problem::new(Code::OutcomeExpired, "the session was idle for the retention, and its outcomes are gone")
    } else {
        acknowledged()
    }
}

fn acknowledged() -> Problem {
    Problem::new(Code::Acknowledged, "the session acknowledged this number before, so its outcome was freed")
}

fn gap(next: i64) -> Problem {
    let detail = format!("the next number of this session is {next}; none may be left out");
    Problem::new(Code::SequenceGap, detail).with_position(Position::ExpectedSeq(next))
}

fn not_its_own(after: i64) -> Problem {
    let detail =
        format!("Semel-Session: an earlier epoch took the numbers up to {after}; this epoch has those after it");
    Problem::new(Code::KeyInvalid, detail)
}

/// The problem of an epoch that is over.
pub fn fenced(current: i64) -> Problem {
    let detail = format!("the session has a newer holder, of epoch {current}");
    Problem::new(Code::Fenced, detail).with_position(Position::CurrentEpoch(current))
}

fn unknown() -> Problem {
    Problem::new(
        Code::SessionUnknown,
        "this key does not know the session, or not this epoch of it; take it over first",
    )
}
