//! What an object knows of its effects beside what is stored.
//!
//! Invariants:
//! - All of it may be lost at any time: an object that starts looks at what is stored, and asks again for what it has no answer for.
//! - A take-over or a closing is acknowledged by what goes to its key after it, until something that has a place is executed there.
//! - Silent lanes, which had no answer the last time, have their turn and leave the others room.

use super::lane::Step;
use super::store;
use super::{ACKS_BYTES, RESEND_MS, SILENT_MAX, UNDER_WAY_MAX, UNDER_WAY_MS};
use crate::id::Key;
use crate::server::storage::sql::{Sql, SqlError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether something may wait. A handler sets it while its engine is at work, and checkers hand engines from thread to thread.
#[derive(Debug, Default)]
pub(super) struct Waits(AtomicU8);

impl Clone for Waits {
    fn clone(&self) -> Self {
        Self(AtomicU8::new(self.0.load(Ordering::Relaxed)))
    }
}

impl Waits {
    pub fn get(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            known => Some(known >= 2),
        }
    }

    /// Something was stored since anybody looked.
    pub fn set_new(&self) {
        self.0.store(3, Ordering::Relaxed);
    }

    pub fn is_new(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 3
    }

    pub fn set(&self, waits: Option<bool>) {
        self.0.store(waits.map_or(0, |waits| 1 + u8::from(waits)), Ordering::Relaxed);
    }
}

/// What an object knows of its effects. All of it may be lost.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    /// Whether something may wait; `None`: nobody has looked.
    pub(super) waits: Waits,
    pub(super) lanes: BTreeMap<i64, Running>,
    pub(in crate::server) own: Option<Key>,
    /// What was last given out. It is no lower than the clock, so that no engine gives out what another has.
    pub(super) token: i64,
    /// The lane that was looked at last; and of the silent ones.
    cursor: i64,
    silent_cursor: i64,
    /// Until then nothing is to be done on any lane, as far as all were looked at; and on any silent one. A look takes a statement for each.
    rests_until_ms: i64,
    silent_until_ms: i64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Running {
    pub under_way: Option<UnderWay>,
    pub is_open: bool,
    /// The highest number that may have been taken by now; `None`: this object has never held the session.
    pub sent: Option<i64>,
    /// What the other key said was the session's current epoch, where another was expected.
    pub told_epoch: Option<i64>,
    /// By the wall clock, as all that is waited for: the key's may stand still.
    pub not_before_ms: i64,
    /// Whether there was no answer to what was given out last: the next may hang for as long.
    pub is_silent: bool,
    /// Why it is sent again.
    pub reason: String,
    /// What was given out last, and how often by this object.
    pub tried_seq: i64,
    pub attempts: u32,
    /// What `Semel-Ack` says: of the take-overs and closings that were given out, oldest first. None goes a second time, so nobody waits for what
    /// came of one once the next is given out.
    pub acks: String,
    /// Whether the other key has refused a deadline.
    pub is_undated: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    pub token: i64,
    pub step: Step,
    pub seq: i64,
    /// Whether it surely was not sent before.
    pub is_first: bool,
    pub until_ms: i64,
}

impl Running {
    /// A take-over or a closing is given out, and what was to be acknowledged before it went along; of too much, for the last time.
    pub fn gives_out(&mut self, id: &str, until: &str) {
        if self.acks.len() > ACKS_BYTES {
            self.acks.clear();
        }
        for part in [if self.acks.is_empty() { "" } else { ", " }, id, ";until=", until] {
            self.acks.push_str(part);
        }
    }

    /// Takes what an answer tells, whatever was asked for. `is_control`: a take-over or a closing. Answers whether nothing else is learnt of it.
    pub fn learns(&mut self, is_control: bool, semel: &str) -> bool {
        match (semel, is_control) {
            // Only the other key's object says so, and it has taken what came along.
            ("executed" | "replayed", false) => {
                self.acks.clear();
                false
            }
            // That may be the deadline alone, where the clocks are apart: so the next has none.
            ("attempt-expired" | "key-invalid", true) => !std::mem::replace(&mut self.is_undated, true),
            _ => false,
        }
    }

    /// What is due is sent again after the interval.
    pub fn again(&mut self, wall_ms: i64, reason: String) {
        self.not_before_ms = wall_ms + RESEND_MS;
        self.reason = reason;
    }

