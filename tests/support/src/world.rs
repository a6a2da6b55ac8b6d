//! One key with its clock, engine and database.
//!
//! Invariants:
//! - The engine is called as `host.js` calls it: after a panic, a fresh engine counts the crash.
//! - `Semel-Now` never goes back while an engine lives. Each answer is checked for that.
//! - A restart keeps what is committed, and nothing else.

use crate::call::Call;
use crate::counter::Counter;
use crate::database::Database;
use crate::reply::Reply;
use semel_core::id::{Key, Principal, RequestId};
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::config::key_rules::KeyRules;
use semel_core::server::edge::router::{self, Route};
use semel_core::server::engine::Arrival;
use semel_core::server::engine::remote::{self, Ended};
use semel_core::server::storage::record::Change;
use semel_core::server::{
    Access, Answer, Config, Context, Engine, Failure, Gate, Handler, KeyRule, Sql, SqlError, Value,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The key under test.
pub const KEY: &str = "counters/1";
/// Where the clock starts, in Unix seconds.
pub const START_S: i64 = 1_800_000_000;
/// Where the clock starts, in Unix ms.
pub const START_MS: i64 = START_S * 1000;

/// A handler that outlives its engine, so that a test can look at it.
pub(crate) struct Shared<H>(Rc<H>);

impl<H: Handler> Handler for Shared<H> {
    const SCHEMA_VERSION: i64 = H::SCHEMA_VERSION;
    const EMITS: bool = H::EMITS;
    const STATES_ONLY: bool = H::STATES_ONLY;

    fn schema_version(&self) -> i64 {
        self.0.schema_version()
    }

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        self.0.key(method, path)
    }

    fn migrate(&self, sql: &dyn Sql, from: i64) -> Result<(), SqlError> {
        self.0.migrate(sql, from)
    }

    fn is_remote(&self, method: &Method, path: &Path) -> bool {
        self.0.is_remote(method, path)
    }

    fn whither(&self, request: &Request) -> i64 {
        self.0.whither(request)
    }

    fn id(&self, principal: &Principal, request: &Request) -> Option<String> {
        self.0.id(principal, request)
    }

    fn makes_ids(&self, method: &Method, path: &Path) -> bool {
        self.0.makes_ids(method, path)
    }

    fn owns(&self, id: &RequestId) -> bool {
        self.0.owns(id)
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        self.0.handle(context, request)
    }
}

/// One key.
pub struct World<H = Counter> {
    /// The database of the key.
    pub database: Database,
    /// The handler of the key.
    pub handler: Rc<H>,
    /// The wall clock, in Unix ms.
    pub wall_ms: i64,
    pub(crate) key: Key,
    config: Config,
    pub(crate) engine: Engine<Shared<H>>,
    latest_ms: i64,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// Makes a counter with the default settings.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// Makes a counter with other settings.
    pub fn with(set: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { open: true, ..Config::default() };
        set(&mut config);
        Self::of(Counter::default(), config)
    }

    /// Makes a counter whose key has a rule for its retention, in JSON. `retention_s`: the retention of all other keys.
    pub fn ruled(retention_s: i64, retention: &str) -> Self {
        let rules = format!(r#"[{{"keys":"{KEY}","retentionSeconds":{retention}}}]"#);
        Self::with(|config| {
            config.retention_s = retention_s;
            config.key_rules = KeyRules::parse(&rules).unwrap();
        })
    }

    /// How many effects there are.
    pub fn effects(&self) -> i64 {
        self.database.number("SELECT count(*) FROM effects")
    }

    /// How many effects a request has.
    pub fn effects_of(&self, id: &str) -> i64 {
        self.database.number(&format!("SELECT count(*) FROM effects WHERE id = '{id}'"))
    }

    /// How often the handler was called, even if nothing was kept.
    pub fn calls(&self) -> u64 {
        self.handler.calls.get()
    }
}

impl<H: Handler> World<H> {
    /// Makes the key with any handler.
    pub fn of(handler: H, config: Config) -> Self {
        Self::at(KEY, handler, config)
    }

    /// Makes any key with any handler.
    pub fn at(key: &str, handler: H, config: Config) -> Self {
        Self::on(Database::new(), key, handler, config)
    }

    /// The same, in memory.
    pub fn in_memory(key: &str, handler: H, config: Config) -> Self {
        Self::on(Database::in_memory(), key, handler, config)
    }

