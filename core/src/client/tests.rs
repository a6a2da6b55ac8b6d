//! The machine, step by step: what goes in, what comes out.
//!
//! Each test drives a client by hand, with a store that does at once what it is told, and a clock that it sets. What many
//! of them do to each other, over a bad network, is tried by the pair (`tests/pair`).

use super::row::Write;
use super::{
    ACK_RIDE_MS, ATTEMPTS_MAX, Action, Answer, Answered, Client, ClientCode, Draft, REQUESTS_MAX, Receiver, Row,
    Settings, Ticket, Transmission, codec,
};
use crate::message::{Headers, Response};
use crate::problem::{Executed, Retry};
use std::collections::BTreeMap;

const INTERVAL_MS: i64 = 1_000;
const TIMEOUT_MS: i64 = 10_000;
/// The client's clock and the server's have nothing to do with each other.
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

    /// A client that knows the server's clock.
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
        let ticket = self.client.request(self.now_ms, id.into(), draft(id));
        self.drive();
        ticket
    }

    /// Does what the client asks for.
    fn drive(&mut self) {
        while let Some(action) = self.client.poll() {
            match action {
                Action::Change { ticket, id, change } => {
                    let before = self.sent.len();
                    let changed = (!self.is_broken).then(|| self.change(&id, &change));
                    assert_eq!(self.sent.len(), before);
                    self.client.changed(self.now_ms, ticket, changed);
                }
                Action::Remove(ids) => self.rows.retain(|id, _| !ids.contains(id)),
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

    fn change(&mut self, id: &str, change: &super::Change) -> super::Changed {
        let (write, changed) = change.apply(self.rows.get(id).map(Vec::as_slice)).expect("readable");
        match write {
            Write::Nothing => {}
            Write::Put(row) => drop(self.rows.insert(id.into(), row)),
            Write::Delete => drop(self.rows.remove(id)),
        }
        changed
    }

    /// Whatever is sent under an id is stored, with an `until` that covers its deadline.
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

    /// The last that was sent.
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

    /// Lets time pass, and wakes the client when it wants to be woken.
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

#[test]
fn nothing_is_sent_before_it_is_stored_nor_before_the_clock_is_known() {
    let mut bench = Bench::new();
    bench.client.request(0, "x".into(), draft("x"));
    let first = bench.client.poll();
    assert!(matches!(first, Some(Action::Change { .. })), "{first:?}");
    assert_eq!(bench.client.poll(), None, "it waits for the store");
    let mut bench = Bench::new();
    bench.request("x");
    assert_eq!(bench.targets(), ["/semel/v1/health"]);
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.targets(), ["/semel/v1/health"; 2], "still asking");
    // Not from Semel: somebody else's page says nothing of its clock.
    bench.answer(Answer { headers: [("semel-now", "5")].into_iter().collect(), ..Answer::default() });
    bench.pass(INTERVAL_MS);
    bench.answer(health(bench.server_ms()));
    assert_eq!(bench.last().request.target, "/a/b?c");
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS);
}

#[test]
fn it_is_sent_again_at_a_constant_interval_under_one_id_and_one_first_sent() {
    let mut bench = Bench::ready();
    bench.request("x");
    let started_ms = bench.now_ms;
    for attempt in 1..=5 {
        assert_eq!((bench.sent.len(), bench.now_ms), (attempt, started_ms + (attempt as i64 - 1) * INTERVAL_MS));
        bench.lose();
        bench.pass(INTERVAL_MS - 1);
        assert_eq!(bench.sent.len(), attempt, "not before the interval is over");
        bench.pass(1);
    }
    for name in ["idempotency-key", "semel-first-sent"] {
        assert!(bench.sent.iter().all(|made| made.headers.get(name) == bench.sent[0].headers.get(name)), "{name}");
    }
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS, "each attempt has its own deadline");
}

#[test]
fn an_attempt_that_hangs_is_given_up_and_sent_again() {
    let mut bench = Bench::ready();
    bench.request("x");
    let hung = bench.last().attempt;
    bench.pass(TIMEOUT_MS);
    assert_eq!(bench.aborted, [hung]);
    bench.answer_to(hung, outcome("late", bench.server_ms()));
    assert!(bench.delivered.is_empty(), "it is reported no more");
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.sent.len(), 2);
}

