//! What is known of all sessions of a key without asking, and what becomes of those that nobody uses.
//!
//! Invariants:
//! - A session that was not used for the retention becomes a stub: its outcomes go, and it still fences and goes on at the next
//!   number. A stub leaves only where an administrator forgets what was last used that early, or deletes all of the key.
//! - At a key that has as many as it may, those leave of which no place was ever taken, once they were not taken over for the retention.
//!   There is nothing that they could answer: who held one is told `session-unknown`, and `fenced` once the name is there again.
//! - A page looks at a bounded number of sessions, and deletes a bounded number of places.
//! - No epoch is given twice at a key: the highest one outlives the sessions.

use super::rows::{self, unreadable};
use crate::rules::{Rule, holds};
use crate::server::storage::retention::{Instant, SWEEP_INTERVAL_MS, after_s};
use crate::server::storage::schema::Meta;
use crate::server::storage::sql::{Sql, SqlError, Value};
use crate::server::storage::totals::{SessionTotals, Totals};
use crate::server::uncompared::Uncompared;

/// So many sessions are looked at in one page.
pub const PAGE_SESSIONS: i64 = 128;
/// A page ends with the session that is the last of so many that it changed: each may have [`super::state::WINDOW`] rows of places.
pub const PAGE_CHANGED: i64 = 8;

/// The sessions of a key, all in all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sessions {
    /// The highest epoch ever given.
    pub epoch: i64,
    /// How many there are, stubs too.
    pub count: i64,
    /// The session that the walk has come to; 0: no walk is under way.
    after: i64,
    /// The next walk begins no sooner.
    rests_until_ms: i64,
    /// When the first may become a stub, or leave; [`i64::MAX`]: none may.
    due_ms: i64,
    /// When the first of those that were walked by may.
    walked_ms: Uncompared<i64>,
    /// So many there may be, as it is set.
    pub(in crate::server) max: Uncompared<u64>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            epoch: 0,
            count: 0,
            after: 0,
            rests_until_ms: 0,
            due_ms: i64::MAX,
            walked_ms: Uncompared(i64::MAX),
            max: Uncompared(u64::MAX),
        }
    }
}

/// What an object that starts knows of its sessions.
#[derive(Debug)]
pub struct Found {
    /// What it keeps in mind.
    pub sessions: Sessions,
    /// The latest clock in any row, in Unix ms.
    pub clock_ms: i64,
}

const NEWEST: &str = "(SELECT at_ms FROM semel_places WHERE session = number ORDER BY seq DESC LIMIT 1)";

