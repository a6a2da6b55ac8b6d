//! The tables of effects that leave, in memory, beside those of [`crate::tables`].
//!
//! Invariant: an unknown statement is an error with its text, and is never guessed.

use crate::tables::{Stored, integer, text};
use semel_core::server::storage::sql::Row;
use semel_core::server::{SqlError, Value};
use std::collections::BTreeMap;

/// The rows of lanes, of waiting effects, and of parked effects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct EffectTables {
    /// Whether the tables exist.
    is_made: bool,
    /// By number: the target, and the other columns in the order of the table.
    lanes: BTreeMap<i64, (String, Stored)>,
    /// By lane and seq: the columns in the order of the statement that reads the first effect.
    waiting: BTreeMap<(i64, i64), Stored>,
    /// By number: the columns in the order of the table.
    parked: BTreeMap<i64, Stored>,
}

/// The columns of a lane after its target.
mod lane {
    pub const SEQ: usize = 0;
    pub const SURE: usize = 1;
    pub const PREVIOUS: usize = 2;
    pub const EPOCH: usize = 3;
    pub const BOUNDARY: usize = 4;
}

/// The columns of a waiting effect after its seq.
mod waiting {
    pub const CLOSING: usize = 0;
    pub const BODY: usize = 6;
}

/// The columns of a parked effect after its number.
mod parked {
    pub const BODY: usize = 6;
    pub const EXECUTED: usize = 8;
}

fn body(Stored(row): &Stored, at: usize) -> String {
    let body = row[at].clone().into_blob().unwrap_or_default();
    String::from_utf8_lossy(&body).into_owned()
}

fn target_row(number: &i64, (target, Stored(row)): &(String, Stored), with_target: bool) -> Row {
    let target = with_target.then(|| Value::from(target.as_str()));
    [Value::from(*number)].into_iter().chain(row.iter().cloned()).chain(target).collect()
}

impl EffectTables {
    /// The bodies of the waiting effects, in order.
    pub fn waiting(&self) -> impl Iterator<Item = String> {
        self.waiting.values().map(|row| body(row, waiting::BODY))
    }

    /// The bodies of the parked effects, and what is known of whether each ran.
    pub fn parked(&self) -> impl Iterator<Item = (String, String)> {
        let executed = |Stored(row): &Stored| row[parked::EXECUTED].clone().into_text().unwrap_or_default();
        self.parked.values().map(move |row| (body(row, parked::BODY), executed(row)))
    }

    /// Whether a seq was given that the object didn't know to belong to its own session.
    pub fn is_unsure(&self) -> bool {
        let is_unsure = |(_, Stored(row)): &(String, Stored)| {
            row[lane::SURE].as_integer().is_some_and(|sure| row[lane::SEQ].as_integer() > Some(sure))
        };
        self.lanes.values().any(is_unsure)
    }

    /// Whether a session is known, and none with a later epoch.
    pub(crate) fn knows_none_beyond(&self, epoch: i64) -> bool {
        let known = self.lanes.values().filter_map(|(_, Stored(row))| row[lane::EPOCH].as_integer()).max();
        known.is_some_and(|known| (1..=epoch).contains(&known))
    }

    fn of(&self, lane: i64) -> impl Iterator<Item = (i64, &Stored)> {
        self.waiting.range((lane, i64::MIN)..=(lane, i64::MAX)).map(|((_, seq), row)| (*seq, row))
    }

