//! The run: a queue of events in the order of time, and the host of each key, as `effects.js` drives its engine.
//!
//! Invariants:
//! - There is no wall clock, no sleeping, and no randomness except from the seed.
//! - The host asks for effects to send after each call of an engine, and at a constant interval as long as something
//!   waits. An object that has died is woken by its alarm. An effect without an answer in time gets none.
//! - After the busy time the faults end, and everything that waits must be sent by itself.

use super::administrator::{Mended, Mending};
use super::bank::{Accounts, key_of};
use super::options::Options;
use super::oracle::{Account, check};
use super::outside::Outside;
use crate::mutant::Mutant;
use crate::oracle::{Violation, violation};
use crate::plan::Plan;
use crate::stored::{self, When};
use fastrand::Rng;
use semel_core::header::unquoted;
use semel_core::server::Config;
use semel_core::server::effects::{Heard, Sending};
use semel_support::{Call, START_MS, World, post};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The most statements of a call. A fault happens at one of them.
const STATEMENTS_MAX: u64 = 24;
/// The longest that a message is under way, if it is not slow and if it is, in ms.
const WAY_MS_MAX: i64 = 50;
const SLOW_WAY_MS_MAX: i64 = 20_000;
/// How long an answer may take, in ms.
const ANSWER_MS: i64 = 30_000;
/// The engine's interval and a little more, in ms.
pub(super) const AGAIN_MS: i64 = 1_010;
/// After how long an object that died with effects to send is woken, in ms.
const ALARM_MS: i64 = 5_000;
/// A run that has not settled this long after the faults ended never will, in ms.
const SETTLES_MS_MAX: i64 = 3_600_000;

#[derive(Debug)]
pub(super) enum Event {
    /// Somebody asks for a transfer, and again until there is an answer.
    Ask(usize),
    /// An effect arrives. The object that waits for the answer, if one does.
    Arrival(Option<(usize, u32)>, Box<Sending>),
    /// The answer to an effect arrives at the object that has sent it.
    Answer(usize, u32, Box<Sending>, Heard),
    /// The object looks for effects to send.
    Look(usize, u32),
    Alarm(usize),
    End(usize),
    Renew(usize),
    Close(usize),
    Open(usize),
    BackUp,
    Restore,
    /// The clock of a key's machine goes back.
    GoBack(usize),
    /// An administrator looks at some key.
    Administer,
    /// An administrator has a key forget everything that was used until now.
    Forget(usize),
    /// What an administrator decided after a look is requested, for the first time (`true`) or again.
    Mend(usize, bool),
    Calm,
}

/// A wish: a transfer that somebody wants once.
struct Wish {
    from: usize,
    call: Call,
}

pub(super) struct Keyed {
    pub world: World<Accounts>,
    /// How often it has ended. What an earlier object waits for is ignored.
    life: u32,
    has_timer: bool,
    /// How far the machine's clock is behind, in ms.
    behind_ms: i64,
}

/// The run.
pub struct Run {
    pub(super) options: Options,
    pub(super) mutant: Option<Mutant>,
    rng: Rng,
    /// Decides about the administrator and the clocks.
    pub(super) mending: Rng,
    /// Decide who takes ids, and who has sessions forgotten.
    taking: Rng,
    pub(super) forgetting: Rng,
    pub(super) now_ms: i64,
    pub(super) queue: BTreeMap<(i64, u64), Event>,
    pushed: u64,
    pub(super) keys: Vec<Keyed>,
    wishes: Vec<Wish>,
    pub(super) mendings: Vec<Mending>,
    pub(super) mended: Mended,
    outside: Outside,
    backup: Option<World<Accounts>>,
    was_put_back: bool,
    pub(super) has_forgotten: bool,
    is_calm: bool,
    seen: BTreeSet<String>,
    pub trace: Option<Vec<String>>,
}

