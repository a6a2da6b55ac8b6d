//! The fence, and the sweep that lets records leave behind it.
//!
//! Invariants:
//! - The fence only moves forward, and is durable before anything has left because of it.
//! - An unacknowledged record leaves only when the fence has passed it: whoever still sends that id is refused.
//! - A sweep reads a bounded page a request, and starts over no sooner than ten seconds after its end.

use super::record::{Change, LatestDeadline, Record, State, TombstoneKind};
use super::rows;
use super::sql::{Sql, SqlError};
use super::uncompared::Uncompared;
use crate::problem::Executed;
use crate::rules::{Rule, holds};

/// So many rows are looked at in one request.
pub const SWEEP_ROWS: i64 = 128;
/// So long after the end of one sweep begins the next.
pub const SWEEP_INTERVAL_MS: i64 = 10_000;

/// Where retention alone puts the fence.
pub fn fence_s(now_ms: i64, retention_s: i64) -> i64 {
    now_ms.div_euclid(1000).saturating_sub(retention_s)
}

/// What retention makes of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It stays as it is.
    Stays,
    /// It becomes this.
    Becomes(Record),
    /// It leaves.
    Leaves,
}

/// Judges a record. An outcome is kept for a whole retention from its execution, and as long as the fence lets its id in.
pub fn fate(record: &Record, fence_s: i64, now_ms: i64, retention_s: i64) -> Fate {
    let passed = fence_s > record.first_sent_s.unwrap_or(0).max(record.at_ms.div_euclid(1000));
    let lapses_ms = now_ms + retention_s * 1000;
    let expired = |executed| State::Tombstone { kind: TombstoneKind::Expired, executed, lapses_ms };
    // Without first-sent the fence can't refuse the id, so the row itself does, for one more retention.
    let fenced = record.first_sent_s.is_some();
    let next = match &record.state {
        State::Tombstone { lapses_ms, .. } | State::Cancelled { lapses_ms: Some(lapses_ms) } => {
            // Where deadlines don't bound what may still arrive, the fence must be able to refuse it.
            let is_bounded = matches!(record.deadline, LatestDeadline::At(_));
            let is_refused = record.first_sent_s.is_none_or(|first_sent_s| first_sent_s < fence_s);
            let lapses = *lapses_ms <= now_ms || !holds(Rule::TombstoneStays);
            return if lapses && (is_bounded || is_refused) { Fate::Leaves } else { Fate::Stays };
        }
        _ if !passed && holds(Rule::UnacknowledgedStay) => return Fate::Stays,
        _ if fenced || !holds(Rule::ExpiredTombstone) => return Fate::Leaves,
        State::Suspect { .. } => return Fate::Leaves,
        State::Executed(..) => expired(Executed::Yes),
        State::Poisoned(_) => expired(Executed::No),
        State::Cancelled { lapses_ms: None } => State::Cancelled { lapses_ms: Some(lapses_ms) },
    };
    Fate::Becomes(Record { state: next, ..record.clone() })
}

/// The place of the sweep. Rebuilt after a restart by starting over.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Sweep {
    after: String,
    not_before_ms: i64,
    found: Uncompared<Found>,
}

/// What the walk has found. It decides when to look again, never what is answered, so checkers don't tell states apart by it.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// When the first of what was walked by so far may leave; [`i64::MAX`]: nothing may.
    walking_due_ms: i64,
    /// The same of the last whole walk, and of what came since.
    due_ms: i64,
    /// The oldest row that was walked by so far, and that of the last whole walk; [`i64::MAX`]: there is none.
    walking_oldest_ms: i64,
    oldest_ms: i64,
}

impl Found {
    /// A walk begins, and will come by all there is.
    fn begin(&mut self) {
        self.walking_due_ms = i64::MAX;
        self.walking_oldest_ms = i64::MAX;
    }
}

impl Default for Found {
    fn default() -> Self {
        Self { walking_due_ms: i64::MAX, due_ms: i64::MAX, walking_oldest_ms: i64::MAX, oldest_ms: i64::MAX }
    }
}

