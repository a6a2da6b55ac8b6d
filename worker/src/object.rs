//! The object's side: the engine of one key over the object's storage.

use crate::storage::{ObjectSql, console_log};
use crate::{settings, wire};
use js_sys::Array;
use semel_core::header;
use semel_core::id::{Invalid, Key, Principal};
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::server::attempt::suspicion::{self, Suspects};
use semel_core::server::engine::Arrival;
use semel_core::server::engine::remote::{Call, Ended};
use semel_core::server::log::{self, Answered, Sample};
use semel_core::server::registry::{self, Report};
use semel_core::server::storage::sql::{Sql, SqlError, atomically};
use semel_core::server::{Answer, Context, Cors, Engine, Failure, Handler};
use wasm_bindgen::JsValue;

/// Why the object is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// An attempt arrived.
    Handle,
    /// The same, and it follows another in one turn.
    Next,
    /// An attempt crashed.
    Crashed,
    /// A suspect is about to run.
    Start,
    /// The same, and it is counted: this object has said so before.
    Started,
    /// Another request of the key is under way to the upstream.
    Wait,
    /// What was sent for an attempt has ended.
    Settle(Call, Ended),
}

/// One of many attempts.
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
    /// An engine over the `ctx.storage` of an object. `under_way`: as `take_call` names it.
    pub fn new(handler: H, storage: JsValue, settings: &str, under_way: Option<String>) -> Result<Self, JsValue> {
        let (config, cors) = settings::read(settings)?;
        let log_sample = Sample::new(config.log_sample_ppm, settings);
        let (mut engine, sql) = (Engine::new(handler, config), ObjectSql::new(storage));
        let under_way = under_way.map(|id| Headers::from_iter([("idempotency-key", id)]));
        if let Some(id) = under_way.and_then(|headers| header::own_id(&headers).ok().flatten()) {
            engine.know_under_way(id);
        }
        Ok(Self { engine, sql, cors, log_sample, suspects: Suspects::default() })
    }

    /// Answers an attempt that arrived at `arrived_ms`. Key and principal are in the headers that the router has set.
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

    /// Answers attempts that came one after the other. `heads`: of each its method, path, query and header lines, and a NUL after each of these;
    /// `bodies`: all of them; `numbers`: of each the length of its body, less than 0 where it was too large, when it arrived, and now. `None`:
    /// each is to be asked for by itself.
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

    /// Whether an attempt may have ended the object that ran before, and is to run. The times are the wall clock's, in Unix ms.
    pub fn is_suspect(&self, method: &str, pathname: &str, headers: &str, (started_ms, now_ms): (f64, f64)) -> bool {
        let (started_ms, now_ms) = (wire::instant_ms(started_ms), wire::instant_ms(now_ms));
        // Nearly all are new, and to read all headers takes as long as to route the request.
        !suspicion::is_new(headers, started_ms, now_ms)
            && self.suspects((&Method::new(method), pathname), &Headers::from_lines(headers), started_ms, now_ms)
    }

    /// The same of one that is read, or of an element of a batch. The times are in Unix ms.
    pub(crate) fn suspects(
        &self,
        (method, pathname): (&Method, &str),
        headers: &Headers,
        started_ms: i64,
        now_ms: i64,
    ) -> bool {
        self.suspects.has(method, pathname, headers, started_ms, now_ms) && !self.engine.has_outcome(&self.sql, headers)
    }

    /// Looks at a page of what is stored; whether there is more to look at before anything can be answered.
    pub fn open(&mut self, now_ms: f64) -> Result<bool, JsValue> {
        self.engine.open(&self.sql, wire::instant_ms(now_ms)).map_err(|error| wire::error(&error))
    }

    /// When the object has to be awake next; undefined: a request will do.
    pub fn wakes_at(&self, has_registry: bool) -> Option<f64> {
        self.engine.wakes_at(has_registry).map(|at_ms| at_ms as f64)
    }

    /// The object was woken.
    pub fn woken(&mut self, now_ms: f64) {
        self.engine.woken(wire::instant_ms(now_ms));
    }

    /// Sweeps a page; whether there is one more to sweep now.
    pub fn sweep_page(&mut self, now_ms: f64) -> Result<bool, JsValue> {
        self.engine.sweep_page(&self.sql, wire::instant_ms(now_ms)).map_err(|error| wire::error(&error))
    }

    /// `[shard, report]` for the registry; undefined: there is nothing to tell.
    pub fn report(&mut self, bytes: f64, now_ms: f64) -> Result<Option<Array>, JsValue> {
        let report = self.engine.report(&self.sql, wire::instant_ms(now_ms), bytes as i64);
        let report = report.map_err(|error| wire::error(&error))?;
        Ok(report.map(|report| {
            let shard = registry::shard_of(&report.key);
            Array::of2(&JsValue::from(shard), &wire::array(&report.to_row()))
        }))
    }

    /// The registry's answer to a report; undefined: its list is not as it was told.
    pub fn reported(&mut self, report: &Array, before_s: Option<f64>, now_ms: f64) -> Result<(), JsValue> {
        let report = wire::received(report, Report::from_row)?;
        let before_s = before_s.map(|before_s| before_s as i64);
        let ended = self.engine.reported(&self.sql, wire::instant_ms(now_ms), &report, before_s);
        ended.map_err(|error| wire::error(&error))
    }

    /// Where there is no registry: drops the name of a key that was deleted.
    pub fn drop_name(&mut self, now_ms: f64) -> Result<(), JsValue> {
        self.engine.drop_name(&self.sql, wire::instant_ms(now_ms)).map_err(|error| wire::error(&error))
    }

    /// Forgets what was first sent before an instant. The sweep takes it from there.
    pub fn forget(&mut self, before_s: f64, now_ms: f64) -> Result<(), JsValue> {
        let ended = self.engine.forget(&self.sql, wire::instant_ms(now_ms), before_s as i64);
        ended.map_err(|error| wire::error(&error))
    }

    /// What stands for the key in the log, as far as it is known.
    pub fn key_hash(&self) -> Option<String> {
        self.engine.key_hash(&self.sql)
    }

    /// `[records, tombstones]` of the key; undefined where its storage can't be read.
    pub fn count(&mut self, now_ms: f64) -> Option<Array> {
        let ended = self.engine.count(&self.sql, wire::instant_ms(now_ms));
        let note =
            |error: &SqlError| log::note(wire::instant_ms(now_ms), "error", &format!("nothing is counted: {error}"));
        let count = ended.inspect_err(|error| console_log(&note(error))).ok()?;
        Some(Array::of2(&JsValue::from(count.records as f64), &JsValue::from(count.tombstones as f64)))
    }
}

