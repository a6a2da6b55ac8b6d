//! Requests that are executed elsewhere: their start is recorded before they are sent, and their outcome when it comes.

use semel_core::id::Principal;
use semel_core::message::{Headers, Response};
use semel_core::server::remote::{Call as Sent, Ended, Policy};
use semel_core::server::{Config, Sql};
use semel_support::admin::{ask, cancel_for, delete_key, delete_record, path, resolve};
use semel_support::elsewhere::Elsewhere;
use semel_support::{Call, START_MS, START_S, World, acknowledge, cancel, get, look_up, post};
use serde_json::json;

fn remote(policy: Policy) -> World<Elsewhere> {
    World::of(Elsewhere::new(policy), Config { open: true, retention_s: 1000, ..Config::default() })
}

fn resend() -> World<Elsewhere> {
    remote(Policy::Resend { dedup_s: 60 })
}

fn probe() -> World<Elsewhere> {
    remote(Policy::Probe { path: "/orders/1".to_owned(), settle_s: 30 })
}

fn order(id: &str) -> Call {
    post("/orders").id(id).first_sent_s(START_S).body("one")
}

fn answered(status: u16, body: &str) -> Ended {
    Ended::Answered(Response { status, headers: Headers::from_iter([("x-from", "elsewhere")]), body: body.into() })
}

fn lost() -> Ended {
    Ended::Unknown("the connection was lost".to_owned())
}

fn refused() -> Ended {
    Ended::Unreachable("connection refused".to_owned())
}

/// Sends an attempt that is to be dispatched, for the `times`th time.
#[track_caller]
fn dispatched(world: &mut World<Elsewhere>, call: &Call, times: i64) -> Sent {
    world.send(call).is_problem(409, "in-flight", "unknown", "same-id");
    let sent = world.take_call().expect("something to send");
    assert_eq!(sent, Sent::Dispatch { times });
    sent
}

/// Leaves a request in doubt: it was sent, and no answer came.
#[track_caller]
fn in_doubt(world: &mut World<Elsewhere>, id: &str) {
    let sent = dispatched(world, &order(id), 1);
    world.settle(&order(id), &sent, lost());
}

/// Sends an attempt of which nothing is to be sent, and that gets a problem.
#[track_caller]
fn is_told(world: &mut World<Elsewhere>, call: &Call, status: u16, code: &str, executed: &str, retry: &str) {
    world.send(call).is_problem(status, code, executed, retry);
    assert_eq!(world.take_call(), None);
}

