//! Requests of a session with crashes between any two statements, and requests that crash the handler or the process.

use semel_core::message::Method;
use semel_core::server::attempt::suspicion::Suspects;
use semel_support::admin::delete_key;
use semel_support::crashes;
use semel_support::{Call, START_MS, START_S, Trouble, World, cancel_place, numbered, post, take_over};

const RETENTION_S: i64 = 1000;

/// Crashes at every statement of `call`, at a used key that `prepare` has prepared.
fn crash_everywhere(prepare: impl Fn(&mut World), call: &Call, effects: i64) {
    let ready = || {
        let mut world = World::with(|config| config.retention_s = RETENTION_S);
        world.send(&post("/count").id("first")).is_executed(200);
        prepare(&mut world);
        world
    };
    crashes::everywhere(ready, call, effects);
}

fn in_session(world: &mut World) {
    world.send(&take_over("a")).is_taken_over(1, 0);
}

fn with_two(world: &mut World) {
    in_session(world);
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&numbered(1, 2)).is_executed(200);
}

#[test]
fn a_crash_at_any_statement_of_a_take_over_does_nothing_twice() {
    crash_everywhere(|_| {}, &take_over("a"), 1);
    crash_everywhere(with_two, &take_over("b"), 3);
}

#[test]
fn a_crash_at_any_statement_of_a_request_with_a_place_does_nothing_twice() {
    crash_everywhere(in_session, &numbered(1, 1), 2);
}

#[test]
fn a_crash_at_any_statement_of_a_place_that_acknowledges_does_nothing_twice() {
    crash_everywhere(with_two, &post("/count").place_acking(1, 3, 2).ack("first"), 4);
}

#[test]
fn a_crash_at_any_statement_of_a_refusal_that_acknowledges_does_nothing_twice() {
    crash_everywhere(with_two, &post("/count").place_acking(1, 9, 2), 3);
}

#[test]
fn a_crash_at_any_statement_of_the_cancellation_of_a_place_does_nothing_twice() {
    crash_everywhere(with_two, &cancel_place("c", 1, 3), 3);
}

#[test]
fn a_crash_at_any_statement_of_a_request_whose_sweep_makes_a_stub_does_nothing_twice() {
    let prepare = |world: &mut World| {
        with_two(world);
        world.pass_s(RETENTION_S);
    };
    crash_everywhere(prepare, &post("/count").id("b"), 4);
}

#[test]
fn a_crash_at_any_statement_of_the_deletion_of_a_key_leaves_no_session_and_repeats_no_epoch() {
    let prepare = |world: &mut World| with_two(world);
    let mut world = World::new();
    prepare(&mut world);
    let mut crashes = 0;
    loop {
        let mut world = World::new();
        prepare(&mut world);
        world.database.crash_before(crashes);
        world.send(&delete_key("d"));
        if !world.database.has_crashed() {
            break;
        }
        world.restart();
        world.send(&delete_key("d"));
        assert_eq!(world.database.number("SELECT count(*) FROM semel_sessions"), 0);
        assert_eq!(world.database.number("SELECT count(*) FROM semel_places"), 0);
        world.send(&take_over("b").first_sent_s(START_S + 1)).is_taken_over(2, 0);
        crashes += 1;
    }
    assert!(crashes >= 10, "{crashes}");
}

