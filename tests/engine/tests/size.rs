//! How much a key keeps and what it costs to keep it: bytes, written rows, and what one request has to wait for.
//!
//! `SEMEL_REQUESTS=1000000 cargo test --release -p semel-engine-tests --test size -- --nocapture` runs with a million requests,
//! and prints what it measured.

use semel_ledger::Ledger;
use semel_support::*;
use std::time::Instant;

/// How many requests a test makes, unless the environment says otherwise.
fn requests(default: i64) -> i64 {
    std::env::var("SEMEL_REQUESTS").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

const PRINCIPAL: &str = "7d9f2ac3-58c4-4ea0-9d2c-0f1b8d6a3e57";

/// The size of the database, as the object would be told.
fn bytes<H: semel_core::server::Handler>(world: &World<H>) -> i64 {
    let number = |statement: &str| world.database.number(statement);
    (number("PRAGMA page_count") - number("PRAGMA freelist_count")) * number("PRAGMA page_size")
}

fn ledger() -> World<Ledger> {
    World::of(Ledger, semel_core::server::Config { open: true, records_max: 10_000_000, ..Default::default() })
}

fn deposit<H>(world: &World<H>, n: i64) -> Call {
    let call = post("/accounts/alice/deposit").id(&uuid(n)).body("{\"amount\":1}").by(PRINCIPAL);
    call.first_sent_s(world.wall_ms / 1000).deadline_ms(world.wall_ms + 30_000)
}

#[test]
fn a_record_takes_less_than_150_bytes_besides_its_outcome() {
    let mut world = ledger();
    world.send(&deposit(&world, 0)).is_executed(200);
    let before = bytes(&world);
    let count = requests(20_000).min(100_000);
    for n in 1..=count {
        world.wall_ms += 10;
        world.send(&deposit(&world, n)).is_executed(200);
    }
    let bodies = world.database.number("SELECT sum(length(body)) FROM semel_records");
    let headers = world.database.number("SELECT max(length(text)) FROM semel_texts WHERE text LIKE 'c%:%'");
    assert!(headers > 40, "{headers}");
    // The status is three digits.
    let outcome = bodies as f64 / count as f64 + headers as f64 + 3.0;
    let record = (bytes(&world) - before) as f64 / count as f64;
    println!("a record takes {record:.0} bytes, its outcome of {outcome:.0} among them");
    assert!(record - outcome < 150.0, "{record} bytes, of which {outcome} are the outcome");
    // Most of this is because principals and headers that come again are kept once.
    assert!(record < 150.0 + bodies as f64 / count as f64, "{record}");
}

#[test]
fn a_long_header_text_is_stored_in_each_record_and_not_as_a_shared_text() {
    let mut world = World::new();
    for n in 0..3 {
        // The first request has no desk, and writes its row by itself. The others have one.
        world.send(&post("/large-header/250").id(&n.to_string())).is_executed(200);
    }
    assert_eq!(world.database.number("SELECT count(*) FROM semel_texts WHERE length(text) > 256"), 0);
    assert_eq!(world.database.number("SELECT count(*) FROM semel_records WHERE length(headers) > 256"), 3);
}

#[test]
fn nothing_stays_of_requests_that_are_acknowledged() {
    let mut world = ledger();
    let count = requests(100_000);
    let (mut largest, started) = (0, Instant::now());
    for n in 0..count {
        world.wall_ms += 10;
        let call = deposit(&world, n);
        let call = if n == 0 { call } else { call.ack_until(&uuid(n - 1), world.wall_ms + 30_000) };
        world.send(&call).is_executed(200);
        if n % 10_000 == 0 {
            largest = largest.max(bytes(&world));
        }
    }
    let took = started.elapsed();
    world.send(
        &post("/semel/v1/keys/counters%2F1/acks").body(format!("{{\"ids\":[\"{}\"]}}", uuid(count - 1))).by(PRINCIPAL),
    );
    world.pass_s(100_000);
    // Each request sweeps a page of chunks.
    while world.database.number("SELECT count(*) FROM semel_tombstones") > 0 {
        world.send(&get("/accounts/alice"));
    }
    let left = bytes(&world);
    println!("{count} requests in {took:?}: {largest} bytes at most, {left} in the end, the ledger's among them");
    assert_eq!(world.rows(), 0);
    assert!(left < 100_000, "{left} bytes are left");
    assert_eq!(world.count().expect("a count").tombstones, 0);
}

/// How many rows are written for each of `count` requests, without the handler's, until nothing of them is left.
fn rows_written(count: i64, acks: impl Fn(i64) -> Vec<i64>) -> f64 {
    let mut world = World::new();
    let change = |world: &World, n: i64| {
        let call = post("/count").id(&uuid(n)).first_sent_s(world.wall_ms / 1000);
        call.deadline_ms(world.wall_ms + 30_000)
    };
    // The tables exist, and the texts have their numbers.
    let first = change(&world, count);
    world.send(&first).is_executed(200);
    let before = (world.database.rows_written(), world.effects());
    for n in 0..count {
        world.wall_ms += 10;
        let until_ms = world.wall_ms + 30_000;
        let call = acks(n).into_iter().fold(change(&world, n), |call, acked| call.ack_until(&uuid(acked), until_ms));
        world.send(&call).is_executed(200);
    }
    world.pass_s(1_000);
    while world.database.number("SELECT count(*) FROM semel_tombstones") > 0 {
        world.send(&get("/count"));
    }
    let own = world.effects() - before.1;
    (world.database.rows_written() - before.0) as f64 / count as f64 - own as f64 / count as f64
}

#[test]
fn a_request_that_is_acknowledged_writes_about_one_row_in_its_life() {
    let each = rows_written(3_000, |n| if n > 0 { vec![n - 1] } else { Vec::new() });
    let many = rows_written(6_400, |n| if n > 0 && n % 64 == 0 { (n - 64..n).collect() } else { Vec::new() });
    println!("{each:.3} rows a request with an acknowledgement on each, {many:.3} with 64 at once");
    assert!((1.0..1.1).contains(&each), "{each}");
    assert!((1.9..2.1).contains(&many), "{many}");
}

/// A key with this many records, due or not. They are written behind the engine's back, which is faster.
fn crowded(count: i64, first_sent_s: i64) -> World {
    let mut world = World::with(|config| config.records_max = 10_000_000);
    world.send(&post("/count").id("first").first_sent_s(START_S)).is_executed(200);
    world.database.fill(&format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) \
         INSERT INTO semel_records (id, state, at_ms, first_sent_s, deadline_ms, principal, fingerprint, status, headers, body) \
         SELECT lower(hex(randomblob(16))), 1, {first_sent_s} * 1000, {first_sent_s}, {first_sent_s} * 1000 + 30000, 1, \
         randomblob(32), 200, 2, randomblob(40) FROM numbers"
    ));
    world
}