#[test]
fn retry_after_is_obeyed_where_it_is_longer() {
    for (retry_after, waits_ms) in [("3", 3_000), ("0", INTERVAL_MS), ("soon", INTERVAL_MS), ("999999", 3_600_000)] {
        let mut bench = Bench::ready();
        bench.request("x");
        let mut answer = problem(429, "rate-limited", "no", "same-id", bench.server_ms());
        answer.headers.append("retry-after", retry_after);
        bench.answer(answer);
        bench.pass(waits_ms - 1);
        assert_eq!(bench.sent.len(), 1, "{retry_after}");
        bench.pass(1);
        assert_eq!(bench.sent.len(), 2, "{retry_after}");
    }
}

#[test]
fn a_definitive_answer_is_delivered_once_and_leaves_an_acknowledgement() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    let until_ms = deadline_ms(bench.last());
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!((bench.delivered.len(), bench.delivered[0].0, bench.delivered[0].1), (1, ticket, Receiver::Caller));
    assert_eq!(bodies(&bench), ["done"]);
    let Some(Row::Settled(settled)) = bench.row("x") else { panic!("{:?}", bench.row("x")) };
    assert_eq!((settled.key.as_deref(), settled.until_ms), (Some("a/b"), until_ms));
}

#[test]
fn an_acknowledgement_rides_to_its_key_and_is_done_when_its_object_answers() {
    let mut bench = Bench::ready();
    bench.request("x");
    let until_ms = deadline_ms(bench.last());
    bench.answer(outcome("done", bench.server_ms()));
    bench.request("y");
    let ack = format!("\"x\";until={until_ms}");
    assert_eq!(bench.last().headers.get("semel-ack"), Some(ack.as_str()));
    // An answer of the router, or of another key, proves nothing.
    bench.answer(Answer { status: 503, ..status("unavailable") });
    assert!(bench.row("x").is_some());
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().headers.get("semel-ack"), Some(ack.as_str()), "it rides again");
    bench.answer(problem(500, "rolled-back", "no", "same-id", bench.server_ms()));
    assert!(bench.row("x").is_none(), "a refusal of the object takes it too");
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().headers.get("semel-ack"), None);
}

#[test]
fn an_acknowledgement_without_a_ride_goes_by_itself() {
    let mut bench = Bench::ready();
    bench.request("x");
    let until_ms = deadline_ms(bench.last());
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS - 1);
    assert_eq!(bench.sent.len(), 1);
    bench.pass(1);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/acks");
    let body = format!("{{\"ids\":[{{\"id\":\"x\",\"until\":{until_ms}}}]}}");
    assert_eq!(bench.last().request.body, body.as_bytes());
    bench.lose();
    bench.pass(ACK_RIDE_MS);
    assert_eq!(bench.sent.len(), 3, "and again");
    bench.answer(from_object(Answer { status: 204, ..status("executed") }, bench.server_ms()));
    assert!(bench.rows.is_empty());
    assert_eq!(bench.client.wakes_at(), None, "nothing is left to do");
}

#[test]
fn acknowledgements_keep_the_limits_of_the_header_and_of_the_request() {
    let mut bench = Bench::ready();
    let ids: Vec<String> = (0..REQUESTS_MAX / 2).map(|n| format!("{n:0>36}")).collect();
    for id in &ids {
        bench.request(id);
        bench.answer(outcome("", bench.server_ms()));
    }
    for made in &bench.sent {
        let Some(acks) = made.headers.get("semel-ack") else { continue };
        assert!(acks.len() <= 4096 && acks.split(',').count() <= 64);
        let headers = [("semel-ack", acks)].into_iter().collect();
        assert!(crate::header::acks(&headers).is_ok());
    }
    bench.lose();
    let rides = bench.sent.iter().filter(|made| made.headers.get("semel-ack").is_some()).count();
    assert!(rides >= ids.len() - 1, "each rides on the next");
}

#[test]
fn what_was_settled_before_a_restart_is_acknowledged_at_once() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("done", bench.server_ms()));
    let mut next = Bench::new();
    next.rows = bench.rows.clone();
    let rows: Vec<_> = next.rows.clone().into_iter().collect();
    next.client.stored(0, &rows, None).unwrap();
    next.drive();
    assert_eq!(next.targets(), ["/semel/v1/keys/a%2Fb/acks"]);
}

