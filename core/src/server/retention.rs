//! The fence, and the sweep that lets records leave behind it.
//!
//! Invariants:
//! - The fence only moves forward, and is durable before anything has left because of it.
//! - An unacknowledged record leaves only when the fence has passed it: whoever still sends that id is refused.
//! - A sweep reads a bounded page a request, and starts over no sooner than ten seconds after its end.

use super::record::{Change, LatestDeadline, Record, State, TombstoneKind};
use super::rows;
use super::sql::{Sql, SqlError};
use crate::id::RequestId;
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
        for (id, record) in &rows {
            match fate(record, fence_s, now_ms, retention_s) {
                Fate::Stays => continue,
                Fate::Becomes(next) => {
                    rows::put(sql, id, &next)?;
                    swept.change.came(&next);
                }
                Fate::Leaves => rows::delete(sql, id)?,
            }
            swept.change.left(record);
            swept.is_written = true;
        }
        swept.next = match rows.last() {
            Some((last, _)) if rows.len() as i64 == SWEEP_ROWS => self.going_on(last),
            _ => Self { after: String::new(), not_before_ms: now_ms + SWEEP_INTERVAL_MS },
        };
        Ok(swept)
    }

    fn going_on(&self, last: &RequestId) -> Self {
        Self { after: last.as_str().to_owned(), not_before_ms: 0 }
    }
}