impl Sessions {
    /// None, where the highest epoch ever given is this.
    pub fn before(epoch: i64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// The sessions of a key: as they were counted when `totals` were kept, else all of them are looked at.
    pub fn load(sql: &dyn Sql, totals: &Totals, meta: &Meta, retention_s: i64) -> Result<Found, SqlError> {
        let Meta { epoch, forgotten_s, .. } = *meta;
        if let Some(SessionTotals { count, used_ms }) = totals.sessions {
            let due_ms = used_ms.map_or(i64::MAX, |used_ms| idle_ms(used_ms, retention_s));
            return Ok(Found { sessions: Self { epoch, count, due_ms, ..Self::default() }, clock_ms: totals.clock_ms });
        }
        let statement = format!(
            "SELECT count(*), max(max(at_ms, coalesce(newest, 0))), min(max(at_ms, coalesce(newest, 0))), min(max(at_ms, newest)) \
             FROM (SELECT at_ms, {NEWEST} AS newest FROM semel_sessions)"
        );
        let rows = sql.exec(&statement, &[])?;
        let instant = |column: usize| rows.first().and_then(|row| row.get(column)).and_then(Value::as_integer);
        let count = instant(0).ok_or_else(unreadable)?;
        let is_any_forgotten = instant(2).is_some_and(|used_ms| used_ms < forgotten_s.saturating_mul(1000));
        let due_ms = if is_any_forgotten { 0 } else { instant(3).map_or(i64::MAX, |ms| idle_ms(ms, retention_s)) };
        Ok(Found { sessions: Self { epoch, count, due_ms, ..Self::default() }, clock_ms: instant(1).unwrap_or(0) })
    }

    /// What is kept of them for the next start.
    pub fn totals(&self, retention_s: i64) -> SessionTotals {
        let used_ms = |due_ms: i64| due_ms.saturating_sub(idle_ms(0, retention_s));
        SessionTotals { count: self.count, used_ms: self.next_due_ms().map(used_ms) }
    }

    /// Any of them may have to leave now: what holds of the key has changed.
    pub fn look_again(&mut self) {
        if self.count > 0 {
            (self.after, self.rests_until_ms, self.due_ms) = (0, 0, 0);
        }
    }

    /// A session was used.
    pub fn used(&mut self, now_ms: i64, retention_s: i64) {
        let due_ms = idle_ms(now_ms, retention_s);
        self.due_ms = self.due_ms.min(due_ms);
        self.walked_ms.0 = self.walked_ms.0.min(due_ms);
    }

    /// Whether a page is to be swept now.
    pub fn is_due(&self, now_ms: i64) -> bool {
        let due_ms = if self.is_full() { 0 } else { self.due_ms };
        self.after > 0 || now_ms >= self.rests_until_ms.max(due_ms)
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        u64::try_from(self.count).unwrap_or(0) >= self.max.0
    }

    /// When the first may become a stub, or leave, by the clock alone; `None` where none may.
    pub fn next_due_ms(&self) -> Option<i64> {
        Some(self.due_ms).filter(|due_ms| *due_ms < i64::MAX)
    }

    /// Sweeps one page. Whether anything was written. Call it in a transaction that also writes the fence.
    pub fn page(&mut self, sql: &dyn Sql, instant: Instant, retention_s: i64) -> Result<bool, SqlError> {
        let Instant { now_ms, forgotten_s, .. } = instant;
        if self.after == 0 {
            self.walked_ms.0 = i64::MAX;
        }
        let statement = format!(
            "SELECT number, closed_seq, closed_ack, at_ms, {NEWEST} FROM semel_sessions WHERE number > ?1 \
             ORDER BY number LIMIT +?2"
        );
        let found = sql.exec(&statement, &[self.after.into(), PAGE_SESSIONS.into()])?;
        let mut is_last = (found.len() as i64) < PAGE_SESSIONS;
        let mut changed = 0;
        for row in found {
            if changed == PAGE_CHANGED {
                is_last = false;
                break;
            }
            let integer = |column: usize| row.get(column).and_then(Value::as_integer).ok_or_else(unreadable);
            let (session, closed_seq, closed_ack, at_ms) = (integer(0)?, integer(1)?, integer(2)?, integer(3)?);
            let newest_ms = integer(4).ok();
            let used_ms = newest_ms.map_or(at_ms, |newest_ms| newest_ms.max(at_ms));
            self.after = session;
            let is_unused = newest_ms.is_none() && closed_seq == 0;
            let is_idle = now_ms >= idle_ms(used_ms, retention_s);
            if used_ms < forgotten_s.saturating_mul(1000) || is_unused && is_idle && self.is_full() {
                rows::delete(sql, session)?;
                self.count -= 1;
                changed += 1;
            } else if newest_ms.is_some() && is_idle {
                close(sql, session, (closed_seq, closed_ack), used_ms)?;
                changed += 1;
            } else if newest_ms.is_some() {
                self.walked_ms.0 = self.walked_ms.0.min(idle_ms(used_ms, retention_s));
            }
        }
        if is_last {
            self.after = 0;
            self.rests_until_ms = now_ms.saturating_add(SWEEP_INTERVAL_MS);
            self.due_ms = self.walked_ms.0;
        }
        Ok(changed > 0)
    }
}

/// Makes a stub of a session.
fn close(sql: &dyn Sql, session: i64, closed: (i64, i64), used_ms: i64) -> Result<(), SqlError> {
    let Some(rows) = rows::rows_of(sql, session)? else { return Ok(()) };
    let freed = if rows.is_last_acknowledged { rows.last } else { rows.first - 1 };
    // Up to the number of an earlier stub nothing has a row, acknowledged or not.
    let ack = if freed > closed.0 { freed } else { closed.1 };
    let seq = if holds(Rule::StubKeepsLast) { rows.last } else { closed.0 };
    rows::put_closed(sql, session, seq, ack, used_ms)?;
    rows::delete_places(sql, session, rows.last)
}

/// When a session that was used then is idle for the retention.
fn idle_ms(used_ms: i64, retention_s: i64) -> i64 {
    after_s(used_ms, retention_s)
}
