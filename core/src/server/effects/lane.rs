//! One lane: what is to be sent next, and what an answer does. Pure.
//!
//! Invariants:
//! - A number that the other key has taken is asked for under the epoch that it was sent under, and never sent under another.
//! - What is not known to have been taken gets the number after the last that the other key has, in the order of the commits.
//! - What a closing is answered is news of its place only where it speaks of that, and not of the closing itself.
//! - The first number of a session may have been taken by one that was forgotten since, and nothing tells but that session's epoch: where it may
//!   have been sent, no session is begun anew for it.
//! - Nothing is given up without a word: what is refused for good is parked with the reason, and what is known of whether it ran.

use crate::id::Key;
use crate::problem::{Code, Executed, Retry};
use crate::rules::{Rule, holds};
use crate::server::json::read::Members;

/// Where a lane leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To a key.
    Key(Key),
    /// To an origin outside, `https://host:port`.
    Origin(String),
}

impl Target {
    /// The origin of an address.
    pub fn of_url(url: &str) -> Option<Self> {
        let rest = ["https://", "http://"].iter().find_map(|scheme| url.strip_prefix(scheme))?;
        let host = rest.split(['/', '?']).next()?;
        let is_host = !host.is_empty() && !host.contains('@');
        let origin = url.get(..url.len() - rest.len() + host.len())?;
        is_host.then(|| Self::Origin(origin.to_ascii_lowercase()))
    }

    /// As it is stored and shown.
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
    /// What stands for the target in the rows of effects.
    pub number: i64,
    /// Where it leads.
    pub target: Target,
    /// The last number that was given.
    pub seq: i64,
    /// Numbers up to this one were given by objects that held the session, or had stored them before they took it over; `None`: all were.
    pub sure: Option<i64>,
    /// The epoch before, under which the numbers up to `boundary` were sent.
    pub previous: i64,
    /// The epoch of the last take-over; 0: there was none.
    pub epoch: i64,
    /// What the other key had taken by then.
    pub boundary: i64,
}

/// What is to be done for the first effect of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The session is to be taken over: from that epoch, where it has to be there.
    TakeOver(Option<i64>),
    /// It is sent under an epoch.
    Send(i64),
    /// Its place is closed, so that it never runs.
    Close(i64),
    /// It is sent to an address.
    Call,
}

impl Step {
    /// Whether what is sent has an id, and no place in the session.
    pub fn is_control(self) -> bool {
        matches!(self, Self::TakeOver(_) | Self::Close(_))
    }
}

/// Whether the first of a lane was surely never sent. `is_first`: this object knows.
pub fn is_new(lane: &Lane, seq: i64, is_first: bool) -> bool {
    is_first || lane.sure.is_some_and(|sure| seq > sure)
}

/// The epoch from which the session of a lane is taken over, where it has to be there. `told`: what the other key said was the current one.
///
/// Only the first number needs it: of a later one the numbers before it tell.
fn expected(lane: &Lane, seq: i64, is_new: bool, told: Option<i64>) -> Option<i64> {
    let is_needed = seq == 1 && lane.epoch > 0 && !is_new && holds(Rule::FirstOfKnownSession);
    is_needed.then(|| told.unwrap_or(lane.epoch))
}

/// What an object knows of a lane beside what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// Whether it holds the session.
    pub is_open: bool,
    /// Whether it knows that the first was never sent.
    pub is_first: bool,
    /// What the other key said was the current epoch.
    pub told: Option<i64>,
}

/// What is done next.
pub fn next(lane: &Lane, seq: i64, is_closing: bool, known: Known) -> Step {
    if matches!(lane.target, Target::Origin(_)) {
        return Step::Call;
    }
    let was_taken = seq <= lane.boundary;
    let epoch = if was_taken && holds(Rule::TakenEpoch) { lane.previous } else { lane.epoch };
    let is_held = known.is_open || (lane.epoch > 0 && !holds(Rule::LaneTakenOver));
    match (was_taken || is_held, is_closing) {
        // What was taken is asked for first: a take-over moves the boundary.
        (false, _) => Step::TakeOver(expected(lane, seq, is_new(lane, seq, known.is_first), known.told)),
        (true, true) => Step::Close(epoch),
        (true, false) => Step::Send(epoch),
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// An answer, of the layer where there is a `Semel-Status`.
    Answered {
        /// Its status.
        status: u16,
        /// `Semel-Status`; empty: none.
        semel: String,
        /// Its body, or the beginning of it.
        body: Vec<u8>,
    },
    /// None, for that reason.
    Nothing(String),
    /// The runtime can't send it.
    Unsendable(String),
}

/// What becomes of the lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The effect is done, and goes.
    Done,
    /// It is parked.
    Park(Executed, String),
    /// Its place is to be closed, and then it is parked for that reason.
    Close(String),
    /// The session has to be taken over again.
    TakeOver(String),
    /// The session was: its epoch, and the last number that was taken.
    Opened(i64, i64),
    /// The session is to be taken over from that epoch.
    Expect(i64, String),
    /// The session is not there any more.
    Forgotten,
    /// The same once more, after the interval.
    Again(String),
}

/// What an answer does. `is_first`: under this epoch nothing was sent before under that number.
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
        // What was not sent before this answer has not run, whoever has forgotten the session.
        (_, Code::SessionUnknown) if !was_taken && is_first => Verdict::TakeOver(reason),
        (Retry::SameId, Code::SequenceGap) => Verdict::Park(Executed::Unknown, reason),
        (Retry::SameId, _) => Verdict::Again(reason),
        // Its number was taken, and not under an epoch that is known here.
        (_, Code::Fenced | Code::KeyInvalid) if was_taken => Verdict::Park(Executed::Unknown, reason),
        // It speaks of the closing, and the next one has another id.
        _ if is_closing && !is_of_place(code) && holds(Rule::ClosingOfPlace) => Verdict::Again(reason),
        // The place is another's, so this one has not run there.
        (Retry::Never, _) | (_, Code::FingerprintMismatch) => Verdict::Park(executed, reason),
        (Retry::AfterFix, _) if !holds(Rule::ClosedBeforeParked) => Verdict::Park(executed, reason),
        (Retry::AfterFix, _) => Verdict::Close(reason),
    }
}

/// Whether a closing that is refused so is told what became of the place, which it names without a payload.
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

/// What stands in front of the other side, or is too busy, may let it through later.
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

/// A take-over was refused. `current`: where one was expected that is not the current epoch, that one; 0: there is none.
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

/// So much of a body is kept as a reason, in characters.
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
    /// So much is added to these.
    pub shift: i64,
}

/// Up to which number effects are known by it at the other key, where that has taken numbers up to `last`.
///
/// Numbers beyond `sure` were given by an object that had not asked yet. Where the other key has more than that, this one was put back: what
/// is there under those numbers is of a time that is no more.
pub fn kept(lane: &Lane, last: i64) -> i64 {
    lane.sure.filter(|_| holds(Rule::PutBackRenumbered)).unwrap_or(lane.seq).min(last)
}

/// What a take-over changes. `first`: the lowest number beyond [`kept`] that waits.
pub fn opened(lane: &Lane, epoch: i64, last: i64, first: Option<i64>) -> Opened {
    let shift = last + 1 - first.unwrap_or(lane.seq + 1);
    let opened =
        Lane { seq: lane.seq + shift, sure: None, previous: lane.epoch, epoch, boundary: last, ..lane.clone() };
    Opened { lane: opened, kept: kept(lane, last), shift }
}

#[cfg(test)]
mod tests;
