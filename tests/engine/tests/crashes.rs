//! A crash between any two statements leaves everything of a request or nothing, and the repeated request goes on from there.

use semel_support::admin::{cancel_for, delete_key, delete_record};
use semel_support::crashes::{self, committed};
use semel_support::{Call, START_MS, START_S, World, acknowledge, cancel, get, post};

fn change(id: &str) -> Call {
    post("/count").id(id).first_sent_s(START_S)
}

/// Crashes at every statement of `call`, at a key that `prepare` has prepared.
fn crash_everywhere(prepare: impl Fn(&mut World), call: &Call, effects: i64) {
    let ready = || {
        let mut world = World::with(|config| config.retention_s = 1000);
        prepare(&mut world);
        world
    };
    crashes::everywhere(ready, call, effects);
}

#[test]
fn a_crash_in_the_first_request_of_a_key_leaves_all_or_nothing() {
    crash_everywhere(|_| {}, &change("a"), 1);
}

#[test]
fn a_crash_in_a_request_with_acknowledgements_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        world.send(&change("old")).is_executed(200);
        world.send(&change("older")).is_executed(200);
    };
    crash_everywhere(prepare, &change("a").ack("old").ack_until("older", START_MS), 3);
}

#[test]
fn a_crash_in_a_replay_with_an_acknowledgement_and_a_later_deadline_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        world.send(&change("a").deadline_ms(START_MS)).is_executed(200);
        world.send(&change("old")).is_executed(200);
    };
    crash_everywhere(prepare, &change("a").deadline_ms(START_MS + 50_000).ack("old"), 2);
}

#[test]
fn a_crash_in_a_refusal_with_an_acknowledgement_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        world.send(&change("a")).is_executed(200);
        world.send(&change("old")).is_executed(200);
    };
    crash_everywhere(prepare, &change("a").body("other").ack("old"), 2);
}

#[test]
fn a_crash_in_a_cancellation_leaves_all_or_nothing() {
    let prepare = |world: &mut World| drop(world.send(&change("old")));
    crash_everywhere(prepare, &cancel("own", "a").ack("old"), 1);
}

#[test]
fn a_crash_in_a_request_that_only_acknowledges_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        world.send(&change("a")).is_executed(200);
        world.send(&change("b")).is_executed(200);
    };
    crash_everywhere(prepare, &acknowledge("[\"a\",\"b\"]"), 2);
}

/// An acknowledgement whose tombstone is packed, because the latest deadline is known.
fn until(id: &str) -> String {
    format!("{{\"id\":\"{id}\",\"until\":{START_MS}}}")
}

#[test]
fn a_crash_in_a_request_whose_record_carries_tombstones_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        world.send(&change("a").deadline_ms(START_MS)).is_executed(200);
        world.send(&change("b").deadline_ms(START_MS).ack_until("a", START_MS)).is_executed(200);
    };
    crash_everywhere(prepare, &change("c").deadline_ms(START_MS).ack_until("b", START_MS), 3);
}

#[test]
fn a_crash_in_acknowledgements_packed_into_a_chunk_or_in_its_sweep_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        for id in ["a", "b", "c"] {
            world.send(&change(id).deadline_ms(START_MS)).is_executed(200);
        }
    };
    let all = acknowledge(&format!("[{},{},{}]", until("a"), until("b"), until("c")));
    crash_everywhere(prepare, &all, 3);
    let lapsed = |world: &mut World| {
        prepare(world);
        world.send(&all);
        world.pass_s(61);
        world.restart();
    };
    crash_everywhere(lapsed, &get("/count"), 3);
}

#[test]
fn a_crash_in_a_late_attempt_that_extends_a_packed_tombstone_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        world.send(&change("a").deadline_ms(START_MS)).is_executed(200);
        world.send(&change("b").ack_until("a", START_MS)).is_executed(200);
    };
    crash_everywhere(prepare, &change("a").deadline_ms(START_MS + 50_000), 2);
}

#[test]
fn a_crash_in_the_sweep_of_a_record_that_carries_a_tombstone_leaves_all_or_nothing() {
    let ready = |world: &mut World| {
        world.restart_with(|config| config.retention_s = 10);
        world.send(&change("a").deadline_ms(START_MS)).is_executed(200);
        world.send(&change("b").ack_until("a", START_MS)).is_executed(200);
        world.pass_s(11);
        world.restart();
    };
    crash_everywhere(ready, &get("/count"), 2);
}

