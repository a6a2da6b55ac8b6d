//! Requests to one key that must run one after another.

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
fn an_ordered_request_waits_for_the_answer_of_the_one_before_it_at_its_key() {
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
fn ordered_requests_to_other_keys_and_unordered_ones_are_sent_at_once() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b", None);
    ordered(&mut bench, "other", "/other", None);
    ordered(&mut bench, "named", "/a/b", Some("named"));
    bench.request("unordered");
    assert_eq!(sent_ids(&bench), ["x", "other", "named", "unordered"]);
}

#[test]
fn a_request_that_waits_for_its_turn_sets_no_timer_and_stores_no_deadline() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b", None);
    ordered(&mut bench, "y", "/a/b", None);
    assert_eq!(bench.client.wakes_at(), Some(bench.now_ms + TIMEOUT_MS));
    let Some(Row::Pending(Entry { until_ms, first_sent_s, .. })) = bench.row("y") else { panic!("it is not stored") };
    assert_eq!((until_ms, first_sent_s), (None, None));
}

#[test]
fn an_ordered_request_waits_while_the_one_before_it_is_paused_or_being_cancelled() {
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
fn adopted_requests_go_on_in_the_order_of_their_calls() {
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
fn a_request_that_waits_for_its_turn_is_given_up_without_asking_the_server() {
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
fn a_waiting_request_that_another_tab_has_sent_is_probed_when_it_is_given_up() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/a/b", None);
    let second = ordered(&mut bench, "y", "/a/b", None);
    bench.change("y", &crate::client::Change::Raise { first_sent_s: 5, until_ms: SERVER_MS, is_cancelling: false });
    bench.client.give_up(bench.now_ms, second);
    bench.drive();
    assert!(bench.delivered.is_empty());
    // The key is a guess. So the request itself is asked for first, by an attempt that can't be executed.
    assert_eq!((sent_ids(&bench).last().map(String::as_str), deadline_ms(bench.last())), (Some("y"), 0));
}

#[test]
fn giving_up_a_waiting_request_takes_effect_only_once_the_store_works() {
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

#[test]
fn an_answer_that_names_the_key_does_not_let_later_requests_known_by_path_pass() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/new", None);
    ordered(&mut bench, "y", "/new", None);
    bench.answer(problem(500, "rolled-back", "no", "same-id", bench.server_ms()));
    ordered(&mut bench, "z", "/new", None);
    bench.pass(INTERVAL_MS);
    assert_eq!(sent_ids(&bench), ["x", "x"]);
    for id in ["x", "y", "z"] {
        assert_eq!(sent_ids(&bench).pop().as_deref(), Some(id));
        answer_to_id(&mut bench, id, outcome(id, SERVER_MS));
    }
}

#[test]
fn an_answer_that_spells_a_named_key_differently_does_not_let_later_requests_pass() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "x", "/new", Some("a%2fb"));
    ordered(&mut bench, "y", "/other", Some("a%2fb"));
    bench.answer(problem(500, "rolled-back", "no", "same-id", bench.server_ms()));
    bench.pass(INTERVAL_MS);
    assert_eq!(sent_ids(&bench), ["x", "x"]);
}

/// The rows that a tab has left: `c`, then `a`.
fn left() -> BTreeMap<String, Vec<u8>> {
    let mut bench = Bench::ready();
    ordered(&mut bench, "c", "/a/b", None);
    ordered(&mut bench, "a", "/a/b", None);
    bench.rows
}

/// A tab that looks at rows whose owners are gone. Its actions are not done yet.
fn looks_at(owner: &str, rows: BTreeMap<String, Vec<u8>>) -> Bench {
    let mut bench = Bench::with(|settings| settings.owner = owner.into());
    bench.rows = rows;
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    bench.client.stored(0, &rows, Some(&|_| false)).expect("readable");
    bench
}

fn owner(bench: &Bench, id: &str) -> String {
    let Some(Row::Pending(entry)) = bench.row(id) else { panic!("{id} is not pending") };
    entry.owner
}

/// Takes a row over for another tab.
fn adopt(bench: &mut Bench, id: &str, by: &str) {
    let from = owner(bench, id);
    bench.change(id, &crate::client::Change::Adopt { by: by.into(), from, is_shared: false });
}

#[test]
fn a_request_that_another_tab_just_adopted_is_shared_if_an_adopted_one_comes_after_it() {
    let mut bench = looks_at("next", left());
    adopt(&mut bench, "c", "other");
    bench.drive();
    bench.answer(health(bench.server_ms()));
    assert_eq!((owner(&bench, "c"), owner(&bench, "a")), ("next".to_owned(), "next".to_owned()));
    assert!(matches!(bench.row("c"), Some(Row::Pending(entry)) if entry.is_shared), "the other tab may wait for it");
    for id in ["c", "a"] {
        answer_to_id(&mut bench, id, outcome(id, SERVER_MS));
    }
    assert_eq!(bodies(&bench), ["c", "a"]);
}

