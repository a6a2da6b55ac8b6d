//! Fills the file of a stopped server's object. `crowd FOLDER WHAT COUNT AT_S` takes the file in the folder with the
//! most records, and writes COUNT more records like its first, under their own ids, as of an instant in Unix seconds.
//! WHAT is one of:
//!
//! - `records`: executed and not acknowledged
//! - `tombstones`: each in its own row, lapsed a minute after that instant
//! - `packed`: tombstones in chunks of 64, lapsed at the same time
//!
//! It prints a line of JSON: how many bytes each takes in the database, and how many of them are the outcome.
//!
//! Invariants:
//! - The engine's own code writes the rows, in the order in which random ids come.
//! - The counts that the layer keeps of its rows are not updated. The object counts its rows when it starts, as after a
//!   crash.

use rusqlite::Connection;
use semel_core::id::RequestId;
use semel_core::problem::Executed;
use semel_core::server::storage::record::{LatestDeadline, Record, State, TombstoneKind};
use semel_core::server::storage::sql::{Ended, Rollback, Row};
use semel_core::server::storage::tombstones;
use semel_core::server::{Sql, SqlError, Value, storage::rows};
use semel_support::database::{DATABASE_BYTES, bytes_of, query};
use semel_support::uuid;
use serde_json::json;
use std::error::Error;
use std::path::{Path, PathBuf};

/// The packed tombstones in a row, as if a client acknowledged so many at once.
const CHUNK: usize = 64;

/// The file, without a server. Every statement is in the one transaction that `main` has opened.
struct File(Connection);

impl Sql for File {
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        query(&self.0, statement, arguments).map_err(|error| SqlError(error.to_string()))
    }

    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError> {
        self.exec(statement, arguments).map(|_| self.0.changes())
    }

    fn transaction(&self, _: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        Err(SqlError("a transaction is open".to_owned()))
    }

    fn database_bytes(&self) -> Result<u64, SqlError> {
        self.exec(DATABASE_BYTES, &[]).map(|rows| bytes_of(&rows))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, what, count, at_s] = arguments.as_slice() else {
        return Err("usage: crowd FOLDER records|tombstones|packed COUNT AT_S".into());
    };
    let (count, at_s) = (count.parse::<i64>()?, at_s.parse::<i64>()?);
    let sql = File(Connection::open(fullest(Path::new(folder))?)?);
    sql.0.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -500000; BEGIN IMMEDIATE").map_err(text)?;
    let before = sql.database_bytes().map_err(text)?;
    let first =
        rows::page(&sql, rows::ABOVE_ALL, 1).map_err(text)?.into_iter().next().ok_or("there is no record to go by")?.0;
    let like = rows::find(&sql, &first).map_err(text)?.ok_or("the first record is gone")?;
    let model = Record {
        first_sent_s: Some(at_s),
        at_ms: at_s * 1000,
        deadline: LatestDeadline::of(Some(at_s * 1000 + 30_000)),
        ..like
    };
    fill(&sql, &model, what, count)?;
    let bytes = (sql.database_bytes().map_err(text)? - before) as f64 / count as f64;
    let outcome = match (what.as_str(), &model.state) {
        ("records", State::Executed(_, outcome)) => 3 + outcome.headers.to_lines().len() + outcome.body.len(),
        _ => 0,
    };
    sql.0.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").map_err(text)?;
    println!("{}", json!({ "bytes": bytes, "outcome": outcome }));
    Ok(())
}

fn fill(sql: &File, model: &Record, what: &str, count: i64) -> Result<(), String> {
    let ids = (0..count).map(|n| RequestId::new(uuid(n)).map_err(|error| format!("{error:?}")));
    let kind = TombstoneKind::Acknowledged;
    let lapses_ms = model.at_ms + 60_000;
    let state = State::Tombstone { kind, executed: Executed::Yes, lapses_ms };
    let tombstone = Record { state, ..model.clone() };
    match what {
        "records" => ids.into_iter().try_for_each(|id| rows::put(sql, &id?, model).map_err(text)),
        "tombstones" => ids.into_iter().try_for_each(|id| rows::put(sql, &id?, &tombstone).map_err(text)),
        "packed" => {
            let packed = ids.map(|id| tombstone.packed(&id?, model.at_ms).ok_or_else(|| "not to be packed".to_owned()));
            let packed = packed.collect::<Result<Vec<_>, String>>()?;
            let mut chunks = packed.chunks(CHUNK);
            chunks.try_for_each(|chunk| {
                tombstones::put_chunk(sql, &model.principal, &chunk.iter().collect(), model.at_ms)
                    .map(|_| ())
                    .map_err(text)
            })
        }
        _ => Err("it is records, tombstones or packed".into()),
    }
}

/// The SQLite file below a folder with the most records.
fn fullest(folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sqlite") {
                let count = "SELECT count(*) FROM semel_records";
                let count = Connection::open(&path)?.query_row(count, [], |row| row.get::<_, i64>(0));
                files.extend(count.ok().map(|count| (count, path)));
            }
        }
    }
    Ok(files.into_iter().max().ok_or("no file has records")?.1)
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}
