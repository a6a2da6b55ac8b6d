//! Watchers, who wait for the answer to a request that they did not make: of this tab, or of another.

use super::super::*;
use super::*;

#[test]
fn a_watcher_in_another_tab_gets_the_answer_without_sending() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    watch(&mut other, "x");
    other.pass(10 * INTERVAL_MS);
    assert!(other.delivered.is_empty());
    assert_eq!(other.client.counts(), (0, 0), "it is another tab's");
    answer_in(&mut first, &mut other);
    assert_eq!((bodies(&first), bodies(&other)), (vec!["done".into()], vec!["done".into()]));
    assert_eq!(other.delivered[0].1, Receiver::Caller);
    assert!(other.sent.is_empty(), "two tabs need not ask");
    assert_eq!(other.client.wakes_at(), None);
    // The answer is kept for others.
    watch(&mut other, "x");
    assert_eq!(bodies(&other), ["done", "done"]);
}

#[test]
fn a_watcher_adopts_the_request_when_its_tab_is_gone_and_gets_the_answer() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    watch(&mut other, "x");
    all_gone(&mut other);
    assert_eq!(other.last().headers.get("idempotency-key"), Some("\"x\""));
    other.answer(outcome("done", other.server_ms()));
    assert_eq!((bodies(&other), other.delivered[0].1), (vec!["done".into()], Receiver::Caller));
}

/// The tab is frozen, or has the answer and nobody there takes it.
#[test]
fn a_watcher_sends_the_request_itself_if_its_living_tab_sends_nothing_for_two_timeouts() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    watch(&mut other, "x");
    other.pass(2 * TIMEOUT_MS - INTERVAL_MS);
    assert!(other.sent.is_empty());
    other.pass(2 * INTERVAL_MS);
    assert_eq!(other.last().headers.get("idempotency-key"), Some("\"x\""));
    other.answer(outcome("done", other.server_ms()));
    assert_eq!((bodies(&other), other.delivered[0].1), (vec!["done".into()], Receiver::Caller));
    assert_eq!(other.client.counts(), (0, 0));
    // When the first tab goes on, it finds the request answered.
    first.rows = other.rows.clone();
    first.pass(TIMEOUT_MS + INTERVAL_MS);
    assert_eq!((first.sent.len(), bodies(&first)), (1, vec!["done".into()]));
}

#[test]
fn a_watcher_does_not_send_a_request_that_its_tab_keeps_sending_or_that_waits_for_its_turn() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    watch(&mut other, "x");
    for n in 1..100 {
        other.change("x", &Change::Raise { first_sent_s: 0, until_ms: SERVER_MS + n * 60_000, is_cancelling: false });
        other.pass(TIMEOUT_MS + INTERVAL_MS);
    }
    other.client.set_offline(other.now_ms, true);
    other.pass(10 * TIMEOUT_MS);
    other.client.set_offline(other.now_ms, false);
    other.pass(2 * TIMEOUT_MS - INTERVAL_MS);
    assert!(other.sent.is_empty(), "it could not be asked for, nor can the other have");
    // A request in order must not overtake those before it, which this tab does not know.
    let entry = Entry { owner: "tab".into(), outbox: "outbox".into(), place: Some(2), ..Entry::default() };
    other.change("y", &Change::Add(entry));
    watch(&mut other, "y");
    for n in (0..10).rev() {
        other.change("x", &Change::Raise { first_sent_s: 0, until_ms: i64::MAX - n, is_cancelling: false });
        other.pass(TIMEOUT_MS + INTERVAL_MS);
    }
    assert!(other.sent.is_empty() && other.delivered.is_empty());
}

#[test]
fn a_request_that_nobody_watches_any_more_is_left_to_its_tab() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    let ticket = watch(&mut other, "x");
    other.pass(2 * TIMEOUT_MS - INTERVAL_MS);
    other.client.leave(ticket);
    other.pass(10 * TIMEOUT_MS);
    assert!(other.sent.is_empty() && other.delivered.is_empty());
    assert_eq!(other.client.wakes_at(), None);
}

