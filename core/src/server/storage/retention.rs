//! The fence, and the sweep that removes records behind it.
//!
//! Invariants:
//! - The fence only moves forward, and is durable before anything leaves because of it.
//! - An unacknowledged record leaves only when the fence has passed it, so a later attempt of its id is refused.
//! - A sweep reads a bounded page for each request. A new walk begins no sooner than ten seconds after the last one
//!   ended, and not before a record that it passed, or that came since, may leave.
//! - A walk goes from the last id to the first. New ids that begin with the time come above it, so the walk ends, however many there are.

use super::record::{Change, LatestDeadline, Record, State, TombstoneKind};
use super::rows;
use super::sql::{Sql, SqlError};
use super::tombstones;
use super::totals::Totals;
use crate::problem::Executed;
use crate::rules::{Rule, holds};
use crate::server::uncompared::Uncompared;

/// How many rows one request looks at. Each row is a dozen values that cross to the module. With twice as many, the
/// request behind such a page would notice the delay, and the only gain would be half as many writes of the fence.
pub const SWEEP_ROWS: i64 = 64;
/// How long after the end of one walk the next may begin, in ms.
pub const SWEEP_INTERVAL_MS: i64 = 10_000;

/// The key's position in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant {
    /// The key's clock, in Unix ms.
    pub now_ms: i64,
    /// The fence: what was first sent before this and has no record is refused, in Unix seconds.
    pub fence_s: i64,
    /// How far an administrator has moved the fence, in Unix seconds. A deletion of the key may move the fence further
    /// than this, and so may a forget that is ahead of the clock.
    pub forgotten_s: i64,
    /// Where age alone puts the fence, in Unix seconds.
    pub aged_s: i64,
}

impl Instant {
    /// Whether an administrator had everything forgotten that was last used at that instant, in Unix ms.
    pub fn forgets(&self, used_ms: i64) -> bool {
        used_ms < self.forgotten_s.saturating_mul(1000)
    }

    /// The instant before which records may leave, in Unix seconds. It is not past the fence. Unlike the fence, which a
    /// deletion may have moved ahead of the clock, it has not passed what comes now.
    pub fn passed_s(&self) -> i64 {
        self.aged_s.max(self.forgotten_s)
    }
}

/// Where retention alone puts the fence, in Unix seconds.
pub fn fence_s(now_ms: i64, retention_s: i64) -> i64 {
    now_ms.div_euclid(1000).saturating_sub(retention_s)
}

/// What retention does with a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It stays unchanged.
    Stays,
    /// It is replaced by this record.
    Becomes(Record),
    /// It leaves.
    Leaves,
}

/// Decides what happens to a record. An outcome is kept for a whole retention after its execution, and for as long as the
/// fence admits its id.
pub fn fate(record: &Record, fence_s: i64, now_ms: i64, retention_s: i64) -> Fate {
    let passed = fence_s > record.first_sent_s.unwrap_or(0).max(record.at_ms.div_euclid(1000));
    let lapses_ms = now_ms + retention_s * 1000;
    let expired = |executed| State::Tombstone { kind: TombstoneKind::Expired, executed, lapses_ms };
    // Without a first-sent, the fence can't refuse the id, so the row itself refuses it for one more retention.
    let fenced = record.first_sent_s.is_some();
    let next = match &record.state {
        State::Tombstone { lapses_ms, .. } | State::Cancelled { lapses_ms: Some(lapses_ms) } => {
            // If deadlines do not bound the attempts that may still arrive, the fence must be able to refuse them.
            let is_bounded = matches!(record.deadline, LatestDeadline::At(_));
            let is_refused = record.first_sent_s.is_none_or(|first_sent_s| first_sent_s < fence_s);
            let lapses = *lapses_ms <= now_ms || !holds(Rule::TombstoneStays);
            return if lapses && (is_bounded || is_refused) { Fate::Leaves } else { Fate::Stays };
        }
        State::Dispatched { .. } if holds(Rule::DoubtStays) => return Fate::Stays,
        _ if !passed && holds(Rule::UnacknowledgedStay) => return Fate::Stays,
        _ if fenced || !holds(Rule::ExpiredTombstone) => return Fate::Leaves,
        State::Suspect { .. } | State::Dispatched { .. } => return Fate::Leaves,
        State::Executed(..) => expired(Executed::Yes),
        State::Poisoned(_) => expired(Executed::No),
        State::Cancelled { lapses_ms: None } => State::Cancelled { lapses_ms: Some(lapses_ms) },
    };
    Fate::Becomes(Record { state: next, ..record.clone() })
}

