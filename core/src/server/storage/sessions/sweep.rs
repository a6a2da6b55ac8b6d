//! What an object knows of all its sessions without a query, and what happens to sessions that nobody uses.
//!
//! Invariants:
//! - A session that was not used for the retention becomes a stub. Its outcomes go; it still fences, and still goes on at
//!   the next number. A stub leaves only if an administrator forgets sessions that were last used that early, or deletes
//!   all of the key.
//! - If a key has as many sessions as it may, a session leaves that never took a place and was not taken over for the
//!   retention. It has nothing to answer with: its former holder is told `session-unknown`, or `fenced` once the name is
//!   in use again.
//! - A page looks at a bounded number of sessions, and deletes a bounded number of places.
//! - No epoch is given twice at a key: the highest epoch outlives the sessions.

use super::rows::{self, unreadable};
use crate::rules::{Rule, holds};
use crate::server::storage::retention::{Instant, SWEEP_INTERVAL_MS, after_s};
use crate::server::storage::schema::Meta;
use crate::server::storage::sql::{Sql, SqlError, Value};
use crate::server::storage::totals::{SessionTotals, Totals};
use crate::server::uncompared::Uncompared;

/// How many sessions one page looks at.
pub const PAGE_SESSIONS: i64 = 128;
/// A page ends once it has changed this many sessions: each may have [`super::state::WINDOW`] rows of places.
pub const PAGE_CHANGED: i64 = 8;

/// What an object knows of all sessions of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sessions {
    /// The highest epoch ever given.
    pub epoch: i64,
    /// How many sessions there are, stubs included.
    pub count: i64,
    /// The session up to which the walk has come; 0 if no walk is under way.
    after: i64,
    /// The next walk begins no sooner than this, in Unix ms.
    rests_until_ms: i64,
    /// When the first session may become a stub or leave, in Unix ms; [`i64::MAX`] if none may.
    due_ms: i64,
    /// When the first of the sessions that this walk has passed may, in Unix ms.
    walked_ms: Uncompared<i64>,
    /// The most sessions that the key may have, from its settings.
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

/// What an object that starts finds out about its sessions.
#[derive(Debug)]
pub struct Found {
    /// What it keeps in memory.
    pub sessions: Sessions,
    /// The latest clock in any row, in Unix ms.
    pub clock_ms: i64,
}

const NEWEST: &str = "(SELECT at_ms FROM semel_places WHERE session = number ORDER BY seq DESC LIMIT 1)";

impl Sessions {
    /// No sessions, at a key whose highest epoch so far is `epoch`.
    pub fn before(epoch: i64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Loads the sessions of a key from the stored totals, or else looks at all of them.
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

    /// The totals to be stored for the next start.
    pub fn totals(&self, retention_s: i64) -> SessionTotals {
        let used_ms = |due_ms: i64| due_ms.saturating_sub(idle_ms(0, retention_s));
        SessionTotals { count: self.count, used_ms: self.next_due_ms().map(used_ms) }
    }

    /// Makes the next page look at all sessions from the first on, because the settings of the key may have changed.
    pub fn look_again(&mut self) {
        if self.count > 0 {
            (self.after, self.rests_until_ms, self.due_ms) = (0, 0, 0);
        }
    }

    /// Takes note that a session was used.
    pub fn used(&mut self, now_ms: i64, retention_s: i64) {
        let due_ms = idle_ms(now_ms, retention_s);
        self.due_ms = self.due_ms.min(due_ms);
        self.walked_ms.0 = self.walked_ms.0.min(due_ms);
    }

    /// Whether a page is due now. A walk goes on to its end even if it has made room, so that the next one begins at the
    /// first session.
    pub fn is_due(&self, now_ms: i64) -> bool {
        let due_ms = if self.is_full() { 0 } else { self.due_ms };
        self.after > 0 || now_ms >= self.rests_until_ms.max(due_ms)
    }

    /// Whether the key takes no new session.
    pub fn is_full(&self) -> bool {
        u64::try_from(self.count).unwrap_or(0) >= self.max.0
    }

    /// When the first session may become a stub or leave by the clock alone, in Unix ms; `None` if none may.
    pub fn next_due_ms(&self) -> Option<i64> {
        Some(self.due_ms).filter(|due_ms| *due_ms < i64::MAX)
    }

    /// Sweeps one page, and returns whether anything was written. Call it in a transaction that also writes the fence.
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
    // No place up to the number of an earlier stub has a row, whether or not it was acknowledged.
    let ack = if freed > closed.0 { freed } else { closed.1 };
    let seq = if holds(Rule::StubKeepsLast) { rows.last } else { closed.0 };
    rows::put_closed(sql, session, seq, ack, used_ms)?;
    rows::delete_places(sql, session, rows.last)
}

/// When a session that was last used at `used_ms` has been idle for the retention, in Unix ms.
fn idle_ms(used_ms: i64, retention_s: i64) -> i64 {
    after_s(used_ms, retention_s)
}