/// How long an object is young, in ms: after that, no request with an id is a suspect.
pub const YOUNG_MS: f64 = suspicion::YOUNG_MS as f64;

fn routed(method: &str, url: (&str, &str), headers: &str, body: Vec<u8>) -> Result<(Request, Key, Principal), Invalid> {
    let mut request = wire::request(method, url, headers, body)?;
    log::without_broken_trace(&mut request.headers);
    let key = header::key(&request.headers)?.ok_or_else(|| Invalid::new("no Semel-Key"))?;
    let principal = header::principal(&request.headers)?.ok_or_else(|| Invalid::new("no Semel-Principal"))?;
    Ok((request, key, principal))
}

/// Has panics say where they happened: the exception that JavaScript sees is only `unreachable`.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        note(&panic.to_string());
    }));
}

/// A line of the log that belongs to no request: an error.
pub fn note(message: &str) {
    console_log(&log::note(wire::instant_ms(js_sys::Date::now()), "error", message));
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

/// Whether there are tables, but for those of the platform and the demonstration's log.
fn has_tables(sql: &ObjectSql) -> Result<bool, SqlError> {
    let statement =
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 4) NOT IN ('_cf_', 'lab_') LIMIT 1";
    sql.exec(statement, &[]).map(|rows| !rows.is_empty())
}
