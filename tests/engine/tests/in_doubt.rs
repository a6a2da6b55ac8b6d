//! An operator is told at which keys requests are in doubt, and how many.

use semel_core::server::engine::chores::TOTALS_ROWS_MIN;
use semel_core::server::handler::Policy;
use semel_support::admin::{ask, delete_record, resolve};
use semel_support::elsewhere::{Elsewhere, answered, dispatched, in_doubt, lost, order, remote};
use semel_support::{START_MS, World};
use serde_json::Value;

/// The number that an administrator is shown.
fn shown(world: &mut World<Elsewhere>) -> i64 {
    world.send(&ask("")).json()["inDoubt"].as_i64().expect("a number")
}

#[test]
fn a_request_under_way_is_not_in_doubt_and_is_reported_once_its_answer_is_lost() {
    let mut world = remote(Policy::Report);
    let sent = dispatched(&mut world, &order("a"), 1);
    assert_eq!((world.tells().in_doubt, shown(&mut world)), (0, 0));
    world.settle(&order("a"), &sent, lost());
    assert_eq!(shown(&mut world), 1);
    assert_eq!(world.tells().in_doubt, 1);
    assert_eq!((world.report(), world.wakes_at()), (Ok(None), None), "nothing is left to tell");
    in_doubt(&mut world, "b");
    assert_eq!(world.tells().in_doubt, 2);
    let sent = dispatched(&mut world, &order("c"), 1);
    world.settle(&order("c"), &sent, answered(201, "made"));
    assert_eq!((world.tells().in_doubt, shown(&mut world)), (2, 2));
    world.send(&resolve("resolves", "a", "{\"executed\":\"no\"}")).is_executed(200);
    assert_eq!((world.tells().in_doubt, shown(&mut world)), (1, 1));
}

#[test]
fn an_administrator_can_list_the_requests_of_a_key_that_are_in_doubt() {
    let mut world = remote(Policy::Report);
    let sent = dispatched(&mut world, &order("a"), 1);
    world.settle(&order("a"), &sent, answered(201, "made"));
    in_doubt(&mut world, "b");
    in_doubt(&mut world, "d");
    world.send(&resolve("resolves", "d", "{\"executed\":\"no\"}")).is_executed(200);
    let page = world.send(&ask("/records?state=in-doubt")).json();
    assert_eq!((&page["records"][0]["id"], &page["records"][1]), (&"b".into(), &Value::Null));
}

#[test]
fn a_request_in_doubt_is_listed_without_status_and_bytes() {
    let mut world = remote(Policy::Report);
    world.handler.whither.set(7);
    let sent = dispatched(&mut world, &order("a"), 1);
    world.settle(&order("a"), &sent, answered(201, "made"));
    in_doubt(&mut world, "b");
    let page = world.send(&ask("/records")).json();
    let told = |at: usize| [&page["records"][at]["id"], &page["records"][at]["status"], &page["records"][at]["bytes"]];
    assert_eq!([told(0), told(1)], [[&"a".into(), &201.into(), &4.into()], [&"b".into(), &Value::Null, &Value::Null]]);
}

#[test]
fn deleting_the_record_of_a_request_under_way_does_not_change_the_count_in_doubt() {
    let mut world = remote(Policy::Report);
    in_doubt(&mut world, "a");
    dispatched(&mut world, &order("b"), 1);
    world.send(&delete_record("deletes", "b")).is_executed(200);
    assert_eq!((world.tells().in_doubt, shown(&mut world)), (1, 1));
}

#[test]
fn the_alarm_reports_in_doubt_a_request_that_was_under_way_when_its_object_ended() {
    let mut world = remote(Policy::Report);
    dispatched(&mut world, &order("a"), 1);
    assert_eq!(world.tells().in_doubt, 0);
    let at_ms = world.wakes_at().expect("an alarm is set: it may come to be in doubt");
    world.restart();
    world.wall_ms = at_ms;
    world.wake().expect("storage");
    assert_eq!(world.report().map(|report| report.map(|report| report.in_doubt)), Ok(Some(1)));
}

#[test]
fn the_count_in_doubt_is_kept_with_the_totals_and_counted_anew_after_an_earlier_build() {
    let mut world = remote(Policy::Report);
    in_doubt(&mut world, "a");
    world.database.fill(&format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {TOTALS_ROWS_MIN}) \
         INSERT INTO semel_records (id, state, at_ms, first_sent_s, principal, fingerprint, status, headers, body) \
         SELECT 'n' || n, 1, {START_MS}, {START_MS} / 1000, 'alice', randomblob(32), 200, '', x'' FROM numbers"
    ));
    world.restart();
    assert_eq!(shown(&mut world), 1);
    world.wake().expect("storage");
    let kept = |world: &World<Elsewhere>| world.database.query("SELECT dispatched FROM semel_totals");
    assert_eq!(kept(&world), [vec![1.into()]]);
    // A count of the rows would now find none.
    world.database.tamper("UPDATE semel_records SET state = 1 WHERE state = 7");
    world.restart();
    assert_eq!(shown(&mut world), 1);
    world.database.fill(
        "UPDATE semel_records SET state = 7 WHERE id IN ('a', 'n1'); \
         ALTER TABLE semel_totals DROP COLUMN dispatched; ALTER TABLE semel_meta DROP COLUMN forgets_s; UPDATE semel_meta SET engine_version = 4",
    );
    world.restart();
    assert_eq!(shown(&mut world), 2);
    assert_eq!(kept(&world).len(), 0);
}
