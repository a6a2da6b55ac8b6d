//! What all records come to, which an object has to know when it starts.
//!
//! Invariants:
//! - What was kept is what the rows come to: whatever changes a row takes it away, in the same transaction.
//! - Nothing here looks at more rows than a page has.

use super::record::Change;
use super::rows::number;
use super::sql::{Sql, SqlError, Value};

/// What records come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Totals {
    /// How many there are.
    pub count: Change,
    /// The latest clock in any row, in Unix ms.
    pub clock_ms: i64,
    /// The earliest clock in any row, but in those in doubt, which never leave by themselves: for how long one stays says nothing of what
    /// is due.
    pub oldest_ms: Option<i64>,
    /// The earliest, of those that leave by the fence; or of all.
    pub oldest_fenced_ms: Option<i64>,
    /// When the first of the others lapses; or when the first of all may leave.
    pub lapses_ms: Option<i64>,
    /// Of what records carry, none lasts longer; `None`: it has to be looked at.
    pub carried_until_ms: Option<i64>,
    /// Of the sessions; `None`: they have to be looked at.
    pub sessions: Option<SessionTotals>,
}

/// What all sessions come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionTotals {
    /// How many there are.
    pub count: i64,
    /// Of those that are no stubs, none was last used before; `None`: there is none.
    pub used_ms: Option<i64>,
}

impl Totals {
    /// With what more rows come to, which were counted.
    #[must_use]
    pub fn with(self, more: Self) -> Self {
        let earlier = |one: Option<i64>, other| one.into_iter().chain(other).min();
        Self {
            count: Change {
                records: self.count.records + more.count.records,
                tombstones: self.count.tombstones + more.count.tombstones,
                dispatched: self.count.dispatched + more.count.dispatched,
            },
            clock_ms: self.clock_ms.max(more.clock_ms),
            oldest_ms: earlier(self.oldest_ms, more.oldest_ms),
            oldest_fenced_ms: earlier(self.oldest_fenced_ms, more.oldest_fenced_ms),
            lapses_ms: earlier(self.lapses_ms, more.lapses_ms),
            carried_until_ms: self.carried_until_ms,
            sessions: self.sessions,
        }
    }

    fn from_row(row: &[Value]) -> Option<Self> {
        let integer = |column: usize| row.get(column).and_then(Value::as_integer);
        let instant = |column: usize| match row.get(column)? {
            Value::Null => Some(None),
            value => value.as_integer().map(Some),
        };
        let (all, records, dispatched) = (integer(0)?, integer(1)?, integer(9)?);
        Some(Self {
            count: Change { records, tombstones: all - records, dispatched },
            clock_ms: integer(2)?,
            oldest_ms: instant(3)?,
            oldest_fenced_ms: instant(4)?,
            lapses_ms: instant(5)?,
            carried_until_ms: instant(6)?,
            sessions: integer(7).map(|count| SessionTotals { count, used_ms: integer(8) }),
        })
    }
}

/// What all rows come to, as it was kept; `None`: they have to be counted.
pub fn kept(sql: &dyn Sql) -> Result<Option<Totals>, SqlError> {
    let statement = "SELECT rows, records, clock_ms, oldest_ms, oldest_ms, due_ms, carried_until_ms, sessions, used_ms, dispatched FROM semel_totals LIMIT 1";
    let rows = sql.exec(statement, &[])?;
    rows.first().map(|row| Totals::from_row(row).ok_or_else(unreadable)).transpose()
}

/// Counts up to `limit` rows with ids after `after`, and answers the last of these ids; `None` where there are none.
pub fn page(sql: &dyn Sql, after: &str, limit: i64) -> Result<Option<(Totals, String)>, SqlError> {
    let statement = "SELECT count(*), coalesce(sum(state IN (?1, ?2, ?3, ?4)), 0), coalesce(max(at_ms), 0), \
         min(iif(state <> ?7, at_ms, NULL)), min(iif(lapses_ms IS NULL AND state <> ?7, at_ms, NULL)), min(lapses_ms), \
         NULL, NULL, NULL, coalesce(sum(state = ?7), 0), max(id) \
         FROM (SELECT id, state, at_ms, lapses_ms FROM semel_records WHERE id > ?5 ORDER BY id LIMIT +?6)";
    let states = number::RECORDS.map(Value::from);
    let others = [after.into(), limit.into(), number::DISPATCHED.into()];
    let rows = sql.exec(statement, &[states.as_slice(), &others].concat())?;
    let row = rows.into_iter().next().ok_or_else(unreadable)?;
    let totals = Totals::from_row(&row).ok_or_else(unreadable)?;
    match row.into_iter().next_back() {
        Some(Value::Null) => Ok(None),
        last => last.and_then(Value::into_text).map(|last| Some((totals, last))).ok_or_else(unreadable),
    }
}

/// Keeps what the rows come to, for the next start.
pub fn keep(sql: &dyn Sql, totals: &Totals) -> Result<(), SqlError> {
    let Totals {
        count: Change { records, tombstones, dispatched },
        clock_ms,
        oldest_ms,
        lapses_ms,
        carried_until_ms,
        sessions,
        ..
    } = *totals;
    let numbers = [records + tombstones, records, clock_ms].map(Value::from);
    let (count, used_ms) = (sessions.map(|sessions| sessions.count), sessions.and_then(|sessions| sessions.used_ms));
    let others = [oldest_ms, lapses_ms, carried_until_ms, count, used_ms, Some(dispatched)].map(Value::from);
    let statement = "INSERT OR REPLACE INTO semel_totals VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    sql.exec(statement, &[numbers.as_slice(), &others].concat()).map(|_| ())
}

/// Takes away what was kept: the next start counts the rows.
pub fn take_away(sql: &dyn Sql) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_totals", &[]).map(|_| ())
}

fn unreadable() -> SqlError {
    SqlError("semel_records could not be counted".to_owned())
}
