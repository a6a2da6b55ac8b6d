//! Scenarios that others found, each with its name and source. Nothing of theirs is copied.
//!
//! - Kafka, `ProducerStateManager` and its tests (KIP-98, KIP-360): a gap, a duplicate, a bump, and a zombie that answers late
//! - TigerBeetle, sessions of its replicated state machine: a registration that was under way for long
//! - librdkafka#4953: a gap that bumps the epoch. lunora#245: a rejected request that wedges the next

use semel_support::{START_MS, START_S, Trouble, World, cancel_place, get, numbered, post, take_over, take_over_after};

fn world() -> World {
    World::new().in_session()
}

#[test]
fn kafka_a_number_out_of_order_is_a_sequence_gap_and_the_expected_number_stays() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    for seq in [3, 4, 100] {
        world.send(&numbered(1, seq)).is_gap(2);
    }
    // Those that were under way come one after the other, once the missing one is there.
    for seq in 2..=4 {
        world.send(&numbered(1, seq)).is_executed(200);
    }
    assert_eq!(world.effects(), 4);
}

#[test]
fn kafka_a_duplicate_of_any_unacknowledged_number_is_replayed_and_runs_nothing() {
    let mut world = world();
    let first: Vec<_> = (1..=5).map(|seq| world.send(&numbered(1, seq))).collect();
    // Kafka knows the last five, and older ones are an error. Here all are known that are not acknowledged.
    for seq in [5, 1, 3, 2, 4, 1] {
        world.send(&numbered(1, seq)).replays(&first[seq as usize - 1]);
    }
    assert_eq!(world.effects(), 5);
}

#[test]
fn kafka_a_session_that_does_not_begin_with_number_1_gets_a_sequence_gap() {
    let mut world = world();
    world.send(&numbered(1, 5)).is_gap(1);
    assert_eq!(world.calls(), 0);
}

#[test]
fn kafka_a_take_over_goes_on_with_the_numbers_and_the_earlier_epochs_places_are_replayed() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    world.send(&take_over_after("bump", 1)).is_taken_over(2, 1);
    world.send(&numbered(2, 3)).is_gap(2);
    world.send(&numbered(2, 2)).is_executed(200);
    // In Kafka a bump begins at zero again, so this would be taken for a new one.
    world.send(&numbered(2, 1)).is_problem(400, "key-invalid", "no", "after-fix");
    world.send(&numbered(1, 1)).replays(&first);
    assert_eq!(world.effects(), 2);
}

#[test]
fn kafka_a_fenced_zombie_runs_nothing_and_gets_the_replay_of_what_it_did() {
    let mut world = world();
    let mine = world.send(&numbered(1, 1));
    world.send(&take_over("bump")).is_taken_over(2, 1);
    let theirs = world.send(&numbered(2, 2));
    // What the zombie had sent before it froze, and what it sends after it thaws.
    world.send(&numbered(1, 1)).replays(&mine);
    world.send(&numbered(1, 2)).is_fenced("no", 2);
    world.send(&numbered(1, 3)).is_fenced("no", 2);
    // Nothing that it says of the others' places counts.
    world.send(&post("/count").place_acking(1, 4, 3)).is_fenced("no", 2);
    world.send(&cancel_place("by the zombie", 1, 3)).is_fenced("no", 2);
    world.send(&numbered(2, 2)).replays(&theirs);
    world.send(&numbered(2, 3)).is_executed(200);
    assert_eq!(world.effects(), 3);
}

#[test]
fn kafka_a_session_is_the_same_after_its_object_has_restarted() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    world.restart();
    world.send(&numbered(1, 3)).is_gap(2);
    world.send(&numbered(1, 1)).replays(&first);
    world.send(&take_over("bump")).is_taken_over(2, 1);
    world.restart();
    world.send(&numbered(1, 2)).is_fenced("no", 2);
    world.send(&numbered(2, 2)).is_executed(200);
}

#[test]
fn tigerbeetle_a_take_over_that_arrives_again_late_gives_no_epoch_and_fences_nobody() {
    let mut world = World::new();
    let register = take_over("register").first_sent_s(START_S).deadline_ms(START_MS + 60_000);
    let first = world.send(&register);
    first.is_taken_over(1, 0);
    world.send(&take_over("a newer one")).is_taken_over(2, 0);
    world.send(&numbered(2, 1)).is_executed(200);
    // A copy of it that the network held back.
    world.send(&register).replays(&first);
    world.restart();
    world.send(&register).replays(&first);
    // After it was acknowledged, and past everything that is kept.
    world.send(&post("/count").place_acking(2, 2, 1).ack_until("register", START_MS + 60_000)).is_executed(200);
    world.send(&register).is_problem(410, "acknowledged", "yes", "never");
    world.pass_s(3 * 86_400);
    world.send(&get("/count"));
    world.send(&register).is_problem(412, "outside-window", "unknown", "never");
    world.send(&numbered(2, 3)).is_executed(200);
}

#[test]
fn tigerbeetle_a_delayed_take_over_that_expects_an_older_epoch_fences_nobody() {
    let mut world = world();
    // It has been under way since before the first; neither a record nor a first-sent shows that it is old.
    world.send(&take_over_after("delayed", 0)).is_fenced("no", 1);
    world.send(&take_over_after("delayed", 0)).is_fenced("no", 1);
    world.send(&numbered(1, 1)).is_executed(200);
}

#[test]
fn librdkafka_4953_a_gap_never_bumps_an_epoch() {
    let mut world = world();
    for seq in [2, 50, 2] {
        world.send(&numbered(1, seq)).is_gap(1);
    }
    assert_eq!(world.database.number("SELECT epoch FROM semel_meta"), 1);
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&take_over_after("b", 1)).is_taken_over(2, 1);
}

#[test]
fn lunora_245_a_rejected_request_never_wedges_the_next() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    // The application rejects it for good: this is an outcome, which takes the place.
    world.send(&post("/status/422").place(1, 2)).is_executed(422);
    world.send(&numbered(1, 3)).is_executed(200);
    // The layer rejects it, or it is rolled back: the place stays free, for this request or for another.
    world.send(&post("/not-found").place(1, 4)).is_problem(404, "not-found", "no", "after-fix");
    world.send(&numbered(1, 4).deadline_ms(START_MS - 1)).is_problem(408, "attempt-expired", "no", "same-id");
    world.handler.trouble.set(Trouble::Fails);
    world.send(&numbered(1, 4)).is_problem(500, "rolled-back", "no", "same-id");
    world.handler.trouble.set(Trouble::None);
    world.send(&numbered(1, 4)).is_executed(200);
    // It will never be sent again: it is closed, and the next one goes on.
    world.send(&cancel_place("a", 1, 5)).is_executed(200);
    world.send(&numbered(1, 6)).is_executed(200);
    // It crashed too often: the key closes it.
    for _ in 0..3 {
        world.crashed(&numbered(1, 7));
    }
    world.send(&numbered(1, 8)).is_executed(200);
}
