//! The totals over all records, which an object needs when it starts.
//!
//! Invariants:
//! - Stored totals match the rows: whatever changes a row deletes them, in the same transaction.
//! - No function here looks at more rows than a page has.

use super::record::Change;
use super::rows::number;
use super::sql::{Sql, SqlError, Value};

/// Totals over records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Totals {
    /// The numbers of records.
    pub count: Change,
    /// The latest clock in any row, in Unix ms.
    pub clock_ms: i64,
    /// The earliest clock in any row, in Unix ms. Requests in doubt do not count: they never leave by themselves, so
    /// their age says nothing about what is due.
    pub oldest_ms: Option<i64>,
    /// The earliest clock in a row that leaves by the fence, in Unix ms. Totals that were stored have the earliest clock
    /// in any row instead.
    pub oldest_fenced_ms: Option<i64>,
    /// When the first of the other rows lapses, in Unix ms. Totals that were stored have the time when the first of all
    /// rows may leave instead.
    pub lapses_ms: Option<i64>,
    /// The latest time at which a carried tombstone lapses, in Unix ms; `None` if the rows have to be read for it.
    pub carried_until_ms: Option<i64>,
    /// The totals over sessions; `None` if the rows have to be read for them.
    pub sessions: Option<SessionTotals>,
}

/// Totals over sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionTotals {
    /// How many sessions there are.
    pub count: i64,
    /// No session that is not a stub was last used before this, in Unix ms; `None` if there is no such session.
    pub used_ms: Option<i64>,
}

impl Totals {
    /// The sum with the totals of further rows.
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

/// The stored totals; `None` if the rows have to be counted.
pub fn kept(sql: &dyn Sql) -> Result<Option<Totals>, SqlError> {
    let statement = "SELECT rows, records, clock_ms, oldest_ms, oldest_ms, due_ms, carried_until_ms, sessions, used_ms, dispatched FROM semel_totals LIMIT 1";
    let rows = sql.exec(statement, &[])?;
    rows.first().map(|row| Totals::from_row(row).ok_or_else(unreadable)).transpose()
}

/// Counts up to `limit` rows with ids after `after`, and returns the last of these ids; `None` if there are no such rows.
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

/// Stores the totals for the next start.
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

/// Deletes the stored totals, so that the next start counts the rows.
pub fn take_away(sql: &dyn Sql) -> Result<(), SqlError> {
    sql.exec("DELETE FROM semel_totals", &[]).map(|_| ())
}

fn unreadable() -> SqlError {
    SqlError("semel_records could not be counted".to_owned())
}
