//! Tables of every version can be opened, and answer as before. Those of each version are in `tests/engine/fixtures/`, as the
//! build of its time left them.
//!
//! To make the fixture of a new version:
//! `SEMEL_FIXTURE=tests/engine/fixtures/version-N.sql cargo test -p semel-engine-tests --test upgrades`. The fixture of a
//! released version never changes.

use semel_core::server::storage::schema::SCHEMA_VERSION;
use semel_support::*;

const RETENTION_S: i64 = 1000;
const VERSIONS: [&str; 5] = [
    include_str!("../fixtures/version-1.sql"),
    include_str!("../fixtures/version-2.sql"),
    include_str!("../fixtures/version-3.sql"),
    include_str!("../fixtures/version-4.sql"),
    include_str!("../fixtures/version-5.sql"),
];
/// The first version with sessions.
const WITH_SESSIONS: i64 = 3;
/// A limit, because people read what is committed.
const FIXTURE_BYTES_MAX: usize = 16_384;

fn world() -> World {
    World::with(|config| config.retention_s = RETENTION_S)
}

/// A call with a first-sent and a deadline, in s after the start.
fn sent(id: &str, first_sent_s: i64, by_s: i64) -> Call {
    post("/count").id(id).first_sent_s(START_S + first_sent_s).deadline_ms(START_MS + by_s * 1000)
}

/// A key with a record in every state and, from the version that introduced them, with sessions.
fn play(version: i64) -> World {
    let mut world = play_records();
    if version < WITH_SESSIONS {
        return world;
    }
    world.send(&take_over("takes over")).is_taken_over(1, 0);
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&cancel_place("closes", 1, 2)).is_executed(200);
    world.send(&take_over("takes over again")).is_taken_over(2, 2);
    world.send(&post("/count").place_acking(2, 3, 1)).is_executed(200);
    (0..3).for_each(|_| drop(world.crashed(&numbered(2, 4))));
    world.crashed(&numbered(2, 5));
    world.send(&take_over_with("takes over another", "{\"name\":\"acknowledged\"}")).is_taken_over(3, 0);
    let of_another = |seq: i64, ack: i64| {
        let place = format!("\"acknowledged\";epoch=3;seq={seq};ack={ack}");
        post("/count").header("semel-session", place)
    };
    world.send(&of_another(1, 0)).is_executed(200);
    world.send(&of_another(3, 2)).is_gap(2);
    world
}

/// A key with a record in every state.
fn play_records() -> World {
    let mut world = world();
    world.send(&post("/count").id("expired")).is_executed(200);
    world.send(&cancel("cancels lapsing", "lapsing")).is_executed(200);
    world.pass_s(RETENTION_S + 1);
    world.restart();
    world.send(&get("/count"));
    let later = RETENTION_S + 1;
    for id in ["executed", "8e03978e-40d5-43dd-bc93-6894a57f9324"] {
        world.send(&sent(id, later, later + 50)).is_executed(200);
    }
    world.send(&post("/count").id("unbounded").by("")).is_executed(200);
    (0..3).for_each(|_| drop(world.crashed(&sent("poisoned", later, later + 50))));
    world.crashed(&sent("suspect", later, later + 50));
    world.start(&sent("started", later, later + 50));
    world.send(
        &cancel("cancels", "cancelled").body(format!("{{\"id\":\"cancelled\",\"firstSent\":{}}}", START_S + later)),
    );
    let until_ms = START_MS + (later + 50) * 1000;
    for id in ["acknowledged", "without until", "with the next", "chunk-1", "chunk-2", "chunk-3"] {
        world.send(&sent(id, later, later + 50)).is_executed(200);
    }
    world.send(&get("/count").ack("without until").ack_until("acknowledged", until_ms));
    world.send(&sent("the next", later, later + 50).ack_until("with the next", until_ms)).is_executed(200);
    let chunk = |n: i64| format!("{{\"id\":\"chunk-{n}\",\"until\":{until_ms}}}");
    world.send(&acknowledge(&format!("[{},{},{}]", chunk(1), chunk(2), chunk(3))));
    world
}

/// What a database holds, as statements that create it.
fn dump(world: &World) -> String {
    let mut script = String::new();
    let text = |value: &semel_core::server::Value| value.clone().into_text().unwrap_or_default();
    for table in world.database.query("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name") {
        let name = text(&table[0]);
        script.push_str(&format!("{};\n\n", text(&table[1])));
        let columns = world.database.query(&format!("SELECT name FROM pragma_table_info('{name}')"));
        let quoted: Vec<String> = columns.iter().map(|column| format!("quote({})", text(&column[0]))).collect();
        let statement = format!("SELECT {} FROM {name} ORDER BY 1", quoted.join(" || ', ' || "));
        for row in world.database.query(&statement) {
            script.push_str(&format!("INSERT INTO {name} VALUES ({});\n\n", text(&row[0])));
        }
    }
    script
}

#[test]
fn the_tables_of_this_schema_version_equal_its_fixture() {
    let found = dump(&play(SCHEMA_VERSION));
    if let Ok(path) = std::env::var("SEMEL_FIXTURE") {
        std::fs::write(format!("../../{path}"), &found).expect("a fixture");
    }
    assert_eq!(found, VERSIONS[VERSIONS.len() - 1], "what lies on disk has changed, and not its version");
}

