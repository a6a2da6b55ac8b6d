//! *Retention and capacity of a key*, as its rule sets them: a test for each sentence of the protocol.

use semel_core::server::config::FOREVER_S;
use semel_core::server::config::key_rules::KeyRules;
use semel_support::admin::ask;
use semel_support::{Call, START_MS, START_S, World, acknowledge, cancel, get, numbered, post};

const YEARS_S: i64 = 150 * 366 * 86_400;

fn change(id: &str) -> Call {
    post("/count").id(id)
}

/// The key under test, `counters/1`, with these rules.
fn ruled(rules: &str) -> World {
    World::with(|config| {
        config.retention_s = 1000;
        config.key_rules = KeyRules::parse(rules).expect("rules");
    })
}

fn forever() -> World {
    World::with(|config| config.retention_s = FOREVER_S)
}

/// Makes a new object, which sweeps with its first request.
fn sweep(world: &mut World) {
    world.restart();
    world.send(&get("/count"));
}

#[test]
fn a_key_rule_sets_the_retention_of_its_keys() {
    let mut world = ruled("[{\"keys\":\"counters/*\",\"retentionSeconds\":5000}]");
    let request = |id: &str| change(id).first_sent_s(START_S);
    let expires_s = world.send(&request("a")).expires_s();
    assert_eq!(expires_s, START_S + 5000);
    world.pass_s(5000);
    sweep(&mut world);
    assert_eq!(world.send(&request("a")).only("semel-status"), "replayed");
    assert_eq!(world.send(&request("b")).only("semel-status"), "executed");
    world.pass_s(1);
    assert_eq!(world.send(&request("c")).only("semel-status"), "outside-window");
}

#[test]
fn a_key_rule_for_other_keys_changes_nothing() {
    let mut world = ruled("[{\"keys\":\"counters/2\",\"recordsMax\":1},{\"keys\":\"counters/10*\",\"recordsMax\":1}]");
    world.send(&change("a")).is_executed(200);
    let expires_s = world.send(&change("b")).expires_s();
    assert_eq!(expires_s, START_S + 1000);
}

#[test]
fn an_object_that_does_not_know_its_key_yet_does_not_move_the_fence_by_age() {
    let mut world = ruled("[{\"keys\":\"counters/1\",\"retentionSeconds\":\"forever\"}]");
    world.send(&change("a").first_sent_s(START_S)).is_executed(200);
    world.pass_s(5000);
    world.restart();
    world.count().expect("storage");
    world.forget(START_S - 1).expect("storage");
    world.send(&change("b").first_sent_s(START_S)).is_executed(200);
    world.send(&change("c").first_sent_s(START_S - 2)).is_problem(410, "forgotten", "unknown", "never");
}

#[test]
fn rows_counted_before_the_key_is_known_leave_by_the_retention_of_the_key() {
    let mut world = World::ruled(10_000, "1000").in_session();
    world.send(&change("a").first_sent_s(START_S)).is_executed(200);
    world.send(&numbered(1, 1)).is_executed(200);
    // The tables of an older build have no key name.
    world.database.tamper("UPDATE semel_meta SET key = NULL");
    world.restart();
    world.count().expect("storage");
    world.pass_s(1001);
    world.send(&get("/count")).is_read(200);
    assert_eq!((world.row("a", "id"), world.places()), (None, vec![]));
}

#[test]
fn each_limit_of_a_key_rule_refuses_with_capacity_and_names_the_limit() {
    for (rules, limit) in [
        ("[{\"keys\":\"counters/1\",\"recordsMax\":1}]", "the key keeps 1 unacknowledged records"),
        ("[{\"keys\":\"counters/1\",\"tombstonesMax\":1}]", "the key keeps 1 tombstones"),
        ("[{\"keys\":\"counters/1\",\"bytesMax\":8192}]", "the key's database has 8192 bytes"),
    ] {
        let mut world = ruled(rules);
        world.send(&cancel("own", "cancelled")).is_executed(200);
        let (calls, rows) = (world.calls(), world.rows());
        for call in [change("a"), cancel("another", "b")] {
            let refusal = world.send(&call);
            refusal.is_problem(503, "capacity", "no", "same-id");
            assert!(refusal.field("detail").starts_with(limit), "{}", refusal.field("detail"));
        }
        assert_eq!((world.calls(), world.rows()), (calls, rows), "nothing ran, nothing was evicted: {limit}");
        // What already has its place keeps it.
        assert_eq!(world.send(&cancel("own", "cancelled")).only("semel-status"), "replayed");
        world.send(&get("/count")).is_read(200);
    }
}

#[test]
fn a_database_full_of_the_handlers_rows_refuses_changes_until_it_shrinks() {
    let mut world = World::with(|config| config.bytes_max = 400_000);
    world.send(&change("a")).is_executed(200);
    filled(&world, 500);
    world.send(&change("b")).is_problem(503, "capacity", "no", "same-id");
    world.start(&change("b"));
    assert_eq!(world.rows(), 1, "what is refused is no suspect");
    world.send(&change("a")).is_replayed(200);
    world.database.tamper("DELETE FROM effects");
    world.send(&change("b")).is_executed(200);
}

