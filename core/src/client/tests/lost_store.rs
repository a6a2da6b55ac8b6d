//! A store that is lost under open tabs: a request that another tab then makes under the same id is not the first
//! tab's.

use super::super::*;
use super::*;
use std::rc::Rc;

const ANOTHER: &str = "another";

/// A request of this tab that is under way, and whose row is lost. Another tab has made and sent `body` under the id.
fn replaced(body: &str) -> (Bench, Entry) {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.rows.clear();
    let entry = Entry {
        draft: draft(body).into(),
        outbox: "outbox".into(),
        maker: ANOTHER.into(),
        owner: ANOTHER.into(),
        first_sent_s: Some(5),
        until_ms: Some(bench.server_ms() + TIMEOUT_MS),
        ..Entry::default()
    };
    bench.change("x", &Change::Add(entry.clone()));
    (bench, entry)
}

/// Settles the other tab's request, for whose answer a third tab waits. Returns the row.
fn settled(bench: &mut Bench) -> Option<Row> {
    bench.change("x", &Change::Join { outbox: "outbox".into() });
    let answered = Rc::new(Answered::Outcome(Response::json(201, "to the other")));
    bench.change("x", &Change::Settle { by: ANOTHER.into(), key: Some("k".into()), answered, at_s: 7 });
    let row = bench.row("x");
    assert!(
        matches!(&row, Some(Row::Settled(settled)) if settled.kept.is_some() && settled.maker == ANOTHER),
        "{row:?}"
    );
    row
}

#[test]
fn the_answer_to_a_request_whose_row_was_replaced_does_not_settle_the_new_row() {
    let (mut bench, entry) = replaced("other");
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!(bodies(&bench), ["done"]);
    assert_eq!(bench.row("x"), Some(Row::Pending(entry)), "the other has no answer yet");
    assert_eq!(bench.client.counts(), (0, 0));
}

#[test]
fn a_tab_whose_row_was_replaced_does_not_send_the_new_payload() {
    let (mut bench, entry) = replaced("other");
    bench.lose();
    bench.sent.clear();
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.targets(), [""; 0]);
    assert_eq!(bodies(&bench), ["outcome-lost"], "its own row is gone");
    assert_eq!(bench.row("x"), Some(Row::Pending(entry)));
}

#[test]
fn a_tab_whose_row_was_replaced_does_not_deliver_the_kept_answer_of_the_new_row() {
    let (mut bench, _) = replaced("other");
    let row = settled(&mut bench);
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!(bodies(&bench), ["outcome-lost"]);
    assert_eq!(bench.row("x"), row);
}

#[test]
fn giving_up_a_request_whose_row_was_replaced_does_not_cancel_the_new_one() {
    let (mut bench, entry) = replaced("other");
    let ticket = bench.client.ticket_of("x").expect("in hand");
    bench.client.give_up(bench.now_ms, ticket);
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!(bodies(&bench), ["outcome-lost"]);
    assert_eq!(bench.row("x"), Some(Row::Pending(entry)));
}

/// If both tabs make the same request, it is one: the second tab waits for the row of the first.
#[test]
fn a_tab_that_makes_the_same_request_as_a_stored_row_waits_for_that_row() {
    let (mut bench, entry) = replaced("x");
    let mut second = Bench::with(|settings| settings.owner = "second".into());
    second.learn_clock();
    second.rows = bench.rows.clone();
    second.request("x");
    assert!(second.sent.is_empty(), "{:?}", second.targets());
    assert_eq!(second.row("x"), Some(Row::Pending(Entry { is_shared: true, ..entry })));
    let row = settled(&mut bench);
    second.rows = bench.rows;
    second.pass(INTERVAL_MS);
    assert_eq!(bodies(&second), ["to the other"]);
    assert_eq!(second.row("x"), row);
}
