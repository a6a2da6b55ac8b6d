//! The run: a queue of events in the order of time.
//!
//! Invariants:
//! - There is no wall clock, no sleeping, no randomness except from the seed, and no order that is left to chance.
//! - After the busy time the faults end, and everything that was begun must come to its end by itself.

use crate::curl::{Curl, Errand};
use crate::deposits::Trouble;
use crate::letter::Letter;
use crate::mutant::{Mutant, Twin};
use crate::oracle::{Oracle, Violation, violation};
use crate::plan::Plan;
use crate::putting_back::Backup;
use crate::server::Server;
use crate::sharing::Sharing;
use crate::tab::{Browser, Tab};
use fastrand::Rng;
use semel_core::client::{Answer, Answered, Change, Changed, Receiver, Ticket};
use semel_support::Reply;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A run that has not settled this long after the faults ended never will, in ms.
const SETTLES_MS_MAX: i64 = 3_600_000;

/// An event in a tab. In a frozen tab, nothing happens.
#[derive(Debug)]
pub(crate) enum Happening {
    Wish(usize),
    Share(usize, Sharing),
    GiveUp(usize),
    Changed(Ticket, Option<Changed>),
    Answered(u64, Box<Answer>),
    Lost(u64),
    HandedOver {
        number: usize,
        to: Receiver,
        answered: Rc<Answered>,
    },
    Delivered(Ticket),
    Resume(Ticket),
    OwnerGone,
    /// A caller waited as long as it wants to.
    Overdue(usize),
    /// The network is gone, or back.
    Network,
    /// The user looks at the tab again.
    Hurry,
    /// The clock jumps.
    Jump(i64),
    Wake,
}

#[derive(Debug)]
pub(crate) enum Event {
    In(usize, Happening),
    Transaction { tab: usize, ticket: Ticket, id: String, change: Box<Change> },
    Arrival(Box<Letter>),
    Share(usize, Sharing),
    Release(String),
    Errand(usize, Errand),
    CurlAnswered { curl: usize, life: u32, reply: Box<Reply>, is_unbounded: bool },
    GiveUpCurl(usize),
    Read(usize),
    ReadAnswered(usize, Box<Reply>),
    Stranger,
    Administer(usize),
    Malformed(usize),
    Reload,
    Freeze,
    OpenOne,
    LoseStorage,
    Login,
    Partition,
    Offline,
    Online(usize),
    Hurry,
    Restart,
    CrashCurl,
    Jump,
    BackUp,
    PutBack,
    Calm,
}

pub(crate) struct Sim {
    pub plan: Plan,
    pub mutant: Option<Mutant>,
    pub rng: Rng,
    /// For what is done with ids that the application chooses.
    pub sharing: Rng,
    /// For what an administrator does.
    pub administering: Rng,
    /// For backups.
    pub restoring: Rng,
    pub backup: Option<Backup>,
    /// How far the clocks of keys have jumped, in ms, in either direction.
    pub keys_jumped_ms: i64,
    pub now_ms: i64,
    /// The events by time, and then in the order in which they were made.
    queue: BTreeMap<(i64, u64), Event>,
    made: u64,
    pub server: Server,
    pub browsers: Vec<Browser>,
    pub tabs: Vec<Tab>,
    pub curls: Vec<Curl>,
    pub is_calm: bool,
    pub oracle: Oracle,
    pub trace: Option<Vec<String>>,
}

