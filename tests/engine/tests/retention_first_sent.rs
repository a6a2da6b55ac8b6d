//! *Retention*: what depends on when a request was first sent, and on whether its attempts say so.

use semel_support::retained::{RETENTION_S, change, sweep, world};
use semel_support::*;
use serde_json::json;

#[test]
fn a_cancellation_without_first_sent_does_not_say_no_of_a_request_that_ran_and_was_swept() {
    let mut world = world();
    let request = change("a").first_sent_s(world.wall_s());
    world.send(&request).is_executed(200);
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    world.send(&cancel("own", "a")).is_executed(200);
    world.send(&request).is_problem(412, "outside-window", "unknown", "never");
    world.send(&look_up("a")).is_problem(410, "cancelled", "unknown", "never");
    world.send(&change("a")).is_problem(410, "cancelled", "no", "never");
}

#[test]
fn an_attempt_whose_tombstone_lapsed_is_attempt_expired_even_if_its_id_was_cancelled_since() {
    let mut world = world();
    let (first_sent_s, until_ms) = (world.wall_s(), world.wall_ms + 10_000);
    let request = change("a").first_sent_s(first_sent_s).deadline_ms(until_ms);
    world.send(&request).is_executed(200);
    world.send(&acknowledge(&json!([{ "id": "a", "until": until_ms }]).to_string()));
    world.pass_s(100);
    sweep(&mut world);
    world.send(&cancel("own", "a")).is_executed(200);
    world.send(&request).is_problem(408, "attempt-expired", "no", "same-id");
    // Its client sends none past what it said.
    let later = change("a").first_sent_s(first_sent_s).deadline_ms(world.wall_ms + 10_000);
    world.send(&later).is_problem(410, "cancelled", "no", "never");
    assert_eq!(world.effects(), 1);
}

#[test]
fn without_first_sent_a_leaving_record_stays_as_a_tombstone_for_one_more_retention() {
    for (kind, refusal) in
        [("executed", "outcome-expired"), ("cancelled", "cancelled"), ("poisoned", "outcome-expired")]
    {
        let mut world = world();
        match kind {
            "executed" => assert_eq!(world.send(&change("a")).only("semel-status"), "executed"),
            "cancelled" => {
                assert_eq!(world.send(&cancel("own", "a").first_sent_s(START_S)).only("semel-status"), "executed")
            }
            _ => (0..3).for_each(|_| drop(world.crashed(&change("a")))),
        }
        let effects = world.effects();
        world.pass_s(RETENTION_S + 1);
        sweep(&mut world);
        let got = world.send(&change("a"));
        let executed = if kind == "executed" { "yes" } else { "no" };
        let body = got.json();
        assert_eq!((got.only("semel-status"), body["executed"].as_str()), (refusal, Some(executed)));
        world.pass_s(RETENTION_S - 1);
        sweep(&mut world);
        assert_eq!(world.send(&change("a")).only("semel-status"), refusal);
        assert_eq!(world.effects(), effects);
        world.pass_s(1);
        sweep(&mut world);
        assert_eq!(world.send(&change("a")).only("semel-status"), "executed", "after two retentions it counts as new");
    }
}

#[test]
fn one_attempt_without_first_sent_is_enough_for_the_tombstone() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    assert_eq!(world.send(&change("a")).only("semel-status"), "replayed");
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.send(&change("a")).only("semel-status"), "outcome-expired");
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_record_is_kept_by_the_latest_first_sent_of_its_attempts() {
    let mut world = world();
    world.send(&change("a").first_sent_s(world.wall_s()));
    let later = change("a").first_sent_s(world.wall_s() + 100);
    assert_eq!(world.send(&later).only("semel-status"), "replayed");
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    assert_eq!(world.send(&later).only("semel-status"), "replayed");
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_cancelled_id_is_kept_for_the_latest_first_sent_of_its_cancellations_or_a_missing_one() {
    for later_s in [Some(START_S + 900), None] {
        let mut world = world();
        world.send(&cancel("one", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}"))).is_executed(200);
        world.pass_s(900);
        let first_sent = later_s.map_or(String::new(), |later_s| format!(",\"firstSent\":{later_s}"));
        let again = cancel("two", "a").body(format!("{{\"id\":\"a\"{first_sent}}}"));
        assert_eq!(world.send(&again).field("state"), "cancelled");
        world.pass_s(110);
        sweep(&mut world);
        let attempt = later_s.map_or(change("a"), |later_s| change("a").first_sent_s(later_s));
        world.send(&attempt).is_problem(410, "cancelled", "no", "never");
        assert_eq!(world.effects(), 0);
    }
}

#[test]
fn an_id_cancelled_or_crashed_without_first_sent_stays_two_retentions_whatever_follows() {
    for crashes in [false, true] {
        let mut world = world();
        if crashes {
            world.crashed(&change("a"));
        } else {
            world.send(&cancel("one", "a")).is_executed(200);
        }
        let again = cancel("two", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{START_S}}}"));
        assert_eq!(world.send(&again).field("state"), "cancelled");
        // Nobody asks in between: that an attempt said nothing of it would be told by that one.
        for _ in 0..2 {
            world.pass_s(RETENTION_S - 1);
            sweep(&mut world);
        }
        assert_eq!(world.send(&change("a")).only("semel-status"), "cancelled", "{crashes}");
        assert_eq!(world.effects(), 0);
    }
}

#[test]
fn an_executed_record_is_kept_by_the_first_sent_of_a_later_cancellation() {
    let mut world = world();
    world.send(&change("a").first_sent_s(START_S)).is_executed(200);
    world.pass_s(900);
    let later_s = world.wall_s();
    let late = cancel("own", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{later_s}}}"));
    assert_eq!(world.send(&late).field("state"), "executed");
    world.pass_s(110);
    sweep(&mut world);
    assert_eq!(world.send(&change("a").first_sent_s(later_s)).only("semel-status"), "replayed");
    assert_eq!(world.effects(), 1);
}

