//! How many sessions a key may have, what an administrator sees of that, and which sessions leave a full key for new ones.

use semel_support::admin::{ask, cancel_for, delete_key};
use semel_support::idle::{first_of, named, sessions, sweep, world};
use semel_support::retained::RETENTION_S;
use semel_support::{World, get, numbered, post, take_over_with};

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