/// What a page of the sweep did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// Where it goes on.
    pub next: Sweep,
    /// What left and what came.
    pub change: Change,
    /// Whether anything was written, so that the fence must be.
    pub is_written: bool,
}

impl Sweep {
    /// Whether a page is to be swept now.
    pub fn is_due(&self, now_ms: i64) -> bool {
        now_ms >= self.not_before_ms
    }

    /// Sweeps one page. Call it in a transaction that also writes the fence.
    pub fn page(&self, sql: &dyn Sql, fence_s: i64, now_ms: i64, retention_s: i64) -> Result<Swept, SqlError> {
        let rows = rows::page(sql, &self.after, SWEEP_ROWS)?;
        let mut swept = Swept { next: self.clone(), change: Change::default(), is_written: false };
        if self.after.is_empty() {
            swept.next.found.0.begin();
        }
        for (id, record) in &rows {
            match fate(record, fence_s, now_ms, retention_s) {
                Fate::Stays => {
                    swept.next.walked(record, retention_s);
                    continue;
                }
                Fate::Becomes(next) => {
                    rows::put(sql, id, &next)?;
                    swept.change.came(&next);
                    swept.next.walked(&next, retention_s);
                }
                Fate::Leaves => rows::delete(sql, id)?,
            }
            swept.change.left(record);
            swept.is_written = true;
        }
        match rows.last() {
            Some((last, _)) if rows.len() as i64 == SWEEP_ROWS => {
                swept.next.after = last.as_str().to_owned();
                swept.next.not_before_ms = 0;
            }
            _ => {
                swept.next.after = String::new();
                swept.next.not_before_ms = now_ms + SWEEP_INTERVAL_MS;
                let Found { walking_due_ms, walking_oldest_ms, .. } = swept.next.found.0;
                let found = Found { due_ms: walking_due_ms, oldest_ms: walking_oldest_ms, ..Found::default() };
                swept.next.found = Uncompared(found);
            }
        }
        Ok(swept)
    }

    /// When the first of what is kept may leave, by the clock alone. `None` where nothing may, or before the first whole walk: then
    /// what was set before the object started holds.
    pub fn next_due_ms(&self) -> Option<i64> {
        Some(self.found.0.due_ms).filter(|due_ms| *due_ms < i64::MAX)
    }

    /// The `at_ms` of the oldest row, as of the last whole walk.
    pub fn oldest_ms(&self) -> Option<i64> {
        Some(self.found.0.oldest_ms).filter(|oldest_ms| *oldest_ms < i64::MAX)
    }

    /// A record came, wherever the walk is.
    pub fn came(&mut self, record: &Record, retention_s: i64) {
        self.walked(record, retention_s);
        let found = &mut self.found.0;
        found.due_ms = found.due_ms.min(due_ms(record, retention_s));
        found.oldest_ms = found.oldest_ms.min(record.at_ms);
    }

    fn walked(&mut self, record: &Record, retention_s: i64) {
        let found = &mut self.found.0;
        found.walking_due_ms = found.walking_due_ms.min(due_ms(record, retention_s));
        found.walking_oldest_ms = found.walking_oldest_ms.min(record.at_ms);
    }
}

/// When [`fate`] first changes a record, where retention alone moves the fence.
fn due_ms(record: &Record, retention_s: i64) -> i64 {
    let passes_ms = |instant_s: i64| instant_s.saturating_add(retention_s).saturating_add(1).saturating_mul(1000);
    match record.state {
        State::Tombstone { lapses_ms, .. } | State::Cancelled { lapses_ms: Some(lapses_ms) } => {
            match (record.deadline, record.first_sent_s) {
                (LatestDeadline::None, Some(first_sent_s)) => lapses_ms.max(passes_ms(first_sent_s)),
                _ => lapses_ms,
            }
        }
        _ => passes_ms(record.first_sent_s.unwrap_or(0).max(record.at_ms.div_euclid(1000))),
    }
}
