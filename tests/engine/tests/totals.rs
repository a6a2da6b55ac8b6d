//! The totals of many rows are kept, so that an object that starts need not count them. They are never kept past a change.

use semel_core::server::Value;
use semel_core::server::engine::chores::TOTALS_ROWS_MIN;
use semel_core::server::engine::opening::PAGE_ROWS;
use semel_support::*;

/// Something that is done to a key.
type Act = fn(&mut World);

const RETENTION_S: i64 = 1_000;
const UNTIL_MS: i64 = START_MS + 30_000;

fn change(id: &str) -> Call {
    post("/count").id(id).first_sent_s(START_S).deadline_ms(UNTIL_MS)
}

/// A key with many rows, written behind the engine's back, that has been woken.
fn crowded() -> World {
    let mut world = World::with(|config| config.retention_s = RETENTION_S);
    for id in ["first", "second", "third"] {
        world.send(&change(id)).is_executed(200);
    }
    world.database.fill(&format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {TOTALS_ROWS_MIN}) \
         INSERT INTO semel_records (id, state, at_ms, first_sent_s, deadline_ms, principal, fingerprint, status, headers, body) \
         SELECT 'n' || n, 1, {START_MS}, {START_S}, {UNTIL_MS}, 'alice', randomblob(32), 200, '', x'' FROM numbers"
    ));
    world.restart();
    world.wake().expect("it wakes");
    world
}

/// Compares the kept totals with the rows, if there are any. Returns whether there are.
#[track_caller]
fn is_kept(world: &World) -> bool {
    let kept = world.database.query("SELECT rows, records, clock_ms, oldest_ms, due_ms FROM semel_totals");
    let Some(kept) = kept.first() else { return false };
    let kept: Vec<i64> = kept.iter().map(|value| value.as_integer().expect("a number")).collect();
    let number = |what: &str| world.database.number(&format!("SELECT {what} FROM semel_records"));
    assert_eq!(kept[..2], [number("count(*)"), number("sum(state IN (1, 2, 4))")]);
    assert!(kept[2] >= number("max(at_ms)") && kept[3] <= number("min(at_ms)"), "{kept:?}");
    assert!(kept[4] <= (number("min(max(first_sent_s, at_ms / 1000))") + RETENTION_S + 1) * 1000, "{kept:?}");
    true
}

#[test]
fn a_new_object_takes_the_kept_totals_and_counts_no_rows() {
    let mut world = crowded();
    assert!(is_kept(&world));
    let counted = world.count().expect("a count");
    assert_eq!(counted.records, TOTALS_ROWS_MIN + 3);
    // A count of the rows would find one less.
    world.database.tamper("DELETE FROM semel_records WHERE id = 'n1'");
    world.restart();
    assert_eq!(world.count().expect("a count"), counted);
    assert_eq!(world.wakes_at_without_registry(), Some((START_S + RETENTION_S + 1) * 1000));
}

/// A key without kept totals: it has many records, some of which carry packed tombstones, and chunks.
fn uncounted() -> World {
    let mut world = crowded();
    world.send(&change("carries").ack_until("first", UNTIL_MS)).is_executed(200);
    let ids: Vec<String> = (0..3).map(|n| format!("n{}", n + 1)).collect();
    world.send(&ids.iter().fold(get("/count"), |call, id| call.ack_until(id, UNTIL_MS)));
    world.send(&cancel("cancels", "never"));
    assert!(!is_kept(&world));
    world.restart();
    world
}

#[test]
fn a_new_object_counts_its_rows_in_bounded_pages_with_the_same_result_as_at_once() {
    let mut at_once = uncounted();
    let counted = at_once.count().expect("a count");
    let mut paged = uncounted();
    let mut pages = 1;
    while paged.open().expect("a page") {
        pages += 1;
    }
    // A page may have no rows: the last of the records, and that of the chunks.
    let rows = counted.records + counted.tombstones;
    assert!(pages <= rows / PAGE_ROWS + 4, "{pages} pages of {rows} rows");
    // Whatever the constant says, a request that waits meanwhile doesn't wait for more rows at a time.
    assert!(pages >= rows / 1_500, "{pages} pages of {rows} rows");
    assert!(!paged.open().expect("nothing more"));
    assert_eq!(paged.count().expect("a count"), counted);
    assert_eq!(paged.wakes_at_without_registry(), at_once.wakes_at_without_registry());
    paged.send(&change("first")).is_problem(410, "acknowledged", "yes", "never");
    paged.send(&change("n2")).is_problem(410, "acknowledged", "yes", "never");
}

