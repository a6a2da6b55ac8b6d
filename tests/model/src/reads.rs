//! How the engine reads a key's tables in memory: what each statement that reads gets.
//!
//! Invariant: an unknown statement ends the check with its text, and is never guessed.

use crate::tables::{Meta, Stored, Tables, column, integer, text};
use crate::values;
use semel_core::server::storage::sql::Row;
use semel_core::server::{SqlError, Value};

impl Tables {
    /// The rows of several ids: whole, or the columns that a tombstone keeps.
    fn read_ahead(&self, statement: &str, arguments: &[Value]) -> Option<Vec<Row>> {
        let (asked, condition) = statement.split_once(" FROM semel_records WHERE id ")?;
        let ids = values::ids_of(condition, arguments).filter(|_| asked.ends_with(", id"))?;
        let rows = ids.iter().filter_map(|id| self.records.get_key_value(id));
        let columns: &[usize] = if asked.ends_with(", first_sent_s, at_ms, deadline_ms, carried, state, id") {
            &[
                column::PRINCIPAL,
                column::FIRST_SENT_S,
                column::AT_MS,
                column::DEADLINE_MS,
                column::CARRIED,
                column::STATE,
            ]
        } else {
            return Some(rows.map(|(id, row)| [row.0.as_slice(), &[id.as_str().into()]].concat()).collect());
        };
        let row = |(id, row): (&String, &Stored)| {
            columns.iter().map(|column| row.0[*column].clone()).chain([id.as_str().into()]).collect()
        };
        Some(rows.map(row).collect())
    }

    pub(crate) fn select(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        let is_bare = !statement.contains(", fingerprint");
        if statement.starts_with("SELECT type, name FROM sqlite_master") {
            // The handler's table belongs to the judge and is not deleted: what happened, happened.
            return Ok(Vec::new());
        }
        if statement.contains("semel_effect") {
            return self.sent.select(statement, arguments);
        }
        if statement == "SELECT number FROM semel_texts WHERE text = ?1" {
            // Principals and header lines never have numbers here.
            return Ok(Vec::new());
        }
        if statement.contains("FROM sqlite_master") {
            return Ok(self.meta.iter().map(|_| vec![1.into()]).collect());
        }
        if statement == "SELECT key FROM semel_meta LIMIT 1" {
            let key = |meta: &Meta| vec![meta.has_key.then_some("key").into()];
            return Ok(self.meta.iter().map(key).collect());
        }
        if statement.contains("FROM semel_meta") {
            let row = |meta: &Meta| {
                let Meta { engine_version, handler_version, fence_s, clock_ms, forgotten_s, .. } = *meta;
                let Meta { has_key, is_registered, epoch, forgets_s, .. } = *meta;
                let numbers = [1, engine_version, handler_version, fence_s, clock_ms, forgotten_s].map(Value::from);
                [
                    numbers.as_slice(),
                    &[has_key.then_some("key").into(), i64::from(is_registered).into(), epoch.into(), forgets_s.into()],
                ]
                .concat()
            };
            return Ok(self.meta.iter().map(row).collect());
        }
        if statement.ends_with(" FROM semel_totals LIMIT 1") {
            // No scope has enough rows for their totals to be stored.
            return Ok(Vec::new());
        }
        if statement.contains("semel_sessions") || statement.contains("FROM semel_places") {
            return self.sessions.select(statement, arguments);
        }
        if statement.starts_with("SELECT count(*)") {
            let clock_ms = self.records.values().filter_map(|row| row.integer(column::AT_MS)).max().unwrap_or(0);
            let (all, records) = (self.records.len() as i64, self.count(true) as i64);
            let lapses = |row: &&Stored| row.integer(column::LAPSES_MS).is_some();
            let is_certain = |row: &&Stored| row.state() != 7;
            let certain = || self.records.values().filter(is_certain);
            let oldest_ms = certain().filter(|row| !lapses(row)).filter_map(|row| row.integer(column::AT_MS));
            let lapses_ms = self.records.values().filter_map(|row| row.integer(column::LAPSES_MS));
            let instants = certain().filter_map(|row| row.integer(column::AT_MS));
            let minima = [instants.min(), oldest_ms.min(), lapses_ms.min(), None, None, None].map(Value::from);
            // The first page holds all rows.
            let last =
                self.records.keys().next_back().filter(|last| text(arguments, 4).is_ok_and(|after| after < **last));
            let ends = [all.into(), records.into(), clock_ms.into()].into_iter().chain(minima);
            let dispatched = (self.records.len() - certain().count()) as i64;
            return Ok(vec![ends.chain([dispatched.into(), last.map(String::as_str).into()]).collect()]);
        }
        if statement == "SELECT max(first_sent_s) FROM semel_records" {
            let latest_s = self.records.values().filter_map(|row| row.integer(column::FIRST_SENT_S)).max();
            return Ok(vec![vec![latest_s.into()]]);
        }
        if statement.ends_with("FROM semel_records WHERE id = ?1 LIMIT 1") {
            let found = self.records.get(&text(arguments, 0)?);
            return Ok(found.map(|row| row.row(is_bare)).into_iter().collect());
        }
        let with_id = |(id, row): (&String, &Stored)| {
            let mut row = row.row(is_bare);
            row.push(id.as_str().into());
            row
        };
        if let Some(rows) = self.read_ahead(statement, arguments) {
            return Ok(rows);
        }
        if statement == "SELECT id FROM semel_records ORDER BY id DESC LIMIT +?1" {
            let limit = integer(arguments, 0)? as usize;
            return Ok(self.records.keys().rev().take(limit).map(|id| vec![id.as_str().into()]).collect());
        }
        if statement.ends_with("FROM semel_records WHERE id < ?1 ORDER BY id DESC LIMIT +?2") && is_bare {
            let (above, limit) = (text(arguments, 0)?, integer(arguments, 1)?);
            let rows = self.records.iter().rev().filter(|(id, _)| **id < above);
            return Ok(rows.take(limit as usize).map(with_id).collect());
        }
        if statement.ends_with(", carried FROM semel_records WHERE id > ?1 AND id <= ?2 AND carried IS NOT NULL") {
            let carries = |row: &&Stored| !matches!(row.0.get(column::CARRIED), None | Some(Value::Null));
            let (after, last) = (text(arguments, 0)?, text(arguments, 1)?);
            let rows = self.records.iter().filter(|(id, row)| **id > after && **id <= last && carries(row));
            let row = |(id, row): (&String, &Stored)| {
                vec![id.as_str().into(), row.0[column::PRINCIPAL].clone(), row.0[column::CARRIED].clone()]
            };
            return Ok(rows.map(row).collect());
        }
        self.select_chunks(statement, arguments)
    }

