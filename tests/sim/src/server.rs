//! The server: the real router, and for each key an engine on SQLite.
//!
//! Invariants:
//! - A crash happens between any two statements, and leaves what was committed.
//! - While commits are held back, no answer leaves. If the object dies meanwhile, no answer ever leaves.
//! - The engine is called as `host.js` calls it. A suspect runs alone, once its start is durable, and not at all if the
//!   start can't be counted.

use crate::deposits::{Apart, Deposits, EFFECT, Trouble};
use crate::letter::{Exchange, Letter, Message};
use crate::lies;
use crate::mutant::{Mutant, Twin};
use crate::plan::Plan;
use crate::snapshot::{Snapshot, effects_after};
use crate::stored::{self, When};
use fastrand::Rng;
use semel_core::message::Method;
use semel_core::server::edge::router::{self, Route};
use semel_core::server::{Access, Config, Gate, attempt::suspicion};
use semel_support::{Call, Reply, START_MS, World};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The most statements of a call. A fault happens at one of them.
const STATEMENTS_MAX: u64 = 14;

/// A key.
pub(crate) struct Keyed {
    name: String,
    pub(crate) world: World<Deposits>,
    pub(crate) apart: Option<Rc<Apart>>,
    pub(crate) ahead_ms: i64,
    /// The furthest that its clock was ever ahead, in ms.
    ahead_ms_max: i64,
    pub(crate) started_ms: i64,
    /// The retention of the key, in seconds.
    retention_s: i64,
    held: Vec<Exchange>,
    pub(crate) seen: Rc<Snapshot>,
}

/// What became of a message.
#[derive(Default)]
pub struct Turn {
    /// The messages that were handled, in order, and whose answers may leave.
    pub done: Vec<Exchange>,
    /// The messages whose answers died with the object.
    pub lost: Vec<Letter>,
    /// The key whose commits are held back from now on, if there is one.
    pub begins_to_hold: Option<String>,
}

/// All keys.
pub struct Server {
    pub(crate) mutant: Option<Mutant>,
    plan: Plan,
    config: Config,
    pub(crate) keys: BTreeMap<String, Keyed>,
    /// How far the worker's clock is ahead, in ms.
    pub worker_ahead_ms: i64,
    /// The furthest that the worker's clock was ever ahead, in ms.
    worker_ahead_ms_max: i64,
    /// What goes wrong in the handler, by the number of the request, and how often.
    pub troubles: BTreeMap<String, (Trouble, u32)>,
}

impl Server {
    /// Makes a server for a plan.
    pub fn new(plan: &Plan, mutant: Option<Mutant>) -> Self {
        let is_full_early = mutant == Some(Mutant::Twin(Twin::FullEarly)) && plan.records_max > 1;
        let config = Config {
            open: true,
            retention_s: plan.retentions_s[0],
            records_max: plan.records_max - u64::from(is_full_early),
            tombstones_max: plan.tombstones_max,
            ..Config::default()
        };
        Self {
            mutant,
            plan: plan.clone(),
            config,
            keys: BTreeMap::new(),
            worker_ahead_ms: 0,
            worker_ahead_ms_max: 0,
            troubles: BTreeMap::new(),
        }
    }

    /// Ends the faults: the clocks are right, and the handler no longer fails. A request that crashes the handler still
    /// does.
    ///
    /// No clock is behind where it has been, and no key's clock is behind where any clock has been. A request first
    /// sent by a clock that is ahead of the key's would be refused until the key's clock is as far.
    pub fn calm(&mut self) {
        let Plan { crash_server, fail_statements, full_disk, slow_commits, .. } = &mut self.plan;
        for share in [crash_server, fail_statements, full_disk, slow_commits] {
            *share = 0;
        }
        self.worker_ahead_ms = self.worker_ahead_ms_max;
        let furthest_ms = self.keys.values().map(|keyed| keyed.ahead_ms_max).max().unwrap_or(0);
        self.plan.keys_ahead_ms = self.plan.keys_ahead_ms.max(furthest_ms).max(self.worker_ahead_ms_max);
        for keyed in self.keys.values_mut() {
            keyed.ahead_ms = self.plan.keys_ahead_ms;
        }
        self.troubles.retain(|_, (trouble, _)| matches!(trouble, Trouble::Panics | Trouble::Kills));
    }

