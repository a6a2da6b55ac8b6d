//! Requests that are executed elsewhere and are in doubt: what an administrator sees of them, settles and deletes.

use semel_core::id::Principal;
use semel_core::server::handler::Policy;
use semel_support::admin::{ask, delete_key, delete_record, path, resolve};
use semel_support::elsewhere::{answered, dispatched, in_doubt, is_told, lost, order, probe, remote, resend};
use semel_support::{START_MS, look_up, post};
use serde_json::json;

#[test]
fn an_administrator_settles_a_request_in_doubt_as_executed_or_not() {
    let mut world = remote(Policy::Report);
    in_doubt(&mut world, "a");
    let yes = r#"{"executed":"yes","outcome":{"status":201,"headers":{"X-By":"hand"},"body":"made"}}"#;
    assert_eq!(world.send(&resolve("r1", "a", yes)).json()["state"], "executed");
    let replayed = world.send(&order("a"));
    assert_eq!((replayed.status(), replayed.header("x-by"), replayed.body()), (201, Some("hand"), &b"made"[..]));
    world.send(&resolve("r2", "a", r#"{"executed":"no"}"#)).is_problem(400, "body-invalid", "no", "after-fix");

    in_doubt(&mut world, "b");
    assert_eq!(world.send(&resolve("r3", "b", r#"{"executed":"no"}"#)).json()["executed"], "no");
    is_told(&mut world, &order("b"), 410, "cancelled", "no", "never");
    world.send(&resolve("r4", "never", yes)).is_problem(404, "not-seen", "unknown", "same-id");
    in_doubt(&mut world, "c");
    for wrong in [
        "{}",
        r#"{"executed":"perhaps"}"#,
        r#"{"executed":"yes"}"#,
        r#"{"executed":"no","outcome":{"status":200}}"#,
        r#"{"executed":"no","why":"nobody has seen it"}"#,
        r#"{"executed":"yes","outcome":{"status":500}}"#,
        r#"{"executed":"yes","outcome":{"status":200,"text":"made"}}"#,
    ] {
        world.send(&resolve("r5", "c", wrong)).is_problem(400, "body-invalid", "no", "after-fix");
        is_told(&mut world, &order("c"), 409, "outcome-unknown", "unknown", "never");
    }
    world.send(&resolve("r6", "a", yes).by("mallory")).is_problem(403, "forbidden", "no", "after-fix");
}

/// The request may still have its effect, so nobody may say that it did not run; and it may get another outcome.
#[test]
fn an_administrator_can_not_settle_a_request_under_way() {
    for body in [r#"{"executed":"no"}"#, r#"{"executed":"yes","outcome":{"status":201}}"#] {
        let mut world = probe();
        in_doubt(&mut world, "b");
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        let resolution = |id| resolve(&format!("r {id}"), id, body);
        is_told(&mut world, &resolution("a"), 409, "locked", "no", "same-id");
        // However its path is written, and even with a new engine.
        let escaped =
            post(&path("/records/%61/resolv%65")).id("r a").body(body).by(Principal::administrator().as_str());
        is_told(&mut world, &escaped, 409, "locked", "no", "same-id");
        world.restart();
        world.know_under_way("a");
        is_told(&mut world, &resolution("a"), 409, "locked", "no", "same-id");
        world.send(&resolution("b")).is_executed(200);
        world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");

        world.send(&call);
        let probed = world.take_call().expect("a probe");
        is_told(&mut world, &resolution("a"), 409, "locked", "no", "same-id");
        world.settle(&call, &probed, lost()).is_problem(409, "in-flight", "unknown", "same-id");
        world.send(&resolution("a")).is_executed(200);
    }
}

#[test]
fn a_late_answer_does_not_change_the_outcome_that_an_administrator_settled() {
    let mut world = remote(Policy::Report);
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    // A new engine, which does not know of the call.
    world.restart();
    world.send(&resolve("r1", "a", r#"{"executed":"yes","outcome":{"status":200,"body":"by hand"}}"#));
    let late = world.settle(&call, &sent, answered(201, "late"));
    assert_eq!((late.only("semel-status"), late.body()), ("replayed", &b"by hand"[..]));
    assert_eq!(world.send(&call).body(), b"by hand");
}

#[test]
fn a_request_whose_record_or_key_was_deleted_under_way_is_not_sent_again() {
    for deletion in [delete_record("d", "a"), delete_key("d")] {
        let mut world = resend();
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        world.send(&deletion);
        let status = world.settle(&call, &sent, answered(201, "late")).status();
        assert!((400..500).contains(&status), "{status}");
        assert_eq!(world.take_call(), None);
        world.send(&call);
        assert_eq!(world.take_call(), None);
    }
}

#[test]
fn an_administrator_sees_a_request_in_doubt_with_executed_unknown() {
    let mut world = remote(Policy::Report);
    dispatched(&mut world, &order("a"), 1);
    let shown = world.send(&ask("/records/a")).json();
    assert_eq!((&shown["state"], &shown["executed"]), (&"in-doubt".into(), &"unknown".into()));
    world.restart();
    assert_eq!(world.count().map(|count| count.records), Ok(1));
}

#[test]
fn a_request_deleted_in_doubt_is_outcome_expired_with_executed_unknown() {
    let mut world = remote(Policy::Report);
    in_doubt(&mut world, "a");
    assert_eq!(world.send(&delete_record("d", "a")).json()["executed"], "unknown");
    is_told(&mut world, &order("a"), 410, "outcome-expired", "unknown", "never");
}

/// For a whole retention, its client is told that it never runs, or its outcome, as for any request that is settled then.
#[test]
fn a_request_settled_by_an_administrator_keeps_its_answer_for_a_retention_from_then_on() {
    for (body, code) in
        [(r#"{"executed":"no"}"#, "cancelled"), (r#"{"executed":"yes","outcome":{"status":201}}"#, "replayed")]
    {
        let mut world = remote(Policy::Report);
        // Without first-sent, no fence refuses it.
        let call = post("/orders").id("a").body("one");
        let sent = dispatched(&mut world, &call, 1);
        world.settle(&call, &sent, lost());
        world.pass_s(990);
        world.send(&resolve("r", "a", body)).is_executed(200);
        for s in [0, 20, 900] {
            world.pass_s(s);
            world.wake().expect("storage");
            assert_eq!(world.send(&call).only("semel-status"), code);
            assert_eq!(world.take_call(), None);
        }
    }
}

#[test]
fn a_request_in_doubt_can_be_settled_at_a_full_key() {
    let mut world = remote(Policy::Report);
    in_doubt(&mut world, "a");
    world.restart_with(|config| config.records_max = 1);
    world.send(&order("b")).is_problem(503, "capacity", "no", "same-id");
    world.send(&resolve("r", "a", r#"{"executed":"no"}"#)).is_executed(200);
}

/// The key was deleted meanwhile, and another principal has made the same request under the same id.
#[test]
fn the_answer_of_a_call_is_not_given_to_another_principal_with_the_same_request_id() {
    let mut world = remote(Policy::Report);
    let own = post("/orders").id("a").body("one");
    let sent = dispatched(&mut world, &own, 1);
    world.send(&delete_key("d"));
    world.restart();
    let other = post("/orders").id("a").body("one").by("mallory");
    dispatched(&mut world, &other, 1);
    world.settle(&own, &sent, answered(201, "alice's"));
    is_told(&mut world, &other, 409, "outcome-unknown", "unknown", "never");
}

#[test]
fn a_request_in_doubt_counts_as_a_record_in_the_key_and_its_times() {
    let mut world = remote(Policy::Report);
    in_doubt(&mut world, "a");
    let key = world.send(&ask("")).json();
    assert_eq!((&key["records"], &key["tombstones"]), (&json!(1), &json!(0)));
    let times = world.send(&ask(&format!("/times?from={START_MS}&step=1000&count=1"))).json();
    assert_eq!((&times["records"], &times["tombstones"]), (&json!([1]), &json!([0])));
}

/// The host keeps the result, and gives it again a second later. By the missing key it knows that it has to.
#[test]
fn an_outcome_is_recorded_when_it_is_given_again_after_the_storage_failed() {
    let mut failures = 0;
    loop {
        let mut world = remote(Policy::Report);
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        world.database.fail(failures);
        let failed = world.settle(&call, &sent, answered(201, "made"));
        let has_failed = !world.database.awaits_fault();
        world.database.calm();
        if failed.status() == 503 {
            assert_eq!((failed.only("semel-status"), failed.header("semel-key")), ("unavailable", None));
            world.know_under_way("a");
            is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
            is_told(&mut world, &resolve("r", "a", r#"{"executed":"no"}"#), 409, "locked", "no", "same-id");
            world.wait(&call).is_problem(409, "in-flight", "unknown", "same-id");
            world.settle(&call, &sent, answered(201, "made")).is_executed(201);
        }
        assert_eq!((world.send(&call).only("semel-status"), world.take_call()), ("replayed", None));
        if !has_failed {
            break;
        }
        failures += 1;
    }
    assert!(failures > 3, "{failures} statements have failed");
    let mut world = resend();
    let sent = dispatched(&mut world, &order("a"), 1);
    let told = world.settle(&order("a"), &sent, lost());
    assert!(told.status() == 503 && told.header("semel-key").is_some(), "that is recorded");
}
