//! What a deleted key reports to the registry, and what it leaves behind. It may be used while its deletion is being reported.

use semel_core::server::registry::Shard;
use semel_support::admin::{ask, delete_key};
use semel_support::{Call, Database, START_MS, START_S, World, cancel, get, post};
use std::panic::{AssertUnwindSafe, catch_unwind};

const RETENTION_S: i64 = 1000;

fn world() -> World {
    World::with(|config| config.retention_s = RETENTION_S)
}

fn change(id: &str) -> Call {
    post("/count").id(id).first_sent_s(START_S)
}

#[test]
fn a_deleted_key_is_unlisted_and_is_listed_again_with_its_next_row() {
    let mut world = world();
    world.send(&change("first"));
    world.tell();
    world.send(&delete_key("own"));
    // Requests that are only answered or refused don't bring the key back.
    world.send(&delete_key("own"));
    world.send(&change("a"));
    world.restart();
    world.send(&get("/count"));
    assert_eq!(world.wakes_at(), Some(START_MS));
    let report = world.report().unwrap().unwrap();
    assert!(!report.is_listed);
    world.reported(&report, 0).unwrap();
    assert_eq!(world.report(), Ok(None));
    world.pass_s(10);
    world.send(&cancel("cancels", "b").first_sent_s(START_S + 10));
    assert_eq!(world.wakes_at(), Some(START_MS + 10_000));
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        assert!(world.report().unwrap().unwrap().is_listed);
    }
}

/// The registry may have listed the key by now.
#[test]
fn a_deletion_is_reported_even_if_the_first_report_of_the_key_was_never_answered() {
    for restarts in [false, true] {
        let mut world = world();
        world.send(&change("first"));
        assert!(world.report().unwrap().unwrap().is_listed);
        world.send(&delete_key("own"));
        if restarts {
            world.restart();
        }
        assert!(!world.report().unwrap().unwrap().is_listed);
    }
}

/// A key that was used while its deletion was being reported, and the call that used it. Its rule keeps everything for ever, as
/// long as the key's name is known.
fn used_while_its_deletion_is_told() -> (World, Call) {
    let mut world = World::ruled(RETENTION_S, r#""forever""#);
    world.send(&change("first"));
    world.tell();
    world.pass_s(10);
    let until_ms = world.wall_ms + 20_000;
    world.send(&delete_key("own").first_sent_s(START_S + 10).deadline_ms(until_ms));
    world.send(&ask("").ack_until("own", until_ms));
    world.wake().unwrap();
    let report = world.report().unwrap().unwrap();
    assert!(!report.is_listed);
    world.pass_s(2);
    let used = post("/count").id("b").first_sent_s(START_S + 12);
    assert_eq!(world.send(&used).only("semel-status"), "executed");
    world.reported(&report, 0).unwrap();
    (world, used)
}

#[test]
fn a_key_that_is_used_while_its_deletion_is_reported_is_listed_again() {
    for is_restarted in [false, true] {
        let (mut world, _) = used_while_its_deletion_is_told();
        if is_restarted {
            world.restart();
            world.send(&get("/count"));
        }
        assert_eq!(world.wakes_at(), Some(world.wall_ms), "at once");
        world.tell();
        assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 0);
        assert_eq!(world.report(), Ok(None));
        world.send(&delete_key("again"));
        assert!(world.report().unwrap().is_some_and(|report| !report.is_listed));
    }
}

#[test]
fn a_key_that_is_used_while_its_deletion_is_reported_keeps_its_rule_and_replays() {
    let (mut world, used) = used_while_its_deletion_is_told();
    while let Some(at_ms) = world.wakes_at() {
        world.restart();
        world.pass_s((at_ms - world.wall_ms).max(0) / 1000 + 1);
        world.wake().unwrap();
        if let Some(report) = world.report().unwrap() {
            world.reported(&report, 0).unwrap();
        }
    }
    world.pass_s(10 * RETENTION_S);
    world.restart();
    assert_eq!(world.send(&used).only("semel-status"), "replayed");
}