#[test]
fn what_was_pending_before_a_restart_goes_on_under_its_id_and_is_delivered_as_recovered() {
    let mut bench = Bench::ready();
    bench.request("x");
    let first_sent = bench.last().headers.get("semel-first-sent").map(str::to_owned);
    let mut next = Bench::with(|settings| settings.owner = "next".into());
    next.rows = bench.rows.clone();
    let rows: Vec<_> = next.rows.clone().into_iter().collect();
    // While its owner lives, it is left alone.
    next.client.stored(0, &rows, Some(&|owner| owner == "tab")).unwrap();
    next.drive();
    assert!(next.sent.is_empty());
    next.now_ms = 77;
    next.client.stored(77, &rows, Some(&|_| false)).unwrap();
    next.drive();
    next.answer(health(next.server_ms()));
    assert_eq!(next.last().headers.get("idempotency-key"), Some("\"x\""));
    assert_eq!(next.last().headers.get("semel-first-sent"), first_sent.as_deref());
    next.answer(outcome("done", next.server_ms()));
    assert_eq!(next.delivered[0].1, Receiver::Recovered);
    assert_eq!(bodies(&next), ["done"]);
}

#[test]
fn the_clock_is_learned_again_from_the_refusal_itself_and_for_that_key() {
    let behind_ms = 3_600_000;
    for (http, code, retry) in [(408, "attempt-expired", "same-id"), (400, "key-invalid", "after-fix")] {
        let mut bench = Bench::ready();
        let ahead_ms = if http == 408 { behind_ms } else { -behind_ms };
        bench.request("x");
        bench.answer(problem(http, code, "no", retry, bench.server_ms() + ahead_ms));
        assert!(bench.paused.is_empty());
        bench.pass(INTERVAL_MS);
        assert_eq!(deadline_ms(bench.last()), bench.server_ms() + ahead_ms + TIMEOUT_MS, "{code}");
        let mut elsewhere = draft("y");
        elsewhere.target = "/elsewhere".into();
        bench.client.request(bench.now_ms, "y".into(), elsewhere);
        bench.drive();
        assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS, "another key's clock is as it was");
    }
}

#[test]
fn what_must_be_mended_pauses_and_goes_on_under_the_same_id() {
    for (http, code) in [(404, "not-found"), (401, "unauthorized"), (403, "forbidden"), (400, "key-invalid")] {
        let mut bench = Bench::ready();
        let ticket = bench.request("x");
        bench.answer(problem(http, code, "no", "after-fix", bench.server_ms()));
        let [(paused, failure)] = bench.paused.as_slice() else { panic!("{:?}", bench.paused) };
        assert_eq!((*paused, failure.executed, failure.code.as_str()), (ticket, Executed::Unknown, code));
        bench.pass(100 * INTERVAL_MS);
        assert_eq!(bench.sent.len(), 1, "{code}");
        bench.client.resume_all(bench.now_ms);
        bench.drive();
        assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"x\""));
        bench.answer(outcome("done", bench.server_ms()));
        assert_eq!(bodies(&bench), ["done"]);
    }
}

#[test]
fn what_is_given_up_is_cancelled_at_its_key_and_only_then_said_not_to_have_run() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms()));
    bench.client.give_up(bench.now_ms, ticket);
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/cancel");
    assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"cancel-x\""));
    let body = String::from_utf8(bench.last().request.body.clone()).unwrap();
    let first_sent_s = bench.last().headers.get("semel-first-sent").unwrap().trim_start_matches('@').to_owned();
    assert_eq!(body, format!("{{\"id\":\"x\",\"firstSent\":{first_sent_s}}}"));
    bench.lose();
    assert!(bench.delivered.is_empty());
    bench.pass(INTERVAL_MS);
    let mut cancelled = outcome("", bench.server_ms());
    cancelled.members.append("state", "cancelled");
    bench.answer(cancelled);
    let [(_, Receiver::Caller, Answered::Failure(failure))] = bench.delivered.as_slice() else { panic!() };
    assert_eq!((failure.executed, failure.retry, failure.code.as_str()), (Executed::No, Retry::Never, "cancelled"));
    bench.pass(ACK_RIDE_MS);
    let body = String::from_utf8(bench.last().request.body.clone()).unwrap();
    assert!(body.contains("\"x\"") && body.contains("\"cancel-x\""), "both have records: {body}");
}

#[test]
fn what_ran_before_it_could_be_cancelled_is_answered_with_its_outcome() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.answer(problem(500, "rolled-back", "no", "same-id", bench.server_ms()));
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    let mut executed = outcome("", bench.server_ms());
    executed.members.append("state", "executed");
    bench.answer(executed);
    assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"x\""));
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!(bodies(&bench), ["done"]);
}

