//! Requests of one principal under faults and an administrator's requests that a seed decides. The clock is put back at times,
//! the settings change, and copies of attempts arrive late.
//!
//! Invariants that are checked, for requests that always say when they were first sent: each has its effect at most once, also
//! over deletions of the key. Whoever is told an outcome, or that it ran, can rely on its effect; whoever is told that it never
//! will run can rely on that. An outcome is the same each time. In the end nothing is left of any request.

use fastrand::Rng;
use semel_core::server::Config;
use semel_core::server::storage::record::Change;
use semel_support::admin::{delete_key, delete_record};
use semel_support::call::control;
use semel_support::{Call, Counter, KEY, Reply, START_MS, Trouble, World, get, look_up, post};
use serde_json::json;

const SEEDS: u64 = 300;
const STEPS: usize = 60;
const RETENTION_S: i64 = 200;

#[derive(Debug, Clone)]
struct Intent {
    id: String,
    first_sent_s: i64,
    /// Whether each attempt has a deadline.
    is_bounded: bool,
    /// The deadlines of the attempts that have left.
    sent: Vec<Option<i64>>,
    /// Once it is acknowledged: the `until`, if there is one.
    acknowledged: Option<Option<i64>>,
    effects: i64,
    runs: i64,
    outcome: Option<Vec<u8>>,
    is_never: bool,
}

