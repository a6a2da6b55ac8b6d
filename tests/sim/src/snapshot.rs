//! What is in a key's storage between two requests, as somebody sees it who reads the tables.
//!
//! Invariant: of the code under test, this uses only the connection.

use crate::deposits::Apart;
use semel_core::server::Value;
use semel_support::Database;
use std::collections::BTreeMap;

/// The names of the states, by their number in a row.
const STATES: [&str; 8] =
    ["none", "executed", "poisoned", "cancelled", "suspect", "acknowledged", "expired", "in-doubt"];

/// The records, with the principal as text.
const ROWS: &str = "SELECT id, CASE typeof(principal) WHEN 'integer' THEN (SELECT text FROM semel_texts WHERE number = principal) \
     ELSE principal END, state, first_sent_s, at_ms, lapses_ms, deadline_ms FROM semel_records";
/// The packed tombstones, from chunks and from records that carry them: the principal, when they were written, and the
/// tombstones.
const PACKED: &str = "SELECT principal, at_ms, entries FROM semel_tombstones UNION ALL SELECT CASE typeof(principal) \
     WHEN 'integer' THEN (SELECT text FROM semel_texts WHERE number = principal) ELSE principal END, at_ms, carried \
     FROM semel_records WHERE carried IS NOT NULL";

/// What a row says of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The principal.
    pub principal: String,
    /// The name of the state.
    pub state: &'static str,
    /// When it was first sent, in Unix seconds.
    pub first_sent_s: Option<i64>,
    /// Whether every attempt that arrived had a deadline.
    pub is_bounded: bool,
    /// The key's clock at the last change, in Unix ms.
    pub at_ms: i64,
    /// When it may leave, if that is known, in Unix ms.
    pub lapses_ms: Option<i64>,
    /// Whether it is a packed tombstone, without its own row.
    pub is_packed: bool,
}

impl Row {
    /// Whether it counts as a record, and not as a tombstone.
    pub fn is_record(&self) -> bool {
        matches!(self.state, "executed" | "poisoned" | "suspect" | "in-doubt")
    }

    /// Whether it no longer counts, though it is still stored.
    pub fn has_lapsed(&self, now_ms: i64) -> bool {
        self.is_packed && self.lapses_ms.is_some_and(|lapses_ms| lapses_ms <= now_ms)
    }
}

/// An effect of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The number of the request.
    pub number: String,
    /// The id.
    pub id: String,
    /// The principal.
    pub principal: String,
    /// The key's clock, in Unix ms.
    pub at_ms: i64,
}

/// Everything that is stored.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The records, by id.
    pub rows: BTreeMap<String, Row>,
    /// When each packed tombstone lapses, even if its id has a row as well.
    packed_until_ms: Vec<i64>,
    /// How many effects there are.
    pub effects: i64,
    /// The fence, in Unix seconds.
    pub fence_s: i64,
    /// The clock that was written with the fence, in Unix ms.
    pub clock_ms: i64,
}

impl Snapshot {
    /// Takes a snapshot.
    pub fn of(database: &Database, apart: Option<&Apart>) -> Self {
        let meta = database.peek("SELECT fence_s, clock_ms FROM semel_meta");
        let meta = |column: usize| meta.first().and_then(|row| row[column].as_integer()).unwrap_or(0);
        let packed: Vec<_> = database.peek(PACKED).iter().flat_map(|row| packed(row)).collect();
        let packed_until_ms = packed.iter().filter_map(|(_, row)| row.lapses_ms).collect();
        let rows = database.peek(ROWS).into_iter().map(row);
        let effects = apart.map_or(database, |apart| &apart.0).peek("SELECT count(*) FROM effects");
        Self {
            // A row replaces a packed tombstone of the same id.
            rows: packed.into_iter().chain(rows).collect(),
            packed_until_ms,
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

    /// The number of records, or of tombstones. A packed tombstone that has lapsed does not count.
    pub fn count(&self, records: bool, now_ms: i64) -> u64 {
        let rows = self.rows.values().filter(|row| !row.is_packed && row.is_record() == records).count();
        let packed = self.packed_until_ms.iter().filter(|lapses_ms| !records && **lapses_ms > now_ms).count();
        (rows + packed) as u64
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
        is_packed: false,
    };
    (text(0), row)
}

/// Reads packed tombstones. For each: four bytes for when it lapses, in tens of seconds; one byte for the length of its
/// id; and the id. A UUID has the length 0 and 16 bytes.
fn packed(values: &[Value]) -> Vec<(String, Row)> {
    let principal = values[0].clone().into_text().unwrap_or_default();
    let bytes = values[2].clone().into_blob().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = bytes.as_slice();
    while let [a, b, c, d, length, after @ ..] = rest {
        let (id, after) = after.split_at(if *length == 0 { 16 } else { (*length).into() });
        rest = after;
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let uuid = || [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
        let id = if *length == 0 { uuid() } else { String::from_utf8_lossy(id).into_owned() };
        let row = Row {
            principal: principal.clone(),
            state: STATES[5],
            first_sent_s: None,
            is_bounded: true,
            at_ms: values[1].as_integer().unwrap_or(0),
            lapses_ms: Some(i64::from(u32::from_be_bytes([*a, *b, *c, *d])) * 10_000),
            is_packed: true,
        };
        found.push((id, row));
    }
    found
}