    fn on(database: Database, key: &str, handler: H, config: Config) -> Self {
        let key = Key::new(key).expect("a key");
        let handler = Rc::new(handler);
        let engine = Engine::new(Shared(handler.clone()), config.clone());
        Self { database, handler, wall_ms: START_MS, key, config, engine, latest_ms: 0 }
    }

    /// Makes another object of the same key, on a copy of what is committed, as if the key were later restored to now.
    pub fn copy(&self) -> Self
    where
        H: Default,
    {
        self.copy_for(H::default())
    }

    /// The same, with another handler, as if another version were deployed.
    pub fn copy_for<Other: Handler>(&self, handler: Other) -> World<Other> {
        let mut copy = World::on(self.database.copy(), self.key.as_str(), handler, self.config.clone());
        copy.wall_ms = self.wall_ms;
        copy
    }

    /// Sends one attempt to the key's object.
    #[track_caller]
    pub fn send(&mut self, call: &Call) -> Reply {
        self.send_by(call, Engine::handle)
    }

    /// Sends an attempt that follows another in the same turn of the object.
    #[track_caller]
    pub fn follow(&mut self, call: &Call) -> Reply {
        self.send_by(call, Engine::handle_next)
    }

    #[track_caller]
    fn send_by(
        &mut self,
        call: &Call,
        handle: impl Fn(&mut Engine<Shared<H>>, &dyn Sql, Arrival<'_>) -> Answer,
    ) -> Reply {
        let handled = catch_unwind(AssertUnwindSafe(|| self.ask(call, handle)));
        let answer = handled.unwrap_or_else(|_| {
            self.database.unwind();
            self.start_engine();
            self.ask(call, Engine::crashed)
        });
        self.checked(answer)
    }

    /// Sends attempts that waited for the same commit, in one call as `host.js` does. `None`: each has to be sent by
    /// itself.
    #[track_caller]
    pub fn group(&mut self, calls: &[Call]) -> Option<Vec<Reply>> {
        self.group_over(calls, 0)
    }

    /// The same, with `between_ms` between the arrivals.
    #[track_caller]
    pub fn group_over(&mut self, calls: &[Call], between_ms: i64) -> Option<Vec<Reply>> {
        let asked: Vec<_> = calls.iter().map(asked_of).collect();
        let arrivals: Vec<_> = asked
            .iter()
            .zip(calls)
            .zip(0..)
            .map(|(((request, principal), call), n)| Arrival {
                key: &self.key,
                principal,
                request,
                body_too_large: call.is_too_large,
                wall_ms: self.wall_ms + n * between_ms,
            })
            .collect();
        let answers = catch_unwind(AssertUnwindSafe(|| self.engine.group(&self.database, &arrivals)));
        let answers = answers.unwrap_or_else(|_| {
            self.database.unwind();
            self.start_engine();
            None
        });
        Some(answers?.into_iter().map(|answer| self.checked(answer)).collect())
    }

    /// The call that the host has to send before the last attempt has an answer.
    pub fn take_call(&mut self) -> Option<remote::Call> {
        self.engine.take_call()
    }

    /// Tells a new engine which request was under way when it was made, as the host does.
    pub fn know_under_way(&mut self, id: &str) {
        self.engine.know_under_way(RequestId::new(id).expect("an id"));
    }

    /// Tells the object what became of the call that it had sent for an attempt.
    #[track_caller]
    pub fn settle(&mut self, call: &Call, sent: &remote::Call, ended: Ended) -> Reply {
        let answer = self.ask(call, |engine, sql, arrival| engine.settle(sql, arrival, sent, ended.clone()));
        self.checked(answer)
    }

    /// Sends an attempt that has to wait, because another request of the key is under way.
    #[track_caller]
    pub fn wait(&mut self, call: &Call) -> Reply {
        let answer = self.ask(call, Engine::wait);
        self.checked(answer)
    }

    /// How many answers with a `Semel-Status` the engine has counted.
    pub fn counted(&self, status: &str) -> u64 {
        self.engine.counters().iter().find(|(each, _)| *each == status).map_or(0, |(_, count)| count)
    }

    /// How many records and tombstones there are, as the engine counts them.
    pub fn count(&mut self) -> Result<Change, SqlError> {
        self.engine.count(&self.database, self.wall_ms)
    }

    /// Lets the engine look at a page of what is stored.
    pub fn open(&mut self) -> Result<bool, SqlError> {
        self.engine.open(&self.database, self.wall_ms)
    }

    /// Lets the key forget what was first sent before an instant.
    pub fn forget(&mut self, before_s: i64) -> Result<(), SqlError> {
        self.engine.forget(&self.database, self.wall_ms, before_s)
    }

    /// Tells the object that the handler crashed on an attempt.
    #[track_caller]
    pub fn crashed(&mut self, call: &Call) -> Reply {
        let answer = self.ask(call, Engine::crashed);
        self.checked(answer)
    }

    /// Tells the object that a suspect is about to run.
    #[track_caller]
    pub fn start(&mut self, call: &Call) -> Reply {
        let answer = self.ask(call, Engine::start);
        self.checked(answer)
    }

    /// Tells the object again that a suspect is about to run, in case it has forgotten.
    pub fn started(&mut self, call: &Call) {
        self.ask(call, Engine::started);
    }

    /// Whether a call, or an element of a batch, is of a request with an outcome.
    pub fn has_outcome(&self, headers: &Headers) -> bool {
        self.engine.has_outcome(&self.database, headers)
    }

    /// Asks the router where a request goes.
    pub fn route(&self, call: &Call) -> Route {
        let gate = &mut Gate::new(Access::open_or_closed(self.config.open));
        router::route(&*self.handler, &self.config, gate, call.method(), call.url(), &call.headers(), self.wall_ms)
    }

    /// Routes a request as a message of a queue. `cancels`: whether it cancels an earlier one.
    pub fn route_own(&self, call: &Call, cancels: bool) -> Route {
        let asker = (Principal::queue(), cancels);
        router::route_own(&*self.handler, asker, call.method(), call.url(), &call.headers(), self.wall_ms)
    }

    /// Ends the object, and starts it again.
    pub fn restart(&mut self) {
        self.renew();
    }

    /// Starts the object again with other settings.
    pub fn restart_with(&mut self, set: impl FnOnce(&mut Config)) {
        set(&mut self.config);
        self.restart();
    }

    /// Lets time pass.
    pub fn pass_s(&mut self, seconds: i64) {
        self.pass_ms(seconds * 1000);
    }

    /// Lets time pass.
    pub fn pass_ms(&mut self, ms: i64) {
        self.wall_ms += ms;
    }

    /// The wall clock, in Unix seconds.
    pub fn wall_s(&self) -> i64 {
        self.wall_ms.div_euclid(1000)
    }

    /// A column of an id's row, as it is committed; `None` if there is no row.
    pub fn row(&self, id: &str, column: &str) -> Option<Value> {
        let rows = self.database.query(&format!("SELECT {column} FROM semel_records WHERE id = '{id}'"));
        rows.into_iter().next().and_then(|row| row.into_iter().next())
    }

    /// How many rows there are.
    pub fn rows(&self) -> i64 {
        self.database.number("SELECT count(*) FROM semel_records")
    }

    /// The fence that is committed, in Unix seconds.
    pub fn fence_s(&self) -> i64 {
        self.database.number("SELECT fence_s FROM semel_meta")
    }

    /// Makes a fresh engine on a fresh connection.
    fn renew(&mut self) {
        self.database.reopen();
        self.start_engine();
    }

    pub(crate) fn start_engine(&mut self) {
        self.engine = Engine::new(Shared(self.handler.clone()), self.config.clone());
        self.latest_ms = 0;
    }

    fn ask(&mut self, call: &Call, ask: impl Fn(&mut Engine<Shared<H>>, &dyn Sql, Arrival<'_>) -> Answer) -> Answer {
        let (request, principal) = asked_of(call);
        let arrival = Arrival {
            key: &self.key,
            principal: &principal,
            request: &request,
            body_too_large: call.is_too_large,
            wall_ms: self.wall_ms,
        };
        ask(&mut self.engine, &self.database, arrival)
    }

    #[track_caller]
    fn checked(&mut self, answer: Answer) -> Reply {
        let reply = Reply::checked(answer);
        match reply.header("semel-key") {
            Some(key) => assert_eq!(key, format!("\"{}\"", self.key.encoded())),
            None => assert!(matches!(reply.only("semel-status"), "unavailable" | "key-invalid"), "{reply:?}"),
        }
        // If the storage failed, the key's clock is not known.
        if reply.header("semel-key").is_some() {
            assert!(reply.now_ms() >= self.latest_ms, "the clock went back");
            self.latest_ms = reply.now_ms();
        }
        reply
    }
}

/// An attempt as the object gets it, and its principal.
fn asked_of(call: &Call) -> (Request, Principal) {
    let mut request = call.request();
    if call.is_too_large {
        request.body.clear();
    }
    (request, Principal::new(call.principal.as_str()).expect("a principal"))
}
