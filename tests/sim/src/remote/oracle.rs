//! The oracle of requests that are executed elsewhere: checks from the outside what must hold.
//!
//! Invariants:
//! - Its judgement depends on what left for the service, on what was made and said there, on committed rows, and on
//!   what callers were told.
//! - What an administrator says of a request stands, even if it is wrong. Nothing else excuses a wrong answer.
//! - Nothing is promised of an id without first-sent once its row has left, or was deleted with its key.

use super::asked::{Asked, BY_HAND, Dealt, Errand, Route, State, View};
use super::options::Options;
use super::service::body_of;
use crate::oracle::{Violation, violation};
use semel_core::server::engine::remote::Call as Sent;
use semel_support::Reply;
use std::collections::BTreeSet;

/// The codes for somebody who asks under an id that belongs to another principal or body.
const TO_STRANGERS: [&str; 4] = ["fingerprint-mismatch", "unavailable", "in-flight", "locked"];

/// A call that left for the service.
#[derive(Debug)]
struct Left {
    number: usize,
    /// The attempt for which it left.
    attempt: usize,
    decided_ms: i64,
    /// How long after `decided_ms` it has had its effect or never will.
    settle_ms: i64,
}

/// What the oracle remembers of a wish.
#[derive(Debug)]
struct Story {
    route: Route,
    is_fenced: bool,
    /// When its start was first recorded.
    started_ms: Option<i64>,
    left: Vec<Left>,
    /// The calls that made it.
    made: Vec<usize>,
    /// What the service said of it.
    said: BTreeSet<(u16, String)>,
    /// When the last probe was decided on that found nothing.
    absent_ms: Option<i64>,
    outcome: Option<(u16, String)>,
    /// What an administrator said: that it ran, or that it did not.
    word: Option<bool>,
    /// Whether somebody was told that it never ran and never will.
    is_denied: bool,
    /// Whether somebody was told that nobody will find out.
    is_given_up: bool,
    /// The attempts that were told that they did nothing.
    denied: BTreeSet<usize>,
    /// When an administrator deleted it.
    deleted_ms: Option<i64>,
    /// When its outcome was recorded.
    executed_ms: Option<i64>,
    is_acknowledged: bool,
    /// Whether nothing protects it any more.
    is_free: bool,
}

/// The oracle.
pub struct Oracle {
    dedup_ms: i64,
    pub(super) records_max: u64,
    pub(super) tombstones_max: u64,
    /// The shortest retention that is ever set, in ms.
    retention_ms_min: i64,
    /// Whether the key was told to forget.
    has_forgotten: bool,
    stories: Vec<Story>,
    /// What happened at least once.
    pub seen: BTreeSet<String>,
}

