//! The clock of a key: the later of the wall clock and everything committed. It never goes back.

use semel_core::id::Key;
use semel_core::message::Headers;
use semel_core::server::batch::Batch;
use semel_support::batches::{asker, count};
use semel_support::idle::world;
use semel_support::{Call, KEY, START_MS, START_S, Trouble, World, cancel, get, look_up, numbered, post, take_over};
use serde_json::json;

fn change(id: &str) -> Call {
    post("/count").id(id)
}

/// Does something an hour later, sets the wall clock back, and asserts that the key's clock stays: in the living object, and in
/// the next one if something was committed.
#[track_caller]
fn stays(act: impl Fn(&mut World), is_committed: bool) {
    let mut world = World::new();
    world.send(&change("before").first_sent_s(START_S));
    world.pass_s(3600);
    act(&mut world);
    let later_ms = world.wall_ms;
    world.wall_ms = START_MS;
    assert_eq!(world.send(&look_up("a")).now_ms(), later_ms);
    if is_committed {
        world.restart();
        assert_eq!(world.send(&look_up("a")).now_ms(), later_ms, "after a restart");
        world.send(&change("late").deadline_ms(later_ms - 1)).is_problem(408, "attempt-expired", "no", "same-id");
    }
}

#[test]
fn the_clock_of_a_key_does_not_go_back_with_the_wall_clock_while_its_object_lives() {
    stays(|world| drop(world.send(&get("/count"))), false);
    stays(|world| drop(world.send(&post("/not-found").id("a"))), false);
}

#[test]
fn the_clock_of_a_key_does_not_go_back_after_a_failure_of_the_storage() {
    let fails = |world: &mut World| {
        world.send(&get("/count"));
        world.database.fail(0);
        world.send(&change("a")).is_problem(503, "unavailable", "unknown", "same-id");
    };
    stays(fails, false);
}

#[test]
fn the_clock_at_which_an_object_opened_its_storage_does_not_go_back_before_its_first_request() {
    let mut world = World::new();
    let until_ms = START_MS + 60_000;
    let first = change("00000000-0000-7000-8000-000000000001").first_sent_s(START_S).deadline_ms(until_ms);
    world.send(&first).is_executed(200);
    let second =
        change("00000000-0000-7000-8000-000000000002").ack_until("00000000-0000-7000-8000-000000000001", until_ms);
    world.send(&second.first_sent_s(START_S).deadline_ms(until_ms)).is_executed(200);
    world.restart();
    world.pass_s(3600);
    while world.open().unwrap() {}
    let later_ms = world.wall_ms;
    world.wall_ms = START_MS;
    // The tombstone has lapsed by the clock at which the object opened its storage.
    let late = world.send(&first);
    late.is_problem(408, "attempt-expired", "no", "same-id");
    assert_eq!((late.now_ms(), world.effects_of("00000000-0000-7000-8000-000000000001")), (later_ms, 1));
}

#[test]
fn the_clock_does_not_go_back_behind_what_was_told_while_the_object_read_its_storage() {
    for asks in [false, true] {
        let mut world = World::new();
        world.send(&change("before").first_sent_s(START_S)).is_executed(200);
        world.restart();
        assert_eq!(world.open(), Ok(true));
        world.pass_s(3600);
        let later_ms = world.tell_ms();
        assert_eq!(later_ms, START_MS + 3_600_000);
        world.wall_ms = START_MS;
        // The rest is looked at page by page, or by the request that asks.
        while !asks && world.open().unwrap() {}
        assert_eq!(world.send(&look_up("a")).now_ms(), later_ms, "asks: {asks}");
    }
}

/// A key whose storage has failed, so that nothing of it is in memory, and whose machine's clock was put back. Returns also the
/// clock that it told last.
fn put_back() -> (World, i64) {
    let mut world = World::new();
    world.send(&change("before").first_sent_s(START_S));
    world.pass_s(3600);
    let later_ms = world.send(&look_up("a")).now_ms();
    world.database.fail(0);
    world.send(&look_up("a")).is_problem(503, "unavailable", "unknown", "same-id");
    world.wall_ms = START_MS;
    (world, later_ms)
}

