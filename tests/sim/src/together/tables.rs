//! What must hold for what is kept. It follows from what was sent, and from which effects are durable.
//!
//! Invariants:
//! - The counts in memory are the counts of what is stored.
//! - A record stays until it is acknowledged or the fence may have passed it. What is left of it then stays until
//!   nothing that was sent may still arrive.

use super::oracle::{Oracle, Ran};
use super::room::Room;
use super::run::id_of;
use crate::oracle::{Violation, violation};
use crate::snapshot::Snapshot;
use semel_core::server::storage::record::Change;

/// How much longer than the latest deadline a tombstone lives, in ms.
const GRACE_MS: i64 = 60_000;

impl Oracle {
    /// Checks what is durable. `counted`: the key's own counts, and the latest that its clock may be.
    pub fn look(&mut self, stored: &Snapshot, counted: Option<(Change, i64)>) -> Result<(), Violation> {
        if stored.fence_s < self.durable.fence_s {
            return violation(
                "fence",
                format!("the fence went back to {} from {}", stored.fence_s, self.durable.fence_s),
            );
        }
        if stored.fence_s > self.refuses_s() {
            let may_be_s = self.refuses_s();
            return violation("fence", format!("the fence is at {}, and may be at {may_be_s}", stored.fence_s));
        }
        self.durable.fence_s = stored.fence_s;
        self.durable.room = Room::of(stored, self.latest_ms.max(stored.latest_ms()));
        for ran in &self.durable.ran {
            let is_last = !self
                .durable
                .ran
                .iter()
                .rev()
                .take_while(|last| !std::ptr::eq(*last, ran))
                .any(|last| last.number == ran.number);
            let state = stored.state_of(&id_of(ran.number));
            if is_last && !self.may_be(ran, state) {
                let told = format!("told {} and may have passed {}", self.latest_ms, self.reaches_s);
                return violation(
                    "left",
                    format!("{ran:?} is {state}, acknowledged: {:?}, {told}", self.acknowledged.get(&ran.number)),
                );
            }
        }
        let has_run = |id: &str| self.durable.ran.iter().any(|ran| id_of(ran.number) == id);
        let is_of_control = |id: &str| ["cancel-", "delete-"].iter().any(|prefix| id.starts_with(prefix));
        let executed = stored.rows.iter().filter(|(id, row)| row.state == "executed" && !is_of_control(id));
        if let Some((id, row)) = executed.into_iter().find(|(id, _)| !has_run(id)) {
            return violation("made", format!("{id} has not run, and its record is {row:?}"));
        }
        let Some((Change { records, tombstones, .. }, now_ms)) = counted else { return Ok(()) };
        let found = [stored.count(true, now_ms), stored.count(false, now_ms)];
        if [records, tombstones].map(|count| u64::try_from(count).unwrap_or(u64::MAX)) != found {
            let counted = format!("{records} records and {tombstones} tombstones are counted");
            return violation("counted", format!("{counted}, and there are {found:?}"));
        }
        Ok(())
    }

    /// Whether the row of a request that has run may be in this state by now, or gone.
    fn may_be(&self, Ran { number, first_sent_s, at_ms }: &Ran, state: &str) -> bool {
        let has_ended = at_ms + self.retention_s_min * 1000 <= self.latest_ms;
        let has_passed = first_sent_s.unwrap_or(0).max(at_ms.div_euclid(1000)) < self.reaches_s;
        let is_refused = first_sent_s.is_none_or(|first_sent_s| first_sent_s < self.refuses_s());
        let acknowledged = self.acknowledged.get(number);
        let has_lapsed = acknowledged.is_some_and(|until_ms| match until_ms {
            Some(until_ms) => until_ms + GRACE_MS <= self.latest_ms,
            None => has_ended && is_refused,
        });
        // Without first-sent, an expired record is kept for another retention.
        let is_gone = has_lapsed || has_passed && (first_sent_s.is_some() || has_ended);
        match state {
            "executed" => true,
            "acknowledged" => acknowledged.is_some(),
            "expired" => first_sent_s.is_none() && has_passed,
            "none" => is_gone,
            // The id is new again.
            _ => is_gone && first_sent_s.is_none(),
        }
    }
}
