//! The run: a queue of events in the order of time.
//!
//! Invariants:
//! - There is no wall clock, no sleeping, and no randomness except from the seed.
//! - After the busy time the faults end, and each caller must get a definitive answer.

use super::asked::{Asked, Errand, State, id_of};
use super::callers::Wish;
use super::host::Object;
use super::oracle::Oracle;
use super::service::Service;
use super::shifts::Backup;
use crate::mutant::{Mutant, Twin};
use crate::oracle::{Violation, violation};
use crate::plan::Plan;
use fastrand::Rng;
use semel_core::server::engine::remote::Ended;
use semel_support::{Reply, admin};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A run that has not settled this long after the faults ended never will, in ms.
const SETTLES_MS_MAX: i64 = 3_600_000;

/// How often an administrator clears a key that may be full, in ms.
const CLEARS_MS: i64 = 10_000;

#[derive(Debug)]
pub(super) enum Event {
    /// A caller begins to want something, or still wants it.
    Ask(usize),
    /// Somebody asks for something besides.
    Again,
    Administer(usize),
    /// A request arrives at the key.
    Arrival(Rc<Asked>),
    /// An answer arrives at the caller.
    Told(Rc<Asked>, Box<Reply>),
    /// A request waits no longer for its turn.
    WaitOver(u32, usize),
    /// Commits are no longer held back.
    Release(u32),
    /// The result of a call arrives at the key.
    Ended(u32, usize, Ended),
    /// A message arrives at the service.
    Reached(usize),
    /// The service has done what a message asks for.
    Made(usize),
    /// The service is gone for a while.
    Outage,
    /// The object ends.
    End,
    /// The object is deployed anew.
    Deploy,
    /// The clock of the key's machine jumps by so many ms.
    Jump(i64),
    BackUp,
    PutBack,
    Calm,
    /// Once there are no faults: an administrator settles what is in doubt at a key that may be full, or nobody would
    /// ever get its place.
    Clear(usize),
}

/// The run.
pub struct Run {
    pub(super) plan: Plan,
    pub(super) mutant: Option<Mutant>,
    pub(super) rng: Rng,
    /// Decides about what goes along, and about room: another stream, so that runs without them are as they were.
    pub(super) room: Rng,
    /// Decides about clocks and backups, likewise.
    pub(super) shifts: Rng,
    /// How far the clock of the key's machine is ahead, and was at most, in ms.
    pub(super) ahead_ms: i64,
    pub(super) ahead_ms_max: i64,
    /// How far the key's clock is ahead as far as callers have heard, in ms.
    pub(super) heard_ahead_ms: i64,
    pub(super) backup: Option<Backup>,
    /// What a mutant does to the rows when the clock jumps.
    pub(super) undated: Vec<String>,
    pub(super) now_ms: i64,
    queue: BTreeMap<(i64, u64), Event>,
    pushed: u64,
    pub(super) object: Object,
    pub(super) service: Service,
    pub(super) wishes: Vec<Wish>,
    /// The number of requests so far.
    pub(super) asked: usize,
    pub(super) is_calm: bool,
    pub(super) oracle: Oracle,
    pub trace: Option<Vec<String>>,
}