#[test]
fn without_a_certain_key_it_is_asked_for_by_an_attempt_that_cannot_execute() {
    let mut bench = Bench::ready();
    // The path was seen, but its key may depend on the method: that is a guess.
    let ticket = bench.request("x");
    bench.client.give_up(bench.now_ms, ticket);
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!((bench.last().request.target.as_str(), deadline_ms(bench.last())), ("/a/b?c", 0));
    bench.answer(problem(408, "attempt-expired", "no", "same-id", bench.server_ms()));
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/cancel");
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS, "the probe says nothing of the clock");
}

#[test]
fn a_caller_that_waited_long_enough_is_told_and_the_request_goes_on() {
    let mut bench = Bench::with(|settings| settings.give_up_after_ms = Some(3_000));
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    bench.pass(2_999);
    assert!(bench.given_up.is_empty());
    bench.pass(1);
    let [failure] = bench.given_up.as_slice() else { panic!("{:?}", bench.given_up) };
    assert_eq!((failure.code.as_str(), failure.executed), (ClientCode::GaveUp.as_str(), Executed::Unknown));
    assert!(matches!(bench.row("x"), Some(Row::Pending(_))));
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!(bench.delivered[0].1, Receiver::Recovered);
    bench.pass(10_000);
    assert_eq!(bench.given_up.len(), 1);
}

#[test]
fn a_store_that_fails_sends_nothing_and_forgets_nothing() {
    let mut bench = Bench::ready();
    bench.is_broken = true;
    bench.request("x");
    assert_eq!(bodies(&bench), ["store-failed"]);
    assert!(bench.sent.is_empty());
    bench.is_broken = false;
    bench.request("y");
    bench.lose();
    bench.is_broken = true;
    bench.pass(5 * INTERVAL_MS);
    assert_eq!(bench.sent.len(), 1, "no attempt without its transaction");
    bench.is_broken = false;
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.sent.len(), 2);
    bench.is_broken = true;
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!(bodies(&bench), ["store-failed", "done"]);
    assert!(matches!(bench.row("y"), Some(Row::Pending(_))));
    bench.is_broken = false;
    bench.pass(INTERVAL_MS);
    assert!(matches!(bench.row("y"), Some(Row::Settled(_))), "settled once more");
    assert_eq!(bench.delivered.len(), 2, "and not delivered again");
}

#[test]
fn a_row_that_is_gone_is_sent_no_more() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.lose();
    bench.rows.clear();
    bench.pass(INTERVAL_MS);
    assert_eq!((bench.sent.len(), bodies(&bench)), (1, vec!["outcome-lost".to_owned()]));
    let Answered::Failure(failure) = &bench.delivered[0].2 else { panic!() };
    assert_eq!(failure.executed, Executed::Unknown);
}

#[test]
fn who_waits_for_what_another_tab_settled_gets_the_answer_that_it_kept() {
    for is_before_the_attempt in [true, false] {
        let mut bench = Bench::ready();
        bench.request("x");
        let adopt = super::Change::Adopt { by: "other".into(), from: "tab".into(), is_shared: true };
        bench.change("x", &adopt);
        let answered = Answered::Outcome(Response::json(201, "kept")).into();
        let settle =
            super::Change::Settle { by: "other".into(), key: Some("a/b".into()), answered, at_s: SERVER_MS / 1000 };
        bench.change("x", &settle);
        if is_before_the_attempt {
            bench.lose();
            bench.pass(INTERVAL_MS);
        } else {
            bench.answer(problem(410, "acknowledged", "yes", "never", bench.server_ms()));
        }
        assert_eq!((bench.sent.len(), bodies(&bench)), (1, vec!["kept".to_owned()]));
        bench.pass(100 * INTERVAL_MS);
        assert_eq!(bench.sent.len(), 1);
    }
}

#[test]
fn a_problem_with_never_is_definitive_and_says_what_it_says() {
    for (code, executed) in [("poisoned", "no"), ("acknowledged", "yes"), ("outside-window", "unknown")] {
        let mut bench = Bench::ready();
        bench.request("x");
        bench.answer(problem(410, code, executed, "never", bench.server_ms()));
        let Answered::Failure(failure) = &bench.delivered[0].2 else { panic!() };
        assert_eq!((failure.code.as_str(), failure.executed.as_str()), (code, executed));
        assert_eq!((failure.retry, failure.detail.as_str()), (Retry::Never, "why"));
    }
}

