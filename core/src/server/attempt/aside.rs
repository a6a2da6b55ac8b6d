//! What is applied along with an attempt: acknowledgements, later deadlines, a page of the sweep, the fence.
//!
//! Invariants:
//! - For an execution, this is part of its transaction. Otherwise it has its own transaction, and none if there is nothing to do.
//! - An untouched key stays untouched, unless a refusal depends on its fence.

use super::places::Noted;
use super::turn::{Loaded, Turn, Work};
use crate::header::Ack;
use crate::id::RequestId;
use crate::problem::Problem;
use crate::rules::{Rule, holds};
use crate::server::answer::Answer;
use crate::server::config::Config;
use crate::server::storage::packed::Bundle;
use crate::server::storage::record::Record;
use crate::server::storage::retention::Instant;
use crate::server::storage::rows;
use crate::server::storage::schema;
use crate::server::storage::sql::{Sql, SqlError, atomically};
use crate::server::storage::tombstones::{CARRIED_MAX, CHUNK_MIN};

/// While a database is smaller than half its limit, its size is asked for once, and then not for up to this many new requests.
const UNASKED_MAX: u64 = 63;
/// How much one new request may write, in bytes: a body, an outcome, and what a handler makes of them. The size is asked
/// for before requests that write so much could reach the half.
const WRITTEN_BYTES: u64 = 4 << 20;

/// How long after an object swept a page without a request no request sweeps, in ms: the object goes on by itself.
const SEEN_TO_MS: i64 = 1_000;

/// What an attempt changes besides its execution.
#[derive(Default)]
pub(in crate::server) struct Aside<'a> {
    /// The record that has seen a later deadline.
    pub seen: Option<(&'a RequestId, Record)>,
    /// Whether a refusal depends on the fence, which then must not go back.
    pub fence: bool,
    /// Whether to sweep a page even if none is due, because something is refused for lack of room.
    pub sweep: bool,
    /// The record of a start that need not be counted any more, because it ended without a crash.
    pub ended: Option<(&'a RequestId, &'a Record)>,
    /// What the attempt changes of its session.
    pub session: Option<Noted<'a>>,
}

/// An acknowledged id, its record, and the tombstone that replaces it.
type Buried<'a> = (&'a RequestId, Record, Record);

