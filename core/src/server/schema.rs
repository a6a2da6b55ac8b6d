//! The tables, with a version.
//!
//! Invariants:
//! - An untouched database has none. They come with the first commit, so that asking a key about something leaves no trace.
//! - Tables of an older build are brought up to date at the first touch, in one transaction; those of a newer one are refused.

use super::handler::Handler;
use super::sql::{Sql, SqlError, Value, atomically};

/// The version of `schema.sql`.
pub const SCHEMA_VERSION: i64 = 2;

const CREATE: &str = include_str!("schema.sql");
/// What leads from one version to the next, beginning with the first.
const STEPS: &[&str] = &[include_str!("schema_from_1.sql")];

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
    /// What of the fence an administrator has moved, in Unix seconds.
    pub forgotten_s: i64,
    /// The clock when the fence or a deletion was last written, in Unix ms.
    pub clock_ms: i64,
}

/// Reads the database's row about itself, or what stands for it where there is none.
pub fn meta(sql: &dyn Sql) -> Result<Meta, SqlError> {
    let tables = sql.exec("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'semel_meta' LIMIT 1", &[])?;
    if tables.is_empty() {
        return Ok(Meta::default());
    }
    // Whatever columns it has: an older build's has fewer.
    let rows = sql.exec("SELECT * FROM semel_meta LIMIT 1", &[])?;
    let number = |column: usize| rows.first().and_then(|row| row.get(column)).map(Value::as_integer);
    match (number(1), number(2), number(3), number(4), number(5)) {
        (Some(Some(engine)), Some(Some(handler)), Some(Some(fence_s)), Some(Some(clock_ms)), forgotten_s) => {
            let forgotten_s = forgotten_s.unwrap_or(Some(0)).ok_or_else(unreadable)?;
            Ok(Meta { versions: Versions { engine, handler }, fence_s, forgotten_s, clock_ms })
        }
        _ => Err(unreadable()),
    }
}

fn unreadable() -> SqlError {
    SqlError("semel_meta has no readable row".to_owned())
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
    run(sql, CREATE)?;
    put_version(sql)
}

/// Brings tables of an older build up to date, in a transaction of their own. Where there are none, they stay away.
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

/// Writes how far an administrator has moved the fence, and the fence with it. Both only move forward.
pub fn put_forgotten(sql: &dyn Sql, before_s: i64, clock_ms: i64) -> Result<(), SqlError> {
    sql.exec("UPDATE semel_meta SET forgotten_s = max(forgotten_s, ?1)", &[before_s.into()])?;
    put_fence(sql, before_s, clock_ms)
}
