//! What an answer to an attempt means.
//!
//! Invariants:
//! - Only `executed` and `replayed` are outcomes. Besides them, only problems with `retry: "never"` are definitive. No
//!   5xx is.
//! - An answer without `Semel-Status` says nothing, whatever its status.

use super::RETRY_AFTER_S_MAX;
use super::action::Answer;
use super::failure::Failure;
use crate::header::AHEAD_MS_MAX;
use crate::problem::{Code, Executed, Retry};
use crate::rules::{Rule, holds};
use crate::text::number;

/// The instants that an attempt carried.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// `Semel-First-Sent`, in Unix seconds.
    pub first_sent_s: i64,
    /// `Semel-Deadline`, in Unix ms.
    pub deadline_ms: i64,
}

/// In place of the instants of an attempt from before a sleep. Its answer may be as old, so it tells nothing of a clock,
/// and a refusal of its instants is no reason to pause.
pub const DOUBTED: Sent = Sent { first_sent_s: i64::MAX, deadline_ms: 0 };

/// What to do after an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Deliver it: it is the outcome.
    Outcome,
    /// Deliver this failure: it is definitive, and there is no outcome.
    Never(Failure),
    /// Send again, after `after_ms` or the interval, whichever is longer.
    Again {
        /// `Retry-After`, in ms.
        after_ms: i64,
        /// The server's clock, if the answer says that the client has it wrong.
        clock_ms: Option<i64>,
    },
    /// Pause: something has to be fixed first, for instance the credentials.
    Pause(Failure),
}

const AGAIN: Verdict = Verdict::Again { after_ms: 0, clock_ms: None };

/// Decides what an answer means. `sent`: the instants that the attempt carried.
pub fn judge(answer: &Answer, sent: Sent) -> Verdict {
    let Some(status) = answer.headers.get("semel-status") else {
        return if holds(Rule::StatusNeeded) { AGAIN } else { Verdict::Outcome };
    };
    if status == "executed" || status == "replayed" {
        let is_outcome = matches!(answer.status, 200..=299 | 400..=499);
        return if is_outcome { Verdict::Outcome } else { AGAIN };
    }
    let code = Code::ALL.iter().find(|code| code.as_str() == status).copied();
    let retry = answer.member("retry").and_then(Retry::from_wire).or(code.map(Code::retry));
    let after_ms = retry_after_ms(answer);
    let again = Verdict::Again { after_ms, clock_ms: None };
    if answer.status >= 500 && holds(Rule::NoServerError) {
        return again;
    }
    match retry {
        Some(Retry::Never) => Verdict::Never(failure(answer, status, executed(answer, code), Retry::Never)),
        Some(Retry::AfterFix) => match clock_ms(answer) {
            Some(clock_ms) if code == Some(Code::KeyInvalid) && is_too_far_ahead(sent, clock_ms) => {
                Verdict::Again { after_ms, clock_ms: Some(clock_ms) }
            }
            _ if !holds(Rule::UnknownWhenPaused) => {
                Verdict::Pause(failure(answer, status, executed(answer, code), Retry::AfterFix))
            }
            _ => Verdict::Pause(failure(answer, status, Executed::Unknown, Retry::AfterFix)),
        },
        Some(Retry::SameId) if code == Some(Code::AttemptExpired) => {
            Verdict::Again { after_ms, clock_ms: clock_ms(answer) }
        }
        Some(Retry::SameId) | None => again,
    }
}

/// Why an attempt that may be sent again did not run. `None` unless the server says that it did not run.
pub fn refusal(answer: &Answer) -> Option<Failure> {
    let status = answer.headers.get("semel-status")?;
    let code = Code::ALL.iter().find(|code| code.as_str() == status).copied();
    let told = executed(answer, code);
    (told == Executed::No).then(|| failure(answer, status, told, Retry::SameId))
}

/// The server's clock, from `Semel-Now`.
pub fn clock_ms(answer: &Answer) -> Option<i64> {
    number(answer.headers.get("semel-now")?)
}

/// Whether the request was executed: as the body says, else as the table of codes does. The table does not count for
/// two codes, since for these the body may differ from it.
fn executed(answer: &Answer, code: Option<Code>) -> Executed {
    let told = answer.member("executed").and_then(Executed::from_wire);
    let certain = code.filter(|code| !matches!(code, Code::Fenced | Code::Cancelled));
    told.or(certain.map(Code::executed)).unwrap_or(Executed::Unknown)
}

fn is_too_far_ahead(sent: Sent, clock_ms: i64) -> bool {
    let latest_ms = clock_ms.saturating_add(AHEAD_MS_MAX);
    sent.deadline_ms > latest_ms || sent.first_sent_s > latest_ms.div_euclid(1000)
}

/// `Retry-After`, in ms. Only seconds are understood; the protocol does not use the other form, a date.
pub fn retry_after_ms(answer: &Answer) -> i64 {
    let seconds = answer.headers.get("retry-after").and_then(number);
    seconds.unwrap_or_default().min(RETRY_AFTER_S_MAX) * 1000
}

fn failure(answer: &Answer, code: &str, executed: Executed, retry: Retry) -> Failure {
    let detail = answer.member("detail").or(answer.member("title")).unwrap_or(code);
    Failure { problem: answer.body.clone(), ..Failure::of(code, executed, retry, detail) }
}