    pub(crate) fn select(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        match statement {
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'semel_effects_parked' LIMIT 1" => {
                Ok(self.is_made.then(|| vec![1.into()]).into_iter().collect())
            }
            "SELECT number, seq, sure, previous, epoch, boundary FROM semel_effect_lanes WHERE target = ?1" => {
                let target = text(arguments, 0)?;
                let found = self.lanes.iter().find(|(_, (each, _))| *each == target);
                Ok(found.map(|(number, lane)| target_row(number, lane, false)).into_iter().collect())
            }
            "SELECT number, seq, sure, previous, epoch, boundary, target FROM semel_effect_lanes WHERE number = ?1" => {
                let number = integer(arguments, 0)?;
                Ok(self.lanes.get(&number).map(|lane| target_row(&number, lane, true)).into_iter().collect())
            }
            "SELECT lane, seq FROM semel_effects WHERE lane > ?1 ORDER BY lane, seq LIMIT 1" => {
                let mut after = self.waiting.range((integer(arguments, 0)? + 1, i64::MIN)..);
                Ok(after.next().map(|((lane, seq), _)| vec![(*lane).into(), (*seq).into()]).into_iter().collect())
            }
            "SELECT seq, closing, at_ms, id, method, url, headers, body FROM semel_effects WHERE lane = +?1 ORDER BY seq LIMIT 1" =>
            {
                let first = self.of(integer(arguments, 0)?).next();
                Ok(first.map(|(seq, Stored(row))| [&[Value::from(seq)], row.as_slice()].concat()).into_iter().collect())
            }
            "SELECT min(seq) FROM semel_effects WHERE lane = +?1 AND seq > ?2" => {
                let beyond = integer(arguments, 1)?;
                let first = self.of(integer(arguments, 0)?).map(|(seq, _)| seq).find(|seq| *seq > beyond);
                Ok(vec![vec![first.into()]])
            }
            _ if statement.starts_with("SELECT (SELECT count(*) FROM (SELECT 1 FROM semel_effects LIMIT +?1)) + ") => {
                Ok(vec![vec![((self.waiting.len() + self.parked.len()) as i64).into()]])
            }
            _ => Err(SqlError(format!("unknown here: {statement}"))),
        }
    }

    pub(crate) fn change(&mut self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        let starts = |start: &str| statement.starts_with(start);
        if starts("CREATE TABLE IF NOT EXISTS semel_effect") {
            self.is_made = true;
        } else if starts(
            "INSERT INTO semel_effect_lanes (target, seq, sure, previous, epoch, boundary) VALUES (?1, 1, 0, 0, 0, 0)",
        ) {
            let number = self.lanes.last_key_value().map_or(0, |(number, _)| *number) + 1;
            self.lanes.insert(number, (text(arguments, 0)?, Stored([1, 0, 0, 0, 0].map(Value::from).to_vec())));
            return Ok(vec![vec![number.into()]]);
        } else if starts("INSERT INTO semel_effects (lane, seq, at_ms, id, method, url, headers, body) ") {
            let row = [&[Value::Null], &arguments[2..]].concat();
            self.waiting.insert((integer(arguments, 0)?, integer(arguments, 1)?), Stored(row));
        } else if starts(
            "INSERT INTO semel_effects_parked (target, at_ms, id, method, url, headers, body, parked_ms, executed, reason) ",
        ) {
            let number = self.parked.last_key_value().map_or(0, |(number, _)| *number) + 1;
            self.parked.insert(number, Stored(arguments.to_vec()));
        } else if statement
            == "DELETE FROM semel_effect_lanes WHERE NOT EXISTS (SELECT 1 FROM semel_effects WHERE lane = number)"
        {
            let waiting = &self.waiting;
            self.lanes.retain(|number, _| waiting.keys().any(|(lane, _)| lane == number));
        } else {
            return self.change_lane(statement, arguments);
        }
        Ok(Vec::new())
    }

    /// A change of one lane, whose number is the first argument.
    fn change_lane(&mut self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        let number = integer(arguments, 0)?;
        let columns: &[usize] = match statement {
            "UPDATE semel_effect_lanes SET seq = ?2, sure = ?3 WHERE number = ?1" => &[lane::SEQ, lane::SURE],
            "UPDATE semel_effect_lanes SET seq = ?2, sure = NULL, previous = ?3, epoch = ?4, boundary = ?5 WHERE number = ?1" =>
            {
                if let Some((_, Stored(row))) = self.lanes.get_mut(&number) {
                    row[lane::SURE] = Value::Null;
                }
                &[lane::SEQ, lane::PREVIOUS, lane::EPOCH, lane::BOUNDARY]
            }
            "DELETE FROM semel_effects WHERE lane = ?1 AND seq = ?2" => {
                self.waiting.remove(&(number, integer(arguments, 1)?));
                &[]
            }
            "UPDATE semel_effects SET closing = ?3 WHERE lane = ?1 AND seq = ?2" => {
                if let Some(Stored(row)) = self.waiting.get_mut(&(number, integer(arguments, 1)?)) {
                    row[waiting::CLOSING] = arguments[2].clone();
                }
                &[]
            }
            "UPDATE semel_effects SET seq = -(seq + ?3) WHERE lane = +?1 AND seq > ?2" => {
                let (beyond, shift) = (integer(arguments, 1)?, integer(arguments, 2)?);
                self.renumber(number, |seq| if seq > beyond { -(seq + shift) } else { seq });
                &[]
            }
            "UPDATE semel_effects SET seq = -seq WHERE lane = ?1 AND seq < 0" => {
                self.renumber(number, i64::abs);
                &[]
            }
            _ => return Err(SqlError(format!("unknown here: {statement}"))),
        };
        if let Some((_, Stored(row))) = self.lanes.get_mut(&number) {
            for (column, value) in columns.iter().zip(&arguments[1..]) {
                row[*column] = value.clone();
            }
        }
        Ok(Vec::new())
    }

    fn renumber(&mut self, lane: i64, to: impl Fn(i64) -> i64) {
        let rows = std::mem::take(&mut self.waiting).into_iter();
        self.waiting = rows.map(|((of, seq), row)| ((of, if of == lane { to(seq) } else { seq }), row)).collect();
    }
}
