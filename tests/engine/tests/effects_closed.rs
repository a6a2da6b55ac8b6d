//! Effects to another key, and what is known of them once their place there is closed.

use semel_core::header::unquoted;
use semel_core::server::effects::{Heard, Sending};
use semel_support::carrying::{delivered, drained, heard, mended, sent, told};
use semel_support::{Bank, World, post};
use serde_json::{Value, json};

/// Two accounts and a closing: one account sent 5 to the other, the credit was executed, its answer was lost, and an
/// administrator gives it up.
fn given_up() -> (World<Bank>, World<Bank>, Sending) {
    let (mut alice, mut bob, credit) = sent();
    assert_eq!(delivered(&mut bob, &credit).only("semel-status"), "executed");
    alice.sent(&credit, Heard::Nothing("lost".to_owned()));
    let id = told(&mut alice)["lanes"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(mended(&mut alice, "m", &format!("{id}/park")).json()["state"], "closing");
    alice.pass_ms(1_000);
    let closing = alice.send_next().expect("a closing");
    assert!(closing.url.ends_with("/cancel"), "{}", closing.url);
    (alice, bob, closing)
}

fn id_of(sending: &Sending) -> String {
    sending.headers.get("idempotency-key").and_then(unquoted).expect("an id")
}

fn parked(alice: &mut World<Bank>) -> Value {
    told(alice)["parked"].clone()
}

#[test]
fn a_closing_whose_id_another_principal_took_is_sent_under_a_new_id_and_parks_nothing() {
    let (mut alice, mut bob, closing) = given_up();
    let body = json!({ "id": id_of(&closing) }).to_string();
    let taken = bob.send(&post("/semel/v1/keys/accounts%2Fbob/cancel").id("c").by("mallory").body(body));
    assert_eq!(taken.json()["state"], "cancelled");
    let reply = delivered(&mut bob, &closing);
    reply.is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    alice.sent(&closing, heard(&reply));
    assert_eq!(parked(&mut alice), json!([]), "that was of the closing");
    alice.pass_ms(1_000);
    let next = alice.send_next().expect("another closing");
    assert_ne!(id_of(&next), id_of(&closing));
    let reply = delivered(&mut bob, &next);
    assert_eq!(reply.json()["state"], "executed");
    alice.sent(&next, heard(&reply));
    assert_eq!(
        (told(&mut alice)["count"].clone(), bob.balance()),
        (json!(0), 5),
        "it is done, and nothing to be sent again"
    );
}

#[test]
fn an_outcome_expired_answer_to_a_closing_parks_its_effect_as_unknown() {
    let (mut alice, mut bob, credit) = sent();
    bob.handler.knows_no_credits.set(true);
    let reply = delivered(&mut bob, &credit);
    alice.sent(&credit, heard(&reply));
    let closing = alice.send_next().expect("a closing");
    assert_eq!(delivered(&mut bob, &closing).json()["state"], "cancelled");
    alice.sent(&closing, Heard::Nothing("lost".to_owned()));
    bob.handler.knows_no_credits.set(false);
    for day in 1..=2 {
        bob.pass_s(86_400);
        bob.send(&post("/accounts/bob/deposit").id(&format!("d{day}")).body(json!({ "amount": 1 }).to_string()));
    }
    let again = delivered(&mut bob, &closing);
    again.is_problem(410, "outcome-expired", "yes", "never");
    alice.wall_ms = bob.wall_ms;
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 2);
    assert_eq!(parked(&mut alice)[0]["executed"], "unknown", "the place is as old as that");
}

#[test]
fn an_effect_that_may_have_run_is_parked_as_unknown_if_the_receiver_forgot_its_session() {
    let (mut alice, mut bob, closing) = given_up();
    bob.pass_s(10);
    bob.forget(bob.wall_ms / 1_000).expect("storage");
    let reply = delivered(&mut bob, &closing);
    assert_eq!(reply.only("semel-status"), "session-unknown");
    alice.sent(&closing, heard(&reply));
    alice.pass_ms(1_000);
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 5);
    assert_eq!(parked(&mut alice)[0]["executed"], "unknown");
}

#[test]
fn an_effect_given_up_after_its_refusal_is_parked_with_that_refusal_as_its_reason() {
    let (mut alice, mut bob, credit) = sent();
    bob.handler.refuses.set(true);
    assert_eq!(delivered(&mut bob, &credit).status(), 403);
    alice.sent(&credit, Heard::Nothing("lost".to_owned()));
    let id = told(&mut alice)["lanes"][0]["id"].as_str().expect("an id").to_owned();
    mended(&mut alice, "m", &format!("{id}/park")).is_executed(200);
    alice.pass_ms(1_000);
    drained(&mut alice, &mut bob);
    let first = parked(&mut alice)[0].clone();
    assert_eq!((first["executed"].clone(), first["reason"].clone()), (json!("yes"), json!("answered 403: ")));
}
