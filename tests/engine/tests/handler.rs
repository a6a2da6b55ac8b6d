//! What a handler is given, and what it may do.

use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql};
use semel_support::{KEY, World, get, numbered, post};
use std::cell::Cell;

#[test]
fn a_handler_knows_its_key_and_the_principal() {
    let mut world = World::new();
    assert_eq!(world.send(&post("/who").id("a").by("bob")).text(), format!("{KEY} bob"));
    assert_eq!(world.send(&get("/who").by("")).text(), format!("{KEY} "));
}

#[test]
fn a_handler_may_undo_a_part_of_what_it_did() {
    let mut world = World::new();
    let first = world.send(&post("/nested").id("a"));
    assert_eq!(first.text(), "2", "its own effect, and the part that it kept");
    assert_eq!((world.effects_of("a"), world.effects_of("nested")), (1, 1));
    world.send(&post("/nested").id("a")).replays(&first);
    assert_eq!(world.effects(), 2);
}

#[test]
fn a_nested_transaction_of_a_handler_is_undone_with_a_read_or_a_failed_request() {
    let mut world = World::new();
    world.send(&get("/nested")).is_read(200);
    assert!(world.database.tables().is_empty());
    // The record can't be written, so nothing stays.
    world.send(&post("/count").id("before"));
    for n in 0.. {
        world.database.fail(n);
        let reply = world.send(&post("/nested").id(&format!("try-{n}")));
        world.database.fail(u64::MAX);
        if reply.only("semel-status") == "executed" {
            assert!(n >= 10, "only {n} statements");
            break;
        }
        assert_eq!(world.effects(), 1, "statement {n}");
    }
}

/// A handler of any version, whose tables remember the version they were migrated from.
#[derive(Default)]
struct Versioned<const VERSION: i64> {
    fails: Cell<bool>,
    /// How much newer its tables are than that.
    ahead: Cell<i64>,
}

impl<const VERSION: i64> Handler for Versioned<VERSION> {
    const SCHEMA_VERSION: i64 = VERSION;

    fn schema_version(&self) -> i64 {
        VERSION + self.ahead.get()
    }

    fn key(&self, _: &Method, _: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, sql: &dyn Sql, from: i64) -> Result<(), SqlError> {
        sql.exec("CREATE TABLE IF NOT EXISTS migrations (was INTEGER, became INTEGER)", &[])?;
        sql.exec("INSERT INTO migrations VALUES (?1, ?2)", &[from.into(), self.schema_version().into()])?;
        if self.fails.get() { Err(SqlError("told to fail".to_owned())) } else { Ok(()) }
    }

    fn handle(&self, context: &mut Context<'_>, _: &Request) -> Result<Response, Failure> {
        let rows = context.sql.exec("SELECT was, became FROM migrations ORDER BY rowid", &[])?;
        let numbers = rows.iter().map(|row| row.iter().filter_map(|value| value.as_integer()).collect::<Vec<_>>());
        Ok(Response::json(200, format!("{:?}", numbers.collect::<Vec<_>>())))
    }
}

#[test]
fn a_deleted_key_of_a_handler_without_tables_is_unlisted_and_listed_again_when_used() {
    let mut world = World::of(Versioned::<0>::default(), config());
    world.handler.fails.set(true);
    assert!(world.database.tables().is_empty());
    for n in [1, 2] {
        world.database.tamper("CREATE TABLE IF NOT EXISTS migrations (was INTEGER, became INTEGER)");
        world.pass_s(10);
        assert_eq!(
            world.send(&post("/x").id(&format!("id {n}"))).only("semel-status"),
            "executed",
            "it is not asked for tables"
        );
        let report = world.report().unwrap().unwrap();
        assert!(report.is_listed);
        world.reported(&report, 0).unwrap();
        world.send(&semel_support::admin::delete_key(&format!("own {n}")));
        world.restart();
        let report = world.report().unwrap().unwrap();
        assert!(!report.is_listed);
        world.reported(&report, 0).unwrap();
        assert_eq!(world.report(), Ok(None));
    }
}

fn config() -> Config {
    Config { open: true, ..Config::default() }
}

#[test]
fn a_handlers_tables_are_migrated_once_in_the_commit_that_needs_them() {
    let mut old = World::of(Versioned::<1>::default(), config());
    let first = old.send(&post("/x").id("a"));
    assert_eq!(first.text(), "[[0, 1]]");
    assert_eq!(old.send(&post("/x").id("b")).text(), "[[0, 1]]");

    let mut new = World::of(Versioned::<3>::default(), config());
    std::mem::swap(&mut old.database, &mut new.database);
    new.send(&post("/x").id("a")).replays(&first);
    assert_eq!(new.send(&get("/x")).text(), "[[0, 1], [1, 3]]");
    let migrations = "SELECT count(*) FROM migrations";
    assert_eq!(new.database.number(migrations), 1, "a read keeps nothing of it");

    new.handler.fails.set(true);
    new.send(&post("/x").id("c")).is_problem(500, "rolled-back", "no", "same-id");
    new.send(&get("/x")).is_problem(500, "rolled-back", "no", "same-id");
    new.send(&post("/x").id("a")).replays(&first);
    assert_eq!((new.database.number(migrations), new.rows()), (1, 2));
    new.handler.fails.set(false);
    assert_eq!(new.send(&post("/x").id("c")).text(), "[[0, 1], [1, 3]]");
    assert_eq!(new.send(&post("/x").id("d")).text(), "[[0, 1], [1, 3]]");
    new.restart();
    assert_eq!(new.send(&post("/x").id("e")).text(), "[[0, 1], [1, 3]]");
}

#[test]
fn a_handler_may_give_its_schema_version_at_run_time_and_an_older_one_is_refused() {
    let mut world = World::of(Versioned::<1>::default(), config());
    world.handler.ahead.set(1);
    assert_eq!(world.send(&post("/x").id("a")).text(), "[[0, 2]]");
    world.restart();
    world.handler.ahead.set(3);
    assert_eq!(world.send(&post("/x").id("b")).text(), "[[0, 2], [2, 4]]");
    world.restart();
    world.handler.ahead.set(0);
    assert_eq!(world.send(&post("/x").id("c")).status(), 503, "an older build refuses what a newer one has made");
}

#[test]
fn the_tables_of_a_deleted_key_are_made_from_nothing() {
    let mut world = World::of(Versioned::<2>::default(), config());
    assert_eq!(world.send(&post("/x").id("a")).text(), "[[0, 2]]");
    world.send(&semel_support::admin::delete_key("own")).is_executed(200);
    world.pass_s(1);
    assert_eq!(world.send(&post("/x").id("b")).text(), "[[0, 2]]");
}

/// A handler that reads the engine's tables.
struct Looks;

impl Handler for Looks {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _method: &Method, _path: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, _sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn handle(&self, context: &mut Context<'_>, _request: &Request) -> Result<Response, Failure> {
        let rows = context.sql.exec("SELECT count(*) FROM semel_places", &[])?;
        Ok(Response::json(200, format!("{rows:?}")))
    }
}

#[test]
fn a_handler_that_reads_the_places_of_its_session_does_not_disturb_their_recording() {
    let mut world = World::of(Looks, Config { open: true, ..Config::default() }).in_session();
    let calls = [1, 2, 3].map(|seq| numbered(1, seq));
    let first = world.send(&calls[0]);
    let both = world.group(&calls[1..]).expect("one commit");
    assert_eq!(world.places().len(), 3);
    world.restart();
    for (call, reply) in calls.iter().zip([&first].into_iter().chain(&both)) {
        world.send(call).replays(reply);
    }
}