#[test]
fn a_request_to_an_object_that_is_still_counting_gets_the_same_answer() {
    let mut world = uncounted();
    assert!(world.open().expect("a page"));
    world.send(&change("n9999")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    assert!(!world.open().expect("nothing more"));
    assert_eq!(world.count().expect("a count"), uncounted().count().expect("a count"));
}

#[test]
fn kept_totals_are_not_written_again_at_the_next_alarm() {
    let mut world = crowded();
    world.wake().expect("it wakes");
    assert!(is_kept(&world));
    let before = world.database.rows_written();
    world.wake().expect("it wakes again");
    assert_eq!(world.database.rows_written(), before);
}

#[test]
fn no_totals_are_kept_of_few_rows() {
    let mut world = World::new();
    world.send(&change("first")).is_executed(200);
    world.wake().expect("it wakes");
    assert!(!is_kept(&world));
}

#[test]
fn any_change_of_a_row_drops_the_kept_totals_until_the_object_is_left_alone() {
    let calls: [(&str, Act); 10] = [
        ("an execution", |world| drop(world.send(&change("new")))),
        ("an acknowledgement", |world| drop(world.send(&get("/count").ack_until("first", UNTIL_MS)))),
        ("one that rides", |world| drop(world.send(&change("new").ack_until("first", UNTIL_MS)))),
        ("a later deadline", |world| {
            let later = post("/count").id("first").first_sent_s(START_S).deadline_ms(UNTIL_MS + 60_000);
            world.send(&later);
        }),
        ("a cancellation", |world| drop(world.send(&cancel("cancels", "never")))),
        ("a start", |world| drop(world.start(&change("new")))),
        ("a crash", |world| drop(world.crashed(&change("new")))),
        ("a deletion", |world| {
            drop(world.send(&delete("/semel/v1/admin/keys/counters%2F1").id("d").by("semel:admin")))
        }),
        ("a forget", |world| drop(world.forget(START_S + 5))),
        ("a sweep", |world| {
            world.pass_s(RETENTION_S + 2);
            world.send(&get("/count"));
        }),
    ];
    for (what, call) in calls {
        let mut world = crowded();
        call(&mut world);
        assert!(!is_kept(&world), "{what}");
        // They are counted again once the object is left alone.
        world.wake().expect("it wakes");
        assert_eq!(is_kept(&world), world.rows() >= TOTALS_ROWS_MIN, "{what}");
    }
}

#[test]
fn a_crash_at_any_statement_leaves_correct_totals_or_none() {
    let calls: [fn(&mut World); 3] = [
        |world| drop(world.send(&change("new").ack_until("first", UNTIL_MS))),
        |world| drop(world.forget(START_S + 5)),
        |world| {
            world.pass_s(RETENTION_S + 2);
            drop(world.sweep_page());
        },
    ];
    for call in calls {
        let mut crashes = 0;
        loop {
            let mut world = crowded();
            world.database.crash_before(crashes);
            call(&mut world);
            if !world.database.has_crashed() {
                break;
            }
            world.restart();
            is_kept(&world);
            crashes += 1;
        }
        assert!(crashes >= 4, "{crashes}");
    }
}

#[test]
fn a_sweep_without_requests_keeps_the_totals_correct_page_by_page() {
    let mut world = crowded();
    world.pass_s(RETENTION_S + 2);
    let mut pages = 0;
    while world.sweep_page().expect("a page") {
        assert_eq!(is_kept(&world), world.rows() >= TOTALS_ROWS_MIN);
        pages += 1;
        // In the middle, an object starts and goes on with what is left.
        if pages == 1 {
            world.restart();
        }
    }
    assert_eq!((world.rows(), is_kept(&world)), (0, false));
    assert!(pages >= TOTALS_ROWS_MIN / 128, "{pages}");
}

#[test]
fn a_new_object_with_kept_totals_sweeps_rows_due_by_a_shorter_retention_or_a_forget() {
    let mut shorter = crowded();
    shorter.restart_with(|config| config.retention_s = 10);
    shorter.pass_s(12);
    shorter.wake().expect("it wakes");
    assert_eq!(shorter.rows(), 0);
    let mut forgotten = crowded();
    forgotten.pass_s(5);
    forgotten.forget(START_S + 4).expect("it forgets");
    forgotten.restart();
    forgotten.wake().expect("it wakes");
    assert_eq!(forgotten.rows(), 0);
}

#[test]
fn a_new_object_with_kept_totals_knows_the_packed_tombstones_that_records_carry() {
    let mut world = crowded();
    world.send(&change("carries").ack_until("first", UNTIL_MS)).is_executed(200);
    world.wake().expect("it wakes");
    assert!(is_kept(&world));
    world.restart();
    world.send(&change("first")).is_problem(410, "acknowledged", "yes", "never");
}

/// A key with many sessions, written behind the engine's back, that has been woken. Half of the sessions have a place.
fn with_sessions() -> World {
    let mut world = World::with(|config| {
        config.retention_s = RETENTION_S;
        config.sessions_max = TOTALS_ROWS_MIN.unsigned_abs() + 2;
    });
    world.send(&take_over("takes over")).is_taken_over(1, 0);
    world.send(&numbered(1, 1)).is_executed(200);
    let numbers = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n <= {TOTALS_ROWS_MIN})"
    );
    world.database.fill(&format!(
        "{numbers} INSERT INTO semel_sessions SELECT n, 's' || n, principal, epochs, 0, 0, 0, 0, at_ms FROM numbers, semel_sessions; \
         {numbers} INSERT INTO semel_places (session, seq, epoch, at_ms, state) SELECT n, 1, 1, {}, 3 FROM numbers WHERE n % 2",
        START_MS + 7_000
    ));
    world.pass_s(7);
    world.restart();
    world.wake().expect("it wakes");
    world
}

