//! Requests that are executed elsewhere: what a look-up, a cancellation or another principal is told of one.

use semel_core::server::Sql;
use semel_core::server::handler::Policy;
use semel_support::admin::{cancel_for, delete_key, resolve};
use semel_support::elsewhere::{Elsewhere, answered, dispatched, is_told, lost, order, probe, remote, resend};
use semel_support::{World, cancel, get, look_up, post};
use serde_json::json;

#[test]
fn another_principal_or_body_under_the_id_of_a_call_under_way_is_a_mismatch() {
    let mut world = remote(Policy::Report);
    let call = order("a");
    dispatched(&mut world, &call, 1);
    is_told(&mut world, &call.clone().by("mallory"), 422, "fingerprint-mismatch", "no", "after-fix");
    is_told(&mut world, &call.clone().body("two"), 422, "fingerprint-mismatch", "no", "after-fix");
    world.send(&look_up("a").by("mallory")).is_problem(404, "not-seen", "unknown", "same-id");
}

#[test]
fn a_request_under_way_is_in_flight_to_a_cancellation_and_a_look_up() {
    let mut world = resend();
    dispatched(&mut world, &order("a"), 1);
    is_told(&mut world, &cancel("c", "a"), 409, "in-flight", "unknown", "same-id");
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    assert_eq!(world.row("a", "state"), Some(7.into()));
}

