//! The cost of a session, and what is left of sessions that are idle, forgotten or deleted.

use semel_support::admin::{ask, cancel_for, delete_key};
use semel_support::{
    Call, START_S, World, cancel_place, get, numbered, post, take_over, take_over_after, take_over_with,
};

const RETENTION_S: i64 = 1000;

fn world() -> World {
    World::with(|config| config.retention_s = RETENTION_S).in_session()
}

fn sessions(world: &World) -> i64 {
    world.database.number("SELECT count(*) FROM semel_sessions")
}

#[test]
fn an_acknowledged_request_of_a_session_writes_one_row_in_its_life() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    for seq in 2..10 {
        let before = (world.database.rows_written(), world.database.statements());
        world.send(&post("/count").place_acking(1, seq, seq - 1)).is_executed(200);
        // One more is the handler's.
        assert_eq!(world.database.rows_written() - before.0, 2);
        // These include BEGIN, COMMIT and two of the handler.
        assert_eq!(world.database.statements() - before.1, 7);
    }
}

#[test]
fn a_replay_and_a_refusal_write_nothing() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    let rows = world.database.rows_written();
    for call in
        [numbered(1, 1), numbered(1, 9), numbered(9, 1), numbered(1, 1).body("other"), numbered(1, 2).deadline_ms(0)]
    {
        world.send(&call);
    }
    assert_eq!(world.database.rows_written(), rows);
}

/// What a session takes up, without what the handler keeps.
fn bytes_after(requests: i64) -> (Vec<Vec<String>>, i64) {
    let mut world = world();
    for seq in 1..=requests {
        world.send(&post("/status/200/done").place_acking(1, seq, seq - 1)).is_executed(200);
        if seq % 100 == 0 {
            world.database.tamper("DELETE FROM effects");
        }
    }
    let rows = world.database.query("SELECT length(name), length(epochs), closed_seq, crashes FROM semel_sessions");
    let rows = rows.iter().map(|row| row.iter().map(|value| format!("{value:?}")).collect()).collect();
    (rows, world.database.number("SELECT (SELECT page_count FROM pragma_page_count()) - (SELECT freelist_count FROM pragma_freelist_count())"))
}

