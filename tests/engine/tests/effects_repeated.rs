//! Effects to another key that are sent again: answers are lost or can not be stored, and objects start anew.

use semel_core::server::effects::Heard;
use semel_support::carrying::{delivered, drained, heard, sent, told, transfer, two};
use semel_support::{Bank, World};
use serde_json::json;

#[test]
fn an_effect_is_recognised_by_its_number_after_a_lost_answer_and_a_restart_of_its_sender() {
    let (mut alice, mut bob) = two();
    for n in 1..=2 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 5));
    }
    let take_over = alice.send_next().expect("a take-over");
    let reply = delivered(&mut bob, &take_over);
    alice.sent(&take_over, heard(&reply));
    let first = alice.send_next().expect("a credit");
    assert!(alice.send_next().is_none(), "one at a time");
    assert_eq!(delivered(&mut bob, &first).only("semel-status"), "executed");
    alice.restart();
    assert_eq!(drained(&mut alice, &mut bob), 3, "a take-over, the first once more under its epoch, the second");
    assert_eq!(bob.balance(), 10);
    assert_eq!(delivered(&mut bob, &first).only("semel-status"), "acknowledged");
    assert_eq!(bob.balance(), 10);
}

#[test]
fn an_effect_that_an_earlier_object_had_under_way_is_fenced() {
    let (mut alice, mut bob, late) = sent();
    alice.restart();
    assert_eq!(drained(&mut alice, &mut bob), 2);
    assert_eq!(delivered(&mut bob, &late).only("semel-status"), "fenced");
    assert_eq!(bob.balance(), 5);
}

#[test]
fn the_answer_to_a_take_over_of_an_earlier_object_does_not_count_for_the_next_object() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    let late = alice.send_next().expect("a take-over");
    alice.pass_ms(1);
    alice.restart();
    let again = alice.send_next().expect("a take-over");
    assert_eq!(again.lane, late.lane);
    let reply = delivered(&mut bob, &late);
    alice.sent(&late, heard(&reply));
    assert_eq!(alice.send_next(), None, "its own is under way");
    let reply = delivered(&mut bob, &again);
    alice.sent(&again, heard(&reply));
    assert_eq!((drained(&mut alice, &mut bob), bob.balance()), (1, 5));
}

#[test]
fn a_sending_without_an_answer_is_repeated_each_second_and_without_a_report_after_a_minute() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    let first = told(&mut alice)["lanes"][0].clone();
    assert_eq!((first["attempts"].clone(), first["next"].clone()), (json!(0), json!(null)), "nobody has looked yet");
    for attempts in 1..=3 {
        let sending = alice.send_next().expect("something");
        let under_way = told(&mut alice)["lanes"][0].clone();
        assert_eq!((under_way["attempts"].clone(), under_way["next"].clone()), (json!(attempts), json!(null)));
        alice.sent(&sending, Heard::Nothing("lost".to_owned()));
        assert!(alice.send_next().is_none());
        let waiting = told(&mut alice)["lanes"][0].clone();
        assert_eq!((waiting["reason"].clone(), waiting["attempts"].clone()), (json!("lost"), json!(attempts)));
        assert_eq!(waiting["next"], json!(alice.wall_ms + 1_000), "at a constant interval");
        alice.pass_ms(1_000);
    }
    // A request that is never reported on is given up after a minute.
    assert!(alice.send_next().is_some());
    alice.pass_ms(59_999);
    assert!(alice.send_next().is_none());
    alice.pass_ms(1);
    bob.wall_ms = alice.wall_ms;
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 5);
    // The clock of the machine goes back. Nobody has to wait for it to catch up.
    alice.send(&transfer("t2", &["bob"], 5));
    let sending = alice.send_next().expect("a credit");
    alice.sent(&sending, Heard::Nothing("lost".to_owned()));
    alice.pass_ms(-3_600_000);
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 10);
}

#[test]
fn an_effect_whose_answer_can_not_be_stored_is_sent_again_at_the_interval() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    alice.database.fail_at("DELETE FROM semel_effects ", 3);
    let (started_ms, mut credits) = (alice.wall_ms, Vec::new());
    for _ in 0..50 {
        while let Some(sending) = alice.send_next() {
            if sending.url.ends_with("/credit") {
                credits.push(alice.wall_ms - started_ms);
            }
            let reply = delivered(&mut bob, &sending);
            alice.sent(&sending, heard(&reply));
        }
        alice.pass_ms(100);
    }
    assert_eq!(credits, [0, 1_000, 2_000, 3_000], "and not as fast as the other side answers");
    assert_eq!(bob.balance(), 5);
}

#[test]
fn an_effect_whose_answer_comes_while_all_storage_fails_is_sent_again_at_the_interval() {
    let (mut alice, mut bob, credit) = sent();
    let reply = delivered(&mut bob, &credit);
    // All of the storage fails, and the first request that notices makes the object forget what it knew.
    alice.database.fail_at("", u32::MAX);
    assert_eq!(alice.send(&transfer("t2", &["bob"], 1)).status(), 503);
    alice.sent(&credit, heard(&reply));
    alice.database.calm();
    assert_eq!(alice.send_next(), None, "it is not its time yet");
    alice.pass_ms(1_000);
    assert_eq!(drained(&mut alice, &mut bob), 2, "a take-over, and what it had no answer to");
    assert_eq!(bob.balance(), 5);
}

#[test]
fn the_next_object_removes_lanes_on_which_nothing_waits() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    let lanes = |alice: &World<Bank>| alice.database.number("SELECT count(*) FROM semel_effect_lanes");
    assert_eq!(lanes(&alice), 1, "its session is held");
    alice.restart();
    assert_eq!(alice.send_next(), None);
    assert_eq!(lanes(&alice), 0);
    alice.send(&transfer("t2", &["bob"], 1));
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 2);
}