    /// Handles a message that arrives at `at_ms` of the run.
    pub fn answer(&mut self, rng: &mut Rng, at_ms: i64, letter: Letter) -> Turn {
        let Message { method, target, body, is_too_large, .. } = &letter.message;
        let mut call = Call::new(method, target).body(body.clone());
        for (name, value) in letter.message.headers.iter() {
            call = call.header(name, self.header(name, value));
        }
        if *is_too_large {
            call = call.too_large();
        }
        if letter.message.is_administration() {
            return self.ask_as_administrator(rng, at_ms, letter, call);
        }
        let (handler, method) = (Deposits::default(), Method::new(method));
        let worker_ms = START_MS + at_ms + self.worker_ahead_ms;
        let gate = &mut Gate::new(Access::open_or_closed(self.config.open));
        match router::route(&handler, &self.config, gate, &method, call.url(), &call.headers(), worker_ms) {
            Route::Answer(answer) => {
                let nothing = Rc::new(Snapshot::default());
                let exchange = Exchange {
                    letter,
                    key: None,
                    retention_s: self.config.retention_s,
                    principal: String::new(),
                    reply: Reply::checked(answer),
                    has_crashed: false,
                    has_panicked: false,
                    is_answered: true,
                    is_uncounted: false,
                    before: nothing.clone(),
                    after: nothing,
                    effects: Vec::new(),
                    calls: 0,
                };
                Turn { done: vec![exchange], ..Turn::default() }
            }
            Route::Object { key, principal, .. } => {
                let call = call.by(principal.as_str());
                self.ask(rng, at_ms, key.as_str(), (letter, call, principal.as_str()))
            }
            other => panic!("nobody asks for that here: {other:?}"),
        }
    }

    /// Anybody with an administrator's request reaches the object, since it must not depend on the router alone.
    fn ask_as_administrator(&mut self, rng: &mut Rng, at_ms: i64, letter: Letter, call: Call) -> Turn {
        let credentials = letter.message.headers.get("authorization").unwrap_or_default();
        let principal = credentials.trim_start_matches("Bearer ").to_owned();
        let path = letter.message.target.trim_start_matches("/semel/v1/admin/keys/");
        let key = path.split('/').next().unwrap_or_default().replace("%2F", "/");
        let call = call.by(&principal);
        self.ask(rng, at_ms, &key, (letter, call, &principal))
    }

    /// Lets a key forget, perhaps with a fault first and then again without. Returns the exchanges that were held back
    /// until now, and the key's clock.
    pub fn forget(&mut self, key: &str, before_s: i64, at_ms: i64) -> (Vec<Exchange>, i64) {
        let now_ms = self.clock_ms(key, at_ms);
        let Some(keyed) = self.keys.get_mut(key) else { return (Vec::new(), now_ms) };
        let released = keyed.release();
        keyed.world.wall_ms = START_MS + at_ms + keyed.ahead_ms;
        if self.plan.crash_server > 0 {
            keyed.world.database.crash_before(3);
            drop(keyed.world.forget(before_s));
            keyed.world.restart();
            keyed.started_ms = keyed.world.wall_ms;
        }
        keyed.world.forget(before_s).expect("a database without faults");
        keyed.seen = Rc::new(Snapshot::of(&keyed.world.database, keyed.apart.as_deref()));
        (released, now_ms)
    }