impl Run {
    /// Makes the run of a plan.
    pub fn new(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Self {
        Self {
            plan: plan.clone(),
            mutant,
            rng: Rng::with_seed(!crate::plan::of_remote(plan.seed)),
            room: Rng::with_seed(!crate::plan::of_remote_room(plan.seed)),
            shifts: Rng::with_seed(!crate::plan::of_shifts(plan.seed)),
            ahead_ms: 0,
            ahead_ms_max: 0,
            heard_ahead_ms: 0,
            backup: None,
            undated: Vec::new(),
            now_ms: 0,
            queue: BTreeMap::new(),
            pushed: 0,
            object: Object::new(&plan.remote, mutant),
            service: Service::default(),
            wishes: Vec::new(),
            asked: 0,
            is_calm: false,
            oracle: Oracle::new(&plan.remote),
            trace: is_traced.then(Vec::new),
        }
    }

    /// Runs the plan. Returns what happened, by name.
    pub fn run(&mut self) -> Result<BTreeSet<String>, Violation> {
        self.set_up();
        let ends_ms = self.plan.remote.busy_ms * 3 + SETTLES_MS_MAX;
        while let Some(((at_ms, _), event)) = self.queue.pop_first() {
            if at_ms > ends_ms {
                return violation("unsettled", format!("it does not come to rest: {event:?}, {}", self.pending()));
            }
            self.now_ms = at_ms;
            self.happen(event)?;
        }
        Ok(std::mem::take(&mut self.oracle.seen))
    }

    fn set_up(&mut self) {
        let options = self.plan.remote.clone();
        for n in 0..options.wishes {
            let at_ms = self.rng.i64(0..options.busy_ms);
            let wish = self.any_wish(at_ms);
            self.oracle.wish(wish.route, wish.first_sent_s.is_some());
            self.wishes.push(wish);
            self.push(at_ms, Event::Ask(n));
        }
        let busy_ms = options.busy_ms;
        let others = [
            (options.again, busy_ms * 3, (|_| Event::Again) as fn(usize) -> Event),
            (options.administrations, busy_ms * 2, Event::Administer),
            (options.outages, busy_ms * 2, |_| Event::Outage),
            (options.ends, busy_ms * 2, |_| Event::End),
            (options.deployments, busy_ms * 2, |_| Event::Deploy),
        ];
        for (count, most_ms, event) in others {
            for n in 0..count {
                let at_ms = self.rng.i64(0..most_ms);
                self.push(at_ms, event(n));
            }
        }
        self.set_up_shifts();
        self.push(busy_ms * 2 + 1, Event::Calm);
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

    pub(super) fn is_twin(&self, twin: Twin) -> bool {
        self.mutant == Some(Mutant::Twin(twin))
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now_ms = self.now_ms;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} s  {}", now_ms as f64 / 1000.0, line()));
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Ask(wish) => self.ask_for(wish),
            Event::Again => self.ask_besides()?,
            Event::Administer(n) => self.administer(n)?,
            Event::Arrival(asked) => self.arrive(asked)?,
            Event::Told(asked, reply) => self.told(&asked, &reply),
            Event::WaitOver(life, number) => self.wait_over(life, number)?,
            Event::Release(life) => self.release(life)?,
            Event::Ended(life, number, ended) => self.ended(life, number, ended)?,
            Event::Reached(number) => self.reached(number)?,
            Event::Made(number) => self.made(number)?,
            Event::Outage if self.is_calm => {}
            Event::Outage => {
                self.service.gone_until_ms = self.now_ms + self.rng.i64(0..=self.plan.remote.busy_ms);
                self.note(|| "the service is gone".to_owned());
            }
            Event::End => {
                self.oracle.see("elsewhere: the object ends");
                self.note(|| "the object ends".to_owned());
                self.end_object();
            }
            Event::Deploy => self.deploy(),
            Event::Jump(jump_ms) => self.jump(jump_ms),
            Event::BackUp => self.back_up(),
            Event::PutBack => self.put_back()?,
            Event::Calm => {
                self.note(|| "the faults end".to_owned());
                self.is_calm = true;
                self.service.gone_until_ms = 0;
                self.calm_clock();
                self.release(self.object.life)?;
                if self.plan.remote.is_small() {
                    self.push(self.now_ms + CLEARS_MS, Event::Clear(0));
                }
            }
            Event::Clear(n) => self.clear(n)?,
        }
        Ok(())
    }

    /// Settles what is in doubt, as long as somebody waits.
    fn clear(&mut self, n: usize) -> Result<(), Violation> {
        if self.pending().is_empty() {
            return Ok(());
        }
        let seen = self.seen();
        let in_doubt = seen.0.keys().filter(|wish| seen.state_of(**wish) == State::InDoubt);
        for (at, wish) in in_doubt.copied().enumerate().collect::<Vec<_>>() {
            let call = admin::resolve(&format!("clear-{n}-{at}"), &id_of(wish), r#"{"executed":"no"}"#);
            let asked = self.made_of(wish, Errand::Resolve(false), call);
            self.arrive(asked)?;
        }
        self.push(self.now_ms + CLEARS_MS, Event::Clear(n + 1));
        Ok(())
    }

    /// What still waits.
    fn pending(&self) -> String {
        let open = self.wishes.iter().enumerate().filter(|(_, wish)| !wish.is_done);
        open.map(|(n, wish)| format!("{n} by {} has no answer", wish.route.name())).collect::<Vec<_>>().join("; ")
    }
}
