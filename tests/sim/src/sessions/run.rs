//! The run of sessions and batches: a queue of events in the order of time.
//!
//! Invariants:
//! - There is no wall clock, no sleeping, and no randomness except from the seed.
//! - After the busy time the faults end, and everything that was begun must come to its end by itself.

use super::asked::Dealt;
use super::batches::Batcher;
use super::held::{Held, Waiting};
use super::holder::{Holder, Rows, Which};
use super::oracle::Oracle;
use super::putting_back::Backup;
use super::server::Server;
use super::sockets::Sockets;
use crate::deposits::Trouble;
use crate::letter::Message;
use crate::mutant::Mutant;
use crate::oracle::{Violation, violation};
use crate::plan::Plan;
use fastrand::Rng;
use semel_core::client::session::{Change, Changed};
use semel_core::client::{Answer, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// A run that has not settled this long after the faults ended never will, in ms.
const SETTLES_MS_MAX: i64 = 3_600_000;
/// The longest that a message is under way if it is not slow, in ms.
const WAY_MS_MAX: i64 = 50;
/// The share of messages that are slow, in percent.
const SLOW_PERCENT: u32 = 20;
/// How often the application looks for rows that nobody sends, in ms.
pub(super) const REOPENS_MS: i64 = 60_000;

/// An event in a tab. In a frozen tab, nothing happens.
#[derive(Debug)]
pub(super) enum Happening {
    Wish(usize),
    GiveUp(usize),
    Changed(Ticket, Option<Changed>),
    Answered(u64, Box<Answer>),
    Lost(u64),
    Delivered(Ticket),
    Look,
    Resume,
    Wake,
}

/// The sender, who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Tab(usize, u64),
    Batcher(usize),
    Nobody,
}

#[derive(Debug)]
pub(super) enum Event {
    In(usize, Happening),
    /// In a tab that is chosen when the time comes.
    Wish(usize),
    Transaction {
        tab: usize,
        ticket: Ticket,
        id: String,
        change: Change,
    },
    Arrival(Sender, Box<Message>),
    /// On the socket of this number, at this position.
    Frame(Sender, (usize, i64), Box<Message>),
    /// An answer on a socket, if the socket still exists.
    OnSocket(Sender, usize, Box<Event>),
    TokenEnds(Sender, usize),
    Batch(usize),
    BatchAnswered(usize, Vec<(u16, String, String)>),
    Probe,
    Hoard(usize),
    Reload,
    Freeze,
    Contend,
    LoseStorage,
    Restart,
    Jump,
    /// What a key holds back becomes durable.
    Release(String),
    Administer(usize),
    BackUp,
    PutBack,
    Calm,
    Reopen,
}

/// The run.
pub struct Run {
    pub(super) plan: Plan,
    pub(super) rng: Rng,
    /// For sockets and deadlines: another stream, so that all other decisions stay as they were.
    pub(super) apart: Rng,
    /// For retentions, likewise.
    pub(super) idling: Rng,
    /// For backups, likewise.
    pub(super) restoring: Rng,
    pub(super) backup: Option<Backup>,
    /// How often the sessions of a key got new names.
    pub(super) generations: BTreeMap<String, usize>,
    pub(super) now_ms: i64,
    queue: BTreeMap<(i64, u64), Event>,
    made: u64,
    pub(super) server: Server,
    pub(super) sockets: Sockets,
    pub(super) held: BTreeMap<String, Vec<Held>>,
    pub(super) rows: Vec<Rows>,
    pub(super) tabs: Vec<Holder>,
    pub(super) batchers: Vec<Batcher>,
    /// The messages sent to sessions so far. Each may arrive again at any time.
    pub(super) sent: Vec<Message>,
    /// The number of messages sent by hand. Each has its own id, even at the same instant.
    pub(super) probes: u64,
    pub(super) is_calm: bool,
    /// When the faults ended.
    pub(super) calm_ms: i64,
    pub(super) oracle: Oracle,
    pub trace: Option<Vec<String>>,
}

