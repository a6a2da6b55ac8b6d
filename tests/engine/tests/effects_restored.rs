//! Effects between two keys of which one is put back to an earlier instant, or the receiver is deleted.

use semel_support::carrying::{delete_key, delivered, drained, heard, mended, told, transfer, two};
use serde_json::json;

#[test]
fn a_restored_sender_numbers_new_effects_after_those_that_the_receiver_has() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    // The copy has one effect that waits. By the time the copy is used, that effect has arrived.
    alice.send(&transfer("t2", &["bob"], 1));
    let mut copy = alice.copy();
    drained(&mut alice, &mut bob);
    for n in 3..=5 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
    }
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 5);
    // t6 is the same request as one that is lost, and comes before the object has taken the session over.
    copy.send(&transfer("t6", &["bob"], 1));
    copy.send(&transfer("t7", &["bob"], 1));
    drained(&mut copy, &mut bob);
    assert_eq!(bob.balance(), 7, "t2 is known by its number, t6 and t7 are new");
    // The outcome of t2 was acknowledged after the copy, so only an administrator can tell what became of it.
    let parked = &told(&mut copy)["parked"];
    assert_eq!((parked.as_array().map(Vec::len), parked[0]["executed"].clone()), (Some(1), json!("unknown")));
    assert_eq!(parked[0]["reason"].as_str().map(|reason| reason.starts_with("410 acknowledged")), Some(true));
}

/// Nothing is known by then of what the other key has.
#[test]
fn an_effect_made_by_a_restored_sender_during_its_take_over_is_new_to_the_receiver() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    alice.send(&transfer("t2", &["bob"], 1));
    let mut copy = alice.copy();
    for n in 3..=5 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
    }
    drained(&mut alice, &mut bob);
    let take_over = copy.send_next().expect("a take-over");
    copy.send(&transfer("t6", &["bob"], 1));
    copy.send(&transfer("t7", &["bob"], 1));
    let reply = delivered(&mut bob, &take_over);
    copy.sent(&take_over, heard(&reply));
    drained(&mut copy, &mut bob);
    assert_eq!(bob.balance(), 7);
}

#[test]
fn a_parked_effect_that_a_restored_sender_retries_is_new_to_the_receiver() {
    let (mut alice, mut bob) = two();
    bob.handler.refuses.set(true);
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    bob.handler.refuses.set(false);
    // The copy is older than what the other key gets next.
    let mut copy = alice.copy();
    for n in 2..=3 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 10));
    }
    drained(&mut alice, &mut bob);
    let parked = told(&mut copy)["parked"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(mended(&mut copy, "m", &format!("{parked}/retry")).json()["state"], "waiting");
    drained(&mut copy, &mut bob);
    assert_eq!((bob.balance(), told(&mut copy)["parked"].clone()), (21, json!([])));
}

#[test]
fn a_restored_or_deleted_receiver_gets_the_effects_that_come_later() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    let mut copy = bob.copy();
    for n in 2..=4 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
    }
    drained(&mut alice, &mut bob);
    alice.send(&transfer("t5", &["bob"], 10));
    let (mut other, mut other_copy) = (alice.copy(), copy.copy());
    for _ in 0..4 {
        drained(&mut alice, &mut copy);
        alice.pass_ms(1_000);
    }
    assert_eq!((copy.balance(), told(&mut alice)["parked"].clone()), (11, json!([])));
    // An object that starts does not know whether it had sent t5 before the other key was put back.
    drained(&mut other, &mut other_copy);
    assert_eq!(told(&mut other)["parked"][0]["executed"], "unknown");
    other.send(&transfer("t6", &["bob"], 20));
    drained(&mut other, &mut other_copy);
    assert_eq!(other_copy.balance(), 21);
    copy.send(&delete_key("bob"));
    alice.send(&transfer("t7", &["bob"], 30));
    for _ in 0..4 {
        drained(&mut alice, &mut copy);
        alice.pass_ms(1_000);
    }
    assert_eq!(copy.balance(), 30, "surely it was not sent before");
}
