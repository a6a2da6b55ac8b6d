//! Looks through the SQLite files of a stopped server. `inspect FOLDER` prints a JSON object in a line for each file,
//! with its `file` and what was `found`:
//!
//! - `integrity`: what `PRAGMA integrity_check` says; `ok` if all is well
//! - `unacknowledged`: the number of records that nobody has acknowledged
//! - `account`: `[balance, entries]` of the ledger; `null` in files without a ledger
//! - `kept`: `epoch` is the highest epoch that the key ever gave; `sessions` has for each session the numbers of places
//!   and of outcomes
//!
//! Invariants:
//! - No file is left out. A file that can't be read has a line with the error as its integrity.
//! - What a killed server left in a file's log counts, because SQLite takes it over when the file is opened.

use rusqlite::{Connection, OptionalExtension};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// `semel_records.state` of records that have their outcome, were poisoned, or are suspects. See the engine's schema.
const UNACKNOWLEDGED: &str = "SELECT count(*) FROM semel_records WHERE state IN (1, 2, 4)";
const ACCOUNT: &str = "SELECT balance, entries FROM account";
const EPOCH: &str = "SELECT epoch FROM semel_meta";
const SESSIONS: &str = "SELECT count(seq), count(fingerprint) FROM semel_sessions \
     LEFT JOIN semel_places ON session = number GROUP BY number";
const HAS_TABLE: &str = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?1";

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| std::io::Error::other("usage: inspect FOLDER"))?;
    let mut files = Vec::new();
    find(Path::new(&folder), &mut files)?;
    for file in files {
        println!("{}", report(&file));
    }
    Ok(())
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "sqlite") {
            files.push(path);
        }
    }
    Ok(())
}

fn report(file: &Path) -> Value {
    let found = look(file)
        .unwrap_or_else(|error| json!({ "integrity": error.to_string(), "unacknowledged": 0, "account": null, "kept": { "epoch": 0, "sessions": [] } }));
    json!({ "file": file.to_string_lossy(), "found": found })
}

fn look(file: &Path) -> rusqlite::Result<Value> {
    let database = Connection::open(file)?;
    let integrity: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    let has = |table: &str| database.query_row(HAS_TABLE, [table], |row| row.get::<_, i64>(0)).map(|count| count > 0);
    let unacknowledged: i64 =
        if has("semel_records")? { database.query_row(UNACKNOWLEDGED, [], |row| row.get(0))? } else { 0 };
    let account: Option<[i64; 2]> = if has("account")? {
        database.query_row(ACCOUNT, [], |row| Ok([row.get(0)?, row.get(1)?])).optional()?
    } else {
        None
    };
    let mut sessions: Vec<[i64; 2]> = Vec::new();
    let mut epoch = 0;
    if has("semel_sessions")? {
        epoch = database.query_row(EPOCH, [], |row| row.get(0)).optional()?.unwrap_or(0);
        let mut statement = database.prepare(SESSIONS)?;
        sessions = statement.query_map([], |row| Ok([row.get(0)?, row.get(1)?]))?.collect::<rusqlite::Result<_>>()?;
    }
    let sizes = json!({ "epoch": epoch, "sessions": sessions });
    Ok(json!({ "integrity": integrity, "unacknowledged": unacknowledged, "account": account, "kept": sizes }))
}
