//! Requests that are executed elsewhere: their start is recorded before they are sent, and their outcome when it comes.

use semel_core::message::{Headers, Method, Response};
use semel_core::server::edge::router::Route;
use semel_core::server::engine::remote::{Ended, read};
use semel_core::server::handler::Policy;
use semel_support::elsewhere::{Elsewhere, answered, dispatched, is_told, lost, order, refused, remote, resend};
use semel_support::{Call, START_MS, START_S, World, acknowledge, get, look_up, post};
use serde_json::json;

#[test]
fn the_start_of_a_remote_request_is_recorded_before_its_call_and_replaced_by_the_outcome() {
    let mut world = resend();
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    assert_eq!(world.row("a", "state"), Some(7.into()), "committed before anything is sent");
    assert_eq!(world.database.number("SELECT count(*) FROM semel_records"), 1);
    let executed = world.settle(&call, &sent, answered(201, "made"));
    assert_eq!((executed.status(), executed.only("semel-status"), executed.body()), (201, "executed", &b"made"[..]));
    assert_eq!(executed.header("x-from"), Some("elsewhere"));
    assert_eq!(world.take_call(), None);
    let replayed = world.send(&call);
    assert_eq!((replayed.status(), replayed.only("semel-status"), replayed.body()), (201, "replayed", &b"made"[..]));
    assert_eq!(world.take_call(), None, "never a second call");
}

#[test]
fn what_the_handler_writes_for_a_remote_request_is_undone() {
    let mut world = resend();
    let sent = dispatched(&mut world, &order("a"), 1);
    world.settle(&order("a"), &sent, answered(200, ""));
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master WHERE name = 'effects'"), 0);
}

#[test]
fn an_upstreams_3xx_or_5xx_answer_is_not_recorded_and_a_404_is() {
    for status in [301, 304, 500, 502, 503, 599] {
        let mut world = resend();
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        let told = world.settle(&call, &sent, answered(status, ""));
        told.is_problem(503, "unavailable", "unknown", "same-id");
        assert_eq!(
            told.json()["detail"],
            "the upstream gave no outcome; send the same request again: it finds out, or executes it"
        );
        assert_eq!(world.row("a", "state"), Some(7.into()), "{status}");
    }
    let mut world = resend();
    let sent = dispatched(&mut world, &order("a"), 1);
    let outcome = world.settle(&order("a"), &sent, answered(404, "none"));
    assert_eq!((outcome.status(), outcome.only("semel-status")), (404, "executed"));
}

#[test]
fn an_attempt_that_waits_for_a_call_is_counted_once() {
    let mut world = resend();
    let sent = dispatched(&mut world, &order("a"), 1);
    assert_eq!(world.counted("in-flight"), 0, "nobody was answered so");
    world.settle(&order("a"), &sent, answered(201, "made"));
    assert_eq!((world.counted("in-flight"), world.counted("executed")), (0, 1));
}

#[test]
fn an_attempt_that_waits_for_another_call_is_judged_in_the_order_of_checks() {
    let mut world = resend();
    let sent = dispatched(&mut world, &order("a"), 1);
    let late = |call: Call| call.deadline_ms(START_MS - 1);
    let early = |call: Call| call.first_sent_s(1);
    let other = || post("/orders").id("b");
    world.wait(&other()).is_problem(409, "locked", "no", "same-id");
    world.wait(&late(other())).is_problem(408, "attempt-expired", "no", "same-id");
    world.wait(&early(late(other()))).is_problem(412, "outside-window", "unknown", "never");
    world.wait(&other().too_large()).is_problem(413, "too-large", "no", "after-fix");
    let placed = post("/orders").header("semel-session", "\"s\";epoch=1;seq=1");
    world.wait(&placed).is_problem(400, "key-invalid", "no", "after-fix");
    // An attempt of the same request can't be told that the request does not run.
    for own in [order("a"), late(order("a")), early(late(post("/orders").id("a").body("one")))] {
        world.wait(&own).is_problem(409, "in-flight", "unknown", "same-id");
    }
    world.wait(&late(order("a").body("two"))).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    assert_eq!(world.take_call(), None);
    world.settle(&order("a"), &sent, answered(201, "made")).is_executed(201);
}

#[test]
fn a_fence_that_refuses_a_waiting_attempt_is_kept_and_refuses_it_after_a_restart() {
    let mut world = resend();
    dispatched(&mut world, &order("a"), 1);
    world.pass_s(1001);
    let late = post("/orders").id("b").first_sent_s(START_S);
    world.wait(&late).is_problem(412, "outside-window", "unknown", "never");
    world.pass_s(-1001);
    world.restart();
    is_told(&mut world, &late, 412, "outside-window", "unknown", "never");
}

