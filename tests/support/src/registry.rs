//! Reports for the registry, and what the registry's tables contain.

use crate::database::Database;
use semel_core::server::registry::Report;

/// A report of a key with one record, at an instant of its clock.
pub fn report(key: &str, at: i64) -> Report {
    let (key, records, tombstones, bytes) = (key.to_owned(), 1, 0, 20_480);
    let (oldest, in_doubt, parked, is_listed, changes) = (Some(at), 0, 0, true, 0);
    Report { key, at, records, tombstones, bytes, oldest, in_doubt, parked, is_listed, changes }
}

/// The tables that contain a name.
pub fn tables_with(database: &Database, name: &str) -> Vec<String> {
    let is_there = |table: &String| {
        let mut values = database.query(&format!("SELECT * FROM {table}")).into_iter().flatten();
        values.any(|value| value.into_text().is_some_and(|text| text.contains(name)))
    };
    database.tables().into_iter().filter(is_there).collect()
}
