//! The rows that the tabs of one browser share. They outlive every tab.

use semel_core::client::row::{Write, is_done};
use semel_core::client::{Change, Changed, Row, codec};
use std::collections::BTreeMap;

/// The rows, by id.
#[derive(Debug, Default)]
pub struct Store {
    rows: BTreeMap<String, Vec<u8>>,
}

impl Store {
    /// Makes a change, as one transaction. `maker`: as the client names it.
    pub fn change(&mut self, maker: &str, id: &str, change: &Change) -> Changed {
        let (write, changed) = change.apply(maker, self.rows.get(id).map(Vec::as_slice)).expect("a readable row");
        match write {
            Write::Nothing => {}
            Write::Put(row) => drop(self.rows.insert(id.to_owned(), row)),
            Write::Delete => drop(self.rows.remove(id)),
        }
        changed
    }

    /// Whether there is a row.
    pub fn has(&self, id: &str) -> bool {
        self.rows.contains_key(id)
    }

    /// The ids of rows that keep an answer for another tab.
    pub fn keeping(&self) -> Vec<String> {
        let is_kept = |row: &[u8]| matches!(codec::decode(row), Ok(Row::Settled(settled)) if settled.kept.is_some());
        self.rows.iter().filter(|(_, row)| is_kept(row)).map(|(id, _)| id.clone()).collect()
    }

    /// Deletes the rows that are done.
    pub fn remove(&mut self, ids: &[String]) {
        self.rows.retain(|id, row| !ids.contains(id) || !is_done(row));
    }

    /// Loses all rows.
    pub fn clear(&mut self) {
        self.rows.clear();
    }

    /// All rows.
    pub fn load(&self) -> Vec<(String, Vec<u8>)> {
        self.rows.iter().map(|(id, row)| (id.clone(), row.clone())).collect()
    }

    /// The rows for which there is something left to do, without those that only keep an answer for another tab.
    pub fn unfinished(&self) -> Vec<(String, Row)> {
        let rows = self.rows.iter().map(|(id, row)| (id.clone(), codec::decode(row).expect("a readable row")));
        rows.filter(|(_, row)| match row {
            Row::Pending(_) => true,
            Row::Settled(settled) => settled.is_to_acknowledge(),
        })
        .collect()
    }
}
