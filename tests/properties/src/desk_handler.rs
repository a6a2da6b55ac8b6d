//! A handler whose answers show what came before, and whose path says what it does.
//!
//! Invariants:
//! - Whatever the request, the handler first writes an effect. A request to its tally adds one to that instead, and makes no
//!   statement of its own.
//! - It depends on its tables, its clock and its request alone.

use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::effects::EFFECTS_PER_REQUEST_MAX;
use semel_core::server::handler::Outgoing;
use semel_core::server::storage::sql::atomically;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, SqlError, State, Value};

/// The handler.
#[derive(Debug, Default)]
pub struct Book;

/// The payload of the panics that a path asks for.
pub struct Asked;

/// The paths that succeed, sooner or later.
pub const PATHS: &[&str] = &[
    "/count",
    "/count",
    "/count",
    "/echo",
    "/rows",
    "/large",
    "/tagged",
    "/long-tag",
    "/refuses",
    "/peek",
    "/records",
    "/now",
    "/flaky",
    "/swallows",
    "/tally",
    "/tally/guarded",
    "/tally/overdrawn",
    "/sends/one",
    "/sends/one",
    "/sends/some",
    "/sends/tally",
    "/sends/caught",
];

/// The paths that roll back everything or a part.
pub const UNDOING: &[&str] = &[
    "/nested",
    "/fails",
    "/not-found",
    "/five-hundred",
    "/bad-header",
    "/flaky",
    "/tally/fails",
    "/tally/nested",
    "/tally/overdrawn",
    "/sends/fails",
    "/sends/many",
    "/sends/nested",
];

/// A state that the handler keeps in memory: until the whole commit has run if `IS_KEPT`, or until the request is over. The table
/// may refuse it.
#[derive(Clone)]
struct Tally<const IS_KEPT: bool>(i64);

impl<const IS_KEPT: bool> Tally<IS_KEPT> {
    const ROW: i64 = if IS_KEPT { 1 } else { 2 };
}

impl<const IS_KEPT: bool> State for Tally<IS_KEPT> {
    const IS_KEPT: bool = IS_KEPT;

    fn load(sql: &dyn Sql) -> Result<Self, SqlError> {
        let rows = sql.exec("SELECT value FROM tally WHERE row = ?1", &[Self::ROW.into()])?;
        Ok(Self(rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(0)))
    }

    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        sql.run("INSERT OR REPLACE INTO tally VALUES (?1, ?2)", &[Self::ROW.into(), self.0.into()]).map(|_| ())
    }
}

impl Book {
    /// Adds to the tally, and answers with its value before.
    fn tally(context: &Context<'_>, rest: &[&str]) -> Result<Response, Failure> {
        let add = |more: i64| {
            let Tally::<true>(before) = context.state()?;
            context.put(Tally::<true>(before + more))?;
            Ok::<_, SqlError>(before)
        };
        let before = add(1)?;
        match rest {
            ["guarded"] => {
                let Tally::<false>(before) = context.state()?;
                context.put(Tally::<false>(before + 1))?;
            }
            ["overdrawn"] => context.put(Tally::<false>(-1))?,
            ["fails"] => return Err(Failure::Other("told to fail".to_owned())),
            ["nested"] => {
                let undone: Result<(), Failure> = atomically(context.sql, || {
                    add(100)?;
                    Err(Failure::NotFound)
                });
                drop(undone);
                atomically(context.sql, || add(10).map_err(Failure::Sql))?;
            }
            _ => {}
        }
        Ok(Response { status: 200, headers: Headers::new(), body: before.to_string().into() })
    }
}

