//! When sessions are swept, whatever else is due at their key, and what a new object finds out about them.

use semel_support::idle::{first_of, named, sessions, sweep, world};
use semel_support::retained::RETENTION_S;
use semel_support::{START_MS, START_S, Trouble, World, acknowledge, get, numbered, post, take_over};

/// A second place of a session with a name.
fn second_of(name: &str, epoch: i64) -> semel_support::Call {
    post("/count").header("semel-session", format!("\"{name}\";epoch={epoch};seq=2"))
}

#[test]
fn a_request_sweeps_an_idle_session_of_a_key_without_records_and_the_clock_does_not_go_back_behind_that() {
    let mut world = World::with(|config| config.retention_s = RETENTION_S);
    world.send(&take_over("takes over").deadline_ms(START_MS)).is_taken_over(1, 0);
    world.send(&acknowledge(&format!("[{{\"id\":\"takes over\",\"until\":{START_MS}}}]")));
    world.pass_s(60);
    world.send(&get("/count"));
    assert_eq!(world.rows(), 0);
    world.send(&numbered(1, 1)).is_executed(200);
    world.pass_s(RETENTION_S);
    let swept_ms = world.wall_ms;
    world.send(&get("/count"));
    assert_eq!(world.places(), []);
    world.wall_ms = START_MS;
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), swept_ms.to_string());
}

#[test]
fn a_new_object_takes_its_clock_from_the_session_that_was_used_last() {
    let mut world = world();
    world.send(&named("b", "other")).is_taken_over(2, 0);
    world.pass_s(5);
    let used_ms = world.wall_ms;
    world.send(&numbered(1, 1)).is_executed(200);
    world.wall_ms = START_MS;
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), used_ms.to_string());
}

#[test]
fn a_new_object_removes_a_session_that_was_forgotten_beside_one_that_was_not() {
    let mut world = world();
    world.pass_s(10);
    world.send(&named("b", "later")).is_taken_over(2, 0);
    world.forget(START_S + 5).expect("storage");
    world.restart();
    sweep(&mut world);
    assert_eq!(sessions(&world), 1);
    world.send(&first_of("later", 2)).is_executed(200);
}

#[test]
fn a_session_becomes_a_stub_in_its_time_though_the_last_one_of_the_walk_is_due_later() {
    let mut world = world();
    world.send(&named("b", "later")).is_taken_over(2, 0);
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&first_of("later", 2)).is_executed(200);
    world.pass_s(500);
    world.send(&numbered(1, 2)).is_executed(200);
    world.pass_s(100);
    world.send(&second_of("later", 2)).is_executed(200);
    // A walk is due a retention after the first use, and finds nothing idle.
    world.pass_s(RETENTION_S - 600);
    sweep(&mut world);
    assert_eq!(world.places().len(), 4);
    world.pass_s(500);
    sweep(&mut world);
    assert_eq!(world.places().len(), 2);
    world.pass_s(100);
    sweep(&mut world);
    assert_eq!(world.places(), []);
}

#[test]
fn a_session_becomes_a_stub_in_its_time_though_another_is_used_while_a_sweep_is_under_way() {
    let mut world = world();
    for n in 1..=140 {
        world.send(&named(&format!("{n}"), &format!("{n}"))).is_taken_over(n + 1, 0);
    }
    world.send(&numbered(1, 1)).is_executed(200);
    world.pass_s(500);
    world.send(&numbered(1, 2)).is_executed(200);
    world.pass_s(RETENTION_S - 500);
    assert_eq!(world.sweep_page(), Ok(true), "the walk has not come to the last ones");
    world.send(&first_of("1", 2)).is_executed(200);
    sweep(&mut world);
    assert_eq!(world.places().len(), 3);
    world.pass_s(500);
    sweep(&mut world);
    assert_eq!(world.places().len(), 1);
}

#[test]
fn a_key_that_is_full_of_stubs_looks_at_its_sessions_once_in_ten_seconds() {
    let mut world = World::with(|config| (config.retention_s, config.sessions_max) = (RETENTION_S, 1)).in_session();
    world.send(&numbered(1, 1)).is_executed(200);
    let mut statements = |pass_ms: i64| {
        world.pass_ms(pass_ms);
        let before = world.database.statements();
        world.send(&get("/count"));
        world.database.statements() - before
    };
    statements(0);
    let resting = statements(0);
    assert_eq!(statements(9_999), resting);
    assert!(statements(1) > resting);
}

#[test]
fn an_acknowledged_last_place_loses_its_outcome_and_no_other_place_does() {
    let mut world = world();
    world.send(&named("b", "other")).is_taken_over(2, 0);
    let others = [first_of("other", 2), second_of("other", 2)].map(|call| (world.send(&call), call));
    for seq in [1, 2] {
        world.send(&numbered(1, seq)).is_executed(200);
    }
    world.send(&post("/count").place_acking(1, 9, 2)).is_gap(3);
    world.send(&numbered(1, 2)).is_problem(410, "acknowledged", "unknown", "never");
    for (first, call) in others {
        world.send(&call).replays(first.is_executed(200));
    }
}

#[test]
fn a_key_gives_the_largest_epoch_and_none_after_it() {
    let mut world = world();
    world.database.tamper("UPDATE semel_meta SET epoch = 999999999999998");
    world.restart();
    world.send(&named("b", "last")).is_taken_over(999_999_999_999_999, 0);
    world.send(&named("c", "none")).is_problem(400, "body-invalid", "no", "after-fix");
}

#[test]
fn only_an_emitting_key_may_take_over_a_session_whose_name_is_reserved() {
    let mut world = world();
    world.send(&named("b", "semel:s")).is_problem(403, "forbidden", "no", "after-fix");
    assert_eq!(sessions(&world), 1);
}

#[test]
fn the_outcome_of_a_place_may_have_a_body_of_one_mib_and_no_more() {
    let mut world = world();
    world.send(&post("/large/1048577").place(1, 1)).is_problem(500, "rolled-back", "no", "same-id");
    world.send(&post("/large/1048576").place(1, 1)).is_executed(200);
}

#[test]
fn a_start_of_an_object_that_died_is_a_crash_of_a_place_that_runs_now() {
    let mut world = world();
    let counted = |world: &World| world.database.number("SELECT 10 * crashes + is_started FROM semel_sessions");
    world.start(&numbered(1, 1));
    world.restart();
    // Nothing is counted ahead of this one, and it fails without a crash.
    world.handler.trouble.set(Trouble::Fails);
    world.send(&numbered(1, 1)).is_problem(500, "rolled-back", "no", "same-id");
    assert_eq!(counted(&world), 10);
    world.handler.trouble.set(Trouble::None);
    world.send(&numbered(1, 1)).is_executed(200);
    assert_eq!(counted(&world), 0);
}
