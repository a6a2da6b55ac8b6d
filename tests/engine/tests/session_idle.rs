//! What is left of sessions that are idle: stubs, which still fence.

use semel_support::idle::{first_of, named, sessions, sweep, world};
use semel_support::retained::RETENTION_S;
use semel_support::{START_S, cancel_place, get, numbered, post, take_over, take_over_with};

#[test]
fn an_idle_session_becomes_a_stub_that_still_fences_and_goes_on() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&post("/count").place_acking(1, 2, 1)).is_executed(200);
    world.send(&numbered(1, 3)).is_executed(200);
    world.pass_s(RETENTION_S - 1);
    world.send(&get("/count"));
    world.send(&numbered(1, 3)).is_replayed(200);
    world.pass_s(1);
    world.send(&get("/count"));
    assert_eq!((world.places(), sessions(&world)), (vec![], 1));
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        world.send(&numbered(1, 1)).is_problem(410, "acknowledged", "unknown", "never");
        world.send(&numbered(1, 2)).is_problem(410, "outcome-expired", "unknown", "never");
        world.send(&numbered(1, 3)).is_problem(410, "outcome-expired", "unknown", "never");
        world.send(&numbered(1, 5)).is_gap(4);
        world.send(&cancel_place("a", 1, 3)).is_problem(410, "outcome-expired", "unknown", "never");
    }
    world.send(&take_over("b")).is_taken_over(2, 3);
    world.send(&numbered(1, 4)).is_fenced("no", 2);
    world.send(&post("/count").place_acking(2, 4, 3)).is_executed(200);
    world.pass_s(RETENTION_S);
    world.send(&get("/count"));
    world.send(&numbered(1, 2)).is_problem(410, "outcome-expired", "unknown", "never");
    world.send(&numbered(2, 4)).is_problem(410, "outcome-expired", "unknown", "never");
    world.send(&numbered(2, 5)).is_executed(200);
    assert_eq!(world.effects(), 5);
}

#[test]
fn the_stub_of_a_session_whose_last_place_was_acknowledged_answers_acknowledged() {
    let mut world = world();
    for seq in [1, 2] {
        world.send(&numbered(1, seq)).is_executed(200);
    }
    // A refused request acknowledges too, and nothing comes after it.
    world.send(&post("/count").place_acking(1, 3, 2).deadline_ms(0)).is_problem(
        408,
        "attempt-expired",
        "no",
        "same-id",
    );
    world.pass_s(RETENTION_S);
    world.send(&get("/count"));
    assert_eq!((world.places(), sessions(&world)), (vec![], 1));
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        for seq in [1, 2] {
            world.send(&numbered(1, seq)).is_problem(410, "acknowledged", "unknown", "never");
        }
    }
    world.send(&numbered(1, 3)).is_executed(200);
    assert_eq!(world.effects(), 3);
}

#[test]
fn the_stub_of_a_session_never_leaves_by_itself_and_sets_no_alarm() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    let report = world.report().expect("storage").expect("a report");
    world.reported(&report, 0).expect("storage");
    // The record of the take-over leaves first, or with it.
    assert_eq!(world.wakes_at(), Some((START_S + RETENTION_S) * 1000));
    world.pass_s(2 * RETENTION_S + 60);
    world.wake().expect("storage");
    world.pass_s(2 * RETENTION_S + 60);
    world.wake().expect("storage");
    while let Some(report) = world.report().expect("storage") {
        world.reported(&report, 0).expect("storage");
    }
    assert_eq!((world.rows(), world.places(), sessions(&world)), (0, vec![], 1));
    assert_eq!(world.wakes_at(), None);
    world.restart();
    world.send(&numbered(1, 1)).is_problem(410, "outcome-expired", "unknown", "never");
    world.send(&numbered(1, 2)).is_executed(200);
}

#[test]
fn many_sessions_become_stubs_a_page_at_a_time() {
    let mut world = world();
    let many = 300;
    for n in 1..=many {
        world.send(&take_over_with(&format!("{n}"), &format!("{{\"name\":\"{n}\"}}"))).is_taken_over(n + 1, 0);
        let place = format!("\"{n}\";epoch={};seq=1", n + 1);
        world.send(&post("/count").header("semel-session", place)).is_executed(200);
    }
    world.pass_s(RETENTION_S);
    let mut pages = 0;
    loop {
        let before = world.places().len();
        let goes_on = world.sweep_page().expect("storage");
        assert!(before - world.places().len() <= 8, "a page is bounded");
        pages += 1;
        if !goes_on {
            break;
        }
    }
    assert_eq!(world.places(), []);
    assert!((many / 8..many / 8 + 10).contains(&pages), "{pages}");
}

#[test]
fn a_session_in_use_does_not_become_a_stub_however_old_it_is() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    for seq in 2..8 {
        world.pass_s(RETENTION_S / 2);
        world.send(&numbered(1, seq)).is_executed(200);
    }
    world.send(&numbered(1, 1)).replays(&first);
    world.pass_s(RETENTION_S - 1);
    world.send(&take_over("b")).is_taken_over(2, 7);
    world.pass_s(RETENTION_S - 1);
    world.send(&numbered(1, 1)).replays(&first);
    world.restart();
    world.send(&get("/count"));
    assert_eq!(world.places().len(), 7);
}

#[test]
fn each_session_becomes_a_stub_a_retention_after_its_own_last_use() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&named("b", "later")).is_taken_over(2, 0);
    world.pass_s(500);
    world.send(&first_of("later", 2)).is_executed(200);
    world.pass_s(RETENTION_S - 500);
    sweep(&mut world);
    assert_eq!(world.places().len(), 1);
    world.pass_s(500);
    sweep(&mut world);
    assert_eq!((world.places(), sessions(&world)), (vec![], 2));
}

#[test]
fn session_stubs_do_not_count_towards_the_size_of_a_page_of_the_sweep() {
    let mut world = world();
    for n in 2..=20 {
        world.send(&named(&format!("{n}"), &format!("{n}"))).is_taken_over(n, 0);
        world.send(&first_of(&format!("{n}"), n)).is_executed(200);
    }
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.places(), []);
    world.send(&named("last", "last")).is_taken_over(21, 0);
    world.send(&first_of("last", 21)).is_executed(200);
    world.pass_s(RETENTION_S);
    assert_eq!(world.sweep_page(), Ok(false), "one page comes to the last session");
    assert_eq!(world.places(), []);
}

#[test]
fn a_session_used_after_a_sweep_under_way_has_passed_it_becomes_a_stub_in_its_time() {
    let mut world = world();
    for n in 1..=140 {
        world.send(&named(&format!("{n}"), &format!("{n}"))).is_taken_over(n + 1, 0);
    }
    world.send(&numbered(1, 1)).is_executed(200);
    world.pass_s(RETENTION_S);
    assert_eq!(world.sweep_page(), Ok(true), "the walk has not come to the last ones");
    world.send(&first_of("1", 2)).is_executed(200);
    sweep(&mut world);
    assert_eq!(world.places().len(), 1);
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.places(), []);
}