#[test]
fn what_is_no_answer_of_semel_and_what_is_not_definitive_is_asked_again() {
    let now_ms = SERVER_MS;
    let portal = Answer { status: 200, body: b"<html>".to_vec(), ..Answer::default() };
    let refusal = Answer { status: 403, ..Answer::default() };
    let redirect = Answer { status: 307, ..Answer::default() };
    let read = from_object(status("read"), now_ms);
    let server_error = problem(503, "unavailable", "no", "never", now_ms);
    let executed_500 = from_object(Answer { status: 500, ..status("executed") }, now_ms);
    let executed_302 = from_object(Answer { status: 302, ..status("replayed") }, now_ms);
    let in_flight = problem(409, "in-flight", "unknown", "same-id", now_ms);
    let unheard_of = from_object(Answer { status: 418, ..status("of-the-future") }, now_ms);
    for answer in [portal, refusal, redirect, read, server_error, executed_500, executed_302, in_flight, unheard_of] {
        let mut bench = Bench::ready();
        bench.request("x");
        bench.answer(answer.clone());
        assert!(bench.delivered.is_empty() && bench.paused.is_empty(), "{answer:?}");
        bench.pass(INTERVAL_MS);
        assert_eq!(bench.sent.len(), 2, "{answer:?}");
    }
}

#[test]
fn a_code_of_a_newer_server_is_judged_by_what_its_body_says() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(problem(418, "of-the-future", "no", "never", bench.server_ms()));
    assert_eq!(bodies(&bench), ["of-the-future"]);
}

#[test]
fn there_is_a_limit_to_what_is_in_hand_and_to_what_is_under_way() {
    let mut bench = Bench::ready();
    for n in 0..REQUESTS_MAX {
        bench.request(&n.to_string());
    }
    assert_eq!(bench.sent.len(), ATTEMPTS_MAX);
    bench.request("one too many");
    assert_eq!((bodies(&bench), bench.row("one too many")), (vec!["outbox-full".to_owned()], None));
    let first = bench.sent[0].attempt;
    bench.answer_to(first, outcome("", bench.server_ms()));
    assert_eq!(bench.sent.len(), ATTEMPTS_MAX + 1, "the next takes its place");
}

#[test]
fn closing_tells_who_waits_and_leaves_all_that_is_stored() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.client.close();
    bench.drive();
    assert_eq!(bench.given_up.iter().map(|failure| failure.code.as_str()).collect::<Vec<_>>(), ["closed"]);
    assert!(matches!(bench.row("x"), Some(Row::Pending(_))));
    assert_eq!(bench.client.wakes_at(), None);
}

#[test]
fn what_cannot_be_read_stops_everything() {
    let mut bench = Bench::ready();
    bench.request("x");
    let mut rows: Vec<_> = bench.rows.clone().into_iter().collect();
    rows.push(("y".into(), vec![9, 9, 9]));
    let mut next = Bench::new();
    next.rows = bench.rows.clone();
    assert!(next.client.stored(0, &rows, None).is_err());
    next.drive();
    assert!(next.sent.is_empty());
}

#[test]
fn the_overview_tells_what_is_pending_and_where() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.lose();
    bench.request("y");
    bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms()));
    let foreign = super::Entry { owner: "other".into(), outbox: "outbox".into(), ..super::Entry::default() };
    let stranger = super::Entry { owner: "other".into(), outbox: "another".into(), ..super::Entry::default() };
    bench.change("stranger", &super::Change::Add(stranger));
    bench.change("z", &super::Change::Add(foreign));
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    let all = bench.client.overview(&rows).unwrap();
    let seen: Vec<_> = all.iter().map(|one| (one.id.as_str(), one.state, one.attempts)).collect();
    assert_eq!(seen, [("x", "sending", 1), ("y", "paused", 1), ("z", "elsewhere", 0)]);
}

#[test]
fn the_key_that_the_application_names_goes_along_and_is_asked_to_cancel_at_once() {
    let mut bench = Bench::ready();
    let named = Draft { key: Some("a%20b/c".into()), ..draft("x") };
    let ticket = bench.client.request(bench.now_ms, "x".into(), named);
    bench.drive();
    assert_eq!(bench.last().headers.get("semel-key"), Some("\"a%20b/c\""));
    bench.client.give_up(bench.now_ms, ticket);
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%20b%2Fc/cancel");
    assert_eq!(bench.last().headers.get("semel-key"), None);
}

