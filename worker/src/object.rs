//! The engine of one key over the storage of the key's object, as JavaScript calls it.

use crate::storage::{ObjectSql, console_log};
use crate::{settings, wire};
use js_sys::Array;
use semel_core::header;
use semel_core::id::{Invalid, Key, Principal, RequestId};
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::server::attempt::suspicion::{self, Suspects};
use semel_core::server::engine::Arrival;
use semel_core::server::engine::remote::{Call, Ended};
use semel_core::server::log::{self, Answered, Sample};
use semel_core::server::registry::{self, Report};
use semel_core::server::storage::sql::{Sql, SqlError, atomically};
use semel_core::server::{Answer, Context, Cors, Engine, Failure, Handler};
use wasm_bindgen::JsValue;

/// Why the object asks the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// An attempt arrived.
    Handle,
    /// An attempt arrived, and follows another in the same turn of the object.
    Next,
    /// The handler crashed on an attempt.
    Crashed,
    /// A suspect is about to run, and its start has to be counted.
    Start,
    /// The start of a suspect was counted, and is durable.
    Started,
    /// An attempt arrived while another request of the key is under way to the upstream.
    Wait,
    /// The call that was sent for an attempt has ended.
    Settle(Call, Ended),
}

/// One attempt of a group.
struct Asked<'a> {
    method: &'a str,
    request: Request,
    key: Key,
    principal: Principal,
    body_too_large: bool,
    wall_ms: i64,
    took_ms: i64,
}

impl Asked<'_> {
    fn arrival(&self) -> Arrival<'_> {
        let Self { request, key, principal, body_too_large, wall_ms, .. } = self;
        Arrival { key, principal, request, body_too_large: *body_too_large, wall_ms: *wall_ms }
    }
}

/// The engine of one key.
pub struct Object<H> {
    pub(crate) engine: Engine<H>,
    pub(crate) sql: ObjectSql,
    pub(crate) cors: Cors,
    pub(crate) log_sample: Sample,
    pub(crate) suspects: Suspects,
}

impl<H: Handler> Object<H> {
    /// Makes an engine over the `ctx.storage` of an object. `under_way`: the id that `take_call` returned for the
    /// request that is under way, if there is one.
    pub fn new(handler: H, storage: JsValue, settings: &str, under_way: Option<String>) -> Result<Self, JsValue> {
        let (config, cors) = settings::read(settings)?;
        let log_sample = Sample::new(config.log_sample_ppm, settings);
        let (mut engine, sql) = (Engine::new(handler, config), ObjectSql::new(storage));
        if let Some(id) = under_way.and_then(id_of) {
            engine.know_under_way(id);
        }
        Ok(Self { engine, sql, cors, log_sample, suspects: Suspects::default() })
    }

    /// Answers an attempt that arrived at `arrived_ms`. The key and the principal are in the headers that the router
    /// has set.
    pub fn answer(
        &mut self,
        purpose: Purpose,
        method: &str,
        url: (&str, &str),
        headers: &str,
        body: Option<Vec<u8>>,
        (arrived_ms, now_ms): (f64, f64),
    ) -> Array {
        let wall_ms = wire::instant_ms(now_ms);
        let body_too_large = body.is_none();
        match routed(method, url, headers, body.unwrap_or_default()) {
            Ok((mut request, key, principal)) => {
                self.engine.name(&principal, &mut request);
                let arrival = Arrival { key: &key, principal: &principal, request: &request, body_too_large, wall_ms };
                let answer = self.ask(purpose, arrival);
                self.stamped(answer, (method, &request, &key), (wall_ms, wire::instant_ms(now_ms - arrived_ms)))
            }
            Err(Invalid(reason)) => {
                let log = log::note(wall_ms, "error", &format!("the object was not asked by its router: {reason}"));
                let answer = Answer::unavailable("the object was not asked by its router").stamped(wall_ms, None);
                wire::stamped(answer, &self.cors, &Headers::from_lines(headers), Some(log))
            }
        }
    }

