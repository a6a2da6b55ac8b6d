//! A session's requests in a batch: in order, in one commit, each judged as if it had come alone.

use semel_support::batches::{run, statuses};
use semel_support::call::control;
use semel_support::session::SESSION;
use semel_support::{World, numbered};
use serde_json::{Value, json};

fn place(epoch: i64, seq: i64, ack: Option<i64>) -> Value {
    let session = json!({ "name": SESSION, "epoch": epoch, "seq": seq, "ack": ack });
    json!({ "session": session, "method": "POST", "path": "/count" })
}

#[test]
fn places_in_a_batch_run_in_order_and_gaps_replays_and_acks_are_as_of_single_requests() {
    let mut world = World::new().in_session();
    let elements = json!([
        place(1, 2, None),
        place(1, 1, None),
        place(1, 2, None),
        place(1, 1, None),
        place(1, 3, Some(1)),
        place(1, 1, None),
        place(2, 4, None),
        place(1, 4, None),
    ]);
    let replies = run(&mut world, &elements);
    let expected =
        ["sequence-gap", "executed", "executed", "replayed", "executed", "acknowledged", "session-unknown", "executed"];
    assert_eq!(statuses(&replies), expected);
    replies[0].is_gap(1);
    replies[3].replays(&replies[1]);
    assert_eq!(
        [1, 2, 4, 7].map(|n: usize| replies[n].text().to_owned()),
        [1, 2, 3, 4].map(|n| format!("{{\"count\":{n}}}"))
    );
    assert_eq!(world.places(), [(2, 1, 1, true), (3, 1, 1, true), (4, 1, 1, true)]);
    world.restart();
    world.send(&numbered(1, 4)).replays(&replies[7]);
    assert_eq!(world.effects(), 4);
}

#[test]
fn a_batch_can_take_a_session_over_and_use_it_in_one_commit_and_the_earlier_epoch_is_fenced() {
    let mut world = World::new().in_session();
    let body = json!({ "name": SESSION }).to_string();
    let take_over = json!({ "id": "over", "method": "POST", "path": control("sessions"), "body": body });
    let elements = json!([place(1, 1, None), take_over, place(1, 2, None), place(2, 2, None)]);
    world.database.crash_at("COMMIT");
    assert!(world.batch(&elements).is_err(), "it has died");
    world.restart();
    assert_eq!((world.effects(), world.places()), (0, Vec::new()), "nothing of it");
    let replies = run(&mut world, &elements);
    assert_eq!(statuses(&replies), ["executed", "executed", "fenced", "executed"]);
    replies[1].is_taken_over(2, 1);
    replies[2].is_fenced("no", 2);
    // What is in memory of the session is what is stored.
    world.send(&numbered(2, 3)).is_executed(200);
    world.restart();
    world.send(&numbered(2, 4)).is_executed(200);
    assert_eq!(world.effects(), 4);
}

#[test]
fn a_failed_place_in_a_batch_is_not_taken_and_the_next_number_gets_a_sequence_gap() {
    let mut world = World::new().in_session();
    let mut failing = place(1, 2, None);
    failing["path"] = json!("/status/500");
    let replies = run(&mut world, &json!([place(1, 1, None), failing, place(1, 3, None), place(1, 2, None)]));
    assert_eq!(statuses(&replies), ["executed", "rolled-back", "sequence-gap", "executed"]);
    replies[2].is_gap(2);
    assert_eq!(world.effects(), 2);
}

#[test]
fn a_malformed_place_refuses_its_batch_or_is_key_invalid_by_itself() {
    let mut world = World::new().in_session();
    let shapes = [
        json!({ "epoch": 1, "seq": 1 }),
        json!({ "name": 1, "epoch": 1, "seq": 1 }),
        json!("x"),
        json!({ "name": SESSION, "epoch": "1", "seq": 1 }),
        json!({ "name": SESSION, "epoch": 1, "seq": 1.5 }),
        json!({ "name": SESSION, "epoch": 1 }),
        json!({ "name": SESSION, "epoch": 1, "seq": 1, "more": 1 }),
    ];
    for session in shapes {
        let refused = world.batch(&json!([{ "session": session, "method": "POST", "path": "/count" }]));
        assert!(refused.is_err(), "{session}");
    }
    let own = [
        json!({ "name": SESSION, "epoch": 1, "seq": 0 }),
        json!({ "name": SESSION, "epoch": 1, "seq": 1, "ack": 1 }),
        json!({ "name": "caf\u{e9}\";seq=2", "epoch": 1, "seq": 1 }),
    ];
    for session in own {
        let replies = run(&mut world, &json!([{ "session": session, "method": "POST", "path": "/count" }]));
        assert_eq!(statuses(&replies), ["key-invalid"], "{session}");
    }
    let both =
        json!({ "id": "a", "session": { "name": SESSION, "epoch": 1, "seq": 1 }, "method": "POST", "path": "/count" });
    assert_eq!(statuses(&run(&mut world, &json!([both]))), ["key-invalid"]);
    assert_eq!(world.calls(), 0);
}

#[test]
fn a_cancellation_beyond_64_places_runs_after_a_refused_attempt_that_acknowledges() {
    // As the SDK does it: the body of a cancellation is the same on every attempt, and has no room for an acknowledgement.
    let mut world = World::new().in_session();
    for seq in 1..=64 {
        world.send(&numbered(1, seq)).is_executed(200);
    }
    let closing = json!({ "session": { "name": SESSION, "epoch": 1, "seq": 65 } }).to_string();
    let cancellation = json!({ "id": "cancel-65", "method": "POST", "path": control("cancel"), "body": closing });
    assert_eq!(statuses(&run(&mut world, &json!([cancellation]))), ["capacity"]);
    let elements = json!([place(1, 1_000_065, Some(64)), cancellation]);
    assert_eq!(statuses(&run(&mut world, &elements)), ["sequence-gap", "executed"]);
    assert_eq!(statuses(&run(&mut world, &elements)), ["sequence-gap", "replayed"]);
    world.send(&numbered(1, 66)).is_executed(200);
    assert_eq!(world.effects(), 65);
}

/// A new place takes the row of one that leaves. If somebody has deleted that row, the new place would be stored nowhere and
/// would run again.
#[test]
fn a_new_place_is_stored_even_if_the_row_that_it_would_reuse_is_gone() {
    let mut world = World::new().in_session();
    run(&mut world, &(1..=4).map(|seq| place(1, seq, None)).collect());
    world.database.fill("DELETE FROM semel_places WHERE seq = 2");
    let replies = run(&mut world, &json!([place(1, 5, None), place(1, 6, None), place(1, 7, Some(3))]));
    assert_eq!(statuses(&replies), ["executed"; 3]);
    assert_eq!(world.places().iter().map(|place| place.0).collect::<Vec<_>>(), [4, 5, 6, 7]);
    world.restart();
    for (seq, reply) in (5..=7).zip(&replies) {
        world.send(&numbered(1, seq)).replays(reply);
    }
    assert_eq!(world.effects(), 7);
}
