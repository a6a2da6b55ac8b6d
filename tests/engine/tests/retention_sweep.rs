//! The sweep: what a walk takes, when one begins, and what it costs.

use semel_core::server::storage::retention::SWEEP_ROWS;
use semel_support::batches::{count, run};
use semel_support::retained::{RETENTION_S, change, sweep, world};
use semel_support::*;
use serde_json::json;

#[test]
fn a_key_is_not_woken_for_a_tombstone_before_the_fence_can_replace_it() {
    let mut world = world();
    world.send(&change("a").first_sent_s(START_S + 100)).is_executed(200);
    world.send(&acknowledge("[\"a\"]"));
    world.wake().expect("storage");
    let due_ms = (START_S + 100 + RETENTION_S + 1) * 1000;
    assert_eq!(world.wakes_at_without_registry(), Some(due_ms));
    world.wall_ms = due_ms;
    world.wake().expect("storage");
    assert_eq!(world.rows(), 0);
}

#[test]
fn a_sweep_looks_at_a_bounded_page_with_each_request_and_reaches_all() {
    let mut world = world();
    let count = 2 * SWEEP_ROWS + 44;
    for n in 0..count {
        world.send(&change(&format!("id-{n:04}")).first_sent_s(world.wall_s()));
    }
    world.pass_s(RETENTION_S + 1);
    world.restart();
    let mut left = Vec::new();
    for _ in 0..4 {
        world.send(&get("/count"));
        left.push(world.rows());
    }
    assert_eq!(left, [SWEEP_ROWS + 44, 44, 0, 0]);
}

#[test]
fn a_sweep_goes_on_after_a_page_of_which_nothing_leaves() {
    let mut world = world();
    world.send(&change("0").first_sent_s(world.wall_s()));
    world.pass_s(500);
    let stay = SWEEP_ROWS + 1;
    for n in 0..stay {
        world.send(&change(&format!("a-{n:04}")).first_sent_s(world.wall_s()));
    }
    world.pass_s(RETENTION_S - 499);
    world.restart();
    world.send(&get("/count"));
    assert_eq!(world.rows(), stay + 1);
    world.send(&get("/count"));
    assert_eq!(world.rows(), stay);
}

#[test]
fn a_sweep_starts_over_no_sooner_than_ten_seconds_after_its_end() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    world.send(&change("b").first_sent_s(world.wall_s() + 1));
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.rows(), 1);
    world.pass_s(9);
    world.send(&get("/count"));
    assert_eq!(world.rows(), 1);
    world.pass_s(1);
    world.send(&get("/count"));
    assert_eq!(world.rows(), 0);
}

#[test]
fn after_a_walk_the_key_wakes_for_the_first_record_that_may_leave_wherever_it_lies() {
    let mut world = world();
    let mut sent_s = Vec::new();
    for id in ["m", "z", "a"] {
        sent_s.push(world.wall_s());
        world.send(&change(id).first_sent_s(world.wall_s())).is_executed(200);
        world.pass_s(100);
    }
    world.pass_s(RETENTION_S - 299);
    sweep(&mut world);
    assert_eq!(world.rows(), 2, "the first has left");
    assert_eq!(world.wakes_at_without_registry(), sent_s.get(1).map(|sent_s| (sent_s + RETENTION_S + 1) * 1000));
}

#[test]
fn a_record_that_comes_behind_a_sweep_under_way_is_due_in_its_own_time() {
    let mut world = world();
    for n in 0..=SWEEP_ROWS {
        world.send(&change(&format!("id-{n:04}")).first_sent_s(START_S));
    }
    world.pass_s(RETENTION_S + 1);
    assert_eq!(world.sweep_page(), Ok(true), "the walk goes on below");
    world.send(&change("z").first_sent_s(world.wall_s())).is_executed(200);
    while world.sweep_page().expect("storage") {}
    assert_eq!(world.rows(), 1);
    assert_eq!(world.wakes_at_without_registry(), Some((world.wall_s() + RETENTION_S + 1) * 1000));
}

/// How many statements a read takes besides its own.
fn statements_of_a_read(world: &mut World) -> u64 {
    let before = world.database.statements();
    world.send(&get("/count"));
    world.database.statements() - before
}

#[test]
fn while_nothing_is_due_requests_pay_no_statement_for_the_sweep() {
    let mut world = world();
    let pages = 300 / SWEEP_ROWS + 1;
    for n in 0..300 {
        world.send(&change(&format!("id-{n:04}")).first_sent_s(world.wall_s() + n % 100));
    }
    let quiet = statements_of_a_read(&mut world);
    world.pass_s(60);
    assert_eq!(statements_of_a_read(&mut world), quiet, "what came is not due for a retention");
    world.restart();
    statements_of_a_read(&mut world);
    assert_eq!(statements_of_a_read(&mut world), quiet, "a fresh object knows it by the totals");
    world.pass_s(RETENTION_S - 60);
    assert_eq!(statements_of_a_read(&mut world), quiet);
    world.pass_s(1);
    for _ in 0..pages {
        assert!(statements_of_a_read(&mut world) > quiet, "it walks");
    }
    assert_eq!(world.rows(), 297, "of each hundred one was due");
    world.pass_s(98);
    for _ in 0..pages {
        assert!(statements_of_a_read(&mut world) > quiet);
    }
    assert_eq!(world.rows(), 3, "the last is first sent later by a second");
    assert_eq!(statements_of_a_read(&mut world), quiet);
    world.pass_s(10);
    statements_of_a_read(&mut world);
    assert_eq!(world.rows(), 0);
}

#[test]
fn a_full_key_sweeps_as_it_refuses_and_takes_the_next_request_once_something_is_due() {
    let mut world = World::with(|config| {
        config.retention_s = RETENTION_S;
        config.records_max = 2
    });
    world.send(&change("a").first_sent_s(world.wall_s()));
    world.pass_s(RETENTION_S);
    world.send(&change("b").first_sent_s(world.wall_s()));
    world.pass_s(1);
    // The last sweep was a second ago; the refusal sweeps all the same.
    assert_eq!(world.send(&change("c").first_sent_s(world.wall_s())).only("semel-status"), "capacity");
    assert_eq!(world.send(&change("c").first_sent_s(world.wall_s())).only("semel-status"), "executed");
}

#[test]
fn a_sweep_ends_although_each_turn_brings_a_page_of_higher_ids() {
    let mut world = world();
    // One row is due soon, and with it a walk begins when nothing else is.
    world.send(&change("z").deadline_ms(START_MS));
    world.send(&acknowledge(&json!([{ "id": "z", "until": START_MS }]).to_string()));
    // As those are that begin with the time.
    for turn in 0..30 {
        let element = |n| {
            let mut element = count(&format!("{turn:02}-{n:02}"));
            element["firstSent"] = json!(world.wall_s());
            element
        };
        let elements = (0..SWEEP_ROWS).map(element).collect();
        run(&mut world, &elements);
        world.pass_s(RETENTION_S / 10);
    }
    assert_eq!(world.database.number("SELECT count(*) FROM semel_records WHERE id < '01'"), 0, "the first have left");
}

#[test]
fn a_record_that_a_sweep_makes_a_tombstone_counts_as_one_in_its_object_as_in_the_next() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    world.pass_s(RETENTION_S + 1);
    world.send(&get("/count"));
    let counted = world.count().expect("a count");
    assert_eq!((counted.records, counted.tombstones), (0, 1));
    world.restart();
    assert_eq!(world.count(), Ok(counted));
}