impl Book {
    /// Emits or calls something.
    fn sends(context: &mut Context<'_>, rest: &[&str], id: &str) -> Result<Response, Failure> {
        let to_key = |context: &mut Context<'_>, key| context.emit(key, "/count", Outgoing::json(id));
        match rest {
            ["some"] => {
                to_key(context, "counters/2")?;
                context.call("https://outside.example/pay?a=b", Outgoing::json(id))?;
                to_key(context, "counters/3")?;
                to_key(context, "counters/2")?;
            }
            ["tally"] => {
                Self::tally(context, &[])?;
                to_key(context, "counters/3")?;
            }
            ["caught"] => {
                drop(context.emit("counters/2", "/semel/v1/health", Outgoing::json(id)));
                to_key(context, "counters/2")?;
            }
            ["many"] => (0..=EFFECTS_PER_REQUEST_MAX).try_for_each(|_| to_key(context, "counters/2"))?,
            ["nested"] => {
                let sql = context.sql;
                let undone: Result<(), Failure> = atomically(sql, || {
                    to_key(context, "counters/2")?;
                    Err(Failure::NotFound)
                });
                drop(undone);
                to_key(context, "counters/2")?;
            }
            _ => to_key(context, "counters/2")?,
        }
        if rest == ["fails"] {
            return Err(Failure::Other("told to fail".to_owned()));
        }
        Ok(Response { status: 202, headers: Headers::new(), body: Vec::new() })
    }
}

impl Handler for Book {
    const SCHEMA_VERSION: i64 = 1;
    const EMITS: bool = true;

    fn key(&self, _method: &Method, path: &Path) -> KeyRule {
        if path.segments().first() == Some(&"unhandled") { KeyRule::Unhandled } else { KeyRule::Any }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec("CREATE TABLE effects (number INTEGER PRIMARY KEY, id TEXT NOT NULL) STRICT", &[])?;
        sql.exec("CREATE TABLE tally (row INTEGER PRIMARY KEY, value INTEGER NOT NULL CHECK (value >= 0)) STRICT", &[])
            .map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        if let ["tally", rest @ ..] = request.path.segments().as_slice() {
            return Self::tally(context, rest);
        }
        let id = ["idempotency-key", "semel-session"].into_iter().find_map(|name| request.headers.get(name));
        if let ["sends", rest @ ..] = request.path.segments().as_slice() {
            return Self::sends(context, rest, id.unwrap_or_default());
        }
        let sql = context.sql;
        let insert = |id: &str| sql.exec("INSERT INTO effects (id) VALUES (?1)", &[id.into()]).map(|_| ());
        let number = |statement: &str| {
            let rows = sql.exec(statement, &[])?;
            Ok::<_, SqlError>(rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(-1))
        };
        insert(id.unwrap_or_default())?;
        let (mut status, mut headers) = (200, Headers::new());
        let body = match request.path.segments().first().copied().unwrap_or_default() {
            "echo" => request.body.clone(),
            "rows" => {
                (0..3).try_for_each(|_| insert("row"))?;
                number("SELECT sum(number) FROM effects WHERE id = 'row'")?.to_string().into()
            }
            "large" => vec![b'x'; 100_000],
            "tagged" => {
                headers.append("etag", format!("\"{}\"", number("SELECT count(*) FROM effects")?));
                Vec::new()
            }
            "long-tag" => {
                headers.append("x-long", "y".repeat(300));
                Vec::new()
            }
            "refuses" => {
                status = 409;
                b"no".to_vec()
            }
            // A request that reads the engine's tables must find there what came before.
            "peek" => {
                number("SELECT count(*) + total(at_ms) + total(length(body)) FROM semel_records")?.to_string().into()
            }
            "records" => {
                number("SELECT count(*) + total(seq) + total(length(body)) FROM semel_places")?.to_string().into()
            }
            "now" => context.now_ms.to_string().into(),
            "flaky" if context.now_ms / 1_000 % 2 == 1 => return Err(Failure::Other("told to fail".to_owned())),
            "swallows" => {
                drop(sql.exec("INSERT INTO nowhere VALUES (1)", &[]));
                Vec::new()
            }
            "nested" => {
                let undone: Result<(), Failure> = atomically(sql, || {
                    insert("undone")?;
                    Err(Failure::NotFound)
                });
                atomically(sql, || insert("nested").map_err(Failure::Sql))?;
                format!("{undone:?}").into()
            }
            "fails" => return Err(Failure::Other("told to fail".to_owned())),
            "not-found" => return Err(Failure::NotFound),
            "five-hundred" => {
                status = 500;
                Vec::new()
            }
            "bad-header" => {
                headers.append("x-bad", "a\r\nb");
                Vec::new()
            }
            // `resume_unwind` skips the hook that prints the panic, because this panic is intended.
            "panics" => std::panic::resume_unwind(Box::new(Asked)),
            _ => number("SELECT count(*) FROM effects")?.to_string().into(),
        };
        Ok(Response { status, headers, body })
    }
}
