//! The work of a key's object between requests: waking, sweeping, and reporting to the registry.

use semel_core::server::SqlError;
use semel_core::server::config::FOREVER_S;
use semel_core::server::storage::retention::SWEEP_ROWS;
use semel_support::{Call, START_MS, START_S, Trouble, World, acknowledge, cancel, get, post};

const RETENTION_S: i64 = 1000;
const REPORT_MS: i64 = 60_000;

fn world() -> World {
    World::with(|config| config.retention_s = RETENTION_S)
}

fn change(id: &str) -> Call {
    post("/count").id(id).first_sent_s(START_S)
}

/// A key that the registry knows.
fn registered() -> World {
    let mut world = world();
    world.send(&change("first"));
    world.tell();
    world
}

#[test]
fn an_untouched_key_is_never_woken_and_reports_nothing() {
    let mut world = world();
    world.send(&get("/count"));
    assert_eq!(world.wakes_at(), None);
    assert_eq!(world.report(), Ok(None));
    assert_eq!(world.sweep_page(), Ok(false));
    assert_eq!(world.database.tables(), Vec::<String>::new());
    // There is no name by which its settings could be known.
    assert_eq!(World::ruled(RETENTION_S, r#""forever""#).open(), Ok(false));
}

#[test]
fn a_new_key_is_woken_at_once_to_register_and_reports_what_it_holds() {
    let mut world = world();
    world.send(&change("a"));
    assert_eq!(world.wakes_at(), Some(START_MS));
    world.wake().unwrap();
    let report = world.report().unwrap().unwrap();
    assert_eq!((report.key.as_str(), report.at, report.is_listed), (semel_support::KEY, START_MS, true));
    assert_eq!((report.records, report.tombstones, report.bytes), (1, 0, semel_support::chores::BYTES));
    assert_eq!(report.oldest, Some(START_MS));
    world.reported(&report, 0).unwrap();
    assert_eq!(world.report(), Ok(None), "once told, nothing is left to tell");
    // The record leaves when the fence has passed it. There is nothing else to wake for.
    assert_eq!(world.wakes_at(), Some((START_S + RETENTION_S + 1) * 1000));
}

#[test]
fn a_registration_stays_due_over_restarts_until_it_is_answered() {
    let mut world = world();
    world.send(&change("a"));
    world.wake().unwrap();
    assert!(world.report().unwrap().is_some());
    // The answer is lost. The object tries again, but not more often than it may.
    assert_eq!(world.wakes_at(), Some(START_MS + REPORT_MS));
    world.restart();
    world.send(&get("/count"));
    assert_eq!(world.wakes_at(), Some(START_MS));
    world.tell();
    world.restart();
    world.send(&get("/count"));
    assert_eq!(world.report(), Ok(None));
    assert_eq!(world.wakes_at(), Some((START_S + RETENTION_S + 1) * 1000));
}

#[test]
fn a_crash_in_the_answer_to_a_registration_loses_neither_it_nor_the_forget_in_it() {
    let mut crashes = 0;
    loop {
        let mut world = world();
        world.send(&change("a"));
        world.wake().unwrap();
        let report = world.report().unwrap().unwrap();
        world.database.crash_before(crashes);
        let ended = world.reported(&report, START_S + 1);
        if !world.database.has_crashed() {
            ended.unwrap();
            break;
        }
        world.restart();
        world.send(&get("/count"));
        let is_registered = world.database.number("SELECT is_registered FROM semel_meta") == 1;
        let fence_s = world.fence_s();
        // If it were registered without having forgotten, nobody would tell it again.
        assert!(!is_registered || fence_s == START_S + 1, "crash {crashes}");
        if !is_registered {
            let report = world.report().unwrap().expect("it is still to be told");
            world.reported(&report, START_S + 1).unwrap();
        }
        assert_eq!(world.send(&change("b")).only("semel-status"), "forgotten", "crash {crashes}");
        crashes += 1;
    }
    assert!(crashes >= 5, "only {crashes} places to crash");
}

#[test]
fn changes_are_reported_once_in_the_interval_and_reads_are_not_reported() {
    let mut world = registered();
    world.pass_ms(10_000);
    world.send(&get("/count"));
    assert_eq!(world.wakes_at(), Some((START_S + RETENTION_S + 1) * 1000));
    world.send(&change("b"));
    assert_eq!(world.wakes_at(), Some(START_MS + REPORT_MS));
    world.send(&change("c"));
    assert_eq!(world.wakes_at(), Some(START_MS + REPORT_MS));
    world.pass_ms(50_000);
    world.wake().unwrap();
    let report = world.report().unwrap().unwrap();
    assert_eq!((report.records, report.is_listed), (3, true));
    // A change before the answer to a report is reported the next time.
    world.send(&change("d"));
    world.reported(&report, 0).unwrap();
    assert_eq!(world.wakes_at(), Some(START_MS + 2 * REPORT_MS));
    world.pass_ms(REPORT_MS);
    assert_eq!(world.report().unwrap().map(|report| report.records), Some(4));
}

#[test]
fn an_acknowledgement_that_comes_with_a_read_is_reported_too() {
    let mut world = registered();
    world.send(&get("/count").ack("first")).is_read(200);
    assert_eq!(world.wakes_at(), Some(START_MS + REPORT_MS));
    let report = world.report().unwrap().expect("it has changed");
    assert_eq!((report.records, report.tombstones), (0, 1));
}

#[test]
fn without_a_registry_a_key_is_woken_only_for_rows_that_may_leave() {
    let mut world = world();
    world.send(&change("a"));
    world.wake().unwrap();
    assert_eq!(world.wakes_at_without_registry(), Some((START_S + RETENTION_S + 1) * 1000));
}

#[test]
fn an_idle_key_is_swept_by_its_alarm_and_then_let_alone() {
    let mut world = registered();
    for number in 0..300 {
        world.send(&change(&format!("id-{number}")));
    }
    world.tell();
    world.wall_ms = (START_S + RETENTION_S + 1) * 1000;
    assert_eq!(world.wakes_at(), Some(world.wall_ms));
    // The sweep goes page by page, and requests may come in between.
    assert_eq!(world.sweep_page(), Ok(true));
    assert_eq!(world.rows(), 301 - SWEEP_ROWS);
    world.wake().unwrap();
    assert_eq!(world.rows(), 0);
    assert_eq!(world.fence_s(), world.wall_s() - RETENTION_S, "what left is refused for good");
    world.tell();
    assert_eq!(world.wakes_at(), None);
    assert_eq!(world.send(&change("id-7")).only("semel-status"), "outside-window");
}

#[test]
fn a_tombstone_wakes_the_key_when_it_lapses() {
    let mut world = registered();
    world.send(&change("b").deadline_ms(START_MS + 20_000));
    world.send(&acknowledge(&format!("[{{\"id\":\"b\",\"until\":{}}}]", START_MS + 90_000)));
    world.pass_ms(REPORT_MS);
    world.tell();
    assert_eq!(world.wakes_at(), Some(START_MS + 150_000));
    world.wall_ms = START_MS + 150_000;
    world.wake().unwrap();
    assert_eq!(world.row("b", "id"), None);
}

#[test]
fn a_sweep_that_fails_or_crashes_at_any_statement_deletes_nothing_without_its_fence() {
    for fault in [|world: &World, n| world.database.crash_before(n), |world: &World, n| world.database.fail(n)] {
        let mut faults = 0;
        loop {
            let mut world = registered();
            world.send(&change("b"));
            world.wall_ms = (START_S + RETENTION_S + 1) * 1000;
            fault(&world, faults);
            let ended: Result<bool, SqlError> = world.sweep_page();
            if ended.is_ok() {
                break;
            }
            if world.database.has_crashed() {
                world.restart();
            }
            world.database.calm();
            let fence_s = world.database.number("SELECT fence_s FROM semel_meta");
            assert!(world.rows() == 2 || fence_s == world.wall_s() - RETENTION_S, "fault {faults}");
            world.wake().unwrap();
            assert_eq!(world.rows(), 0);
            faults += 1;
        }
        assert!(faults >= 5, "only {faults} places");
    }
}

#[test]
fn a_key_with_only_a_poisoned_or_cancelled_id_is_listed_until_it_is_deleted() {
    let poisoned = |world: &mut World| {
        world.handler.trouble.set(Trouble::Panics);
        world.send(&change("a"));
        world.handler.trouble.set(Trouble::None);
    };
    let cancelled = |world: &mut World| drop(world.send(&cancel("own", "a").first_sent_s(START_S)));
    for leaves in [&poisoned as &dyn Fn(&mut World), &cancelled] {
        let mut world = world();
        leaves(&mut world);
        assert_eq!(world.database.number("SELECT handler_version FROM semel_meta"), 0);
        assert_eq!(world.wakes_at(), Some(START_MS));
        world.tell();
        for _ in 0..2 {
            world.pass_s(2 * RETENTION_S);
            world.wake().unwrap();
        }
        assert_eq!(world.database.number("SELECT count(*) FROM semel_records WHERE state <> 4"), 0);
        world.restart();
        assert!(world.report().unwrap().is_none_or(|report| report.is_listed));
        world.send(&semel_support::admin::delete_key("own"));
        assert!(!world.report().unwrap().unwrap().is_listed);
    }
}

#[test]
fn an_untouched_key_that_has_refused_by_its_fence_reports_nothing() {
    let mut world = world();
    let reply = world.send(&post("/count").id("a").first_sent_s(START_S - RETENTION_S - 1));
    assert_eq!(reply.only("semel-status"), "outside-window");
    assert_eq!((world.report(), world.wakes_at()), (Ok(None), None));
    world.wake().unwrap();
    assert_eq!((world.report(), world.wakes_at()), (Ok(None), None), "it has nothing to report when it is woken");
}

#[test]
fn after_a_forget_that_storage_refused_the_engine_knows_no_next_alarm_from_memory() {
    let mut world = registered();
    world.database.fail(0);
    assert!(world.forget(START_S - 1).is_err());
    assert_eq!(world.wakes_at(), None, "the next call loads what is stored");
}

#[test]
fn while_the_name_of_a_key_and_so_its_rule_is_unknown_nothing_leaves_and_nothing_wakes_it() {
    let mut world = World::ruled(RETENTION_S, r#""forever""#);
    let first = post("/count").id("a").first_sent_s(START_S);
    world.send(&first).is_executed(200);
    // The tables of an older build have no key name.
    world.database.tamper("UPDATE semel_meta SET key = NULL");
    world.restart();
    world.pass_s(2 * RETENTION_S);
    world.wake().unwrap();
    assert_eq!((world.rows(), world.wakes_at()), (1, None));
    assert_eq!(world.send(&first).only("semel-status"), "replayed");
}

#[test]
fn a_forget_is_applied_once_and_an_equal_or_earlier_one_writes_nothing() {
    let mut world = registered();
    world.pass_s(5);
    assert_eq!(world.send(&post("/count").id("late").first_sent_s(START_S - 3)).only("semel-status"), "executed");
    world.forget(START_S + 2).unwrap();
    assert_eq!(world.send(&post("/count").id("new").first_sent_s(START_S + 1)).only("semel-status"), "forgotten");
    let written = world.database.rows_written();
    world.forget(START_S + 2).unwrap();
    world.forget(START_S + 1).unwrap();
    assert_eq!(world.database.rows_written(), written);
}

#[test]
fn a_registration_writes_one_row_a_report_none_and_a_sweep_one_besides_those_it_deletes() {
    let mut world = world();
    world.send(&change("a"));
    let before = world.database.rows_written();
    world.tell();
    assert_eq!(world.database.rows_written() - before, 1, "that it is registered");
    world.pass_ms(REPORT_MS);
    world.send(&change("b"));
    let before = world.database.rows_written();
    world.tell();
    assert_eq!(world.database.rows_written() - before, 0, "a report");
    world.wall_ms = (START_S + 2 * RETENTION_S) * 1000;
    let before = world.database.rows_written();
    world.wake().unwrap();
    assert_eq!(world.database.rows_written() - before, 3, "two rows, and once a page the fence");
}

#[test]
fn the_oldest_of_few_rows_is_reported_exactly_even_if_no_walk_is_due() {
    let mut world = registered();
    world.pass_s(10);
    world.send(&change("later"));
    world.pass_s(10);
    world.send(&acknowledge("[\"first\"]"));
    world.pass_s(60);
    world.wake().unwrap();
    assert_eq!(world.report().unwrap().and_then(|report| report.oldest), Some(START_MS + 10_000));
}

#[test]
fn of_many_rows_none_is_older_than_the_one_reported_as_the_oldest() {
    let mut world = registered();
    world.database.tamper(&format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000) INSERT INTO semel_records \
         (id, state, principal, at_ms) SELECT 'r' || n, 3, 'alice', {START_MS} + 1 FROM n"
    ));
    world.restart();
    world.send(&change("last"));
    world.wake().unwrap();
    assert_eq!(world.report().unwrap().and_then(|report| report.oldest), Some(START_MS));
    world.database.tamper("DELETE FROM semel_records WHERE id = 'first'");
    assert_eq!(world.report().unwrap().and_then(|report| report.oldest), Some(START_MS), "it is not walked for");
}

#[test]
fn a_change_before_the_object_ended_is_reported_by_the_object_that_its_alarm_starts() {
    let mut world = registered();
    world.send(&change("second"));
    world.restart();
    world.wake().unwrap();
    let report = world.report().unwrap().expect("the alarm is the mark that there is something to tell");
    assert_eq!(report.records, 2);
    world.reported(&report, 0).unwrap();
    assert_eq!(world.report(), Ok(None), "once told, nothing is left to tell");
}

#[test]
fn a_request_sweeps_nothing_while_its_object_is_sweeping_and_sweeps_a_second_later() {
    let mut world = world();
    for n in 0..2 * SWEEP_ROWS - 1 {
        world.send(&change(&format!("a{n}")));
    }
    world.pass_s(RETENTION_S + 2);
    assert!(world.sweep_page().unwrap());
    let left = world.rows();
    assert_eq!(left, SWEEP_ROWS - 1);
    world.send(&get("/count"));
    assert_eq!(world.rows(), left);
    world.pass_ms(1_000);
    world.send(&get("/count"));
    assert_eq!(world.rows(), 0);
}

#[test]
fn a_key_that_keeps_everything_for_ever_is_not_woken_once_it_is_registered() {
    let mut world = World::with(|config| config.retention_s = FOREVER_S);
    world.send(&change("a"));
    world.tell();
    assert_eq!(world.wakes_at(), None);
}

#[test]
fn a_report_does_not_wait_for_a_clock_of_the_key_that_is_ahead() {
    for is_restarted in [false, true] {
        let ahead = |world: &mut World| {
            world.pass_s(3600);
            world.send(&post("/count").id("ahead").first_sent_s(START_S + 3600)).is_executed(200);
            world.pass_s(-3600);
            if is_restarted {
                world.restart();
            }
            world.send(&get("/count"));
        };
        let mut world = World::new();
        ahead(&mut world);
        assert_eq!(world.wakes_at(), Some(world.wall_ms), "a registration");
        let mut world = registered();
        world.send(&change("second"));
        ahead(&mut world);
        world.send(&post("/count").id("third").first_sent_s(START_S + 3600)).is_executed(200);
        assert!(world.wakes_at().is_some_and(|at_ms| at_ms <= world.wall_ms + REPORT_MS), "a change");
        world.send(&semel_support::admin::delete_key("own"));
        assert_eq!(world.wakes_at(), Some(world.wall_ms), "a deletion");
    }
}