impl Run {
    /// Makes the run of a plan.
    pub fn new(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Self {
        Self {
            plan: plan.clone(),
            rng: Rng::with_seed(!crate::plan::of_sessions(plan.seed)),
            apart: Rng::with_seed(!crate::plan::of_sockets(plan.seed)),
            idling: Rng::with_seed(!crate::plan::of_idling(plan.seed)),
            restoring: Rng::with_seed(!crate::plan::of_session_backups(plan.seed)),
            backup: None,
            generations: BTreeMap::new(),
            now_ms: 0,
            queue: BTreeMap::new(),
            made: 0,
            server: Server::new(plan, mutant),
            sockets: Sockets::default(),
            held: BTreeMap::new(),
            rows: (0..plan.browsers).map(|_| Rows::default()).collect(),
            tabs: Vec::new(),
            batchers: Vec::new(),
            sent: Vec::new(),
            probes: 0,
            is_calm: false,
            calm_ms: 0,
            oracle: Oracle::new(plan),
            trace: is_traced.then(Vec::new),
        }
    }

    /// Runs the plan. Returns what happened, by name.
    pub fn run(&mut self) -> Result<BTreeSet<String>, Violation> {
        self.set_up();
        let ends_ms = self.plan.sessions.busy_ms * 2 + self.plan.delay_ms_max + SETTLES_MS_MAX;
        while let Some(((at_ms, _), event)) = self.queue.pop_first() {
            if at_ms > ends_ms {
                return violation("unsettled", format!("it does not come to rest: {event:?}, {}", self.pending()));
            }
            self.now_ms = at_ms;
            self.happen(event)?;
        }
        if let Some(left) = Some(self.pending()).filter(|left| !left.is_empty()) {
            return violation("unsettled", left);
        }
        // Rows may be left at a key without room, without an answer.
        let left: BTreeSet<&str> =
            self.rows.iter().flat_map(|rows| rows.entries().map(|(id, _)| id.as_str())).collect();
        self.oracle.check_end(&|number| left.contains(format!("n{number}").as_str()))?;
        Ok(std::mem::take(&mut self.oracle.seen))
    }

    fn set_up(&mut self) {
        let sessions = self.plan.sessions.clone();
        for n in 0..sessions.holders {
            let which = self.any_session();
            self.open(which, n % 2 == 0);
        }
        let mut at_ms = 0;
        for number in 0..sessions.calls {
            self.decide_trouble(number);
            // Some calls come at the same time, so that they leave together.
            if self.rng.u32(0..3) == 0 {
                at_ms = self.rng.i64(0..sessions.busy_ms);
            }
            self.push(at_ms, Event::Wish(number));
        }
        for n in 0..sessions.batches {
            let at_ms = self.rng.i64(0..sessions.busy_ms);
            let batcher = self.any_batcher(n);
            self.batchers.push(batcher);
            self.push(at_ms, Event::Batch(n));
        }
        for n in 0..sessions.hoards {
            let at_ms = self.rng.i64(0..sessions.busy_ms);
            self.push(at_ms, Event::Hoard(n));
        }
        let faults = [
            (sessions.probes, (|_| Event::Probe) as fn(usize) -> Event),
            (self.plan.reloads, |_| Event::Reload),
            (self.plan.freezes, |_| Event::Freeze),
            (sessions.contentions, |_| Event::Contend),
            (self.plan.storage_losses, |_| Event::LoseStorage),
            (self.plan.restarts, |_| Event::Restart),
            (self.plan.jumps, |_| Event::Jump),
            (sessions.administrations, Event::Administer),
        ];
        for (count, event) in faults {
            for n in 0..count {
                let at_ms = self.rng.i64(0..sessions.busy_ms * 2);
                self.push(at_ms, event(n));
            }
        }
        self.set_up_backups();
        self.push(sessions.busy_ms * 2 + 1, Event::Calm);
    }

    pub(super) fn any_session(&mut self) -> Which {
        let names = self.plan.sessions.names;
        // Each name belongs to one user, or one of them would only be refused.
        let (account, name) = (self.rng.usize(0..self.plan.keys), self.rng.usize(0..names));
        let (browser, user) = (self.rng.usize(0..self.plan.browsers), name % 2);
        Which { browser, user, account, name: self.name_at(&format!("keys/{account}"), &format!("s{name}")) }
    }

    pub(super) fn decide_trouble(&mut self, number: usize) {
        if self.rng.u32(0..100) < self.plan.sessions.troubles {
            let all = [
                Trouble::Fails,
                Trouble::BadSql,
                Trouble::Answers500,
                Trouble::Panics,
                Trouble::Panics,
                Trouble::Kills,
            ];
            let times = if self.rng.u32(0..3) == 0 { u32::MAX } else { self.rng.u32(1..=3) };
            self.server.troubles.insert(number.to_string(), (all[self.rng.usize(0..all.len())], times));
        }
    }

    pub(super) fn push(&mut self, at_ms: i64, event: Event) {
        self.made += 1;
        self.queue.insert((at_ms.max(self.now_ms), self.made), event);
    }

    pub(super) fn later(&mut self, ms_max: i64, event: Event) {
        let delay_ms = self.rng.i64(0..=ms_max);
        self.push(self.now_ms + delay_ms, event);
    }

    pub(super) fn happens_often(&mut self, percent: u32) -> bool {
        !self.is_calm && self.rng.u32(0..100) < percent
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now_ms = self.now_ms;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} s  {}", now_ms as f64 / 1000.0, line()));
        }
    }

    pub(super) fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::In(tab, happening) => self.happen_in(tab, happening)?,
            Event::Wish(number) => self.find_tab(number),
            Event::Transaction { tab, ticket, id, change } => self.transact(tab, ticket, &id, &change),
            Event::Arrival(from, message) => self.arrive(from, message)?,
            Event::Release(key) => self.release(&key)?,
            Event::Frame(from, at, message) => self.frame_arrives(from, at, message)?,
            Event::OnSocket(from, number, event) => self.comes_back(from, number, *event)?,
            Event::TokenEnds(from, number) => self.token_ends(from, number),
            Event::Batch(n) => self.send_batch(n),
            Event::BatchAnswered(n, answers) => self.batch_answered(n, &answers)?,
            Event::Probe => self.probe()?,
            Event::Hoard(n) => self.hoard(n)?,
            Event::BackUp => self.back_up()?,
            Event::PutBack => self.put_back()?,
            Event::Calm => self.calm(),
            Event::Reopen => self.reopen(),
            fault => self.fault(&fault)?,
        }
        Ok(())
    }

    /// Sends a message to the server, perhaps twice, or loses it.
    pub(super) fn post(&mut self, from: Sender, message: Message) {
        if self.is_on_a_socket(from, &message) {
            return self.post_frame(from, message);
        }
        if self.happens_often(self.plan.lose_requests) {
            self.note(|| format!("{from:?}: the request is lost"));
            return self.lose(from);
        }
        let way_ms = self.way_ms();
        if self.happens_often(self.plan.repeat) {
            self.later(way_ms, Event::Arrival(from, Box::new(message.clone())));
        }
        self.later(way_ms, Event::Arrival(from, Box::new(message)));
    }

    fn arrive(&mut self, from: Sender, message: Box<Message>) -> Result<(), Violation> {
        self.server.may_hold = !self.is_calm;
        let dealt = self.server.deal(&mut self.rng, self.now_ms, &message);
        self.server.may_hold = false;
        match dealt {
            Ok(dealt) => self.dealt(Held { waiting: Waiting::Alone(from), message, dealt }),
            Err(reply) => {
                self.answer(from, &message, &Err(reply));
                Ok(())
            }
        }
    }

    /// Answers a message that was sent by itself, or loses the answer.
    pub(super) fn answer(&mut self, from: Sender, message: &Message, dealt: &Result<Dealt, semel_support::Reply>) {
        if from == Sender::Nobody {
            return;
        }
        let has_crashed = dealt.as_ref().is_ok_and(|dealt| dealt.has_crashed);
        if has_crashed || self.happens_often(self.plan.lose_answers) {
            self.note(|| format!("{from:?}: no answer"));
            return self.lose(from);
        }
        let way_ms = self.way_ms();
        let is_cut = self.happens_often(self.plan.gateway);
        if let Some(told) = self.told(from, message, dealt, is_cut) {
            self.later(way_ms, told);
        }
    }

    /// The event by which the sender is told.
    pub(super) fn told(
        &mut self,
        from: Sender,
        message: &Message,
        dealt: &Result<Dealt, semel_support::Reply>,
        is_cut: bool,
    ) -> Option<Event> {
        match from {
            Sender::Tab(tab, attempt) => {
                let answer = self.answer_to(tab, attempt, message, dealt, is_cut);
                Some(Event::In(tab, Happening::Answered(attempt, Box::new(answer))))
            }
            Sender::Batcher(n) => {
                let replies = dealt.as_ref().map(|dealt| dealt.replies.as_slice()).unwrap_or_default();
                let told = replies.iter().map(|reply| {
                    let retry = if reply.status() < 300 { String::new() } else { reply.json()["retry"].to_string() };
                    (reply.status(), reply.only("semel-status").to_owned(), retry.replace('"', ""))
                });
                Some(Event::BatchAnswered(n, told.collect()))
            }
            Sender::Nobody => None,
        }
    }

    /// Has the key handle a message at once, and tells the oracle. `Err`: the router has answered.
    pub(super) fn deal(&mut self, message: &Message) -> Result<Result<Dealt, semel_support::Reply>, Violation> {
        let dealt = self.server.deal(&mut self.rng, self.now_ms, message);
        if let Ok(dealt) = &dealt {
            if dealt.has_released {
                self.tell_held(&dealt.key)?;
            }
            self.note(|| dealt.line());
            self.oracle.dealt(dealt)?;
        }
        Ok(dealt)
    }

    /// Loses a message. A broken connection is noticed by the client; a message that vanishes is not.
    pub(super) fn lose(&mut self, from: Sender) {
        let way_ms = self.way_ms();
        match from {
            Sender::Tab(tab, attempt) if self.rng.bool() => {
                self.later(way_ms, Event::In(tab, Happening::Lost(attempt)));
            }
            _ => {}
        }
    }

    /// The longest that the next message is under way, in ms. Most are short.
    pub(super) fn way_ms(&mut self) -> i64 {
        let is_slow = self.happens_often(SLOW_PERCENT);
        if is_slow { self.plan.delay_ms_max } else { self.plan.delay_ms_max.min(WAY_MS_MAX) }
    }
}