#[test]
fn a_start_is_recorded_before_its_call_and_the_outcome_over_it() {
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
fn what_the_handler_writes_is_undone() {
    let mut world = resend();
    let sent = dispatched(&mut world, &order("a"), 1);
    world.settle(&order("a"), &sent, answered(200, ""));
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master WHERE name = 'effects'"), 0);
}

#[test]
fn what_has_no_answer_stays_in_doubt_until_it_is_resolved() {
    let mut world = remote(Policy::Report);
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost()).is_problem(409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
    world.restart();
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
}

#[test]
fn a_start_that_is_found_is_in_doubt() {
    for (policy, sends) in [(Policy::Report, false), (Policy::Resend { dedup_s: 60 }, true)] {
        let mut world = remote(policy);
        let call = order("a");
        dispatched(&mut world, &call, 1);
        world.restart();
        if sends {
            dispatched(&mut world, &call, 2);
        } else {
            is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
        }
    }
}

#[test]
fn no_answer_that_is_no_outcome_is_recorded() {
    for status in [301, 304, 500, 502, 503, 599] {
        let mut world = resend();
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        world.settle(&call, &sent, answered(status, "")).is_problem(503, "unavailable", "unknown", "same-id");
        assert_eq!(world.row("a", "state"), Some(7.into()), "{status}");
    }
    let mut world = resend();
    let sent = dispatched(&mut world, &order("a"), 1);
    let outcome = world.settle(&order("a"), &sent, answered(404, "none"));
    assert_eq!((outcome.status(), outcome.only("semel-status")), (404, "executed"));
}

/// A login, a limit, or the other side's word that the first one is still being executed: none of them is the first one's answer.
#[test]
fn what_is_sent_again_has_no_outcome_from_who_may_stand_before_the_memory_of_ids() {
    for status in [401, 403, 407, 408, 409, 425, 429] {
        let mut world = resend();
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
        let again = dispatched(&mut world, &call, 2);
        world.settle(&call, &again, answered(status, "")).is_problem(503, "unavailable", "unknown", "same-id");
        assert_eq!(world.row("a", "state"), Some(7.into()), "{status}");
        let third = dispatched(&mut world, &call, 3);
        assert_eq!(world.settle(&call, &third, answered(201, "made")).body(), b"made");

        // Of what was sent once it is the first answer.
        let sent = dispatched(&mut world, &order("b"), 1);
        let outcome = world.settle(&order("b"), &sent, answered(status, ""));
        assert_eq!((outcome.status(), outcome.only("semel-status")), (status, "executed"));
    }
    let mut world = resend();
    let call = order("a");
    dispatched(&mut world, &call, 1);
    let again = dispatched(&mut world, &call, 2);
    assert_eq!(world.settle(&call, &again, answered(422, "no")).only("semel-status"), "executed", "the first one's");
}

/// It was proven that nothing of the first is there: the second one's answer is the first.
#[test]
fn what_is_sent_again_after_a_probe_has_the_outcome_of_whoever_answers() {
    let mut world = probe();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    world.settle(&call, &first, lost());
    world.pass_s(30);
    world.send(&call);
    let probed = world.take_call().expect("a probe");
    world.settle(&call, &probed, answered(404, ""));
    let again = world.take_call().expect("a second dispatch");
    assert_eq!(world.settle(&call, &again, answered(409, "none left")).only("semel-status"), "executed");
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
fn who_waits_for_anothers_call_is_judged_in_the_order_of_checks() {
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
    // Of its own request it can't be told that it does not run.
    for own in [order("a"), late(order("a")), early(late(post("/orders").id("a").body("one")))] {
        world.wait(&own).is_problem(409, "in-flight", "unknown", "same-id");
    }
    world.wait(&late(order("a").body("two"))).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    assert_eq!(world.take_call(), None);
    world.settle(&order("a"), &sent, answered(201, "made")).is_executed(201);
}

#[test]
fn after_a_crash_the_handler_is_not_asked_for_what_is_in_doubt() {
    let mut world = resend();
    dispatched(&mut world, &order("a"), 1);
    world.restart();
    let asked = world.handler.calls.get();
    world.crashed(&order("a")).is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!((world.take_call(), world.handler.calls.get()), (None, asked));
}

#[test]
fn what_the_handler_had_not_said_that_it_would_is_not_sent() {
    let mut world = resend();
    world.handler.says_so.set(false);
    is_told(&mut world, &order("a"), 500, "rolled-back", "no", "same-id");
    is_told(&mut world, &get("/orders"), 500, "rolled-back", "no", "same-id");
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master WHERE name = 'effects'"), 0);
}

#[test]
fn what_is_resent_is_resent_only_while_the_other_side_knows_it() {
    let mut world = resend();
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
    world.pass_s(59);
    let sent = dispatched(&mut world, &call, 2);
    world.settle(&call, &sent, lost());
    // From the first time on, not the last.
    world.pass_s(1);
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
}

#[test]
fn a_late_attempt_sends_nothing_and_does_not_say_that_it_did_not_run() {
    let mut world = resend();
    let call = order("a").deadline_ms(START_MS + 1000);
    dispatched(&mut world, &call, 1);
    world.restart();
    world.pass_ms(1001);
    is_told(&mut world, &call, 409, "in-flight", "unknown", "same-id");
}

#[test]
fn a_probe_that_finds_it_is_the_outcome() {
    let mut world = probe();
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
    world.send(&call).is_problem(409, "in-flight", "unknown", "same-id");
    let sent = world.take_call().expect("a probe");
    assert_eq!(sent, Sent::Probe { path: "/orders/1".to_owned(), times: 1, is_proof: false });
    let found = world.settle(&call, &sent, answered(200, "it is there"));
    assert_eq!((found.status(), found.only("semel-status"), found.body()), (200, "executed", &b"it is there"[..]));
    assert_eq!(world.send(&call).only("semel-status"), "replayed");
}

#[test]
fn that_nothing_is_found_proves_nothing_too_early() {
    let mut world = probe();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    world.settle(&call, &first, lost());
    world.pass_ms(29_999);
    world.send(&call);
    let early = world.take_call().expect("a probe");
    world.settle(&call, &early, answered(404, "")).is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!(world.take_call(), None);
    world.pass_ms(1);
    world.send(&call);
    let late = world.take_call().expect("a probe");
    world.settle(&call, &late, answered(404, "")).is_problem(409, "in-flight", "unknown", "same-id");
    let again = world.take_call().expect("it is proven that nothing is there, so it is sent");
    assert_eq!(again, Sent::Dispatch { times: 2 });
    let outcome = world.settle(&call, &again, answered(201, "made"));
    assert_eq!((outcome.status(), outcome.only("semel-status")), (201, "executed"));
}

#[test]
fn a_probe_without_a_clear_answer_proves_nothing() {
    for ended in [answered(500, ""), answered(204, ""), answered(403, ""), answered(302, ""), lost(), refused()] {
        let mut world = probe();
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        world.settle(&call, &sent, lost());
        world.pass_s(100);
        world.send(&call);
        let sent = world.take_call().expect("a probe");
        world.settle(&call, &sent, ended.clone()).is_problem(409, "in-flight", "unknown", "same-id");
        assert_eq!(world.take_call(), None, "{ended:?}");
        assert_eq!(world.row("a", "state"), Some(7.into()), "{ended:?}");
    }
}

#[test]
fn a_probe_for_a_late_attempt_sends_nothing() {
    let mut world = probe();
    let call = order("a").deadline_ms(START_MS + 1000);
    dispatched(&mut world, &call, 1);
    world.pass_s(100);
    world.send(&call);
    let sent = world.take_call().expect("a probe");
    world.settle(&call, &sent, answered(404, "")).is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!(world.take_call(), None);
}

#[test]
fn what_was_surely_not_sent_is_as_if_it_never_came() {
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
fn what_was_sent_before_is_in_doubt_though_it_can_not_be_sent_again() {
    let mut world = resend();
    let call = order("a");
    dispatched(&mut world, &call, 1);
    let again = dispatched(&mut world, &call, 2);
    world.settle(&call, &again, refused()).is_problem(503, "unavailable", "unknown", "same-id");
    assert_eq!(world.row("a", "state"), Some(7.into()));
}

#[test]
fn what_is_in_doubt_never_leaves_by_itself() {
    let mut world = remote(Policy::Report);
    let call = order("a");
    dispatched(&mut world, &call, 1);
    world.send(&acknowledge("[\"a\"]"));
    assert_eq!(world.row("a", "state"), Some(7.into()), "it is not to be acknowledged");
    assert_eq!(world.forget(START_S + 500), Ok(()));
    world.pass_s(100_000);
    for n in 0..4 {
        let other = post("/orders").id(&format!("other-{n}")).first_sent_s(world.wall_s());
        world.send(&other);
        world.pass_s(20);
    }
    world.restart();
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
}

#[test]
fn nobody_else_learns_of_it_and_nothing_else_runs_under_its_id() {
    let mut world = remote(Policy::Report);
    let call = order("a");
    dispatched(&mut world, &call, 1);
    is_told(&mut world, &call.clone().by("mallory"), 422, "fingerprint-mismatch", "no", "after-fix");
    is_told(&mut world, &call.clone().body("two"), 422, "fingerprint-mismatch", "no", "after-fix");
    world.send(&look_up("a").by("mallory")).is_problem(404, "not-seen", "unknown", "same-id");
}

#[test]
fn it_is_neither_cancelled_nor_unseen() {
    let mut world = resend();
    dispatched(&mut world, &order("a"), 1);
    is_told(&mut world, &cancel("c", "a"), 409, "in-flight", "unknown", "same-id");
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    assert_eq!(world.row("a", "state"), Some(7.into()));
}

/// Who looks it up, or cancels it, would else hear for ever that it is under way.
#[test]
fn what_an_attempt_was_told_of_it_is_told_to_who_looks_it_up_or_cancels_it() {
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

    // Where routes say so since, though an attempt found out before.
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

/// Nobody runs it any more, and no attempt may ever ask: who only looks it up hears what an attempt would.
#[test]
fn a_start_that_nobody_runs_any_more_is_no_longer_told_to_be_under_way() {
    let call = order("a");
    let mut world = remote(Policy::Report);
    dispatched(&mut world, &call, 1);
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    world.restart();
    is_told(&mut world, &look_up("a"), 409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &cancel("c", "a"), 409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &look_up("a").by("mallory"), 404, "not-seen", "unknown", "same-id");
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");

    // Until the other side has forgotten its id, the next attempt sends it again.
    let mut world = resend();
    dispatched(&mut world, &call, 1);
    world.restart();
    world.pass_ms(59_999);
    let reply = world.send(&look_up("a"));
    reply.is_problem(409, "in-flight", "unknown", "same-id");
    assert!(reply.field("detail").contains("sent again, finds out"), "{reply:?}");
    world.pass_ms(1);
    is_told(&mut world, &look_up("a"), 409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");

    let mut world = probe();
    dispatched(&mut world, &call, 1);
    world.restart();
    world.pass_s(100_000);
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
}

/// While it is under way, whatever becomes of the engine and whoever reads meanwhile, it may have its outcome yet.
#[test]
fn what_is_under_way_is_told_so_for_as_long_as_it_is() {
    let call = order("a");
    let mut world = remote(Policy::Report);
    let sent = dispatched(&mut world, &call, 1);
    world.send(&get("/orders"));
    let read = world.take_call().expect("a read");
    world.settle(&get("/orders"), &read, answered(200, ""));
    is_told(&mut world, &look_up("a"), 409, "in-flight", "unknown", "same-id");
    let looked_up = json!([{ "method": "GET", "path": "/semel/v1/keys/counters%2F1/outcomes/a" }]);
    let answers = world.batch(&looked_up).expect("answers");
    answers[0].is_problem(409, "in-flight", "unknown", "same-id");
    // The storage fails for a moment: what is in memory is looked at again.
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

    // What an object before has left in doubt is not under way because another is.
    dispatched(&mut world, &order("b"), 1);
    world.restart();
    dispatched(&mut world, &order("c"), 1);
    is_told(&mut world, &look_up("b"), 409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &look_up("c"), 409, "in-flight", "unknown", "same-id");
}

/// It has left, so nobody may be told that it never runs.
#[test]
fn what_is_under_way_is_not_cancelled_though_its_key_was_deleted() {
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

/// A row of a version before this has no instant, or says that it was told so.
#[test]
fn what_an_older_version_has_left_in_doubt_is_told_as_it_was() {
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

#[test]
fn an_administrator_settles_what_is_in_doubt() {
    let mut world = remote(Policy::Report);
    in_doubt(&mut world, "a");
    let yes = r#"{"executed":"yes","outcome":{"status":201,"headers":{"x-by":"hand"},"body":"made"}}"#;
    assert_eq!(world.send(&resolve("r1", "a", yes)).json()["state"], "executed");
    let replayed = world.send(&order("a"));
    assert_eq!((replayed.status(), replayed.header("x-by"), replayed.body()), (201, Some("hand"), &b"made"[..]));
    world.send(&resolve("r2", "a", r#"{"executed":"no"}"#)).is_problem(400, "body-invalid", "no", "after-fix");

    in_doubt(&mut world, "b");
    assert_eq!(world.send(&resolve("r3", "b", r#"{"executed":"no"}"#)).json()["executed"], "no");
    is_told(&mut world, &order("b"), 410, "cancelled", "no", "never");
    world.send(&resolve("r4", "never", yes)).is_problem(404, "not-seen", "unknown", "same-id");
    for wrong in [
        "{}",
        r#"{"executed":"yes"}"#,
        r#"{"executed":"no","outcome":{"status":200}}"#,
        r#"{"executed":"yes","outcome":{"status":500}}"#,
    ] {
        world.send(&resolve("r5", "a", wrong)).is_problem(400, "body-invalid", "no", "after-fix");
    }
    world.send(&resolve("r6", "a", yes).by("mallory")).is_problem(403, "forbidden", "no", "after-fix");
}

/// It may have its effect yet, so nobody may say that it did not run; and it may have another outcome than is said.
#[test]
fn what_is_under_way_is_not_settled_by_an_administrator() {
    for body in [r#"{"executed":"no"}"#, r#"{"executed":"yes","outcome":{"status":201}}"#] {
        let mut world = probe();
        in_doubt(&mut world, "b");
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        let resolution = |id| resolve(&format!("r {id}"), id, body);
        is_told(&mut world, &resolution("a"), 409, "locked", "no", "same-id");
        // However its path is written, and whatever the engine was made of.
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
fn an_answer_that_comes_after_that_changes_nothing() {
    let mut world = remote(Policy::Report);
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    // An engine that does not know of it.
    world.restart();
    world.send(&resolve("r1", "a", r#"{"executed":"yes","outcome":{"status":200,"body":"by hand"}}"#));
    let late = world.settle(&call, &sent, answered(201, "late"));
    assert_eq!((late.only("semel-status"), late.body()), ("replayed", &b"by hand"[..]));
    assert_eq!(world.send(&call).body(), b"by hand");
}

#[test]
fn an_answer_to_a_call_before_the_last_changes_nothing() {
    let mut world = resend();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    let second = dispatched(&mut world, &call, 2);
    world.settle(&call, &first, answered(201, "first")).is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!(world.row("a", "state"), Some(7.into()));
    assert_eq!(world.settle(&call, &second, answered(201, "second")).body(), b"second");
}

#[test]
fn what_was_deleted_meanwhile_is_not_sent_again() {
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
fn a_read_is_sent_and_not_recorded() {
    let mut world = resend();
    let call = get("/orders");
    world.send(&call);
    let sent = world.take_call().expect("a read");
    assert_eq!(sent, Sent::Read);
    let read = world.settle(&call, &sent, answered(200, "all"));
    assert_eq!((read.status(), read.only("semel-status"), read.body()), (200, "read", &b"all"[..]));
    world.settle(&call, &sent, answered(500, "")).is_problem(503, "unavailable", "unknown", "same-id");
    world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
    world.settle(&call, &sent, refused()).is_problem(502, "upstream-unreachable", "no", "same-id");
    assert_eq!(world.database.number("SELECT count(*) FROM sqlite_master"), 0);
}

#[test]
fn it_has_no_place_in_a_batch_or_a_session() {
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

#[test]
fn an_administrator_sees_what_is_in_doubt() {
    let mut world = remote(Policy::Report);
    dispatched(&mut world, &order("a"), 1);
    let shown = world.send(&ask("/records/a")).json();
    assert_eq!((&shown["state"], &shown["executed"]), (&"in-doubt".into(), &"unknown".into()));
    world.restart();
    assert_eq!(world.count().map(|count| count.records), Ok(1));
}

/// A crash before any statement, of the start or of the outcome: the start is recorded before anything can be sent, and what
/// was sent is never sent again where it is to be reported.
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
