//! The requests that a key sends to another without a place, which are take-overs and closings, and what stays of them there.

use semel_core::header::{ACKS_MAX, acks};
use semel_core::server::Config;
use semel_core::server::effects::{Heard, Sending};
use semel_core::server::storage::record::Change;
use semel_support::carrying::{delivered, drained, heard, mended, sent, told, told_of, transfer, two};
use semel_support::{Bank, World, post};
use serde_json::json;

fn has_deadline(sending: &Sending) -> bool {
    sending.headers.get("semel-deadline").is_some()
}

fn next(alice: &mut World<Bank>, path: &str) -> Sending {
    let sending = alice.send_next().expect("something");
    assert!(sending.url.ends_with(path), "{}", sending.url);
    sending
}

/// An account with money, and one with room for three records, which it keeps for ten years.
fn small() -> (World<Bank>, World<Bank>) {
    let config = Config { open: true, records_max: 3, retention_s: 315_360_000, ..Config::default() };
    (two().0, World::at("accounts/bob", Bank::default(), config))
}

/// Bob got the credit, alice has not heard of it, and an administrator gives it up. Its closing comes next.
fn given_up(alice: &mut World<Bank>, credit: &Sending) {
    alice.sent(credit, Heard::Nothing("lost".to_owned()));
    let id = told(alice)["lanes"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(mended(alice, "m", &format!("{id}/park")).json()["state"], "closing");
    alice.pass_ms(1_000);
}

#[test]
fn a_sender_that_restarts_often_does_not_fill_the_receiver_with_its_take_overs() {
    let (mut alice, mut bob) = small();
    for n in 1..=20 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
        assert_eq!(drained(&mut alice, &mut bob), 2, "a take-over, and what is sent");
        assert_eq!(bob.balance(), n);
        alice.restart();
        alice.pass_ms(10_000);
        bob.pass_ms(10_000);
    }
    let Change { records, tombstones, .. } = bob.count().expect("storage");
    assert_eq!(records, 0);
    assert!(tombstones <= 14, "{tombstones} are there, of two minutes and some seconds");
    bob.pass_s(200);
    bob.send(&post("/accounts/bob/deposit").id("d").body(json!({"amount": 1}).to_string())).is_executed(200);
    assert_eq!(bob.count(), Ok(Change { records: 1, ..Change::default() }));
}

#[test]
fn closings_are_acknowledged_even_if_their_answers_were_lost() {
    let (mut alice, mut bob) = small();
    bob.handler.knows_no_credits.set(true);
    for n in 1..=10 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
    }
    for _ in 0..100 {
        while let Some(sending) = alice.send_next() {
            let reply = delivered(&mut bob, &sending);
            // Every other answer to a request without a place is lost.
            let is_lost = sending.headers.get("semel-session").is_none() && alice.wall_ms / 1_000 % 2 == 0;
            let lost = Heard::Nothing("lost".to_owned());
            alice.sent(&sending, if is_lost { lost } else { heard(&reply) });
        }
        alice.pass_ms(1_000);
    }
    assert_eq!(told(&mut alice)["parked"].as_array().map(Vec::len), Some(10));
    assert_eq!(bob.count().map(|count| count.records), Ok(1), "nothing was sent after the last");
    bob.handler.knows_no_credits.set(false);
    alice.send(&transfer("t11", &["bob"], 1));
    drained(&mut alice, &mut bob);
    assert_eq!(bob.count().map(|count| count.records), Ok(0));
}

#[test]
fn an_acknowledged_take_over_that_comes_again_late_takes_nothing_over() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    let take_over = next(&mut alice, "/sessions");
    told_of(&mut alice, &mut bob, &take_over);
    drained(&mut alice, &mut bob);
    for (after_s, code) in
        [(1, "acknowledged"), (70, "acknowledged"), (200, "attempt-expired"), (86_400, "attempt-expired")]
    {
        bob.pass_s(after_s);
        let deposit =
            post("/accounts/bob/deposit").id(&format!("after {after_s}")).body(json!({"amount": 0}).to_string());
        bob.send(&deposit).is_executed(200);
        assert_eq!(delivered(&mut bob, &take_over).only("semel-status"), code, "{after_s}");
    }
    alice.send(&transfer("t2", &["bob"], 5));
    assert_eq!(drained(&mut alice, &mut bob), 1, "the session is its own");
    assert_eq!(bob.balance(), 10);
}

#[test]
fn take_overs_go_without_a_deadline_after_the_receivers_clock_has_refused_it() {
    for apart_s in [-3_600, 3_600] {
        let (mut alice, mut bob) = small();
        bob.pass_s(apart_s);
        for n in 1..=5 {
            alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
            let refused = next(&mut alice, "/sessions");
            assert!(has_deadline(&refused));
            let reply = told_of(&mut alice, &mut bob, &refused);
            assert_eq!(reply.only("semel-status"), if apart_s > 0 { "attempt-expired" } else { "key-invalid" });
            alice.pass_ms(1_000);
            let take_over = next(&mut alice, "/sessions");
            assert!(!has_deadline(&take_over));
            told_of(&mut alice, &mut bob, &take_over);
            assert_eq!(drained(&mut alice, &mut bob), 1);
            alice.restart();
        }
        assert_eq!(
            (bob.balance(), bob.count()),
            (5, Ok(Change { tombstones: 5, ..Change::default() })),
            "for the retention"
        );
    }
}

#[test]
fn a_closing_refused_for_its_deadline_goes_again_without_one_and_parks_nothing() {
    let (mut alice, mut bob, credit) = sent();
    assert_eq!(delivered(&mut bob, &credit).only("semel-status"), "executed");
    alice.restart();
    let take_over = next(&mut alice, "/sessions");
    told_of(&mut alice, &mut bob, &take_over);
    let credit = next(&mut alice, "/credit");
    // The place was taken, so the credit goes under the earlier epoch. There, a `key-invalid` because of the seq would say something
    // of the place.
    given_up(&mut alice, &credit);
    alice.pass_ms(3_600_000);
    let refused = next(&mut alice, "/cancel");
    assert_eq!(told_of(&mut alice, &mut bob, &refused).only("semel-status"), "key-invalid");
    assert_eq!(told(&mut alice)["parked"], json!([]));
    alice.pass_ms(1_000);
    let closing = next(&mut alice, "/cancel");
    assert!(!has_deadline(&closing));
    told_of(&mut alice, &mut bob, &closing);
    assert_eq!((told(&mut alice)["count"].clone(), bob.balance()), (json!(0), 5), "it is done");
}

#[test]
fn a_sender_acknowledges_no_more_take_overs_at_once_than_the_header_has_room_for() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    let mut most = 0;
    for _ in 0..100 {
        let take_over = alice.send_next_by((1 << 53) - 1).expect("a take-over");
        most = most.max(acks(&take_over.headers).expect("within the limits").len());
        alice.sent(&take_over, Heard::Nothing("lost".to_owned()));
        alice.pass_ms(1_000);
        bob.pass_ms(1_000);
    }
    assert!((10..=ACKS_MAX).contains(&most), "{most}");
    drained(&mut alice, &mut bob);
    assert_eq!((bob.balance(), bob.count().map(|count| count.records)), (5, Ok(0)));
    alice.send(&transfer("t2", &["bob"], 5));
    let credit = next(&mut alice, "/credit");
    assert_eq!(credit.headers.get("semel-ack"), None, "all of that is taken");
}
