//! What a key was told to forget.

use semel_support::retained::{change, sweep, world};
use semel_support::*;

#[test]
fn a_new_object_sweeps_what_an_earlier_object_was_told_to_forget() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    world.pass_s(60);
    world.forget(START_S + 30).expect("it forgets");
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
}

#[test]
fn an_id_first_sent_before_a_forget_is_forgotten_and_does_not_run() {
    let mut world = World::new();
    let early = |id: &str| change(id).first_sent_s(START_S - 60);
    world.send(&early("ran"));
    world.pass_s(60);
    world.forget(START_S + 50).expect("it forgets");
    for id in ["ran", "lost on its way"] {
        world.restart();
        sweep(&mut world);
        world.send(&early(id)).is_problem(410, "forgotten", "unknown", "never");
    }
    assert_eq!((world.rows(), world.effects()), (0, 1));
    assert_eq!(world.send(&change("new").first_sent_s(world.wall_s())).only("semel-status"), "executed");
    // What is before the fence for its age alone, is so still.
    world.pass_s(200_000);
    world.send(&early("older")).is_problem(410, "forgotten", "unknown", "never");
    for at_s in [START_S + 50, START_S + 55] {
        world.send(&change("old").first_sent_s(at_s)).is_problem(412, "outside-window", "unknown", "never");
    }
}

#[test]
fn a_record_first_sent_after_a_forget_keeps_its_outcome_and_the_fence_never_moves_back() {
    let mut world = World::new();
    let later = change("later").first_sent_s(START_S + 30);
    world.pass_s(60);
    let first = world.send(&later);
    world.forget(START_S + 30).expect("it forgets");
    world.forget(START_S).expect("it forgets");
    sweep(&mut world);
    world.send(&later).replays(&first);
    assert_eq!(world.fence_s(), START_S + 30);
}

#[test]
fn a_forget_creates_no_tables_at_an_unused_key_and_a_failed_one_leaves_nothing() {
    let mut world = World::new();
    world.forget(START_S).expect("it forgets");
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master"), 0);
    world.send(&change("a").first_sent_s(START_S));
    for statement in 0..2 {
        world.database.crash_before(statement);
        world.forget(START_S + 1).expect_err("the storage failed");
        world.restart();
        assert_eq!(world.fence_s(), 0);
    }
    world.forget(START_S + 1).expect("it forgets");
    assert_eq!(world.fence_s(), START_S + 1);
}

/// Who takes a forget has another clock than the machine of a key, which may be behind.
#[test]
fn a_request_after_a_forget_that_is_ahead_of_the_keys_clock_keeps_its_outcome() {
    let mut world = World::new();
    world.send(&change("before").first_sent_s(START_S)).is_executed(200);
    world.pass_s(10);
    let before_s = world.wall_s() + 5;
    world.forget(before_s).expect("it forgets");
    let after = change("a");
    let first = world.send(&after);
    first.is_executed(200);
    world.send(&change("refused").first_sent_s(before_s - 1)).is_problem(410, "forgotten", "unknown", "never");
    for _ in 0..3 {
        sweep(&mut world);
        world.send(&after).replays(&first);
        world.pass_s(4);
        // It may be told again, also once its clock is there.
        world.forget(before_s).expect("it forgets");
    }
    world.send(&change("before").first_sent_s(START_S)).is_problem(410, "forgotten", "unknown", "never");
    let last = change("last");
    world.send(&last).is_executed(200);
    world.pass_s(5);
    world.forget(world.wall_s() - 1).expect("it forgets");
    for call in [after, last] {
        sweep(&mut world);
        world.send(&call).is_problem(410, "outcome-expired", "yes", "never");
    }
}

#[test]
fn a_new_object_sweeps_what_a_forget_ahead_of_its_clock_covers() {
    let mut world = World::new();
    world.send(&change("a").first_sent_s(START_S)).is_executed(200);
    world.forget(START_S + 5).expect("it forgets");
    world.restart();
    world.wake().expect("storage works");
    assert_eq!(world.rows(), 0);
}

/// The same, of what its key has executed before it was told, in the second in which its clock still is.
#[test]
fn a_record_with_a_first_sent_before_a_forget_ahead_of_the_clock_is_forgotten() {
    let mut world = World::new();
    world.pass_ms(200);
    let before = change("before").first_sent_s(START_S);
    world.send(&before).is_executed(200);
    world.pass_ms(300);
    world.forget(START_S + 1).expect("it forgets");
    let after = change("after").first_sent_s(START_S + 1);
    let first = world.send(&after);
    first.is_executed(200);
    let mut other = world.copy();
    world.wake().expect("storage works");
    // One that starts anew knows that there is something to do.
    sweep(&mut other);
    for mut world in [world, other] {
        world.send(&before).is_problem(410, "forgotten", "unknown", "never");
        world.send(&after).replays(&first);
    }
}