impl Turn<'_> {
    /// Answers with a problem, and applies what goes along.
    pub(in crate::server) fn refuse(
        &self,
        loaded: &mut Loaded,
        problem: &Problem,
        own: Option<&RequestId>,
        aside: Aside<'_>,
    ) -> Result<Answer, SqlError> {
        self.set_aside(loaded, own, aside)?;
        Ok(Answer::problem(problem))
    }

    /// Applies what goes along with an attempt that does not execute, in its own transaction, if there is anything.
    /// `own`: the id of the attempt, which it can't acknowledge.
    pub(in crate::server) fn set_aside(
        &self,
        loaded: &mut Loaded,
        own: Option<&RequestId>,
        aside: Aside<'_>,
    ) -> Result<(), SqlError> {
        let is_virgin = loaded.versions.engine == 0;
        let is_noted =
            aside.seen.is_some() || aside.ended.is_some() || aside.session.is_some_and(|noted| noted.is_any());
        let may_apply = !self.acks.is_empty() || is_noted || self.is_to_sweep(loaded, &aside);
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

    /// Writes the acknowledgements and the rest.
    pub(in crate::server) fn write_aside(
        &self,
        work: &mut Work<'_>,
        own: Option<&RequestId>,
        aside: &Aside<'_>,
    ) -> Result<(), SqlError> {
        let acknowledged = self.acknowledged(work, own)?;
        let now_ms = self.instant.now_ms;
        let packable = acknowledged.iter().filter(|(id, _, tombstone)| tombstone.packed(id, now_ms).is_some());
        let is_chunk = packable.take(CHUNK_MIN).count() == CHUNK_MIN;
        let packed = self.bury(work, acknowledged, is_chunk)?;
        work.put_chunk(&packed)?;
        self.write_rest(work, aside)
    }

    /// Writes the acknowledgements. Returns the packed tombstones that the record of the attempt is to carry.
    pub(in crate::server) fn acknowledge_carried(
        &self,
        work: &mut Work<'_>,
        own: &RequestId,
    ) -> Result<Bundle, SqlError> {
        let acknowledged = self.acknowledged(work, Some(own))?;
        let packed = self.bury(work, acknowledged, true)?;
        if packed.len() <= CARRIED_MAX {
            return Ok(packed);
        }
        work.put_chunk(&packed)?;
        Ok(Bundle::default())
    }

    /// The records that are acknowledged, with their tombstones.
    fn acknowledged(&self, work: &Work<'_>, own: Option<&RequestId>) -> Result<Vec<Buried<'_>>, SqlError> {
        let is_other = |ack: &&Ack| Some(&ack.id) != own || !holds(Rule::OwnAcknowledgement);
        let mut acks: Vec<&Ack> = self.acks.iter().filter(is_other).collect();
        acks.sort_by_key(|ack| &ack.id);
        let mut acknowledged: Vec<Buried<'_>> = Vec::with_capacity(acks.len());
        for ack in acks {
            let Some(found) = rows::find_bare(self.sql, &ack.id)? else { continue };
            let now_ms = self.instant.now_ms;
            let tombstone = found.acknowledged(self.arrival.principal, ack.until_ms, now_ms, work.retention_s);
            // If an id is named twice, the first counts.
            if let Some(tombstone) = tombstone
                && acknowledged.last().is_none_or(|(last, ..)| *last != &ack.id)
            {
                acknowledged.push((&ack.id, found, tombstone));
            }
        }
        Ok(acknowledged)
    }

    /// Writes the tombstones. If `may_pack`, returns those that can be packed instead; these are in no row yet.
    fn bury(&self, work: &mut Work<'_>, acknowledged: Vec<Buried<'_>>, may_pack: bool) -> Result<Bundle, SqlError> {
        let mut packed = Bundle::default();
        for (id, found, tombstone) in acknowledged {
            match tombstone.packed(id, self.instant.now_ms).filter(|_| may_pack) {
                Some(one) => packed.append(&work.pack(found, one)?),
                None => work.put(id, Some(&found), &tombstone)?,
            }
        }
        Ok(packed)
    }

    /// Writes later deadlines, a page of the sweep, and the fence if something depends on it.
    pub(in crate::server) fn write_rest(&self, work: &mut Work<'_>, aside: &Aside<'_>) -> Result<(), SqlError> {
        work.count_anew()?;
        if let Some((id, record)) = &aside.seen {
            if rows::put_seen(self.sql, id, record)? {
                work.after.sweep.came(record, work.retention_s);
            } else {
                // It was packed, and has to outlive the new deadline.
                work.put(id, None, record)?;
            }
        }
        if let Some((id, found)) = aside.ended {
            self.end_start(work, id, found)?;
        }
        if let Some(noted) = &aside.session {
            work.note(noted)?;
        }
        let Instant { now_ms, fence_s, .. } = self.instant;
        let retention_s = self.config.retention_s;
        // The name of a deleted key is removed once the registry knows of the deletion. Only a new row brings the name back.
        let is_gone = work.after.versions.handler == schema::DELETED && !work.after.is_registered;
        if !work.after.has_key && !is_gone {
            schema::put_key(self.sql, self.arrival.key)?;
            work.after.has_key = true;
        }
        let mut is_fence_used = aside.fence;
        if self.is_to_sweep(&work.after, aside) {
            work.after.may_sweep.0 = false;
            is_fence_used |= sweep(self.sql, self.instant, retention_s, &mut work.after)?;
        }
        if is_fence_used && holds(Rule::FenceDurable) {
            schema::put_fence(self.sql, fence_s, now_ms)?;
        }
        Ok(())
    }

    /// Why there is no room for a new record, in words for the caller; `None` if there is room.
    pub(in crate::server) fn want_of_room(&self, loaded: &mut Loaded) -> Result<Option<String>, SqlError> {
        let Config { records_max, tombstones_max, .. } = self.config;
        if !holds(Rule::Capacity) {
            return Ok(None);
        }
        if reached(loaded.count.records, *records_max) {
            return Ok(Some(format!("the key keeps {records_max} unacknowledged records, as many as it may")));
        }
        if reached(loaded.count.tombstones, *tombstones_max) {
            return Ok(Some(format!("the key keeps {tombstones_max} tombstones and cancelled ids, as many as it may")));
        }
        self.want_of_bytes(loaded)
    }

    /// Why there is no room for any further row; `None` if there is room.
    pub(in crate::server) fn want_of_bytes(&self, loaded: &mut Loaded) -> Result<Option<String>, SqlError> {
        let bytes_max = self.config.bytes_max;
        if !holds(Rule::Capacity) {
            return Ok(None);
        }
        // Asking takes a statement, which is a quarter of a request's time in a batch.
        if let Some(left) = loaded.unasked.0.checked_sub(1) {
            loaded.unasked.0 = left;
            return Ok(None);
        }
        let bytes = self.sql.database_bytes()?;
        loaded.unasked.0 = ((bytes_max / 2).saturating_sub(bytes) / WRITTEN_BYTES).min(UNASKED_MAX);
        let is_large = bytes >= bytes_max;
        Ok(is_large.then(|| format!("the key's database has {bytes_max} bytes, as many as it may, or more")))
    }

    fn is_crowded(&self, loaded: &Loaded) -> bool {
        let Config { records_max, tombstones_max, .. } = self.config;
        let is_reached =
            reached(loaded.count.records, *records_max) || reached(loaded.count.tombstones, *tombstones_max);
        is_reached && holds(Rule::Capacity)
    }

    /// Whether to sweep a page. A full key sweeps with every request, so that it takes new requests as soon as something
    /// may leave. At other keys, a request does not sweep if the object is about to do so itself. Alarms may have been
    /// given up, so no key relies on them.
    fn is_to_sweep(&self, loaded: &Loaded, aside: &Aside<'_>) -> bool {
        let now_ms = self.instant.now_ms;
        let is_seen_to = loaded.swept_ms.0.is_some_and(|swept_ms| now_ms < swept_ms + SEEN_TO_MS);
        let is_due = || loaded.sweep.is_due(now_ms) || loaded.sessions.is_due(now_ms);
        loaded.may_sweep.0 && (aside.sweep || !is_seen_to && is_due() || self.is_crowded(loaded))
    }
}

/// Sweeps one page in the open transaction. Returns whether anything was written, in which case the fence has to be written too.
pub(in crate::server) fn sweep(
    sql: &dyn Sql,
    instant: Instant,
    retention_s: i64,
    after: &mut Loaded,
) -> Result<bool, SqlError> {
    let mut is_written = false;
    if after.sessions.is_due(instant.now_ms) {
        is_written |= after.sessions.page(sql, instant, retention_s)?;
    }
    let swept = after.sweep.page(sql, (instant.passed_s(), after.forgets_s), instant.now_ms, retention_s)?;
    after.count.records += swept.change.records;
    after.count.tombstones += swept.change.tombstones;
    after.count.dispatched += swept.change.dispatched;
    after.sweep = swept.next;
    Ok(is_written || swept.is_written)
}

fn reached(count: i64, max: u64) -> bool {
    u64::try_from(count).unwrap_or(0) >= max
}