#[test]
fn a_new_object_with_kept_totals_looks_at_no_rows_of_sessions() {
    let mut world = with_sessions();
    let kept = |world: &World| world.database.query("SELECT sessions, used_ms, clock_ms FROM semel_totals");
    let expected = [TOTALS_ROWS_MIN + 1, START_MS, START_MS + 7_000].map(Value::from);
    assert_eq!(kept(&world), [expected.to_vec()]);
    // A look at the rows would find fewer sessions, and none that was ever used.
    world.database.tamper("DELETE FROM semel_sessions WHERE number > 9");
    world.database.tamper("DELETE FROM semel_places");
    world.wall_ms = START_MS;
    world.restart();
    let reply = world.send(&get("/count"));
    assert_eq!(reply.now_ms(), START_MS + 7_000, "the clock of the latest place");
    assert_eq!(world.wakes_at_without_registry(), Some((START_S + RETENTION_S) * 1000));
    let named = |name: &str| take_over_with(name, &format!("{{\"name\":\"{name}\"}}"));
    world.send(&named("another")).is_executed(200);
    assert_eq!(kept(&world), Vec::<Vec<Value>>::new());
    world.send(&named("one too many")).is_problem(503, "capacity", "no", "same-id");
    world.restart();
    world.send(&named("one too many")).is_executed(200);
}

#[test]
fn with_kept_totals_sessions_become_stubs_in_their_time_and_by_a_shorter_retention() {
    let mut world = with_sessions();
    world.restart();
    world.pass_s(RETENTION_S - 7);
    world.wake().expect("it wakes");
    assert_eq!(world.places().len(), usize::try_from(TOTALS_ROWS_MIN / 2).expect("few"), "but the first");
    world.restart_with(|config| config.retention_s = 100);
    world.wake().expect("it wakes");
    assert_eq!(world.places(), []);
    assert_eq!(
        world.database.query("SELECT sessions, used_ms FROM semel_totals"),
        [[Value::from(TOTALS_ROWS_MIN + 1), Value::Null]]
    );
}

#[test]
fn a_new_object_with_kept_totals_counts_tombstones_as_tombstones_whether_or_not_they_have_a_row() {
    let mut world = crowded();
    world.send(&get("/count").ack("first")).is_read(200);
    world.send(&change("carries").ack_until("second", UNTIL_MS)).is_executed(200);
    let counted = world.count().expect("a count");
    assert_eq!((counted.records, counted.tombstones), (TOTALS_ROWS_MIN + 2, 2));
    world.wake().expect("it wakes");
    assert!(is_kept(&world));
    world.restart();
    assert_eq!(world.count(), Ok(counted));
}
