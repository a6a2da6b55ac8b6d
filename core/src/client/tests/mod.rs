//! Tests of the machine, step by step: what goes in, and what comes out.
//!
//! Each test drives a client by hand, with a clock that the test sets, and a store that makes each change at once. How
//! many clients work together over a bad network is tested by the simulator (`tests/sim`).

mod acknowledging;
mod answers;
mod giving_up;
mod joining;
mod lost_store;
mod many;
mod offline;
mod ordering;
mod sending;
mod storing;
mod watching;

use super::row::Write;
use super::{
    ACK_RIDE_MS, Action, Answer, Answered, Client, Draft, Receiver, Row, Settings, Ticket, Transmission, codec,
};
use crate::message::{Headers, Response};
use crate::problem::{Executed, Retry};
use std::collections::BTreeMap;

const INTERVAL_MS: i64 = 1_000;
const TIMEOUT_MS: i64 = 10_000;
/// The server's clock. It has nothing to do with the client's.
const SERVER_MS: i64 = 1_800_000_000_000;

struct Bench {
    client: Client,
    now_ms: i64,
    rows: BTreeMap<String, Vec<u8>>,
    /// Whether the store fails.
    is_broken: bool,
    sent: Vec<Transmission>,
    aborted: Vec<u64>,
    delivered: Vec<(Ticket, Receiver, Answered)>,
    paused: Vec<(Ticket, super::Failure)>,
    given_up: Vec<super::Failure>,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            outbox: "outbox".into(),
            owner: "tab".into(),
            principal: "alice".into(),
            retry_interval_ms: INTERVAL_MS,
            attempt_timeout_ms: TIMEOUT_MS,
            give_up_after_ms: None,
            requests_max: super::REQUESTS_MAX,
            attempts_max: super::ATTEMPTS_MAX,
        };
        set(&mut settings);
        Self {
            client: Client::new(settings),
            now_ms: 0,
            rows: BTreeMap::new(),
            is_broken: false,
            sent: Vec::new(),
            aborted: Vec::new(),
            delivered: Vec::new(),
            paused: Vec::new(),
            given_up: Vec::new(),
        }
    }

    /// Makes a client that knows the server's clock.
    fn ready() -> Self {
        let mut bench = Self::new();
        bench.learn_clock();
        bench
    }

    fn learn_clock(&mut self) {
        self.request("warm-up");
        self.answer(health(self.server_ms()));
        self.answer(outcome("warm-up", self.server_ms()));
        self.sent.clear();
        self.delivered.clear();
        self.pass(ACK_RIDE_MS);
        self.answer(from_object(Answer { status: 204, ..status("executed") }, self.server_ms()));
        assert_eq!(self.rows.len(), 0);
        self.sent.clear();
    }

    fn server_ms(&self) -> i64 {
        SERVER_MS + self.now_ms
    }

    fn request(&mut self, id: &str) -> Ticket {
        let ticket = self.client.request(self.now_ms, id.into(), draft(id), false).expect("a new id");
        self.drive();
        ticket
    }

    fn give_up(&mut self, ticket: Ticket) {
        self.client.give_up(self.now_ms, ticket);
        self.drive();
    }

    /// Does what the client asks for.
    fn drive(&mut self) {
        while let Some(action) = self.client.poll() {
            match action {
                Action::Change { ticket, id, change } => {
                    let before = self.sent.len();
                    let changed = (!self.is_broken).then(|| {
                        let maker = self.client.maker_of(ticket).to_owned();
                        self.change_of(&maker, &id, &change)
                    });
                    assert_eq!(self.sent.len(), before);
                    self.client.changed(self.now_ms, ticket, changed);
                }
                Action::Remove(ids) => {
                    self.rows.retain(|id, row| !ids.contains(id) || !crate::client::row::is_done(row))
                }
                Action::Transmit(made) => {
                    self.assert_stored(&made);
                    self.sent.push(made);
                }
                Action::Abort(attempt) => self.aborted.push(attempt),
                Action::Deliver { ticket, to, answered } => {
                    self.delivered.push((ticket, to, (*answered).clone()));
                    self.client.delivered(self.now_ms, ticket);
                }
                Action::GiveUp { failure, .. } => self.given_up.push(failure),
                Action::Pause { ticket, failure } => self.paused.push((ticket, failure)),
            }
        }
    }

    /// Changes a row as somebody else would.
    fn change(&mut self, id: &str, change: &super::Change) -> super::Changed {
        self.change_of("", id, change)
    }

    fn change_of(&mut self, maker: &str, id: &str, change: &super::Change) -> super::Changed {
        let (write, changed) = change.apply(maker, self.rows.get(id).map(Vec::as_slice)).expect("readable");
        match write {
            Write::Nothing => {}
            Write::Put(row) => drop(self.rows.insert(id.into(), row)),
            Write::Delete => drop(self.rows.remove(id)),
        }
        changed
    }

    /// Checks that a request that leaves is stored, with an `until` that covers its deadline.
    fn assert_stored(&self, made: &Transmission) {
        let Some(id) = made.headers.get("idempotency-key") else { return };
        let id = id.trim_matches('"').trim_start_matches("cancel-");
        let Some(Row::Pending(entry)) = self.row(id) else { panic!("{id} was sent and is not stored") };
        assert!(entry.until_ms >= Some(deadline_ms(made)), "{entry:?}");
        assert_eq!(made.headers.get("semel-first-sent"), Some(format!("@{}", entry.first_sent_s.unwrap()).as_str()));
        assert_eq!(made.headers.get("semel-principal"), Some("\"alice\""));
    }

    fn row(&self, id: &str) -> Option<Row> {
        self.rows.get(id).map(|row| codec::decode(row).expect("readable"))
    }

    /// The last transmission.
    fn last(&self) -> &Transmission {
        self.sent.last().expect("something was sent")
    }

    fn answer(&mut self, answer: Answer) {
        self.answer_to(self.last().attempt, answer);
    }

    fn answer_to(&mut self, attempt: u64, answer: Answer) {
        self.client.answered(self.now_ms, attempt, answer);
        self.drive();
    }

    fn lose(&mut self) {
        self.client.lost(self.now_ms, self.last().attempt);
        self.drive();
    }

    /// Lets time pass, and wakes the client whenever it wants to be woken.
    fn pass(&mut self, ms: i64) {
        let end_ms = self.now_ms + ms;
        while let Some(wakes_ms) = self.client.wakes_at().filter(|wakes_ms| *wakes_ms <= end_ms) {
            self.now_ms = self.now_ms.max(wakes_ms);
            self.client.wake(self.now_ms);
            self.drive();
        }
        self.now_ms = end_ms;
    }

    fn targets(&self) -> Vec<&str> {
        self.sent.iter().map(|made| made.request.target.as_str()).collect()
    }
}

