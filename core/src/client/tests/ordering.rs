//! Requests to one key, one after another.

use super::*;
use crate::client::Entry;

fn ordered(bench: &mut Bench, id: &str, target: &str, key: Option<&str>) -> Ticket {
    let draft = Draft { target: target.into(), key: key.map(Into::into), ..draft(id) };
    let ticket = bench.client.request(bench.now_ms, id.into(), draft, true).expect("a new id");
    bench.drive();
    ticket
}

fn sent_ids(bench: &Bench) -> Vec<String> {
    bench.sent.iter().filter_map(|made| made.headers.get("idempotency-key")).map(|id| id.replace('"', "")).collect()
}

fn answer_to_id(bench: &mut Bench, id: &str, answer: Answer) {
    let sent = bench.sent.iter().rev().find(|made| made.headers.get("idempotency-key") == Some(&format!("\"{id}\"")));
    let attempt = sent.expect("it was sent").attempt;
    bench.answer_to(attempt, answer);
}

#[test]
fn a_request_waits_for_the_answer_of_the_one_before_it_at_its_key() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b?c", None);
    ordered(&mut bench, "y", "/a/b", None);
    ordered(&mut bench, "z", "/elsewhere", Some("a/b"));
    assert_eq!(sent_ids(&bench), ["x"]);
    bench.lose();
    bench.pass(3 * INTERVAL_MS);
    assert!(sent_ids(&bench).iter().all(|id| id == "x"), "a lost answer lets none pass");
    answer_to_id(&mut bench, "x", outcome("x", SERVER_MS));
    assert_eq!(sent_ids(&bench).last().map(String::as_str), Some("y"));
    answer_to_id(&mut bench, "y", outcome("y", SERVER_MS));
    answer_to_id(&mut bench, "z", outcome("z", SERVER_MS));
    assert_eq!(bodies(&bench), ["x", "y", "z"]);
}

#[test]
fn other_keys_and_those_that_need_no_order_overlap() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b", None);
    ordered(&mut bench, "other", "/other", None);
    ordered(&mut bench, "named", "/a/b", Some("named"));
    bench.request("unordered");
    assert_eq!(sent_ids(&bench), ["x", "other", "named", "unordered"]);
}

#[test]
fn who_waits_for_its_turn_wakes_nobody_and_stores_no_deadline() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b", None);
    ordered(&mut bench, "y", "/a/b", None);
    assert_eq!(bench.client.wakes_at(), Some(bench.now_ms + TIMEOUT_MS));
    let Some(Row::Pending(Entry { until_ms, first_sent_s, .. })) = bench.row("y") else { panic!("it is not stored") };
    assert_eq!((until_ms, first_sent_s), (None, None));
}

#[test]
fn one_that_pauses_or_is_given_up_is_waited_for_until_it_has_its_answer() {
    let mut bench = Bench::ready();
    let first = ordered(&mut bench, "x", "/a/b", None);
    ordered(&mut bench, "y", "/a/b", None);
    bench.answer(problem(401, "unauthorized", "no", "after-fix", bench.server_ms()));
    bench.pass(10 * INTERVAL_MS);
    assert_eq!(sent_ids(&bench), ["x"]);
    bench.client.give_up(bench.now_ms, first);
    bench.drive();
    assert_eq!(sent_ids(&bench), ["x", "cancel-x"]);
    let mut cancelled = outcome("", SERVER_MS);
    cancelled.members.append("state", "cancelled");
    bench.answer(cancelled);
    assert_eq!((bodies(&bench), sent_ids(&bench).pop()), (vec!["cancelled".to_owned()], Some("y".to_owned())));
}

#[test]
fn what_is_left_of_another_tab_goes_on_in_the_order_of_its_calls() {
    let mut before = Bench::ready();
    for id in ["c", "a", "b"] {
        ordered(&mut before, id, "/a/b", None);
    }
    let mut after = Bench::with(|settings| settings.owner = "next".into());
    after.rows = before.rows;
    let rows: Vec<_> = after.rows.clone().into_iter().collect();
    after.client.stored(0, &rows, Some(&|_| false)).expect("readable");
    after.drive();
    after.answer(health(after.server_ms()));
    for id in ["c", "a", "b"] {
        answer_to_id(&mut after, id, outcome(id, SERVER_MS));
    }
    assert_eq!(bodies(&after), ["c", "a", "b"]);
}

#[test]
fn what_waits_for_its_turn_is_taken_back_without_asking_anybody() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b", None);
    let second = ordered(&mut bench, "y", "/a/b", None);
    bench.client.give_up(bench.now_ms, second);
    bench.drive();
    assert_eq!(bodies(&bench), ["cancelled"]);
    assert!(matches!(&bench.delivered[0].2, Answered::Failure(failure) if failure.executed == Executed::No));
    assert_eq!((sent_ids(&bench), bench.row("y")), (vec!["x".to_owned()], None));
}

#[test]
fn what_another_tab_has_sent_meanwhile_is_cancelled_at_its_key() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b", None);
    let second = ordered(&mut bench, "y", "/a/b", None);
    bench.change("y", &crate::client::Change::Raise { first_sent_s: 5, until_ms: SERVER_MS, is_cancelling: false });
    bench.client.give_up(bench.now_ms, second);
    bench.drive();
    assert!(bench.delivered.is_empty());
    // Its key is a guess, so it is found first, by an attempt that can't be executed.
    assert_eq!((sent_ids(&bench).last().map(String::as_str), deadline_ms(bench.last())), (Some("y"), 0));
}

#[test]
fn a_failing_store_takes_nothing_back() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b", None);
    let second = ordered(&mut bench, "y", "/a/b", None);
    bench.is_broken = true;
    bench.client.give_up(bench.now_ms, second);
    bench.drive();
    assert!(bench.delivered.is_empty());
    bench.is_broken = false;
    bench.pass(2 * INTERVAL_MS);
    assert_eq!(bodies(&bench), ["cancelled"]);
}
