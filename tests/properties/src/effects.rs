//! A handler whose effects are counted, and whose path says what it does.
//!
//! Invariant: whatever the request, the handler first writes an effect: one row with the request's id.

use semel_core::header::Attempt;
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, SqlError};

/// The handler.
pub struct Effects;

/// The paths that it distinguishes. Any other is answered like `/`.
pub const PATHS: &[&str] = &["/", "/refuse", "/fail", "/not-found", "/five-hundred", "/echo", "/unhandled"];

impl Handler for Effects {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _method: &Method, path: &Path) -> KeyRule {
        match path.segments().as_slice() {
            ["unhandled", ..] => KeyRule::Unhandled,
            ["keyed", key, ..] => KeyRule::Key((*key).to_owned()),
            _ => KeyRule::Any,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec("CREATE TABLE effects (number INTEGER PRIMARY KEY, id TEXT NOT NULL) STRICT", &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let id = Attempt::parse(&request.headers, context.now_ms).ok().and_then(|attempt| attempt.id);
        let id = id.map_or(String::new(), |id| id.as_str().to_owned());
        context.sql.exec("INSERT INTO effects (id) VALUES (?1)", &[id.into()])?;
        let plain = |status: u16, body: Vec<u8>| Ok(Response { status, headers: Headers::new(), body });
        match request.path.segments().first().copied().unwrap_or_default() {
            "refuse" => plain(409, b"no".to_vec()),
            "fail" => Err(Failure::Other("told to fail".to_owned())),
            "not-found" => Err(Failure::NotFound),
            "five-hundred" => plain(500, Vec::new()),
            "echo" => plain(200, request.body.clone()),
            _ => plain(200, b"done".to_vec()),
        }
    }
}
