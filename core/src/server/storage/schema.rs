//! The engine's tables, with their version.
//!
//! Invariants:
//! - An untouched database has no tables. The first commit makes them, so a lookup at a new key leaves no trace.
//! - Tables of an older build are upgraded when the object first touches them, in one transaction. Tables of a newer build are refused.

use super::sql::{Sql, SqlError, Value, atomically};
use crate::id::Key;
use crate::rules::{Rule, holds};

/// The version of `schema.sql`.
pub const SCHEMA_VERSION: i64 = 5;

/// Stored instead of the version of the handler's tables once all of the key was deleted, until a row other than the deletion's own comes.
pub const DELETED: i64 = -1;

const CREATE: &str = include_str!("schema.sql");
/// The statements that lead from each version to the next, from version 1 on.
const STEPS: &[&str] = &[
    include_str!("schema_from_1.sql"),
    include_str!("schema_from_2.sql"),
    include_str!("schema_from_3.sql"),
    include_str!("schema_from_4.sql"),
];

/// The versions of the tables in a database; 0 if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Versions {
    /// The version of the engine's tables.
    pub engine: i64,
    /// The version of the handler's tables; or [`DELETED`].
    pub handler: i64,
}

impl Versions {
    /// The versions that this build works on, with a handler whose tables have version `handler`.
    pub fn current(handler: i64) -> Self {
        Self { engine: SCHEMA_VERSION, handler }
    }
}

/// The database's row about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Meta {
    /// The versions of its tables.
    pub versions: Versions,
    /// The fence, in Unix seconds.
    pub fence_s: i64,
    /// How far an administrator has moved the fence, in Unix seconds.
    pub forgotten_s: i64,
    /// The key's clock when the fence or a deletion was last written, in Unix ms.
    pub clock_ms: i64,
    /// Whether the key's name is stored, which the object needs when something other than a request wakes it.
    pub has_key: bool,
    /// Whether the registry of keys knows this key.
    pub is_registered: bool,
    /// The highest epoch that any session of the key ever got.
    pub epoch: i64,
    /// Up to which first-sent the key was told to forget, in Unix seconds. It may be ahead of the key's clock.
    pub forgets_s: i64,
}

/// Reads the database's row about itself, or the default if there is none. Fails if the row can't be read.
pub fn meta(sql: &dyn Sql) -> Result<Meta, SqlError> {
    let tables = sql.exec("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'semel_meta' LIMIT 1", &[])?;
    if tables.is_empty() {
        return Ok(Meta::default());
    }
    // `SELECT *`, because the row of an older build has fewer columns.
    let rows = sql.exec("SELECT * FROM semel_meta LIMIT 1", &[])?;
    let number = |column: usize| rows.first().and_then(|row| row.get(column)).map(Value::as_integer);
    match (number(1), number(2), number(3), number(4), number(5)) {
        (Some(Some(engine)), Some(Some(handler)), Some(Some(fence_s)), Some(Some(clock_ms)), forgotten_s) => {
            let forgotten_s = forgotten_s.unwrap_or(Some(0)).ok_or_else(unreadable)?;
            let has_key = matches!(rows.first().and_then(|row| row.get(6)), Some(Value::Text(_)));
            // If this is unreadable, the key registers once more, which does no harm.
            let is_registered = number(7).flatten() == Some(1);
            // An older build gave no epochs. An epoch that is there but can't be read must not start again at 0.
            let epoch = number(8).unwrap_or(Some(0)).ok_or_else(unreadable)?;
            let forgets_s = number(9).unwrap_or(Some(0)).ok_or_else(unreadable)?;
            let versions = Versions { engine, handler };
            Ok(Meta { versions, fence_s, forgotten_s, clock_ms, has_key, is_registered, epoch, forgets_s })
        }
        _ => Err(unreadable()),
    }
}

fn unreadable() -> SqlError {
    SqlError("semel_meta has no readable row".to_owned())
}

/// Refuses a database that a newer build has written: guessing at its rows could lose what it protects.
pub(in crate::server) fn check(found: Versions, known: Versions) -> Result<(), SqlError> {
    if found.engine > known.engine {
        return Err(SqlError(format!(
            "the engine's tables have version {}, this build knows {}",
            found.engine, known.engine
        )));
    }
    if found.handler > known.handler {
        return Err(SqlError(format!(
            "the handler's tables have version {}, this build knows {}",
            found.handler, known.handler
        )));
    }
    Ok(())
}

