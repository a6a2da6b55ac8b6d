//! What is left of sessions that are forgotten, or deleted with their key.

use semel_support::admin::{ask, delete_key};
use semel_support::idle::{first_of, named, sessions, sweep, world};
use semel_support::retained::RETENTION_S;
use semel_support::{START_S, numbered, post, take_over, take_over_after, take_over_with};

#[test]
fn a_session_last_used_before_a_forget_is_forgotten_and_one_used_since_is_not() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&take_over_with("b", "{\"name\":\"other\"}")).is_taken_over(2, 0);
    world.pass_s(100);
    let other = post("/count").header("semel-session", "\"other\";epoch=2;seq=1");
    world.send(&other).is_executed(200);
    world.forget(START_S + 50).expect("storage");
    world.send(&other).is_replayed(200);
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        world.send(&numbered(1, 1)).is_problem(410, "session-unknown", "unknown", "never");
        world.send(&numbered(1, 2)).is_problem(410, "session-unknown", "unknown", "never");
    }
    assert_eq!(sessions(&world), 1);
    // No epoch is given again.
    world.send(&take_over_after("c", 0)).is_taken_over(3, 0);
    world.send(&numbered(1, 1)).is_fenced("unknown", 3);
    world.send(&numbered(3, 1)).is_executed(200);
    assert_eq!(world.effects(), 3);
}

#[test]
fn a_forgotten_session_is_gone_before_the_sweep_has_come_to_it() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    world.pass_s(100);
    world.forget(START_S + 50).expect("storage");
    world.send(&take_over("b").first_sent_s(START_S + 100)).is_taken_over(2, 0);
    assert_eq!((world.places(), sessions(&world)), (vec![], 1));
    assert_eq!(world.send(&ask("")).json()["sessions"], 1);
    world.send(&numbered(1, 1)).is_fenced("unknown", 2);
}

#[test]
fn a_deleted_key_keeps_no_session_and_gives_no_epoch_again() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&take_over("b")).is_taken_over(2, 1);
    world.send(&delete_key("d")).is_executed(200);
    assert_eq!((world.places(), sessions(&world)), (vec![], 0));
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        world.send(&numbered(1, 1)).is_problem(410, "session-unknown", "unknown", "never");
        world.send(&numbered(2, 2)).is_problem(410, "session-unknown", "unknown", "never");
    }
    world.send(&take_over("c")).is_taken_over(3, 0);
    for epoch in [1, 2] {
        world.send(&numbered(epoch, 1)).is_fenced("unknown", 3);
    }
    world.send(&numbered(3, 1)).is_executed(200);
}

#[test]
fn a_forget_during_a_sweep_also_takes_sessions_that_the_sweep_has_passed() {
    let mut world = world();
    let many = 140;
    world.send(&numbered(1, 1)).is_executed(200);
    world.pass_s(100);
    for n in 1..=many {
        world.send(&named(&format!("{n}"), &format!("{n}"))).is_taken_over(n + 1, 0);
        world.send(&first_of(&format!("{n}"), n + 1)).is_executed(200);
    }
    world.pass_s(RETENTION_S - 100);
    world.sweep_page().expect("storage");
    assert_eq!(world.places().len() as i64, many, "one became a stub, and the walk has not come to the last ones");
    world.forget(START_S + 200).expect("storage");
    sweep(&mut world);
    assert_eq!((world.places(), sessions(&world)), (vec![], 0));
}

#[test]
fn a_session_used_at_the_very_instant_of_a_forget_is_not_forgotten() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    world.forget(START_S).expect("storage");
    sweep(&mut world);
    world.send(&numbered(1, 1)).replays(&first);
}

#[test]
fn a_new_object_removes_sessions_that_were_forgotten_before_it_started() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    world.pass_s(100);
    world.database.tamper(&format!("UPDATE semel_meta SET forgotten_s = {}", START_S + 50));
    world.restart();
    sweep(&mut world);
    assert_eq!((world.places(), sessions(&world)), (vec![], 0));
}

/// The instant of the last use outlives the session's places, and a take-over counts as use.
#[test]
fn a_stub_and_a_session_are_not_forgotten_by_a_forget_before_their_last_use_or_take_over() {
    let mut world = world();
    world.send(&named("b", "taken")).is_taken_over(2, 0);
    world.send(&first_of("taken", 2)).is_executed(200);
    world.pass_s(100);
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&named("c", "taken")).is_taken_over(3, 1);
    world.forget(START_S + 50).expect("storage");
    assert_eq!(world.send(&first_of("taken", 2)).only("semel-status"), "replayed");
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!((world.places(), sessions(&world)), (vec![], 2));
    world.forget(START_S + 60).expect("storage");
    sweep(&mut world);
    world.send(&numbered(1, 1)).is_problem(410, "outcome-expired", "unknown", "never");
    world.send(&first_of("taken", 2)).is_problem(410, "outcome-expired", "unknown", "never");
}

#[test]
fn a_place_that_is_taken_after_a_forget_that_is_ahead_of_the_clock_stays() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    world.pass_s(10);
    world.forget(START_S + 15).expect("storage");
    world.send(&numbered(1, 1)).is_problem(410, "session-unknown", "unknown", "never");
    world.send(&named("b", "taken")).is_taken_over(2, 0);
    let first = world.send(&first_of("taken", 2));
    first.is_executed(200);
    for _ in 0..2 {
        sweep(&mut world);
        world.send(&first_of("taken", 2)).replays(&first);
        world.pass_s(10);
        world.forget(START_S + 15).expect("storage");
    }
}

#[test]
fn a_forget_that_goes_less_far_than_the_last_takes_no_session_that_came_between_them() {
    let mut world = world();
    world.pass_s(10);
    world.forget(START_S + 25).expect("storage");
    world.send(&numbered(1, 1)).is_problem(410, "session-unknown", "unknown", "never");
    world.pass_s(1);
    world.send(&named("b", "taken")).is_taken_over(2, 0);
    let first = world.send(&first_of("taken", 2));
    first.is_executed(200);
    world.pass_s(3);
    world.forget(START_S + 22).expect("storage");
    sweep(&mut world);
    world.send(&first_of("taken", 2)).replays(&first);
}

#[test]
fn a_forget_up_to_the_fence_of_a_deletion_takes_a_session_that_came_after_the_deletion() {
    let mut world = world();
    // By its client's clock, the fence is ahead.
    world.send(&post("/count").id("ahead").first_sent_s(START_S + 100)).is_executed(200);
    world.send(&delete_key("d")).is_executed(200);
    world.pass_s(4);
    world.send(&named("b", "taken")).is_taken_over(2, 0);
    let first = first_of("taken", 2);
    world.send(&first).is_executed(200);
    world.pass_s(300);
    world.forget(START_S + 101).expect("storage");
    sweep(&mut world);
    world.send(&first).is_problem(410, "session-unknown", "unknown", "never");
}
