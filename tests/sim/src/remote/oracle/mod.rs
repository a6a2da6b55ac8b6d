//! The oracle of requests that are executed elsewhere: checks from the outside what must hold.
//!
//! - [`Oracle`]: what it remembers, what leaves for the service, and what is made there
//! - `rows`: what must hold for what the key stores
//! - `answers`: whether what is said is true
//! - `past`: clocks that jump, and a key that is put back
//!
//! Invariants:
//! - Its judgement depends on what left for the service, on what was made and said there, on committed rows, and on
//!   what callers were told.
//! - What an administrator says of a request stands, even if it is wrong. Nothing else excuses a wrong answer.
//! - Nothing is promised of an id without first-sent once its row has left, or was deleted with its key.

mod answers;
mod past;
mod rows;

pub use past::Past;

use super::asked::{Asked, Dealt, Errand, Route, State, View};
use super::options::{Options, Times};
use super::service::body_of;
use crate::oracle::{Violation, violation};
use semel_core::server::engine::remote::Call as Sent;
use semel_support::START_MS;
use std::collections::BTreeSet;

/// A call that left for the service.
#[derive(Debug, Clone)]
struct Left {
    number: usize,
    /// The attempt for which it left.
    attempt: usize,
    /// By the key's clock, and in ms of the run.
    decided_ms: i64,
    decided_at_ms: i64,
    /// From when on, by the key's clock, the time counts that has to pass before a probe proves something. It is later
    /// than `decided_ms` if that clock was put ahead while the call was under way.
    counts_from_ms: i64,
    timeout_ms: i64,
    /// How long after that it has had its effect or never will.
    settle_ms: i64,
    /// Whether the key's clock misled it, so that it left too early or too late.
    is_mistimed: bool,
}

