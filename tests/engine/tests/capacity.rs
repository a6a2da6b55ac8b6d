//! *Bounded* in the protocol: what counts against the limits of a key, in memory and after a restart alike.

use semel_core::server::storage::record::Change;
use semel_support::{Call, START_MS, START_S, Trouble, World, acknowledge, cancel, get, post};

fn count(records: i64, tombstones: i64) -> Change {
    Change { records, tombstones, dispatched: 0 }
}

fn change(id: &str) -> Call {
    post("/count").id(id)
}

fn world(records_max: u64, tombstones_max: u64) -> World {
    World::with(|config| {
        config.retention_s = 1000;
        config.records_max = records_max;
        config.tombstones_max = tombstones_max;
    })
}

/// How many more records the key takes, found by trying. The ids of earlier tries are taken too.
fn room(world: &mut World, tried: &str) -> usize {
    let executed = |n: &usize| world.send(&change(&format!("{tried}-{n}"))).only("semel-status") == "executed";
    (0..10).take_while(executed).count()
}

/// Does something to a key with room for ten records, and asserts how much room is left, in memory and after a restart.
#[track_caller]
fn leaves(room_left: usize, act: impl Fn(&mut World)) {
    for restarts in [false, true] {
        let mut world = world(10, 1000);
        act(&mut world);
        if restarts {
            world.restart();
        }
        assert_eq!(room(&mut world, "room"), room_left, "restarts: {restarts}");
    }
}

#[test]
fn deletions_make_room_for_records_once_the_administrator_has_acknowledged_them() {
    let delete = |world: &mut World| {
        for n in 0..4 {
            world.send(&change(&format!("{n}")));
        }
        for n in 0..4 {
            let deleted = world.send(&semel_support::admin::delete_record(&format!("own {n}"), &format!("{n}")));
            assert_eq!(deleted.only("semel-status"), "executed");
        }
    };
    leaves(6, delete);
    leaves(10, |world| {
        delete(world);
        let tells = (0..4).fold(semel_support::admin::ask(""), |call, n| call.ack(&format!("own {n}")));
        world.send(&tells);
    });
}

#[test]
fn an_execution_takes_a_place_and_its_replays_and_refusals_none() {
    leaves(9, |world| {
        for _ in 0..5 {
            world.send(&change("a"));
            world.send(&change("a").body("other"));
            world.send(&change("late").deadline_ms(START_MS - 1));
            world.send(&change("old").first_sent_s(1));
            world.send(&post("/not-found").id("b"));
            world.send(&get("/count"));
        }
    });
}

#[test]
fn an_acknowledgement_frees_a_place_once() {
    leaves(10, |world| {
        world.send(&change("a"));
        world.send(&change("b"));
        for _ in 0..5 {
            world.send(&acknowledge("[\"a\",\"a\",\"b\",\"unknown\"]"));
            world.send(&get("/count").ack("a").ack("a"));
        }
    });
}

#[test]
fn a_cancellation_takes_a_place_for_itself_and_none_for_its_id() {
    leaves(9, |world| (0..5).for_each(|_| drop(world.send(&cancel("own", "a")))));
    leaves(9, |world| {
        world.crashed(&change("a"));
        world.send(&cancel("own", "a"));
    });
}

#[test]
fn a_suspect_takes_one_place_and_frees_it_if_it_is_rolled_back() {
    leaves(9, |world| (0..2).for_each(|_| drop(world.crashed(&change("a")))));
    leaves(9, |world| (0..4).for_each(|_| drop(world.crashed(&change("poisoned")))));
    leaves(9, |world| {
        world.start(&change("a"));
        world.send(&change("a")).is_executed(200);
    });
    leaves(10, |world| {
        world.handler.trouble.set(Trouble::Fails);
        world.start(&change("a"));
        world.send(&change("a"));
        world.handler.trouble.set(Trouble::None);
    });
}

#[test]
fn the_sweep_frees_the_places_of_what_it_deletes() {
    leaves(10, |world| {
        world.send(&change("fenced").first_sent_s(START_S));
        world.send(&change("expired"));
        world.crashed(&change("suspect"));
        world.pass_s(1001);
        world.send(&get("/count"));
    });
}

#[test]
fn a_commit_that_fails_takes_no_place() {
    for n in 0.. {
        let mut world = world(10, 1000);
        world.send(&change("a"));
        world.database.fail(n);
        let first = world.send(&change("b"));
        world.database.fail(u64::MAX);
        world.send(&change("b"));
        assert_eq!(room(&mut world, "room"), 8, "statement {n}");
        if first.only("semel-status") == "executed" {
            assert!(n >= 4, "only {n} statements");
            break;
        }
    }
}

