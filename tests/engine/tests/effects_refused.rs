//! Effects that another key refuses, or never takes, and what an administrator does about them.

use semel_support::carrying::{account, delivered, drained, heard, mended, sent, told, transfer, two};
use semel_support::{Bank, World};
use serde_json::json;

#[test]
fn a_refused_effect_is_parked_those_behind_it_go_on_and_an_administrator_retries_or_drops_it() {
    let (mut alice, mut bob) = two();
    for n in 1..=2 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 5));
    }
    bob.handler.refuses.set(true);
    drained(&mut alice, &mut bob);
    bob.handler.refuses.set(false);
    alice.send(&transfer("t3", &["bob"], 7));
    drained(&mut alice, &mut bob);
    assert_eq!((alice.balance(), bob.balance()), (83, 7));
    let effects = told(&mut alice);
    assert_eq!((effects["count"].clone(), effects["lanes"].clone()), (json!(2), json!([])));
    let parked = &effects["parked"][0];
    assert_eq!(parked["reason"], "answered 403: {\"error\":\"refused\"}");
    assert_eq!((parked["executed"].clone(), parked["to"].clone()), (json!("yes"), json!("key accounts/bob")));
    let id = |at: usize| effects["parked"][at]["id"].as_str().expect("an id");
    assert_eq!(mended(&mut alice, "m1", &format!("{}/retry", id(0))).json()["state"], "waiting");
    assert_eq!(mended(&mut alice, "m1", &format!("{}/retry", id(0))).only("semel-status"), "replayed");
    assert_eq!(mended(&mut alice, "m2", &format!("{}/drop", id(1))).json()["state"], "dropped");
    mended(&mut alice, "m3", &format!("{}/drop", id(1))).is_problem(404, "not-seen", "unknown", "same-id");
    drained(&mut alice, &mut bob);
    assert_eq!((bob.balance(), told(&mut alice)["count"].clone()), (12, json!(0)));
}

#[test]
fn an_effect_answered_not_found_is_cancelled_at_its_target_before_the_next_leaves() {
    let (mut alice, mut bob, late) = sent();
    bob.handler.knows_no_credits.set(true);
    let reply = delivered(&mut bob, &late);
    assert_eq!(reply.only("semel-status"), "not-found");
    alice.sent(&late, heard(&reply));
    drained(&mut alice, &mut bob);
    bob.handler.knows_no_credits.set(false);
    assert_eq!(told(&mut alice)["parked"][0]["executed"], "no");
    assert_eq!(delivered(&mut bob, &late).only("semel-status"), "cancelled", "however late it comes");
    alice.send(&transfer("t2", &["bob"], 7));
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 7);
}

#[test]
fn an_effect_that_always_fails_holds_up_its_lane_until_an_administrator_parks_it() {
    let (mut alice, mut bob) = two();
    let mut carol = account("carol");
    alice.send(&transfer("t1", &["bob"], 5));
    alice.send(&transfer("t2", &["bob"], 7));
    bob.handler.fails.set(true);
    for _ in 0..5 {
        drained(&mut alice, &mut bob);
        alice.pass_ms(1_000);
    }
    bob.handler.fails.set(false);
    alice.send(&transfer("t3", &["carol"], 1));
    let first = told(&mut alice)["lanes"][0].clone();
    assert_eq!(first["waiting"], 2);
    let id = first["id"].as_str().expect("an id");
    assert_eq!(mended(&mut alice, "m", &format!("{id}/park")).json()["state"], "closing");
    while let Some(sending) = alice.send_next() {
        let to = if sending.url.contains("carol") { &mut carol } else { &mut bob };
        let reply = delivered(to, &sending);
        alice.sent(&sending, heard(&reply));
    }
    assert_eq!((bob.balance(), carol.balance()), (7, 1));
    let parked = &told(&mut alice)["parked"][0];
    assert_eq!(
        (parked["reason"].clone(), parked["executed"].clone()),
        (json!("an administrator gave it up"), json!("no"))
    );
}

#[test]
fn an_administrator_changes_exactly_the_effect_that_was_shown_or_gets_not_seen() {
    let (mut alice, mut bob) = two();
    let seen = |alice: &mut World<Bank>, list: &str| {
        let told = told(alice);
        told[list][0]["id"].as_str().expect("an id").to_owned()
    };
    // The administrator sees the first effect, which arrives before it is given up.
    alice.send(&transfer("t1", &["bob"], 1));
    alice.send(&transfer("t2", &["bob"], 2));
    let first = seen(&mut alice, "lanes");
    for _ in ["take-over", "t1"] {
        let sending = alice.send_next().expect("one that waits");
        let reply = delivered(&mut bob, &sending);
        alice.sent(&sending, heard(&reply));
    }
    mended(&mut alice, "m1", &format!("{first}/park")).is_problem(404, "not-seen", "unknown", "same-id");
    assert_eq!(told(&mut alice)["lanes"][0]["closing"], json!(null), "the second was not given up");
    // An effect that waits behind another one is not given up either.
    alice.send(&transfer("t3", &["bob"], 4));
    let second = alice.database.query("SELECT id FROM semel_effects ORDER BY seq DESC LIMIT 1");
    let second = second[0][0].clone().into_text().expect("an id");
    mended(&mut alice, "m2", &format!("{second}/park")).is_problem(404, "not-seen", "unknown", "same-id");
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 7);

    // Two administrators look at a parked effect. One drops it, and another effect takes its number.
    bob.handler.refuses.set(true);
    alice.send(&transfer("t4", &["bob"], 8));
    drained(&mut alice, &mut bob);
    let parked = seen(&mut alice, "parked");
    assert_eq!(mended(&mut alice, "m3", &format!("{parked}/drop")).json()["state"], "dropped");
    alice.send(&transfer("t5", &["bob"], 16));
    drained(&mut alice, &mut bob);
    mended(&mut alice, "m4", &format!("{parked}/drop")).is_problem(404, "not-seen", "unknown", "same-id");
    let next = seen(&mut alice, "parked");
    assert_ne!(next, parked);
    bob.handler.refuses.set(false);
    assert_eq!(mended(&mut alice, "m5", &format!("{next}/retry")).json()["state"], "waiting");
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 23, "the other one was not dropped");
}