    fn ask(&mut self, rng: &mut Rng, at_ms: i64, key: &str, (letter, call, principal): (Letter, Call, &str)) -> Turn {
        let (mutant, config, ahead_ms) = (self.mutant, &self.config, self.plan.keys_ahead_ms);
        let keyed = self.keys.entry(key.to_owned()).or_insert_with(|| {
            let wall_ms = START_MS + at_ms + ahead_ms;
            Keyed::new(key, mutant == Some(Mutant::Twin(Twin::EffectApart)), config.clone(), (ahead_ms, wall_ms))
        });
        keyed.world.handler.is_stale.set(mutant == Some(Mutant::Twin(Twin::StaleReads)));
        keyed.world.wall_ms = START_MS + at_ms + keyed.ahead_ms;
        let mut turn = Turn::default();
        let number = letter.message.text();
        let trouble = self.troubles.get_mut(&number).filter(|(_, times)| *times > 0);
        let is_suspect = suspicion::is_suspect(
            &Method::new(&letter.message.method),
            call.url().0,
            &call.headers(),
            keyed.started_ms,
            keyed.world.wall_ms,
        ) && !keyed.world.has_outcome(&call.headers());
        // Before a suspect runs, everything is durable. And a panic ends the connection here, which it does not do in
        // the real host.
        if is_suspect || trouble.is_some() {
            turn.done.append(&mut keyed.release());
        } else if !keyed.world.database.is_holding() && rng.u32(0..100) < self.plan.slow_commits {
            keyed.world.database.hold();
            turn.begins_to_hold = Some(key.to_owned());
        }
        keyed.world.handler.trouble.set(trouble.as_ref().map_or(Trouble::None, |(trouble, _)| *trouble));
        let mut uncounted = None;
        if is_suspect {
            self.plan.break_database(rng, keyed);
            let started = keyed.world.start(&call);
            keyed.world.database.calm();
            uncounted = Some(started).filter(|started| started.only("semel-status") == "unavailable");
        }
        if !keyed.world.database.has_crashed() {
            self.plan.break_database(rng, keyed);
        }
        if let Some((Trouble::Kills, _)) = trouble {
            keyed.world.database.crash_at(EFFECT);
        }
        let was_holding = keyed.world.database.is_holding();
        let about = if letter.message.is_deposit() { "Deposit" } else { "" };
        let is_uncounted = uncounted.is_some();
        let told = uncounted.filter(|_| mutant != Some(Mutant::Twin(Twin::UncountedRuns)));
        let mut exchange = Exchange { is_uncounted, ..keyed.exchange(letter, (&call, told), principal, mutant) };
        exchange.reply = lies::told(mutant, about, exchange.reply);
        if let Some((_, times)) = trouble {
            *times -= u32::from(exchange.calls > 0).min(*times);
        }
        if exchange.has_crashed {
            turn.lost = std::mem::take(&mut keyed.held).into_iter().map(|held| held.letter).collect();
            turn.begins_to_hold = None;
            if was_holding {
                // Everything is as it was before. If the key was deleted meanwhile, its effects are back, and none of
                // them is new.
                exchange.before = exchange.after.clone();
                exchange.effects.clear();
            }
            // After an object has died, the router says so, or no answer comes back. An answer from before that is
            // based on what died with the object never leaves.
            let is_false = was_holding && exchange.reply.header("semel-status") != Some("unavailable");
            exchange.is_answered = rng.bool() && !is_false;
        }
        if keyed.world.database.is_holding() {
            keyed.held.push(exchange)
        } else {
            turn.done.push(exchange)
        }
        turn
    }

    /// Makes durable what was held back. Its answers may leave.
    pub fn release(&mut self, key: &str) -> Vec<Exchange> {
        self.keys.get_mut(key).map(Keyed::release).unwrap_or_default()
    }

    /// Restarts a key without a fault. Its clock jumps, and its retention is set.
    pub fn restart(&mut self, key: &str, jump_ms: i64, retention_s: i64) -> Vec<Exchange> {
        let Some(keyed) = self.keys.get_mut(key) else { return Vec::new() };
        let released = keyed.release();
        keyed.jump(jump_ms);
        keyed.started_ms = keyed.world.wall_ms;
        keyed.retention_s = retention_s;
        let is_shortest = self.mutant == Some(Mutant::Twin(Twin::ShortestRetention));
        keyed.world.restart_with(|config| {
            config.retention_s = if is_shortest { config.retention_s.min(retention_s) } else { retention_s };
        });
        released
    }

    /// Lets the clock of a key jump while its object lives on.
    pub fn jump(&mut self, key: &str, jump_ms: i64) {
        if let Some(keyed) = self.keys.get_mut(key) {
            keyed.jump(jump_ms);
        }
    }

    /// Lets the worker's clock jump.
    pub fn jump_worker(&mut self, jump_ms: i64) {
        self.worker_ahead_ms += jump_ms;
        self.worker_ahead_ms_max = self.worker_ahead_ms_max.max(self.worker_ahead_ms);
    }

    /// A client's header, with the mutant's mistake in it.
    fn header(&self, name: &str, value: &str) -> String {
        if self.mutant != Some(Mutant::Twin(Twin::TombstoneWithoutUntil)) || name != "semel-ack" {
            return value.to_owned();
        }
        // An `until` before the request's first-sent would be ignored.
        let sooner = |ack: &str| match ack.split_once(";until=") {
            Some((id, until_ms)) => format!("{id};until={}", (until_ms.parse().unwrap_or(0) - 5_000).max(0)),
            None => ack.to_owned(),
        };
        value.split(", ").map(sooner).collect::<Vec<_>>().join(", ")
    }