/// What the oracle remembers of a wish.
#[derive(Debug, Clone)]
struct Story {
    route: Route,
    is_fenced: bool,
    first_sent_s: Option<i64>,
    /// When its start was first recorded.
    started_ms: Option<i64>,
    left: Vec<Left>,
    /// All calls that have left, also those that nothing protects.
    gone: Vec<usize>,
    /// The calls that made it.
    made: Vec<usize>,
    /// What the service said of it.
    said: BTreeSet<(u16, String)>,
    /// What it said of that to calls that the key's clock misled.
    said_to_misled: BTreeSet<(u16, String)>,
    /// When the last probe since it left was decided on that found nothing: by the key's clock, and in ms of the run.
    absent_ms: Option<(i64, i64)>,
    outcome: Option<(u16, String)>,
    /// What an administrator said: that it ran, or that it did not.
    word: Option<bool>,
    /// Whether somebody was told that it never ran and never will.
    is_denied: bool,
    /// The earliest time of the key at which somebody was told that nobody will find out.
    given_up_ms: Option<i64>,
    /// Whether it was sent again since, by a clock that had gone back.
    is_taken_up: bool,
    /// The attempts that were told that they did nothing.
    denied: BTreeSet<usize>,
    /// When an administrator deleted it.
    deleted_ms: Option<i64>,
    /// When its outcome was recorded.
    executed_ms: Option<i64>,
    is_acknowledged: bool,
    /// Whether nothing protects it any more.
    is_free: bool,
    /// The calls that have left and that the key does not know of, because it was put back since.
    hidden: BTreeSet<usize>,
    was_put_back: bool,
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
    /// What was first sent before is forgotten, in Unix seconds.
    forgotten_s: i64,
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
            forgotten_s: 0,
            stories: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Takes note of a wish.
    pub fn wish(&mut self, route: Route, is_fenced: bool) {
        self.stories.push(Story {
            route,
            is_fenced,
            first_sent_s: None,
            started_ms: None,
            left: Vec::new(),
            gone: Vec::new(),
            made: Vec::new(),
            said: BTreeSet::new(),
            said_to_misled: BTreeSet::new(),
            absent_ms: None,
            outcome: None,
            word: None,
            is_denied: false,
            given_up_ms: None,
            is_taken_up: false,
            denied: BTreeSet::new(),
            deleted_ms: None,
            executed_ms: None,
            is_acknowledged: false,
            is_free: false,
            hidden: BTreeSet::new(),
            was_put_back: false,
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

    /// Checks a call that leaves for the service. `decided`: when the engine decided on it, by the key's clock and in ms
    /// of the run. `set`: the times of the deployment.
    pub fn left(
        &mut self,
        number: usize,
        asked: &Asked,
        sent: &Sent,
        ((decided_ms, decided_at_ms), now_ms, set): ((i64, i64), i64, Times),
        committed: &View,
    ) -> Result<(), Violation> {
        let wish = asked.wish;
        let story = &mut self.stories[wish];
        let route = story.route.name();
        let Sent::Dispatch { times } = sent else { return Ok(()) };
        story.gone.push(number);
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
        let deadline = asked.call.headers().get("semel-deadline").and_then(|deadline| deadline.parse::<i64>().ok());
        if deadline.is_some_and(|deadline_ms| START_MS + decided_ms > deadline_ms) {
            return violation(
                "late",
                format!("{wish} leaves past its deadline, {deadline:?}, at {decided_ms}: {story:?}"),
            );
        }
        let may_leave = match (story.route, story.left.as_slice()) {
            // If the object ended before it was sent, it is in doubt all the same.
            (Route::Report, []) => *times == 1,
            (_, []) => true,
            (Route::Report, _) => false,
            (Route::Resend, [first, ..]) => decided_ms < first.decided_ms + self.dedup_ms,
            (Route::Probe, [.., last]) => {
                story.absent_ms.is_some_and(|(absent_ms, _)| absent_ms >= last.counts_from_ms + last.settle_ms)
            }
        };
        if !may_leave {
            return violation("again", format!("{wish}, by {route}, leaves once more at {now_ms} ms: {story:?}"));
        }
        let nth = if story.left.is_empty() { "leaves" } else { "leaves again" };
        let is_anew = story.left.is_empty() && !story.hidden.is_empty();
        let left = Left {
            number,
            attempt: asked.number,
            decided_ms,
            decided_at_ms,
            counts_from_ms: decided_ms,
            timeout_ms: set.timeout_ms,
            settle_ms: set.settle_s() * 1000,
            is_mistimed: story.is_mistimed_at(decided_at_ms, self.dedup_ms),
        };
        story.left.push(left);
        // That probe proves nothing of this one.
        story.absent_ms = None;
        self.see(format!("elsewhere, {route}: {nth}"));
        if is_anew {
            self.see(format!("elsewhere, {route}: leaves once more after the key was put back"));
        }
        Ok(())
    }

    /// Checks a call that has its effect at the service.
    pub fn made(&mut self, number: usize, wish: usize) -> Result<(), Violation> {
        let story = &mut self.stories[wish];
        story.made.push(number);
        if story.is_free || story.hidden.contains(&number) {
            return Ok(());
        }
        let attempt = story.left.iter().find(|left| left.number == number).map(|left| left.attempt);
        if story.was_made_again() {
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
        let is_other =
            |outcome: &(u16, String)| outcome.1 != body_of(number) && !story.said_to_misled.contains(outcome);
        if !story.is_blurred() && story.outcome.as_ref().is_some_and(is_other) {
            return violation("outcome", format!("{number} makes {wish}, which has an outcome: {story:?}"));
        }
        Ok(())
    }

    /// Takes note of an answer of the service to a call, whether or not it arrives.
    pub fn service_says(&mut self, number: usize, asked: &Asked, sent: &Sent, (status, body): (u16, &str)) {
        let story = &mut self.stories[asked.wish];
        match (sent, status) {
            (Sent::Probe { is_proof, .. }, 404) => {
                let what = if *is_proof { "and that is proof" } else { "which proves nothing yet" };
                self.see(format!("elsewhere, probe: nothing is found, {what}"));
            }
            (Sent::Probe { .. }, 200) | (Sent::Dispatch { .. }, 200..=299 | 400..=499) => {
                let said = (status, body.to_owned());
                if story.left.iter().any(|left| left.number == number && left.is_mistimed) {
                    story.said_to_misled.insert(said.clone());
                }
                story.said.insert(said);
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
        self.stories[asked.wish].call_ended(dealt);
        let wishes: BTreeSet<usize> = before.0.keys().chain(after.0.keys()).copied().collect();
        self.has_forgotten |= asked.errand == Errand::Forget;
        for wish in wishes {
            self.check_row(wish, dealt)?;
            self.check_kept(wish, dealt)?;
        }
        if let Some(before_s) = dealt.forgotten_s {
            self.forgotten(before_s);
        }
        self.check_room(dealt)?;
        match &dealt.reply {
            Some(reply) if !self.stories[asked.wish].is_free => self.check_answer(dealt, reply),
            _ => Ok(()),
        }
    }
}