/// Whether a table is one of those that every database of the engine has.
pub(in crate::server) fn makes(table: &str) -> bool {
    CREATE.contains(&format!("TABLE {table} ("))
}

/// Makes the engine's tables if there are none. Call it inside the transaction of the request that needs them.
pub fn create(sql: &dyn Sql, found: Versions) -> Result<(), SqlError> {
    if found.engine == SCHEMA_VERSION {
        return Ok(());
    }
    run(sql, CREATE)?;
    put_version(sql)
}

/// Upgrades tables of an older build in their own transaction, and returns the versions from then on. Makes no tables where there are none.
pub fn upgrade(sql: &dyn Sql, found: Versions) -> Result<Versions, SqlError> {
    let done = usize::try_from(found.engine).unwrap_or_default();
    if done == 0 || found.engine == SCHEMA_VERSION {
        return Ok(found);
    }
    atomically(sql, || {
        for step in STEPS.iter().skip(done - 1) {
            run(sql, step)?;
        }
        put_version(sql)
    })?;
    Ok(Versions { engine: SCHEMA_VERSION, ..found })
}

fn run(sql: &dyn Sql, statements: &str) -> Result<(), SqlError> {
    statements.split(";\n\n").try_for_each(|statement| sql.exec(statement, &[]).map(|_| ()))
}

fn put_version(sql: &dyn Sql) -> Result<(), SqlError> {
    sql.exec("UPDATE semel_meta SET engine_version = ?1", &[SCHEMA_VERSION.into()]).map(|_| ())
}

/// Stores the key's name.
pub fn put_key(sql: &dyn Sql, key: &Key) -> Result<(), SqlError> {
    sql.exec("UPDATE semel_meta SET key = ?1", &[key.as_str().into()]).map(|_| ())
}

/// Reads the key's name; `None` if it is not stored.
pub fn key(sql: &dyn Sql) -> Result<Option<Key>, SqlError> {
    let rows = sql.exec("SELECT key FROM semel_meta LIMIT 1", &[])?;
    let key = rows.into_iter().next().and_then(|row| row.into_iter().next()).and_then(Value::into_text);
    Ok(key.and_then(|key| Key::new(key).ok()))
}

/// Stores whether the registry of keys may know this key.
pub fn put_registered(sql: &dyn Sql, is_registered: bool) -> Result<(), SqlError> {
    sql.exec("UPDATE semel_meta SET is_registered = ?1", &[i64::from(is_registered).into()]).map(|_| ())
}

/// Deletes the key's name, which may identify a person. The next commit stores it again.
pub fn drop_key(sql: &dyn Sql) -> Result<(), SqlError> {
    sql.exec("UPDATE semel_meta SET is_registered = 0, key = NULL", &[]).map(|_| ())
}

/// Stores the fence and the clock. Neither goes back.
pub fn put_fence(sql: &dyn Sql, fence_s: i64, clock_ms: i64) -> Result<(), SqlError> {
    let statement = "UPDATE semel_meta SET fence_s = max(fence_s, ?1), clock_ms = max(clock_ms, ?2)";
    sql.exec(statement, &[fence_s.into(), clock_ms.into()]).map(|_| ())
}

/// Stores how far an administrator has moved the fence, and the fence itself. Neither goes back.
pub fn put_forgotten(sql: &dyn Sql, forgotten_s: i64, fence_s: i64, clock_ms: i64) -> Result<(), SqlError> {
    if !holds(Rule::ForgottenDurable) {
        return Ok(());
    }
    sql.exec("UPDATE semel_meta SET forgotten_s = max(forgotten_s, ?1)", &[forgotten_s.into()])?;
    put_fence(sql, fence_s, clock_ms)
}

/// Stores up to which first-sent the key was told to forget. It does not go back.
pub fn put_forgets(sql: &dyn Sql, forgets_s: i64) -> Result<(), SqlError> {
    sql.exec("UPDATE semel_meta SET forgets_s = max(forgets_s, ?1)", &[forgets_s.into()]).map(|_| ())
}

/// Stores the highest epoch ever given.
pub fn put_epoch(sql: &dyn Sql, epoch: i64) -> Result<(), SqlError> {
    sql.exec("UPDATE semel_meta SET epoch = ?1", &[epoch.into()]).map(|_| ())
}

/// Stores the version of the handler's tables: 0 for none, or [`DELETED`].
pub fn put_handler_version(sql: &dyn Sql, version: i64) -> Result<(), SqlError> {
    sql.exec("UPDATE semel_meta SET handler_version = ?1", &[version.into()]).map(|_| ())
}
