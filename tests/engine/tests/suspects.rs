//! Requests that end the process, or may have ended it: what is counted of them, and what becomes of them.

use semel_support::retained::change;
use semel_support::{
    Call, SESSION, START_MS, START_S, Trouble, World, cancel, get, numbered, numbered_of, post, take_over,
};

fn failing(world: &World, trouble: Trouble) {
    world.handler.trouble.set(trouble);
}

/// A start that ends the process: its count is durable, and nothing else came of it.
fn ends(world: &mut World, call: &Call) {
    world.start(call);
    world.restart();
}

#[test]
fn an_id_that_ended_the_process_three_times_never_runs_again() {
    let mut world = World::new();
    for _ in 0..3 {
        ends(&mut world, &change("a"));
    }
    world.start(&change("a"));
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 0);
}

#[test]
fn an_id_that_ended_the_process_twice_may_still_run() {
    let mut world = World::new();
    for _ in 0..2 {
        ends(&mut world, &change("a"));
    }
    world.start(&change("a"));
    world.send(&change("a")).is_executed(200);
    assert_eq!((world.effects(), world.rows()), (1, 1));
}

#[test]
fn starts_that_ended_the_process_count_even_if_the_next_attempt_is_not_suspected() {
    let mut world = World::new();
    for _ in 0..3 {
        ends(&mut world, &change("a"));
    }
    // No start is counted before it.
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 0);

    for _ in 0..2 {
        ends(&mut world, &change("b"));
    }
    failing(&world, Trouble::Panics);
    world.send(&change("b")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 1);
}

#[test]
fn ends_of_the_process_and_panics_are_counted_together() {
    let mut world = World::new();
    ends(&mut world, &change("a"));
    failing(&world, Trouble::Panics);
    world.start(&change("a"));
    world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
    world.start(&change("a"));
    let last = world.send(&change("a"));
    last.is_problem(410, "poisoned", "no", "never");
    assert_eq!(last.log(), Some("the handler crashed on \"a\", 3 of 3 times"));
    assert_eq!(world.effects(), 0);
}

#[test]
fn a_counted_start_that_is_refused_or_fails_is_no_crash() {
    let late = change("a").deadline_ms(START_MS - 1);
    let unknown = post("/not-found").id("a");
    for (call, trouble, code) in [
        (change("a"), Trouble::Fails, "rolled-back"),
        (change("a"), Trouble::BadSql, "rolled-back"),
        (late, Trouble::None, "attempt-expired"),
        (unknown, Trouble::None, "not-found"),
    ] {
        let mut world = World::new();
        failing(&world, trouble);
        for _ in 0..5 {
            // It is started in time, and refused when it is about to run.
            world.start(&change("a"));
            assert_eq!(world.send(&call).only("semel-status"), code);
            world.restart();
        }
        assert_eq!(world.rows(), 0);
        failing(&world, Trouble::None);
        world.send(&change("a")).is_executed(200);
    }
}

#[test]
fn a_crash_is_counted_even_if_the_deadline_of_its_attempt_has_passed() {
    let mut world = World::new().in_session();
    let deadline_ms = world.wall_ms + 1_000;
    world.pass_ms(2_000);
    for call in [change("a"), numbered_of(SESSION, 1)] {
        let late = call.deadline_ms(deadline_ms);
        for _ in 0..2 {
            world.crashed(&late).is_problem(500, "rolled-back", "no", "same-id");
        }
        world.crashed(&late).is_problem(410, "poisoned", "no", "never");
    }
}

#[test]
fn a_refused_attempt_of_another_principal_does_not_take_back_a_counted_start() {
    let mut world = World::new();
    for _ in 0..3 {
        world.start(&change("a"));
        world.send(&change("a").by("mallory")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
        assert_eq!(world.rows(), 1);
        world.restart();
    }
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 0);
}

#[test]
fn an_id_started_without_first_sent_stays_a_retention_longer_than_a_later_first_sent_says() {
    let retention_s = 1_000;
    let world = || World::with(|config| config.retention_s = retention_s);
    let dated = change("a").first_sent_s(START_S);
    let cancels = cancel("own", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}"));
    let (mut executed, mut cancelled) = (world(), world());
    for world in [&mut executed, &mut cancelled] {
        world.start(&change("a"));
    }
    executed.send(&dated).is_executed(200);
    cancelled.send(&cancels).is_executed(200);
    for (world, code, executed) in [(&mut executed, "outcome-expired", "yes"), (&mut cancelled, "cancelled", "no")] {
        world.pass_s(retention_s + 2);
        world.wake().expect("storage works");
        world.send(&change("a")).is_problem(410, code, executed, "never");
    }
    assert_eq!((executed.effects(), cancelled.calls()), (1, 0));
}

