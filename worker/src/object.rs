//! The object's side: the engine of one key over the object's storage.

use crate::storage::{ObjectSql, console_error};
use crate::{settings, wire};
use js_sys::Array;
use semel_core::header;
use semel_core::id::{Invalid, Key, Principal};
use semel_core::message::{Headers, Method, Response};
use semel_core::server::engine::Arrival;
use semel_core::server::sql::{Sql, SqlError, atomically};
use semel_core::server::suspicion;
use semel_core::server::{Answer, Context, Cors, Engine, Failure, Handler};
use wasm_bindgen::JsValue;

/// Why the object is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An attempt arrived.
    Handle,
    /// An attempt crashed.
    Crashed,
    /// A suspect is about to run.
    Start,
}

/// The engine of one key.
pub struct Object<H> {
    engine: Engine<H>,
    sql: ObjectSql,
    cors: Cors,
}

impl<H: Handler> Object<H> {
    /// An engine over the `ctx.storage` of an object.
    pub fn new(handler: H, storage: JsValue, settings: &str) -> Result<Self, JsValue> {
        let (config, cors) = settings::read(settings)?;
        Ok(Self { engine: Engine::new(handler, config), sql: ObjectSql::new(storage), cors })
    }

    /// Answers an attempt. Key and principal are in the headers that the router has set.
    pub fn answer(
        &mut self,
        purpose: Purpose,
        method: &str,
        url: (&str, &str),
        headers: &str,
        body: Option<Vec<u8>>,
        now_ms: f64,
    ) -> Array {
        let wall_ms = wire::instant_ms(now_ms);
        let body_too_large = body.is_none();
        let lines = headers;
        let answer = match routed(method, url, headers, body.unwrap_or_default()) {
            Ok((request, key, principal)) => {
                let arrival = Arrival { key: &key, principal: &principal, request: &request, body_too_large, wall_ms };
                match purpose {
                    Purpose::Handle => self.engine.handle(&self.sql, arrival),
                    Purpose::Crashed => self.engine.crashed(&self.sql, arrival),
                    Purpose::Start => self.engine.start(&self.sql, arrival),
                }
            }
            Err(Invalid(reason)) => {
                Answer::unavailable("the object was not asked by its router").with_log(reason).stamped(wall_ms, None)
            }
        };
        wire::stamped(answer, &self.cors, &Headers::from_lines(lines))
    }

    /// `[records, tombstones]` of the key; undefined where its storage can't be read.
    pub fn count(&mut self, now_ms: f64) -> Option<Array> {
        let ended = self.engine.count(&self.sql, wire::instant_ms(now_ms));
        let count = ended.inspect_err(|error| console_error(&format!("semel: nothing is counted: {error}"))).ok()?;
        Some(Array::of2(&JsValue::from(count.records as f64), &JsValue::from(count.tombstones as f64)))
    }
}

/// How long an object is young, in ms.
pub const YOUNG_MS: f64 = suspicion::YOUNG_MS as f64;

/// Whether an attempt may have ended the object that ran before. The times are the wall clock's, in Unix ms.
pub fn is_suspect(method: &str, pathname: &str, headers: &str, started_ms: f64, now_ms: f64) -> bool {
    let (started_ms, now_ms) = (wire::instant_ms(started_ms), wire::instant_ms(now_ms));
    suspicion::is_suspect(&Method::new(method), pathname, &Headers::from_lines(headers), started_ms, now_ms)
}

fn routed(
    method: &str,
    url: (&str, &str),
    headers: &str,
    body: Vec<u8>,
) -> Result<(semel_core::message::Request, Key, Principal), Invalid> {
    let request = wire::request(method, url, headers, body)?;
    let key = header::key(&request.headers)?.ok_or_else(|| Invalid::new("no Semel-Key"))?;
    let principal = header::principal(&request.headers)?.ok_or_else(|| Invalid::new("no Semel-Principal"))?;
    Ok((request, key, principal))
}

/// Has panics say where they happened: the exception that JavaScript sees is only `unreachable`.
pub fn log_panics() {
    // In one line, whatever the message holds.
    std::panic::set_hook(Box::new(|panic| console_error(&format!("semel: {}", panic.to_string().escape_debug()))));
}

/// A handler without the engine: each request runs, as often as it is sent. For comparison only.
pub struct Plain<H> {
    handler: H,
    sql: ObjectSql,
    is_migrated: bool,
}

impl<H: Handler> Plain<H> {
    /// A handler over the `ctx.storage` of an object.
    pub fn new(handler: H, storage: JsValue) -> Self {
        Self { handler, sql: ObjectSql::new(storage), is_migrated: false }
    }

    /// Runs the handler in a transaction.
    pub fn handle(&mut self, method: &str, pathname: &str, headers: &str, body: Vec<u8>, now_ms: f64) -> Array {
        let ended = wire::request(method, (pathname, ""), headers, body).map_err(|Invalid(reason)| reason).and_then(
            |request| {
                let key = Key::new(request.path.joined()).map_err(|Invalid(reason)| reason)?;
                let principal = Principal::default();
                let mut context =
                    Context { sql: &self.sql, now_ms: wire::instant_ms(now_ms), key: &key, principal: &principal };
                atomically(&self.sql, || {
                    if !self.is_migrated && !has_tables(&self.sql)? {
                        self.handler.migrate(&self.sql, 0)?;
                    }
                    self.handler.handle(&mut context, &request)
                })
                .map_err(|failure: Failure| format!("{failure:?}"))
            },
        );
        self.is_migrated |= ended.is_ok();
        wire::answer(&match ended {
            Ok(Response { status, headers, body }) => Answer { status, headers, body, log: None },
            Err(reason) => Answer { status: 500, headers: Headers::new(), body: Vec::new(), log: Some(reason) },
        })
    }
}

/// Whether there are tables, but for those of the platform and the demonstration's log.
fn has_tables(sql: &ObjectSql) -> Result<bool, SqlError> {
    let statement =
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 4) NOT IN ('_cf_', 'lab_') LIMIT 1";
    sql.exec(statement, &[]).map(|rows| !rows.is_empty())
}
