//! The run: one queue of events in the order of time.
//!
//! Invariants:
//! - What is under way when a tab closes is lost, but for what the network or the store has already taken.
//! - After the busy time the faults end, and what was begun must come to its end by itself.

use crate::check::Story;
use crate::plan::{Plan, Wrong};
use crate::server::{Message, Server};
use crate::store::Store;
use crate::tab::{self, Tab};
use fastrand::Rng;
use semel_core::client::{Action, Answer, Answered, Change, Changed, Draft, Receiver, Ticket, Transmission};
use semel_core::message::Headers;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A run that has not come to rest so long after the faults ended never will.
const SETTLES_MS_MAX: i64 = 3_600_000;
/// The longest way of a transaction to the store, and of its report back.
const STORE_MS_MAX: i64 = 20;
/// The longest way of a message that is not slow.
const WAY_MS_MAX: i64 = 50;
/// The share of messages that are slow, in percent.
const SLOW_PERCENT: u32 = 20;

/// What happens in a tab. While it is frozen, nothing does.
#[derive(Debug)]
enum Happening {
    Wish(usize),
    GiveUp(usize),
    Changed(Ticket, Changed),
    Answered(u64, Box<Answer>),
    Lost(u64),
    HandedOver { ticket: Ticket, number: usize, to: Receiver, answered: Rc<Answered> },
    Delivered(Ticket),
    OwnerGone,
    Wake,
}

#[derive(Debug)]
enum Event {
    In(usize, Happening),
    Transaction { tab: usize, ticket: Ticket, id: String, change: Box<Change> },
    Arrival { tab: usize, attempt: u64, message: Box<Message> },
    Reload,
    Freeze,
    OpenOne,
    Calm,
}

struct Pair {
    plan: Plan,
    rng: Rng,
    now_ms: i64,
    /// By time, then by the order in which they were made.
    queue: BTreeMap<(i64, u64), Event>,
    made: u64,
    server: Server,
    store: Store,
    tabs: Vec<Tab>,
    is_calm: bool,
    story: Story,
}

/// Runs a plan to its end, and returns what came about. The error says what did not hold.
pub fn run(plan: Plan) -> Result<BTreeSet<String>, String> {
    let seed = plan.seed;
    let mut pair = Pair::new(plan);
    pair.set_up();
    let ended = pair.go();
    ended
        .and_then(|()| pair.story.check(&pair.server, &pair.store, &pair.tabs))
        .map_err(|error| format!("seed {seed}: {error}\n{:#?}", pair.plan))?;
    Ok(pair.story.seen)
}

impl Pair {
    fn new(plan: Plan) -> Self {
        Self {
            rng: Rng::with_seed(!plan.seed),
            now_ms: 0,
            queue: BTreeMap::new(),
            made: 0,
            server: Server::new(&plan),
            store: Store::default(),
            tabs: Vec::new(),
            is_calm: false,
            story: Story::default(),
            plan,
        }
    }

    fn set_up(&mut self) {
        self.open_tab();
        for number in 0..self.plan.requests {
            let at_ms = self.rng.i64(0..self.plan.busy_ms);
            // The tab is found when the time comes.
            self.push(at_ms, Event::In(usize::MAX, Happening::Wish(number)));
            if self.rng.u32(0..100) < self.plan.give_up {
                let later_ms = self.rng.i64(0..=self.plan.busy_ms);
                self.push(at_ms + later_ms, Event::In(usize::MAX, Happening::GiveUp(number)));
            }
        }
        let faults = [
            (self.plan.reloads, (|| Event::Reload) as fn() -> Event),
            (self.plan.freezes, || Event::Freeze),
            (self.plan.more_tabs, || Event::OpenOne),
        ];
        for (count, event) in faults {
            for _ in 0..count {
                let at_ms = self.rng.i64(0..self.plan.busy_ms * 2);
                self.push(at_ms, event());
            }
        }
        self.push(self.plan.busy_ms * 2 + 1, Event::Calm);
    }