    /// Answers several attempts in the order of their arrival. `heads`: for each the method, path, query and header
    /// lines, each followed by a NUL. `bodies`: all bodies, one after the other. `numbers`: for each the length of its
    /// body (below 0 if the body was too large), when it arrived, and the current time. `None` if each has to be
    /// handled by itself.
    pub fn group(&mut self, heads: &str, bodies: &[u8], numbers: &[f64]) -> Option<Array> {
        let mut heads = heads.split('\0');
        let mut bodies = bodies;
        let mut asked = Vec::with_capacity(numbers.len() / 3);
        for &[length, arrived_ms, now_ms] in numbers.as_chunks::<3>().0 {
            let [method, pathname, search, headers] = [heads.next()?, heads.next()?, heads.next()?, heads.next()?];
            let (body, rest) = bodies.split_at_checked(length.max(0.0) as usize)?;
            bodies = rest;
            let (mut request, key, principal) = routed(method, (pathname, search), headers, body.to_vec()).ok()?;
            self.engine.name(&principal, &mut request);
            let took_ms = wire::instant_ms(now_ms - arrived_ms);
            asked.push(Asked {
                method,
                request,
                key,
                principal,
                body_too_large: length < 0.0,
                wall_ms: wire::instant_ms(now_ms),
                took_ms,
            });
        }
        let arrivals: Vec<_> = asked.iter().map(Asked::arrival).collect();
        let answers = self.engine.group(&self.sql, &arrivals)?;
        let stamped =
            answers.into_iter().zip(&asked).map(|(answer, Asked { method, request, key, wall_ms, took_ms, .. })| {
                self.suspects.answered(&request.headers, &answer);
                self.stamped(answer, (method, request, key), (*wall_ms, *took_ms))
            });
        Some(stamped.collect())
    }

    fn stamped(
        &self,
        answer: Answer,
        (method, request, key): (&str, &Request, &Key),
        (now_ms, took_ms): (i64, i64),
    ) -> Array {
        let answered = Answered { now_ms, took_ms, by: "object", method, headers: &request.headers, key: Some(key) };
        let log = log::line(self.log_sample, &answered, &answer);
        wire::stamped(answer, &self.cors, &request.headers, log)
    }

    pub(crate) fn ask(&mut self, purpose: Purpose, arrival: Arrival<'_>) -> Answer {
        match purpose {
            Purpose::Handle | Purpose::Next => {
                let answer = match purpose {
                    Purpose::Next => self.engine.handle_next(&self.sql, arrival),
                    _ => self.engine.handle(&self.sql, arrival),
                };
                self.suspects.answered(&arrival.request.headers, &answer);
                answer
            }
            Purpose::Crashed => self.engine.crashed(&self.sql, arrival),
            Purpose::Start => self.engine.start(&self.sql, arrival),
            Purpose::Started => self.engine.started(&self.sql, arrival),
            Purpose::Wait => self.engine.wait(&self.sql, arrival),
            Purpose::Settle(call, ended) => self.engine.settle(&self.sql, arrival, &call, ended),
        }
    }

    /// Whether an attempt may have ended the object that ran before, and would run now. Times are the wall clock's, in
    /// Unix ms.
    pub fn is_suspect(&self, method: &str, pathname: &str, headers: &str, (started_ms, now_ms): (f64, f64)) -> bool {
        let (started_ms, now_ms) = (wire::instant_ms(started_ms), wire::instant_ms(now_ms));
        // Nearly all attempts are new, and reading all headers takes as long as routing the request.
        !suspicion::is_new(headers, started_ms, now_ms)
            && self.suspects((&Method::new(method), pathname), &Headers::from_lines(headers), started_ms, now_ms)
    }

    /// The same as [`Object::is_suspect`], for a request whose headers are read, or an element of a batch. Times are in
    /// Unix ms.
    pub(crate) fn suspects(
        &self,
        (method, pathname): (&Method, &str),
        headers: &Headers,
        started_ms: i64,
        now_ms: i64,
    ) -> bool {
        self.suspects.has(method, pathname, headers, started_ms, now_ms) && !self.engine.has_outcome(&self.sql, headers)
    }

    /// Looks at a page of what is stored. Returns whether there is more to look at before anything can be answered.
    pub fn open(&mut self, now_ms: f64) -> Result<bool, JsValue> {
        self.engine.open(&self.sql, wire::instant_ms(now_ms)).map_err(|error| wire::error(&error))
    }

    /// When the object has to be awake next; `None` if it need not wake by itself.
    pub fn wakes_at(&self, has_registry: bool) -> Option<f64> {
        self.engine.wakes_at(has_registry).map(|at_ms| at_ms as f64)
    }

    /// Reports that the object's alarm woke it.
    pub fn woken(&mut self, now_ms: f64) {
        self.engine.woken(wire::instant_ms(now_ms));
    }

    /// Sweeps a page. Returns whether another page has to be swept now.
    pub fn sweep_page(&mut self, now_ms: f64) -> Result<bool, JsValue> {
        self.engine.sweep_page(&self.sql, wire::instant_ms(now_ms)).map_err(|error| wire::error(&error))
    }

    /// `[shard, report]` for the registry; `None` if there is nothing to report.
    pub fn report(&mut self, bytes: f64, now_ms: f64) -> Result<Option<Array>, JsValue> {
        let report = self.engine.report(&self.sql, wire::instant_ms(now_ms), bytes as i64);
        let report = report.map_err(|error| wire::error(&error))?;
        Ok(report.map(|report| {
            let shard = registry::shard_of(&report.key);
            Array::of2(&JsValue::from(shard), &wire::array(&report.to_row()))
        }))
    }

