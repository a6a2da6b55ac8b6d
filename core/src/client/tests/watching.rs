//! Several who wait for one answer: in this tab, and for a request of another tab.

use super::super::*;
use super::*;

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

#[test]
fn the_answer_reaches_who_asks_for_it_in_another_tab() {
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
fn who_waits_for_another_tab_goes_on_when_it_is_gone_and_gets_the_answer() {
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
fn who_waits_for_a_tab_that_lives_and_sends_no_more_asks_for_itself_in_the_end() {
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
fn what_another_tab_sends_again_and_again_is_left_to_it_and_so_is_what_has_still_to_leave() {
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
    other.change("x", &Change::Raise { first_sent_s: 0, until_ms: i64::MAX, is_cancelling: false });
    other.pass(2 * TIMEOUT_MS - INTERVAL_MS);
    assert!(other.sent.is_empty() && other.delivered.is_empty());
}

#[test]
fn what_nobody_waits_for_is_left_to_the_tab_that_has_it() {
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
fn what_a_third_tab_takes_over_is_waited_for_all_the_same() {
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
fn an_id_that_is_not_there_has_no_answer_and_nothing_is_made_up() {
    let mut bench = Bench::ready();
    watch(&mut bench, "x");
    assert_eq!(bodies(&bench), ["outcome-lost"]);
    assert!(bench.rows.is_empty());
}

#[test]
fn who_leaves_is_not_answered_and_the_request_goes_on() {
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
fn a_store_that_fails_is_asked_again_for_who_waits() {
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
fn the_same_request_made_twice_is_one_and_both_get_its_answer() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    assert_eq!(bench.client.request(bench.now_ms, "x".into(), draft("x"), false), Some(ticket));
    assert_eq!(bench.client.watch("x".into()), ticket);
    bench.drive();
    assert_eq!((bench.sent.len(), bench.client.counts()), (1, (1, 0)));
    // Another payload under the id does not join the request, and changes nothing.
    assert_eq!(bench.client.request(bench.now_ms, "x".into(), draft("other"), false), None);
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!(bodies(&bench), ["done"]);
}

#[test]
fn an_answer_that_nobody_took_yet_is_delivered_to_who_asks_for_it() {
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
fn the_same_id_in_two_tabs_is_one_request_if_it_is_the_same_payload() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    other.request("x");
    assert!(other.sent.is_empty());
    let other_payload = other.client.request(other.now_ms, "y".into(), draft("y"), false);
    assert!(other_payload.is_some());
    other.drive();
    answer_in(&mut first, &mut other);
    assert_eq!(bodies(&other), ["done"]);

    let mut third = beside(&first);
    first.request("z");
    third.rows = first.rows.clone();
    third.client.request(third.now_ms, "z".into(), draft("another"), false);
    third.drive();
    assert!(third.sent.is_empty());
    let Some((_, _, Answered::Failure(failure))) = third.delivered.last() else { panic!("{:?}", third.delivered) };
    assert_eq!(
        (failure.code.as_str(), failure.executed.as_str(), failure.retry.as_str()),
        ("fingerprint-mismatch", "unknown", "after-fix")
    );
    // The id still belongs to the other request.
    first.rows = third.rows.clone();
    first.answer(outcome("done", first.server_ms()));
    assert_eq!(bodies(&first).last().map(String::as_str), Some("done"));
}

#[test]
fn an_id_whose_answer_was_given_is_not_used_again() {
    let mut first = Bench::ready();
    first.request("x");
    first.answer(outcome("done", first.server_ms()));
    let sent = first.sent.len();
    first.request("x");
    assert_eq!((bodies(&first), first.sent.len()), (vec!["done".into(), "outcome-lost".into()], sent));
}

#[test]
fn what_another_tab_sees_to_holds_nothing_up() {
    let mut first = Bench::ready();
    first.client.request(first.now_ms, "x".into(), draft("x"), true);
    first.drive();
    let mut other = beside(&first);
    for id in ["x", "y"] {
        other.client.request(other.now_ms, id.into(), draft(id), true);
        other.drive();
    }
    assert_eq!(other.last().headers.get("idempotency-key"), Some("\"y\""));
    assert_eq!(other.client.counts(), (1, 0));
}

/// Two identities may share a store, and choose the same id.
#[test]
fn what_was_made_for_another_identity_is_not_told() {
    let mut first = Bench::ready();
    first.request("x");
    let mut stranger =
        Bench::with(|settings| (settings.outbox, settings.owner) = ("another".into(), "stranger".into()));
    stranger.learn_clock();
    stranger.rows = first.rows.clone();
    watch(&mut stranger, "x");
    stranger.request("x");
    assert_eq!(bodies(&stranger), ["outcome-lost", "fingerprint-mismatch"]);
    assert_eq!(stranger.rows, first.rows, "nor changed");
    first.change("x", &Change::Join { outbox: "outbox".into() });
    first.answer(outcome("secret", first.server_ms()));
    stranger.rows = first.rows.clone();
    watch(&mut stranger, "x");
    stranger.request("x");
    assert_eq!(bodies(&stranger)[2..], ["outcome-lost", "fingerprint-mismatch"]);
    assert!(stranger.sent.is_empty());
}

/// The maker took the request back before it left, and made another under the same id.
#[test]
fn the_answer_to_what_was_made_anew_under_an_id_is_not_told_to_who_waited_for_what_was_there() {
    let mut first = Bench::ready();
    first.client.set_offline(first.now_ms, true);
    let ticket = first.request("x");
    let mut other = beside(&first);
    other.request("x");
    first.give_up(ticket);
    assert_eq!((bodies(&first), first.rows.len()), (vec!["cancelled".to_owned()], 0));
    first.client.request(first.now_ms, "x".into(), draft("anew"), false);
    first.drive();
    other.rows = first.rows.clone();
    other.pass(INTERVAL_MS);
    assert_eq!(bodies(&other), ["outcome-lost"]);
    assert!(matches!(other.row("x"), Some(Row::Pending(entry)) if entry.draft.body == b"anew"));
}

/// Two tabs: the first takes back the request that the other waits for, and makes another under the same id.
fn made_anew() -> (Bench, Bench) {
    let mut first = Bench::ready();
    first.client.set_offline(first.now_ms, true);
    let ticket = first.request("x");
    let mut other = beside(&first);
    other.request("x");
    first.give_up(ticket);
    first.client.request(first.now_ms, "x".into(), draft("anew"), false);
    first.drive();
    (first, other)
}

/// A third tab waits for the new request, so its answer is kept. Only then does the tab look that waited for the old
/// one.
#[test]
fn the_answer_that_is_kept_of_what_was_made_anew_under_an_id_is_not_told_to_who_waited_for_what_was_there() {
    let (mut first, mut other) = made_anew();
    let mut third = Bench::with(|settings| settings.owner = "third".into());
    third.learn_clock();
    third.rows = first.rows.clone();
    third.client.request(third.now_ms, "x".into(), draft("anew"), false);
    third.drive();
    first.rows = third.rows.clone();
    first.client.set_offline(first.now_ms, false);
    first.drive();
    first.answer(outcome("to what was made anew", first.server_ms()));
    for bench in [&mut third, &mut other] {
        bench.rows = first.rows.clone();
        bench.pass(INTERVAL_MS);
    }
    assert_eq!(bodies(&third), ["to what was made anew"]);
    assert_eq!(bodies(&other), ["outcome-lost"]);
}

/// The maker is gone before the tab that waited for the old request has looked. That tab takes the new one over, but
/// its caller never waited for it.
#[test]
fn what_was_made_anew_under_an_id_is_taken_over_and_its_answer_is_not_told_to_who_waited_for_what_was_there() {
    let (first, mut other) = made_anew();
    other.rows = first.rows.clone();
    all_gone(&mut other);
    other.answer(outcome("to what was made anew", other.server_ms()));
    assert_eq!(bodies(&other), ["outcome-lost", "to what was made anew"]);
    assert_eq!((other.delivered[0].1, other.delivered[1].1), (Receiver::Caller, Receiver::Recovered));
}

/// Rows as an older build made them: their maker is only the tab, whatever the request asks for.
#[test]
fn rows_of_a_build_before_are_told_and_what_was_made_anew_there_is_not_while_it_has_no_answer() {
    let entry = |body: &str| Entry {
        draft: draft(body).into(),
        outbox: "outbox".into(),
        maker: "before".into(),
        owner: "before".into(),
        ..Entry::default()
    };
    for is_anew in [false, true] {
        let mut bench = Bench::ready();
        bench.change("x", &Change::Add(entry("x")));
        bench.request("x");
        if is_anew {
            bench.change("x", &Change::Withdraw);
            bench.change("x", &Change::Add(entry("anew")));
        } else {
            let answered = std::rc::Rc::new(Answered::Outcome(Response::json(200, "done")));
            bench.change("x", &Change::Settle { by: "before".into(), key: None, answered, at_s: 0 });
        }
        bench.pass(INTERVAL_MS);
        assert_eq!(bodies(&bench), [if is_anew { "outcome-lost" } else { "done" }]);
    }
}

/// An older build reads the maker of a row as a text. So the text stays the same, whoever settles the row.
#[test]
fn who_made_a_row_stays_the_same_text_for_a_build_before() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    other.request("x");
    let Some(Row::Pending(entry)) = other.row("x") else { panic!("it is joined") };
    answer_in(&mut first, &mut other);
    let Some(Row::Settled(settled)) = first.row("x") else { panic!("it is kept") };
    assert_eq!(settled.maker, entry.maker);
}

/// The store had said that it failed, but it did not.
#[test]
fn what_is_stored_under_an_id_is_what_is_sent_under_it() {
    let mut bench = Bench::ready();
    bench.change(
        "x",
        &Change::Add(Entry {
            owner: "tab".into(),
            outbox: "outbox".into(),
            draft: draft("old").into(),
            ..Entry::default()
        }),
    );
    bench.request("x");
    assert_eq!((bodies(&bench), bench.sent.len()), (vec!["fingerprint-mismatch".into()], 0));
}

/// This tab takes over a request of another tab that it waited for, and its caller gives up during that.
#[test]
fn what_is_given_up_while_it_is_taken_over_is_cancelled() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    let ticket = other.request("x");
    assert!(other.sent.is_empty() && ticket > 0);
    let rows: Vec<_> = other.rows.clone().into_iter().collect();
    other.client.stored(other.now_ms, &rows, Some(&|_| false)).unwrap();
    let ticket = other.client.ticket_of("x").unwrap();
    other.client.give_up(other.now_ms, ticket);
    other.drive();
    assert_eq!(deadline_ms(other.last()), 0, "it is not to be executed: its caller gave it up");
}

/// A tab that gives up a request before it knows that it is another tab's, and has not marked the row yet.
fn given_up_unjoined(of: &Bench) -> Bench {
    let mut other = beside(of);
    let ticket = other.client.request(other.now_ms, "x".into(), draft("x"), false).expect("it is not in hand");
    other.client.give_up(other.now_ms, ticket);
    let Some(Action::Change { change, .. }) = other.client.poll() else { panic!("it is added") };
    let found = other.change("x", &change);
    other.client.changed(other.now_ms, ticket, Some(found));
    other
}

/// Every other tab ends.
fn all_gone(other: &mut Bench) {
    let rows: Vec<_> = other.rows.clone().into_iter().collect();
    other.client.stored(other.now_ms, &rows, Some(&|_| false)).unwrap();
    other.drive();
}

/// The row says that the request is another tab's. That tab ends before this one has marked the row.
#[test]
fn what_is_given_up_before_it_is_known_to_be_another_tabs_is_so_when_that_one_has_gone() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = given_up_unjoined(&first);
    all_gone(&mut other);
    assert_eq!(deadline_ms(other.last()), 0, "it is not to be executed: its caller gave it up");
}

/// After this tab found the row, and before it marked it, the maker takes the request back, makes another under the id,
/// and ends.
#[test]
fn what_was_made_anew_under_the_id_of_what_is_given_up_is_not() {
    let (first, _) = made_anew();
    let mut before = Bench::ready();
    before.client.set_offline(before.now_ms, true);
    before.request("x");
    let mut other = given_up_unjoined(&before);
    other.rows = first.rows.clone();
    all_gone(&mut other);
    assert!(matches!(other.row("x"), Some(Row::Pending(Entry { is_cancelling: false, .. }))), "{:?}", other.row("x"));
    assert_eq!(other.last().request.body, b"anew");
}

#[test]
fn who_joined_what_another_tab_sends_gives_up_in_time_though_it_is_taken_over() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    other.client.settings.give_up_after_ms = Some(20_000);
    other.request("x");
    all_gone(&mut other);
    other.pass(30_000);
    assert_eq!(other.given_up.len(), 1);
}

#[test]
fn who_gives_up_before_it_is_known_to_be_another_tabs_waits_no_more() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = beside(&first);
    let ticket = other.client.request(other.now_ms, "x".into(), draft("x"), false).expect("it is not in hand");
    other.client.give_up(other.now_ms, ticket);
    other.drive();
    assert_eq!((bodies(&other), other.sent.len()), (vec![ClientCode::GaveUp.as_str().to_owned()], 0));
    // The other tab has given the request up as well, so its answer will come.
    first.change("x", &Change::Raise { first_sent_s: 0, until_ms: 0, is_cancelling: true });
    let mut third = beside(&first);
    let ticket = third.client.request(third.now_ms, "x".into(), draft("x"), false).expect("it is not in hand");
    third.client.give_up(third.now_ms, ticket);
    third.drive();
    assert!(third.delivered.is_empty());
}

#[test]
fn who_asks_for_an_answer_that_is_given_and_not_settled_yet_gets_it_too() {
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
