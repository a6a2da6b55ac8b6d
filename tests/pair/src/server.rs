//! The server: the real router, and an engine on SQLite for each key.
//!
//! Invariants:
//! - An effect is a row with the number of what the application wanted, so one that happened twice shows, whatever ids the
//!   attempts had.
//! - A crash falls between any two statements, and leaves what was committed.

use crate::plan::{Plan, Wrong};
use fastrand::Rng;
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::router::{self, Route};
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql, SqlError};
use semel_support::{Call, Database, Reply, START_MS, World};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The principal of all requests.
pub const PRINCIPAL: &str = "alice";
/// What the bodies of requests are: the number of what is wanted.
const NUMBER_BYTES_MAX: usize = 20;
/// Statements of a call, at most: a crash falls before one of them.
const STATEMENTS_MAX: u64 = 12;

/// Makes an effect of each request, and answers with how many there are.
#[derive(Debug, Default)]
struct Deposits {
    /// Where effects go that are not committed with their record.
    apart: Option<Rc<Apart>>,
}

struct Apart(Database);

impl std::fmt::Debug for Apart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Apart")
    }
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS effects (number TEXT NOT NULL) STRICT";

impl Handler for Deposits {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _method: &Method, path: &Path) -> KeyRule {
        match path.segments().as_slice() {
            ["keys", key, ..] => KeyRule::Key(format!("keys/{key}")),
            _ => KeyRule::Unhandled,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec(TABLE, &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let number = String::from_utf8_lossy(&request.body).into_owned();
        assert!(number.len() <= NUMBER_BYTES_MAX, "{number}");
        let sql = self.apart.as_ref().map_or(context.sql, |apart| &apart.0);
        sql.exec("INSERT INTO effects VALUES (?1)", &[number.as_str().into()])?;
        let rows = sql.exec("SELECT count(*) FROM effects", &[])?;
        let count = rows.first().and_then(|row| row.first()).and_then(semel_core::server::Value::as_integer);
        Ok(Response::json(201, format!("{{\"number\":\"{number}\",\"count\":{}}}", count.unwrap_or(-1))))
    }
}

/// One key.
struct Keyed {
    world: World<Deposits>,
    apart: Option<Rc<Apart>>,
}

/// All keys.
pub struct Server {
    wrong: Wrong,
    crash_percent: u32,
    config: Config,
    keys_ahead_ms: i64,
    keys: BTreeMap<String, Keyed>,
    /// Whether it crashed at the last request.
    pub has_crashed: bool,
}

/// A request as it is on the wire.
#[derive(Debug, Clone)]
pub struct Message {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// All headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

impl Server {
    /// A server for a plan.
    pub fn new(plan: &Plan) -> Self {
        let config = Config { open: true, retention_s: plan.retention_s, ..Config::default() };
        Self {
            wrong: plan.wrong,
            crash_percent: plan.crash_server,
            keys_ahead_ms: plan.keys_ahead_ms,
            keys: BTreeMap::new(),
            has_crashed: false,
            config,
        }
    }

    /// No more crashes.
    pub fn calm(&mut self) {
        self.crash_percent = 0;
    }

    /// Answers a request that arrives at `at_ms` of the run; `None`: it died on the way.
    pub fn answer(&mut self, rng: &mut Rng, at_ms: i64, message: &Message) -> Option<Reply> {
        self.has_crashed = false;
        let mut call = Call::new(&message.method, &message.target).body(message.body.clone()).by(PRINCIPAL);
        for (name, value) in message.headers.iter() {
            call = call.header(name, self.header(name, value));
        }
        let (handler, method) = (Deposits::default(), Method::new(&message.method));
        match router::route(&handler, &self.config, &method, call.url(), &call.headers(), START_MS + at_ms) {
            Route::Answer(answer) => Some(Reply::checked(answer)),
            Route::Object { key, principal, .. } => {
                assert_eq!(principal.as_str(), PRINCIPAL);
                self.ask(rng, at_ms, key.as_str(), &call)
            }
        }
    }

    fn ask(&mut self, rng: &mut Rng, at_ms: i64, key: &str, call: &Call) -> Option<Reply> {
        let (wrong, config) = (self.wrong, self.config.clone());
        let keyed = self.keys.entry(key.to_owned()).or_insert_with(|| Keyed::new(key, wrong, config));
        keyed.world.wall_ms = START_MS + at_ms + self.keys_ahead_ms;
        if rng.u32(0..100) < self.crash_percent {
            keyed.world.database.crash_before(rng.u64(0..STATEMENTS_MAX));
        }
        let reply = keyed.world.send(call);
        let has_crashed = keyed.world.database.has_crashed();
        self.has_crashed = has_crashed;
        // A crash that was to come later in the call than the call was long does not come at all.
        keyed.world.database.crash_before(u64::MAX);
        if has_crashed {
            keyed.world.restart();
        }
        if wrong == Wrong::NoTombstone && keyed.has_table() {
            keyed.world.database.tamper("DELETE FROM semel_records WHERE state = 5");
        }
        // Of an object that died, the router says so, or nothing comes back at all.
        if has_crashed && rng.bool() { None } else { Some(reply) }
    }

    /// What is wrong on purpose with what a client says.
    fn header(&self, name: &str, value: &str) -> String {
        if self.wrong != Wrong::TombstoneWithoutUntil || name != "semel-ack" {
            return value.to_owned();
        }
        let without = |ack: &str| format!("{};until=0", ack.split(';').next().unwrap_or_default());
        value.split(", ").map(without).collect::<Vec<_>>().join(", ")
    }

    /// The effects of a wish, at all keys.
    pub fn effects_of(&self, number: usize) -> i64 {
        let count = format!("SELECT count(*) FROM effects WHERE number = '{number}'");
        self.keys.values().map(|keyed| keyed.effects().number(&count)).sum()
    }

    /// The records that still hold an outcome.
    pub fn unacknowledged(&self) -> i64 {
        let count = "SELECT count(*) FROM semel_records WHERE state IN (1, 2, 4)";
        self.keys.values().map(|keyed| keyed.world.database.number(count)).sum()
    }
}

impl Keyed {
    fn new(key: &str, wrong: Wrong, config: Config) -> Self {
        let apart = (wrong == Wrong::EffectApart).then(|| {
            let database = Database::new();
            database.exec(TABLE, &[]).expect("a table");
            Rc::new(Apart(database))
        });
        Self { world: World::at(key, Deposits { apart: apart.clone() }, config), apart }
    }

    fn has_table(&self) -> bool {
        self.world.database.tables().iter().any(|name| name == "semel_records")
    }

    fn effects(&self) -> &Database {
        self.apart.as_ref().map_or(&self.world.database, |apart| &apart.0)
    }
}