impl Run {
    /// Makes the run of a plan.
    pub fn new(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Self {
        let keyed = |account: usize| {
            let config = Config { open: true, ..Config::default() };
            let world = World::in_memory(&key_of(&account.to_string()), Accounts::default(), config);
            Keyed { world, life: 0, has_timer: false, behind_ms: 0 }
        };
        Self {
            options: plan.effects.clone(),
            mutant,
            rng: Rng::with_seed(!crate::plan::of_effects(plan.seed)),
            mending: Rng::with_seed(!crate::plan::of_mending(plan.seed)),
            taking: Rng::with_seed(!crate::plan::of_taking(plan.seed)),
            forgetting: Rng::with_seed(!crate::plan::of_forgetting(plan.seed)),
            now_ms: 0,
            queue: BTreeMap::new(),
            pushed: 0,
            keys: (0..plan.effects.accounts).map(keyed).collect(),
            wishes: Vec::new(),
            mendings: Vec::new(),
            mended: Mended::default(),
            outside: Outside::default(),
            backup: None,
            was_put_back: false,
            has_forgotten: false,
            is_calm: false,
            seen: BTreeSet::new(),
            trace: is_traced.then(Vec::new),
        }
    }

    /// Runs the plan. Returns what happened, by name.
    pub fn run(&mut self) -> Result<BTreeSet<String>, Violation> {
        self.set_up();
        let ends_ms = self.options.busy_ms * 2 + SETTLES_MS_MAX;
        while let Some(((at_ms, _), event)) = self.queue.pop_first() {
            if at_ms > ends_ms {
                return violation("unsettled", format!("it does not come to rest: {event:?}"));
            }
            self.now_ms = at_ms;
            self.happen(event);
        }
        self.keys.iter().for_each(|keyed| stored::change(self.mutant, When::Sent, &keyed.world.database));
        let accounts: Vec<Account> = self.keys.iter().map(|keyed| Account::of(&keyed.world.database)).collect();
        if let Some(account) = accounts.iter().position(|account| account.waiting > 0) {
            return violation("unsettled", format!("at {account} something waits: {:?}", accounts[account]));
        }
        let mut seen = check(&accounts, (self.was_put_back, self.has_forgotten), &self.mended, &self.outside)?;
        seen.append(&mut self.seen);
        Ok(seen)
    }

    /// How many credits were sent and are not forgotten.
    pub fn credits(&self) -> i64 {
        self.keys.iter().map(|keyed| keyed.world.database.number("SELECT count(*) FROM sent")).sum()
    }

    fn set_up(&mut self) {
        let options = self.options.clone();
        for number in 0..options.transfers {
            // A restored key gets no credits, because the senders would not send again what it has forgotten.
            let first = usize::from(options.restores > 0);
            let from = self.rng.usize(0..options.accounts);
            let to: Vec<String> =
                (0..self.rng.usize(1..=3)).map(|_| self.rng.usize(first..options.accounts).to_string()).collect();
            let body = json!({ "number": number, "to": to }).to_string();
            let call = post(&format!("/accounts/{from}/transfer")).id(&format!("t{number}")).body(body);
            let at_ms = self.rng.i64(0..options.busy_ms);
            // A forgotten request must not count as new.
            let first_sent_s = (START_MS + at_ms) / 1000;
            let call = if options.forgets > 0 { call.first_sent_s(first_sent_s) } else { call };
            self.wishes.push(Wish { from, call });
            self.push(at_ms, Event::Ask(number));
        }
        let faults = [
            (options.ends, Event::End as fn(usize) -> Event),
            (options.renewals, Event::Renew),
            (options.refusals, Event::Close),
            (options.restores, |_| Event::BackUp),
            (options.restores, |_| Event::Restore),
        ];
        for (count, event) in faults {
            for _ in 0..count {
                let (at_ms, account) = (self.rng.i64(0..options.busy_ms * 2), self.rng.usize(0..options.accounts));
                self.push(at_ms, event(account));
            }
        }
        self.set_up_administrator();
        for _ in 0..self.options.clock_backs {
            let at_ms = self.mending.i64(0..self.options.busy_ms * 2);
            let account = self.mending.usize(0..self.options.accounts);
            self.push(at_ms, Event::GoBack(account));
        }
        self.push(options.busy_ms * 2 + 1, Event::Calm);
    }

    pub(super) fn push(&mut self, at_ms: i64, event: Event) {
        self.pushed += 1;
        self.queue.insert((at_ms.max(self.now_ms), self.pushed), event);
    }

    fn later(&mut self, ms_max: i64, event: Event) {
        let delay_ms = self.rng.i64(0..=ms_max);
        self.push(self.now_ms + delay_ms, event);
    }

    fn happens_often(&mut self, percent: u32) -> bool {
        !self.is_calm && self.rng.u32(0..100) < percent
    }

    fn way_ms(&mut self) -> i64 {
        if self.happens_often(self.options.slow) { SLOW_WAY_MS_MAX } else { WAY_MS_MAX }
    }

    pub(super) fn see(&mut self, what: &str) {
        self.seen.insert(format!("effects: {what}"));
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now_ms = self.now_ms;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} s  {}", now_ms as f64 / 1000.0, line()));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ask(number) => {
                let (from, call) = (self.wishes[number].from, self.wishes[number].call.clone());
                let heard = self.ask(from, &call);
                self.note(|| format!("transfer {number} at {from}: {heard:?}"));
                // Nobody hears of a forgotten request whether it was executed.
                let is_over = |semel: &str| matches!(semel, "outcome-expired" | "forgotten" | "outside-window");
                let is_done =
                    matches!(&heard, Some(Heard::Answered { status, semel, .. }) if *status == 200 || is_over(semel));
                if !is_done || self.happens_often(self.options.lose_answers) {
                    self.push(self.now_ms + AGAIN_MS, Event::Ask(number));
                }
            }
            Event::Arrival(from, sending) => self.arrive(from, sending),
            Event::Answer(from, life, sending, heard) => {
                if life == self.keys[from].life {
                    self.note(|| format!("{from}: of {} came {heard:?}", sending.url));
                    self.break_database(from);
                    self.world(from).sent(&sending, heard);
                    self.is_alive(from);
                    self.look(from);
                }
            }
            Event::Look(account, life) => {
                if life == self.keys[account].life {
                    self.keys[account].has_timer = false;
                    self.look(account);
                }
            }
            Event::Alarm(account) => self.look(account),
            Event::End(account) => self.end(account),
            Event::Renew(account) => {
                self.see("a module is made anew");
                self.note(|| format!("{account}: its module is made anew"));
                self.keys[account].world.restart();
                self.look(account);
            }
            Event::Close(account) => {
                self.note(|| format!("{account} knows no credits"));
                self.keys[account].world.handler.is_closed.set(!self.is_calm);
                self.later(self.options.busy_ms, Event::Open(account));
            }
            Event::Open(account) => self.keys[account].world.handler.is_closed.set(false),
            Event::BackUp => self.back_up(),
            Event::Restore => self.restore(),
            Event::GoBack(account) => self.go_back(account),
            Event::Administer => self.administer(),
            Event::Forget(account) => self.forget(account),
            Event::Mend(number, is_first) => self.mend(number, is_first),
            Event::Calm => {
                self.note(|| "the faults end".to_owned());
                self.is_calm = true;
                self.keys.iter().for_each(|keyed| keyed.world.handler.is_closed.set(false));
            }
        }
    }

    fn go_back(&mut self, account: usize) {
        // Sometimes by more than the deadline of a take-over is ahead.
        let by_ms = self.mending.i64(0..self.options.busy_ms) * 10;
        self.keys[account].behind_ms += by_ms;
        self.see("a clock goes back");
        self.note(|| format!("{account}: its clock goes back by {by_ms} ms"));
    }

    pub(super) fn world(&mut self, account: usize) -> &mut World<Accounts> {
        let Keyed { world, behind_ms, .. } = &mut self.keys[account];
        world.wall_ms = START_MS + self.now_ms - *behind_ms;
        world
    }

    fn break_database(&mut self, account: usize) {
        let n = self.rng.u64(0..STATEMENTS_MAX);
        let (crash, fail) = (self.happens_often(self.options.crash), self.happens_often(self.options.fail));
        let database = &self.keys[account].world.database;
        if crash {
            database.crash_before(n);
        } else if fail {
            database.fail(n);
        }
    }

    /// Whether the object has survived the last call.
    fn is_alive(&mut self, account: usize) -> bool {
        let database = &self.keys[account].world.database;
        database.calm();
        let has_crashed = database.has_crashed();
        if has_crashed {
            self.see("an object ends between two statements");
            self.end(account);
        }
        !has_crashed
    }

    fn end(&mut self, account: usize) {
        self.note(|| format!("{account}: its object ends"));
        let keyed = &mut self.keys[account];
        (keyed.life, keyed.has_timer) = (keyed.life + 1, false);
        keyed.world.restart();
        self.push(self.now_ms + ALARM_MS, Event::Alarm(account));
    }

    /// Asks an object. `None` if it ended meanwhile, so that there is no answer.
    pub(super) fn ask(&mut self, account: usize, call: &Call) -> Option<Heard> {
        self.break_database(account);
        let reply = self.world(account).send(call);
        if !self.is_alive(account) {
            return None;
        }
        self.look(account);
        let semel = reply.only("semel-status").to_owned();
        Some(Heard::Answered { status: reply.status(), semel, body: reply.body().to_vec() })
    }

    /// Sends the effects that are due, and looks again later if any wait.
    fn look(&mut self, account: usize) {
        let chance = self.rng.i64(0..1 << 53);
        while let Some(sending) = self.world(account).send_next_by(chance) {
            self.send(account, sending);
        }
        let keyed = &mut self.keys[account];
        if keyed.world.wakes_to_send_at().is_some() && !keyed.has_timer {
            keyed.has_timer = true;
            let life = keyed.life;
            self.push(self.now_ms + AGAIN_MS, Event::Look(account, life));
        }
    }

    fn send(&mut self, from: usize, sending: Sending) {
        let (life, sending) = (self.keys[from].life, Box::new(sending));
        let has = |name| sending.headers.get(name).is_some();
        if has("semel-ack") {
            self.see("a take-over or a closing is acknowledged");
        }
        if sending.url.starts_with("/semel/") && !has("semel-deadline") {
            self.see("a take-over or a closing goes without a deadline");
        }
        if self.happens_often(self.options.repeat) {
            self.see("something comes again, late");
            self.later(SLOW_WAY_MS_MAX, Event::Arrival(None, sending.clone()));
        }
        if self.happens_often(self.options.lose) {
            self.note(|| format!("{from}: {} is lost", sending.url));
            return self.lose(from, life, sending);
        }
        let way_ms = self.way_ms();
        self.later(way_ms, Event::Arrival(Some((from, life)), sending));
    }

    /// Loses a message. A broken connection is noticed early; a message that vanishes is noticed by the time-out.
    pub(super) fn lose(&mut self, from: usize, life: u32, sending: Box<Sending>) {
        let after_ms = if self.rng.bool() { WAY_MS_MAX } else { ANSWER_MS };
        self.push(self.now_ms + after_ms, Event::Answer(from, life, sending, Heard::Nothing("lost".to_owned())));
    }

    /// The answer of a key or of the outside to an effect; `None` if an object ended because of it.
    fn received(&mut self, sending: &Sending) -> (String, Option<Heard>) {
        let Some(key) = &sending.key else {
            let fails = self.happens_often(self.options.fail);
            return ("outside".to_owned(), Some(self.outside.answer(sending, fails)));
        };
        let mut call = Call::new(&sending.method, &sending.url).body(sending.body.clone());
        for (name, value) in sending.headers.iter() {
            call = call.header(name, value);
        }
        let account = key.as_str().trim_start_matches("accounts/").parse();
        let principal = sending.headers.get("semel-principal").and_then(unquoted);
        let (Ok(to), Some(principal)) = (account, principal) else { panic!("all goes to accounts: {sending:?}") };
        self.take_id(to, sending);
        let heard = self.ask(to, &call.by(&principal));
        if let Some(Heard::Answered { semel, .. }) = &heard {
            self.see(&format!("somebody is told {semel}"));
        }
        (to.to_string(), heard)
    }

    /// Somebody who uses the key takes the id of a closing before that arrives.
    fn take_id(&mut self, to: usize, sending: &Sending) {
        let is_closing = sending.url.ends_with("/cancel") && !self.is_calm;
        let Some(id) = sending.headers.get("idempotency-key").and_then(unquoted).filter(|_| is_closing) else { return };
        if self.taking.u32(0..100) < self.options.takes {
            let call = post(&sending.url).id(&format!("of {id}")).by("stranger").body(json!({ "id": id }).to_string());
            self.world(to).send(&call);
            self.see("somebody takes the id of a closing");
            self.note(|| format!("{to}: somebody takes {id}"));
        }
    }

    fn arrive(&mut self, from: Option<(usize, u32)>, sending: Box<Sending>) {
        let (to, heard) = self.received(&sending);
        self.note(|| {
            let place = sending.headers.get("semel-session").unwrap_or("no place");
            format!(
                "{from:?} to {to}: {} at {place} {} -> {heard:?}",
                sending.url,
                String::from_utf8_lossy(&sending.body)
            )
        });
        let Some((from, life)) = from else { return };
        match heard.filter(|_| !self.happens_often(self.options.lose_answers)) {
            Some(heard) => {
                let way_ms = self.way_ms();
                self.later(way_ms.min(ANSWER_MS - SLOW_WAY_MS_MAX), Event::Answer(from, life, sending, heard));
            }
            None => self.lose(from, life, sending),
        }
    }

    /// Makes a backup. Not between the start of an object and its take-over: what it emits then may have been sent
    /// since.
    fn back_up(&mut self) {
        let database = &self.keys[0].world.database;
        let unsure = "SELECT count(*) FROM semel_effect_lanes WHERE sure IS NOT NULL AND seq > sure";
        if database.number(unsure) == 0 {
            self.backup = Some(self.keys[0].world.copy());
            self.note(|| "0 is backed up".to_owned());
        }
    }

    fn restore(&mut self) {
        let Some(backup) = &self.backup else { return };
        self.keys[0].world = backup.copy();
        self.was_put_back = true;
        self.see("a key is put back");
        self.note(|| "0 is put back".to_owned());
        self.end(0);
    }
}