#[test]
fn a_place_on_which_the_handler_crashed_three_times_is_closed_and_the_session_goes_on() {
    let mut world = World::new().in_session();
    world.handler.trouble.set(Trouble::Panics);
    for _ in 0..2 {
        let reply = world.send(&numbered(1, 1));
        reply.is_problem(500, "rolled-back", "no", "same-id");
        assert!(reply.log().is_some_and(|log| log.contains("number 1 of the session \"s\"")), "{:?}", reply.log());
        world.send(&numbered(1, 2)).is_gap(1);
    }
    world.send(&numbered(1, 1)).is_problem(410, "poisoned", "no", "never");
    world.handler.trouble.set(Trouble::None);
    world.send(&numbered(1, 1)).is_problem(410, "poisoned", "no", "never");
    world.send(&numbered(1, 1).body("other")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    world.send(&numbered(1, 2)).is_executed(200);
    assert_eq!((world.calls(), world.effects()), (4, 1));
}

#[test]
fn crashes_of_one_place_are_not_counted_for_the_next() {
    let mut world = World::new().in_session();
    world.crashed(&numbered(1, 1));
    world.crashed(&numbered(1, 1));
    world.send(&numbered(1, 1)).is_executed(200);
    for _ in 0..2 {
        world.crashed(&numbered(1, 2)).is_problem(500, "rolled-back", "no", "same-id");
    }
    world.send(&numbered(1, 2)).is_executed(200);
}

#[test]
fn crashes_count_over_take_overs_and_no_holder_is_poisoned_without_a_crash_of_its_own() {
    let mut world = World::new().in_session();
    for epoch in 1..=2 {
        world.crashed(&numbered(epoch, 1)).is_problem(500, "rolled-back", "no", "same-id");
        world.send(&take_over(&format!("{epoch}"))).is_taken_over(epoch + 1, 0);
    }
    world.crashed(&numbered(3, 1)).is_problem(410, "poisoned", "no", "never");
    world.send(&numbered(3, 2)).is_executed(200);
    // The same for requests that end the process. However often that happened, the next holder's request runs.
    for epoch in 3..=8 {
        world.start(&numbered(epoch, 3));
        world.restart();
        world.send(&take_over(&format!("{epoch}"))).is_taken_over(epoch + 1, 2);
    }
    world.start(&numbered(9, 3));
    world.send(&numbered(9, 3)).is_executed(200);
    for _ in 0..2 {
        world.crashed(&numbered(9, 4)).is_problem(500, "rolled-back", "no", "same-id");
    }
    world.send(&numbered(9, 4)).is_executed(200);
}

#[test]
fn ends_of_the_process_count_over_take_overs_and_poison_the_place_after_the_third() {
    let mut world = World::new().in_session();
    for epoch in 1..=3 {
        world.start(&numbered(epoch, 1));
        world.restart();
        if epoch < 3 {
            world.send(&take_over(&format!("after {epoch}"))).is_taken_over(epoch + 1, 0);
        }
    }
    world.send(&numbered(3, 1)).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 0);
}

#[test]
fn a_place_that_ends_every_object_is_poisoned_after_the_third_however_late_it_comes() {
    for late_ms in [0, 30_000, 600_000] {
        let mut world = World::new().in_session();
        world.send(&numbered(1, 1)).is_executed(200);
        let deadly = numbered(1, 2);
        let mut ends = 0;
        loop {
            // A new object, kept awake by other requests that have nothing to do with it.
            let (suspects, started_ms) = (Suspects::default(), world.wall_ms);
            world.restart();
            world.send(&post("/count").id(&format!("{ends}"))).is_executed(200);
            world.pass_ms(late_ms);
            if suspects.has(&Method::Post, "/count", &deadly.headers(), started_ms, world.wall_ms) {
                world.start(&deadly);
            }
            if world.places().len() == 2 {
                break;
            }
            ends += 1;
            assert!(ends <= 3, "it ends one object after the other");
        }
        assert_eq!(ends, 3);
        world.send(&deadly).is_problem(410, "poisoned", "no", "never");
        world.send(&numbered(1, 3)).is_executed(200);
    }
}

#[test]
fn a_start_of_a_place_is_no_crash_if_the_host_says_that_this_object_counted_it() {
    let mut world = World::new().in_session();
    for _ in 0..4 {
        world.start(&numbered(1, 1));
        world.restart();
        world.started(&numbered(1, 1));
        world.handler.trouble.set(Trouble::Fails);
        world.send(&numbered(1, 1)).is_problem(500, "rolled-back", "no", "same-id");
    }
    world.handler.trouble.set(Trouble::None);
    world.send(&numbered(1, 1)).is_executed(200);
}

