//! The host of each key, as `effects.js` drives its engine.
//!
//! Invariants:
//! - It asks for effects to send after each call of an engine, and at a constant interval as long as something waits.
//! - An object that has died is woken by its alarm. An effect without an answer in time gets none.

use super::bank::Accounts;
use super::run::{AGAIN_MS, Event, Keyed, Run};
use semel_core::header::unquoted;
use semel_core::server::effects::{Heard, Sending};
use semel_support::{Call, START_MS, World, post};
use serde_json::json;

/// The most statements of a call. A fault happens at one of them.
const STATEMENTS_MAX: u64 = 24;
/// The longest that a message is under way, if it is not slow and if it is, in ms.
const WAY_MS_MAX: i64 = 50;
const SLOW_WAY_MS_MAX: i64 = 20_000;
/// How long an answer may take, in ms.
const ANSWER_MS: i64 = 30_000;
/// After how long an object that died with effects to send is woken, in ms.
const ALARM_MS: i64 = 5_000;

impl Run {
    fn way_ms(&mut self) -> i64 {
        if self.happens_often(self.options.slow) { SLOW_WAY_MS_MAX } else { WAY_MS_MAX }
    }

    pub(super) fn go_back(&mut self, account: usize) {
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

    pub(super) fn break_database(&mut self, account: usize) {
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
    pub(super) fn is_alive(&mut self, account: usize) -> bool {
        let database = &self.keys[account].world.database;
        database.calm();
        let has_crashed = database.has_crashed();
        if has_crashed {
            self.see("an object ends between two statements");
            self.end(account);
        }
        !has_crashed
    }

    pub(super) fn end(&mut self, account: usize) {
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
    pub(super) fn look(&mut self, account: usize) {
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

    pub(super) fn arrive(&mut self, from: Option<(usize, u32)>, sending: Box<Sending>) {
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
    pub(super) fn back_up(&mut self) {
        let database = &self.keys[0].world.database;
        let unsure = "SELECT count(*) FROM semel_effect_lanes WHERE sure IS NOT NULL AND seq > sure";
        if database.number(unsure) == 0 {
            self.backup = Some(self.keys[0].world.copy());
            self.note(|| "0 is backed up".to_owned());
        }
    }

    pub(super) fn restore(&mut self) {
        let Some(backup) = &self.backup else { return };
        self.keys[0].world = backup.copy();
        self.was_put_back = true;
        self.see("a key is put back");
        self.note(|| "0 is put back".to_owned());
        self.end(0);
    }
}