/// What the reads took that swept everything.
#[derive(Debug, Default)]
struct Swept {
    reads: i64,
    /// The most of a single read: statements, steps of SQLite's virtual machine, rows that left, and seconds.
    statements: u64,
    steps: u64,
    rows: i64,
    longest_s: f64,
}

/// Sends reads until nothing is left to sweep.
fn swept(world: &mut World) -> Swept {
    let mut swept = Swept::default();
    let mut rows = world.rows();
    while rows > 0 {
        let (statements, steps) = (world.database.statements(), world.database.steps());
        let started = Instant::now();
        world.send(&get("/count"));
        swept.longest_s = swept.longest_s.max(started.elapsed().as_secs_f64());
        swept.statements = swept.statements.max(world.database.statements() - statements);
        swept.steps = swept.steps.max(world.database.steps() - steps);
        let left = world.rows();
        swept.rows = swept.rows.max(rows - left);
        swept.reads += 1;
        rows = left;
    }
    swept
}

#[test]
fn no_request_sweeps_more_than_a_page_of_many_records_that_are_due_at_once() {
    let count = requests(10_000);
    let mut world = crowded(count, START_S);
    world.pass_s(86_402);
    world.restart();
    let started = Instant::now();
    world.count().expect("a count");
    let load = started.elapsed();
    let swept = swept(&mut world);
    println!("{count} due at once: counted in {load:?}, gone in {swept:?}");
    assert!(swept.reads <= count / 64 + 2, "{swept:?}");
    assert!(swept.rows <= 64 && swept.statements <= 12 && swept.steps <= 3_000, "{swept:?}");
}

#[test]
fn many_records_that_are_not_due_cost_a_request_nothing() {
    let count = requests(10_000);
    let mut world = crowded(count, START_S);
    world.pass_s(86_000);
    world.restart();
    let started = Instant::now();
    world.send(&get("/count"));
    let load = started.elapsed();
    let started = Instant::now();
    for _ in 0..200 {
        let (statements, steps) = (world.database.statements(), world.database.steps());
        world.send(&get("/count"));
        let steps = world.database.steps() - steps;
        assert!(world.database.statements() - statements <= 4 && steps <= 200, "{steps} steps");
    }
    println!("{count} not due: the first read takes {load:?}, each that follows {:?}", started.elapsed() / 200);
}
