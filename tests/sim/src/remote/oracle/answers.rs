//! Checks that what is said is true, and as much as can be said.

use super::{Oracle, Story};
use crate::oracle::{AHEAD_MS, Violation, violation};
use crate::remote::asked::{Asked, Dealt, Errand, Route, State};
use semel_support::{Call, Reply, START_MS};

/// The codes for somebody who asks under an id that belongs to another principal or body.
const TO_STRANGERS: [&str; 4] = ["fingerprint-mismatch", "unavailable", "in-flight", "locked"];

impl Oracle {
    /// Checks that the engine's answer says as much as it can about what is stored.
    pub(super) fn check_answer(&self, dealt: &Dealt, reply: &Reply) -> Result<(), Violation> {
        let Dealt { asked, before, after, now_ms, .. } = dealt;
        let (code, story) = (reply.only("semel-status"), &self.stories[asked.wish]);
        if dealt.is_troubled && code == "unavailable" {
            return Ok(());
        }
        let (was, is) = (before.state_of(asked.wish), after.state_of(asked.wish));
        let what = || {
            format!("{:?} of {} was told {code}, {was:?} before and {is:?} then: {story:?}", asked.errand, asked.wish)
        };
        if dealt.is_clear() && dealt.is_of_start() && is != State::Executed {
            return violation("outcome", format!("what came of it was not recorded: {}", what()));
        }
        // What was sent by a clock that has gone back since is from the future.
        if code == "key-invalid" && is_from_the_future(&asked.call, reply) {
            return Ok(());
        }
        let is_due = match (asked.errand, is) {
            // The request waits for its turn, or has it.
            (Errand::Request, State::InDoubt) => matches!(code, "in-flight" | "unavailable" | "outcome-unknown"),
            (Errand::LookUp, State::InDoubt) => matches!(code, "in-flight" | "outcome-unknown"),
            (Errand::Request | Errand::LookUp, State::Executed) => matches!(code, "executed" | "replayed"),
            (Errand::Request | Errand::LookUp, State::Gone) => {
                matches!(code, "acknowledged" | "outcome-expired") || (was == State::Executed && code == "replayed")
            }
            (Errand::LookUp, State::Cancelled) => code == "cancelled",
            // An administrator has settled or deleted it while it was under way. Or it was answered from its record,
            // which left with the same request.
            (Errand::Request | Errand::LookUp, _) => match code {
                "executed" => false,
                "replayed" => was == State::Executed,
                "acknowledged" | "outcome-expired" => was == State::Gone,
                "cancelled" => was == State::Cancelled || is == State::Cancelled,
                _ => true,
            },
            (Errand::Cancel, State::InDoubt) => {
                matches!(code, "in-flight" | "outcome-unknown" | "replayed" | "capacity")
            }
            (Errand::Cancel, _) if code == "executed" => match reply.field("state").as_str() {
                "cancelled" => is == State::Cancelled,
                state => state == "executed" && was == State::Executed,
            },
            (Errand::Resolve(has_run), _) if code == "executed" => {
                was == State::InDoubt && is == if has_run { State::Executed } else { State::Cancelled }
            }
            // A cancelled request is a tombstone already.
            (Errand::DeleteRecord, _) if code == "executed" => !matches!(is, State::InDoubt | State::Executed),
            // Packed tombstones stay.
            (Errand::DeleteKey, _) if code == "executed" => {
                after.0.keys().all(|wish| [before, after].iter().all(|view| view.state_of(*wish) == State::Gone))
            }
            _ => true,
        };
        if !is_due {
            return violation("answer", what());
        }
        let is_of_this = matches!(asked.errand, Errand::Request | Errand::LookUp | Errand::Cancel);
        if code == "outcome-unknown" && is_of_this && !self.is_beyond_finding(dealt) {
            return violation("answer", format!("it is given up at {now_ms} ms: {}", what()));
        }
        // A look-up must not give hope after somebody was told that there is none.
        let is_given_up = story.is_given_up_at(*now_ms);
        if is_given_up && asked.errand == Errand::LookUp && code == "in-flight" && !dealt.is_under_way {
            return violation("answer", format!("it was given up: {}", what()));
        }
        Ok(())
    }

    /// Whether nobody can find out any more what became of it.
    fn is_beyond_finding(&self, Dealt { asked, after, is_under_way, now_ms, .. }: &Dealt) -> bool {
        let story = &self.stories[asked.wish];
        let has_started = |before_ms: i64| story.started_ms.is_some_and(|started_ms| *now_ms >= started_ms + before_ms);
        match (after.state_of(asked.wish), story.route) {
            (State::InDoubt, _) if *is_under_way => false,
            (State::InDoubt, Route::Report) => has_started(0),
            (State::InDoubt, Route::Resend) => has_started(self.dedup_ms),
            // Its outcome, or what an administrator said of it, is all that can be told.
            (State::Executed | State::Cancelled | State::Gone, _) => false,
            _ => story.deleted_ms.is_some(),
        }
    }

