//! An operator is told at which keys effects were refused for good, and how many.

use semel_support::carrying::{delivered, drained, heard, mended, sent, told, transfer, two};
use semel_support::{Bank, World};
use serde_json::Value;

/// The number of parked effects that the registry is told as soon as possible, which is earlier than anything leaves.
#[track_caller]
fn told_soon(alice: &mut World<Bank>) -> i64 {
    let at_ms = alice.wakes_at().expect("it has something to tell");
    assert!(at_ms <= alice.wall_ms + 60_000, "it is woken for what leaves");
    alice.tells().parked
}

/// The id of the first parked effect.
fn first_of(effects: &Value) -> &str {
    effects["parked"][0]["id"].as_str().expect("an id")
}

#[test]
fn the_registry_is_told_soon_how_many_effects_are_parked_and_when_one_is_dropped() {
    let (mut alice, mut bob) = two();
    for n in 1..=2 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 5));
    }
    assert_eq!(told_soon(&mut alice), 0);
    assert_eq!(alice.report(), Ok(None), "nothing is left to tell");
    bob.handler.refuses.set(true);
    drained(&mut alice, &mut bob);
    assert_eq!(told_soon(&mut alice), 2);
    assert_eq!(alice.report(), Ok(None), "and again nothing");
    let effects = told(&mut alice);
    mended(&mut alice, "m", &format!("{}/drop", first_of(&effects))).is_executed(200);
    assert_eq!(told_soon(&mut alice), 1);
}

#[test]
fn an_alarm_reports_parked_effects_that_an_earlier_object_had_not_reported() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t", &["bob"], 5));
    alice.tells();
    bob.handler.refuses.set(true);
    drained(&mut alice, &mut bob);
    alice.restart();
    alice.wake().expect("storage");
    let report = alice.report().expect("storage").expect("a report");
    assert_eq!(report.parked, 1);
}

#[test]
fn a_parked_effect_is_reported_whichever_statement_fails_while_it_is_parked() {
    let (mut failures, mut parked) = (0_u64, 0_i64);
    loop {
        let (mut alice, mut bob, late) = sent();
        alice.tells();
        bob.handler.refuses.set(true);
        let reply = delivered(&mut bob, &late);
        alice.database.fail(failures);
        alice.sent(&late, heard(&reply));
        let has_failed = !alice.database.awaits_fault();
        alice.database.calm();
        let is_parked = alice.database.number("SELECT count(*) FROM semel_effects_parked");
        assert!(is_parked == 0 || told_soon(&mut alice) == 1, "the statement {failures} has failed");
        if !has_failed {
            break;
        }
        parked += is_parked;
        failures += 1;
    }
    assert!(
        0 < parked && parked.unsigned_abs() < failures,
        "some fail before it is parked, and some after: {parked} of {failures}"
    );
}

#[test]
fn a_key_that_never_sent_an_effect_reports_none_and_retry_drop_and_park_are_not_seen() {
    let (mut alice, _) = two();
    alice.send(&transfer("t", &[], 5));
    assert_eq!(told(&mut alice)["count"], 0);
    assert_eq!(alice.tells().parked, 0);
    for what in ["retry", "drop", "park"] {
        let reply = mended(&mut alice, what, &format!("{}/{what}", "0".repeat(32)));
        reply.is_problem(404, "not-seen", "unknown", "same-id");
    }
}