#[test]
fn what_was_not_told_is_unknown_and_what_a_code_means_needs_no_body() {
    let judged = |http, code: &str, members: &[(&str, &str)]| {
        let mut bench = Bench::ready();
        bench.request("x");
        let members = members.iter().copied().collect();
        let answer = from_object(Answer { status: http, members, ..status(code) }, bench.server_ms());
        bench.answer(answer);
        bench
    };
    let bench = judged(410, "of-the-future", &[("retry", "never")]);
    let [(_, _, Answered::Failure(failure))] = bench.delivered.as_slice() else { panic!() };
    assert_eq!(failure.executed, Executed::Unknown, "nothing says that it did not run");
    assert_eq!(bodies(&judged(410, "cancelled", &[])), ["cancelled"]);
    assert_eq!(judged(401, "unauthorized", &[]).paused.len(), 1);
}

#[test]
fn a_refusal_that_is_not_for_the_clock_pauses_however_wrong_the_clock_is() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms() - 3_600_000));
    assert_eq!(bench.paused.len(), 1);
}

#[test]
fn a_first_sent_too_far_ahead_is_waited_for() {
    let mut bench = Bench::ready();
    bench.request("x");
    for _ in 0..2 {
        // Only the first attempt's deadline is too far ahead as well.
        bench.answer(problem(400, "key-invalid", "no", "after-fix", bench.server_ms() - 3_600_000));
        assert!(bench.paused.is_empty());
        bench.pass(INTERVAL_MS);
    }
    assert_eq!(bench.sent.len(), 3);
}

#[test]
fn a_refusal_of_the_router_for_the_deadline_tells_the_clock_of_the_worker() {
    let mut bench = Bench::ready();
    bench.request("x");
    let ahead_ms = 3_600_000;
    let mut answer = problem(408, "attempt-expired", "no", "same-id", bench.server_ms() + ahead_ms);
    answer.headers.retain(|name| name != "semel-key");
    bench.answer(answer);
    bench.pass(INTERVAL_MS);
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + ahead_ms + TIMEOUT_MS);
}

#[test]
fn a_first_sent_is_the_servers_second_at_the_first_attempt() {
    let mut bench = Bench::new();
    bench.now_ms = 1_999;
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    let expected = format!("@{}", bench.server_ms() / 1000);
    assert_eq!(bench.last().headers.get("semel-first-sent"), Some(expected.as_str()));
}

#[test]
fn an_answer_to_a_cancellation_that_says_nothing_is_asked_for_again() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms()));
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    bench.answer(outcome("not an object", bench.server_ms()));
    assert!(bench.delivered.is_empty(), "the outcome of a cancellation is not that of the request");
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"cancel-x\""));
}

#[test]
fn an_id_that_is_another_tabs_is_not_sent() {
    let mut bench = Bench::ready();
    bench.change(
        "x",
        &super::Change::Add(super::Entry { owner: "other".into(), outbox: "outbox".into(), ..super::Entry::default() }),
    );
    bench.request("x");
    assert_eq!((bodies(&bench), bench.sent.len()), (vec!["store-failed".to_owned()], 0));
}

#[test]
fn what_is_given_up_before_it_is_stored_is_never_sent_to_be_executed() {
    let mut bench = Bench::ready();
    let ticket = bench.client.request(bench.now_ms, "x".into(), draft("x"));
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    assert_eq!(deadline_ms(bench.last()), 0);
}

#[test]
fn what_two_tabs_adopt_is_sent_by_one_and_what_is_in_hand_is_not_adopted_again() {
    let mut bench = Bench::ready();
    bench.request("x");
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    let mut next = Bench::with(|settings| settings.owner = "next".into());
    next.rows = bench.rows.clone();
    next.change("x", &super::Change::Adopt { by: "third".into(), from: "tab".into(), is_shared: false });
    next.client.stored(0, &rows, Some(&|_| false)).unwrap();
    next.drive();
    assert!(next.sent.is_empty(), "it came too late");
    let before = bench.sent.len();
    for _ in 0..3 {
        bench.client.stored(bench.now_ms, &rows, None).unwrap();
        bench.drive();
        bench.pass(INTERVAL_MS);
    }
    assert_eq!(bench.sent.len(), before);
}