    /// Until when there is nothing to be done on the lane. A clock that went back is waited for no longer than one that did not.
    fn waits_until_ms(&self, wall_ms: i64) -> Option<i64> {
        let not_before_ms = Some(self.not_before_ms).filter(|at_ms| is_ahead(*at_ms, (wall_ms, RESEND_MS)));
        let under_way = self.under_way.filter(|_| self.is_under_way(wall_ms));
        not_before_ms.max(under_way.map(|each| each.until_ms))
    }

    /// Whether its host may still tell what came of it. What nobody tells of must not keep its place for ever.
    fn is_under_way(&self, wall_ms: i64) -> bool {
        self.under_way.is_some_and(|each| is_ahead(each.until_ms, (wall_ms, UNDER_WAY_MS)))
    }
}

fn is_ahead(at_ms: i64, (wall_ms, most_ms): (i64, i64)) -> bool {
    (wall_ms + 1..=wall_ms + most_ms).contains(&at_ms)
}

impl Outbox {
    /// Whether this object holds the session of a lane.
    pub(in crate::server) fn is_open(&self, lane: i64) -> bool {
        self.lanes.get(&lane).is_some_and(|running| running.is_open)
    }

    /// All of the key was deleted, its lanes too: what goes by their numbers from now on is another's. What is under way is nobody's; only
    /// what was given out with it is never given out again.
    pub(in crate::server) fn forget(&mut self) {
        *self = Self { token: self.token, ..Self::default() };
    }

    /// Something was stored, or will have been.
    pub(in crate::server) fn may_wait(&self) {
        self.waits.set_new();
    }

    /// What came of something leaves its lane to be looked at from this instant on.
    pub(super) fn looks_again(&mut self, is_silent: bool, at_ms: i64) {
        let until_ms = if is_silent { &mut self.silent_until_ms } else { &mut self.rests_until_ms };
        *until_ms = at_ms.min(*until_ms);
    }

    /// Why the first of a lane is still there, which has that number; how often this object has given it out, and from when on it does again:
    /// `None` while it is under way.
    pub(super) fn told_of(&self, lane: i64, seq: i64) -> (&str, u32, Option<i64>) {
        let Some(running) = self.lanes.get(&lane) else { return ("", 0, None) };
        let attempts = if running.tried_seq == seq { running.attempts } else { 0 };
        let again_ms = (running.under_way.is_none() && running.not_before_ms > 0).then_some(running.not_before_ms);
        (&running.reason, attempts, again_ms)
    }

    /// Whether there is room for one more under way; and for a silent one, where there are any.
    pub(super) fn room(&self, wall_ms: i64) -> (bool, bool) {
        let (mut all, mut silent, mut has_silent) = (0, 0, false);
        for running in self.lanes.values() {
            let under_way = usize::from(running.is_under_way(wall_ms));
            all += under_way;
            if running.is_silent {
                silent += under_way;
                has_silent = true;
            }
        }
        (all < UNDER_WAY_MAX, has_silent && silent < SILENT_MAX)
    }

    /// The next lane on which something is to be done now, with the number of its first: one of the silent ones, or of the others. And whether
    /// something waits on any lane.
    pub(super) fn due(
        &mut self,
        sql: &dyn Sql,
        wall_ms: i64,
        is_silent: bool,
    ) -> Result<(Option<(i64, i64)>, bool), SqlError> {
        let (cursor, until_ms) = match is_silent {
            true => (&mut self.silent_cursor, &mut self.silent_until_ms),
            false => (&mut self.cursor, &mut self.rests_until_ms),
        };
        if is_ahead(*until_ms, (wall_ms, RESEND_MS)) {
            return Ok((None, true));
        }
        let from = std::mem::take(cursor);
        let mut next_ms = wall_ms + RESEND_MS;
        let (mut after, mut is_round, mut is_any) = (from, from == 0, false);
        loop {
            let Some((number, seq)) = store::next_lane(sql, after)? else {
                if is_round {
                    break;
                }
                (after, is_round) = (0, true);
                continue;
            };
            is_any = true;
            if is_round && from > 0 && number > from {
                break;
            }
            after = number;
            let running = self.lanes.entry(number).or_default();
            if running.is_silent == is_silent {
                let Some(waits_until_ms) = running.waits_until_ms(wall_ms) else {
                    *cursor = number;
                    return Ok((Some((number, seq)), true));
                };
                next_ms = next_ms.min(waits_until_ms);
            }
        }
        *until_ms = if is_any { next_ms } else { 0 };
        Ok((None, is_any))
    }
}
