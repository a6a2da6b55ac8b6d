//! An administrator deletes the key while requests come and go. It begins anew with its next request.
//!
//! Invariants:
//! - The decisions come from another stream of random numbers, so a run without them is as if this module did not
//!   exist.
//! - A deletion has its place in the order of arrivals like any request, and may be in one commit with others.
//! - What ran before has no effect any more. If it said when it was first sent, it never runs again, since the fence
//!   refuses it. Without that, its id is new.

use super::asked::{Asked, Errand, Event};
use super::oracle::{Dealt, Oracle, Ran};
use super::run::{KEY, Run};
use crate::mutant::Twin;
use crate::oracle::{Violation, violation};
use semel_support::{Call, Reply, delete};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers of deletions begin here.
const DELETIONS: usize = 2_000;
/// How long the administrator waits for an answer, in ms.
const AGAIN_MS: i64 = 1_000;

/// What the oracle remembers of what was deleted.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    /// The requests that ran and can't run again.
    ran: BTreeSet<usize>,
    /// The fence of the latest deletion, in Unix seconds. It may be ahead of the clock.
    pub fence_s: i64,
    /// The deletions that are durable.
    done: BTreeSet<usize>,
    /// What was before a deletion in its commit: by its arrival, how many effects there were with its own.
    counts: BTreeMap<u64, Option<i64>>,
}

impl Run {
    pub(super) fn set_up_deletions(&mut self) {
        for number in 0..self.options.deletions {
            let at_ms = self.deleting.i64(0..self.options.busy_ms * 2);
            self.push(at_ms, Event::Delete(number));
        }
    }

    /// Asks for a deletion, until there is an answer.
    pub(super) fn delete(&mut self, number: usize) {
        if !self.deleted.contains(&number) {
            let path = format!("/semel/v1/admin/keys/{}", KEY.replace('/', "%2F"));
            let call = delete(&path).id(&format!("delete-{number}")).by("semel:admin");
            self.send_alone(self.asked((DELETIONS + number, Errand::Delete, None), call));
            self.push(self.now_ms + AGAIN_MS, Event::Delete(number));
        }
    }

    /// The administrator gets an answer.
    pub(super) fn hear_deletion(&mut self, asked: &Asked, reply: &Reply) {
        // Its record may have been forgotten before this answer.
        let is_over = reply.field("retry") == "never";
        if is_over || matches!(reply.only("semel-status"), "executed" | "replayed") {
            self.deleted.insert(asked.number - DELETIONS);
        }
    }

    /// The call as the key gets it. A mutant does not say any more when a request was first sent that a deletion refuses.
    pub(super) fn call_of(&self, asked: &Asked) -> Call {
        let is_refused = asked.first_sent_s.is_some_and(|first_sent_s| first_sent_s < self.oracle.deleted.fence_s);
        if is_refused && self.is_twin(Twin::DeletedUndated) {
            asked.call.clone().without("semel-first-sent")
        } else {
            asked.call.clone()
        }
    }
}

impl Dealt {
    /// Whether it deleted the key.
    pub(super) fn deletes(&self) -> bool {
        self.is(Errand::Delete, "executed")
    }
}

impl Oracle {
    /// Checks what a commit did until it deleted the key, in order.
    pub(super) fn undone(&mut self, dealt: &[&Dealt]) -> Result<(), Violation> {
        let mut count = self.durable();
        for dealt in dealt {
            let Dealt { asked, reply, .. } = dealt;
            if dealt.deletes() {
                self.is_deleted(asked, reply)?;
                count = 0;
                continue;
            }
            if dealt.is(Errand::Deposit, "executed") {
                self.may_run(asked)?;
                let (number, first_sent_s) = (asked.number, asked.first_sent_s);
                self.durable.ran.push(Ran { number, first_sent_s, at_ms: asked.turn_ms.get().0 });
                count += 1;
            }
            self.check_count(dealt, count)?;
            let before = self.durable.ran.iter().rposition(|ran| ran.number == asked.number);
            let its = if asked.errand == Errand::Read { Some(count) } else { before.map(|before| before as i64 + 1) };
            self.deleted.counts.insert(asked.arrived.get(), its);
        }
        if dealt.len() == 1 {
            self.forgets_crashes();
        }
        Ok(())
    }

    fn is_deleted(&mut self, asked: &Asked, reply: &Reply) -> Result<(), Violation> {
        let fence_s = reply.json()["fence"].as_i64().unwrap_or(0);
        let (turn_ms, latest_ms) = asked.turn_ms.get();
        // What is acknowledged with a bound has a packed tombstone, which stays without the fence.
        let is_packed = |ran: &&Ran| matches!(self.acknowledged.get(&ran.number), Some(Some(_)));
        let unpacked = self.durable.ran.iter().filter(|ran| !is_packed(ran));
        let sent_s = unpacked.filter_map(|ran| ran.first_sent_s).max().unwrap_or(0);
        if fence_s * 1000 < turn_ms || fence_s <= sent_s || fence_s < self.durable.fence_s {
            let line = asked.line();
            return violation("fence", format!("{line} at {turn_ms} has the fence {fence_s}, after {sent_s}"));
        }
        let before = if self.durable.ran.is_empty() { "nothing ran" } else { "something ran" };
        self.seen.insert(format!("together: the key is deleted, where {before}"));
        let is_refused = |ran: &&Ran| ran.first_sent_s.is_some();
        self.deleted.ran.extend(self.durable.ran.iter().filter(is_refused).map(|ran| ran.number));
        self.deleted.done.insert(asked.number);
        self.durable.ran.clear();
        self.durable.fence_s = fence_s;
        self.deleted.fence_s = self.deleted.fence_s.max(fence_s);
        // Rows leave by a deletion only as far as the clock.
        self.reaches_s = self.reaches_s.max(latest_ms.div_euclid(1000));
        self.history_is_void();
        Ok(())
    }

    /// Whether a deletion was durable by now.
    pub(super) fn is_done(&self, deletion: usize) -> bool {
        self.deleted.done.contains(&deletion)
    }

    /// How many effects there were for a request that came before a deletion, and in its commit. `None` within: none of
    /// its own.
    pub(super) fn count_before(&self, asked: &Asked) -> Option<Option<i64>> {
        self.deleted.counts.get(&asked.arrived.get()).copied()
    }

    /// Whether a request ran before a deletion, and can't run again.
    pub(super) fn ran_before(&self, number: usize) -> bool {
        self.deleted.ran.contains(&number)
    }

    /// The furthest that the fence may be, in Unix seconds.
    pub(super) fn refuses_s(&self) -> i64 {
        self.reaches_s.max(self.deleted.fence_s)
    }
}
