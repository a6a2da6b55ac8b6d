//! *What an administrator deletes* in the protocol: a test for each sentence.

use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::{Config, Context, Failure, Handler, KeyRule, Sql, SqlError};
use semel_support::admin::{ask, delete_key, delete_record};
use semel_support::retained::{RETENTION_S, change, sweep, world};
use semel_support::{START_MS, START_S, World, acknowledge, cancel, get, look_up, post};
use serde_json::json;

/// The layer's tables.
const OWN_TABLES: [&str; 7] = [
    "semel_meta",
    "semel_places",
    "semel_records",
    "semel_sessions",
    "semel_texts",
    "semel_tombstones",
    "semel_totals",
];

#[test]
fn a_deleted_record_keeps_only_whether_it_ran_and_never_runs_again() {
    let mut world = world();
    world.send(&change("a").body("secret")).is_executed(200);
    let reply = world.send(&delete_record("own", "a"));
    assert_eq!((reply.status(), reply.json()), (200, json!({ "state": "expired", "executed": "yes" })));
    world.send(&change("a").body("secret")).is_problem(410, "outcome-expired", "yes", "never");
    // The fingerprint is gone too, so another payload is no mismatch.
    world.send(&change("a").body("other")).is_problem(410, "outcome-expired", "yes", "never");
    world.send(&look_up("a")).is_problem(410, "outcome-expired", "yes", "never");
    world.send(&change("a").by("bob")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    assert_eq!(world.effects(), 1);
    for column in ["fingerprint", "status", "headers", "body"] {
        assert_eq!(world.row("a", column), Some(semel_core::server::Value::Null), "{column}");
    }
}

#[test]
fn a_deleted_record_stays_one_retention_or_with_a_first_sent_until_the_fence_refuses_it() {
    let mut world = world();
    // Without first-sent it stays for one retention. With first-sent it stays until the fence refuses the id, even if the
    // client's clock was ahead and its attempts had deadlines.
    world.send(&change("without")).is_executed(200);
    let ahead_s = START_S + 100;
    let ahead = |deadline_ms: i64| change("ahead").first_sent_s(ahead_s).deadline_ms(deadline_ms);
    world.send(&ahead(START_MS + 1000)).is_executed(200);
    for id in ["without", "ahead"] {
        world.send(&delete_record(&format!("delete {id}"), id)).is_executed(200);
    }
    world.pass_s(RETENTION_S - 1);
    sweep(&mut world);
    world.send(&change("without")).is_problem(410, "outcome-expired", "yes", "never");
    world.pass_s(2);
    sweep(&mut world);
    assert_eq!(world.row("without", "state"), None);
    let late = ahead(world.wall_ms + 1000);
    world.send(&late).is_problem(410, "outcome-expired", "yes", "never");
    world.pass_s(100);
    sweep(&mut world);
    assert_eq!(world.row("ahead", "state"), None);
    world.send(&ahead(world.wall_ms + 1000)).is_problem(412, "outside-window", "unknown", "never");
}

#[test]
fn deleting_a_record_cancels_a_suspect_expires_a_poisoned_id_and_leaves_other_tombstones() {
    let mut world = world();
    world.crashed(&change("suspect").first_sent_s(START_S));
    (0..3).for_each(|_| drop(world.crashed(&change("poisoned"))));
    world.send(&cancel("own", "cancelled"));
    world.send(&change("acknowledged").deadline_ms(START_MS));
    world.send(&acknowledge(&format!("[{{\"id\":\"acknowledged\",\"until\":{START_MS}}}]")));
    let lapses = world.row("acknowledged", "lapses_ms");
    for (id, state, executed) in [
        ("suspect", "cancelled", "no"),
        ("poisoned", "expired", "no"),
        ("cancelled", "cancelled", "unknown"),
        ("acknowledged", "acknowledged", "yes"),
    ] {
        let reply = world.send(&delete_record(&format!("delete {id}"), id));
        assert_eq!(reply.json(), json!({ "state": state, "executed": executed }), "{id}");
    }
    world.send(&change("suspect").first_sent_s(START_S)).is_problem(410, "cancelled", "no", "never");
    world.send(&change("poisoned")).is_problem(410, "outcome-expired", "no", "never");
    assert_eq!(world.row("acknowledged", "lapses_ms"), lapses);
    assert_eq!(world.calls(), 1);
}

#[test]
fn deleting_an_unknown_record_is_not_seen_and_is_not_recorded() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    world.send(&delete_record("own", "b")).is_problem(404, "not-seen", "unknown", "same-id");
    assert_eq!(world.rows(), 1);
    world.send(&change("b")).is_executed(200);
    world.send(&delete_record("own", "b")).is_executed(200);
}