#[test]
fn tombstones_count_against_a_limit_of_their_own_until_they_lapse() {
    for restarts in [false, true] {
        let mut world = world(10, 2);
        for id in ["a", "b"] {
            world.send(&change(id).first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
        }
        world.send(&acknowledge(&format!(
            "[{{\"id\":\"a\",\"until\":{START_MS}}},{{\"id\":\"b\",\"until\":{START_MS}}}]"
        )));
        if restarts {
            world.restart();
        }
        world.send(&change("c")).is_problem(503, "capacity", "no", "same-id");
        world.pass_ms(59_999);
        world.send(&change("c")).is_problem(503, "capacity", "no", "same-id");
        world.pass_ms(1);
        // This refusal sweeps.
        world.send(&change("c")).is_problem(503, "capacity", "no", "same-id");
        world.send(&change("c")).is_executed(200);
    }
}

/// A walk has just ended, so the next one is not due yet.
#[test]
fn a_key_that_is_full_of_tombstones_sweeps_with_every_request() {
    let mut world = world(10, 2);
    for (id, seconds) in [("a", 0), ("b", 5)] {
        let until_ms = START_MS + seconds * 1000;
        world.send(&change(id).first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
        world.send(&acknowledge(&format!("[{{\"id\":\"{id}\",\"until\":{until_ms}}}]")));
    }
    world.pass_s(60);
    world.send(&get("/count"));
    world.send(&cancel("own", "never").first_sent_s(START_S)).is_executed(200);
    assert_eq!(world.count().map(|count| count.tombstones), Ok(2));
    world.pass_s(5);
    world.send(&get("/count"));
    world.send(&change("c")).is_executed(200);
}

#[test]
fn the_count_of_a_key_is_that_of_its_rows_and_asking_for_it_writes_nothing() {
    let mut world = world(10, 1000);
    assert_eq!(world.count(), Ok(Change::default()));
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master"), 0, "an untouched key has no tables");
    let until_ms = START_MS + 1000;
    type Step = (fn(&mut World), i64, i64);
    let steps: [Step; 5] = [
        (|world| drop(world.send(&change("a").deadline_ms(START_MS))), 1, 0),
        (|world| drop(world.send(&change("b"))), 2, 0),
        (|world| drop(world.crashed(&change("suspect"))), 3, 0),
        (|world| drop(world.send(&cancel("own", "c"))), 4, 1),
        (|world| drop(world.send(&get("/count").ack("b"))), 3, 2),
    ];
    for (step, records, tombstones) in steps {
        step(&mut world);
        let written = world.database.rows_written();
        assert_eq!(world.count(), Ok(count(records, tombstones)));
        let statements = world.database.statements();
        assert_eq!(world.count(), Ok(count(records, tombstones)));
        assert_eq!(world.database.statements(), statements, "it is known");
        assert_eq!(world.database.rows_written(), written);
        world.restart();
        assert_eq!(world.count(), Ok(count(records, tombstones)), "after a restart");
    }
    world.send(&acknowledge(&format!("[{{\"id\":\"a\",\"until\":{until_ms}}}]")));
    assert_eq!(world.count(), Ok(count(2, 3)));
}

#[test]
fn a_count_is_an_error_if_the_storage_fails_and_is_made_again_the_next_time() {
    let mut world = world(10, 1000);
    world.send(&change("a"));
    world.restart();
    world.database.fail(0);
    assert!(world.count().is_err());
    world.database.fail(u64::MAX);
    assert_eq!(world.count(), Ok(count(1, 0)));
}

#[test]
fn starts_of_a_suspect_are_counted_in_a_full_key_too_until_it_is_poisoned() {
    // The suspect has its place and may run. A handler that never returns must be poisoned at a full key too.
    let mut world = world(1, 1000);
    for _ in 0..3 {
        world.start(&change("a"));
        world.restart();
    }
    world.start(&change("a"));
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.calls(), 0);
}

#[test]
fn a_crash_is_counted_even_if_the_deadline_passed_meanwhile() {
    let mut world = World::new();
    for n in 0..3 {
        let call = change("a").deadline_ms(world.wall_ms + 10);
        world.start(&call);
        world.pass_ms(11);
        let reply = world.crashed(&call);
        if n == 2 {
            reply.is_problem(410, "poisoned", "no", "never");
        }
    }
    world.send(&change("a")).is_problem(410, "poisoned", "no", "never");
}

#[test]
fn a_cancelled_suspect_without_first_sent_stays_cancelled_beyond_the_retention() {
    // An attempt without first-sent has come, so the fence alone can't refuse the id.
    let mut world = world(10, 1000);
    world.crashed(&change("a"));
    let call = cancel("own", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}"));
    world.send(&call).is_executed(200);
    world.pass_s(1001);
    world.restart();
    world.send(&get("/count"));
    world.send(&change("a")).is_problem(410, "cancelled", "no", "never");
    assert_eq!(world.effects(), 0);
}

#[test]
fn records_take_no_places_of_tombstones() {
    for restarts in [false, true] {
        let mut world = world(10, 2);
        for id in ["a", "b", "c"] {
            world.send(&change(id)).is_executed(200);
        }
        if restarts {
            world.restart();
        }
        world.send(&change("d")).is_executed(200);
    }
}
