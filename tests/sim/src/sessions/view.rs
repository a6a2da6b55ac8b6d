//! What a key stores of its sessions, and which ids it has, as somebody sees it who reads the tables.
//!
//! Invariant: of the code under test, this uses only the connection.

use crate::snapshot::Snapshot;
use semel_core::server::Value;
use semel_support::Database;
use std::collections::{BTreeMap, BTreeSet};

const SESSIONS: &str =
    "SELECT number, name, principal, epochs, closed_seq, closed_ack, at_ms, crashes, is_started FROM semel_sessions";
const STARTED: &str = "SELECT id, crashes FROM semel_records WHERE state = 4 AND is_started = 1";
const PLACES: &str = "SELECT session, seq, epoch, state, at_ms FROM semel_places ORDER BY session, seq";

/// What became of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Executed,
    Poisoned,
    Cancelled,
    Acknowledged,
}

/// A session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    pub principal: String,
    /// The epochs that are kept, each with the last number before its own.
    pub epochs: Vec<(i64, i64)>,
    pub closed_seq: i64,
    pub closed_ack: i64,
    /// When it was last used, in Unix ms.
    pub used_ms: i64,
    /// If the next place was started and it is not stored that this ended: how often the handler had crashed on it
    /// before.
    pub started: Option<i64>,
    /// For each number, the epoch that took the place, and what became of it.
    pub places: BTreeMap<i64, (i64, State)>,
}

impl Row {
    pub fn current(&self) -> i64 {
        self.epochs.last().map_or(0, |(epoch, _)| *epoch)
    }

    /// The last number that was taken.
    pub fn last(&self) -> i64 {
        self.places.last_key_value().map_or(self.closed_seq, |(seq, _)| *seq)
    }
}

/// Everything that is stored of sessions.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The sessions by name, without those that an administrator had forgotten.
    pub sessions: BTreeMap<String, Row>,
    /// The number of sessions, including forgotten ones.
    pub count: usize,
    /// The records, and the number of effects.
    pub ids: Snapshot,
    /// Starts of which it is not stored that they ended: the name, as effects have it, and how often the handler had
    /// crashed on it before.
    pub started: BTreeSet<(String, i64)>,
}

impl View {
    /// Takes a view. Sessions last used before `forgotten_s` are left out.
    pub fn of(database: &Database, forgotten_s: i64) -> Self {
        let mut all: BTreeMap<i64, (String, Row)> = BTreeMap::new();
        let text = |value: &Value| value.clone().into_text().unwrap_or_default();
        let number = |value: &Value| value.as_integer().unwrap_or(0);
        for row in database.peek(SESSIONS) {
            let session = Row {
                principal: text(&row[2]),
                epochs: pairs(&row[3].clone().into_blob().unwrap_or_default()),
                closed_seq: number(&row[4]),
                closed_ack: number(&row[5]),
                used_ms: number(&row[6]),
                started: (number(&row[8]) == 1).then(|| number(&row[7])),
                places: BTreeMap::new(),
            };
            all.insert(number(&row[0]), (text(&row[1]), session));
        }
        for row in database.peek(PLACES) {
            let state = match number(&row[3]) {
                1 => State::Executed,
                2 => State::Poisoned,
                3 => State::Cancelled,
                _ => State::Acknowledged,
            };
            if let Some((_, session)) = all.get_mut(&number(&row[0])) {
                session.used_ms = session.used_ms.max(number(&row[4]));
                session.places.insert(number(&row[1]), (number(&row[2]), state));
            }
        }
        let count = all.len();
        let known = all.into_values().filter(|(_, row)| row.used_ms >= forgotten_s * 1000);
        let (sessions, ids): (BTreeMap<String, Row>, _) = (known.collect(), Snapshot::of(database, None));
        let next = |(name, row): (&String, &Row)| {
            Some((format!("{name};epoch={};seq={}", row.current(), row.last() + 1), row.started?))
        };
        let mut started: BTreeSet<(String, i64)> = sessions.iter().filter_map(next).collect();
        if ids.rows.values().any(|row| row.state == "suspect") {
            started.extend(database.peek(STARTED).iter().map(|row| (text(&row[0]), number(&row[1]))));
        }
        Self { sessions, count, ids, started }
    }
}

/// Reads pairs of numbers of eight bytes each.
fn pairs(bytes: &[u8]) -> Vec<(i64, i64)> {
    let numbers: Vec<i64> =
        bytes.chunks_exact(8).map(|chunk| i64::from_be_bytes(chunk.try_into().expect("eight bytes"))).collect();
    numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}
