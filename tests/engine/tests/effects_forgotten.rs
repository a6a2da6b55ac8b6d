//! Effects to another key that has forgotten their session, or knows another epoch of it.

use semel_core::server::effects::{Heard, Sending};
use semel_support::carrying::{account, delivered, drained, sent, told, told_of, transfer, two};
use semel_support::{Bank, World};
use serde_json::{Value, json};

/// The other key forgets everything that was used until now.
fn forget(bob: &mut World<Bank>) {
    bob.pass_s(10);
    bob.forget(bob.wall_ms / 1_000).expect("storage");
}

fn parked(alice: &mut World<Bank>) -> Vec<(Value, Value)> {
    let told = told(alice);
    let parked = told["parked"].as_array().expect("a list").iter();
    parked.map(|each| (each["executed"].clone(), each["reason"].clone())).collect()
}

fn unknown(epoch: i64) -> (Value, Value) {
    (json!("unknown"), json!(format!("the other key has forgotten the session, of epoch {epoch}")))
}

/// The take-over that the object has to send now, and the epoch that it expects.
fn take_over(alice: &mut World<Bank>) -> (Sending, Value) {
    let sending = alice.send_next().expect("a take-over");
    assert!(sending.url.ends_with("/sessions"), "{}", sending.url);
    let after = serde_json::from_slice::<Value>(&sending.body).expect("JSON")["after"].clone();
    (sending, after)
}

#[test]
fn an_effect_with_a_lost_answer_is_not_run_again_if_the_receiver_forgot_the_session() {
    let (mut alice, mut bob, credit) = sent();
    assert_eq!(delivered(&mut bob, &credit).only("semel-status"), "executed");
    forget(&mut bob);
    alice.restart();
    assert_eq!(drained(&mut alice, &mut bob), 1, "a take-over");
    assert_eq!((bob.balance(), parked(&mut alice)), (5, vec![unknown(1)]));
}

#[test]
fn effects_behind_one_of_a_forgotten_session_go_on_in_order_in_a_new_session() {
    let (mut alice, mut bob, credit) = sent();
    for n in 2..=3 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], n));
    }
    assert_eq!(delivered(&mut bob, &credit).only("semel-status"), "executed");
    forget(&mut bob);
    alice.restart();
    let (refused, after) = take_over(&mut alice);
    assert_eq!(after, 1);
    let reply = told_of(&mut alice, &mut bob, &refused);
    reply.is_problem(400, "body-invalid", "no", "after-fix");
    assert_eq!(reply.json()["currentEpoch"], 0);
    // The next object also knows that these were not sent.
    alice.restart();
    assert_eq!(take_over(&mut alice).1, json!(null));
    alice.pass_ms(60_000);
    assert_eq!(drained(&mut alice, &mut bob), 3, "a take-over, and each once");
    assert_eq!((bob.balance(), parked(&mut alice)), (10, vec![unknown(1)]));
    let order = bob.database.query("SELECT group_concat(transfer) FROM credits")[0][0].clone().into_text();
    assert_eq!(order.as_deref(), Some("1,2,3"));
    assert_eq!(delivered(&mut bob, &credit).only("semel-status"), "fenced", "however late it comes");
    assert_eq!(bob.balance(), 10);
}

#[test]
fn an_effect_that_had_not_arrived_when_its_session_was_forgotten_runs_in_a_new_one() {
    let (mut alice, mut bob, credit) = sent();
    forget(&mut bob);
    let reply = told_of(&mut alice, &mut bob, &credit);
    assert_eq!(reply.only("semel-status"), "session-unknown");
    alice.pass_ms(1_000);
    drained(&mut alice, &mut bob);
    assert_eq!((bob.balance(), parked(&mut alice)), (5, vec![]));
}

#[test]
fn a_sender_whose_take_over_had_no_answer_goes_on_from_the_epoch_that_fenced_tells() {
    let (mut alice, mut bob, credit) = sent();
    assert_eq!(delivered(&mut bob, &credit).only("semel-status"), "executed");
    alice.restart();
    let (unheard, after) = take_over(&mut alice);
    assert_eq!((after, delivered(&mut bob, &unheard).status()), (json!(1), 200));
    alice.restart();
    let (refused, after) = take_over(&mut alice);
    let reply = told_of(&mut alice, &mut bob, &refused);
    reply.is_problem(409, "fenced", "no", "never");
    assert_eq!((after, &reply.json()["currentEpoch"]), (json!(1), &json!(2)));
    alice.pass_ms(1_000);
    let (taken, after) = take_over(&mut alice);
    assert_eq!(after, 2);
    // An object that expects an epoch asks for that one until it is told another.
    alice.sent(&taken, Heard::Nothing("lost".to_owned()));
    alice.pass_ms(1_000);
    let (taken, after) = take_over(&mut alice);
    assert_eq!(after, 2);
    let reply = told_of(&mut alice, &mut bob, &taken);
    assert_eq!(reply.status(), 200);
    drained(&mut alice, &mut bob);
    assert_eq!((bob.balance(), parked(&mut alice)), (5, vec![]));
    assert_eq!(told(&mut alice)["count"], 0, "it was asked for under its epoch");
}

#[test]
fn after_a_take_over_the_sender_expects_its_own_epoch_and_not_the_one_that_fenced_told() {
    let (mut alice, mut bob, _lost) = sent();
    alice.restart();
    let (unheard, _) = take_over(&mut alice);
    assert_eq!(delivered(&mut bob, &unheard).status(), 200);
    alice.restart();
    let (refused, _) = take_over(&mut alice);
    told_of(&mut alice, &mut bob, &refused).is_problem(409, "fenced", "no", "never");
    alice.pass_ms(1_000);
    let (taken, after) = take_over(&mut alice);
    assert_eq!((after, told_of(&mut alice, &mut bob, &taken).status()), (json!(2), 200));
    // The credit may have run by now.
    let credit = alice.send_next().expect("the credit");
    alice.sent(&credit, Heard::Nothing("lost".to_owned()));
    alice.pass_ms(1_000);
    let again = alice.send_next().expect("the credit");
    let fenced = Heard::Answered { status: 409, semel: "fenced".to_owned(), body: Vec::new() };
    alice.sent(&again, fenced);
    alice.pass_ms(1_000);
    assert_eq!(take_over(&mut alice).1, 3);
}

#[test]
fn a_receiver_restored_to_an_earlier_epoch_is_not_taken_for_one_that_forgot_the_session() {
    let (mut alice, mut bob) = two();
    // The key's state after the first of two take-overs.
    let mut before = account("bob");
    alice.send(&transfer("t1", &["bob"], 5));
    let (first, _) = take_over(&mut alice);
    delivered(&mut before, &first);
    told_of(&mut alice, &mut bob, &first);
    alice.restart();
    let (second, _) = take_over(&mut alice);
    told_of(&mut alice, &mut bob, &second);
    alice.restart();
    let (refused, after) = take_over(&mut alice);
    let reply = told_of(&mut alice, &mut before, &refused);
    reply.is_problem(400, "body-invalid", "no", "after-fix");
    assert_eq!((after, &reply.json()["currentEpoch"]), (json!(2), &json!(1)));
    alice.pass_ms(1_000);
    drained(&mut alice, &mut before);
    assert_eq!((before.balance(), parked(&mut alice)), (5, vec![]));
}
