//! The tables, with a version.
//!
//! Invariant: an untouched database has none. They come with the first commit, so that asking a key about something
//! leaves no trace.

use super::handler::Handler;
use super::sql::{Sql, SqlError};

/// The version of `schema.sql`.
pub const SCHEMA_VERSION: i64 = 1;

const CREATE: &str = include_str!("schema.sql");

/// The versions of the tables in a database; 0 where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Versions {
    /// Of the engine's tables.
    pub engine: i64,
    /// Of the handler's tables.
    pub handler: i64,
}

impl Versions {
    /// What this build of the engine, with this handler, works on.
    pub fn current<H: Handler>() -> Self {
        Self { engine: SCHEMA_VERSION, handler: H::SCHEMA_VERSION }
    }
}

/// What the database says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meta {
    /// The versions of its tables.
    pub versions: Versions,
    /// The fence, in Unix seconds.
    pub fence_s: i64,
    /// The clock when the fence or a deletion was last written, in Unix ms.
    pub clock_ms: i64,
}

/// Reads the database's row about itself, or what stands for it where there is none.
pub fn meta(sql: &dyn Sql) -> Result<Meta, SqlError> {
    let tables = sql.exec("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'semel_meta' LIMIT 1", &[])?;
    if tables.is_empty() {
        return Ok(Meta::default());
    }
    let rows = sql.exec("SELECT engine_version, handler_version, fence_s, clock_ms FROM semel_meta LIMIT 1", &[])?;
    let number = |column: usize| rows.first().and_then(|row| row.get(column)).and_then(super::sql::Value::as_integer);
    match (number(0), number(1), number(2), number(3)) {
        (Some(engine), Some(handler), Some(fence_s), Some(clock_ms)) => {
            Ok(Meta { versions: Versions { engine, handler }, fence_s, clock_ms })
        }
        _ => Err(SqlError("semel_meta has no readable row".to_owned())),
    }
}

/// Refuses a database that a newer build has written: to guess at it could lose what it protects.
pub fn check<H: Handler>(found: Versions) -> Result<(), SqlError> {
    let known = Versions::current::<H>();
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

/// Makes the engine's tables where there are none. Call it inside the transaction of the request that needs them.
pub fn create(sql: &dyn Sql, found: Versions) -> Result<(), SqlError> {
    if found.engine == SCHEMA_VERSION {
        return Ok(());
    }
    for statement in CREATE.split(";\n\n") {
        sql.exec(statement, &[])?;
    }
    sql.exec("UPDATE semel_meta SET engine_version = ?1", &[SCHEMA_VERSION.into()]).map(|_| ())
}

/// Brings all tables up to date, the handler's too. Call it inside the transaction of the request that needs them.
pub fn migrate<H: Handler>(sql: &dyn Sql, handler: &H, found: Versions) -> Result<(), SqlError> {
    create(sql, found)?;
    if found.handler < H::SCHEMA_VERSION {
        handler.migrate(sql, found.handler)?;
        sql.exec("UPDATE semel_meta SET handler_version = ?1", &[H::SCHEMA_VERSION.into()])?;
    }
    Ok(())
}

/// Writes the fence and the clock, which both only move forward.
pub fn put_fence(sql: &dyn Sql, fence_s: i64, clock_ms: i64) -> Result<(), SqlError> {
    let statement = "UPDATE semel_meta SET fence_s = max(fence_s, ?1), clock_ms = max(clock_ms, ?2)";
    sql.exec(statement, &[fence_s.into(), clock_ms.into()]).map(|_| ())
}
