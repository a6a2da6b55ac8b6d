//! What an object that starts loads, page by page, before it knows enough to answer.
//!
//! Invariants:
//! - The result is the same, however many turns it took, since nothing of the key is written in between.
//! - A page looks at a bounded number of rows. So an object with very many rows keeps no other object waiting.

use crate::server::attempt::suspicion::Own;
use crate::server::attempt::turn::Loaded;
use crate::server::storage::retention::Sweep;
use crate::server::storage::schema::Meta;
use crate::server::storage::sessions::sweep::Sessions;
use crate::server::storage::sql::{Sql, SqlError};
use crate::server::storage::tombstones::{self, Index};
use crate::server::storage::totals::{self, Totals};
use crate::server::uncompared::Uncompared;

/// How many records one page looks at, which takes some ms.
pub const PAGE_ROWS: i64 = 1_024;

/// How far an object has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Opening {
    meta: Meta,
    wall_ms: i64,
    totals: Totals,
    /// Whether the totals were stored, so that no row has to be counted.
    is_counted: bool,
    packed: Index,
    packed_count: i64,
    chunks_due_ms: i64,
    next: Next,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Next {
    /// Records with ids after this.
    Records(String),
    /// Chunks of packed tombstones after this.
    Chunks(i64),
    Nothing,
}

impl Opening {
    /// Begins.
    pub fn new(sql: &dyn Sql, meta: Meta, wall_ms: i64) -> Result<Self, SqlError> {
        let mut opening = Self {
            meta,
            wall_ms,
            totals: Totals::default(),
            is_counted: false,
            packed: Index::default(),
            packed_count: 0,
            chunks_due_ms: i64::MAX,
            next: Next::Nothing,
        };
        if meta.versions.engine > 0 {
            let chunks = tombstones::ends(sql)?;
            opening.chunks_due_ms = chunks.due_ms;
            let kept = totals::kept(sql)?;
            opening.is_counted = kept.is_some();
            opening.totals = kept.unwrap_or_default();
            opening.totals.clock_ms = opening.totals.clock_ms.max(chunks.clock_ms);
            let has_carried = opening.totals.carried_until_ms.is_none_or(|until_ms| until_ms > opening.now_ms());
            opening.next = if has_carried { Next::Records(String::new()) } else { Next::Chunks(0) };
        }
        Ok(opening)
    }

    /// Looks at a page, and returns whether there is more to look at.
    pub fn page(&mut self, sql: &dyn Sql) -> Result<bool, SqlError> {
        let now_ms = self.now_ms();
        self.next = match &self.next {
            Next::Records(after) => match totals::page(sql, after, PAGE_ROWS)? {
                Some((totals, last)) => {
                    self.packed.read_carried(sql, after, &last)?;
                    if !self.is_counted {
                        self.totals = self.totals.with(totals);
                    }
                    Next::Records(last)
                }
                None => Next::Chunks(0),
            },
            Next::Chunks(after) => self.packed.read_chunks(sql, *after, now_ms)?.map_or(Next::Nothing, Next::Chunks),
            Next::Nothing => Next::Nothing,
        };
        self.packed_count += self.packed.settle(now_ms);
        Ok(self.next != Next::Nothing)
    }

    /// What is known once everything was looked at. `told_ms`: the latest clock that answers have told by now, in Unix ms.
    pub fn end(self, sql: &dyn Sql, told_ms: i64, retention_s: i64) -> Result<Loaded, SqlError> {
        // Tombstones that had lapsed by this instant were skipped, so the key's clock must not be before it.
        let mut clock_ms = self.now_ms().max(told_ms);
        let Self { meta, totals, is_counted, mut packed, packed_count, chunks_due_ms, .. } = self;
        let Meta { versions, forgotten_s, .. } = meta;
        let mut count = totals.count;
        let mut sessions = Sessions::default();
        let mut sweep = Sweep::default();
        if versions.engine > 0 {
            let found = Sessions::load(sql, &totals, &meta, retention_s)?;
            clock_ms = clock_ms.max(found.clock_ms);
            sessions = found.sessions;
            sweep = Sweep::starting(&totals, chunks_due_ms, forgotten_s.max(meta.forgets_s), retention_s);
            count.tombstones += packed_count + packed.settle(clock_ms);
        }
        Ok(Loaded {
            versions,
            clock_ms,
            fence_s: meta.fence_s,
            forgotten_s,
            forgets_s: meta.forgets_s,
            count,
            sweep,
            has_key: meta.has_key,
            is_registered: meta.is_registered,
            packed,
            has_totals: is_counted,
            unasked: Uncompared::default(),
            swept_ms: Uncompared::default(),
            may_sweep: Uncompared::default(),
            started: Own::default(),
            sessions,
            call: None,
        })
    }

    fn now_ms(&self) -> i64 {
        self.meta.clock_ms.max(self.totals.clock_ms).max(self.wall_ms)
    }
}
