//! What an object knows of records from earlier requests. This saves reading them, but nothing is executed because of it that the
//! tables know.

use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::handler::Policy;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql};
use semel_support::batches::{count, run};
use semel_support::elsewhere::{Elsewhere, answered};
use semel_support::{Call, Counter, START_MS, START_S, World, acknowledge, admin, cancel, get, post};
use serde_json::Value;
use std::collections::BTreeMap;

fn change(id: &str) -> Call {
    post("/count").id(id)
}

/// A key whose object knows what there is.
fn world() -> World {
    let mut world = World::new();
    for id in ["a", "b", "c"] {
        world.send(&change(id).deadline_ms(START_MS)).is_executed(200);
    }
    world
}

fn statements(world: &mut World, call: &Call) -> u64 {
    let before = world.database.statements();
    world.send(call).is_executed(200);
    world.database.statements() - before
}

#[test]
fn a_new_id_and_a_record_made_a_moment_ago_are_not_read_from_the_tables() {
    let mut world = world();
    let known = statements(&mut world, &change("d").deadline_ms(START_MS));
    assert_eq!(statements(&mut world, &change("e").ack_until("d", START_MS)), known);
    world.send(&get("/count"));
    assert_eq!(statements(&mut world, &change("f")), known, "a read changes nothing");
    world.send(&acknowledge("[\"a\"]"));
    assert!(statements(&mut world, &change("g")) > known, "it is read, and texts are numbered");
    assert_eq!(statements(&mut world, &change("h")), known + 1, "what the last of the ids are");
    assert_eq!(statements(&mut world, &change("i")), known);
}

#[test]
fn an_id_cancelled_while_records_are_in_memory_is_not_executed() {
    let mut world = world();
    let effects = world.effects();
    assert_eq!(world.send(&cancel("own", "d")).only("semel-status"), "executed");
    assert_eq!(world.send(&change("d")).only("semel-status"), "cancelled");
    assert_eq!(world.effects(), effects);
}

#[test]
fn an_acknowledgement_of_a_record_that_was_swept_does_not_fail_its_request() {
    let mut world = World::with(|config| config.retention_s = 1_000);
    for id in ["a", "b", "c"] {
        world.send(&change(id).first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
    }
    world.pass_s(1_001);
    world.wake().expect("storage");
    assert_eq!(world.rows(), 0);
    world.send(&change("d").ack_until("b", START_MS)).is_executed(200);
}

#[test]
fn a_record_or_key_deleted_by_an_administrator_is_not_answered_from_memory() {
    let mut world = world();
    world.send(&admin::delete_record("own", "c")).is_executed(200);
    assert_eq!(world.send(&change("c")).only("semel-status"), "outcome-expired");
    world.send(&admin::delete_key("own-too")).is_executed(200);
    world.send(&change("c")).is_executed(200);
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_record_that_memory_does_not_know_is_never_executed_again() {
    // The tables are changed so that memory is wrong; the engine never does this.
    let ways: [fn(&mut World) -> String; 3] = [
        |world| world.send(&change("x")).only("semel-status").to_owned(),
        |world| world.send(&change("x").ack_until("b", START_MS)).only("semel-status").to_owned(),
        |world| {
            let answers = world.group(&[change("x"), change("y")]);
            answers.map_or("none".to_owned(), |answers| answers[0].only("semel-status").to_owned())
        },
    ];
    for way in ways {
        let mut world = world();
        world.database.tamper("UPDATE semel_records SET id = 'x' WHERE id = 'a'");
        let effects = world.effects();
        assert!(["unavailable", "none"].contains(&way(&mut world).as_str()));
        assert_eq!(world.effects(), effects);
        assert_eq!(world.send(&change("x")).only("semel-status"), "replayed", "the tables are asked by then");
    }
}

/// A handler whose requests below `/elsewhere` are executed elsewhere.
struct Both(Elsewhere, Counter);

impl Handler for Both {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        self.0.key(method, path)
    }

    fn migrate(&self, sql: &dyn Sql, from: i64) -> Result<(), SqlError> {
        self.0.migrate(sql, from)
    }

    fn is_remote(&self, _: &Method, path: &Path) -> bool {
        path.with_query().starts_with("/elsewhere")
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        if self.is_remote(&request.method, &request.path) {
            self.0.handle(context, request)
        } else {
            self.1.handle(context, request)
        }
    }
}

#[test]
fn a_record_that_memory_does_not_know_is_never_sent_to_the_upstream_again() {
    let handler = Both(Elsewhere::new(Policy::Report), Counter::default());
    let mut world = World::of(handler, Config { open: true, ..Config::default() });
    let order = post("/elsewhere").id("a");
    world.send(&order);
    let sent = world.take_call().expect("something to send");
    world.settle(&order, &sent, answered(201, "made")).is_executed(201);
    for id in ["b", "c", "d"] {
        world.send(&change(id)).is_executed(200);
    }
    world.database.tamper("UPDATE semel_records SET id = 'x' WHERE id = 'a'");
    assert_eq!(world.send(&post("/elsewhere").id("x")).only("semel-status"), "replayed");
    assert_eq!(world.take_call(), None);
}

#[test]
fn acknowledging_a_record_that_only_memory_knows_is_unavailable_and_runs_nothing() {
    let mut world = world();
    world.database.tamper("DELETE FROM semel_records WHERE id = 'b'");
    let effects = world.effects();
    let call = change("x").ack_until("b", START_MS);
    assert_eq!(world.send(&call).only("semel-status"), "unavailable");
    assert_eq!((world.effects(), world.row("x", "id")), (effects, None));
    world.send(&call).is_executed(200);
    assert_eq!(world.send(&call).only("semel-status"), "replayed");
}

#[test]
fn more_ids_than_memory_keeps_in_any_order_are_executed_once_each() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut world = World::new();
    let mut times = BTreeMap::new();
    let id = |n: u32| format!("{n:04}");
    for _ in 0..300 {
        let batch: Vec<_> = (0..8).map(|_| count(&id(random.u32(..1_500)))).collect();
        batch.iter().for_each(|each| *times.entry(each["id"].to_string()).or_insert(0) += 1);
        run(&mut world, &Value::Array(batch));
        let own = id(random.u32(..1_500));
        let mut call = change(&own);
        // Some of these ids exist.
        for _ in 0..3 {
            call = call.ack_until(&id(1_500 + random.u32(..300)), START_MS);
        }
        *times.entry(format!("\"{own}\"")).or_insert(0) += 1;
        assert!(["executed", "replayed"].contains(&world.send(&call).only("semel-status")));
        world.send(&change(&id(1_500 + random.u32(..300))));
    }
    assert!(times.len() > 1_000 && times.values().any(|times| *times > 3), "some come again and again");
    let often = world.database.query("SELECT id FROM effects GROUP BY id HAVING count(*) > 1");
    assert_eq!(often, Vec::<Vec<_>>::new());
}

/// Ids go that are before all that the tables were asked for: of those between nothing is known.
#[test]
fn dropping_the_lowest_ids_from_memory_makes_no_recorded_id_above_them_new() {
    let mut world = World::new();
    let late = |n: usize| change(&format!("z-{n:03}"));
    let first: Vec<_> = (0..100).map(|n| world.send(&late(n))).collect();
    world.restart();
    for n in 0..600 {
        world.send(&change(&format!("a-{n:03}"))).is_executed(200);
    }
    for (n, first) in first.iter().enumerate() {
        world.send(&late(n)).replays(first);
    }
    assert_eq!(world.effects(), 700);
}