#[test]
fn a_request_that_the_handler_did_not_declare_as_remote_is_rolled_back_and_not_sent() {
    let mut world = resend();
    world.handler.says_so.set(false);
    is_told(&mut world, &order("a"), 500, "rolled-back", "no", "same-id");
    is_told(&mut world, &get("/orders"), 500, "rolled-back", "no", "same-id");
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master WHERE name = 'effects'"), 0);
}

#[test]
fn a_call_that_was_surely_not_sent_leaves_no_record_and_can_be_made_again() {
    let mut world = remote(Policy::Report);
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, refused()).is_problem(502, "upstream-unreachable", "no", "same-id");
    assert_eq!(world.rows(), 0);
    assert_eq!(world.count().map(|count| count.records), Ok(0));
    let sent = dispatched(&mut world, &call, 1);
    assert_eq!(world.settle(&call, &sent, answered(201, "made")).only("semel-status"), "executed");
}

#[test]
fn the_answer_to_an_earlier_call_than_the_last_changes_nothing() {
    let mut world = resend();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    let second = dispatched(&mut world, &call, 2);
    world.settle(&call, &first, answered(201, "first")).is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!(world.row("a", "state"), Some(7.into()));
    assert_eq!(world.settle(&call, &second, answered(201, "second")).body(), b"second");
}

#[test]
fn the_engine_runs_no_remote_read_and_only_applies_the_acknowledgements_that_come_with_it() {
    let mut world = resend();
    let call = get("/orders");
    world.send(&call).is_problem(503, "unavailable", "unknown", "same-id");
    let read = json!([{ "method": "GET", "path": "/orders" }]);
    world.batch(&read).expect("answers")[0].is_problem(400, "key-invalid", "no", "after-fix");
    assert_eq!((world.take_call(), world.database.number("SELECT count(*) FROM sqlite_master")), (None, 0));
    let sent = dispatched(&mut world, &order("a"), 1);
    world.settle(&order("a"), &sent, answered(201, "made"));
    world.send(&get("/orders").header("semel-ack", "\"a\"")).is_problem(503, "unavailable", "unknown", "same-id");
    is_told(&mut world, &order("a"), 410, "acknowledged", "yes", "never");
}

#[test]
fn the_router_sends_a_remote_read_to_the_upstream_and_only_its_acknowledgements_to_the_key() {
    let world = resend();
    let elsewhere = |call: &Call| match world.route(call) {
        Route::Elsewhere { key, acknowledges, .. } => (key.as_str().to_owned(), acknowledges),
        other => panic!("{other:?}"),
    };
    assert_eq!(elsewhere(&get("/orders")), ("orders".to_owned(), false));
    assert_eq!(elsewhere(&get("/orders").header("semel-ack", "\"a\"")), ("orders".to_owned(), true));
    for call in [order("a"), look_up("a")] {
        assert!(matches!(world.route(&call), Route::Object { .. }));
    }
    // What the object would refuse is refused here.
    let place = "\"s\";epoch=1;seq=1";
    for (name, value) in [("semel-ack", "a;"), ("semel-deadline", "soon"), ("semel-session", place)] {
        let Route::Answer(answer) = world.route(&get("/orders").header(name, value)) else { panic!("{name}") };
        assert_eq!(answer.headers.get("semel-status"), Some("key-invalid"));
    }
}

#[test]
fn a_remote_read_gets_the_upstreams_answer_or_unavailable_or_upstream_unreachable() {
    let told = read(answered(200, "all"), &Method::Get);
    assert_eq!((told.status, told.headers.get("semel-status"), told.body.as_slice()), (200, Some("read"), &b"all"[..]));
    for (ended, code) in
        [(answered(500, ""), "unavailable"), (lost(), "unavailable"), (refused(), "upstream-unreachable")]
    {
        assert_eq!(read(ended, &Method::Get).headers.get("semel-status"), Some(code));
    }
}

#[test]
fn of_a_remote_reads_length_only_that_of_a_head_is_kept_and_only_if_it_is_a_number() {
    let kept = |length: &str, method: Method| {
        let headers = Headers::from_iter([("content-length", length)]);
        let ended = Ended::Answered(Response { status: 200, headers, body: Vec::new() });
        read(ended, &method).headers.get("content-length").map(str::to_owned)
    };
    assert_eq!(kept("5000", Method::Head).as_deref(), Some("5000"));
    assert_eq!(kept("5000", Method::Get), None);
    for length in ["", "-1", "5, 5", "0x5"] {
        assert_eq!(kept(length, Method::Head), None, "{length:?}");
    }
}

