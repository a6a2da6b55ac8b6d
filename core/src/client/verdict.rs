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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Headers;

    const NOW_MS: i64 = 1_800_000_000_000;
    const NOW_S: i64 = NOW_MS / 1000;
    const SENT: Sent = Sent { first_sent_s: NOW_S, deadline_ms: NOW_MS };

    fn answer(status: u16, semel: &str, members: &[(&str, &str)]) -> Answer {
        let headers = [("semel-status", semel.to_owned()), ("semel-now", NOW_MS.to_string())];
        let members = members.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Answer { status, headers: headers.into_iter().collect::<Headers>(), members, ..Answer::default() }
    }

    fn never(answer: &Answer) -> Failure {
        match judge(answer, SENT) {
            Verdict::Never(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_outcome_has_a_status_of_200_to_299_or_400_to_499() {
        for (status, is_outcome) in
            [(199, false), (200, true), (299, true), (300, false), (399, false), (400, true), (499, true), (500, false)]
        {
            for semel in ["executed", "replayed"] {
                assert_eq!(judge(&answer(status, semel, &[]), SENT) == Verdict::Outcome, is_outcome, "{status}");
            }
        }
    }

    #[test]
    fn a_problem_with_never_is_definitive_up_to_the_status_499_and_no_5xx_is() {
        for (status, is_definitive) in [(400, true), (499, true), (500, false), (501, false), (599, false)] {
            let told = judge(&answer(status, "cancelled", &[("retry", "never")]), SENT);
            assert_eq!(matches!(told, Verdict::Never(_)), is_definitive, "{status}");
            assert!(is_definitive || told == AGAIN, "{status}: {told:?}");
        }
    }

    #[test]
    fn a_problem_without_a_readable_body_means_what_the_table_of_codes_says_but_fenced_and_cancelled_say_nothing() {
        for (status, code, executed) in [
            (410, "poisoned", Executed::No),
            (409, "transaction-aborted", Executed::No),
            (410, "acknowledged", Executed::Unknown),
            (412, "outside-window", Executed::Unknown),
            (409, "fenced", Executed::Unknown),
            (410, "cancelled", Executed::Unknown),
        ] {
            assert_eq!(never(&answer(status, code, &[])).executed, executed, "{code}");
        }
        assert_eq!(judge(&answer(410, "of-a-newer-server", &[]), SENT), AGAIN, "what nobody knows is not definitive");
        let told = |semel, members: &[(&str, &str)]| refusal(&answer(429, semel, members)).map(|failure| failure.code);
        assert_eq!(told("rate-limited", &[]), Some("rate-limited".to_owned()));
        assert_eq!(told("rate-limited", &[("executed", "unknown")]), None, "the body counts more than the table");
        assert_eq!((told("in-flight", &[]), told("of-a-newer-server", &[])), (None, None));
        assert_eq!(told("of-a-newer-server", &[("executed", "no")]), Some("of-a-newer-server".to_owned()));
    }

    #[test]
    fn a_failure_tells_the_detail_of_the_problem_or_its_title_or_its_code() {
        let (detail, title) = (("detail", "of this case"), ("title", "of all cases"));
        for (members, told) in [(&[detail, title][..], "of this case"), (&[title], "of all cases"), (&[], "poisoned")] {
            assert_eq!(never(&answer(410, "poisoned", members)).detail, told);
        }
    }

    #[test]
    fn a_refused_instant_corrects_the_clock_only_if_it_is_more_than_120_s_ahead_of_the_servers() {
        let is_again = |semel: &str, first_sent_s: i64, deadline_ms: i64| {
            let told = judge(&answer(400, semel, &[]), Sent { first_sent_s, deadline_ms });
            assert!(matches!(told, Verdict::Pause(_) | Verdict::Again { clock_ms: Some(NOW_MS), .. }), "{told:?}");
            matches!(told, Verdict::Again { .. })
        };
        for (ahead_ms, is_too_far) in [(0, false), (120_000, false), (120_001, true)] {
            assert_eq!(is_again("key-invalid", NOW_S, NOW_MS + ahead_ms), is_too_far, "a deadline: {ahead_ms}");
            assert!(!is_again("key-mismatch", NOW_S, NOW_MS + ahead_ms), "only malformed instants are about time");
        }
        for (ahead_s, is_too_far) in [(0, false), (120, false), (121, true)] {
            assert_eq!(is_again("key-invalid", NOW_S + ahead_s, NOW_MS), is_too_far, "a first-sent: {ahead_s}");
        }
    }
}