fn draft(id: &str) -> Draft {
    Draft { method: "POST".into(), target: "/a/b?c".into(), key: None, headers: Headers::new(), body: id.into() }
}

fn deadline_ms(made: &Transmission) -> i64 {
    made.headers.get("semel-deadline").and_then(|deadline| deadline.parse().ok()).expect("a deadline")
}

fn status(semel_status: &str) -> Answer {
    Answer { status: 200, headers: [("semel-status", semel_status)].into_iter().collect(), ..Answer::default() }
}

fn health(now_ms: i64) -> Answer {
    let mut answer = status("read");
    answer.headers.append("semel-now", now_ms.to_string());
    answer
}

fn from_object(mut answer: Answer, now_ms: i64) -> Answer {
    answer.headers.append("semel-key", "\"a/b\"");
    answer.headers.append("semel-now", now_ms.to_string());
    answer
}

fn outcome(body: &str, now_ms: i64) -> Answer {
    from_object(Answer { body: body.into(), ..status("executed") }, now_ms)
}

fn problem(http: u16, code: &str, executed: &str, retry: &str, now_ms: i64) -> Answer {
    let members = [("executed", executed), ("retry", retry), ("detail", "why")].into_iter().collect();
    from_object(Answer { status: http, members, body: b"{}".to_vec(), ..status(code) }, now_ms)
}

fn bodies(bench: &Bench) -> Vec<String> {
    let body = |(_, _, answered): &(Ticket, Receiver, Answered)| match answered {
        Answered::Outcome(Response { body, .. }) => String::from_utf8(body.clone()).unwrap(),
        Answered::Failure(failure) => failure.code.clone(),
    };
    bench.delivered.iter().map(body).collect()
}

fn by_router(http: u16, code: &str, executed: &str, retry: &str, now_ms: i64) -> Answer {
    let mut answer = problem(http, code, executed, retry, now_ms);
    answer.headers.retain(|name| name != "semel-key");
    answer
}

/// A second tab, with a copy of the first tab's store.
fn beside(first: &Bench) -> Bench {
    let mut other = Bench::with(|settings| settings.owner = "other".into());
    other.learn_clock();
    other.rows = first.rows.clone();
    other.now_ms = first.now_ms;
    other
}

fn watch(bench: &mut Bench, id: &str) -> Ticket {
    let ticket = bench.client.watch(id.into());
    bench.drive();
    ticket
}

/// The first tab gets its answer. Then the other tab finds the row that the first has left.
fn answer_in(first: &mut Bench, other: &mut Bench) {
    first.rows = other.rows.clone();
    first.answer(outcome("done", first.server_ms()));
    other.rows = first.rows.clone();
    other.pass(INTERVAL_MS);
}

/// Every other tab ends.
fn all_gone(other: &mut Bench) {
    let rows: Vec<_> = other.rows.clone().into_iter().collect();
    other.client.stored(other.now_ms, &rows, Some(&|_| false)).unwrap();
    other.drive();
}