    /// The clock of a key as its clients know it, at `at_ms` of the run, in Unix ms.
    pub fn clock_ms(&self, key: &str, at_ms: i64) -> i64 {
        let ahead_ms = self.keys.get(key).map_or(self.plan.keys_ahead_ms, |keyed| keyed.ahead_ms);
        (START_MS + at_ms + ahead_ms).max(self.seen(key).map_or(0, |seen| seen.latest_ms()))
    }

    /// The ids that a key still knows, with their principals. A packed tombstone that has lapsed counts as new.
    pub fn known(&self, key: &str, at_ms: i64) -> impl Iterator<Item = (&str, &str)> {
        let keyed = self.keys.get(key);
        // As far as the key's clock may have come.
        let now_ms = keyed.map_or(0, |keyed| (START_MS + at_ms + keyed.ahead_ms_max).max(keyed.seen.latest_ms()));
        let rows = keyed.into_iter().flat_map(|keyed| &keyed.seen.rows);
        rows.filter(move |(_, row)| !row.has_lapsed(now_ms)).map(|(id, row)| (id.as_str(), row.principal.as_str()))
    }

    /// What a key stores now.
    pub fn seen(&self, key: &str) -> Option<&Snapshot> {
        self.keys.get(key).map(|keyed| &*keyed.seen)
    }

    /// What every key stores at the end.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &Snapshot)> {
        self.keys.iter().map(|(key, keyed)| (key.as_str(), &*keyed.seen))
    }
}

impl Plan {
    /// Chooses the fault of the next call.
    fn break_database(&self, rng: &mut Rng, keyed: &Keyed) {
        let (n, die) = (rng.u64(0..STATEMENTS_MAX), rng.u32(0..100));
        let database = &keyed.world.database;
        if die < self.crash_server {
            database.crash_before(n);
        } else if rng.u32(0..100) < self.full_disk {
            database.full(n);
        } else if rng.u32(0..100) < self.fail_statements {
            database.fail(n);
        }
    }
}

impl Keyed {
    fn new(key: &str, is_apart: bool, config: Config, (ahead_ms, wall_ms): (i64, i64)) -> Self {
        let (apart, retention_s) = (is_apart.then(Apart::new), config.retention_s);
        Self {
            name: key.to_owned(),
            world: World::in_memory(key, Deposits { apart: apart.clone(), ..Deposits::default() }, config),
            apart,
            ahead_ms,
            ahead_ms_max: ahead_ms,
            started_ms: wall_ms,
            retention_s,
            held: Vec::new(),
            seen: Rc::default(),
        }
    }

    fn jump(&mut self, jump_ms: i64) {
        self.ahead_ms += jump_ms;
        self.ahead_ms_max = self.ahead_ms_max.max(self.ahead_ms);
        self.world.wall_ms += jump_ms;
    }

    fn release(&mut self) -> Vec<Exchange> {
        if self.world.database.is_holding() {
            self.world.database.release();
        }
        std::mem::take(&mut self.held)
    }

    /// Sends a call. `told`: the answer if the engine is not asked.
    fn exchange(
        &mut self,
        letter: Letter,
        (call, told): (&Call, Option<Reply>),
        principal: &str,
        mutant: Option<Mutant>,
    ) -> Exchange {
        let before = self.seen.clone();
        let (calls, panics) = (self.world.handler.calls.get(), self.world.handler.panics.get());
        let reply = told.unwrap_or_else(|| self.world.send(call));
        let has_crashed = self.world.database.has_crashed();
        self.world.database.calm();
        if has_crashed {
            self.world.restart();
            self.started_ms = self.world.wall_ms;
        }
        stored::change(mutant, When::Deposit, &self.world.database);
        let after = Rc::new(Snapshot::of(&self.world.database, self.apart.as_deref()));
        self.seen = after.clone();
        let effects = if after.effects > before.effects {
            effects_after(&self.world.database, self.apart.as_deref(), before.effects)
        } else {
            Vec::new()
        };
        Exchange {
            letter,
            key: Some(self.name.clone()),
            retention_s: self.retention_s,
            principal: principal.to_owned(),
            reply,
            has_crashed,
            has_panicked: self.world.handler.panics.get() > panics,
            is_answered: true,
            is_uncounted: false,
            before,
            after,
            effects,
            calls: self.world.handler.calls.get() - calls,
        }
    }
}