#[test]
fn a_deletion_whose_key_has_lost_its_name_is_swept_and_deletes_nothing_when_sent_again() {
    let mut world = World::ruled(RETENTION_S, &(100 * RETENTION_S).to_string());
    world.send(&change("first"));
    world.tell();
    world.pass_s(10);
    let deletion = delete_key("own").first_sent_s(START_S + 10);
    world.send(&deletion).is_executed(200);
    let report = world.report().unwrap().unwrap();
    world.reported(&report, 0).unwrap();
    for _ in 0..2 {
        world.restart();
        world.count().unwrap();
        if let Some(at_ms) = world.wakes_at() {
            world.wall_ms = at_ms;
            world.wake().unwrap();
        }
    }
    assert_eq!((world.rows(), world.wakes_at()), (0, None), "nothing stays, and nothing wakes it any more");
    world.send(&post("/count").id("b").first_sent_s(world.wall_ms / 1000)).is_executed(200);
    world.send(&deletion).is_problem(410, "forgotten", "unknown", "never");
    assert_eq!(world.effects_of("b"), 1);
}

/// The client was away for longer than the retention of other keys, and that of its key is for ever.
#[test]
fn a_deleted_key_whose_name_is_gone_takes_a_request_first_sent_since_that_the_retention_of_its_rule_covers() {
    for ahead_s in [0, 120] {
        let mut world = World::ruled(RETENTION_S, r#""forever""#);
        world.send(&change("first"));
        world.tell();
        let deletion = delete_key("own").first_sent_s(START_S + ahead_s);
        world.send(&deletion).is_executed(200);
        world.tell();
        world.pass_s(RETENTION_S + 200);
        world.restart();
        world.wake().unwrap();
        assert_eq!(world.rows(), 0, "the deletion's own record has left");
        world.send(&deletion).is_problem(410, "forgotten", "unknown", "never");
        world.send(&post("/count").id("since").first_sent_s(START_S + ahead_s + 1)).is_executed(200);
        world.send(&change("before")).is_problem(410, "forgotten", "unknown", "never");
    }
}

#[test]
fn a_key_that_is_deleted_before_its_registration_was_answered_is_unlisted_and_loses_its_name() {
    let mut world = world();
    world.send(&change("a"));
    world.wake().unwrap();
    assert!(world.report().unwrap().is_some_and(|report| report.is_listed));
    // The registry has listed the key, and its answer is lost.
    world.send(&delete_key("own"));
    for _ in 0..2 {
        world.restart();
        world.wake().unwrap();
        assert!(world.report().unwrap().is_some_and(|report| !report.is_listed), "until that is answered");
    }
    let report = world.report().unwrap().unwrap();
    world.reported(&report, 0).unwrap();
    assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 1);
    assert_eq!(world.report(), Ok(None));
    world.pass_s(10);
    let reply = world.send(&post("/count").id("b").first_sent_s(START_S + 10));
    assert_eq!(reply.only("semel-status"), "executed");
    assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 0, "used again, it has its name again");
}

#[test]
fn a_key_that_is_deleted_again_keeps_its_name_until_the_registry_has_its_report() {
    let mut world = world();
    world.send(&change("a"));
    world.tell();
    for own in ["own", "another"] {
        world.send(&delete_key(own)).is_executed(200);
        assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 0, "{own}");
        let report = world.report().unwrap().unwrap();
        assert!(!report.is_listed);
        world.reported(&report, 0).unwrap();
        assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 1, "{own}");
    }
}

#[test]
fn an_acknowledged_deletion_is_swept_soon_and_restores_neither_the_name_nor_the_listing() {
    for is_told_first in [false, true] {
        let mut world = world();
        world.send(&change("a"));
        world.tell();
        let until_ms = world.wall_ms + 20_000;
        world.send(&delete_key("own").deadline_ms(until_ms));
        if is_told_first {
            world.tell();
        }
        let seen = ask("").ack_until("own", until_ms);
        world.send(&seen).is_read(200);
        if !is_told_first {
            world.tell();
        }
        for _ in 0..2 {
            assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 1);
            assert_eq!(world.report(), Ok(None));
            world.restart();
        }
        world.pass_s(100);
        world.wake().unwrap();
        assert_eq!((world.rows(), world.report()), (0, Ok(None)));
    }
}

