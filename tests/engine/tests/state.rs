//! A state that a handler keeps in memory while a transaction lasts: it is loaded and stored once for many requests, and each
//! request is isolated as ever.

use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::storage::sql::{SqlError, atomically};
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql, State, Value};
use semel_support::batches::{at, run, statuses};
use semel_support::{Call, Reply, World, admin, get, post};
use serde_json::json;
use std::cell::Cell;

/// A value that can't be stored.
const UNLUCKY: i64 = 13;

thread_local! {
    static LOADED: Cell<u64> = const { Cell::new(0) };
    static STORED: Cell<u64> = const { Cell::new(0) };
}

#[derive(Clone)]
struct Tally(i64);

impl State for Tally {
    const IS_KEPT: bool = true;

    fn load(sql: &dyn Sql) -> Result<Self, SqlError> {
        LOADED.set(LOADED.get() + 1);
        let rows = sql.exec("SELECT value FROM tally WHERE name = 'tally'", &[])?;
        Ok(Self(rows.first().and_then(|row| row[0].as_integer()).unwrap_or(0)))
    }

    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        STORED.set(STORED.get() + 1);
        if self.0 == UNLUCKY {
            return Err(SqlError("unlucky".to_owned()));
        }
        put(sql, "tally", self.0)
    }
}

/// Another type of state.
#[derive(Clone)]
struct Last(i64);

impl State for Last {
    const IS_KEPT: bool = true;

    fn load(sql: &dyn Sql) -> Result<Self, SqlError> {
        let rows = sql.exec("SELECT value FROM tally WHERE name = 'last'", &[])?;
        Ok(Self(rows.first().and_then(|row| row[0].as_integer()).unwrap_or(0)))
    }

    fn store(&self, sql: &dyn Sql) -> Result<(), SqlError> {
        put(sql, "last", self.0)
    }
}

fn put(sql: &dyn Sql, name: &str, value: i64) -> Result<(), SqlError> {
    sql.run("INSERT OR REPLACE INTO tally VALUES (?1, ?2)", &[name.into(), value.into()]).map(|_| ())
}

struct Adds;

impl Handler for Adds {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _method: &Method, _path: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec("CREATE TABLE tally (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT", &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let add = |more: i64| {
            let Tally(value) = context.state()?;
            context.put(Tally(value + more))?;
            context.put(Last(more))
        };
        add(1)?;
        let own = |also: &str| -> Result<i64, SqlError> {
            let statement = format!("SELECT value FROM tally WHERE name = 'tally'{also}");
            let rows = context.sql.exec(&statement, &[])?;
            Ok(rows.first().and_then(|row| row.first()).and_then(Value::as_integer).unwrap_or(-1))
        };
        match request.path.segments().as_slice() {
            ["fails"] => return Err(Failure::Other("told to fail".to_owned())),
            ["panics"] => panic!("told to panic"),
            ["unlucky"] => context.put(Tally(UNLUCKY))?,
            ["own", "read"] => context.put(Last(own("")?))?,
            ["own", "read", "engines"] => {
                context.put(Last(own(" AND (SELECT count(*) FROM semel_records) > 0")?))?;
            }
            ["own", "write", "engines"] => {
                let statement = "UPDATE tally SET value = value + 10 WHERE (SELECT count(*) FROM semel_records) > 0";
                context.sql.run(statement, &[])?;
            }
            ["own", "write"] => {
                context.sql.exec("UPDATE tally SET value = value + 10", &[])?;
            }
            ["own", "run"] => {
                context.sql.run("UPDATE tally SET value = value + 10", &[])?;
            }
            ["nested", "undone"] => {
                let undone: Result<(), SqlError> = atomically(context.sql, || {
                    add(100)?;
                    Err(SqlError("told to undo".to_owned()))
                });
                assert!(undone.is_err());
                add(1)?;
            }
            ["nested", "kept"] => {
                atomically(context.sql, || add(100))?;
                add(1)?;
            }
            _ => {}
        }
        let (Tally(value), Last(last)) = (context.state()?, context.state()?);
        Ok(Response::json(200, json!([value, last]).to_string()))
    }
}