#[test]
fn a_start_that_can_not_be_counted_is_unavailable_and_earlier_counts_stay() {
    let mut world = World::new().in_session();
    for call in [change("a"), numbered_of(SESSION, 1)] {
        for _ in 0..2 {
            ends(&mut world, &call);
        }
        world.database.fail_at("COMMIT", 1);
        world.start(&call).is_problem(503, "unavailable", "unknown", "same-id");
        world.restart();
        assert_eq!(world.start(&call).status(), 204);
        world.restart();
        world.send(&call).is_problem(410, "poisoned", "no", "never");
    }
    assert_eq!(world.calls(), 0);
}

#[test]
fn a_start_whose_commit_failed_in_a_living_object_is_no_crash() {
    for looks_first in [false, true] {
        let mut world = World::new();
        world.send(&change("other")).is_executed(200);
        for _ in 0..5 {
            world.start(&change("a"));
            world.database.fail_at("COMMIT", 1);
            world.send(&change("a")).is_problem(503, "unavailable", "unknown", "same-id");
            while looks_first && world.open().expect("storage") {}
        }
        world.send(&change("a")).is_executed(200);
    }
}

#[test]
fn a_start_whose_commit_failed_is_no_crash_even_if_another_request_starts_next() {
    let mut world = World::new().in_session();
    for next in [change("b0"), change("b1"), numbered_of(SESSION, 1), change("b3"), change("b4")] {
        world.start(&change("a"));
        world.database.fail_at("COMMIT", 1);
        world.send(&change("a")).is_problem(503, "unavailable", "unknown", "same-id");
        world.start(&next);
        world.send(&next).is_executed(200);
    }
    world.send(&change("a")).is_executed(200);
}

#[test]
fn a_start_whose_commit_failed_is_no_crash_even_after_a_take_over_of_its_session() {
    let mut world = World::new().in_session();
    for epoch in 1..=3 {
        let call = numbered(epoch, 1);
        world.start(&call);
        world.database.fail_at("COMMIT", 1);
        world.send(&call).is_problem(503, "unavailable", "unknown", "same-id");
        world.send(&take_over(&format!("t{epoch}"))).is_taken_over(epoch + 1, 0);
    }
    failing(&world, Trouble::Panics);
    world.send(&numbered(4, 1)).is_problem(500, "rolled-back", "no", "same-id");
}