/// The position of the sweep. After a restart, it begins again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Sweep {
    /// The id down to which the walk has come; empty if no walk is under way.
    above: String,
    /// The next walk begins no sooner than this, in Unix ms.
    rests_until_ms: i64,
    /// When the first record may leave, in Unix ms; [`i64::MAX`] if none may.
    due_ms: i64,
    /// When the first chunk of packed tombstones may leave, in Unix ms.
    chunks_due_ms: i64,
    walked: Uncompared<Walked>,
}

/// What a walk has found so far, which is used once it ends. Checkers ignore it, because each of their walks is a single page.
#[derive(Debug, Clone, Copy)]
struct Walked {
    /// When the first of the records that it passed may leave, in Unix ms.
    due_ms: i64,
    /// The oldest row that this walk has passed so far, and the oldest of the last whole walk or of the object's start,
    /// in Unix ms; [`i64::MAX`] if there is none. Requests in doubt do not count, because these totals tell when
    /// something is due and they never are.
    walking_oldest_ms: i64,
    oldest_ms: i64,
}

impl Default for Walked {
    fn default() -> Self {
        Self { due_ms: i64::MAX, walking_oldest_ms: i64::MAX, oldest_ms: i64::MAX }
    }
}

/// What one page of the sweep did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// The sweep from then on.
    pub next: Sweep,
    /// How the numbers of records have changed.
    pub change: Change,
    /// Whether anything was written, in which case the fence must be written too.
    pub is_written: bool,
}

impl Sweep {
    /// The sweep of an object that starts. Nothing is due before the totals say so.
    pub fn starting(totals: &Totals, chunks_due_ms: i64, forgotten_s: i64, retention_s: i64) -> Self {
        let oldest_s = totals.oldest_fenced_ms.map(|oldest_ms| oldest_ms.div_euclid(1000));
        // A fence that an administrator has moved may have passed rows that are not due by the clock.
        let is_passed = oldest_s.is_some_and(|oldest_s| oldest_s < forgotten_s);
        let is_known = [Rule::UnacknowledgedStay, Rule::TombstoneStays, Rule::DoubtStays].into_iter().all(holds);
        let due_ms = if is_passed || !is_known {
            0
        } else {
            let passes_ms = oldest_s.map_or(i64::MAX, |oldest_s| passes_ms(oldest_s, retention_s));
            passes_ms.min(totals.lapses_ms.unwrap_or(i64::MAX))
        };
        let walked = Uncompared(Walked { oldest_ms: totals.oldest_ms.unwrap_or(i64::MAX), ..Walked::default() });
        Self { due_ms, chunks_due_ms, walked, ..Self::default() }
    }

    /// Whether a page is due now.
    pub fn is_due(&self, now_ms: i64) -> bool {
        !self.above.is_empty() || now_ms >= self.chunks_due_ms || now_ms >= self.rests_until_ms.max(self.due_ms)
    }

    /// When the first record or chunk may leave by the clock alone, in Unix ms; `None` if none may.
    pub fn next_due_ms(&self) -> Option<i64> {
        Some(self.due_ms.min(self.chunks_due_ms)).filter(|due_ms| *due_ms < i64::MAX)
    }

    /// When the first record may leave by the clock alone, in Unix ms; `None` if none may.
    pub fn records_due_ms(&self) -> Option<i64> {
        Some(self.due_ms).filter(|due_ms| *due_ms < i64::MAX)
    }

    /// The `at_ms` of the oldest row, as of the last whole walk or of the object's start. Only a request in doubt may be older.
    pub fn oldest_ms(&self) -> Option<i64> {
        Some(self.walked.0.oldest_ms).filter(|oldest_ms| *oldest_ms < i64::MAX)
    }

    /// Sweeps one page. Call it in a transaction that also writes the fence.
    ///
    /// `fences_s`: the instant before which every record may leave, and the one before which a record with a first-sent
    /// may leave. The second may be ahead of the key's clock, where the key was told to forget: what the key executes
    /// after that has a later first-sent, or none.
    pub fn page(&self, sql: &dyn Sql, fences_s: (i64, i64), now_ms: i64, retention_s: i64) -> Result<Swept, SqlError> {
        let mut swept = Swept { next: self.clone(), change: Change::default(), is_written: false };
        if now_ms >= self.chunks_due_ms {
            let dropped = tombstones::drop_lapsed(sql, now_ms)?;
            swept.is_written |= dropped.any;
            swept.next.chunks_due_ms = dropped.next_due_ms;
        }
        // A walk that is under way was due when it began, and that does not change before its end.
        if now_ms >= self.due_ms {
            swept.walk(sql, fences_s, now_ms, retention_s)?;
        }
        Ok(swept)
    }

    /// Takes note of a record that came, wherever the walk is.
    pub fn came(&mut self, record: &Record, retention_s: i64) {
        self.due_ms = self.due_ms.min(due_ms(record, retention_s));
        self.walked.0.oldest_ms = self.walked.0.oldest_ms.min(since_ms(record));
        self.passed(record, retention_s);
    }

