//! What is in a key's storage between two requests, as one who reads the tables sees it.
//!
//! Invariant: nothing here goes through the code under test but the connection.

use crate::deposits::Apart;
use semel_core::server::Value;
use semel_support::Database;
use std::collections::BTreeMap;

/// The number of each state in a row, and its name in what is reported.
const STATES: [&str; 7] = ["none", "executed", "poisoned", "cancelled", "suspect", "acknowledged", "expired"];

/// A row of `semel_records`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Whose it is.
    pub principal: String,
    /// The name of its state.
    pub state: &'static str,
    /// When it was first sent, in Unix s.
    pub first_sent_s: Option<i64>,
    /// Whether every attempt that came had a deadline.
    pub is_bounded: bool,
    /// The clock at its last change.
    pub at_ms: i64,
    /// When it may leave, if that is set.
    pub lapses_ms: Option<i64>,
}

impl Row {
    /// Whether it counts as a record, and not as a tombstone.
    pub fn is_record(&self) -> bool {
        matches!(self.state, "executed" | "poisoned" | "suspect")
    }
}

/// An effect of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// What was wanted.
    pub number: String,
    /// Under which id.
    pub id: String,
    /// By whom.
    pub principal: String,
    /// The key's clock.
    pub at_ms: i64,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The records, by id.
    pub rows: BTreeMap<String, Row>,
    /// How many effects there are.
    pub effects: i64,
    /// The fence, in Unix s.
    pub fence_s: i64,
    /// The clock that was written with it.
    pub clock_ms: i64,
}

impl Snapshot {
    /// Takes one.
    pub fn of(database: &Database, apart: Option<&Apart>) -> Self {
        let meta = database.peek("SELECT fence_s, clock_ms FROM semel_meta");
        let meta = |column: usize| meta.first().and_then(|row| row[column].as_integer()).unwrap_or(0);
        let rows = database
            .peek("SELECT id, principal, state, first_sent_s, at_ms, lapses_ms, deadline_ms FROM semel_records");
        let effects = apart.map_or(database, |apart| &apart.0).peek("SELECT count(*) FROM effects");
        Self {
            rows: rows.into_iter().map(row).collect(),
            effects: effects.first().and_then(|row| row[0].as_integer()).unwrap_or(0),
            fence_s: meta(0),
            clock_ms: meta(1),
        }
    }

    /// The name of the state of an id.
    pub fn state_of(&self, id: &str) -> &'static str {
        self.rows.get(id).map_or(STATES[0], |row| row.state)
    }

    /// The latest clock in any row.
    pub fn latest_ms(&self) -> i64 {
        self.rows.values().map(|row| row.at_ms).max().unwrap_or(0).max(self.clock_ms)
    }

    /// How many rows count as records, or as tombstones.
    pub fn count(&self, records: bool) -> u64 {
        self.rows.values().filter(|row| row.is_record() == records).count() as u64
    }
}

/// The effects after the first `before` ones.
pub fn effects_after(database: &Database, apart: Option<&Apart>, before: i64) -> Vec<Effect> {
    let statement = format!("SELECT number, id, principal, at_ms FROM effects ORDER BY rowid LIMIT -1 OFFSET {before}");
    let rows = apart.map_or(database, |apart| &apart.0).peek(&statement);
    let text = |value: &Value| value.clone().into_text().unwrap_or_default();
    let effect = |row: Vec<Value>| Effect {
        number: text(&row[0]),
        id: text(&row[1]),
        principal: text(&row[2]),
        at_ms: row[3].as_integer().unwrap_or(0),
    };
    rows.into_iter().map(effect).collect()
}

fn row(values: Vec<Value>) -> (String, Row) {
    let text = |column: usize| values[column].clone().into_text().unwrap_or_default();
    let number = |column: usize| values[column].as_integer();
    let state = STATES[usize::try_from(number(2).unwrap_or(0)).unwrap_or(0)];
    let row = Row {
        principal: text(1),
        state,
        first_sent_s: number(3),
        is_bounded: number(6).is_some(),
        at_ms: number(4).unwrap_or(0),
        lapses_ms: number(5),
    };
    (text(0), row)
}