struct Run {
    rng: Rng,
    world: World,
    intents: Vec<Intent>,
    made: usize,
    told: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let config =
            Config { open: true, retention_s: RETENTION_S, records_max: 20, tombstones_max: 20, ..Config::default() };
        let world = World::in_memory(KEY, Counter::default(), config);
        let told = vec![format!("seed {seed}")];
        let mut run = Self { rng: Rng::with_seed(seed), world, intents: Vec::new(), made: 0, told };
        (0..4).for_each(|_| run.add());
        run
    }

    fn add(&mut self) {
        self.made += 1;
        let n = self.made;
        let id = match self.rng.usize(0..4) {
            0 => format!("i{n}"),
            1 => format!("{n} {}", "x".repeat(self.rng.usize(0..100))),
            2 => format!("{:08x}-0000-4000-0000-{:012x}", self.rng.u32(..), n),
            _ => format!("{:08x}-0000-4000-8000-{:012x}", self.rng.u32(..), n),
        };
        let skew_s = if self.rng.bool() { 0 } else { self.rng.i64(-60..=90) };
        let first_sent_s = self.world.wall_s() + skew_s;
        let is_bounded = self.rng.u8(0..4) > 0;
        self.intents.push(Intent {
            id,
            first_sent_s,
            is_bounded,
            sent: Vec::new(),
            acknowledged: None,
            effects: 0,
            runs: 0,
            outcome: None,
            is_never: false,
        });
    }

    fn tell(&mut self, what: impl std::fmt::Debug) {
        self.told.push(format!("{} {what:?}", self.world.wall_ms));
    }

    #[track_caller]
    fn check(&self, holds: bool, what: &str) {
        assert!(holds, "{what}\n{}", self.told.join("\n"));
    }

    fn any(&mut self) -> usize {
        self.rng.usize(0..self.intents.len())
    }

    /// An attempt, or a copy of one.
    fn attempt(&mut self, n: usize) -> Call {
        let now_ms = self.world.wall_ms;
        let rng = &mut self.rng;
        let intent = &mut self.intents[n];
        let deadline_ms = match intent.acknowledged {
            None => {
                let is_copy = !intent.sent.is_empty() && rng.u8(0..3) == 0;
                let of = rng.usize(0..intent.sent.len().max(1));
                let has_deadline = intent.is_bounded || rng.bool();
                let made = has_deadline.then(|| now_ms + rng.i64(0..=100_000));
                let deadline_ms = if is_copy { intent.sent[of] } else { made };
                intent.sent.push(deadline_ms);
                deadline_ms
            }
            Some(_) => intent.sent[rng.usize(0..intent.sent.len())],
        };
        let call = post("/count").id(&intent.id).first_sent_s(intent.first_sent_s);
        match deadline_ms {
            Some(deadline_ms) => call.deadline_ms(deadline_ms),
            None => call,
        }
    }

    /// Acknowledges an intent that has an outcome, if there is one, along with a call.
    fn acknowledging(&mut self, call: Call) -> Call {
        let mut call = call;
        for n in 0..self.intents.len() {
            let pick = self.rng.u8(0..3);
            let intent = &mut self.intents[n];
            if intent.outcome.is_none() || (intent.acknowledged.is_none() && pick > 0) {
                continue;
            }
            let latest_ms = intent.sent.iter().flatten().max().copied();
            let has_until = latest_ms.is_some() && (intent.is_bounded || pick == 1);
            let until_ms = intent.acknowledged.unwrap_or_else(|| latest_ms.filter(|_| has_until));
            intent.acknowledged = Some(until_ms);
            call = match until_ms {
                Some(until_ms) => call.ack_until(&intent.id, until_ms),
                None => call.ack(&intent.id),
            };
        }
        call
    }

    fn count(&mut self) {
        let has_table = self.world.database.tables().iter().any(|table| table == "effects");
        for n in 0..self.intents.len() {
            let effects = if has_table { self.world.effects_of(&self.intents[n].id) } else { 0 };
            let intent = &mut self.intents[n];
            intent.runs += (effects - intent.effects).max(0);
            intent.effects = effects;
            let (runs, is_never, id) = (intent.runs, intent.is_never, intent.id.clone());
            self.check(runs <= 1, &format!("{id} ran twice"));
            self.check(runs == 0 || !is_never, &format!("{id} ran though it never would"));
        }
    }

    fn hears(&mut self, n: usize, reply: &Reply) {
        self.count();
        let status = reply.only("semel-status").to_owned();
        let id = self.intents[n].id.clone();
        let line = format!("{id} hears {} {status}", reply.status());
        self.tell(line);
        if status == "executed" || status == "replayed" {
            let body = reply.body().to_vec();
            self.check(self.intents[n].runs == 1, "an outcome without an effect");
            let known = self.intents[n].outcome.get_or_insert_with(|| body.clone()).clone();
            self.check(known == body, "another outcome");
        } else if reply.status() >= 400 {
            let (executed, retry) = (reply.field("executed"), reply.field("retry"));
            self.check(executed != "yes" || self.intents[n].runs == 1, "yes without an effect");
            if executed == "no" && retry == "never" {
                self.check(self.intents[n].runs == 0, "never though it ran");
                self.intents[n].is_never = true;
            }
            self.check(status != "fingerprint-mismatch", "a mismatch");
        }
    }

    fn fault(&mut self) {
        let n = self.rng.u64(0..14);
        match self.rng.u8(0..12) {
            0 => self.world.database.crash_before(n),
            1 => self.world.database.fail(n),
            2 => self.world.database.full(n),
            3 => self.world.handler.trouble.set(Trouble::Panics),
            4 => self.world.handler.trouble.set(Trouble::Fails),
            5 => self.world.handler.trouble.set(Trouble::BadSql),
            _ => {}
        }
    }

    fn calm(&mut self) {
        self.world.handler.trouble.set(Trouble::None);
        if self.world.database.has_crashed() {
            self.world.restart();
            if self.rng.bool() {
                self.world.pass_ms(self.rng.i64(-20_000..20_000));
            }
        }
        self.world.database.calm();
        self.count();
    }

    fn step(&mut self) {
        let n = self.any();
        self.fault();
        match self.rng.u8(0..24) {
            0..=6 => self.asks(n),
            7 => {
                let call = self.acknowledging(get("/count"));
                self.tell(&call);
                self.world.send(&call);
            }
            8..=10 => self.ask_together(),
            11 | 12 => self.starts(n),
            13 => self.cancels(n),
            14 => {
                self.tell("look-up");
                let reply = self.world.send(&look_up(&escaped(&self.intents[n].id)));
                self.hears(n, &reply);
            }
            15 | 16 => self.administers(n),
            17..=22 => self.goes_on(),
            _ => {
                if self.intents.len() > 6 {
                    self.intents.swap_remove(n);
                }
                self.add();
            }
        }
        self.calm();
    }

    fn asks(&mut self, n: usize) {
        let call = self.attempt(n);
        let call = if self.rng.bool() { self.acknowledging(call) } else { call };
        self.tell(&call);
        let reply = self.world.send(&call);
        self.hears(n, &reply);
    }

    fn ask_together(&mut self) {
        let several: Vec<usize> = (0..self.rng.usize(2..6)).map(|_| self.any()).collect();
        let mut calls = Vec::new();
        for n in &several {
            let call = self.attempt(*n);
            calls.push(if self.rng.u8(0..3) == 0 { self.acknowledging(call) } else { call });
        }
        let between_ms = if self.rng.bool() { 0 } else { self.rng.i64(0..30_000) };
        self.tell(format!("group over {between_ms}: {calls:?}"));
        let replies = self.world.group_over(&calls, between_ms);
        if let Some(replies) = replies {
            several.iter().zip(&replies).for_each(|(n, reply)| self.hears(*n, reply));
        } else if !self.world.database.has_crashed() {
            for (n, call) in several.iter().zip(&calls) {
                let reply = self.world.send(call);
                self.hears(*n, &reply);
            }
        }
    }

    /// A start is counted, and then the request runs or its object ends.
    fn starts(&mut self, n: usize) {
        let call = self.attempt(n);
        self.tell(("start", &call));
        self.world.start(&call);
        self.count();
        if self.rng.bool() || self.world.database.has_crashed() {
            self.world.restart();
        } else {
            let reply = self.world.send(&call);
            self.hears(n, &reply);
        }
    }

    /// Cancels as the protocol says: with the first-sent, and by a deadline that counts as one of an attempt.
    fn cancels(&mut self, n: usize) {
        if self.intents[n].acknowledged.is_some() {
            return;
        }
        let deadline_ms = self.world.wall_ms + 10_000;
        self.made += 1;
        let own = format!("c{}", self.made);
        let intent = &mut self.intents[n];
        intent.sent.push(Some(deadline_ms));
        let body = json!({ "id": intent.id, "firstSent": intent.first_sent_s }).to_string();
        let call = post(&control("cancel")).id(&own).body(body).first_sent_s(self.world.wall_s());
        let call = call.deadline_ms(deadline_ms);
        self.tell(&call);
        let reply = self.world.send(&call);
        if reply.only("semel-status") == "executed" && reply.json()["state"] == "cancelled" {
            self.tell("cancelled");
            self.check(self.intents[n].runs == 0, "cancelled though it ran");
            self.intents[n].is_never = true;
        }
    }

    fn administers(&mut self, n: usize) {
        self.made += 1;
        let own = format!("d{}", self.made);
        match self.rng.u8(0..6) {
            0 => {
                self.tell("the key is deleted");
                self.world.send(&delete_key(&own));
            }
            1 | 2 => {
                let id = self.intents[n].id.clone();
                self.tell(format!("{id} is deleted"));
                self.world.send(&delete_record(&own, &escaped(&id)));
            }
            _ => {
                let before_s = self.world.wall_s() + self.rng.i64(-100..30);
                let done = self.world.forget(before_s);
                self.tell(("forget", before_s, done));
            }
        }
    }

    fn goes_on(&mut self) {
        match self.rng.u8(0..6) {
            0 | 1 => {
                let pass_ms = self.rng.i64(0..60_000);
                self.world.pass_ms(pass_ms);
                self.tell("time passes");
            }
            2 => {
                let back_ms = self.rng.i64(0..50_000);
                self.world.wall_ms = (self.world.wall_ms - back_ms).max(START_MS);
                self.tell("the clock goes back");
            }
            3 => {
                self.world.pass_s(self.rng.i64(0..300));
                self.tell("much time passes");
            }
            4 => {
                let retention_s = RETENTION_S * self.rng.i64(1..3);
                self.world.restart_with(|config| config.retention_s = retention_s);
                let opened = self.world.open();
                self.tell(("restart", retention_s, opened));
            }
            _ => {
                let swept = self.world.sweep_page();
                self.tell(("sweep", swept));
            }
        }
    }
}

impl Run {
    /// In the end nothing is left of any request, and nothing wakes the key any more but its registration.
    fn leaves(&mut self) {
        while let Some(at_ms) = self.world.wakes_at_without_registry() {
            self.world.wall_ms = self.world.wall_ms.max(at_ms);
            self.tell("wakes");
            self.world.wake_without_registry();
            self.check(self.told.len() < 1_000, "it wakes without end");
        }
        if self.world.database.tables().is_empty() {
            return;
        }
        let chunks = self.world.database.number("SELECT count(*) FROM semel_tombstones");
        let left = (self.world.rows(), chunks, self.world.count());
        self.check(left == (0, 0, Ok(Change::default())), &format!("{left:?} are left"));
    }
}

fn escaped(id: &str) -> String {
    id.replace(' ', "%20")
}

#[test]
fn a_request_that_says_when_it_was_first_sent_has_its_effect_once_at_most_whatever_comes() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        (0..STEPS).for_each(|_| run.step());
        // Memory and tables agree.
        run.calm();
        run.world.pass_s(300);
        let counted = run.world.count();
        run.world.restart();
        let counted_again = run.world.count();
        run.check(counted == counted_again, &format!("{counted:?} counted, and there are {counted_again:?}"));
        run.leaves();
    }
}
