//! The run: a queue of events in the order of time.
//!
//! Invariants:
//! - There is no wall clock, no sleeping, and no randomness except from the seed.
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
use semel_core::server::Config;
use semel_core::server::effects::{Heard, Sending};
use semel_support::{Call, START_MS, World, post};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// The engine's interval and a little more, in ms.
pub(super) const AGAIN_MS: i64 = 1_010;
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
    /// An administrator deletes a key, by a request of this number.
    Delete(usize, usize),
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
    /// What it contained each time that it was deleted.
    pub(super) former: Vec<Account>,
    /// How often it has ended. What an earlier object waits for is ignored.
    pub(super) life: u32,
    pub(super) has_timer: bool,
    /// How far the machine's clock is behind, in ms.
    pub(super) behind_ms: i64,
}

/// The run.
pub struct Run {
    pub(super) options: Options,
    pub(super) mutant: Option<Mutant>,
    pub(super) rng: Rng,
    /// Decides about the administrator and the clocks.
    pub(super) mending: Rng,
    /// Decide who takes ids, who has sessions forgotten, and which keys are deleted.
    pub(super) taking: Rng,
    pub(super) forgetting: Rng,
    pub(super) deleting: Rng,
    pub(super) now_ms: i64,
    pub(super) queue: BTreeMap<(i64, u64), Event>,
    pushed: u64,
    pub(super) keys: Vec<Keyed>,
    wishes: Vec<Wish>,
    pub(super) mendings: Vec<Mending>,
    pub(super) mended: Mended,
    pub(super) outside: Outside,
    pub(super) backup: Option<World<Accounts>>,
    pub(super) was_put_back: bool,
    pub(super) has_forgotten: bool,
    pub(super) is_calm: bool,
    seen: BTreeSet<String>,
    pub trace: Option<Vec<String>>,
}

impl Run {
    /// Makes the run of a plan.
    pub fn new(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Self {
        let keyed = |account: usize| {
            let config = Config { open: true, ..Config::default() };
            let world = World::in_memory(&key_of(&account.to_string()), Accounts::default(), config);
            Keyed { world, former: Vec::new(), life: 0, has_timer: false, behind_ms: 0 }
        };
        Self {
            options: plan.effects.clone(),
            mutant,
            rng: Rng::with_seed(!crate::plan::of_effects(plan.seed)),
            mending: Rng::with_seed(!crate::plan::of_mending(plan.seed)),
            taking: Rng::with_seed(!crate::plan::of_taking(plan.seed)),
            forgetting: Rng::with_seed(!crate::plan::of_forgetting(plan.seed)),
            deleting: Rng::with_seed(!crate::plan::of_deleting(plan.seed)),
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
        let account = |keyed: &mut Keyed| Account::of(&keyed.world.database).after(std::mem::take(&mut keyed.former));
        let accounts: Vec<Account> = self.keys.iter_mut().map(account).collect();
        if let Some(account) = accounts.iter().position(|account| account.waiting > 0) {
            return violation("unsettled", format!("at {account} something waits: {:?}", accounts[account]));
        }
        let mut seen = check(
            &accounts,
            (self.was_put_back, self.has_forgotten || self.options.deletions > 0),
            &self.mended,
            &self.outside,
        )?;
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
            let call = if options.forgets + options.deletions > 0 { call.first_sent_s(first_sent_s) } else { call };
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
        self.set_up_deletions();
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

    pub(super) fn later(&mut self, ms_max: i64, event: Event) {
        let delay_ms = self.rng.i64(0..=ms_max);
        self.push(self.now_ms + delay_ms, event);
    }

    pub(super) fn happens_often(&mut self, percent: u32) -> bool {
        !self.is_calm && self.rng.u32(0..100) < percent
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
            Event::Delete(account, number) => self.delete(account, number),
            Event::Mend(number, is_first) => self.mend(number, is_first),
            Event::Calm => {
                self.note(|| "the faults end".to_owned());
                self.is_calm = true;
                self.keys.iter().for_each(|keyed| keyed.world.handler.is_closed.set(false));
            }
        }
    }
}