#[test]
fn the_id_of_a_deletion_follows_the_rules_of_request_ids_deadline_replay_and_mismatch() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    world.send(&change("b")).is_executed(200);
    let without = ask("");
    assert_eq!(without.method(), &Method::Get);
    world.send(&delete_record("late", "a").deadline_ms(START_MS - 1)).is_problem(
        408,
        "attempt-expired",
        "no",
        "same-id",
    );
    world.send(&delete_record("own", "a")).is_executed(200);
    world.send(&delete_record("own", "a")).is_replayed(200);
    world.send(&delete_record("own", "b")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    world.send(&delete_key("own")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    world.send(&delete_key("a")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    assert_eq!(world.send(&change("b")).only("semel-status"), "replayed");
}

#[test]
fn a_deleted_key_keeps_only_its_fence_and_the_record_of_its_deletion_which_is_replayed() {
    let mut world = world();
    world.send(&change("a").first_sent_s(START_S)).is_executed(200);
    world.send(&change("b")).is_executed(200);
    world.send(&change("c").ack("b")).is_executed(200);
    world.pass_ms(1);
    let reply = world.send(&delete_key("own").first_sent_s(START_S).ack("a"));
    assert_eq!((reply.status(), reply.json()), (200, json!({ "state": "deleted", "fence": START_S + 1 })));
    assert_eq!(world.database.tables(), OWN_TABLES);
    for restarts in [false, true] {
        if restarts {
            world.restart();
        }
        let again = world.send(&delete_key("own").first_sent_s(START_S));
        assert_eq!((again.only("semel-status"), again.body()), ("replayed", reply.body()));
        let shown = world.send(&ask("")).json();
        assert_eq!((&shown["records"], &shown["tombstones"]), (&json!(1), &json!(0)));
        assert_eq!((&shown["fence"], &shown["forgottenBefore"]), (&json!(START_S + 1), &json!(START_S)));
    }
    assert_eq!(world.rows(), 1);
    assert_eq!(world.database.number("SELECT count(*) FROM semel_texts WHERE text = 'alice'"), 0, "nor whose it was");
}

#[test]
fn after_the_deletion_of_a_key_an_id_that_ran_before_with_a_first_sent_is_forgotten() {
    for restarts in [false, true] {
        let mut world = world();
        let (ahead_s, old_s) = (START_S + 100, START_S - 10);
        for (id, first_sent_s) in [("old", old_s), ("now", START_S), ("ahead", ahead_s)] {
            world.send(&change(id).first_sent_s(first_sent_s)).is_executed(200);
        }
        world.send(&delete_key("own")).is_executed(200);
        if restarts {
            world.restart();
        }
        // The administrator has moved the fence, so the code is the same in the second of the deletion and ahead of the clock.
        for (id, first_sent_s) in [("old", old_s), ("now", START_S), ("ahead", ahead_s)] {
            world.send(&change(id).first_sent_s(first_sent_s)).is_problem(410, "forgotten", "unknown", "never");
        }
        assert_eq!(world.effects(), 0);
        world.send(&change("new").first_sent_s(ahead_s + 1)).is_executed(200);
        // Nothing protects an id without first-sent.
        world.send(&change("without")).is_executed(200);
        assert_eq!(world.effects(), 2, "the handler's tables come anew");
        // From the instant on at which age alone has moved the fence past it, the code says so.
        world.pass_s(RETENTION_S + 100);
        world.send(&change("ahead").first_sent_s(ahead_s)).is_problem(410, "forgotten", "unknown", "never");
        world.pass_s(1);
        world.send(&change("ahead").first_sent_s(ahead_s)).is_problem(412, "outside-window", "unknown", "never");
    }
}

#[test]
fn a_record_made_after_the_deletion_of_its_key_lives_a_retention_though_the_fence_is_ahead() {
    // The fence is ahead of the clock here.
    let mut world = world();
    world.send(&change("ahead").first_sent_s(START_S + 120)).is_executed(200);
    world.send(&delete_key("own").first_sent_s(START_S)).is_executed(200);
    world.send(&change("without")).is_executed(200);
    world.pass_s(60);
    sweep(&mut world);
    world.send(&change("without")).is_replayed(200);
    world.send(&delete_key("own").first_sent_s(START_S)).is_replayed(200);
    world.pass_s(RETENTION_S - 60);
    sweep(&mut world);
    world.send(&change("without")).is_replayed(200);
    world.send(&delete_key("own").first_sent_s(START_S)).is_replayed(200);
}

#[test]
fn after_the_deletion_of_a_key_its_ids_are_not_seen_and_a_read_sees_an_empty_key() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    world.send(&delete_key("own")).is_executed(200);
    world.send(&look_up("a")).is_problem(404, "not-seen", "unknown", "same-id");
    // The read counts the effect that it writes itself.
    assert_eq!(world.send(&get("/count")).text(), "{\"count\":1}");
    assert_eq!(world.database.tables(), OWN_TABLES);
}

#[test]
fn at_a_full_key_an_administrator_can_delete_a_record_and_the_key() {
    let mut world = World::with(|config| (config.records_max, config.tombstones_max) = (1, 1));
    world.send(&change("a")).is_executed(200);
    world.send(&change("b")).is_problem(503, "capacity", "no", "same-id");
    world.send(&delete_record("one", "a")).is_executed(200);
    world.send(&change("b")).is_problem(503, "capacity", "no", "same-id");
    world.send(&delete_key("two")).is_executed(200);
    world.send(&acknowledge("[\"two\"]"));
    let mut other = World::with(|config| config.bytes_max = 1);
    other.send(&change("a")).is_problem(503, "capacity", "no", "same-id");
}

#[test]
fn the_deletion_of_a_key_that_succeeds_after_a_crash_leaves_the_right_counts() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    world.crashed(&delete_key("own"));
    world.send(&delete_key("own")).is_executed(200);
    let count = world.count().expect("storage");
    world.restart();
    assert_eq!(world.count(), Ok(count));
    assert_eq!((count.records, count.tombstones), (1, 0));
}