#[test]
fn what_was_given_up_meanwhile_is_adopted_as_given_up() {
    let mut bench = Bench::ready();
    bench.request("x");
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    let raise = super::Change::Raise { first_sent_s: 0, until_ms: 0, is_cancelling: true };
    bench.change("x", &raise);
    let mut next = Bench::with(|settings| settings.owner = "next".into());
    next.rows = bench.rows.clone();
    next.client.stored(0, &rows, None).unwrap();
    next.drive();
    next.answer(health(next.server_ms()));
    assert_eq!(deadline_ms(next.last()), 0, "it is not to be executed");
}

#[test]
fn no_failure_is_delivered_while_the_store_cannot_say_whether_another_tab_has_the_answer() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.is_broken = true;
    bench.answer(problem(410, "acknowledged", "yes", "never", bench.server_ms()));
    assert!(bench.delivered.is_empty());
    bench.is_broken = false;
    bench.pass(INTERVAL_MS);
    bench.answer(problem(410, "acknowledged", "yes", "never", bench.server_ms()));
    assert_eq!(bodies(&bench), ["acknowledged"]);
}

#[test]
fn nothing_is_acknowledged_at_a_guessed_key() {
    let mut bench = Bench::ready();
    bench.request("x");
    let mut answer = problem(410, "forgotten", "unknown", "never", bench.server_ms());
    answer.headers.retain(|name| name != "semel-key");
    bench.answer(answer);
    assert_eq!((bodies(&bench), bench.row("x")), (vec!["forgotten".to_owned()], None));
}

#[test]
fn once_it_is_closed_nothing_is_asked_for_any_more() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.lose();
    let ticket = bench.client.request(bench.now_ms, "y".into(), draft("y"));
    bench.client.close();
    let mut actions = Vec::new();
    while let Some(action) = bench.client.poll() {
        actions.push(action);
    }
    assert!(actions.iter().all(|action| matches!(action, Action::GiveUp { .. })), "{actions:?}");
    assert_eq!((actions.len(), bench.client.wakes_at()), (2, None));
    bench.client.changed(bench.now_ms, ticket, None);
    bench.client.wake(bench.now_ms + 100 * INTERVAL_MS);
    assert_eq!(bench.client.poll(), None);
}

#[test]
fn an_answer_that_was_kept_leaves_after_its_time_and_not_before() {
    for (old_s, stays) in [(super::KEPT_S_MAX - 10, true), (super::KEPT_S_MAX + 10, false)] {
        let mut bench = Bench::ready();
        let kept = Some(Answered::Outcome(Response::json(201, "kept")).into());
        let at_s = bench.server_ms() / 1000 - old_s;
        let settled = super::row::Settled {
            outbox: "outbox".into(),
            key: None,
            until_ms: 0,
            was_cancelled: false,
            kept,
            at_s,
            is_acknowledged: true,
        };
        bench.rows.insert("x".into(), codec::encode(&Row::Settled(settled)));
        let rows: Vec<_> = bench.rows.clone().into_iter().collect();
        bench.client.stored(bench.now_ms, &rows, None).unwrap();
        bench.drive();
        assert_eq!(bench.row("x").is_some(), stays, "{old_s}");
    }
}

#[test]
fn what_is_being_sent_is_not_sent_again_by_a_resume() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.client.resume_all(bench.now_ms);
    bench.drive();
    assert_eq!(bench.sent.len(), 1);
}

#[test]
fn what_has_no_place_wakes_nobody() {
    let mut bench = Bench::ready();
    for n in 0..=ATTEMPTS_MAX {
        bench.request(&n.to_string());
    }
    assert_eq!(bench.client.wakes_at(), Some(bench.now_ms + TIMEOUT_MS));
}

#[test]
fn what_could_not_be_stored_takes_no_place_for_ever() {
    let mut bench = Bench::ready();
    bench.is_broken = true;
    for n in 0..=REQUESTS_MAX {
        bench.request(&n.to_string());
    }
    bench.is_broken = false;
    bench.request("x");
    assert!(bench.row("x").is_some(), "{:?}", bodies(&bench).last());
}

#[test]
fn who_has_the_answer_is_not_told_that_there_is_none() {
    let mut bench = Bench::with(|settings| settings.give_up_after_ms = Some(3_000));
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    bench.is_broken = true;
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(10_000);
    assert_eq!((bodies(&bench), bench.given_up.len()), (vec!["done".to_owned()], 0));
}

#[test]
fn the_paths_that_are_remembered_are_bounded() {
    let mut bench = Bench::ready();
    for n in 0..super::KEYS_KNOWN_MAX + 10 {
        let target = format!("/{n}");
        bench.client.request(bench.now_ms, target.clone(), Draft { target, ..draft("") });
        bench.drive();
        bench.answer(outcome("", bench.server_ms()));
    }
    assert!(bench.client.keys_of_paths.len() <= super::KEYS_KNOWN_MAX);
}