#[test]
fn a_place_that_ended_the_process_three_times_is_poisoned() {
    let mut world = World::new().in_session();
    for _ in 0..3 {
        world.start(&numbered(1, 1));
        world.restart();
    }
    world.start(&numbered(1, 1));
    world.send(&numbered(1, 1)).is_problem(410, "poisoned", "no", "never");
    world.send(&numbered(1, 2)).is_executed(200);
    for _ in 0..3 {
        world.start(&numbered(1, 3));
        world.restart();
    }
    // The client came back late, so nothing was counted before it ran.
    world.send(&numbered(1, 3)).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 1);
}

#[test]
fn a_counted_start_of_a_place_that_is_refused_or_fails_is_no_crash() {
    let late = numbered(1, 1).deadline_ms(START_MS - 1);
    for (call, trouble) in [(numbered(1, 1), Trouble::Fails), (late, Trouble::None)] {
        let mut world = World::new().in_session();
        for _ in 0..5 {
            world.handler.trouble.set(trouble);
            world.start(&numbered(1, 1));
            world.send(&call);
            world.restart();
        }
        world.handler.trouble.set(Trouble::None);
        world.send(&numbered(1, 1)).is_executed(200);
    }
}

#[test]
fn a_start_of_a_place_whose_commit_failed_in_a_living_object_is_no_crash() {
    let mut world = World::new().in_session();
    for _ in 0..5 {
        world.start(&numbered(1, 1));
        world.database.fail_at("COMMIT", 1);
        world.send(&numbered(1, 1)).is_problem(503, "unavailable", "unknown", "same-id");
    }
    world.send(&numbered(1, 1)).is_executed(200);
}

#[test]
fn a_refusal_of_another_number_does_not_take_back_the_start_of_a_place() {
    let mut world = World::new().in_session();
    for _ in 0..3 {
        world.start(&numbered(1, 1));
        world.send(&numbered(1, 2)).is_gap(1);
        world.restart();
    }
    world.send(&numbered(1, 1)).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn a_start_is_counted_only_for_the_next_place_of_the_session() {
    let mut world = World::new().in_session();
    world.send(&numbered(1, 1)).is_executed(200);
    let rows = world.database.rows_written();
    for call in [numbered(1, 1), numbered(1, 9), numbered(7, 1)] {
        world.start(&call);
    }
    assert_eq!(world.database.rows_written(), rows);
    world.start(&numbered(1, 2));
    assert_eq!(world.database.rows_written(), rows + 1);
}

#[test]
fn no_start_and_no_ack_is_written_ahead_of_a_numbered_request_that_will_not_run() {
    let mut world = World::new().in_session();
    for seq in 1..=64 {
        world.send(&numbered(1, seq)).is_executed(200);
    }
    let late = post("/count").place_acking(1, 65, 3).deadline_ms(START_MS - 1);
    let rows = world.database.rows_written();
    for call in [post("/count").place_acking(1, 2, 1), post("/count").place_acking(1, 99, 2), late, numbered(1, 65)] {
        assert_eq!(world.start(&call).only("semel-status"), "executed");
        world.started(&call);
        assert_eq!((world.database.rows_written(), world.places().len()), (rows, 64));
    }
}

#[test]
fn an_expired_attempt_clears_the_started_mark_of_its_session_and_a_second_writes_nothing() {
    let mut world = World::new().in_session();
    let late = numbered(1, 1).deadline_ms(START_MS - 1);
    let started = |world: &World| world.database.number("SELECT is_started FROM semel_sessions");
    world.start(&numbered(1, 1));
    assert_eq!(started(&world), 1);
    world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    assert_eq!(started(&world), 0);
    let rows = world.database.rows_written();
    world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    assert_eq!(world.database.rows_written(), rows);
}

#[test]
fn crashes_of_a_place_are_counted_even_past_its_deadline() {
    let mut world = World::new().in_session();
    let late = numbered(1, 1).deadline_ms(START_MS + 1);
    world.pass_s(5);
    for _ in 0..2 {
        world.crashed(&late).is_problem(500, "rolled-back", "no", "same-id");
    }
    world.crashed(&late).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.places(), [(1, 1, 2, false)]);
}