/// `SEMEL_REQUESTS=100000` takes some minutes.
#[test]
fn ten_thousand_requests_in_one_session_leave_the_same_bytes_as_a_hundred() {
    let count = std::env::var("SEMEL_REQUESTS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    assert_eq!(bytes_after(100), bytes_after(count));
}

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
fn an_administrator_sees_the_number_of_sessions_and_can_cancel_a_place_of_another_principal() {
    let mut world = world();
    world.send(&take_over_with("b", "{\"name\":\"other\"}")).is_taken_over(2, 0);
    let shown = world.send(&ask("")).json();
    assert_eq!((&shown["sessions"], &shown["sessionsMax"]), (&2.into(), &100_000.into()));
    world.restart();
    assert_eq!(world.send(&ask("")).json()["sessions"], 2);
    let body = "{\"session\":{\"name\":\"s\",\"epoch\":1,\"seq\":1}}";
    assert_eq!(world.send(&cancel_for("c", body)).is_executed(200).json()["state"], "cancelled");
    world.send(&numbered(1, 1)).is_problem(410, "cancelled", "no", "never");
    world.send(&numbered(1, 2)).is_executed(200);
}

#[test]
fn the_clock_of_a_key_does_not_go_back_behind_what_a_session_has_committed() {
    for call in [numbered(1, 1), take_over("b")] {
        let mut world = world();
        world.pass_s(50);
        world.send(&call);
        world.database.tamper("DELETE FROM semel_records");
        world.pass_s(-50);
        world.restart();
        assert_eq!(world.send(&get("/count")).now_ms(), (START_S + 50) * 1000);
    }
}

fn named(own: &str, name: &str) -> Call {
    take_over_with(own, &format!("{{\"name\":\"{name}\"}}"))
}

#[test]
fn at_a_full_key_an_idle_session_that_was_never_used_leaves_and_its_requests_never_run() {
    let mut world = World::with(|config| {
        config.retention_s = RETENTION_S;
        config.sessions_max = 3;
    });
    let of = |name: &str, epoch: i64| post("/count").header("semel-session", format!("\"{name}\";epoch={epoch};seq=1"));
    for (epoch, name) in (1..).zip(["never", "used", "late"]) {
        world.send(&named(name, name)).is_taken_over(epoch, 0);
    }
    world.send(&of("used", 2)).is_executed(200);
    world.pass_s(RETENTION_S - 1);
    world.send(&named("late again", "late")).is_taken_over(4, 0);
    world.send(&named("a", "new")).is_problem(503, "capacity", "no", "same-id");
    assert_eq!(sessions(&world), 3, "it may yet be used");
    world.pass_s(11);
    for restarts in [true, false] {
        if restarts {
            world.restart();
        }
        world.send(&get("/count"));
        assert_eq!(sessions(&world), 2, "one leaves, and neither a stub nor one that was taken over since");
    }
    world.send(&named("a", "new")).is_taken_over(5, 0);
    world.send(&of("never", 1)).is_problem(410, "session-unknown", "unknown", "never");
    world.send(&of("used", 2)).is_problem(410, "outcome-expired", "unknown", "never");
    world.send(&of("late", 4)).is_executed(200);
    world.send(&named("b", "never")).is_problem(503, "capacity", "no", "same-id");
    // The name begins anew under a higher epoch.
    world.restart_with(|config| config.sessions_max = 4);
    world.send(&named("b", "never")).is_taken_over(6, 0);
    world.send(&of("never", 1)).is_fenced("unknown", 6);
    assert_eq!(world.effects(), 2);
}

#[test]
fn a_suspected_place_whose_session_is_swept_as_it_comes_is_session_unknown_and_does_not_run() {
    let mut world = World::with(|config| {
        config.retention_s = RETENTION_S;
        config.sessions_max = 1;
    });
    let of = |name: &str, epoch: i64, seq: i64| {
        post("/count").header("semel-session", format!("\"{name}\";epoch={epoch};seq={seq}"))
    };
    world.send(&named("a", "swept")).is_taken_over(1, 0);
    world.start(&of("swept", 1, 1));
    world.restart();
    world.pass_s(RETENTION_S + 1);
    for _ in 0..2 {
        world.send(&of("swept", 1, 1)).is_problem(410, "session-unknown", "unknown", "never");
    }
    assert_eq!((world.effects(), world.database.number("SELECT count(*) FROM semel_places")), (0, 0));
    // The next session has the number of its row, and nothing else of it.
    world.send(&named("b", "next")).is_taken_over(2, 0);
    world.send(&of("next", 2, 1)).is_executed(200);
}

#[test]
fn at_a_key_with_room_a_session_that_was_never_used_stays() {
    let mut world = world();
    world.pass_s(3 * RETENTION_S);
    world.wake().expect("storage");
    world.send(&numbered(1, 1)).is_executed(200);
}

/// Sweeps until a walk is done, however many pages it has.
fn sweep(world: &mut World) {
    while world.sweep_page().expect("storage") {}
}

fn first_of(name: &str, epoch: i64) -> Call {
    post("/count").header("semel-session", format!("\"{name}\";epoch={epoch};seq=1"))
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
fn a_walk_that_has_made_room_goes_on_to_its_end_so_the_next_begins_at_the_first_session() {
    let mut world = world();
    for n in 2..=22 {
        world.send(&named(&format!("{n}"), &format!("{n}"))).is_taken_over(n, 0);
    }
    world.pass_s(RETENTION_S);
    world.send(&numbered(1, 1)).is_executed(200);
    world.restart_with(|config| config.sessions_max = 15);
    assert_eq!(world.sweep_page(), Ok(true));
    assert_eq!(sessions(&world), 14, "a page removes eight, and then the key is not full any more");
    sweep(&mut world);
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!((world.places(), sessions(&world)), (vec![], 14));
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
fn at_a_full_key_an_idle_unused_session_makes_room_for_a_new_one_and_a_stub_does_not() {
    let full = || {
        World::with(|config| {
            config.retention_s = RETENTION_S;
            config.sessions_max = 1;
        })
    };
    let mut world = full();
    world.send(&named("a", "never")).is_taken_over(1, 0);
    world.pass_s(RETENTION_S);
    world.send(&get("/count"));
    world.send(&named("b", "new")).is_taken_over(2, 0);

    let mut world = full();
    world.send(&named("a", "used")).is_taken_over(1, 0);
    world.send(&first_of("used", 1)).is_executed(200);
    for _ in 0..3 {
        world.pass_s(RETENTION_S);
        world.send(&named("b", "new")).is_problem(503, "capacity", "no", "same-id");
    }
    world.send(&first_of("used", 1)).is_problem(410, "outcome-expired", "unknown", "never");
}

#[test]
fn the_sessions_of_a_deleted_key_take_no_room_from_new_ones() {
    let mut world = World::with(|config| config.sessions_max = 1);
    world.send(&named("a", "one")).is_taken_over(1, 0);
    world.send(&first_of("one", 1)).is_executed(200);
    world.send(&delete_key("d")).is_executed(200);
    world.send(&named("b", "two")).is_taken_over(2, 0);
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
