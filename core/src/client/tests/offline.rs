//! Requests while the network is gone, and when it is back.

use super::*;

fn set_offline(bench: &mut Bench, is_offline: bool) {
    bench.client.set_offline(bench.now_ms, is_offline);
    bench.drive();
}

#[test]
fn nothing_is_sent_offline_and_all_requests_are_sent_at_once_when_online() {
    let mut bench = Bench::ready();
    bench.request("before");
    set_offline(&mut bench, true);
    bench.lose();
    bench.request("meanwhile");
    bench.pass(60 * INTERVAL_MS);
    assert_eq!(bench.sent.len(), 1);
    assert!(bench.row("meanwhile").is_some(), "it is kept");
    set_offline(&mut bench, false);
    assert_eq!(bench.sent.len(), 3);
}

#[test]
fn the_clock_and_acknowledgements_are_not_sent_offline() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("x", bench.server_ms()));
    bench.sent.clear();
    set_offline(&mut bench, true);
    bench.client.doubt_clock();
    bench.request("y");
    bench.pass(60 * INTERVAL_MS);
    assert_eq!(bench.targets(), [""; 0]);
    assert_eq!(bench.client.wakes_at(), None);
    set_offline(&mut bench, false);
    assert!(bench.targets().contains(&"/semel/v1/health"));
    bench.pass(ACK_RIDE_MS);
    assert!(bench.targets().contains(&"/semel/v1/keys/a%2Fb/acks"), "{:?}", bench.targets());
}

#[test]
fn a_request_stored_offline_is_given_up_without_asking_the_server() {
    let mut bench = Bench::ready();
    set_offline(&mut bench, true);
    let ticket = bench.request("x");
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    assert_eq!(bodies(&bench), ["cancelled"]);
    set_offline(&mut bench, false);
    assert_eq!((bench.sent.len(), bench.row("x")), (0, None));
}

#[test]
fn a_page_that_becomes_visible_sends_before_the_interval_is_over() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.lose();
    bench.client.hurry(bench.now_ms);
    bench.drive();
    assert_eq!(bench.sent.len(), 2);
    bench.answer(problem(429, "rate-limited", "no", "same-id", bench.server_ms()));
    bench.client.hurry(bench.now_ms);
    bench.drive();
    assert_eq!(bench.sent.len(), 3, "the server asked for no pause");
}

#[test]
fn an_attempt_whose_row_is_being_raised_when_the_network_goes_waits_until_online() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.lose();
    bench.now_ms += INTERVAL_MS;
    bench.client.wake(bench.now_ms);
    let Some(Action::Change { ticket, id, change }) = bench.client.poll() else { panic!("no row is raised") };
    let changed = bench.change(&id, &change);
    bench.client.set_offline(bench.now_ms, true);
    bench.client.changed(bench.now_ms, ticket, Some(changed));
    bench.drive();
    assert_eq!(bench.sent.len(), 1);
    set_offline(&mut bench, false);
    assert_eq!(bench.sent.len(), 2);
}

#[test]
fn a_page_that_becomes_visible_still_obeys_retry_after() {
    let mut bench = Bench::ready();
    bench.request("x");
    let mut answer = problem(429, "rate-limited", "no", "same-id", bench.server_ms());
    answer.headers.append("retry-after", "7");
    bench.answer(answer);
    bench.client.hurry(bench.now_ms);
    bench.pass(6_999);
    assert_eq!(bench.sent.len(), 1);
    bench.pass(1);
    assert_eq!(bench.sent.len(), 2);
}

#[test]
fn an_answer_that_arrives_after_the_network_has_gone_settles_its_row() {
    let mut bench = Bench::ready();
    bench.request("x");
    set_offline(&mut bench, true);
    bench.answer(outcome("done", bench.server_ms()));
    assert!(matches!(bench.row("x"), Some(Row::Settled(_))));
}

#[test]
fn a_question_for_the_clock_that_is_lost_is_asked_again_after_the_interval_or_once_the_user_looks() {
    let mut bench = Bench::new();
    bench.request("x");
    bench.lose();
    bench.pass(INTERVAL_MS - 1);
    assert_eq!(bench.sent.len(), 1);
    bench.pass(1);
    bench.lose();
    assert_eq!(bench.sent.len(), 2);
    bench.client.hurry(bench.now_ms);
    bench.drive();
    assert_eq!(bench.targets(), ["/semel/v1/health"; 3]);
    assert_eq!(bench.last().headers.get("semel-principal"), None, "so that a browser asks nobody whether it may ask");
}