    /// Takes the registry's answer to a report; `None` if the registry did not list the key as reported.
    pub fn reported(&mut self, report: &Array, before_s: Option<f64>, now_ms: f64) -> Result<(), JsValue> {
        let report = wire::received(report, Report::from_row)?;
        let before_s = before_s.map(|before_s| before_s as i64);
        let ended = self.engine.reported(&self.sql, wire::instant_ms(now_ms), &report, before_s);
        ended.map_err(|error| wire::error(&error))
    }

    /// Removes the name of a deleted key. For a deployment without a registry.
    pub fn drop_name(&mut self, now_ms: f64) -> Result<(), JsValue> {
        self.engine.drop_name(&self.sql, wire::instant_ms(now_ms)).map_err(|error| wire::error(&error))
    }

    /// Forgets the requests that were first sent before an instant, in Unix seconds: moves the fence there. The sweep
    /// deletes the records later.
    pub fn forget(&mut self, before_s: f64, now_ms: f64) -> Result<(), JsValue> {
        let ended = self.engine.forget(&self.sql, wire::instant_ms(now_ms), before_s as i64);
        ended.map_err(|error| wire::error(&error))
    }

    /// The hash that stands for the key in the log, as far as it is known.
    pub fn key_hash(&self) -> Option<String> {
        self.engine.key_hash(&self.sql)
    }

    /// `[records, tombstones]` of the key; `None` if its storage can't be read.
    pub fn count(&mut self, now_ms: f64) -> Option<Array> {
        let ended = self.engine.count(&self.sql, wire::instant_ms(now_ms));
        let note =
            |error: &SqlError| log::note(wire::instant_ms(now_ms), "error", &format!("nothing is counted: {error}"));
        let count = ended.inspect_err(|error| console_log(&note(error))).ok()?;
        Some(Array::of2(&JsValue::from(count.records as f64), &JsValue::from(count.tombstones as f64)))
    }
}

/// How long after its start an object is young, in ms. After that, only requests of sessions can be suspects.
pub const YOUNG_MS: f64 = suspicion::YOUNG_MS as f64;

fn routed(method: &str, url: (&str, &str), headers: &str, body: Vec<u8>) -> Result<(Request, Key, Principal), Invalid> {
    let mut request = wire::request(method, url, headers, body)?;
    log::without_broken_trace(&mut request.headers);
    let key = header::key(&request.headers)?.ok_or_else(|| Invalid::new("no Semel-Key"))?;
    let principal = header::principal(&request.headers)?.ok_or_else(|| Invalid::new("no Semel-Principal"))?;
    Ok((request, key, principal))
}

/// Makes panics write their message to the log. The exception that JavaScript gets only says `unreachable`.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        note(&panic.to_string());
    }));
}

/// Writes an error to the log that belongs to no request.
pub fn note(message: &str) {
    console_log(&log::note(wire::instant_ms(js_sys::Date::now()), "error", message));
}

/// A handler without the engine: each request runs as often as it is sent. Only for comparison.
pub struct Plain<H> {
    handler: H,
    sql: ObjectSql,
    is_migrated: bool,
}

impl<H: Handler> Plain<H> {
    /// Makes one over the `ctx.storage` of an object.
    pub fn new(handler: H, storage: JsValue) -> Self {
        Self { handler, sql: ObjectSql::new(storage), is_migrated: false }
    }

    /// Runs the handler in a transaction.
    pub fn handle(&mut self, method: &str, pathname: &str, headers: &str, body: Vec<u8>, now_ms: f64) -> Array {
        let ended = wire::request(method, (pathname, ""), headers, body).map_err(|Invalid(reason)| reason).and_then(
            |request| {
                let key = Key::new(request.path.joined()).map_err(|Invalid(reason)| reason)?;
                let principal = Principal::default();
                let mut context = Context::new(&self.sql, wire::instant_ms(now_ms), &key, &principal);
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
        match ended {
            Ok(Response { status, headers, body }) => wire::answer(&Answer { status, headers, body, log: None }, None),
            Err(reason) => {
                let answer = Answer { status: 500, headers: Headers::new(), body: Vec::new(), log: None };
                wire::answer(&answer, Some(log::note(wire::instant_ms(now_ms), "error", &reason)))
            }
        }
    }
}

/// Whether there are tables besides those of the platform and of the demonstration's log.
fn has_tables(sql: &ObjectSql) -> Result<bool, SqlError> {
    let statement =
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 4) NOT IN ('_cf_', 'lab_') LIMIT 1";
    sql.exec(statement, &[]).map(|rows| !rows.is_empty())
}

/// Reads an id that `take_call` returned.
pub fn id_of(text: String) -> Option<RequestId> {
    header::own_id(&Headers::from_iter([("idempotency-key", text)])).ok().flatten()
}