#[test]
fn a_remote_request_in_a_batch_or_a_session_is_key_invalid() {
    let mut world = resend();
    let element = json!({ "id": "a", "firstSent": START_S, "method": "POST", "path": "/orders", "body": "one" });
    let answers = world.batch(&json!([element])).expect("answers");
    answers[0].is_problem(400, "key-invalid", "no", "after-fix");
    let alone = world.refusal(&json!([element])).expect("it is refused");
    alone.is_problem(400, "key-invalid", "no", "after-fix");
    let numbered = post("/orders").header("semel-session", "\"s\";epoch=1;seq=1");
    is_told(&mut world, &numbered, 400, "key-invalid", "no", "after-fix");
    assert_eq!((world.take_call(), world.database.number("SELECT count(*) FROM sqlite_master")), (None, 0));
}

/// A crash before any statement, of the start or of the outcome. The start is recorded before anything can be sent, and a request
/// with the policy "report" is never sent again.
#[test]
fn a_crash_between_any_two_statements_sends_nothing_twice() {
    let call = order("a");
    let mut crashes = 0;
    loop {
        let mut world = remote(Policy::Report);
        let mut calls = 0;
        world.database.crash_before(crashes);
        let first = world.send(&call);
        if let Some(sent) = world.take_call() {
            assert_eq!(world.row("a", "state"), Some(7.into()), "crash {crashes}");
            calls += 1;
            world.settle(&call, &sent, answered(201, "made"));
        }
        if !world.database.has_crashed() {
            assert_eq!(calls, 1);
            break;
        }
        world.restart();
        let second = world.send(&call);
        if let Some(sent) = world.take_call() {
            calls += 1;
            assert_eq!(world.settle(&call, &sent, answered(201, "made")).only("semel-status"), "executed");
        } else if calls == 1 {
            let is_known = second.only("semel-status") == "replayed";
            assert!(
                is_known || second.only("semel-status") == "outcome-unknown",
                "crash {crashes}: {second:?} after {first:?}"
            );
        }
        assert_eq!(calls, 1, "crash {crashes}");
        crashes += 1;
    }
    assert!(crashes >= 8, "only {crashes} places to crash");
}

/// Lets seconds pass. A new object has swept by its first answer.
fn later(world: &mut World<Elsewhere>, seconds: i64) {
    world.pass_s(seconds);
    world.restart();
    world.send(&acknowledge("[]"));
}

#[test]
fn a_replay_to_an_attempt_without_a_deadline_during_another_call_unbounds_the_tombstone() {
    let mut world = resend();
    let deadline_ms = START_MS + 30_000;
    let call = post("/orders").id("a").first_sent_s(START_S).deadline_ms(deadline_ms).body("one");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, answered(201, "made"));
    let other = order("b");
    let under_way = dispatched(&mut world, &other, 1);
    // This attempt has no deadline, so no end bounds what may still be on its way.
    let unbounded = post("/orders").id("a").first_sent_s(START_S).body("one");
    assert_eq!(world.wait(&unbounded).only("semel-status"), "replayed");
    world.settle(&other, &under_way, answered(201, "made"));
    world.send(&acknowledge(&format!("[{{\"id\":\"a\",\"until\":{deadline_ms}}}]")));
    later(&mut world, 120);
    world.send(&unbounded).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(world.take_call(), None, "never a second call");
}

#[test]
fn a_tombstone_outlives_the_later_deadline_of_an_attempt_answered_during_another_call() {
    let mut world = resend();
    let attempt = |deadline_ms: i64| post("/orders").id("a").first_sent_s(START_S).deadline_ms(deadline_ms).body("one");
    let call = attempt(START_MS + 1_000);
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, answered(201, "made"));
    world.send(&acknowledge(&format!("[{{\"id\":\"a\",\"until\":{}}}]", START_MS + 1_000)));
    let under_way = dispatched(&mut world, &order("b"), 1);
    let late = attempt(START_MS + 100_000);
    world.wait(&late).is_problem(410, "acknowledged", "yes", "never");
    world.settle(&order("b"), &under_way, answered(201, "made"));
    later(&mut world, 120);
    world.send(&late).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(world.take_call(), None, "never a second call");
}

#[test]
fn remote_requests_are_not_committed_in_a_group() {
    let mut world = resend();
    assert!(world.group(&[order("a"), order("b")]).is_none(), "each by itself");
    assert_eq!((world.take_call(), world.row("a", "state")), (None, None));
    dispatched(&mut world, &order("a"), 1);
}

/// The row that is gone had the clock.
#[test]
fn the_clock_of_a_key_does_not_go_back_behind_a_call_that_could_not_be_sent() {
    let mut world = resend();
    world.pass_s(50);
    let sent = dispatched(&mut world, &order("a"), 1);
    world.settle(&order("a"), &sent, refused()).is_problem(502, "upstream-unreachable", "no", "same-id");
    world.pass_s(-50);
    world.restart();
    assert_eq!(world.send(&look_up("a")).now_ms(), START_MS + 50_000);
}
