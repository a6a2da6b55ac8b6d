//! Effects of a key that is deleted, and of the key that is used under its name afterwards.

use semel_support::carrying::{account, delete_key, delivered, drained, heard, mended, told, transfer, two};
use semel_support::post;
use serde_json::json;

#[test]
fn effects_made_after_the_deletion_of_a_key_are_independent_of_those_sent_before() {
    let ((mut alice, mut bob), mut carol) = (two(), account("carol"));
    alice.send(&transfer("t1", &["bob"], 5));
    let take_over = alice.send_next().expect("a take-over");
    let reply = delivered(&mut bob, &take_over);
    alice.sent(&take_over, heard(&reply));
    // The credit is under way when the key is deleted.
    let late = alice.send_next().expect("a credit");
    alice.send(&delete_key("alice")).is_executed(200);
    assert!(alice.send_next().is_none());
    assert_eq!((alice.has_to_send(), alice.wakes_to_send_at()), (false, None), "nobody asks in vain for ever");
    alice.send(&post("/accounts/alice/deposit").id("again").body(json!({"amount": 100}).to_string()));
    alice.send(&transfer("t2", &["carol"], 3));
    let take_over = alice.send_next().expect("it is not known to hold a session");
    assert!(take_over.url.ends_with("/keys/accounts%2Fcarol/sessions"), "{}", take_over.url);
    let reply = delivered(&mut bob, &late);
    alice.sent(&late, heard(&reply));
    assert_eq!(alice.database.number("SELECT count(*) FROM semel_effects"), 1, "the answer was to another");
    let reply = delivered(&mut carol, &take_over);
    alice.sent(&take_over, heard(&reply));
    assert_eq!(drained(&mut alice, &mut carol), 1);
    assert_eq!((alice.balance(), bob.balance(), carol.balance()), (97, 5, 3));
    assert_eq!(told(&mut alice)["parked"], json!([]));
}

#[test]
fn an_answer_from_before_the_deletion_of_a_key_does_not_count_for_its_next_effect() {
    let ((mut alice, mut bob), mut carol) = (two(), account("carol"));
    alice.send(&transfer("t1", &["bob"], 5));
    let late = alice.send_next().expect("a take-over");
    alice.send(&delete_key("alice")).is_executed(200);
    alice.send(&post("/accounts/alice/deposit").id("again").body(json!({"amount": 100}).to_string()));
    alice.send(&transfer("t2", &["carol"], 3));
    let take_over = alice.send_next().expect("a take-over");
    assert_eq!(take_over.lane, late.lane, "the lane is another's by now");
    let reply = delivered(&mut bob, &late);
    alice.sent(&late, heard(&reply));
    assert_eq!(alice.send_next(), None, "of its own nothing was heard");
    let reply = delivered(&mut carol, &take_over);
    alice.sent(&take_over, heard(&reply));
    assert_eq!((drained(&mut alice, &mut carol), carol.balance()), (1, 3));
}

#[test]
fn a_deleted_key_drops_its_waiting_effects_and_sends_only_new_ones() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    alice.send(&delete_key("alice"));
    assert_eq!(drained(&mut alice, &mut bob), 0);
    alice.send(&post("/accounts/alice/deposit").id("again").body("{\"amount\":10}"));
    alice.send(&transfer("t2", &["bob"], 5));
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 5);
}

#[test]
fn a_deleted_key_drops_its_parked_effects_and_the_registry_is_told_that_none_is_left() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    bob.handler.refuses.set(true);
    drained(&mut alice, &mut bob);
    assert_eq!(alice.tells().parked, 1);
    let parked = told(&mut alice)["parked"][0]["id"].as_str().expect("an id").to_owned();
    alice.send(&delete_key("alice")).is_executed(200);
    assert_eq!(alice.tells().parked, 0);
    bob.handler.refuses.set(false);
    alice.send(&post("/accounts/alice/deposit").id("again").body("{\"amount\":10}"));
    assert_eq!(told(&mut alice)["count"], 0);
    for what in ["retry", "drop"] {
        let reply = mended(&mut alice, what, &format!("{parked}/{what}"));
        reply.is_problem(404, "not-seen", "unknown", "same-id");
    }
    assert_eq!((drained(&mut alice, &mut bob), bob.balance()), (0, 0));
}