#[test]
fn an_id_that_is_cancelled_again_stays_cancelled_for_the_later_first_sent_and_everybody() {
    let mut world = world();
    world.send(&semel_support::admin::cancel_for("one", "{\"id\":\"a\"}")).is_executed(200);
    world.pass_s(RETENTION_S + 1);
    sweep(&mut world);
    world.pass_s(RETENTION_S - 10);
    let late_s = world.wall_s();
    world.send(&cancel("two", "a").body(format!("{{\"id\":\"a\",\"firstSent\":{late_s}}}"))).is_executed(200);
    world.pass_s(20);
    sweep(&mut world);
    for who in ["", "bob"] {
        let late = change("a").first_sent_s(late_s).by(who);
        world.send(&late).is_problem(410, "cancelled", "no", "never");
    }
}

#[test]
fn a_tombstone_that_no_deadline_bounds_stays_in_the_very_second_in_which_the_fence_comes_to_its_first_sent() {
    let mut world = world();
    let ahead = change("ahead").first_sent_s(START_S + 100);
    world.send(&ahead).is_executed(200);
    world.send(&acknowledge("[\"ahead\"]"));
    // This leaves in that second, so a walk is due then.
    world.send(&change("other").first_sent_s(START_S + 99)).is_executed(200);
    world.pass_s(RETENTION_S + 100);
    sweep(&mut world);
    assert_eq!(world.rows(), 1);
    world.send(&ahead).is_problem(410, "acknowledged", "yes", "never");
    world.pass_s(1);
    sweep(&mut world);
    assert_eq!(world.rows(), 0);
    world.send(&ahead).is_problem(412, "outside-window", "unknown", "never");
    assert_eq!(world.effects_of("ahead"), 1);
}

#[test]
fn a_later_attempt_without_first_sent_lets_the_key_be_woken_when_its_record_may_leave() {
    let mut world = world();
    world.send(&change("a").first_sent_s(START_S + 100)).is_executed(200);
    assert_eq!(world.wakes_at_without_registry(), Some((START_S + 100 + RETENTION_S + 1) * 1000));
    world.send(&change("a")).is_replayed(200);
    assert_eq!(world.wakes_at_without_registry(), Some((START_S + RETENTION_S + 1) * 1000));
}

#[test]
fn a_record_stays_for_the_later_first_sent_even_if_the_last_attempt_has_the_earlier() {
    let mut world = world();
    let later = change("a").first_sent_s(START_S + 100);
    world.send(&later).is_executed(200);
    world.send(&change("a").first_sent_s(START_S)).is_replayed(200);
    world.pass_s(RETENTION_S + 100);
    sweep(&mut world);
    world.send(&later).is_replayed(200);
    assert_eq!(world.effects(), 1);
}

/// Its client's clock is ahead by more than two retentions, so that only the first-sent keeps the record for long enough.
#[test]
fn an_administrators_cancellation_without_first_sent_takes_no_protection_from_the_id_of_a_client_that_is_ahead() {
    for crashes in [false, true] {
        let mut world = World::with(|config| config.retention_s = 30);
        let request = change("a").first_sent_s(START_S + 100);
        if crashes {
            world.crashed(&request);
        } else {
            world.send(&request).is_executed(200);
        }
        let state = if crashes { "cancelled" } else { "executed" };
        let reply = world.send(&semel_support::admin::cancel_for("own", "{\"id\":\"a\"}"));
        assert_eq!(reply.field("state"), state);
        for _ in 0..12 {
            world.pass_s(10);
            sweep(&mut world);
        }
        let after = if crashes { "cancelled" } else { "replayed" };
        assert_eq!(world.send(&request).only("semel-status"), after);
        assert_eq!(world.effects(), i64::from(!crashes));
    }
}