#[test]
fn a_crash_in_a_sweep_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        world.send(&change("fenced")).is_executed(200);
        world.send(&post("/count").id("tombstone")).is_executed(200);
        world.pass_s(1001);
        world.restart();
    };
    crash_everywhere(prepare, &get("/count"), 2);
}

#[test]
fn a_crash_in_the_deletion_of_a_record_leaves_all_or_nothing() {
    let prepare = |world: &mut World| {
        world.send(&change("old")).is_executed(200);
        world.send(&change("a")).is_executed(200);
    };
    crash_everywhere(prepare, &delete_record("own", "a").first_sent_s(START_S), 2);
}

#[test]
fn a_crash_in_the_deletion_of_a_key_leaves_all_or_nothing() {
    // The key also has tombstones, a cancelled id and a suspect, and the request brings acknowledgements that find nothing any
    // more.
    let prepare = |world: &mut World| {
        world.send(&change("old")).is_executed(200);
        world.send(&change("a").ack("old")).is_executed(200);
        world.send(&cancel("cancellation", "cancelled")).is_executed(200);
        world.crashed(&change("suspect"));
    };
    crash_everywhere(prepare, &delete_key("own").first_sent_s(START_S).ack("a"), 0);
}

#[test]
fn a_crash_in_an_administrators_cancellation_leaves_all_or_nothing() {
    let prepare = |world: &mut World| drop(world.crashed(&change("a")));
    crash_everywhere(prepare, &cancel_for("own", "{\"id\":\"a\"}"), 0);
}

#[test]
fn a_crash_in_a_forget_leaves_all_or_nothing() {
    let ready = || {
        let mut world = World::with(|config| config.retention_s = 1000);
        world.send(&change("a")).is_executed(200);
        world.pass_s(10);
        world
    };
    let mut whole = ready();
    let before = committed(&whole);
    whole.forget(START_S + 5).expect("storage");
    let after = committed(&whole);
    for n in 0.. {
        let mut world = ready();
        world.database.crash_before(n);
        let forgotten = world.forget(START_S + 5);
        if !world.database.has_crashed() {
            assert!(n >= 4, "only {n} places to crash");
            break;
        }
        world.restart();
        let found = committed(&world);
        assert!(found == before || found == after, "crash {n} left a part: {found:?}");
        assert!(forgotten.is_err() || found == after, "crash {n}: it was said to be done");
    }
}

#[test]
fn a_crash_in_a_request_that_is_not_found_leaves_all_or_nothing_of_its_acknowledgement() {
    // The failure is rolled back; what is written is the acknowledgement.
    let prepare = |world: &mut World| drop(world.send(&change("old")));
    crash_everywhere(prepare, &post("/not-found").id("a").ack("old"), 1);
}

#[test]
fn a_crash_in_counting_the_last_crash_of_an_id_leaves_nothing_and_it_is_poisoned_next() {
    let ready = || {
        let mut world = World::new();
        world.crashed(&change("a"));
        world.crashed(&change("a"));
        world
    };
    let before = committed(&ready());
    for n in 0.. {
        let mut world = ready();
        world.database.crash_before(n);
        world.crashed(&change("a"));
        if !world.database.has_crashed() {
            assert!(n >= 4);
            break;
        }
        world.restart();
        assert_eq!(committed(&world), before);
        world.crashed(&change("a")).is_problem(410, "poisoned", "no", "never");
    }
}

#[test]
fn a_statement_that_fails_leaves_nothing_of_its_request_and_the_next_attempt_succeeds() {
    for n in 0..8 {
        let mut world = World::new();
        world.send(&change("old")).is_executed(200);
        world.database.fail(n);
        let first = world.send(&change("a").ack("old"));
        let again = world.send(&change("a").ack("old"));
        assert_eq!(again.status(), 200, "statement {n}: {}", first.only("semel-status"));
        assert_eq!(world.effects(), 2, "statement {n}");
        assert_eq!(world.rows(), 2);
    }
}