/// Nothing was committed while the clock was ahead, so the next object doesn't know that. Only the shard does.
#[test]
fn a_key_that_reported_by_a_clock_that_was_ahead_is_unlisted_once_it_has_caught_up() {
    let database = Database::new();
    let shard = Shard::new(&database, 0);
    let mut world = World::new();
    let tell = |world: &mut World| {
        world.wake().unwrap();
        let report = world.report().unwrap().expect("there is something to tell");
        let answer = shard.report(&report, world.wall_ms).unwrap();
        world.reported(&report, answer).unwrap();
    };
    world.send(&change("first"));
    tell(&mut world);
    world.send(&change("second"));
    world.pass_s(3600);
    tell(&mut world);
    world.pass_s(-3600);
    world.restart();
    world.send(&delete_key("own"));
    tell(&mut world);
    while shard.count() == Ok(1) {
        assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 0, "it is still to be told");
        let at_ms = world.wakes_at().unwrap();
        assert!((1..=60_000).contains(&(at_ms - world.wall_ms)), "soon, and not at once: {at_ms}");
        world.wall_ms = at_ms;
        world.restart();
        tell(&mut world);
    }
    assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 1);
    assert_eq!(world.report(), Ok(None));
}

#[test]
fn without_a_registry_the_name_of_a_deleted_key_goes_unless_the_key_is_used_again() {
    let mut world = world();
    world.send(&change("first"));
    world.wake_without_registry();
    assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 0);
    world.send(&delete_key("own"));
    for is_used in [true, false] {
        world.restart();
        world.send(&get("/count"));
        assert_eq!(world.wakes_at_without_registry(), Some(world.wall_ms));
        world.pass_s(10);
        if is_used {
            world.send(&post("/count").id("b").first_sent_s(world.wall_s())).is_executed(200);
        }
        let before = world.database.rows_written();
        world.wake_without_registry();
        assert_eq!(world.database.rows_written() - before, u64::from(!is_used));
        assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), i64::from(!is_used));
        assert!(world.wakes_at_without_registry().is_some_and(|at_ms| at_ms > world.wall_ms + 60_000), "no more");
        if is_used {
            world.send(&delete_key("again"));
        }
    }
}

#[test]
fn a_deleted_key_whose_name_cannot_be_removed_is_woken_for_that_a_minute_later() {
    let mut world = world();
    world.send(&change("first"));
    world.send(&delete_key("own"));
    world.database.fail_at("UPDATE semel_meta SET is_registered = 0", 1);
    assert!(catch_unwind(AssertUnwindSafe(|| world.wake_without_registry())).is_err(), "the storage fails");
    world.send(&get("/count"));
    assert_eq!(world.wakes_at_without_registry(), Some(world.wall_ms + 60_000));
    world.pass_s(60);
    world.wake_without_registry();
    assert_eq!(world.database.number("SELECT key IS NULL FROM semel_meta"), 1);
}

#[test]
fn a_deleted_key_makes_the_tables_of_its_handler_anew_whatever_brought_it_back() {
    let back: [fn(&mut World, &Call); 2] = [
        |world, _| drop(world.send(&cancel("cancels", "b").first_sent_s(START_S + 10))),
        // This counts a start, for which the handler's tables are not made. Then the object dies.
        |world, next| {
            world.start(next);
            world.restart();
        },
    ];
    for back in back {
        let mut world = world();
        world.send(&change("first"));
        world.send(&delete_key("own"));
        world.pass_s(10);
        let next = post("/count").id("c").first_sent_s(START_S + 10);
        back(&mut world, &next);
        world.send(&next).is_executed(200);
        assert_eq!(world.effects(), 1);
    }
}
