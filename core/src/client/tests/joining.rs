//! Several who make the same request, in this tab or in another, and what becomes of them if it is given up or made
//! anew.

use super::super::*;
use super::*;

#[test]
fn the_same_request_made_twice_in_a_tab_is_sent_once_under_one_ticket() {
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
fn a_request_whose_id_is_just_being_looked_up_is_no_mismatch() {
    let mut bench = Bench::ready();
    bench.client.watch("x".into());
    bench.request("x");
    assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"x\""));
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!((bodies(&bench), bench.delivered[0].1), (vec!["done".to_owned()], Receiver::Caller));
}

#[test]
fn the_same_id_in_two_tabs_is_one_request_or_a_mismatch_if_the_payload_differs() {
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
fn an_id_whose_answer_was_delivered_is_not_sent_again() {
    let mut first = Bench::ready();
    first.request("x");
    first.answer(outcome("done", first.server_ms()));
    let sent = first.sent.len();
    first.request("x");
    assert_eq!((bodies(&first), first.sent.len()), (vec!["done".into(), "outcome-lost".into()], sent));
}

#[test]
fn an_ordered_request_that_another_tab_sends_does_not_delay_the_next_one_here() {
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
fn a_request_of_another_identity_is_neither_told_nor_changed() {
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
fn a_caller_that_joined_a_withdrawn_request_gets_outcome_lost_though_its_id_is_used_anew() {
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
fn a_caller_that_joined_a_withdrawn_request_does_not_get_the_kept_answer_of_its_successor() {
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
fn a_tab_adopts_the_request_made_anew_under_an_id_and_the_old_ones_caller_gets_outcome_lost() {
    let (first, mut other) = made_anew();
    other.rows = first.rows.clone();
    all_gone(&mut other);
    other.answer(outcome("to what was made anew", other.server_ms()));
    assert_eq!(bodies(&other), ["outcome-lost", "to what was made anew"]);
    assert_eq!((other.delivered[0].1, other.delivered[1].1), (Receiver::Caller, Receiver::Recovered));
}

/// Rows as an older build made them: their maker is only the tab, whatever the request asks for.
#[test]
fn a_caller_that_joined_an_older_builds_row_gets_its_answer_or_outcome_lost_if_replaced() {
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
fn the_maker_of_a_row_stays_the_same_text_when_it_is_settled() {
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
fn a_request_under_the_id_of_a_stored_row_with_another_payload_is_a_mismatch() {
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
fn a_request_that_is_given_up_while_it_is_taken_over_is_sent_only_with_deadline_0() {
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

/// The row says that the request is another tab's. That tab ends before this one has marked the row.
#[test]
fn a_request_given_up_before_its_row_was_known_gets_deadline_0_after_its_tab_ends() {
    let mut first = Bench::ready();
    first.request("x");
    let mut other = given_up_unjoined(&first);
    all_gone(&mut other);
    assert_eq!(deadline_ms(other.last()), 0, "it is not to be executed: its caller gave it up");
}

/// After this tab found the row, and before it marked it, the maker takes the request back, makes another under the id,
/// and ends.
#[test]
fn giving_up_a_request_does_not_cancel_one_made_anew_under_its_id() {
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
fn a_caller_that_joined_gets_gave_up_in_time_though_its_own_tab_takes_the_request_over() {
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
fn a_request_given_up_before_its_row_was_known_gives_gave_up_unless_its_tab_is_cancelling_it() {
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
