//! What an object knows of its effects besides what is stored.
//!
//! Invariants:
//! - All of it may be lost at any time: an object that starts looks at what is stored, and asks again for what has no answer.
//! - A take-over or a closing is acknowledged by later requests to the same key, until a request with a place is executed there.
//! - Silent lanes, which had no answer the last time, get their turn and leave room for the others.

use super::lane::Step;
use super::store;
use super::{ACKS_BYTES, RESEND_MS, SILENT_MAX, UNDER_WAY_MAX, UNDER_WAY_MS};
use crate::id::Key;
use crate::server::storage::sql::{Sql, SqlError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether an effect may wait. It is atomic, because a handler sets it while its engine is at work, and because checkers
/// move engines between threads.
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

    /// Something was stored since the last look.
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
    /// Whether an effect may wait; `None` if nobody has looked.
    pub(super) waits: Waits,
    pub(super) lanes: BTreeMap<i64, Running>,
    pub(in crate::server) own: Option<Key>,
    /// The last token given out. It is never below the clock, so that no two engines give out the same token.
    pub(super) token: i64,
    /// The lane that was looked at last, among the others and among the silent ones.
    cursor: i64,
    silent_cursor: i64,
    /// Until when there is nothing to do on any lane that is not silent, and on any silent one, in Unix ms. It saves a
    /// statement for each lane.
    rests_until_ms: i64,
    silent_until_ms: i64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Running {
    pub under_way: Option<UnderWay>,
    pub is_open: bool,
    /// The highest number that may have been taken by now; `None` if this object has never held the session.
    pub sent: Option<i64>,
    /// The current epoch of the session, if the other key named it when another was expected.
    pub told_epoch: Option<i64>,
    /// Nothing is sent before this instant, in Unix ms. Like all waiting, it goes by the wall clock, because the key's
    /// clock may stand still.
    pub not_before_ms: i64,
    /// Whether the last request had no answer. The next one may hang for as long.
    pub is_silent: bool,
    /// Why it is sent again.
    pub reason: String,
    /// The number that was given out last, and how often this object has given it out.
    pub tried_seq: i64,
    pub attempts: u32,
    /// The value of `Semel-Ack`: the ids of the take-overs and closings that were given out, oldest first. None of them
    /// is sent twice, so an earlier one no longer matters once the next is given out.
    pub acks: String,
    /// Whether the other key has refused a deadline.
    pub is_undated: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    pub token: i64,
    pub step: Step,
    pub seq: i64,
    /// Whether it was certainly not sent before.
    pub is_first: bool,
    pub until_ms: i64,
}

impl Running {
    /// Takes note that a take-over or a closing was given out. The earlier acknowledgements went along with it; if they
    /// have grown too long, that was their last time.
    pub fn gives_out(&mut self, id: &str, until: &str) {
        if self.acks.len() > ACKS_BYTES {
            self.acks.clear();
        }
        for part in [if self.acks.is_empty() { "" } else { ", " }, id, ";until=", until] {
            self.acks.push_str(part);
        }
    }

    /// Learns from an answer to whatever was sent. `is_control`: it was a take-over or a closing. Returns whether the
    /// answer says nothing else.
    pub fn learns(&mut self, is_control: bool, semel: &str) -> bool {
        match (semel, is_control) {
            // Only the other key's object answers so, and it has applied the acknowledgements that came along.
            ("executed" | "replayed", false) => {
                self.acks.clear();
                false
            }
            // The clocks may be so far apart that only the deadline was wrong, so the next one has none.
            ("attempt-expired" | "key-invalid", true) => !std::mem::replace(&mut self.is_undated, true),
            _ => false,
        }
    }

    /// Lets the next try wait for the interval.
    pub fn again(&mut self, wall_ms: i64, reason: String) {
        self.not_before_ms = wall_ms + RESEND_MS;
        self.reason = reason;
    }

    /// Until when there is nothing to do on the lane, in Unix ms. If the clock went back, this wait is no longer than usual.
    fn waits_until_ms(&self, wall_ms: i64) -> Option<i64> {
        let not_before_ms = Some(self.not_before_ms).filter(|at_ms| is_ahead(*at_ms, (wall_ms, RESEND_MS)));
        let under_way = self.under_way.filter(|_| self.is_under_way(wall_ms));
        not_before_ms.max(under_way.map(|each| each.until_ms))
    }

    /// Whether the host may still report on it. What it never reports on must not keep its slot for ever.
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

    /// Forgets all lanes, because all of the key was deleted and new lanes may get their numbers. Reports on what is
    /// under way will be ignored: their tokens are never given out again.
    pub(in crate::server) fn forget(&mut self) {
        *self = Self { token: self.token, ..Self::default() };
    }

    /// Takes note that an effect was stored, or may have been.
    pub(in crate::server) fn may_wait(&self) {
        self.waits.set_new();
    }

    /// Has the lanes looked at again from this instant on, because something was reported.
    pub(super) fn looks_again(&mut self, is_silent: bool, at_ms: i64) {
        let until_ms = if is_silent { &mut self.silent_until_ms } else { &mut self.rests_until_ms };
        *until_ms = at_ms.min(*until_ms);
    }

    /// What to tell about the first effect of a lane, which has the number `seq`: why it is still there, how often this
    /// object has given it out, and when it is sent again (`None` while it is under way).
    pub(super) fn told_of(&self, lane: i64, seq: i64) -> (&str, u32, Option<i64>) {
        let Some(running) = self.lanes.get(&lane) else { return ("", 0, None) };
        let attempts = if running.tried_seq == seq { running.attempts } else { 0 };
        let again_ms = (running.under_way.is_none() && running.not_before_ms > 0).then_some(running.not_before_ms);
        (&running.reason, attempts, again_ms)
    }

    /// Whether there is room for one more request, and, if there are silent lanes, for one more of theirs.
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

    /// The next lane, silent or not, on which there is something to do now, with the number of its first effect. Also
    /// returns whether an effect waits on any lane.
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
            // The lanes behind it were looked at already: going on would only cost statements.
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