/// A key whose tally is 1.
fn world() -> World<Adds> {
    let mut world = World::of(Adds, Config { open: true, ..Config::default() });
    world.send(&add("first")).is_executed(200);
    LOADED.set(0);
    STORED.set(0);
    world
}

fn add(id: &str) -> Call {
    post("/add").id(id)
}

/// The committed tally, and what was added last.
fn committed(world: &World<Adds>) -> (i64, i64) {
    let of = |name: &str| world.database.number(&format!("SELECT value FROM tally WHERE name = '{name}'"));
    (of("tally"), of("last"))
}

fn said(replies: &[Reply]) -> Vec<serde_json::Value> {
    replies.iter().map(Reply::json).collect()
}

#[test]
fn requests_of_one_commit_load_and_store_a_state_once_and_each_sees_those_before() {
    let mut world = world();
    let group = world.group(&[add("a"), add("b"), add("c")]).expect("one commit");
    assert_eq!(said(&group), [json!([2, 1]), json!([3, 1]), json!([4, 1])]);
    assert_eq!((LOADED.get(), STORED.get(), committed(&world)), (1, 1, (4, 1)));
    let batch = run(&mut world, &json!([at("d", "/add"), at("e", "/add")]));
    assert_eq!(said(&batch), [json!([5, 1]), json!([6, 1])]);
    assert_eq!((LOADED.get(), STORED.get(), committed(&world)), (2, 2, (6, 1)));
    world.send(&add("f")).is_executed(200);
    assert_eq!((LOADED.get(), STORED.get(), committed(&world)), (3, 3, (7, 1)));
}

#[test]
fn a_request_that_fails_changes_no_state_and_those_around_it_keep_their_changes() {
    for path in ["/fails", "/panics"] {
        let mut world = world();
        assert!(world.group(&[add("a"), post(path).id("b"), add("c")]).is_none(), "each is to run by itself");
        assert_eq!(committed(&world), (1, 1), "{path}");
        world.send(&add("a")).is_executed(200);
        if path == "/fails" {
            assert_eq!(world.send(&post(path).id("b")).only("semel-status"), "rolled-back");
        }
        assert_eq!(world.send(&add("c")).json(), json!([3, 1]), "{path}");
        assert_eq!(committed(&world), (3, 1));
    }
    let mut world = world();
    let batch = run(&mut world, &json!([at("a", "/add"), at("b", "/fails"), at("c", "/add")]));
    assert_eq!(statuses(&batch), ["executed", "rolled-back", "executed"]);
    assert_eq!((batch[2].json(), committed(&world)), (json!([3, 1]), (3, 1)));
}

#[test]
fn a_rolled_back_request_applies_its_acknowledgement_and_leaves_the_state_unchanged() {
    let mut world = world();
    let before = world.row("first", "state");
    assert_eq!(world.send(&post("/fails").id("a").ack("first")).only("semel-status"), "rolled-back");
    assert_ne!(world.row("first", "state"), before, "acknowledged");
    assert_eq!(committed(&world), (1, 1));
}

#[test]
fn a_request_whose_state_can_not_be_stored_is_rolled_back_and_others_keep_theirs() {
    let mut world = world();
    assert!(world.group(&[add("a"), post("/unlucky").id("b")]).is_none());
    let refused = world.send(&post("/unlucky").id("b"));
    refused.is_problem(500, "rolled-back", "no", "same-id");
    assert!(refused.log().is_some_and(|log| log.contains("unlucky")), "{refused:?}");
    assert_eq!((world.row("b", "state"), committed(&world)), (None, (1, 1)));
    assert_eq!(world.send(&add("a")).json(), json!([2, 1]));
}

