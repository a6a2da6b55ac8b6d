//! What the oracle makes of clocks that jump, and of a key that is put back.
//!
//! Invariants:
//! - Time is the key's own, as it says it. If its machine's clock is put ahead once a call has ended, a probe may prove
//!   too early; if it is put back, something may be sent again too late. Only then may something be made twice, and only
//!   what was sent at such a time.
//! - The same time decides whether a request that was given up may be sent again. A key's clock goes back only over the
//!   end of its object, and never to before what is stored.
//! - If the key is put back, everything that was said since is void. What has left since is not known there, so it
//!   excuses what is done once more. What left before counts as ever.
//! - Once the key has forgotten, it starts nothing that was first sent before.

use super::{Left, Oracle, Story};
use std::collections::BTreeSet;

/// What a backup contains.
#[derive(Debug, Clone)]
pub struct Past {
    stories: Vec<Story>,
    forgotten_s: i64,
    jumped_at_ms: Option<i64>,
}

impl Oracle {
    /// What a backup contains that is made now.
    pub fn past(&self) -> Past {
        let Self { forgotten_s, jumped_at_ms, .. } = *self;
        Past { stories: self.stories.clone(), forgotten_s, jumped_at_ms }
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
            (story.first_sent_s, story.is_acknowledged) = (now.first_sent_s, now.is_acknowledged);
            // The key does not know any more how long its calls have lasted.
            for left in &mut story.left {
                left.is_hasty |= std::mem::take(&mut left.has_jumped_amid) || self.jumped_at_ms != past.jumped_at_ms;
            }
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

    /// Takes note that the clock of the key's machine jumps ahead while these calls are under way.
    pub fn clock_jumps(&mut self, now_ms: i64, under_way: &BTreeSet<usize>) {
        self.jumped_at_ms = Some(now_ms);
        for last in self.stories.iter_mut().filter_map(|story| story.left.last_mut()) {
            if under_way.contains(&last.number) {
                last.has_jumped_amid = true;
            } else {
                last.is_hasty = true;
            }
        }
    }

    /// Takes note that a call has ended. `is_late`: it had lasted for as long as it may, and that is recorded.
    pub fn call_ended(&mut self, number: usize, is_late: bool) {
        let all = self.stories.iter_mut().flat_map(|story| &mut story.left);
        for left in all.filter(|left| left.number == number) {
            left.is_hasty |= left.has_jumped_amid && !is_late;
            left.has_jumped_amid = false;
        }
    }

    /// Takes note that the object ended. Nobody knows how long its calls have lasted.
    pub fn object_ends(&mut self) {
        for left in self.stories.iter_mut().flat_map(|story| &mut story.left) {
            left.is_hasty |= std::mem::take(&mut left.has_jumped_amid);
        }
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

    /// Whether which of several made it first is not to be told.
    pub(super) fn is_blurred(&self) -> bool {
        self.is_mistimed || self.times_made() < self.made.len()
    }

    /// Whether the key's clock misled it, if this one leaves now: to send it again too early, or too late.
    pub(super) fn is_mistimed_by(&self, first: &Left, last: &Left, (now_ms, dedup_ms): (i64, i64)) -> bool {
        match self.route {
            super::Route::Probe => last.is_hasty && now_ms < last.decided_at_ms + last.settle_ms,
            super::Route::Resend => now_ms >= first.decided_at_ms + dedup_ms,
            super::Route::Report => false,
        }
    }
}