#[test]
fn a_watcher_gets_the_answer_of_a_third_tab_that_took_the_request_over() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    watch(&mut other, "x");
    let rows: Vec<_> = other.rows.clone().into_iter().collect();
    // Another tab takes the request over after this tab looked, and before its transaction.
    other.change("x", &Change::Adopt { by: "third".into(), from: "tab".into(), is_shared: false });
    other.client.stored(other.now_ms, &rows, Some(&|_| false)).unwrap();
    other.drive();
    assert!(other.sent.is_empty());
    let answered = std::rc::Rc::new(Answered::Failure(ClientCode::GaveUp.into()));
    let settled = Change::Settle { by: "third".into(), key: None, answered, at_s: 0 };
    other.change("x", &settled);
    other.pass(INTERVAL_MS);
    assert_eq!(bodies(&other), ["gave-up"]);
}

#[test]
fn watching_an_unknown_id_gives_outcome_lost_and_writes_no_row() {
    let mut bench = Bench::ready();
    watch(&mut bench, "x");
    assert_eq!(bodies(&bench), ["outcome-lost"]);
    assert!(bench.rows.is_empty());
}

#[test]
fn a_watcher_that_leaves_or_gives_up_gets_no_answer_and_does_not_cancel_the_request() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    let ticket = watch(&mut other, "x");
    other.client.leave(ticket);
    answer_in(&mut first, &mut other);
    assert!(other.delivered.is_empty());
    assert_eq!(other.client.wakes_at(), None);
    // Giving up a request of another tab only ends the waiting here.
    first.request("y");
    other.rows = first.rows.clone();
    let ticket = watch(&mut other, "y");
    other.client.give_up(other.now_ms, ticket);
    other.drive();
    assert_eq!(bodies(&other), ["gave-up"]);
    assert!(matches!(other.row("y"), Some(Row::Pending(Entry { is_cancelling: false, .. }))));
}

#[test]
fn a_watcher_asks_a_failing_store_again() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    other.is_broken = true;
    watch(&mut other, "x");
    other.pass(3 * INTERVAL_MS);
    assert!(other.delivered.is_empty());
    other.is_broken = false;
    other.pass(INTERVAL_MS);
    answer_in(&mut first, &mut other);
    assert_eq!(bodies(&other), ["done"]);
}

#[test]
fn an_answer_that_nobody_has_taken_yet_is_delivered_to_a_later_watcher() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.client.leave(ticket);
    let attempt = bench.last().attempt;
    bench.client.answered(bench.now_ms, attempt, outcome("done", bench.server_ms()));
    let to = |bench: &mut Bench| match bench.client.poll() {
        Some(Action::Deliver { to, .. }) => to,
        action => panic!("{action:?}"),
    };
    assert_eq!(to(&mut bench), Receiver::Recovered);
    assert_eq!(bench.client.watch("x".into()), ticket);
    assert_eq!(to(&mut bench), Receiver::Caller);
    bench.client.delivered(bench.now_ms, ticket);
    bench.drive();
    assert!(matches!(bench.row("x"), Some(Row::Settled(_))));
}

#[test]
fn a_watcher_gets_an_answer_that_was_delivered_and_is_not_settled_yet() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    let attempt = bench.last().attempt;
    bench.client.answered(bench.now_ms, attempt, outcome("done", bench.server_ms()));
    assert!(matches!(bench.client.poll(), Some(Action::Deliver { .. })));
    bench.client.delivered(bench.now_ms, ticket);
    assert!(matches!(bench.client.poll(), Some(Action::Change { .. })), "the store takes its time");
    bench.client.watch("x".into());
    bench.drive();
    assert_eq!(bodies(&bench), ["done"]);
    // The store fails.
    bench.client.changed(bench.now_ms, ticket, None);
    bench.client.watch("x".into());
    bench.drive();
    assert_eq!(bodies(&bench), ["done", "done"]);
    bench.pass(INTERVAL_MS);
    assert!(matches!(bench.row("x"), Some(Row::Settled(_))));
}