/// Fills the handler's tables with this many KB.
fn filled(world: &World, kilobytes: u32) {
    let rows = format!("WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {kilobytes})");
    world.database.tamper(&format!("{rows} INSERT INTO effects (id) SELECT hex(randomblob(500)) FROM n"));
}

#[test]
fn the_database_size_is_not_asked_for_while_possible_writes_leave_half_of_the_limit_free() {
    // Half of the limit is 9 MiB: room for two requests of 4 MiB each, and a little more.
    let mut world = World::with(|config| config.bytes_max = 2 * (9 << 20));
    world.send(&change("a")).is_executed(200);
    filled(&world, 20_000);
    for n in 0..2 {
        world.send(&change(&format!("unasked {n}"))).is_executed(200);
    }
    world.send(&change("b")).is_problem(503, "capacity", "no", "same-id");
}

#[test]
fn a_key_full_by_bytes_sweeps_while_it_refuses_a_change_so_that_the_next_fits() {
    // Only the key's own records take up the room, and they may leave.
    let mut world = World::with(|config| (config.retention_s, config.bytes_max) = (1000, 1_500_000));
    for n in 0..3 {
        world.send(&post("/large/700000").id(&format!("large {n}")).first_sent_s(START_S));
    }
    world.pass_s(1001);
    world.restart();
    world.send(&change("a")).is_problem(503, "capacity", "no", "same-id");
    world.send(&change("a")).is_executed(200);
}

#[test]
fn a_change_is_unavailable_if_the_storage_dies_at_its_first_statement() {
    let mut world = World::new();
    world.send(&change("a")).is_executed(200);
    world.database.crash_before(0);
    world.send(&change("b")).is_problem(503, "unavailable", "unknown", "same-id");
}

#[test]
fn with_retention_forever_age_moves_no_fence_and_no_outcome_expires() {
    let mut world = forever();
    let request = |id: &str| change(id).first_sent_s(START_S);
    let first = world.send(&request("a"));
    first.is_executed(200);
    assert_eq!(first.header("semel-expires"), None);
    world.send(&change("without")).is_executed(200);
    world.pass_s(YEARS_S);
    sweep(&mut world);
    for call in [request("a"), change("without")] {
        let again = world.send(&call);
        again.is_replayed(200);
        assert_eq!(again.header("semel-expires"), None);
    }
    world.send(&request("b")).is_executed(200);
    let shown = world.send(&ask("")).json();
    assert_eq!((shown["retentionSeconds"].as_i64(), shown["fence"].as_i64()), (None, Some(0)));
}

#[test]
fn with_retention_forever_tombstones_without_until_stay_and_those_with_one_lapse() {
    let mut world = forever();
    for id in ["bounded", "unbounded"] {
        world.send(&change(id).deadline_ms(START_MS)).is_executed(200);
    }
    world.send(&change("without")).is_executed(200);
    let until = format!("[{{\"id\":\"bounded\",\"until\":{START_MS}}},\"unbounded\",\"without\"]");
    world.send(&acknowledge(&until));
    assert_eq!(world.send(&ask("/records/unbounded")).json()["lapses"].as_i64(), None);
    world.pass_s(YEARS_S);
    sweep(&mut world);
    assert_eq!(world.row("bounded", "state"), None);
    for id in ["unbounded", "without"] {
        world.send(&change(id)).is_problem(410, "acknowledged", "yes", "never");
    }
}

#[test]
fn with_retention_forever_nothing_overflows_at_the_largest_instant() {
    let mut world = forever();
    world.wall_ms = semel_core::header::INSTANT_MAX;
    let now_s = world.wall_s();
    for (id, call) in [
        ("a", change("a").first_sent_s(now_s).deadline_ms(world.wall_ms)),
        ("b", change("b")),
        ("c", change("c").deadline_ms(world.wall_ms)),
    ] {
        world.send(&call).is_executed(200);
        world.send(&acknowledge(&format!("[{{\"id\":\"{id}\",\"until\":{}}}]", semel_core::header::INSTANT_MAX)));
        world.send(&call).is_problem(410, "acknowledged", "yes", "never");
        world.send(&change(id));
    }
    sweep(&mut world);
    assert_eq!(world.rows(), 3);
}

#[test]
fn with_retention_forever_a_key_can_still_be_told_to_forget() {
    let mut world = forever();
    world.send(&change("a").first_sent_s(START_S)).is_executed(200);
    world.pass_s(10);
    world.forget(START_S + 5).expect("storage");
    sweep(&mut world);
    world.send(&change("a").first_sent_s(START_S)).is_problem(410, "forgotten", "unknown", "never");
    world.send(&change("b").first_sent_s(START_S + 5)).is_executed(200);
}
