//! A handler that writes only states: nothing is written before it has ended, so if it fails there is nothing to roll back.

use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql, State, Value};
use semel_support::session::take_over;
use semel_support::{Call, World, post};
use std::cell::Cell;

/// A value that can't be stored.
const UNLUCKY: i64 = 13;

thread_local! {
    static STORED: Cell<u64> = const { Cell::new(0) };
}

#[derive(Clone)]
struct Sum(i64);

impl State for Sum {
    const IS_KEPT: bool = true;

    fn load(sql: &dyn Sql) -> Result<Self, SqlError> {
        let rows = sql.exec("SELECT value FROM sum", &[])?;
        Ok(Self(rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(0)))
    }

    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        STORED.set(STORED.get() + 1);
        if self.0 == UNLUCKY {
            return Err(SqlError("unlucky".to_owned()));
        }
        sql.run("INSERT OR REPLACE INTO sum VALUES (1, ?1)", &[self.0.into()]).map(|_| ())
    }
}

struct Adds;

impl Handler for Adds {
    const SCHEMA_VERSION: i64 = 1;
    const STATES_ONLY: bool = true;

    fn key(&self, _method: &Method, _path: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        let table =
            "CREATE TABLE sum (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), value INTEGER NOT NULL) STRICT";
        sql.exec(table, &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let Sum(before) = context.state()?;
        let after = if request.path.segments() == ["unlucky"] { UNLUCKY } else { before + 1 };
        context.put(Sum(after))?;
        match request.path.segments().as_slice() {
            ["fails"] => Err(Failure::Other("told to fail".to_owned())),
            ["panics"] => panic!("told to panic"),
            ["rejected"] => Ok(Response::json(500, "{}")),
            _ => Ok(Response::json(200, after.to_string())),
        }
    }
}

/// A key whose sum is 1.
fn world() -> World<Adds> {
    let mut world = World::of(Adds, Config { open: true, ..Config::default() });
    world.send(&add("first")).is_executed(200);
    STORED.set(0);
    world
}

fn add(id: &str) -> Call {
    post("/add").id(id)
}

fn sum(world: &World<Adds>) -> i64 {
    world.database.number("SELECT value FROM sum")
}

#[test]
fn a_request_that_fails_in_a_states_only_handler_has_stored_no_state() {
    for path in ["/fails", "/rejected"] {
        let mut world = world();
        world.send(&post(path).id("own")).is_problem(500, "rolled-back", "no", "same-id");
        assert_eq!((STORED.get(), sum(&world)), (0, 1), "{path}");
        world.send(&add("second")).is_executed(200);
        assert_eq!((STORED.get(), sum(&world)), (1, 2), "{path}");
    }
}

#[test]
fn tables_made_for_a_failing_request_of_a_states_only_handler_are_rolled_back() {
    let mut world = World::of(Adds, Config { open: true, ..Config::default() });
    // The layer's tables exist, and the handler's don't.
    let cancellation = post("/semel/v1/keys/add/cancel").id("cancels").body(r#"{"id":"other"}"#);
    world.send(&cancellation).is_executed(200);
    world.send(&post("/fails").id("own")).is_problem(500, "rolled-back", "no", "same-id");
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master WHERE name = 'sum'"), 0);
    world.send(&add("first")).is_executed(200);
    assert_eq!((sum(&world), world.database.light.get()), (1, 0), "what makes tables can be undone");
    world.send(&add("second")).is_executed(200);
    assert_eq!((sum(&world), world.database.light.get()), (2, 1));
}

#[test]
fn a_place_needs_no_savepoint_either_and_one_that_fails_has_stored_no_state() {
    let mut world = world();
    world.send(&take_over("takes")).is_taken_over(1, 0);
    world.send(&post("/add").place(1, 1)).is_executed(200);
    assert_eq!((STORED.get(), sum(&world), world.database.light.get()), (1, 2, 1));
    for path in ["/fails", "/rejected"] {
        world.send(&post(path).place(1, 2)).is_problem(500, "rolled-back", "no", "same-id");
        assert_eq!((STORED.get(), sum(&world)), (1, 2), "{path}");
    }
    world.send(&post("/add").place(1, 2)).is_executed(200);
    assert_eq!((STORED.get(), sum(&world), world.database.light.get()), (2, 3, 4));
}

#[test]
fn the_state_and_the_record_of_a_request_are_stored_together_or_not_at_all() {
    let mut world = world();
    world.send(&post("/unlucky").id("own")).is_problem(503, "unavailable", "unknown", "same-id");
    assert_eq!(sum(&world), 1);
    atomic_at_each_statement(&mut world, |n| add(&format!("id-{n}")));
}

#[test]
fn the_state_and_the_place_of_a_request_are_stored_together_or_not_at_all() {
    let mut world = world();
    world.send(&take_over("takes")).is_taken_over(1, 0);
    world.send(&post("/unlucky").place(1, 1)).is_problem(503, "unavailable", "unknown", "same-id");
    assert_eq!(sum(&world), 1);
    atomic_at_each_statement(&mut world, |n| post("/add").place(1, n + 1));
}

/// Fails each statement of a request in turn; `call` makes the `n`th request, from 0.
fn atomic_at_each_statement(world: &mut World<Adds>, call: impl Fn(i64) -> Call) {
    for n in 0.. {
        let call = call(n);
        let before = sum(world);
        world.database.fail(n as u64);
        let is_through = world.send(&call).status() == 200;
        world.database.fail(u64::MAX);
        assert_eq!(sum(world), before + i64::from(is_through), "at statement {n}");
        let again = world.send(&call);
        assert_eq!(again.only("semel-status"), if is_through { "replayed" } else { "executed" });
        assert_eq!(sum(world), before + 1, "at statement {n}");
        if is_through {
            assert!(n > 2, "only {n} statements");
            return;
        }
    }
}