impl Sim {
    pub fn new(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Self {
        Self {
            plan: plan.clone(),
            mutant,
            rng: Rng::with_seed(!plan.seed),
            sharing: Rng::with_seed(crate::plan::of_sharing(plan.seed)),
            administering: Rng::with_seed(crate::plan::of_administering(plan.seed)),
            restoring: Rng::with_seed(!crate::plan::of_restoring(plan.seed)),
            backup: None,
            keys_jumped_ms: 0,
            now_ms: 0,
            queue: BTreeMap::new(),
            made: 0,
            server: Server::new(plan, mutant),
            browsers: (0..plan.browsers).map(|_| Browser::new()).collect(),
            tabs: Vec::new(),
            curls: Vec::new(),
            is_calm: false,
            oracle: Oracle::new(plan),
            trace: is_traced.then(Vec::new),
        }
    }

    pub fn run(&mut self) -> Result<(), Violation> {
        self.set_up();
        let ends_ms = self.plan.busy_ms * 2 + self.plan.delay_ms_max + SETTLES_MS_MAX + self.plan.places_ms_max();
        while let Some(((at_ms, _), event)) = self.queue.pop_first() {
            if at_ms > ends_ms {
                return violation("unsettled", format!("it does not come to rest: {event:?}, {}", self.pending()));
            }
            self.now_ms = at_ms;
            self.happen(event)?;
        }
        self.check_rest()?;
        self.oracle.check_end(self.server.keys())
    }

    fn set_up(&mut self) {
        for browser in 0..self.plan.browsers {
            self.open_tab(browser, 0);
        }
        for number in 0..self.plan.requests {
            self.decide_trouble(number);
            let at_ms = self.rng.i64(0..self.plan.busy_ms);
            // The tab is chosen when the time comes.
            self.push(at_ms, Event::In(usize::MAX, Happening::Wish(number)));
            if self.rng.u32(0..100) < self.plan.give_up {
                let later_ms = self.rng.i64(0..=self.plan.busy_ms);
                self.push(at_ms + later_ms, Event::In(usize::MAX, Happening::GiveUp(number)));
            }
        }
        self.set_up_curls();
        self.set_up_administrator();
        self.set_up_backups();
        let Plan {
            reloads,
            freezes,
            more_tabs,
            storage_losses,
            logins,
            partitions,
            restarts,
            strangers,
            jumps,
            offlines,
            hurries,
            ..
        } = self.plan;
        let faults = [
            (reloads, (|_| Event::Reload) as fn(usize) -> Event),
            (freezes, |_| Event::Freeze),
            (more_tabs, |_| Event::OpenOne),
            (storage_losses, |_| Event::LoseStorage),
            (logins, |_| Event::Login),
            (partitions, |_| Event::Partition),
            (offlines, |_| Event::Offline),
            (hurries, |_| Event::Hurry),
            (restarts, |_| Event::Restart),
            (jumps, |_| Event::Jump),
            (self.plan.curl_crashes, |_| Event::CrashCurl),
            (strangers, |_| Event::Stranger),
            (self.plan.malformed, Event::Malformed),
            (self.plan.reads, Event::Read),
        ];
        for (count, event) in faults {
            for n in 0..count {
                let at_ms = self.rng.i64(0..self.plan.busy_ms * 2);
                self.push(at_ms, event(n));
            }
        }
        self.push(self.plan.busy_ms * 2 + 1, Event::Calm);
    }

    pub fn decide_trouble(&mut self, number: usize) {
        if self.rng.u32(0..100) < self.plan.troubles {
            let all = [
                Trouble::Fails,
                Trouble::BadSql,
                Trouble::Answers500,
                Trouble::Panics,
                Trouble::Panics,
                Trouble::Kills,
            ];
            let times = if self.rng.u32(0..3) == 0 { u32::MAX } else { self.rng.u32(1..=4) };
            self.server.troubles.insert(number.to_string(), (all[self.rng.usize(0..all.len())], times));
        }
    }

    pub fn push(&mut self, at_ms: i64, event: Event) {
        self.made += 1;
        self.queue.insert((at_ms.max(self.now_ms), self.made), event);
    }

    pub fn later(&mut self, ms_max: i64, event: Event) {
        let delay_ms = self.rng.i64(0..=ms_max);
        self.push(self.now_ms + delay_ms, event);
    }

    pub fn happens_often(&mut self, percent: u32) -> bool {
        !self.is_calm && self.rng.u32(0..100) < percent
    }

    /// Adds a line to the trace, for people who read the run.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let now_ms = self.now_ms;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} s  {}", now_ms as f64 / 1000.0, line()));
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::In(usize::MAX, happening) => {
                let tab = self.some_tab();
                self.push(self.now_ms, Event::In(tab, happening));
            }
            Event::In(tab, happening) => self.happen_in(tab, happening)?,
            Event::Transaction { tab, ticket, id, change } => self.transact(tab, ticket, &id, &change),
            Event::Share(number, sharing) => self.share(number, sharing),
            Event::Arrival(letter) => self.arrive(*letter)?,
            Event::Release(key) => {
                self.note(|| format!("{key}: what was held back is durable"));
                let released = self.server.release(&key);
                self.tell(released)?;
            }
            Event::Errand(curl, errand) => self.run_errand(curl, errand)?,
            Event::CurlAnswered { curl, life, reply, is_unbounded } => {
                self.curl_answered((curl, life), &reply, is_unbounded);
            }
            Event::GiveUpCurl(curl) => self.give_up_curl(curl),
            Event::Read(n) => self.read(n),
            Event::ReadAnswered(n, reply) => self.oracle.history.returned(n, reply.body()),
            Event::Stranger => self.be_strange()?,
            Event::Administer(n) => self.administer(n)?,
            Event::Malformed(n) => self.be_malformed(n)?,
            Event::Online(browser) => self.tell_of_network(browser),
            Event::BackUp => self.back_up()?,
            Event::PutBack => self.put_back()?,
            Event::Calm => self.calm()?,
            fault => self.fault(&fault)?,
        }
        Ok(())
    }

    pub fn is_twin(&self, twin: Twin) -> bool {
        self.mutant == Some(Mutant::Twin(twin))
    }

    /// What still waits, and why.
    fn pending(&self) -> String {
        let mut all = Vec::new();
        for tab in self.tabs.iter().filter(|tab| tab.is_open) {
            let rows = self.browsers[tab.browser].store.load();
            for each in tab.client.overview(&rows).unwrap_or_default() {
                if each.state != "elsewhere" {
                    all.push(format!(
                        "{} is {} in {} after {} attempts",
                        each.id, each.state, tab.owner, each.attempts
                    ));
                }
            }
        }
        for curl in self.curls.iter().filter(|curl| !curl.is_done) {
            all.push(format!("{} is sent by hand", curl.id));
        }
        all.join("; ")
    }

    fn check_rest(&self) -> Result<(), Violation> {
        for tab in self.tabs.iter().filter(|tab| tab.is_open) {
            if let Some(number) = tab.callers.keys().next() {
                let why = self.pending();
                return violation("unsettled", format!("the caller of {number} in {} still waits: {why}", tab.owner));
            }
        }
        match self.browsers.iter().flat_map(|browser| browser.store.unfinished()).next() {
            Some(row) => violation("unsettled", format!("a row is left: {row:?}")),
            None => Ok(()),
        }
    }
}
