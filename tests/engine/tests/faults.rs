//! *Faults* of the storage, at each statement of each kind of request: the answer has its code, and nothing is lost. Crashes are
//! in `crashes.rs`.

use semel_core::server::Sql;
use semel_support::admin::{ask, delete_key, delete_record};
use semel_support::{Call, START_S, World, acknowledge, cancel, get, look_up, post};

fn change(id: &str) -> Call {
    post("/count").id(id).first_sent_s(START_S)
}

/// A key with a record, a tombstone and a suspect.
fn used() -> World {
    let mut world = World::with(|config| config.retention_s = 1000);
    world.send(&change("kept")).is_executed(200);
    world.send(&change("acknowledged").ack("nobody")).is_executed(200);
    world.send(&acknowledge("[\"acknowledged\"]"));
    world.crashed(&change("suspect"));
    world
}

/// Everything that is kept. A change happens as a whole or not at all.
fn kept(world: &World) -> Vec<String> {
    let queries = [
        "SELECT id, state, at_ms, first_sent_s, hex(body) FROM semel_records ORDER BY id",
        "SELECT fence_s, forgotten_s, clock_ms FROM semel_meta",
        "SELECT id FROM effects ORDER BY id",
    ];
    let rows = queries.iter().flat_map(|query| world.database.query(query));
    rows.map(|row| format!("{row:?}")).collect()
}

type Fault = fn(&World, u64);

/// Lets a fault come at each statement of a call in turn. Each time the answer has its code, what is kept is the state before the
/// call or after it, and the call ends as without the fault when it is sent again.
fn at_each_statement(fault: Fault, call: &Call) {
    let mut whole = used();
    let before = kept(&whole);
    let expected = whole.send(call);
    let after = kept(&whole);
    for n in 0.. {
        let mut world = used();
        world.restart();
        fault(&world, n);
        let got = world.send(call);
        let has_come = !world.database.awaits_fault();
        world.database.calm();
        let found = kept(&world);
        assert!(found == before || found == after, "statement {n} left a part: {found:?}");
        if !has_come {
            assert_eq!((got.status(), got.body()), (expected.status(), expected.body()));
            assert!(n >= 3, "only {n} statements");
            break;
        }
        if (got.status(), got.body()) != (expected.status(), expected.body()) {
            let told = (got.status(), got.field("code"), got.field("executed"));
            let unavailable = (503, "unavailable".to_owned(), "unknown".to_owned());
            let rolled_back = (500, "rolled-back".to_owned(), "no".to_owned());
            assert!(told == unavailable || told == rolled_back, "statement {n}: {told:?}");
            assert!(told != rolled_back || found == before, "statement {n}: {told:?}");
        }
        if world.database.has_crashed() {
            world.restart();
        }
        let again = world.send(call);
        assert_eq!((again.status(), again.body()), (expected.status(), expected.body()), "statement {n}");
        assert_eq!(kept(&world), after, "statement {n}");
    }
}

fn calls() -> Vec<Call> {
    vec![
        change("new"),
        change("kept"),
        change("suspect"),
        change("old").first_sent_s(1),
        cancel("own", "suspect"),
        acknowledge("[\"kept\"]"),
        get("/count"),
        look_up("kept"),
        delete_record("own", "kept"),
        delete_key("own").first_sent_s(START_S),
        ask("/records"),
    ]
}

#[test]
fn a_request_with_a_failing_statement_is_unavailable_or_rolled_back_and_nothing_is_lost() {
    for call in calls() {
        at_each_statement(|world, n| world.database.fail(n), &call);
    }
}

#[test]
fn a_full_disk_undoes_the_whole_transaction_and_nothing_is_lost() {
    for call in calls() {
        at_each_statement(|world, n| world.database.full(n), &call);
    }
}

#[test]
fn a_full_database_file_refuses_a_request_that_grows_it_and_runs_those_that_do_not() {
    let mut world = used();
    let pages = world.database.number("PRAGMA page_count") + 4;
    world.database.exec(&format!("PRAGMA max_page_count = {pages}"), &[]).expect("a pragma");
    let large = post("/large/100000").id("large");
    for _ in 0..3 {
        let reply = world.send(&large);
        assert_eq!((reply.status(), reply.field("executed").as_str()), (503, "unknown"), "{}", reply.field("code"));
        assert_eq!(world.effects_of("large"), 0);
    }
    world.send(&change("kept")).is_replayed(200);
    world.send(&acknowledge("[\"kept\"]"));
    world.send(&change("small")).is_executed(200);
    world.database.exec("PRAGMA max_page_count = 10000", &[]).expect("a pragma");
    world.send(&large).is_executed(200);
    assert_eq!(world.effects_of("large"), 1);
}

#[test]
fn a_reset_before_commits_are_durable_loses_effects_with_their_records_and_nothing_else() {
    let mut world = used();
    let before = kept(&world);
    world.database.hold();
    world.send(&change("new")).is_executed(200);
    world.send(&delete_record("own", "kept")).is_executed(200);
    // The answers were held back, and never left.
    world.restart();
    assert_eq!(kept(&world), before);
    world.send(&change("new")).is_executed(200);
    world.send(&change("kept")).is_replayed(200);
    assert_eq!((world.effects_of("new"), world.effects_of("kept")), (1, 1));
}
