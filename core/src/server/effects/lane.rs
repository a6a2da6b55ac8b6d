//! One lane: decides what to send next, and what an answer does. This module does no I/O.
//!
//! Invariants:
//! - A number that the other key has taken is asked for under the epoch under which it was sent, and is never sent under another.
//! - An effect that is not known to be taken gets a number after the last one that the other key has, in the order of the commits.
//! - The answer to a closing counts as news of the place only if it is about the place, and not about the closing itself.
//! - The first number of a session may have been taken by a session that the other key has forgotten since, and only the
//!   epoch of that session can show this. If it may have been sent, no new session is begun for it.
//! - Nothing is given up silently: what is refused for good is parked with the reason, and with what is known about whether it ran.

use crate::id::Key;
use crate::problem::{Code, Executed, Retry};
use crate::rules::{Rule, holds};
use crate::server::json::read::Members;

/// Where a lane leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To a key.
    Key(Key),
    /// An origin outside, `https://host:port`.
    Origin(String),
}

impl Target {
    /// The origin of an address; `None` if the address has none, or has credentials.
    pub fn of_url(url: &str) -> Option<Self> {
        let rest = ["https://", "http://"].iter().find_map(|scheme| url.strip_prefix(scheme))?;
        let host = rest.split(['/', '?']).next()?;
        let is_host = !host.is_empty() && !host.contains('@');
        let origin = url.get(..url.len() - rest.len() + host.len())?;
        is_host.then(|| Self::Origin(origin.to_ascii_lowercase()))
    }

    /// The form in which a target is stored and shown.
    pub fn text(&self) -> String {
        match self {
            Self::Key(key) => format!("key {}", key.as_str()),
            Self::Origin(origin) => format!("url {origin}"),
        }
    }

    /// Reads what [`Target::text`] wrote.
    pub fn of_text(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("key", key) => Key::new(key).ok().map(Self::Key),
            ("url", origin) => Some(Self::Origin(origin.to_owned())),
            _ => None,
        }
    }
}

/// A lane, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Stands for the target in the rows of effects.
    pub number: i64,
    /// Where it leads.
    pub target: Target,
    /// The last number that was given to an effect.
    pub seq: i64,
    /// Numbers beyond this one were given by an object that had not taken over the session; `None` if there are none.
    pub sure: Option<i64>,
    /// The epoch before the current one, under which the numbers up to `boundary` were sent.
    pub previous: i64,
    /// The epoch of the last take-over; 0 if there was none.
    pub epoch: i64,
    /// The last number that the other key had taken at that take-over.
    pub boundary: i64,
}

/// What to do for the first effect of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Take over the session. With an epoch: only if that is still the session's current one.
    TakeOver(Option<i64>),
    /// Send it under this epoch.
    Send(i64),
    /// Close its place under this epoch, so that it never runs.
    Close(i64),
    /// Send it to an address outside.
    Call,
}

impl Step {
    /// Whether the request to send has an id instead of a place in the session.
    pub fn is_control(self) -> bool {
        matches!(self, Self::TakeOver(_) | Self::Close(_))
    }
}

/// Whether the first effect of a lane was certainly never sent. `is_first`: whether this object knows that.
pub fn is_new(lane: &Lane, seq: i64, is_first: bool) -> bool {
    is_first || lane.sure.is_some_and(|sure| seq > sure)
}

/// The epoch that the session of a lane must still have when it is taken over; `None` if it may have any. `told`: the
/// current epoch, if the other key has named it.
///
/// Only the first number needs this. For a later number, the other key's last number shows whether the session was forgotten.
fn expected(lane: &Lane, seq: i64, is_new: bool, told: Option<i64>) -> Option<i64> {
    let is_needed = seq == 1 && lane.epoch > 0 && !is_new && holds(Rule::FirstOfKnownSession);
    is_needed.then(|| told.unwrap_or(lane.epoch))
}

/// What an object knows of a lane besides what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// Whether it holds the session.
    pub is_open: bool,
    /// Whether it knows that the first effect was never sent.
    pub is_first: bool,
    /// The current epoch, if the other key has named it.
    pub told: Option<i64>,
}

