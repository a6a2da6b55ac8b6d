//! Tests of sessions, step by step: tabs that share a store, and a small server that follows the protocol.
//!
//! The network does nothing by itself. A transmission waits until the test lets it arrive, and its answer until the
//! test lets it return. Tests with the real engine, and everything at once, are in `tests/engine`.

mod adversity;
mod alone;
mod fencing;
mod giving_up;
mod pipelining;
mod reloading;
mod server;
mod stuck;
mod taking_over;
mod two_frames;

use self::server::Server;
use super::super::Failure;
use super::super::action::{Answer, Receiver, Ticket, Transmission};
use super::super::row::{Answered, Draft, Write};
use super::{Action, Change, Changed, Entry, Session, Settings, TAKE_OVER, row};
use crate::problem::Executed;
use std::collections::BTreeMap;

const INTERVAL_MS: i64 = 1_000;
const TIMEOUT_MS: i64 = 10_000;

type Rows = BTreeMap<String, Vec<u8>>;

struct Tab {
    session: Session,
    now_ms: i64,
    /// Whether the store fails.
    is_broken: bool,
    /// Whether the store makes the changes at which it says that it failed.
    is_unsure: bool,
    /// Whether a living tab may have the same requests in hand, or take them. Then this tab may send requests whose
    /// rows the other has changed or removed meanwhile, under places that can run nothing any more.
    shares: bool,
    /// If the store is slow: the changes that it has yet to make.
    slow: Option<Vec<(Ticket, String, Change)>>,
    sent: Vec<Transmission>,
    /// The answers that callers got, by id.
    answers: BTreeMap<String, Answered>,
    recovered: BTreeMap<String, Answered>,
    /// Whether the application takes recovered answers.
    takes_recovered: bool,
    ids: BTreeMap<Ticket, String>,
    paused: Vec<(Ticket, Failure)>,
    refused: Option<Failure>,
    /// Why the session gets no places any more. It is told only once.
    ended: Option<Failure>,
}

impl Tab {
    fn new(owner: &str) -> Self {
        Self::with(owner, |_| {})
    }