    fn go(&mut self) -> Result<(), String> {
        let ends_ms = self.plan.busy_ms * 2 + self.plan.delay_ms_max + SETTLES_MS_MAX;
        while let Some(((at_ms, _), event)) = self.queue.pop_first() {
            if at_ms > ends_ms {
                return Err(format!("it does not come to rest: {event:?}"));
            }
            self.now_ms = at_ms;
            self.happen(event);
        }
        Ok(())
    }

    fn push(&mut self, at_ms: i64, event: Event) {
        self.made += 1;
        self.queue.insert((at_ms.max(self.now_ms), self.made), event);
    }

    fn later(&mut self, ms_max: i64, event: Event) {
        let delay_ms = self.rng.i64(0..=ms_max);
        self.push(self.now_ms + delay_ms, event);
    }

    fn happens_often(&mut self, percent: u32) -> bool {
        !self.is_calm && self.rng.u32(0..100) < percent
    }

    /// The longest way of the next message: short as a rule, so that the long ones overtake nothing but are overtaken.
    fn way_ms(&mut self) -> i64 {
        let is_slow = self.happens_often(SLOW_PERCENT);
        if is_slow { self.plan.delay_ms_max } else { self.plan.delay_ms_max.min(WAY_MS_MAX) }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::In(usize::MAX, happening) => {
                let tab = self.some_tab();
                self.push(self.now_ms, Event::In(tab, happening));
            }
            Event::In(tab, happening) => self.happen_in(tab, happening),
            Event::Transaction { tab, ticket, id, change } => self.transact(tab, ticket, &id, &change),
            Event::Arrival { tab, attempt, message } => self.arrive(tab, attempt, &message),
            Event::Reload => {
                let tab = self.some_tab();
                self.close_tab(tab);
                self.open_tab();
            }
            Event::Freeze => {
                let tab = self.some_tab();
                self.tabs[tab].frozen_until_ms = self.now_ms + self.rng.i64(0..=self.plan.freeze_ms_max);
            }
            Event::OpenOne => self.open_tab(),
            Event::Calm => {
                self.is_calm = true;
                self.server.calm();
                for tab in &mut self.tabs {
                    tab.frozen_until_ms = tab.frozen_until_ms.min(self.now_ms);
                }
                // What a closed tab left where no other can tell is taken up by the next that opens.
                self.open_tab();
            }
        }
    }

    fn some_tab(&mut self) -> usize {
        let open: Vec<usize> = (0..self.tabs.len()).filter(|&tab| self.tabs[tab].is_open).collect();
        open[self.rng.usize(0..open.len())]
    }

    fn open_tab(&mut self) {
        let ahead_ms = self.rng.i64(-86_400_000..=86_400_000);
        self.tabs.push(Tab::new(self.tabs.len(), &self.plan, ahead_ms));
        self.look_at_store(self.tabs.len() - 1);
    }

    fn close_tab(&mut self, tab: usize) {
        self.tabs[tab].is_open = false;
        self.tabs[tab].callers.clear();
        if self.plan.has_locks {
            for other in (0..self.tabs.len()).filter(|&other| self.tabs[other].is_open).collect::<Vec<_>>() {
                self.later(STORE_MS_MAX, Event::In(other, Happening::OwnerGone));
            }
        }
    }

    fn look_at_store(&mut self, tab: usize) {
        let open = self.tabs.iter().filter(|tab| tab.is_open).map(|tab| tab.owner.clone());
        let open: Vec<String> = open.collect();
        let lives = |owner: &str| open.iter().any(|each| each == owner);
        let lives: Option<&dyn Fn(&str) -> bool> = if self.plan.has_locks { Some(&lives) } else { None };
        let rows = self.store.load();
        let now_ms = self.local_ms(tab);
        self.tabs[tab].client.stored(now_ms, &rows, lives).expect("readable rows");
        self.drive(tab);
    }

    fn local_ms(&self, tab: usize) -> i64 {
        self.now_ms + self.tabs[tab].ahead_ms
    }

    fn happen_in(&mut self, tab: usize, happening: Happening) {
        if !self.tabs[tab].is_open {
            // The application asks in another tab; all else is lost with this one.
            if let wish @ (Happening::Wish(_) | Happening::GiveUp(_)) = happening {
                self.push(self.now_ms, Event::In(usize::MAX, wish));
            }
            return;
        }
        let thaws_ms = self.tabs[tab].frozen_until_ms;
        if thaws_ms > self.now_ms {
            self.story.see("tab: frozen");
            return self.push(thaws_ms, Event::In(tab, happening));
        }
        let now_ms = self.local_ms(tab);
        let client = &mut self.tabs[tab].client;
        match happening {
            Happening::Wish(number) => self.wish(tab, number),
            Happening::GiveUp(number) => {
                let found = self.tabs[tab].callers.iter().find(|(_, each)| **each == number);
                if let Some((&ticket, _)) = found {
                    self.story.given_up.insert(number);
                    self.tabs[tab].client.give_up(now_ms, ticket);
                }
            }
            Happening::Changed(ticket, changed) => client.changed(now_ms, ticket, Some(changed)),
            Happening::Answered(attempt, answer) => client.answered(now_ms, attempt, *answer),
            Happening::Lost(attempt) => client.lost(now_ms, attempt),
            Happening::HandedOver { ticket, number, to, answered } => {
                if to == Receiver::Recovered {
                    self.story.see("delivered: recovered");
                } else if self.tabs[tab].callers.remove(&ticket).is_none() {
                    self.story.complain(format!("{number} was answered to nobody"));
                }
                self.story.deliver(number, (*answered).clone());
            }
            Happening::Delivered(ticket) => client.delivered(now_ms, ticket),
            Happening::OwnerGone => self.look_at_store(tab),
            Happening::Wake => {
                client.wake(now_ms);
                self.tabs[tab].wakes_ms = None;
            }
        }
        self.drive(tab);
    }

    fn wish(&mut self, tab: usize, number: usize) {
        let now_ms = self.local_ms(tab);
        let id = format!("{:016x}-{number}", self.rng.u64(..));
        let draft = Draft {
            method: "POST".to_owned(),
            target: format!("/keys/{}/deposits", number % self.plan.keys),
            key: None,
            headers: Headers::from_iter([("content-type", "text/plain")]),
            body: number.to_string().into_bytes(),
        };
        self.story.wish(number, id.clone());
        let ticket = self.tabs[tab].client.request(now_ms, id, draft);
        self.tabs[tab].callers.insert(ticket, number);
    }

    /// Does what a client asks for, until it asks for no more.
    fn drive(&mut self, tab: usize) {
        while let Some(action) = self.tabs[tab].client.poll() {
            match action {
                Action::Change { ticket, id, change } => self.change(tab, ticket, id, change),
                Action::Remove(ids) => self.store.remove(&ids),
                Action::Transmit(transmission) => self.transmit(tab, transmission),
                Action::Abort(_) => {}
                Action::Deliver { ticket, to, answered } => self.deliver(tab, ticket, to, answered),
                Action::GiveUp { .. } => self.story.complain("a caller was given up".to_owned()),
                Action::Pause { failure, .. } => self.story.complain(format!("it paused: {failure:?}")),
            }
        }
        let Some(wakes_ms) = self.tabs[tab].client.wakes_at() else { return };
        let wakes_ms = (wakes_ms - self.tabs[tab].ahead_ms).max(self.now_ms);
        if self.tabs[tab].wakes_ms.is_none_or(|before_ms| wakes_ms < before_ms) {
            self.tabs[tab].wakes_ms = Some(wakes_ms);
            self.push(wakes_ms, Event::In(tab, Happening::Wake));
        }
    }

    fn change(&mut self, tab: usize, ticket: Ticket, id: String, change: Change) {
        if self.plan.wrong == Wrong::SendBeforePersisting
            && let Change::Add(entry) = &change
        {
            let changed = Changed::Pending(entry.clone());
            self.push(self.now_ms, Event::In(tab, Happening::Changed(ticket, changed)));
            // Ticket 0: the report was made already.
            return self.later(1_000, Event::Transaction { tab, ticket: 0, id, change: Box::new(change) });
        }
        self.later(STORE_MS_MAX, Event::Transaction { tab, ticket, id, change: Box::new(change) });
    }

    fn transact(&mut self, tab: usize, ticket: Ticket, id: &str, change: &Change) {
        // Of a tab that closed meanwhile, the store may have taken it or not.
        let is_lost = !self.tabs[tab].is_open && (self.plan.wrong == Wrong::SendBeforePersisting || self.rng.bool());
        if is_lost {
            return;
        }
        let changed = self.store.change(id, change);
        match (change, &changed) {
            (Change::Settle { .. }, Changed::Settled(settled)) if settled.kept.is_some() => self.story.see("row: kept"),
            (Change::Adopt { .. }, Changed::Pending(_)) => self.story.see("row: adopted"),
            (Change::Raise { .. } | Change::Look, Changed::Settled(settled)) if settled.kept.is_some() => {
                self.story.see("row: taken from another tab");
            }
            _ => {}
        }
        if matches!(change, Change::Add(_)) {
            self.story.stored(id);
        }
        self.later(STORE_MS_MAX, Event::In(tab, Happening::Changed(ticket, changed)));
    }

    fn deliver(&mut self, tab: usize, ticket: Ticket, to: Receiver, answered: Rc<Answered>) {
        let id = self.tabs[tab].client.describe(ticket).map(|(id, ..)| id.to_owned()).unwrap_or_default();
        let number = self.story.number_of(&id);
        let handed_over = Happening::HandedOver { ticket, number, to, answered };
        if self.plan.wrong == Wrong::ForgetBeforeDelivery {
            self.push(self.now_ms, Event::In(tab, Happening::Delivered(ticket)));
            return self.later(1_000, Event::In(tab, handed_over));
        }
        self.push(self.now_ms, Event::In(tab, handed_over));
        self.later(STORE_MS_MAX, Event::In(tab, Happening::Delivered(ticket)));
    }

    fn transmit(&mut self, tab: usize, transmission: Transmission) {
        let Transmission { attempt, request, headers: own } = transmission;
        let Draft { method, target, headers, body, .. } = (*request).clone();
        let mut headers: Headers = headers.iter().chain(own.iter()).collect();
        headers.append("authorization", format!("Bearer {}", crate::server::PRINCIPAL));
        if self.plan.wrong == Wrong::NewIdPerAttempt {
            self.renew_id(tab, &mut headers);
        }
        let message = Message { method, target, headers, body };
        if self.happens_often(self.plan.lose_requests) {
            return self.lose(tab, attempt);
        }
        let way_ms = self.way_ms();
        if self.happens_often(self.plan.repeat) {
            self.later(way_ms, Event::Arrival { tab, attempt, message: Box::new(message.clone()) });
        }
        self.later(way_ms, Event::Arrival { tab, attempt, message: Box::new(message) });
    }

    fn renew_id(&mut self, tab: usize, headers: &mut Headers) {
        let Some(id) = headers.get("idempotency-key").map(|id| id.replace('"', "")) else { return };
        let count = self.tabs[tab].sent.entry(id.clone()).or_default();
        *count += 1;
        if *count > 1 {
            let renewed = format!("\"{id}-{count}\"");
            headers.retain(|name| name != "idempotency-key");
            headers.append("idempotency-key", renewed);
        }
    }

    /// A broken connection is told, a message that vanishes is not.
    fn lose(&mut self, tab: usize, attempt: u64) {
        if self.rng.bool() {
            let way_ms = self.way_ms();
            self.later(way_ms, Event::In(tab, Happening::Lost(attempt)));
        }
    }

    fn arrive(&mut self, tab: usize, attempt: u64, message: &Message) {
        let reply = self.server.answer(&mut self.rng, self.now_ms, message);
        if self.server.has_crashed {
            self.story.see("server: crashed");
        }
        if let Some(reply) = &reply {
            self.story.replied(message, reply);
        }
        match reply {
            Some(reply) if !self.happens_often(self.plan.lose_answers) => {
                let way_ms = self.way_ms();
                let answered = Happening::Answered(attempt, Box::new(tab::answer(&reply)));
                self.later(way_ms, Event::In(tab, answered));
            }
            _ => self.lose(tab, attempt),
        }
    }
}
