//! What makes room at a full key, and what shows that it is full.

use semel_core::server::Sql;
use semel_core::server::storage::retention::SWEEP_ROWS;
use semel_support::{Call, START_MS, START_S, World, get, numbered, post};

fn change(id: &str) -> Call {
    post("/count").id(id)
}

fn world(records_max: u64, bytes_max: u64) -> World {
    World::with(|config| {
        config.retention_s = 1000;
        config.records_max = records_max;
        config.bytes_max = bytes_max;
    })
}

/// A walk has just ended, so the next one is not due yet.
#[test]
fn a_key_that_is_full_of_records_sweeps_with_every_request() {
    let mut world = world(2, 1 << 30);
    for seconds in [0, 5] {
        world.send(&change(&format!("{seconds}")).first_sent_s(START_S + seconds)).is_executed(200);
    }
    world.pass_s(1001);
    world.send(&get("/count"));
    world.send(&change("a")).is_executed(200);
    world.pass_s(5);
    world.send(&get("/count"));
    world.send(&change("b")).is_executed(200);
}

/// The same.
#[test]
fn a_key_full_by_bytes_sweeps_with_each_change_and_place_that_it_refuses() {
    for refused in [change("refused"), numbered(1, 1)] {
        let mut world = world(100, 1_600_000).in_session();
        world.send(&change("small").first_sent_s(START_S)).is_executed(200);
        for n in 0..3 {
            let large = post("/large/700000").id(&format!("large {n}")).first_sent_s(START_S + 5);
            world.send(&large).is_executed(200);
        }
        world.pass_s(1001);
        world.send(&get("/count"));
        world.pass_s(5);
        world.send(&refused).is_problem(503, "capacity", "no", "same-id");
        world.send(&refused).is_executed(200);
    }
}

#[test]
fn a_database_is_full_once_it_has_as_many_bytes_as_it_may() {
    let mut world = world(100, 1 << 30);
    world.send(&change("a")).is_executed(200);
    let bytes = world.database.database_bytes().expect("a size");
    world.restart_with(|config| config.bytes_max = bytes);
    world.send(&change("b")).is_problem(503, "capacity", "no", "same-id");
    world.restart_with(|config| config.bytes_max = bytes + 1);
    world.send(&change("b")).is_executed(200);
}

#[test]
fn how_long_the_database_size_is_not_asked_for_depends_on_what_is_free() {
    // Half of the limit is 9 MiB. Less than a request of 4 MiB is left of it, so the next one asks again.
    let mut world = world(100, 2 * (9 << 20));
    let filled = |world: &World, kilobytes: u32| {
        let rows = format!("WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {kilobytes})");
        world.database.tamper(&format!("{rows} INSERT INTO effects (id) SELECT hex(randomblob(500)) FROM n"));
    };
    world.send(&change("a")).is_executed(200);
    filled(&world, 6_000);
    world.restart();
    world.send(&change("b")).is_executed(200);
    filled(&world, 14_000);
    world.send(&change("c")).is_problem(503, "capacity", "no", "same-id");
}

/// Its start is counted in a transaction of its own, which sweeps too.
#[test]
fn a_request_whose_start_was_counted_by_an_object_that_died_sweeps_one_page() {
    let mut world = world(1000, 1 << 30);
    for n in 0..4 * SWEEP_ROWS {
        world.send(&change(&format!("a{n}")).first_sent_s(START_S)).is_executed(200);
    }
    world.pass_s(1001);
    world.start(&change("ended it"));
    world.restart();
    let rows = world.rows();
    world.send(&change("ended it")).is_executed(200);
    // The page begins with the row of this request.
    assert_eq!(rows - world.rows(), SWEEP_ROWS - 1);
}

#[test]
fn a_replay_with_a_later_deadline_takes_no_place() {
    let mut world = world(100, 1 << 30);
    for seconds in [0, 20, 40] {
        world.send(&change("a").deadline_ms(START_MS + seconds * 1000));
        assert_eq!(world.count().map(|count| count.records), Ok(1));
    }
}