/// Decides what to do next for the first effect of a lane, which has the number `seq`.
pub fn next(lane: &Lane, seq: i64, is_closing: bool, known: Known) -> Step {
    if matches!(lane.target, Target::Origin(_)) {
        return Step::Call;
    }
    let was_taken = seq <= lane.boundary;
    let epoch = if was_taken && holds(Rule::TakenEpoch) { lane.previous } else { lane.epoch };
    let is_held = known.is_open || (lane.epoch > 0 && !holds(Rule::LaneTakenOver));
    match (was_taken || is_held, is_closing) {
        // A taken number is asked for before a take-over, which moves the boundary.
        (false, _) => Step::TakeOver(expected(lane, seq, is_new(lane, seq, known.is_first), known.told)),
        (true, true) => Step::Close(epoch),
        (true, false) => Step::Send(epoch),
    }
}

/// What the host reports about something that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// There was an answer. It came from a Semel layer if it has a `Semel-Status`.
    Answered {
        /// Its status.
        status: u16,
        /// `Semel-Status`; empty if there was none.
        semel: String,
        /// Its body, or the beginning of it.
        body: Vec<u8>,
    },
    /// There was no answer, for this reason.
    Nothing(String),
    /// The runtime can't send it, for this reason.
    Unsendable(String),
}

/// What to do with the effect or the lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The effect is done, and is deleted.
    Done,
    /// Park the effect, with whether it ran and the reason.
    Park(Executed, String),
    /// Close its place, and then park it for this reason.
    Close(String),
    /// Take over the session again, for this reason.
    TakeOver(String),
    /// The session was taken over: its epoch, and the last number that was taken.
    Opened(i64, i64),
    /// Take over the session from this epoch.
    Expect(i64, String),
    /// The other key has forgotten the session.
    Forgotten,
    /// Try the same once more after the interval.
    Again(String),
}

/// Decides what an answer does. `is_first`: nothing was sent under this number and epoch before.
pub fn judge(lane: &Lane, seq: i64, step: Step, is_first: bool, heard: Heard) -> Verdict {
    let (status, semel, body) = match heard {
        Heard::Nothing(reason) => return Verdict::Again(reason),
        Heard::Unsendable(reason) if step == Step::Call => return Verdict::Park(Executed::No, reason),
        Heard::Unsendable(reason) => return Verdict::Close(reason),
        Heard::Answered { status, semel, body } => (status, semel, body),
    };
    let is_outcome = matches!(semel.as_str(), "executed" | "replayed");
    match step {
        Step::Call => called(status, &body),
        Step::Send(_) if is_outcome => ended(i64::from(status), &body),
        Step::TakeOver(_) if is_outcome => {
            taken_over(&body).unwrap_or_else(|| Verdict::Again("no epoch came".to_owned()))
        }
        Step::TakeOver(expected) => not_taken_over(expected.and(current_epoch(&body)), words(status, &semel, &body)),
        Step::Close(_) if is_outcome => closed(&body).unwrap_or_else(|| Verdict::Again("no state came".to_owned())),
        Step::Send(_) | Step::Close(_) => {
            let reason = words(status, &semel, &body);
            let Some(code) = Code::ALL.iter().find(|code| code.as_str() == semel) else {
                return Verdict::Again(reason);
            };
            let executed = executed_of(&body).unwrap_or(code.executed());
            refused(*code, executed, seq <= lane.boundary, (step, is_first), reason)
        }
    }
}

fn refused(code: Code, executed: Executed, was_taken: bool, (step, is_first): (Step, bool), reason: String) -> Verdict {
    let is_closing = matches!(step, Step::Close(_));
    match (code.retry(), code) {
        (_, Code::SequenceGap | Code::Fenced) if !was_taken => Verdict::TakeOver(reason),
        // If it was not sent before this answer, it has not run, even if the session was forgotten.
        (_, Code::SessionUnknown) if is_first => Verdict::TakeOver(reason),
        (Retry::SameId, Code::SequenceGap) => Verdict::Park(Executed::Unknown, reason),
        (Retry::SameId, _) => Verdict::Again(reason),
        // The number was taken, but not under an epoch that is known here.
        (_, Code::Fenced | Code::KeyInvalid) if was_taken => Verdict::Park(Executed::Unknown, reason),
        // This answer is about the closing itself; the next try has another id.
        _ if is_closing && !is_of_place(code) && holds(Rule::ClosingOfPlace) => Verdict::Again(reason),
        // The place belongs to another request, so this one has not run there.
        (Retry::Never, _) | (_, Code::FingerprintMismatch) => Verdict::Park(executed, reason),
        (Retry::AfterFix, _) if !holds(Rule::ClosedBeforeParked) => Verdict::Park(executed, reason),
        (Retry::AfterFix, _) => Verdict::Close(reason),
    }
}