#[test]
fn sql_statements_of_a_handler_see_its_state_and_the_state_sees_them() {
    let paths = [
        ("/own/read", json!([3, 3]), (3, 3)),
        ("/own/write", json!([13, 11]), (13, 11)),
        ("/own/run", json!([13, 11]), (13, 11)),
        ("/own/read/engines", json!([3, 3]), (3, 3)),
        ("/own/write/engines", json!([13, 11]), (13, 11)),
    ];
    for (path, answer, after) in paths {
        let mut alone = world();
        alone.send(&add("a")).is_executed(200);
        assert_eq!(alone.send(&post(path).id("b")).json(), answer, "{path}");
        assert_eq!(committed(&alone), after, "{path}");
        assert_eq!(alone.send(&add("c")).json(), json!([after.0 + 1, 1]), "{path}");
        let mut together = world();
        let group = together.group(&[add("a"), post(path).id("b"), add("c")]).expect("one commit");
        assert_eq!(group[1].json(), answer, "{path}");
        assert_eq!(committed(&together), (after.0 + 1, 1), "{path}");
    }
}

#[test]
fn an_undone_nested_transaction_undoes_only_what_it_put_into_the_state() {
    let mut world = world();
    assert_eq!(world.send(&post("/nested/undone").id("a")).json(), json!([3, 1]));
    assert_eq!(committed(&world), (3, 1));
    assert_eq!(world.send(&post("/nested/kept").id("b")).json(), json!([105, 1]));
    assert_eq!(committed(&world), (105, 1));
    assert!(world.group(&[add("c"), post("/nested/undone").id("d")]).is_none(), "each is to run by itself");
    assert_eq!(committed(&world), (105, 1));
    let group = world.group(&[add("c"), post("/nested/kept").id("d")]).expect("one commit");
    assert_eq!((group[1].json(), committed(&world)), (json!([208, 1]), (208, 1)));
}

#[test]
fn a_read_sees_the_state_and_what_it_puts_is_undone() {
    let mut world = world();
    let reply = world.send(&get("/tally"));
    reply.is_read(200);
    assert_eq!((reply.json(), committed(&world)), (json!([2, 1]), (1, 1)));
    let batch = run(&mut world, &json!([at("a", "/add"), { "method": "GET", "path": "/tally" }, at("b", "/add")]));
    assert_eq!(said(&batch), [json!([2, 1]), json!([3, 1]), json!([3, 1])]);
    assert_eq!(committed(&world), (3, 1));
}

#[test]
fn after_the_deletion_of_a_key_its_state_begins_anew() {
    let mut world = world();
    let deleted = world.group(&[add("a"), admin::delete_key("own")]);
    assert!(deleted.is_some(), "one commit");
    assert!(!world.database.tables().contains(&"tally".to_owned()));
    assert_eq!(world.send(&add("b")).json(), json!([1, 1]));
}

#[test]
fn a_state_that_was_put_in_a_failed_commit_is_forgotten() {
    for beginning in ["INSERT OR REPLACE INTO tally", "COMMIT"] {
        let mut world = world();
        world.database.fail_at(beginning, 1);
        assert!(world.group(&[add("a"), add("b")]).is_none(), "{beginning}");
        assert_eq!(committed(&world), (1, 1), "{beginning}");
        assert_eq!(world.send(&add("a")).json(), json!([2, 1]), "{beginning}");
    }
}

#[test]
fn places_of_a_session_in_one_commit_store_the_state_once() {
    let mut world = world();
    world.send(&semel_support::session::take_over("take-over")).is_executed(200);
    for from in [0, 64, 128] {
        let element = |n: i64| {
            let ack = if from > 0 {
                json!({ "name": "s", "epoch": 1, "seq": n, "ack": from })
            } else {
                json!({ "name": "s", "epoch": 1, "seq": n })
            };
            json!({ "method": "POST", "path": "/add", "session": ack })
        };
        let before = STORED.get();
        let batch = run(&mut world, &serde_json::Value::Array((from + 1..=from + 64).map(element).collect()));
        assert_eq!(statuses(&batch), ["executed"; 64]);
        assert_eq!(STORED.get() - before, 1, "{from}");
    }
    assert_eq!(committed(&world), (193, 1));
}
