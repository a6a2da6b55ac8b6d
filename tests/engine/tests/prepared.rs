//! No statement is prepared more than once, because preparing takes longer than running most of them.

use semel_core::server::Config;
use semel_core::server::effects::Heard;
use semel_support::batches::{count, run, statuses};
use semel_support::session::SESSION;
use semel_support::{Bank, START_MS, World, acknowledge, get, numbered, post};
use serde_json::{Value, json};

/// How long a round takes.
const ROUND_S: i64 = 61;

fn all_run(world: &mut World, elements: Vec<Value>) {
    let replies = run(world, &Value::Array(elements));
    assert!(statuses(&replies).iter().all(|status| *status == "executed"), "{:?}", statuses(&replies));
}

/// Repeats some work until nothing of it is done for the first time since the tables exist. Returns the statements that the last
/// round has prepared again.
fn again(world: &mut World, mut work: impl FnMut(&mut World, i64)) -> Vec<String> {
    (0..2).for_each(|round| work(world, round));
    world.database.prepared_again();
    work(world, 2);
    world.database.prepared_again()
}

#[test]
fn single_requests_and_batches_prepare_no_statement_twice() {
    let again = again(&mut World::new(), |world, round| {
        let id = |n: i64| format!("{round}-{n}");
        let deadline_ms = START_MS + (round * ROUND_S + 100) * 1000;
        for n in 0..4 {
            world.send(&post("/count").id(&id(n)).deadline_ms(deadline_ms)).is_executed(200);
        }
        world.send(&post("/count").id(&id(0)));
        world.send(&get("/count"));
        all_run(world, (10..80).map(|n| count(&id(n))).collect());
        let acks: Vec<_> = (1..4).map(|n| json!({ "id": id(n), "until": deadline_ms })).collect();
        world.send(&acknowledge(&Value::Array(acks).to_string()));
        world.pass_s(ROUND_S);
        world.send(&post("/count").id(&id(4)).ack_until(&id(0), deadline_ms)).is_executed(200);
    });
    assert_eq!(again, Vec::<String>::new());
}

#[test]
fn requests_of_a_session_prepare_no_statement_twice() {
    let again = again(&mut World::new().in_session(), |world, round| {
        let first = 1 + round * 60;
        for seq in first..first + 4 {
            world.send(&post("/count").place_acking(1, seq, first - 1)).is_executed(200);
        }
        world.send(&numbered(1, first + 3));
        let place = |seq: i64| {
            let session = json!({ "name": SESSION, "epoch": 1, "seq": seq, "ack": first + 3 });
            json!({ "session": session, "method": "POST", "path": "/count" })
        };
        all_run(world, (first + 4..first + 50).map(place).collect());
        all_run(world, (first + 50..first + 60).map(place).collect());
    });
    assert_eq!(again, Vec::<String>::new());
}

#[test]
fn sending_effects_and_sweeping_prepare_no_statement_twice() {
    let mut world = World::at("accounts/alice", Bank::default(), Config { open: true, ..Config::default() });
    let mut round = |round: i64| {
        let call = post("/accounts/alice/deposit").id(&format!("in {round}")).body(json!({ "amount": 9 }).to_string());
        world.send(&call).is_executed(200);
        for n in 0..3 {
            let body = json!({ "to": ["bob"], "amount": 1 }).to_string();
            world.send(&post("/accounts/alice/transfer").id(&format!("out {round} {n}")).body(body)).is_executed(200);
        }
        while let Some(sending) = world.send_next() {
            let body = json!({ "epoch": 1, "lastSeq": 0 }).to_string().into_bytes();
            world.sent(&sending, Heard::Answered { status: 200, semel: "executed".to_owned(), body });
        }
        world.pass_s(8 * 86_400);
        world.wake().unwrap();
        world.send(&get("/accounts/alice"));
        world.database.prepared_again()
    };
    (0..2).for_each(|n| drop(round(n)));
    assert_eq!(round(2), Vec::<String>::new());
}