/// Whether a closing that is refused with this code learns what became of the place. A closing names a place without a payload.
fn is_of_place(code: Code) -> bool {
    matches!(code, Code::SessionUnknown | Code::Poisoned | Code::Acknowledged | Code::OutcomeExpired)
}

fn ended(status: i64, body: &[u8]) -> Verdict {
    if (200..300).contains(&status) {
        Verdict::Done
    } else {
        Verdict::Park(Executed::Yes, format!("answered {status}: {}", beginning(body)))
    }
}

/// The verdict on the answer of an outside address. A gateway or a busy server may let the call through later.
fn called(status: u16, body: &[u8]) -> Verdict {
    let reason = format!("answered {status}: {}", beginning(body));
    match status {
        200..300 => Verdict::Done,
        408 | 409 | 423 | 424 | 425 | 429 | 500.. => Verdict::Again(reason),
        _ => Verdict::Park(Executed::Unknown, reason),
    }
}

fn taken_over(body: &[u8]) -> Option<Verdict> {
    let mut members = Members::parse(body).ok()?;
    let (epoch, last) = (members.required("epoch").ok()?, members.required("lastSeq").ok()?);
    (epoch > 0 && last >= 0).then_some(Verdict::Opened(epoch, last))
}

/// The verdict on a refused take-over. `current`: the session's current epoch if another one was expected; 0 if there is no session.
fn not_taken_over(current: Option<i64>, reason: String) -> Verdict {
    match current {
        None => Verdict::Again(reason),
        Some(0) => Verdict::Forgotten,
        Some(current) => Verdict::Expect(current, reason),
    }
}

fn current_epoch(body: &[u8]) -> Option<i64> {
    Members::parse(body).ok()?.required("currentEpoch").ok()
}

fn closed(body: &[u8]) -> Option<Verdict> {
    let mut members = Members::parse(body).ok()?;
    let state: String = members.required("state").ok()?;
    match state.as_str() {
        "cancelled" => Some(Verdict::Park(Executed::No, String::new())),
        "executed" => {
            let mut outcome: Members = members.required("outcome").ok()?;
            Some(ended(outcome.required("status").ok()?, b""))
        }
        _ => None,
    }
}

fn executed_of(body: &[u8]) -> Option<Executed> {
    let executed: String = Members::parse(body).ok()?.required("executed").ok()?;
    [Executed::Yes, Executed::No, Executed::Unknown].into_iter().find(|each| each.as_str() == executed)
}

fn words(status: u16, semel: &str, body: &[u8]) -> String {
    let detail = Members::parse(body).ok().and_then(|mut members| members.required::<String>("detail").ok());
    match detail {
        Some(detail) => format!("{status} {semel}: {detail}"),
        None => format!("{status} {semel}"),
    }
}

/// How much of a body is kept as a reason, in characters.
const REASON_CHARS_MAX: usize = 200;

fn beginning(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().filter(|each| !each.is_control()).take(REASON_CHARS_MAX).collect()
}

/// What a take-over changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The lane from then on.
    pub lane: Lane,
    /// Numbers beyond this one were not taken.
    pub kept: i64,
    /// Added to each of those numbers.
    pub shift: i64,
}

/// Up to which number the other key knows these effects by their numbers, if it has taken numbers up to `last`.
///
/// Numbers beyond `sure` were given by an object that had not asked the other key yet. If the other key has more numbers
/// than that, this key was restored to an earlier state, and those numbers at the other key belong to effects of a
/// history that was undone.
pub fn kept(lane: &Lane, last: i64) -> i64 {
    lane.sure.filter(|_| holds(Rule::PutBackRenumbered)).unwrap_or(lane.seq).min(last)
}

/// What a take-over changes. `first`: the lowest number beyond [`kept`] that still waits.
pub fn opened(lane: &Lane, epoch: i64, last: i64, first: Option<i64>) -> Opened {
    let shift = last + 1 - first.unwrap_or(lane.seq + 1);
    let opened =
        Lane { seq: lane.seq + shift, sure: None, previous: lane.epoch, epoch, boundary: last, ..lane.clone() };
    Opened { lane: opened, kept: kept(lane, last), shift }
}

#[cfg(test)]
mod tests;
