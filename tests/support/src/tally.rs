//! A handler whose effects can be counted, and that fails on demand.
//!
//! Every change writes a row before it looks at its path, so that whatever fails has something to undo.

use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, SqlError};

/// The handler.
#[derive(Default, Clone, Copy)]
pub struct Tally;

impl Handler for Tally {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _: &Method, path: &Path) -> KeyRule {
        match path.segments().first().copied() {
            Some("unhandled") => KeyRule::Unhandled,
            Some("ruled") => KeyRule::Key("ruled".to_owned()),
            _ => KeyRule::Any,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _: i64) -> Result<(), SqlError> {
        sql.exec("CREATE TABLE tally (n INTEGER PRIMARY KEY, path TEXT NOT NULL) STRICT", &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let path = request.path.with_query();
        context.sql.exec("INSERT INTO tally (path) VALUES (?1)", &[path.into()])?;
        let segments = request.path.segments();
        let argument = segments.get(1).and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
        let answer =
            |status: usize, headers: Headers, body: Vec<u8>| Ok(Response { status: status as u16, headers, body });
        match segments.first().copied().unwrap_or_default() {
            "fail" => Err(Failure::Other("asked to fail".to_owned())),
            "bad-sql" => context
                .sql
                .exec("SELECT nothing FROM nowhere", &[])
                .map(|_| Response::json(200, ""))
                .map_err(Failure::Sql),
            "nowhere" => Err(Failure::NotFound),
            "status" => answer(argument, Headers::new(), Vec::new()),
            "body-and-status" => answer(argument, Headers::new(), b"x".to_vec()),
            "large" => answer(200, Headers::new(), vec![b'x'; argument]),
            "binary" => answer(200, Headers::new(), vec![0xff; argument]),
            "large-header" => answer(200, Headers::from_iter([("x-large", "x".repeat(argument))]), Vec::new()),
            "many-headers" => answer(200, (0..argument).map(|n| ("x-n", n.to_string())).collect(), Vec::new()),
            "header" => answer(
                200,
                Headers::from_iter([(
                    segments.get(1).copied().unwrap_or_default(),
                    segments.get(2).copied().unwrap_or_default(),
                )]),
                Vec::new(),
            ),
            "headers" => answer(
                201,
                Headers::from_iter([
                    ("x-twice", "one"),
                    ("x-twice", "two"),
                    ("x-empty", ""),
                    ("connection", "x-hop"),
                    ("connection", "x-hop-too"),
                    ("x-hop", "1"),
                    ("x-hop-too", "1"),
                    ("set-cookie", "a=b"),
                    ("date", "now"),
                    ("server-timing", "x"),
                    ("semel-status", "forged"),
                    ("idempotent-replayed", "forged"),
                    ("access-control-allow-origin", "evil"),
                    ("keep-alive", "1"),
                    ("transfer-encoding", "chunked"),
                    ("content-length", "5"),
                    ("cache-control", "max-age=1"),
                ]),
                b"\x00\xffbinary".to_vec(),
            ),
            // Different at each run, so that a replay can't be mistaken for another run.
            _ => answer(
                200,
                Headers::from_iter([("x-now", context.now_ms.to_string())]),
                format!("at {}", context.now_ms).into_bytes(),
            ),
        }
    }
}