    /// Checks an answer that leaves the key.
    pub fn told(&mut self, asked: &Asked, reply: &Reply, now_ms: i64) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        let story = &mut self.stories[asked.wish];
        let route = story.route.name();
        match asked.errand {
            Errand::Request => self.see(format!("elsewhere, {route}: {code}")),
            Errand::Strange => {
                self.see(format!("elsewhere, strange: {code}"));
                if !TO_STRANGERS.contains(&code) {
                    return violation("stranger", format!("of {} somebody else was told {code}", asked.wish));
                }
                return Ok(());
            }
            Errand::LookUp => self.see(format!("elsewhere, look-up: {code}")),
            Errand::Cancel => {
                self.see(format!("elsewhere, cancel: {code}"));
                return self.told_of_cancellation(asked.wish, reply);
            }
            Errand::Read => {
                self.see(format!("elsewhere, read: {code}"));
                return if code == "unavailable" {
                    Ok(())
                } else {
                    violation("read", format!("a read was told {code}"))
                };
            }
            Errand::Resolve(_) => {
                self.see(format!("elsewhere, resolve: {code}"));
                return Ok(());
            }
            _ => return Ok(()),
        }
        let story = &mut self.stories[asked.wish];
        if story.is_free {
            return Ok(());
        }
        let what = |story: &Story| {
            format!("of {} attempt {} was told {code} at {now_ms} ms: {story:?}", asked.wish, asked.number)
        };
        if matches!(code, "executed" | "replayed") {
            let told = (reply.status(), String::from_utf8_lossy(reply.body()).into_owned());
            if story.outcome.as_ref() != Some(&told) {
                return violation("outcome", what(story));
            }
            if story.was_put_back && code == "replayed" {
                self.see("elsewhere: what ran before is told after the key was put back");
            }
            return Ok(());
        }
        let has_made = story.left.iter().any(|left| left.attempt == asked.number && story.made.contains(&left.number));
        match (reply.field("executed").as_str(), reply.field("retry").as_str()) {
            ("yes", _) if story.outcome.is_none() => return violation("lie", what(story)),
            ("no", "never") => {
                if story.has_been_made() && story.word.is_none() {
                    return violation("lie", what(story));
                }
                story.is_denied = true;
            }
            ("no", _) if has_made && story.word.is_none() => return violation("lie", what(story)),
            ("no", _) if asked.errand == Errand::Request => drop(story.denied.insert(asked.number)),
            _ => {}
        }
        if code == "outcome-unknown" {
            story.give_up(reply.now_ms() - START_MS);
        }
        Ok(())
    }

    fn told_of_cancellation(&mut self, wish: usize, reply: &Reply) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        let is_done = matches!(code, "executed" | "replayed");
        let story = &mut self.stories[wish];
        if code == "outcome-unknown" {
            story.give_up(reply.now_ms() - START_MS);
        }
        if !story.is_free && code == "executed" && reply.field("state") == "executed" {
            let outcome = &reply.json()["outcome"];
            let told = (outcome["status"].as_u64(), outcome["body"].as_str());
            let is_its = |(status, body): &(u16, String)| told == (Some(u64::from(*status)), Some(body.as_str()));
            if !story.outcome.as_ref().is_some_and(is_its) {
                return violation(
                    "outcome",
                    format!("who cancelled {wish} was told that it ran, as {told:?}: {story:?}"),
                );
            }
        }
        // Without first-sent, the cancellation says nothing of what was before.
        if !is_done || story.is_free || !story.is_fenced || reply.field("state") != "cancelled" {
            return Ok(());
        }
        story.is_denied = true;
        if story.has_been_made() && story.word.is_none() && story.deleted_ms.is_none() {
            return violation("lie", format!("{wish} was cancelled, and ran: {story:?}"));
        }
        Ok(())
    }
}

/// Whether an attempt names an instant that is too far ahead of the clock in its answer.
fn is_from_the_future(call: &Call, reply: &Reply) -> bool {
    let headers = call.headers();
    let number = |text: &str| text.parse::<i64>().ok();
    let first_sent_s = headers.get("semel-first-sent").and_then(|date| date.strip_prefix('@')).and_then(number);
    let deadline_ms = headers.get("semel-deadline").and_then(number);
    first_sent_s.map(|first_sent_s| first_sent_s * 1000).max(deadline_ms) > Some(reply.now_ms() + AHEAD_MS)
}