    fn with(owner: &str, set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            outbox: "outbox".into(),
            owner: owner.into(),
            principal: "alice".into(),
            key: "a/b".into(),
            name: "s".into(),
            after: None,
            take_over_id: format!("take-over-{owner}"),
            retry_interval_ms: INTERVAL_MS,
            attempt_timeout_ms: TIMEOUT_MS,
            requests_max: 1_000,
            is_framed: false,
            ahead: 0,
            is_shared: true,
        };
        set(&mut settings);
        Self {
            session: Session::new(settings),
            now_ms: 0,
            is_broken: false,
            is_unsure: false,
            shares: false,
            slow: None,
            sent: Vec::new(),
            answers: BTreeMap::new(),
            recovered: BTreeMap::new(),
            takes_recovered: true,
            ids: BTreeMap::new(),
            paused: Vec::new(),
            refused: None,
            ended: None,
        }
    }

    /// Opens a tab: it takes the session over and looks at the rows. `alive`: the other tabs that live.
    fn open(owner: &str, server: &mut Server, rows: &mut Rows, alive: &[&str]) -> Self {
        let mut tab = Self::new(owner);
        tab.session.wake(0);
        tab.drive(rows);
        tab.arrives(server, rows);
        tab.look(rows, alive);
        tab
    }

    fn look(&mut self, rows: &mut Rows, alive: &[&str]) {
        let all: Vec<_> = rows.clone().into_iter().collect();
        self.session.stored(self.now_ms, &all, Some(&|owner| alive.contains(&owner))).expect("readable");
        self.drive(rows);
    }

    /// Looks at the rows, when nobody can tell who lives.
    fn look_blindly(&mut self, rows: &mut Rows) {
        let all: Vec<_> = rows.clone().into_iter().collect();
        self.session.stored(self.now_ms, &all, None).expect("readable");
        self.drive(rows);
    }

    fn call(&mut self, rows: &mut Rows, id: &str) -> Ticket {
        let draft = Draft { method: "POST".into(), target: "/a/b".into(), body: id.into(), ..Draft::default() };
        let ticket = self.session.request(self.now_ms, id.into(), draft);
        self.ids.insert(ticket, id.into());
        self.drive(rows);
        ticket
    }

    /// Does what the machine asks for.
    fn drive(&mut self, rows: &mut Rows) {
        while let Some(action) = self.session.poll() {
            match action {
                Action::Change { ticket, id, change } => match &mut self.slow {
                    Some(slow) => slow.push((ticket, id, change)),
                    None => self.store(rows, ticket, &id, &change),
                },
                Action::Transmit(made) => {
                    if !self.shares {
                        server::assert_stored(&made, rows);
                    }
                    self.sent.push(made);
                }
                Action::Abort(attempt) => self.sent.retain(|made| made.attempt != attempt),
                Action::Deliver { ticket: TAKE_OVER, answered, .. } => match &*answered {
                    Answered::Failure(failure) => self.refused = Some(failure.clone()),
                    Answered::Outcome(_) => {}
                },
                Action::Deliver { ticket, to, answered } => self.take(ticket, to, (*answered).clone()),
                Action::Pause { ticket: TAKE_OVER, failure } => {
                    assert_eq!(self.ended.replace(failure), None, "it ends once")
                }
                Action::Pause { ticket, failure } => self.paused.push((ticket, failure)),
            }
        }
        assert!(self.session.requests.is_consistent());
    }

    fn take(&mut self, ticket: Ticket, to: Receiver, answered: Answered) {
        let (id, ..) = self.session.describe(ticket).expect("it is in hand");
        let id = id.to_owned();
        let taken = if to == Receiver::Caller { &mut self.answers } else { &mut self.recovered };
        assert_eq!(taken.insert(id.clone(), answered), None, "{id} is answered once");
        if to == Receiver::Caller || self.takes_recovered {
            self.session.delivered(self.now_ms, ticket);
        }
    }

    fn store(&mut self, rows: &mut Rows, ticket: Ticket, id: &str, change: &Change) {
        let changed = (!self.is_broken || self.is_unsure).then(|| apply(rows, id, change)).filter(|_| !self.is_broken);
        self.session.changed(self.now_ms, ticket, changed);
    }

    /// Lets the slow store make the next change.
    fn store_next(&mut self, rows: &mut Rows) {
        let (ticket, id, change) = self.slow.as_mut().expect("a slow store").remove(0);
        self.store(rows, ticket, &id, &change);
        self.drive(rows);
    }

    /// Lets the next transmission arrive, and its answer return.
    fn arrives(&mut self, server: &mut Server, rows: &mut Rows) {
        let made = self.sent.remove(0);
        let answer = server.serve(&made);
        self.answer(rows, &made, answer);
    }

    /// Lets transmissions arrive until nothing is left to send.
    fn arrives_all(&mut self, server: &mut Server, rows: &mut Rows) {
        for _ in 0..200 {
            if self.sent.is_empty() {
                return;
            }
            self.arrives(server, rows);
        }
        panic!("it goes on and on");
    }

    fn answer(&mut self, rows: &mut Rows, made: &Transmission, answer: Answer) {
        self.session.answered(self.now_ms, made.attempt, answer);
        self.drive(rows);
    }

    /// Loses the next transmission, or its answer.
    fn lose(&mut self, rows: &mut Rows) -> Transmission {
        let made = self.sent.remove(0);
        self.session.lost(self.now_ms, made.attempt);
        self.drive(rows);
        made
    }

    /// Lets time pass, and wakes the machine whenever it wants to be woken.
    fn pass(&mut self, rows: &mut Rows, ms: i64) {
        let end_ms = self.now_ms + ms;
        while let Some(wakes_ms) = self.session.wakes_at().filter(|wakes_ms| *wakes_ms <= end_ms) {
            self.now_ms = self.now_ms.max(wakes_ms);
            self.session.wake(self.now_ms);
            self.drive(rows);
        }
        self.now_ms = end_ms;
    }

    fn failure(&self, id: &str) -> (&str, Executed) {
        match self.answers.get(id).or(self.recovered.get(id)) {
            Some(Answered::Failure(failure)) => (&failure.code, failure.executed),
            other => panic!("{id} has no failure: {other:?}"),
        }
    }

    fn body(&self, id: &str) -> String {
        match self.answers.get(id).or(self.recovered.get(id)) {
            Some(Answered::Outcome(response)) => String::from_utf8(response.body.clone()).expect("text"),
            other => panic!("{id} has no outcome: {other:?}"),
        }
    }
}

fn apply(rows: &mut Rows, id: &str, change: &Change) -> Changed {
    let (write, changed) = change.apply(rows.get(id).map(Vec::as_slice)).expect("readable");
    match write {
        Write::Nothing => {}
        Write::Put(row) => drop(rows.insert(id.into(), row)),
        Write::Delete => drop(rows.remove(id)),
    }
    changed
}

fn places(rows: &Rows) -> Vec<(&str, Option<(i64, i64)>)> {
    let place = |row: &[u8]| row::decode(row).expect("readable").place.map(|place| (place.epoch, place.seq));
    rows.iter().map(|(id, row)| (id.as_str(), place(row))).collect()
}
