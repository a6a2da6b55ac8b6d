//! What the oracle makes of clocks that jump, and of a key that is put back.
//!
//! Invariants:
//! - Time is the key's own, as it says it. If its machine's clock is put ahead once a call has ended, a probe may prove
//!   too early; if it is put back, something may be sent again too late. Only what was sent at such a time may make
//!   something once more, or have an outcome besides: after a proof, any 4xx is one.
//! - The same time decides whether a request that was given up may be sent again. A key's clock goes back only over the
//!   end of its object, and never to before what is stored.
//! - If the key is put back, everything that was said since is void. What has left since is not known there, so it
//!   excuses what is done once more. What left before counts as ever.
//! - Once the key has forgotten, it starts nothing that was first sent before.

use super::{Left, Oracle, Sent, State, Story};
use crate::remote::asked::Dealt;
use std::collections::BTreeSet;

/// What a backup contains.
#[derive(Debug, Clone)]
pub struct Past {
    stories: Vec<Story>,
    forgotten_s: i64,
}

impl Oracle {
    /// What a backup contains that is made now.
    pub fn past(&self) -> Past {
        Past { stories: self.stories.clone(), forgotten_s: self.forgotten_s }
    }

    /// Takes note that the key is put back.
    pub fn put_back(&mut self, past: Past) {
        self.forgotten_s = past.forgotten_s;
        let now = std::mem::replace(&mut self.stories, past.stories);
        for (story, now) in self.stories.iter_mut().zip(now) {
            let is_known = |number: &usize| story.left.iter().any(|left| left.number == *number);
            let since = now.gone.iter().copied().filter(|number| !is_known(number));
            story.hidden = now.hidden.iter().copied().chain(since).collect();
            story.was_put_back = true;
            story.gone = now.gone;
            (story.made, story.said, story.denied) = (now.made, now.said, now.denied);
            story.said_to_misled = now.said_to_misled;
            (story.first_sent_s, story.is_acknowledged) = (now.first_sent_s, now.is_acknowledged);
        }
    }

    /// Takes note of when a wish is first sent, if its caller says so.
    pub fn first_sent(&mut self, wish: usize, first_sent_s: Option<i64>) {
        self.stories[wish].first_sent_s = first_sent_s;
    }

    /// Takes note that the key has forgotten what was first sent before.
    pub fn forgotten(&mut self, before_s: i64) {
        // A key that nobody has used has nothing to forget.
        if self.stories.iter().any(|story| story.started_ms.is_some()) {
            self.forgotten_s = self.forgotten_s.max(before_s);
        }
    }

    /// Whether a wish was sent again at a wrong time.
    pub fn is_mistimed(&self, wish: usize) -> bool {
        self.stories[wish].left.iter().any(|left| left.is_mistimed)
    }
}

impl Story {
    /// Takes note that somebody was told at this time of the key that nobody will find out.
    pub(super) fn give_up(&mut self, now_ms: i64) {
        self.given_up_ms = Some(self.given_up_ms.map_or(now_ms, |given_up_ms| given_up_ms.min(now_ms)));
        self.is_taken_up = false;
    }

    /// Whether it is given up at this time of the key. The other side knows an id until a certain time, so a key's clock
    /// that has gone back to before may have it sent again.
    pub(super) fn is_given_up_at(&self, now_ms: i64) -> bool {
        let may_be_known = |given_up_ms| self.route == super::Route::Resend && now_ms < given_up_ms;
        self.given_up_ms.is_some_and(|given_up_ms| !may_be_known(given_up_ms))
    }

    /// Whether it was made by a call that the key knows of.
    pub(super) fn has_been_made(&self) -> bool {
        self.times_made() > 0
    }

    /// How often it was made by calls that the key knows of.
    pub(super) fn times_made(&self) -> usize {
        self.made.iter().filter(|number| !self.hidden.contains(number)).count()
    }

    /// Whether a call made it once more that its key's clock did not mislead. Each call has its number in the order in
    /// which they left.
    pub(super) fn was_made_again(&self) -> bool {
        let known: BTreeSet<usize> = self.made.iter().copied().filter(|number| !self.hidden.contains(number)).collect();
        let is_explained = |number: &usize| self.left.iter().any(|left| left.number == *number && left.is_mistimed);
        known.iter().skip(1).any(|number| !is_explained(number))
    }

    /// Whether which of several made it first is not to be told.
    pub(super) fn is_blurred(&self) -> bool {
        let mut misled = self.left.iter().filter(|left| left.is_mistimed);
        misled.any(|left| self.made.contains(&left.number)) || self.times_made() < self.made.len()
    }

    /// Whether the key's clock misled it, if it leaves at this time of the run: it is sent again too early, or too late.
    pub(super) fn is_mistimed_at(&self, now_ms: i64, dedup_ms: i64) -> bool {
        match self.route {
            super::Route::Probe => {
                let absent_at_ms = self.absent_ms.map_or(now_ms, |(_, at_ms)| at_ms);
                self.left.iter().any(|left| absent_at_ms < left.decided_at_ms + left.settle_ms)
            }
            super::Route::Resend => self.left.first().is_some_and(|first| now_ms >= first.decided_at_ms + dedup_ms),
            super::Route::Report => false,
        }
    }

    /// Takes note that a call has ended without an outcome, if that is recorded. It may have lasted until then, so the
    /// time that it may need counts from the instant at which such a call has left.
    pub(super) fn call_ended(&mut self, dealt: &Dealt) {
        let Dealt { asked, settles, reply, is_troubled, after, now_ms, .. } = dealt;
        let Some((Sent::Dispatch { .. }, _, (decided_ms, _))) = settles else { return };
        let is_recorded = reply.is_some() && !is_troubled && dealt.is_of_start();
        if !is_recorded || after.state_of(asked.wish) != State::InDoubt {
            return;
        }
        let is_its = |left: &&mut Left| left.attempt == asked.number && left.decided_ms == *decided_ms;
        for left in self.left.iter_mut().filter(is_its) {
            left.counts_from_ms = left.counts_from_ms.max(now_ms - left.timeout_ms);
        }
    }
}