#[test]
fn a_crash_before_a_start_whose_commit_failed_stays_counted_when_another_starts() {
    let mut world = World::new();
    for n in 0..2 {
        ends(&mut world, &change("a"));
        world.start(&change("a"));
        world.database.fail_at("COMMIT", 1);
        world.send(&change("a")).is_problem(503, "unavailable", "unknown", "same-id");
        world.start(&change(&format!("b{n}")));
        world.send(&change(&format!("b{n}"))).is_executed(200);
    }
    ends(&mut world, &change("a"));
    world.start(&change("a"));
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn a_late_attempt_that_is_refused_does_not_take_back_the_start_of_a_dead_object() {
    let mut world = World::new();
    for _ in 0..3 {
        ends(&mut world, &change("a"));
        // A copy of it that comes too late is treated as a suspect too.
        let late = change("a").deadline_ms(START_MS - 1);
        world.start(&late);
        world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    }
    world.start(&change("a"));
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn a_late_attempt_of_a_place_does_not_take_back_the_start_of_a_dead_object() {
    let mut world = World::new().in_session();
    for _ in 0..3 {
        ends(&mut world, &numbered_of(SESSION, 1));
        let late = numbered_of(SESSION, 1).deadline_ms(START_MS - 1);
        world.start(&late);
        world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    }
    world.start(&numbered_of(SESSION, 1));
    world.send(&numbered_of(SESSION, 1)).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.effects(), 0);
}

#[test]
fn crashes_before_a_rolled_back_start_stay_counted() {
    let mut world = World::new();
    world.crashed(&change("a"));
    world.crashed(&change("a"));
    failing(&world, Trouble::Fails);
    world.start(&change("a"));
    world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
    world.crashed(&change("a")).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn rolled_back_attempts_after_a_crash_are_not_counted_as_crashes() {
    let mut world = World::new();
    world.crashed(&change("a"));
    failing(&world, Trouble::Fails);
    for _ in 0..4 {
        world.start(&change("a"));
        world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
        world.restart();
    }
    failing(&world, Trouble::None);
    world.start(&change("a"));
    world.send(&change("a")).is_executed(200);
}

#[test]
fn a_start_changes_nothing_for_an_id_that_has_an_outcome() {
    let mut world = World::new();
    let first = world.send(&change("a"));
    world.start(&change("a"));
    world.send(&change("a")).replays(&first);
}

#[test]
fn has_outcome_is_true_of_settled_requests_only_and_false_if_the_storage_was_not_read() {
    let mut world = World::new().in_session();
    let numbered = |seq| numbered_of(SESSION, seq);
    let has = |world: &World, call: &Call| world.has_outcome(&call.headers());
    world.send(&change("executed")).is_executed(200);
    world.send(&numbered(1)).is_executed(200);
    world.send(&cancel("own", "cancelled")).is_executed(200);
    for _ in 0..3 {
        world.crashed(&change("poisoned"));
    }
    world.crashed(&change("crashed"));
    world.start(&change("started"));
    let ended = [change("executed"), change("cancelled"), change("poisoned"), numbered(1)];
    let others =
        [change("crashed"), change("started"), change("new"), numbered(2), numbered_of("another", 1), get("/count")];
    let (rows, calls) = (world.rows(), world.calls());
    assert!(ended.iter().all(|call| has(&world, call)) && !others.iter().any(|call| has(&world, call)));
    for call in &ended {
        world.send(call);
    }
    assert_eq!((world.rows(), world.calls()), (rows, calls), "none of them runs");

    world.database.fail_at("SELECT", 1);
    assert!(!has(&world, &change("executed")), "nobody knows");
    world.database.calm();
    world.restart();
    assert!(!has(&world, &change("executed")), "nobody has looked at the storage yet");
}

#[test]
fn another_principal_gets_fingerprint_mismatch_for_a_suspect() {
    let mut world = World::new();
    world.crashed(&change("a"));
    let mismatch = (422, "fingerprint-mismatch", "no", "after-fix");
    for call in [change("a").by("mallory"), cancel("own", "a").by("mallory")] {
        world.send(&call).is_problem(mismatch.0, mismatch.1, mismatch.2, mismatch.3);
    }
    world.send(&change("a")).is_executed(200);
}

#[test]
fn a_suspect_that_fills_its_key_may_run_and_a_full_key_takes_no_other_suspect() {
    let mut world = World::with(|config| config.records_max = 1);
    world.start(&change("a"));
    world.send(&change("a")).is_executed(200);
    world.start(&change("b"));
    world.send(&change("b")).is_problem(503, "capacity", "no", "same-id");
    assert_eq!(world.rows(), 1);
}

#[test]
fn a_tombstone_stays_for_a_crashed_attempt_without_first_sent_and_deadline() {
    let mut world = World::with(|config| config.retention_s = 1000);
    // The crashed attempt had neither deadline nor first-sent, and a copy of it may be on its way.
    world.crashed(&change("a"));
    world.send(&change("a").first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
    world.send(&get("/count").ack_until("a", START_MS));
    world.pass_s(900);
    world.restart();
    world.send(&get("/count"));
    world.send(&change("a")).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_tombstone_stays_for_a_crashed_attempt_without_a_deadline() {
    let mut world = World::with(|config| config.retention_s = 1000);
    world.crashed(&change("a").first_sent_s(START_S));
    world.send(&change("a").first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
    world.send(&get("/count").ack_until("a", START_MS));
    world.pass_s(900);
    world.restart();
    world.send(&get("/count"));
    // A copy of the crashed attempt arrives. Only the tombstone can refuse it.
    world.send(&change("a").first_sent_s(START_S)).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_start_is_no_crash_if_the_host_says_that_this_object_counted_it() {
    let mut world = World::new();
    for _ in 0..4 {
        world.start(&change("a"));
        // Another object of the isolate crashes the module.
        world.restart();
        world.started(&change("a"));
        failing(&world, Trouble::Fails);
        world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
    }
    failing(&world, Trouble::None);
    world.send(&change("a")).is_executed(200);
    // If the object has died, the host doesn't say so.
    for _ in 0..3 {
        ends(&mut world, &change("b"));
    }
    world.send(&change("b")).is_problem(410, "poisoned", "no", "never");
}
