//! A handler whose effects can be counted, and that fails when told to.
//!
//! Invariants:
//! - For every request, it first writes an effect: one row with the request's id, or with its place in a session.
//! - Its answer to `/count` is the number of effects, so an effect that happened twice shows in the outcome.

use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::storage::sql::{SqlError, atomically};
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, Value};
use std::cell::Cell;

/// What goes wrong, whatever the request. Unlike a path, it does not change the fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// The handler gives up after it has written.
    Fails,
    /// A statement of the handler fails after it has written.
    BadSql,
    /// The handler answers 500 after it has written.
    Answers500,
    /// The handler panics after it has written.
    Panics,
}

/// The handler.
#[derive(Debug, Default)]
pub struct Counter {
    /// How often it was called.
    pub calls: Cell<u64>,
    /// What goes wrong.
    pub trouble: Cell<Trouble>,
}

impl Handler for Counter {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        match (method, path.segments().as_slice()) {
            (_, ["unhandled", ..]) | (Method::Delete, ["count"]) => KeyRule::Unhandled,
            (_, ["keyed", key, ..]) => KeyRule::Key((*key).to_owned()),
            (_, ["keyless", ..]) => KeyRule::Failed,
            _ => KeyRule::Any,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec("CREATE TABLE effects (number INTEGER PRIMARY KEY, id TEXT NOT NULL) STRICT", &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        self.calls.set(self.calls.get() + 1);
        let id = id_of(&request.headers);
        context.sql.exec("INSERT INTO effects (id) VALUES (?1)", &[id.into()])?;
        match self.trouble.get() {
            Trouble::None => {}
            Trouble::Fails => return Err(Failure::Other("told to fail".to_owned())),
            Trouble::BadSql => drop(context.sql.exec("INSERT INTO nowhere VALUES (1)", &[])?),
            Trouble::Answers500 => return Ok(plain(500, "")),
            // Without the hook that prints a panic, because this one is intended.
            Trouble::Panics => std::panic::resume_unwind(Box::new("told to panic")),
        }
        let segments = request.path.segments();
        let number = |index: usize| segments.get(index).and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
        match segments.first().copied().unwrap_or_default() {
            "not-found" => Err(Failure::NotFound),
            "panics" => std::panic::resume_unwind(Box::new("asked to panic")),
            "status" => Ok(plain(number(1) as u16, segments.get(2).copied().unwrap_or_default())),
            "large" => Ok(plain(200, "x".repeat(number(1)))),
            "large-header" => Ok(with_header("x-large", "x".repeat(number(1)))),
            "bad-header-value" => Ok(with_header("x-bad", "a\r\nx-injected: b")),
            "bad-header-name" => Ok(with_header("x bad", "a")),
            "headers" => Ok(all_headers(request)),
            "echo" => Ok(plain(200, request.body.clone())),
            "nested" => nested(context),
            "now" => Ok(plain(200, context.now_ms.to_string())),
            "told" => Ok(plain(200, request.headers.get("semel-principal").unwrap_or_default())),
            "who" => Ok(plain(200, format!("{} {}", context.key.as_str(), context.principal.as_str()))),
            _ => Ok(Response::json(200, format!("{{\"count\":{}}}", count(context.sql)?))),
        }
    }
}

/// The request's id, or its place in a session without the acknowledgement.
fn id_of(headers: &Headers) -> String {
    let place = headers.get("semel-session").map(|place| place.split(";ack=").next().unwrap_or_default());
    headers.get("idempotency-key").or(place).unwrap_or_default().replace('"', "")
}

fn count(sql: &dyn Sql) -> Result<i64, SqlError> {
    let rows = sql.exec("SELECT count(*) FROM effects", &[])?;
    Ok(rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(-1))
}

fn plain(status: u16, body: impl Into<Vec<u8>>) -> Response {
    Response { status, headers: Headers::new(), body: body.into() }
}

fn with_header(name: &str, value: impl AsRef<str> + Into<String>) -> Response {
    Response { status: 200, headers: Headers::from_iter([(name, value)]), body: Vec::new() }
}

/// Answers with the headers of the request that begin with `x-answer-`, without that beginning.
fn all_headers(request: &Request) -> Response {
    let answered = request.headers.iter().filter_map(|(name, value)| Some((name.strip_prefix("x-answer-")?, value)));
    Response { status: 201, headers: answered.collect(), body: vec![0, 255, b'\n', 0x80] }
}

/// Writes one effect that is rolled back by itself, and one that is kept.
fn nested(context: &Context<'_>) -> Result<Response, Failure> {
    let insert = || context.sql.exec("INSERT INTO effects (id) VALUES ('nested')", &[]);
    let undone: Result<(), Failure> = atomically(context.sql, || {
        insert()?;
        Err(Failure::NotFound)
    });
    assert_eq!(undone, Err(Failure::NotFound));
    atomically(context.sql, || insert().map_err(Failure::Sql))?;
    Ok(plain(200, count(context.sql)?.to_string()))
}