    fn select_chunks(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        if statement.starts_with("SELECT lapses_ms, (SELECT at_ms FROM semel_tombstones ORDER BY chunk DESC LIMIT 1)") {
            let ends = self.chunks.values().next().zip(self.chunks.values().next_back());
            return Ok(ends.map(|(first, last)| vec![first.1.into(), last.0.into()]).into_iter().collect());
        }
        if statement
            == "SELECT chunk, principal, entries FROM semel_tombstones WHERE chunk > ?1 AND lapses_ms > ?3 ORDER BY chunk LIMIT +?2"
        {
            let (after, limit, now_ms) = (integer(arguments, 0)?, integer(arguments, 1)?, integer(arguments, 2)?);
            let chunks = self.chunks.range(after + 1..).filter(|(_, chunk)| chunk.1 > now_ms).take(limit as usize);
            let row = |(chunk, (_, _, principal, entries)): (&i64, &(i64, i64, String, Vec<u8>))| {
                vec![(*chunk).into(), principal.as_str().into(), entries.as_slice().into()]
            };
            return Ok(chunks.map(row).collect());
        }
        type Chunk<'a> = (&'a i64, &'a (i64, i64, String, Vec<u8>));
        let (after, limit, row): (_, _, fn(Chunk<'_>) -> Row) = match statement {
            "SELECT chunk, lapses_ms FROM semel_tombstones ORDER BY chunk LIMIT +?1" => {
                (0, integer(arguments, 0)?, |(chunk, (_, lapses_ms, ..))| vec![(*chunk).into(), (*lapses_ms).into()])
            }
            _ => return Err(SqlError(format!("unknown here: {statement}"))),
        };
        Ok(self.chunks.range(after + 1..).take(limit as usize).map(row).collect())
    }
}
