//! Requests while the network is gone, and when it is back.

use super::*;

fn set_offline(bench: &mut Bench, is_offline: bool) {
    bench.client.set_offline(bench.now_ms, is_offline);
    bench.drive();
}

#[test]
fn offline_nothing_is_sent_and_online_all_goes_on_at_once() {
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
fn offline_nobody_asks_for_the_clock_nor_acknowledges() {
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
fn what_was_stored_offline_is_taken_back_without_asking_anybody() {
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
fn a_page_that_is_looked_at_again_does_not_wait_for_the_interval() {
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
fn an_attempt_whose_row_is_raised_while_the_network_goes_waits_too() {
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
fn a_page_that_is_looked_at_again_waits_as_long_as_the_server_asked_for() {
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
fn an_answer_that_comes_as_the_network_goes_is_settled() {
    let mut bench = Bench::ready();
    bench.request("x");
    set_offline(&mut bench, true);
    bench.answer(outcome("done", bench.server_ms()));
    assert!(matches!(bench.row("x"), Some(Row::Settled(_))));
}
