//! The cost of a request. Written rows are billed, and a commit is the slowest thing that an object does.

use semel_support::batches::{count, run};
use semel_support::{Call, START_MS, World, acknowledge, get, look_up, post};
use serde_json::{Value, json};

fn change(id: &str) -> Call {
    post("/count").id(id)
}

/// A key in normal use: its tables exist, its sweep is done, and its object knows what there is.
fn world() -> World {
    let mut world = World::new();
    world.send(&change("first"));
    world.send(&get("/count"));
    // The first request after the object knows its tables gives texts their numbers. The next one reads the last id.
    world.send(&change("second"));
    world.send(&change("third"));
    world
}

/// How many rows `call` writes, including that of the handler's effect, and how many statements it takes.
fn cost(world: &mut World, call: &Call) -> (u64, u64) {
    let before = (world.database.rows_written(), world.database.statements());
    world.send(call);
    (world.database.rows_written() - before.0, world.database.statements() - before.1)
}

#[test]
fn an_execution_writes_one_row_besides_its_effect() {
    let mut world = world();
    let (rows, statements) = cost(&mut world, &change("a"));
    assert_eq!(rows, 2);
    // They are BEGIN, COMMIT, one of the engine, and two of the handler, which reads and writes.
    assert_eq!(statements, 5);
}

#[test]
fn acknowledgements_on_an_execution_cost_no_statement_or_one_for_all() {
    let mut world = world();
    for id in ["a", "b", "c", "d"] {
        world.send(&change(id).deadline_ms(START_MS));
    }
    // The new row takes the place of the one that leaves.
    let (rows, statements) = cost(&mut world, &change("e").ack_until("a", START_MS));
    assert_eq!((rows, statements), (2, 5));
    assert_eq!((world.row("a", "id"), world.row("e", "state")), (None, Some(1.into())));
    let call = ["b", "c", "d"].into_iter().fold(change("f"), |call, id| call.ack_until(id, START_MS));
    let (rows, statements) = cost(&mut world, &call);
    assert_eq!((rows, statements), (4, 6), "one of those that leave makes room for it, and two are deleted");
}

#[test]
fn a_replay_a_refusal_and_a_look_up_write_nothing_and_open_no_transaction() {
    let mut world = world();
    for call in [change("first"), change("first").body("other"), look_up("first"), look_up("unknown")] {
        assert_eq!(cost(&mut world, &call), (0, 1));
    }
    assert_eq!(cost(&mut world, &change("late").deadline_ms(START_MS - 1)), (0, 0), "that it is new is known");
    assert_eq!(cost(&mut world, &post("/count")), (0, 0), "what is malformed needs no storage");
}

#[test]
fn an_object_that_starts_writes_nothing() {
    let mut world = world();
    world.send(&change("a"));
    world.restart();
    let before = world.database.rows_written();
    assert_eq!(world.open(), Ok(true));
    while world.open().unwrap() {}
    assert_eq!(world.database.rows_written(), before);
}

#[test]
fn an_acknowledgement_writes_one_row_and_the_sweep_of_its_tombstone_two() {
    let mut world = world();
    world.send(&change("a").deadline_ms(START_MS));
    let ack = acknowledge(&format!("[{{\"id\":\"a\",\"until\":{START_MS}}}]"));
    assert_eq!(cost(&mut world, &ack).0, 1);
    assert_eq!(cost(&mut world, &ack).0, 0, "again it changes nothing");
    world.pass_s(61);
    let (rows, _) = cost(&mut world, &look_up("first"));
    assert_eq!(rows, 2, "the row, and once a page the fence");
    assert_eq!(world.row("a", "id"), None);
}

#[test]
fn a_batch_takes_three_statements_besides_those_of_its_handler() {
    let mut world = world();
    let batch = |from: u64, many: u64| Value::Array((from..from + many).map(|n| count(&format!("{n:03}"))).collect());
    run(&mut world, &batch(0, 64));
    let before = (world.database.rows_written(), world.database.statements());
    run(&mut world, &batch(64, 64));
    let (rows, statements) = (world.database.rows_written() - before.0, world.database.statements() - before.1);
    assert_eq!(rows, 2 * 64, "an effect and a record of each");
    // The handler has two for each request. The others begin the transaction, write all records with ids of one length, and
    // commit.
    assert_eq!(statements - 2 * 64, 3);
}

#[test]
fn a_batch_that_sweeps_a_page_takes_14_statements_besides_those_of_its_handler() {
    let mut world = world();
    let batch = |from: u64, first_sent_s: i64| {
        let element =
            |n| json!({ "id": format!("{n:03}"), "firstSent": first_sent_s, "method": "POST", "path": "/count" });
        Value::Array((from..from + 64).map(element).collect())
    };
    let first_sent_s = world.wall_s();
    run(&mut world, &batch(0, first_sent_s));
    world.pass_s(86_400 + 1);
    let before = world.database.statements();
    let now_s = world.wall_s();
    run(&mut world, &batch(64, now_s));
    // More than without the sweep are: reading its page, deleting it, the fence, and the first record, which is written before
    // the others. The remaining 63 records take more statements than 64 would.
    assert_eq!(world.database.statements() - before - 2 * 64, 14);
    assert!(world.row("063", "id").is_none() && world.row("127", "id").is_some());
}