/// Tables that refer to each other, a virtual one, a view, an index and a trigger.
struct Tangled;

impl Handler for Tangled {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _: &Method, _: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        for statement in [
            "CREATE TABLE one (id INTEGER PRIMARY KEY, other INTEGER REFERENCES two (id) DEFERRABLE INITIALLY DEFERRED)",
            "CREATE TABLE two (id INTEGER PRIMARY KEY AUTOINCREMENT, other INTEGER REFERENCES one (id))",
            "CREATE TABLE \"a \"\"quoted\"\" name\" (id INTEGER REFERENCES two (id))",
            "CREATE TABLE three (id INTEGER PRIMARY KEY, other INTEGER REFERENCES four (id))",
            "CREATE TABLE four (id INTEGER PRIMARY KEY, other INTEGER REFERENCES three (id))",
            "CREATE INDEX by_other ON one (other)",
            "CREATE VIEW both AS SELECT * FROM one JOIN two",
            "CREATE TRIGGER after_one AFTER DELETE ON one BEGIN INSERT INTO two VALUES (NULL, 7); END",
            "CREATE VIRTUAL TABLE words USING fts5 (word)",
            "CREATE TABLE semel_words (word)",
        ] {
            sql.exec(statement, &[])?;
        }
        Ok(())
    }

    fn handle(&self, context: &mut Context<'_>, _: &Request) -> Result<Response, Failure> {
        for statement in [
            "INSERT INTO one VALUES (1, 1)",
            "INSERT INTO two VALUES (1, 1)",
            "INSERT INTO \"a \"\"quoted\"\" name\" VALUES (1)",
            "INSERT INTO three VALUES (1, NULL)",
            "INSERT INTO four VALUES (1, 1)",
            "UPDATE three SET other = 1",
            "INSERT INTO words VALUES ('word')",
            "INSERT INTO semel_words VALUES ('word')",
        ] {
            context.sql.exec(statement, &[])?;
        }
        Ok(Response { status: 200, headers: Headers::new(), body: Vec::new() })
    }
}

#[test]
fn the_deletion_of_a_key_drops_every_kind_of_table_of_the_handler_and_they_are_made_again() {
    let mut world = World::of(Tangled, Config { open: true, ..Config::default() });
    world.database.exec("PRAGMA foreign_keys = ON", &[]).expect("a pragma");
    world.send(&change("a")).is_executed(200);
    world.send(&delete_key("own")).is_executed(200);
    let left = "SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'semel_%' AND name NOT LIKE 'sqlite_%'";
    assert_eq!(world.database.number(left), 0);
    world.send(&change("b")).is_executed(200);
    world.send(&delete_key("again")).is_executed(200);
    assert_eq!(world.database.number(left), 0);
}

#[test]
fn after_the_deletion_of_a_key_repeated_texts_are_stored_as_numbers_again() {
    let mut world = world();
    for id in ["a", "b"] {
        world.send(&post("/count").id(id)).is_executed(200);
    }
    let kind = |world: &World, id: &str| world.row(id, "typeof(principal) || ' ' || typeof(headers)");
    assert_eq!(kind(&world, "b"), Some("integer integer".into()));
    world.send(&delete_key("delete")).is_executed(200);
    for id in ["c", "d"] {
        world.send(&post("/count").id(id).first_sent_s(world.wall_ms / 1000 + 1)).is_executed(200);
    }
    assert_eq!(kind(&world, "d"), Some("integer integer".into()));
}

#[test]
fn a_deletion_moves_the_fence_past_its_second_and_past_all_it_deletes_and_never_back() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    world.pass_ms(500);
    world.send(&delete_key("d")).is_executed(200);
    world.send(&change("late").first_sent_s(START_S)).is_problem(410, "forgotten", "unknown", "never");
    // A client's clock is ahead. What it has sent is refused, whatever is deleted next.
    let ahead = change("ahead").first_sent_s(START_S + 60);
    world.send(&ahead).is_executed(200);
    for own in ["e", "f"] {
        let reply = world.send(&delete_key(own));
        assert_eq!(reply.json()["fence"], START_S + 61);
        world.send(&ahead).is_problem(410, "forgotten", "unknown", "never");
    }
    assert_eq!(world.effects(), 0);
}
