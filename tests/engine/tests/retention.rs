//! *Retention*: the fence, the key's clock, and how long what is kept stays. A sentence a test.

use semel_support::retained::{RETENTION_S, change, sweep, world};
use semel_support::*;

#[test]
fn the_fence_refuses_a_first_sent_that_is_older_than_the_retention() {
    let mut world = world();
    let first_sent_s = world.wall_s();
    let request = |id: &str| change(id).first_sent_s(first_sent_s);
    world.pass_s(RETENTION_S);
    assert_eq!(world.send(&request("a")).only("semel-status"), "executed");
    world.pass_s(1);
    assert_eq!(world.send(&request("b")).only("semel-status"), "outside-window");
}

#[test]
fn the_fence_never_moves_back() {
    let mut world = world();
    let first_sent_s = world.wall_s();
    world.pass_s(RETENTION_S + 1);
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "outside-window");
    // Neither when the wall clock goes back, nor with a restart, nor with a longer retention.
    world.wall_ms = START_MS;
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "outside-window");
    world.restart_with(|config| config.retention_s = RETENTION_S * 10);
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "outside-window");
    assert_eq!(world.effects(), 0);
}

#[test]
fn the_fence_that_refused_a_cancellation_is_kept_after_the_clock_goes_back() {
    let mut world = world();
    let body = format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}");
    world.pass_s(RETENTION_S + 1);
    world.send(&cancel("own", "a").body(body)).is_problem(412, "outside-window", "unknown", "never");
    world.wall_ms = START_MS;
    world.restart();
    world.send(&change("a").first_sent_s(START_S)).is_problem(412, "outside-window", "unknown", "never");
    assert_eq!(world.effects(), 0);
}

#[test]
fn the_clock_of_a_key_never_goes_back_behind_what_was_committed() {
    let mut world = world();
    world.pass_s(50);
    world.send(&change("a"));
    let committed_ms = world.wall_ms;
    world.wall_ms = START_MS;
    assert_eq!(world.send(&get("/count")).only("semel-now"), committed_ms.to_string());
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), committed_ms.to_string());
    assert_eq!(world.send(&change("b").deadline_ms(committed_ms - 1)).only("semel-status"), "attempt-expired");
}

#[test]
fn the_clock_of_a_key_does_not_go_back_when_its_rows_have_been_swept() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    let swept_ms = world.wall_ms;
    world.wall_ms = START_MS;
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), swept_ms.to_string());
    assert_eq!(world.send(&change("a").first_sent_s(START_S)).only("semel-status"), "outside-window");
    assert_eq!(world.effects(), 1);
}

#[test]
fn an_unacknowledged_record_leaves_only_once_the_fence_has_passed_its_first_sent() {
    let mut world = world();
    let request = change("a").first_sent_s(world.wall_s() + 100);
    world.send(&request);
    world.pass_s(100 + RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.send(&request).only("semel-status"), "replayed");
    world.pass_s(1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    assert_eq!(world.send(&request).only("semel-status"), "outside-window");
    assert_eq!(world.effects(), 1);
}

#[test]
fn an_outcome_is_kept_for_a_whole_retention_from_its_execution() {
    let mut world = world();
    let request = change("a").first_sent_s(world.wall_s());
    world.pass_s(RETENTION_S - 1);
    let expires = world.send(&request).only("semel-expires").to_owned();
    assert_eq!(expires, format!("@{}", world.wall_s() + RETENTION_S));
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    let again = world.send(&request);
    assert_eq!((again.only("semel-status"), again.only("semel-expires")), ("replayed", expires.as_str()));
    world.pass_s(1);
    sweep(&mut world);
    assert_eq!(world.send(&request).only("semel-status"), "outside-window");
}

/// What is due of others is walked by with it.
#[test]
fn an_outcome_is_kept_for_its_retention_though_another_record_leaves_earlier() {
    let mut world = world();
    let (early, late) = (change("a").first_sent_s(world.wall_s()), change("b").first_sent_s(world.wall_s()));
    world.send(&early).is_executed(200);
    world.pass_s(RETENTION_S - 1);
    world.send(&late).is_executed(200);
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.rows(), 1);
    world.send(&late).is_replayed(200);
    world.send(&early).is_problem(412, "outside-window", "unknown", "never");
}

#[test]
fn a_cancelled_id_leaves_only_once_the_fence_has_passed_its_first_sent() {
    let mut world = world();
    let first_sent_s = world.wall_s();
    let body = format!("{{\"id\":\"a\",\"firstSent\":{first_sent_s}}}");
    world.send(&cancel("own", "a").body(body).first_sent_s(first_sent_s));
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "cancelled");
    world.pass_s(1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    assert_eq!(world.send(&change("a").first_sent_s(first_sent_s)).only("semel-status"), "outside-window");
}

#[test]
fn a_sweep_that_only_makes_a_cancelled_id_lapse_stores_the_fence() {
    let mut world = world();
    world.send(&cancel("own", "a").deadline_ms(START_MS)).is_executed(200);
    world.send(&acknowledge(&format!("[{{\"id\":\"own\",\"until\":{START_MS}}}]")));
    world.pass_s(100);
    sweep(&mut world);
    assert_eq!(world.row("own", "state"), None);
    // Only the state of this row changes now: no number of rows does.
    world.pass_s(RETENTION_S);
    sweep(&mut world);
    assert_eq!(world.fence_s(), START_S + 100);
}