#[test]
fn the_clock_of_a_key_does_not_go_back_if_a_batch_cannot_look_at_the_storage() {
    let (mut world, later_ms) = put_back();
    world.database.fail_at("SELECT 1 FROM sqlite_master", 2);
    let batch = json!([count("b")]).to_string();
    let key = Key::new(KEY).expect("a key");
    let batch = Batch::parse(&key, &Headers::new(), Some(batch.as_bytes())).expect("a batch");
    assert_eq!(world.in_one_commit(&asker("alice"), batch), Ok(None));
    assert_eq!(world.send(&look_up("a")).now_ms(), later_ms);
}

#[test]
fn an_answer_without_the_storage_tells_the_clock_of_the_key_and_moves_it_on() {
    let mut world = World::new();
    world.pass_s(3600);
    let later_ms = world.wall_ms;
    assert_eq!(world.tell_ms(), later_ms, "before anything is looked at");
    world.wall_ms = START_MS;
    assert_eq!(world.send(&change("a")).now_ms(), later_ms);
    assert_eq!(world.tell_ms(), later_ms);
    world.wall_ms = later_ms + 1;
    assert_eq!(world.tell_ms(), later_ms + 1);
    world.wall_ms = START_MS;
    assert_eq!(world.send(&look_up("a")).now_ms(), later_ms + 1);
}

#[test]
fn an_answer_to_a_request_that_cannot_look_at_the_storage_tells_the_clock_of_the_key() {
    let (mut world, later_ms) = put_back();
    world.database.fail(0);
    assert_eq!(world.send(&look_up("a")).now_ms(), later_ms);
    world.database.fail(0);
    let key = Key::new(KEY).expect("a key");
    let batch = Batch::parse(&key, &Headers::new(), Some(b"[]")).expect("a batch");
    assert_eq!(world.clock_of(batch), later_ms);
}

#[test]
fn a_committed_clock_holds_over_a_restart() {
    stays(|world| drop(world.send(&change("a"))), true);
    stays(|world| drop(world.send(&cancel("own", "a"))), true);
    stays(|world| drop(world.send(&get("/count").ack("before"))), true);
    stays(|world| drop(world.crashed(&change("a"))), true);
    stays(|world| drop(world.start(&change("a"))), true);
    stays(|world| drop(world.send(&change("old").first_sent_s(1))), true);
}

#[test]
fn a_committed_clock_holds_over_a_restart_even_if_its_row_has_left() {
    let failed_start = |world: &mut World| {
        world.start(&change("a"));
        world.handler.trouble.set(Trouble::Fails);
        world.send(&change("a")).is_problem(500, "rolled-back", "no", "same-id");
        world.handler.trouble.set(Trouble::None);
    };
    stays(failed_start, true);
}

#[test]
fn the_handler_is_told_the_clock_of_the_key() {
    let mut world = World::new();
    world.pass_s(5);
    assert_eq!(world.send(&post("/now").id("a")).text(), world.wall_ms.to_string());
    world.wall_ms = START_MS;
    assert_eq!(world.send(&get("/now")).text(), (START_MS + 5000).to_string());
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

/// Nothing has asked the engine to look at its clock since.
#[test]
fn an_answer_without_the_storage_tells_no_earlier_clock_than_one_before_the_storage_was_read() {
    let mut world = World::new();
    world.send(&change("a"));
    world.restart();
    assert_eq!(world.open(), Ok(true), "there is more to look at");
    world.pass_s(5);
    let later_ms = world.tell_ms();
    world.wall_ms = START_MS;
    while world.open().expect("storage") {}
    assert_eq!(world.tell_ms(), later_ms);
}