#[test]
fn a_request_that_another_tab_adopted_is_left_to_it_if_none_comes_after_it() {
    let mut bench = looks_at("next", left());
    adopt(&mut bench, "c", "other");
    adopt(&mut bench, "a", "other");
    bench.drive();
    bench.answer(health(bench.server_ms()));
    assert_eq!(owner(&bench, "a"), "other");
    assert!(!sent_ids(&bench).contains(&"a".to_owned()));
}

#[test]
fn a_request_that_a_living_tab_adopted_is_shared_with_it_if_an_adopted_one_comes_after_it() {
    let mut bench = Bench::with(|settings| settings.owner = "next".into());
    bench.rows = left();
    adopt(&mut bench, "c", "other");
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    bench.client.stored(0, &rows, Some(&|owner| owner == "other")).expect("readable");
    bench.drive();
    assert!(matches!(bench.row("c"), Some(Row::Pending(entry)) if entry.is_shared), "the other tab may wait for it");
    bench.answer(health(bench.server_ms()));
    assert_eq!(sent_ids(&bench), ["c"]);
    answer_to_id(&mut bench, "c", outcome("c", SERVER_MS));
    assert_eq!(sent_ids(&bench), ["c", "a"]);
}

#[test]
fn requests_that_a_living_tab_made_are_left_to_it() {
    let mut bench = Bench::with(|settings| settings.owner = "next".into());
    bench.rows = left();
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    bench.client.stored(0, &rows, Some(&|owner| owner == "tab")).expect("readable");
    assert_eq!(bench.client.poll(), None);
}

#[test]
fn requests_that_are_adopted_twice_run_before_those_called_later() {
    let mut second = looks_at("second", left());
    second.drive();
    ordered(&mut second, "b", "/a/b", None);
    let mut third = looks_at("third", second.rows);
    third.drive();
    third.answer(health(third.server_ms()));
    for id in ["c", "a", "b"] {
        answer_to_id(&mut third, id, outcome(id, SERVER_MS));
    }
    assert_eq!(bodies(&third), ["c", "a", "b"]);
}

#[test]
fn a_request_shared_with_a_living_tab_keeps_its_place_before_later_calls_of_that_tab() {
    let mut living = Bench::ready();
    ordered(&mut living, "x", "/a/b", None);
    // The tab that shares the request has made many requests of its own.
    let mut sharing = Bench::with(|settings| settings.owner = "sharing".into());
    for id in ["p", "q", "r", "s"] {
        ordered(&mut sharing, id, "/other", None);
    }
    sharing.rows.extend(living.rows.clone());
    let rows: Vec<_> = sharing.rows.clone().into_iter().collect();
    sharing.client.stored(0, &rows, None).expect("readable");
    sharing.drive();
    assert_eq!(owner(&sharing, "x"), "sharing");
    ordered(&mut living, "a", "/a/b", None);
    sharing.rows.insert("a".into(), living.rows.remove("a").expect("stored"));
    let mut third = looks_at("third", sharing.rows);
    third.drive();
    third.answer(health(third.server_ms()));
    let at = |id: &str| sent_ids(&third).iter().position(|sent| sent == id);
    assert_eq!((at("x").is_some(), at("a")), (true, None));
}

#[test]
fn a_request_called_after_an_answer_named_the_key_waits_for_the_one_before_it() {
    // A key that is known only from the answer, and a key that the answer spells differently.
    for (first, then) in [(None, "a/b"), (Some("a%2fb"), "a%2fb")] {
        let mut bench = Bench::ready();
        ordered(&mut bench, "x", "/new", first);
        bench.answer(problem(500, "rolled-back", "no", "same-id", bench.server_ms()));
        ordered(&mut bench, "y", "/other", Some(then));
        assert_eq!(sent_ids(&bench), ["x"], "{first:?}");
    }
}

#[test]
fn a_request_waits_for_one_of_another_path_if_both_paths_have_led_to_one_key() {
    let mut bench = Bench::ready();
    for (id, target) in [("a", "/one"), ("b", "/two")] {
        ordered(&mut bench, id, target, None);
        answer_to_id(&mut bench, id, outcome(id, SERVER_MS));
    }
    for (id, target) in [("c", "/one"), ("d", "/two")] {
        ordered(&mut bench, id, target, None);
    }
    assert_eq!(sent_ids(&bench), ["a", "b", "c"]);
    answer_to_id(&mut bench, "c", problem(500, "rolled-back", "no", "same-id", SERVER_MS));
    bench.pass(INTERVAL_MS);
    assert_eq!(sent_ids(&bench), ["a", "b", "c", "c"]);
}

#[test]
fn a_request_waits_for_none_that_has_its_answer_though_the_store_failed_to_settle_it() {
    let mut bench = Bench::ready();
    ordered(&mut bench, "a", "/a/b", None);
    bench.is_broken = true;
    answer_to_id(&mut bench, "a", outcome("a", SERVER_MS));
    bench.is_broken = false;
    assert_eq!(bench.client.counts(), (0, 0));
    ordered(&mut bench, "b", "/a/b", None);
    assert_eq!(sent_ids(&bench), ["a", "b"]);
}