    /// Takes note of a chunk of packed tombstones that came.
    pub fn chunk_came(&mut self, lapses_ms: i64) {
        self.chunks_due_ms = self.chunks_due_ms.min(lapses_ms);
    }

    fn passed(&mut self, record: &Record, retention_s: i64) {
        let walked = &mut self.walked.0;
        walked.due_ms = walked.due_ms.min(due_ms(record, retention_s));
        walked.walking_oldest_ms = walked.walking_oldest_ms.min(since_ms(record));
    }
}

impl Swept {
    /// Walks over one page of records.
    fn walk(
        &mut self,
        sql: &dyn Sql,
        (fence_s, named_s): (i64, i64),
        now_ms: i64,
        retention_s: i64,
    ) -> Result<(), SqlError> {
        let sweep = &mut self.next;
        if sweep.above.is_empty() {
            sweep.walked.0 = Walked { oldest_ms: sweep.walked.0.oldest_ms, ..Walked::default() };
            rows::ABOVE_ALL.clone_into(&mut sweep.above);
        }
        let rows = rows::page(sql, &sweep.above, SWEEP_ROWS)?;
        let mut leaving = Vec::new();
        for (id, record) in &rows {
            let fence_s = if record.first_sent_s.is_some() { fence_s.max(named_s) } else { fence_s };
            match fate(record, fence_s, now_ms, retention_s) {
                Fate::Stays => {
                    sweep.passed(record, retention_s);
                    continue;
                }
                Fate::Becomes(next) => {
                    rows::put(sql, id, &next)?;
                    self.change.came(&next);
                    sweep.passed(&next, retention_s);
                }
                Fate::Leaves => {
                    leaving.push(id);
                    // The tombstones that it carries have to stay until they lapse.
                    let carried = record.carried.lasting(now_ms);
                    if let Some(lapses_ms) = tombstones::put_chunk(sql, &record.principal, &carried, now_ms)? {
                        sweep.chunk_came(lapses_ms);
                    }
                }
            }
            self.change.left(record);
            self.is_written = true;
        }
        match leaving.as_slice() {
            // If all rows of the page leave, one statement deletes them: a statement costs more than the row that it deletes.
            [.., last] if leaving.len() == rows.len() => rows::delete_page(sql, &sweep.above, last)?,
            _ => leaving.iter().try_for_each(|id| rows::delete(sql, id))?,
        }
        sweep.above = match rows.last() {
            Some((last, _)) if rows.len() as i64 == SWEEP_ROWS => last.as_str().to_owned(),
            _ => {
                let Walked { due_ms, walking_oldest_ms, .. } = sweep.walked.0;
                sweep.rests_until_ms = now_ms + SWEEP_INTERVAL_MS;
                sweep.due_ms = due_ms;
                sweep.walked.0 = Walked { oldest_ms: walking_oldest_ms, ..Walked::default() };
                String::new()
            }
        };
        Ok(())
    }
}

/// When the record got its present state; [`i64::MAX`] if it is in doubt, since it then stays however old it is.
fn since_ms(record: &Record) -> i64 {
    if matches!(record.state, State::Dispatched { .. }) { i64::MAX } else { record.at_ms }
}

/// The instant `seconds` later, in Unix ms. Not inlined, because saturating multiplication takes some code, and one copy
/// in the bundle is enough.
#[inline(never)]
pub(in crate::server) fn after_s(from_ms: i64, seconds: i64) -> i64 {
    from_ms.saturating_add(seconds.saturating_mul(1000))
}

/// When the fence has passed `instant_s`, if retention alone moves it, in Unix ms.
fn passes_ms(instant_s: i64, retention_s: i64) -> i64 {
    after_s(0, instant_s.saturating_add(retention_s).saturating_add(1))
}

/// When [`fate`] first changes a record, if retention alone moves the fence, in Unix ms.
fn due_ms(record: &Record, retention_s: i64) -> i64 {
    match record.state {
        State::Tombstone { .. } | State::Cancelled { lapses_ms: Some(_) } if !holds(Rule::TombstoneStays) => 0,
        State::Tombstone { lapses_ms, .. } | State::Cancelled { lapses_ms: Some(lapses_ms) } => {
            match (record.deadline, record.first_sent_s) {
                (LatestDeadline::None, Some(first_sent_s)) => lapses_ms.max(passes_ms(first_sent_s, retention_s)),
                _ => lapses_ms,
            }
        }
        _ if !holds(Rule::UnacknowledgedStay) => 0,
        State::Dispatched { .. } if holds(Rule::DoubtStays) => i64::MAX,
        _ => passes_ms(record.first_sent_s.unwrap_or(0).max(record.at_ms.div_euclid(1000)), retention_s),
    }
}