/// A key as a build of that version left it, at the instant at which [`play`] ends.
fn open(fixture: &str) -> World {
    let mut world = world();
    world.database.fill(fixture);
    world.pass_s(RETENTION_S + 1);
    world
}

/// Everything that can be asked about what is there.
fn calls(version: i64) -> Vec<Call> {
    let later = RETENTION_S + 1;
    let ids = [
        "expired",
        "lapsing",
        "executed",
        "8e03978e-40d5-43dd-bc93-6894a57f9324",
        "poisoned",
        "cancelled",
        "acknowledged",
        "without until",
        "with the next",
        "chunk-1",
        "chunk-2",
        "chunk-3",
        "the next",
    ];
    let mut calls = vec![get("/count"), post("/count").id("unbounded"), look_up("suspect"), look_up("nobody")];
    for id in ids {
        calls.extend([
            look_up(id),
            look_up(id).by("mallory"),
            sent(id, later, later + 50),
            sent(id, later, later + 90),
        ]);
        calls.extend([sent(id, later, later + 50).body("other"), sent(id, later, later + 50).by("mallory")]);
        calls.push(cancel(&format!("cancels {id} again"), id));
    }
    calls.extend(["suspect", "started", "new"].map(|id| sent(id, later, later + 50)));
    calls.push(sent("of old", 0, later + 50));
    if version >= WITH_SESSIONS {
        calls.extend((1..=7).flat_map(|seq| (1..=4).map(move |epoch| numbered(epoch, seq))));
        let another = "\"acknowledged\";epoch=3;seq=1";
        calls.push(post("/count").header("semel-session", another));
        calls.push(take_over("takes over"));
    }
    calls
}

/// The answers of a key, now and as time passes, and in new objects.
fn answers(world: &mut World, version: i64) -> Vec<Reply> {
    let mut answers = Vec::new();
    for (pass_s, restarts) in
        [(0, false), (0, true), (55, false), (70, true), (RETENTION_S, true), (RETENTION_S, false)]
    {
        world.pass_s(pass_s);
        if restarts {
            world.restart();
        }
        answers.extend(calls(version).iter().map(|call| world.send(call)));
    }
    answers
}

#[test]
fn a_key_with_the_tables_of_any_version_answers_counts_and_lapses_as_one_of_this_version() {
    for (version, fixture) in (1..).zip(VERSIONS) {
        let mut now = play(version);
        let expected = answers(&mut now, version);
        assert!(fixture.len() < FIXTURE_BYTES_MAX);
        let mut world = open(fixture);
        let found = answers(&mut world, version);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "of version {version}");
        }
        assert_eq!(world.database.number("SELECT engine_version FROM semel_meta"), SCHEMA_VERSION);
        assert_eq!((world.effects(), world.count()), (now.effects(), now.count()));
    }
}

#[test]
fn an_upgrade_that_crashes_at_any_statement_leaves_the_old_tables_or_the_new_ones() {
    let upgraded = |world: &World| world.database.number("SELECT engine_version FROM semel_meta") == SCHEMA_VERSION;
    for fixture in &VERSIONS[..VERSIONS.len() - 1] {
        let mut whole = open(fixture);
        let before = dump(&whole);
        whole.send(&look_up("nobody"));
        let after = dump(&whole);
        let (mut crashes, mut old) = (0, 0);
        loop {
            let mut world = open(fixture);
            world.database.crash_before(crashes);
            let reply = world.send(&look_up("nobody"));
            if !world.database.has_crashed() {
                break;
            }
            reply.is_problem(503, "unavailable", "unknown", "same-id");
            world.restart();
            if upgraded(&world) {
                assert_eq!(dump(&world), after, "crash {crashes}");
            } else {
                assert_eq!(dump(&world), before, "crash {crashes}");
                old += 1;
            }
            world.send(&look_up("nobody"));
            assert_eq!(dump(&world), after, "crash {crashes}");
            crashes += 1;
        }
        assert!(old >= 6 && crashes > old, "{old} of {crashes} crashes were before the commit");
    }
}

/// A handler that has changed its tables may have left them: SQLite looks at them when a table is renamed.
#[test]
fn a_key_is_upgraded_though_a_view_and_a_trigger_of_its_handler_ask_for_tables_that_are_gone() {
    for (version, fixture) in (1..).zip(VERSIONS) {
        let left = "CREATE TABLE old (n INTEGER);\n\nCREATE VIEW lost AS SELECT n FROM gone;\n\n\
             CREATE TRIGGER fails AFTER INSERT ON old BEGIN INSERT INTO gone VALUES (1); END;\n\n";
        let mut world = open(&[fixture, left].concat());
        assert_eq!(world.send(&look_up("executed")).only("semel-status"), "replayed", "of version {version}");
    }
}

#[test]
fn a_request_whose_upgrade_fails_is_unavailable_and_the_next_one_upgrades_the_tables() {
    for n in 0..14 {
        let mut world = open(VERSIONS[0]);
        world.database.fail(n);
        let reply = world.send(&look_up("executed"));
        assert_eq!(reply.status(), 503, "{n}: {reply:?}");
        assert_eq!(world.send(&look_up("executed")).only("semel-status"), "replayed", "{n}");
    }
}
