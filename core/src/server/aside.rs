//! What goes along with an attempt, whatever becomes of it: acknowledgements, later deadlines, a page of the sweep, the fence.
//!
//! Invariants:
//! - With an execution it is part of that transaction; otherwise it is one of its own, and none where there is nothing to do.
//! - An untouched key stays untouched, unless a refusal rests on its fence.

use super::decision::Instant;
use super::handler::Handler;
use super::record::{Change, Record};
use super::rows;
use super::schema;
use super::sql::{SqlError, atomically};
use super::turn::{Loaded, Turn, Work};
use crate::id::RequestId;
use crate::rules::{Rule, holds};

/// What an attempt changes besides executing.
#[derive(Default)]
pub(super) struct Aside<'a> {
    /// The record that has seen a later deadline.
    pub seen: Option<(&'a RequestId, Record)>,
    /// Whether a refusal rests on the fence, which so must not go back.
    pub fence: bool,
    /// The record of a start that ended well enough to be counted no longer.
    pub ended: Option<(&'a RequestId, &'a Record)>,
}

impl<H: Handler> Turn<'_, H> {
    /// Applies what an attempt changes that does not execute, in a transaction of its own, if there is anything.
    pub(super) fn set_aside(
        &self,
        loaded: &mut Loaded,
        own: Option<&RequestId>,
        aside: Aside<'_>,
    ) -> Result<(), SqlError> {
        let is_virgin = loaded.versions.engine == 0;
        let is_noted = aside.seen.is_some() || aside.ended.is_some();
        let may_apply = !self.acks.is_empty() || is_noted || self.is_sweep_due(loaded);
        if !aside.fence && (is_virgin || !may_apply) {
            return Ok(());
        }
        let mut work = self.work(loaded);
        atomically(self.sql, || {
            self.create(&mut work)?;
            self.write_aside(&mut work, own, &aside)
        })?;
        *loaded = work.after;
        Ok(())
    }

    /// Writes acknowledgements, later deadlines, a page of the sweep, and the fence where something rests on it.
    pub(super) fn write_aside(
        &self,
        work: &mut Work<'_>,
        own: Option<&RequestId>,
        aside: &Aside<'_>,
    ) -> Result<(), SqlError> {
        if let Some((id, record)) = &aside.seen {
            rows::put_seen(self.sql, id, record)?;
        }
        if let Some((id, found)) = aside.ended {
            self.end_start(work, id, found)?;
        }
        let Instant { now_ms, fence_s, .. } = self.instant;
        let retention_s = self.config.retention_s;
        for ack in self.acks.iter().filter(|ack| Some(&ack.id) != own || !holds(Rule::OwnAcknowledgement)) {
            let Some(found) = rows::find_bare(self.sql, &ack.id)? else { continue };
            if let Some(tombstone) = found.acknowledged(self.arrival.principal, ack.until_ms, now_ms, retention_s) {
                work.put(&ack.id, Some(&found), &tombstone)?;
            }
        }
        let mut is_fence_used = aside.fence;
        if self.is_sweep_due(&work.after) {
            let swept = work.after.sweep.page(self.sql, fence_s, now_ms, retention_s)?;
            is_fence_used |= swept.change != Change::default();
            work.after.count.records += swept.change.records;
            work.after.count.tombstones += swept.change.tombstones;
            work.after.sweep = swept.next;
        }
        if is_fence_used && holds(Rule::FenceDurable) {
            schema::put_fence(self.sql, fence_s, now_ms)?;
        }
        Ok(())
    }

    pub(super) fn is_full(&self, loaded: &Loaded) -> bool {
        let reached = |count: i64, max: u64| u64::try_from(count).unwrap_or(0) >= max;
        let is_reached = reached(loaded.count.records, self.config.records_max)
            || reached(loaded.count.tombstones, self.config.tombstones_max);
        is_reached && holds(Rule::Capacity)
    }

    /// A full key sweeps with every request, so that it opens as soon as something may leave.
    fn is_sweep_due(&self, loaded: &Loaded) -> bool {
        loaded.sweep.is_due(self.instant.now_ms) || self.is_full(loaded)
    }
}