fn by_router(http: u16, code: &str, executed: &str, retry: &str, now_ms: i64) -> Answer {
    let mut answer = problem(http, code, executed, retry, now_ms);
    answer.headers.retain(|name| name != "semel-key");
    answer
}

#[test]
fn what_the_router_refuses_can_be_given_up() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.answer(by_router(413, "too-large", "no", "after-fix", bench.server_ms()));
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    assert_eq!(bench.sent.len(), 1, "whoever gives up at once, again and again, does so at the interval");
    bench.pass(INTERVAL_MS);
    bench.answer(by_router(413, "too-large", "no", "after-fix", bench.server_ms()));
    let [(_, _, Answered::Failure(failure))] = bench.delivered.as_slice() else { panic!("its caller gets an answer") };
    assert_eq!((failure.code.as_str(), failure.executed), ("too-large", Executed::Unknown));
    assert!(bench.rows.is_empty());
}

#[test]
fn a_kept_answer_leaves_once_its_time_is_over_though_the_store_is_read_only_once() {
    let mut bench = Bench::new();
    let settled = super::row::Settled {
        outbox: "outbox".into(),
        key: None,
        until_ms: 0,
        was_cancelled: false,
        kept: Some(Answered::Outcome(Response::json(201, "kept")).into()),
        at_s: SERVER_MS / 1000 - 10 * super::KEPT_S_MAX,
        is_acknowledged: true,
    };
    bench.rows.insert("old".into(), codec::encode(&Row::Settled(settled)));
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    bench.client.stored(0, &rows, None).unwrap();
    bench.drive();
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS);
    bench.answer(from_object(Answer { status: 204, ..status("executed") }, bench.server_ms()));
    bench.pass(3_600_000);
    assert!(!bench.rows.contains_key("old"), "ten days too old");
}

#[test]
fn what_could_not_be_adopted_because_the_store_failed_is_adopted_later() {
    let mut bench = Bench::ready();
    bench.request("x");
    let mut next = Bench::with(|settings| settings.owner = "next".into());
    next.rows = bench.rows.clone();
    let rows: Vec<_> = next.rows.clone().into_iter().collect();
    next.is_broken = true;
    next.client.stored(0, &rows, None).unwrap();
    next.drive();
    next.is_broken = false;
    next.pass(3_600_000);
    assert!(!next.sent.is_empty(), "the store failed once, at the open");
}

#[test]
fn after_a_sleep_the_clock_is_asked_for_before_anything_is_sent() {
    let mut bench = Bench::ready();
    let slept_ms = 48 * 3_600_000;
    bench.client.doubt_clock();
    bench.request("x");
    assert_eq!(bench.targets(), ["/semel/v1/health"]);
    let server_ms = bench.server_ms() + slept_ms;
    bench.answer(health(server_ms));
    let first_sent = format!("@{}", server_ms / 1000);
    assert_eq!(bench.last().headers.get("semel-first-sent"), Some(first_sent.as_str()));
}

#[test]
fn retry_after_is_obeyed_for_acknowledgements_too() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS);
    let sent = bench.sent.len();
    let mut answer = by_router(429, "rate-limited", "no", "same-id", bench.server_ms());
    answer.headers.append("retry-after", "600");
    bench.answer(answer);
    bench.pass(599_000);
    assert_eq!(bench.sent.len(), sent, "POST acks");
}

#[test]
fn a_clock_of_the_server_that_is_out_of_range_does_no_harm() {
    let mut bench = Bench::new();
    bench.request("x");
    bench.answer(health(i64::MAX));
}

#[test]
fn requests_to_a_key_that_hangs_do_not_keep_others_from_being_sent_for_ever() {
    let mut bench = Bench::ready();
    for n in 0..2 * ATTEMPTS_MAX {
        bench.request(&format!("dead{n}"));
    }
    let mut healthy = draft("healthy");
    healthy.target = "/elsewhere".into();
    bench.client.request(bench.now_ms, "healthy".into(), healthy);
    bench.drive();
    // Nothing is answered: all attempts at /a/b hang to their timeout.
    bench.pass(3_600_000);
    assert!(bench.targets().contains(&"/elsewhere"), "not sent once in an hour, of {} attempts", bench.sent.len());
}