impl Oracle {
    pub fn new(options: &Options) -> Self {
        let Options { records_max, tombstones_max, retentions_s: [one, other], .. } = *options;
        Self {
            dedup_ms: options.dedup_s * 1000,
            records_max,
            tombstones_max,
            retention_ms_min: one.min(other).saturating_mul(1000),
            has_forgotten: false,
            stories: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Takes note of a wish.
    pub fn wish(&mut self, route: Route, is_fenced: bool) {
        self.stories.push(Story {
            route,
            is_fenced,
            started_ms: None,
            left: Vec::new(),
            made: Vec::new(),
            said: BTreeSet::new(),
            absent_ms: None,
            outcome: None,
            word: None,
            is_denied: false,
            is_given_up: false,
            denied: BTreeSet::new(),
            deleted_ms: None,
            executed_ms: None,
            is_acknowledged: false,
            is_free: false,
        });
    }

    /// Takes note that a caller acknowledges a wish.
    pub fn acknowledged(&mut self, wish: usize) {
        self.stories[wish].is_acknowledged = true;
    }

    /// Takes note that something happened.
    pub fn see(&mut self, what: impl Into<String>) {
        self.seen.insert(what.into());
    }

    /// Checks a call that leaves for the service. `decided_ms`: when the engine decided on it. `settle_ms`: how long
    /// after that it has had its effect or never will.
    pub fn left(
        &mut self,
        number: usize,
        asked: &Asked,
        sent: &Sent,
        (decided_ms, now_ms, settle_ms): (i64, i64, i64),
        committed: &View,
    ) -> Result<(), Violation> {
        let wish = asked.wish;
        let story = &mut self.stories[wish];
        let route = story.route.name();
        let Sent::Dispatch { times } = sent else { return Ok(()) };
        // A call that was decided on before the deletion may still leave. A request in doubt may always be under way.
        if story.is_free || story.deleted_ms.is_some_and(|deleted_ms| deleted_ms >= decided_ms) {
            return Ok(());
        }
        let row = committed.0.get(&wish);
        if row.is_none_or(|row| row.state != State::InDoubt || row.times != *times) {
            return violation("unrecorded", format!("{wish} leaves, and what is committed of it is {row:?}"));
        }
        if story.is_denied || story.deleted_ms.is_some() || story.outcome.is_some() {
            return violation(
                "again",
                format!("{wish} leaves at {now_ms} ms, of which it was said that it will not: {story:?}"),
            );
        }
        let may_leave = match (story.route, story.left.as_slice()) {
            (_, []) => true,
            (Route::Report, _) => false,
            (Route::Resend, [first, ..]) => decided_ms < first.decided_ms + self.dedup_ms,
            (Route::Probe, [.., last]) => {
                story.absent_ms.is_some_and(|absent_ms| absent_ms >= last.decided_ms + last.settle_ms)
            }
        };
        if !may_leave {
            return violation("again", format!("{wish}, by {route}, leaves once more at {now_ms} ms: {story:?}"));
        }
        let nth = if story.left.is_empty() { "leaves" } else { "leaves again" };
        story.left.push(Left { number, attempt: asked.number, decided_ms, settle_ms });
        self.see(format!("elsewhere, {route}: {nth}"));
        Ok(())
    }

    /// Checks a call that has its effect at the service.
    pub fn made(&mut self, number: usize, wish: usize) -> Result<(), Violation> {
        let story = &mut self.stories[wish];
        story.made.push(number);
        if story.is_free {
            return Ok(());
        }
        let attempt = story.left.iter().find(|left| left.number == number).map(|left| left.attempt);
        if story.made.len() > 1 {
            return violation("twice", format!("{wish} was made twice: {story:?}"));
        }
        // If an administrator said something else of it, that is the administrator's responsibility.
        if story.word.is_some() {
            return Ok(());
        }
        if story.is_denied || attempt.is_some_and(|attempt| story.denied.contains(&attempt)) {
            return violation(
                "lie",
                format!("{number} makes {wish}, of which it was said that it did not run: {story:?}"),
            );
        }
        if story.outcome.as_ref().is_some_and(|(_, body)| *body != body_of(number)) {
            return violation("outcome", format!("{number} makes {wish}, which has an outcome: {story:?}"));
        }
        Ok(())
    }

    /// Takes note of an answer of the service, whether or not it arrives.
    pub fn service_says(&mut self, asked: &Asked, sent: &Sent, (status, body): (u16, &str)) {
        let story = &mut self.stories[asked.wish];
        match (sent, status) {
            (Sent::Probe { is_proof, .. }, 404) => {
                let what = if *is_proof { "and that is proof" } else { "which proves nothing yet" };
                self.see(format!("elsewhere, probe: nothing is found, {what}"));
            }
            (Sent::Probe { .. }, 200) | (Sent::Dispatch { .. }, 200..=299 | 400..=499) => {
                story.said.insert((status, body.to_owned()));
            }
            (Sent::Probe { .. }, _) => self.see("elsewhere, probe: no clear answer"),
            _ => {}
        }
    }

    /// Checks a question to the engine, once what it changed is committed.
    pub fn dealt(&mut self, dealt: &Dealt) -> Result<(), Violation> {
        let Dealt { asked, before, after, .. } = dealt;
        if let Some(absent_ms) = dealt.absent_ms() {
            self.stories[asked.wish].absent_ms = Some(absent_ms);
        }
        let wishes: BTreeSet<usize> = before.0.keys().chain(after.0.keys()).copied().collect();
        self.has_forgotten |= asked.errand == Errand::Forget;
        for wish in wishes {
            self.check_row(wish, dealt)?;
            self.check_kept(wish, dealt)?;
        }
        self.check_room(dealt)?;
        match &dealt.reply {
            Some(reply) if !self.stories[asked.wish].is_free => self.check_answer(dealt, reply),
            _ => Ok(()),
        }
    }

    /// Checks that the engine's answer says as much as it can about what is stored.
    fn check_answer(&self, dealt: &Dealt, reply: &Reply) -> Result<(), Violation> {
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
            (Errand::DeleteKey, _) if code == "executed" => after.0.is_empty(),
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
        if story.is_given_up && asked.errand == Errand::LookUp && code == "in-flight" && !dealt.is_under_way {
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

    /// Checks that an outcome that nobody acknowledged, deleted or had forgotten is kept for the retention.
    fn check_kept(&mut self, wish: usize, Dealt { asked, before, after, now_ms, .. }: &Dealt) -> Result<(), Violation> {
        let story = &mut self.stories[wish];
        if after.state_of(wish) == State::Executed {
            story.executed_ms.get_or_insert(*now_ms);
            return Ok(());
        }
        let executed_ms = story.executed_ms.take();
        let is_told = matches!(asked.errand, Errand::DeleteRecord | Errand::DeleteKey) || self.has_forgotten;
        if before.state_of(wish) != State::Executed || story.is_acknowledged || is_told {
            return Ok(());
        }
        if executed_ms.is_some_and(|executed_ms| *now_ms < executed_ms.saturating_add(self.retention_ms_min)) {
            let what = format!("the outcome of {wish}, of {executed_ms:?}, leaves at {now_ms} ms: {story:?}");
            return violation("kept", what);
        }
        Ok(())
    }

    /// Checks the change of a request's row, given what was asked.
    fn check_row(&mut self, wish: usize, dealt: &Dealt) -> Result<(), Violation> {
        let Dealt { asked, settles, before, after, now_ms, .. } = dealt;
        let (was, is) = (before.state_of(wish), after.state_of(wish));
        let rows = || {
            format!(
                "{wish} went from {:?} to {:?} by {:?} of {}",
                before.0.get(&wish),
                after.0.get(&wish),
                asked.errand,
                asked.wish
            )
        };
        let row = after.0.get(&wish);
        let story = &mut self.stories[wish];
        let route = story.route.name();
        let is_this = asked.wish == wish;
        match (was, is, asked.errand) {
            _ if story.is_free => {}
            (State::None | State::Other, State::InDoubt, Errand::Request) if is_this => {
                story.started_ms.get_or_insert(*now_ms);
            }
            (State::InDoubt, State::InDoubt, _) => {
                let times = |view: &View| view.0.get(&wish).map(|row| row.times);
                if times(before) != times(after) && !(is_this && asked.errand == Errand::Request) {
                    return violation("again", rows());
                }
            }
            (State::InDoubt, State::Executed, Errand::Resolve(true)) if is_this => {
                let outcome = row.map(|row| row.outcome.clone()).unwrap_or_default();
                story.word = Some(true);
                story.check_outcome(wish, &outcome)?;
                story.outcome = Some(outcome);
                self.see("elsewhere, administrator: says that it ran");
            }
            (State::InDoubt, State::Cancelled, Errand::Resolve(false)) if is_this => {
                (story.word, story.is_denied) = (Some(false), true);
                self.see("elsewhere, administrator: says that it did not run");
            }
            (State::InDoubt, State::Executed, Errand::Request) if is_this && settles.is_some() => {
                let outcome = row.map(|row| row.outcome.clone()).unwrap_or_default();
                story.check_outcome(wish, &outcome)?;
                if story.is_given_up {
                    return violation("answer", format!("it was given up: {}", rows()));
                }
                story.outcome = Some(outcome);
                let sent = if matches!(settles, Some((Sent::Probe { .. }, ..))) { "a probe" } else { "the service" };
                self.see(format!("elsewhere, {route}: has its outcome from {sent}"));
            }
            (State::InDoubt, State::None, Errand::Request) if is_this && dealt.has_surely_not_left() => {
                if story.left.is_empty() {
                    story.started_ms = None;
                    return Ok(());
                }
                return violation("left", rows());
            }
            (State::InDoubt | State::Executed, State::Gone, Errand::DeleteRecord) if is_this => {
                story.deleted_ms.get_or_insert(*now_ms);
                self.see(format!("elsewhere, administrator: {was:?} is deleted"));
            }
            (_, State::None, Errand::DeleteKey) => {
                story.deleted_ms.get_or_insert(*now_ms);
                story.is_free = !story.is_fenced;
                self.see(format!("elsewhere, administrator: {was:?} is deleted with its key"));
            }
            (State::InDoubt, _, _) => return violation("left", rows()),
            (_, State::InDoubt, _) => return violation("again", rows()),
            (State::Executed, State::Executed, _) => {
                let outcome = |view: &View| view.0.get(&wish).map(|row| row.outcome.clone());
                if outcome(before) != outcome(after) {
                    return violation("outcome", rows());
                }
            }
            // It has an outcome, but there is no start that this belongs to.
            (_, State::Executed, _) => return violation("recorded", rows()),
            (_, State::None, _) => story.is_free = !story.is_fenced,
            _ => {}
        }
        Ok(())
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
            return if story.outcome.as_ref() == Some(&told) { Ok(()) } else { violation("outcome", what(story)) };
        }
        let has_made = story.left.iter().any(|left| left.attempt == asked.number && story.made.contains(&left.number));
        match (reply.field("executed").as_str(), reply.field("retry").as_str()) {
            ("yes", _) if story.outcome.is_none() => return violation("lie", what(story)),
            ("no", "never") => {
                if !story.made.is_empty() && story.word.is_none() {
                    return violation("lie", what(story));
                }
                story.is_denied = true;
            }
            ("no", _) if has_made && story.word.is_none() => return violation("lie", what(story)),
            ("no", _) if asked.errand == Errand::Request => drop(story.denied.insert(asked.number)),
            _ => {}
        }
        story.is_given_up |= code == "outcome-unknown";
        Ok(())
    }

    fn told_of_cancellation(&mut self, wish: usize, reply: &Reply) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        let is_done = matches!(code, "executed" | "replayed");
        let story = &mut self.stories[wish];
        story.is_given_up |= code == "outcome-unknown";
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
        if !story.made.is_empty() && story.word.is_none() && story.deleted_ms.is_none() {
            return violation("lie", format!("{wish} was cancelled, and ran: {story:?}"));
        }
        Ok(())
    }
}

impl Story {
    /// Checks that an outcome is the service's first, or what an administrator gave.
    fn check_outcome(&self, wish: usize, outcome: &(u16, String)) -> Result<(), Violation> {
        let is_so = match self.word {
            Some(true) => outcome.1 == BY_HAND,
            Some(false) => false,
            None => {
                let is_first = self.made.first().is_none_or(|first| outcome.1 == body_of(*first));
                self.said.contains(outcome) && is_first
            }
        };
        if is_so { Ok(()) } else { violation("outcome", format!("{wish} has the outcome {outcome:?}: {self:?}")) }
    }
}