/// Otherwise a look-up or a cancellation would be told for ever that the request is under way.
#[test]
fn a_look_up_and_a_cancellation_get_the_same_answer_in_doubt_as_the_last_attempt_got() {
    #[track_caller]
    fn is_known(world: &mut World<Elsewhere>, n: u8, code: &str, retry: &str) {
        is_told(world, &look_up("a"), 409, code, "unknown", retry);
        is_told(world, &cancel(&format!("c{n}"), "a"), 409, code, "unknown", retry);
        world.restart();
        is_told(world, &look_up("a"), 409, code, "unknown", retry);
    }
    let call = order("a");

    let mut world = remote(Policy::Report);
    let sent = dispatched(&mut world, &call, 1);
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    world.settle(&call, &sent, lost()).is_problem(409, "outcome-unknown", "unknown", "never");
    is_known(&mut world, 1, "outcome-unknown", "never");
    is_told(&mut world, &look_up("a").by("mallory"), 404, "not-seen", "unknown", "same-id");
    world.send(&resolve("r", "a", r#"{"executed":"yes","outcome":{"status":201,"body":"made"}}"#));
    assert_eq!(world.send(&look_up("a")).body(), b"made");

    // The routes have this policy only now, after an attempt found out earlier.
    let mut world = probe();
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost());
    is_known(&mut world, 1, "in-flight", "same-id");
    world.handler.policy.replace(Policy::Report);
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
    is_known(&mut world, 2, "outcome-unknown", "never");

    let mut world = resend();
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
    is_known(&mut world, 1, "in-flight", "same-id");
    world.pass_s(60);
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
    is_known(&mut world, 2, "outcome-unknown", "never");
}

/// Nobody runs the request any more, and no attempt may ever come. A look-up is told what an attempt would be told.
#[test]
fn after_a_restart_a_look_up_of_a_started_call_gets_what_an_attempt_would_get() {
    let call = order("a");
    let mut world = remote(Policy::Report);
    dispatched(&mut world, &call, 1);
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    world.restart();
    is_told(&mut world, &look_up("a"), 409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &cancel("c", "a"), 409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &look_up("a").by("mallory"), 404, "not-seen", "unknown", "same-id");
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");

    // The next attempt sends the request again, until the service has forgotten its id.
    let mut world = resend();
    dispatched(&mut world, &call, 1);
    world.restart();
    world.pass_ms(59_999);
    let reply = world.send(&look_up("a"));
    reply.is_problem(409, "in-flight", "unknown", "same-id");
    assert!(reply.field("detail").contains("send the same request again to find out"), "{reply:?}");
    world.pass_ms(1);
    is_told(&mut world, &look_up("a"), 409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");

    let mut world = probe();
    dispatched(&mut world, &call, 1);
    world.restart();
    world.pass_s(100_000);
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
}

/// While the request is under way it may still get its outcome, whatever becomes of the engine and whoever reads meanwhile.
#[test]
fn a_look_up_is_in_flight_while_its_own_call_is_under_way_over_failures_and_restarts() {
    let call = order("a");
    let mut world = remote(Policy::Report);
    let sent = dispatched(&mut world, &call, 1);
    world.send(&get("/orders")).is_problem(503, "unavailable", "unknown", "same-id");
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    let looked_up = json!([{ "method": "GET", "path": "/semel/v1/keys/counters%2F1/outcomes/a" }]);
    let answers = world.batch(&looked_up).expect("answers");
    answers[0].is_problem(409, "in-flight", "unknown", "same-id");
    // The storage fails for a moment, and the engine's memory is loaded again.
    world.database.fail(0);
    world.send(&cancel("c", "a")).is_problem(503, "unavailable", "unknown", "same-id");
    world.database.calm();
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    // Another object of the isolate crashes the module, and the host says what is under way.
    world.restart();
    world.know_under_way("a");
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    world.settle(&call, &sent, answered(201, "made")).is_executed(201);
    assert_eq!(world.send(&look_up("a")).only("semel-status"), "replayed");

    // A request that an earlier object left in doubt is not under way because another one is.
    dispatched(&mut world, &order("b"), 1);
    world.restart();
    dispatched(&mut world, &order("c"), 1);
    is_told(&mut world, &look_up("b"), 409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &look_up("c"), 409, "in-flight", "unknown", "same-id");
}

/// The request has left, so nobody may be told that it never runs.
#[test]
fn a_call_under_way_can_not_be_cancelled_even_after_its_key_was_deleted() {
    for (without, by) in [(false, "client"), (true, "client"), (false, "administrator")] {
        let mut world = resend();
        let call = if without { post("/orders").id("a").body("one") } else { order("a") };
        let sent = dispatched(&mut world, &call, 1);
        world.send(&delete_key("d"));
        let cancellation = match by {
            "administrator" => cancel_for("c", r#"{"id":"a"}"#),
            _ => cancel("c", "a"),
        };
        is_told(&mut world, &cancellation, 409, "in-flight", "unknown", "same-id");
        world.settle(&call, &sent, answered(201, "made")).is_problem(409, "outcome-unknown", "unknown", "never");
        assert_eq!(world.take_call(), None);
        world.send(&cancellation).is_executed(200);
    }
}

/// The request has left, so nobody is told that it did not run.
#[test]
fn a_retry_of_a_call_under_way_is_in_flight_even_after_its_key_was_deleted() {
    let mut world = resend();
    let call = post("/orders").id("a").body("one");
    let sent = dispatched(&mut world, &call, 1);
    world.send(&delete_key("d"));
    world.wait(&call).is_problem(409, "in-flight", "unknown", "same-id");
    world.wait(&post("/orders").id("b").body("one")).is_problem(409, "locked", "no", "same-id");
    world.settle(&call, &sent, answered(201, "made")).is_problem(409, "outcome-unknown", "unknown", "never");
    world.wait(&call).is_problem(409, "locked", "no", "same-id");
}

/// A row of an earlier version has no instant, or says that somebody was told.
#[test]
fn a_request_that_an_older_version_left_in_doubt_is_answered_as_that_version_stored_it() {
    for (stored, code, retry) in [("NULL", "in-flight", "same-id"), ("2", "outcome-unknown", "never")] {
        let mut world = remote(Policy::Report);
        dispatched(&mut world, &order("a"), 1);
        world.database.run(&format!("UPDATE semel_records SET executed = {stored}"), &[]).expect("a row");
        world.restart();
        is_told(&mut world, &look_up("a"), 409, code, "unknown", retry);
        is_told(&mut world, &order("a"), 409, "outcome-unknown", "unknown", "never");
        is_told(&mut world, &look_up("a"), 409, "outcome-unknown", "unknown", "never");
    }
}
