//! Requests that are executed elsewhere and are in doubt: what becomes of them, by the policy of their route.

use semel_core::message::{Headers, Response};
use semel_core::server::engine::chores::TOTALS_ROWS_MIN;
use semel_core::server::engine::remote::{Call as Sent, Ended};
use semel_core::server::handler::Policy;
use semel_support::elsewhere::{
    Elsewhere, answered, dispatched, in_doubt, is_told, lost, order, probe, refused, remote, resend,
};
use semel_support::{Call, START_MS, START_S, World, acknowledge, look_up, post};

#[test]
fn with_policy_report_a_call_without_an_answer_is_outcome_unknown_even_after_a_restart() {
    let mut world = remote(Policy::Report);
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost()).is_problem(409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
    world.restart();
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
}

#[test]
fn a_start_found_after_a_restart_is_outcome_unknown_by_report_and_sent_again_by_resend() {
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

const NOT_OF_THE_FIRST: [u16; 14] = [401, 403, 404, 405, 407, 408, 409, 410, 412, 421, 423, 424, 425, 429];

/// The answer of a login, of a limit, or of a proxy without a route while the service behind it starts; or the service's word
/// that the first request is still being executed or left nothing to do. None of them is the answer to the first request.
#[test]
fn a_status_that_may_not_answer_the_first_request_is_no_outcome_of_a_resent_one() {
    for status in NOT_OF_THE_FIRST {
        let mut world = resend();
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
        let again = dispatched(&mut world, &call, 2);
        world.settle(&call, &again, answered(status, "")).is_problem(503, "unavailable", "unknown", "same-id");
        assert_eq!(world.row("a", "state"), Some(7.into()), "{status}");
        let third = dispatched(&mut world, &call, 3);
        assert_eq!(world.settle(&call, &third, answered(201, "made")).body(), b"made");

        // To a request that was sent once, such an answer is the first one.
        let sent = dispatched(&mut world, &order("b"), 1);
        let outcome = world.settle(&order("b"), &sent, answered(status, ""));
        assert_eq!((outcome.status(), outcome.only("semel-status")), (status, "executed"));
    }
    // Every other answer is that to the first request.
    for status in (400..500).filter(|status| !NOT_OF_THE_FIRST.contains(status)) {
        let mut world = resend();
        let call = order("a");
        dispatched(&mut world, &call, 1);
        let again = dispatched(&mut world, &call, 2);
        let told = world.settle(&call, &again, answered(status, "no"));
        assert_eq!((told.status(), told.only("semel-status")), (status, "executed"));
    }
}

/// Some services say by 422 that the first request is still being executed; from others, a 422 is an outcome.
#[test]
fn a_422_with_transient_error_or_retry_after_is_no_outcome_of_a_resent_request() {
    for (status, name, value, passes) in [
        (422, "transient-error", "true", true),
        (422, "retry-after", "1", true),
        (422, "transient-error", "false", false),
        (400, "retry-after", "1", false),
    ] {
        let mut world = resend();
        let call = order("a");
        let sent = dispatched(&mut world, &call, 1);
        world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
        let again = dispatched(&mut world, &call, 2);
        let headers = Headers::from_iter([(name, value)]);
        let told = world.settle(&call, &again, Ended::Answered(Response { status, headers, body: Vec::new() }));
        if passes {
            told.is_problem(503, "unavailable", "unknown", "same-id");
            let third = dispatched(&mut world, &call, 3);
            assert_eq!(world.settle(&call, &third, answered(201, "made")).body(), b"made");
        } else {
            assert_eq!((told.status(), told.only("semel-status")), (status, "executed"));
        }
    }
}

/// The service means it, each time.
#[test]
fn a_resent_request_that_only_gets_404_is_outcome_unknown_once_its_window_is_over() {
    let mut world = resend();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    world.settle(&call, &first, lost());
    for times in [2, 3] {
        world.pass_s(29);
        let again = dispatched(&mut world, &call, times);
        world.settle(&call, &again, answered(404, "")).is_problem(503, "unavailable", "unknown", "same-id");
    }
    world.pass_s(2);
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
}

/// A probe has proven that the first request left nothing, so the answer to the second one is the first answer.
#[test]
fn a_request_sent_again_after_a_probe_takes_404_409_and_412_as_its_outcome() {
    for status in [404, 409, 412] {
        let mut world = probe();
        let call = order("a");
        let first = dispatched(&mut world, &call, 1);
        world.settle(&call, &first, lost());
        world.pass_s(30);
        world.send(&call);
        let probed = world.take_call().expect("a probe");
        world.settle(&call, &probed, answered(404, ""));
        let again = world.take_call().expect("a second dispatch");
        assert_eq!(world.settle(&call, &again, answered(status, "no")).only("semel-status"), "executed", "{status}");
    }
}

#[test]
fn on_an_attempt_whose_handler_crashed_a_request_in_doubt_is_in_flight_and_not_sent() {
    let mut world = resend();
    dispatched(&mut world, &order("a"), 1);
    world.restart();
    let asked = world.handler.calls.get();
    world.crashed(&order("a")).is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!((world.take_call(), world.handler.calls.get()), (None, asked));
}

#[test]
fn a_failing_migration_gives_up_no_request_in_doubt() {
    let mut world = resend();
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.database.tamper("CREATE TABLE effects (made INTEGER)");
    world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
    is_told(&mut world, &call, 503, "unavailable", "unknown", "same-id");
    is_told(&mut world, &order("b"), 500, "rolled-back", "no", "same-id");
    world.database.tamper("DROP TABLE effects");
    dispatched(&mut world, &call, 2);
}

#[test]
fn a_request_is_resent_only_while_the_upstream_knows_its_id_counted_from_the_first_time() {
    let mut world = resend();
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
    world.pass_s(59);
    let sent = dispatched(&mut world, &call, 2);
    world.settle(&call, &sent, lost());
    // It counts from the first time, not the last. A look-up is told so too.
    world.pass_s(1);
    world.send(&look_up("a")).is_problem(409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
}

/// The service may not have known ids then, or may not be one that can be asked; and a client that was told so may have acted on
/// it.
#[test]
fn a_request_sent_under_report_stays_outcome_unknown_under_a_later_policy() {
    for policy in
        [Policy::Resend { dedup_s: 600 }, Policy::Probe { path: "/orders/1".to_owned(), timeout_s: 20, settle_s: 30 }]
    {
        let mut world = remote(Policy::Report);
        let call = order("a");
        dispatched(&mut world, &call, 1);
        *world.handler.policy.borrow_mut() = policy.clone();
        world.restart();
        world.pass_s(100);
        world.send(&look_up("a")).is_problem(409, "outcome-unknown", "unknown", "never");
        is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
        // What is sent from now on follows the present policy.
        let sent = dispatched(&mut world, &order("b"), 1);
        world.settle(&order("b"), &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
        world.send(&order("b")).is_problem(409, "in-flight", "unknown", "same-id");
        assert!(world.take_call().is_some(), "{policy:?}");
    }
}

/// The handler no longer decides what becomes of the request, and whatever would run here must not run for it.
#[test]
fn a_request_in_doubt_whose_route_is_now_local_is_outcome_unknown_and_runs_no_handler() {
    for mut world in [resend(), probe()] {
        in_doubt(&mut world, "a");
        world.handler.says_so.set(false);
        let calls = world.handler.calls.get();
        is_told(&mut world, &order("a"), 409, "outcome-unknown", "unknown", "never");
        assert_eq!(world.handler.calls.get(), calls);
    }
}

#[test]
fn a_request_is_resent_for_the_shorter_of_the_old_and_the_new_deduplication_window() {
    let mut world = resend();
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost());
    *world.handler.policy.borrow_mut() = Policy::Resend { dedup_s: 600 };
    world.restart();
    world.pass_s(59);
    let again = dispatched(&mut world, &call, 2);
    world.settle(&call, &again, lost());
    world.pass_s(1);
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
    // It is not sent again for longer than is set now either.
    let mut world = remote(Policy::Resend { dedup_s: 600 });
    dispatched(&mut world, &call, 1);
    *world.handler.policy.borrow_mut() = Policy::Resend { dedup_s: 60 };
    world.restart();
    world.pass_s(60);
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
}

/// Nobody knows whether the service knew the id then.
#[test]
fn a_request_sent_under_probe_is_not_resent_under_a_later_resend_policy() {
    let mut world = probe();
    let call = order("a");
    let sent = dispatched(&mut world, &call, 1);
    world.settle(&call, &sent, lost()).is_problem(503, "unavailable", "unknown", "same-id");
    *world.handler.policy.borrow_mut() = Policy::Resend { dedup_s: 600 };
    world.restart();
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
    // It is not probed for either, once its client was told so.
    *world.handler.policy.borrow_mut() = probe_of(20, 30);
    world.restart();
    world.send(&look_up("a")).is_problem(409, "outcome-unknown", "unknown", "never");
    is_told(&mut world, &call, 409, "outcome-unknown", "unknown", "never");
}

/// The call may have been under way for longer than is set now, and only the earlier service knew its id.
#[test]
fn a_request_sent_under_resend_may_be_found_by_a_later_probe_but_is_not_sent_again() {
    let mut world = resend();
    for id in ["a", "b"] {
        dispatched(&mut world, &order(id), 1);
        world.restart();
    }
    *world.handler.policy.borrow_mut() = probe_of(5, 6);
    world.restart();
    world.pass_s(59);
    for (id, ended, status) in [("a", answered(404, ""), 409), ("b", answered(200, "it is there"), 200)] {
        world.send(&order(id)).is_problem(409, "in-flight", "unknown", "same-id");
        let probed = world.take_call().expect("a probe");
        assert_eq!(world.settle(&order(id), &probed, ended).status(), status);
        assert_eq!(world.take_call(), None);
    }
    world.pass_s(1);
    is_told(&mut world, &order("a"), 409, "outcome-unknown", "unknown", "never");
}

/// The new service doesn't know the id, and that it has nothing proves nothing about the place where the request was sent.
#[test]
fn a_request_whose_upstream_has_changed_is_neither_resent_nor_probed_for() {
    for policy in [Policy::Resend { dedup_s: 600 }, probe_of(20, 30)] {
        let mut world = remote(policy.clone());
        in_doubt(&mut world, "a");
        world.handler.whither.set(7);
        world.restart();
        world.pass_s(60);
        is_told(&mut world, &order("a"), 409, "outcome-unknown", "unknown", "never");
        // Its client was told so: nothing is sent even after the routes are as they were.
        world.handler.whither.set(0);
        world.restart();
        world.send(&look_up("a")).is_problem(409, "outcome-unknown", "unknown", "never");
        is_told(&mut world, &order("a"), 409, "outcome-unknown", "unknown", "never");
        // A request that is sent from now on is sent again to the same place.
        world.handler.whither.set(7);
        world.restart();
        in_doubt(&mut world, "b");
        world.restart();
        world.pass_s(60);
        world.send(&order("b")).is_problem(409, "in-flight", "unknown", "same-id");
        assert!(world.take_call().is_some(), "{policy:?}");
    }
}

/// Earlier versions did not keep where a request was sent: it is treated as they did.
#[test]
fn a_request_of_a_version_that_kept_no_upstream_is_still_resent_or_probed_for() {
    for policy in [Policy::Resend { dedup_s: 600 }, probe_of(20, 30)] {
        let mut world = remote(policy.clone());
        in_doubt(&mut world, "a");
        world.database.tamper("UPDATE semel_records SET status = NULL");
        world.handler.whither.set(7);
        world.restart();
        world.send(&order("a")).is_problem(409, "in-flight", "unknown", "same-id");
        assert!(world.take_call().is_some(), "{policy:?}");
    }
}

/// A probe asks at another address than that of the request anyway, so it doesn't matter where that was sent.
#[test]
fn a_request_sent_under_resend_may_be_found_by_a_probe_of_another_upstream() {
    let mut world = resend();
    in_doubt(&mut world, "a");
    *world.handler.policy.borrow_mut() = probe_of(5, 6);
    world.handler.whither.set(7);
    world.restart();
    world.pass_s(59);
    for (ended, status) in [(answered(404, ""), 409), (answered(200, "it is there"), 200)] {
        world.send(&order("a")).is_problem(409, "in-flight", "unknown", "same-id");
        let probed = world.take_call().expect("a probe");
        assert_eq!(world.settle(&order("a"), &probed, ended).status(), status);
        assert_eq!(world.take_call(), None);
    }
}

fn probe_of(timeout_s: i64, settle_s: i64) -> Policy {
    Policy::Probe { path: "/orders/1".to_owned(), timeout_s, settle_s }
}

/// The call may be under way for as long as was set then. If more is set now, it is known that it may need that.
#[test]
fn a_404_to_a_probe_proves_nothing_before_the_longer_of_the_old_and_the_new_times() {
    for (before, after, lasted_s, needs_s) in [
        ((20, 30), (5, 6), None, 30),
        ((20, 30), (5, 60), None, 60),
        ((20, 30), (5, 6), Some(25), 35),
        ((5, 6), (20, 30), Some(25), 50),
    ] {
        let mut world = remote(probe_of(before.0, before.1));
        let call = order("a");
        let first = dispatched(&mut world, &call, 1);
        if let Some(lasted_s) = lasted_s {
            world.pass_s(lasted_s);
            world.settle(&call, &first, lost()).is_problem(503, "unavailable", "unknown", "same-id");
        }
        *world.handler.policy.borrow_mut() = probe_of(after.0, after.1);
        world.restart();
        let needs_ms = (needs_s - lasted_s.unwrap_or(0)) * 1000;
        let again = sent_again_after(&mut world, &call, needs_ms, &format!("{before:?}, then {after:?}"));
        assert_eq!(again, Sent::Dispatch { times: 2 });
        // What is sent from now on follows the present times.
        world.restart();
        world.pass_ms(after.1 * 1000);
        world.send(&call);
        assert!(matches!(world.take_call(), Some(Sent::Probe { is_proof: true, .. })), "{before:?}, then {after:?}");
    }
}

#[test]
fn a_late_attempt_of_a_request_in_doubt_sends_nothing_and_is_in_flight() {
    let mut world = resend();
    let call = order("a").deadline_ms(START_MS + 1000);
    dispatched(&mut world, &call, 1);
    world.restart();
    world.pass_ms(1001);
    is_told(&mut world, &call, 409, "in-flight", "unknown", "same-id");
}

#[test]
fn a_probe_that_finds_the_effect_gives_the_outcome() {
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
fn a_404_to_a_probe_proves_nothing_before_the_settle_time_and_then_the_request_is_resent() {
    let mut world = probe();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    world.settle(&call, &first, lost());
    world.pass_ms(29_999);
    world.send(&call);
    let early = world.take_call().expect("a probe");
    let told = world.settle(&call, &early, answered(404, ""));
    told.is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!(told.log(), None, "it was answered as it should be");
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

/// Asserts that a `404` proves nothing until this much time has passed, and then proves that nothing is there. Returns the call
/// that is sent for that.
#[track_caller]
fn sent_again_after(world: &mut World<Elsewhere>, call: &Call, needs_ms: i64, of: &str) -> Sent {
    world.pass_ms(needs_ms - 1);
    world.send(call);
    let early = world.take_call().expect("a probe");
    world.settle(call, &early, answered(404, "")).is_problem(409, "in-flight", "unknown", "same-id");
    assert_eq!(world.take_call(), None, "it may have its effect yet: {of}");
    world.pass_ms(1);
    world.send(call);
    let late = world.take_call().expect("a probe");
    world.settle(call, &late, answered(404, ""));
    world.take_call().unwrap_or_else(|| panic!("it is proven that nothing is there, so it is sent: {of}"))
}

/// It counts from the last time, not the first.
#[test]
fn the_settle_time_of_a_probe_counts_from_the_last_time_that_the_request_was_sent() {
    let mut world = probe();
    let call = order("a");
    let mut sent = dispatched(&mut world, &call, 1);
    for times in [2, 3] {
        world.settle(&call, &sent, lost());
        sent = sent_again_after(&mut world, &call, 30_000, "it was sent");
        assert_eq!(sent, Sent::Dispatch { times });
    }
}

/// If the process stood still, the service has lost its caller only now. If the clock went ahead, it has not lost it for as long
/// as the clock says.
#[test]
fn after_a_long_call_a_404_to_a_probe_proves_nothing_before_ten_more_seconds() {
    for (lasted_s, needs_ms) in [(1, 29_000), (20, 10_000), (25, 10_000), (60, 10_000)] {
        let mut world = probe();
        let call = order("a");
        let first = dispatched(&mut world, &call, 1);
        world.pass_s(lasted_s);
        world.settle(&call, &first, lost()).is_problem(503, "unavailable", "unknown", "same-id");
        // What was known of it outlives the object.
        world.restart();
        let again = sent_again_after(&mut world, &call, needs_ms, &format!("after {lasted_s} s"));
        assert_eq!(again, Sent::Dispatch { times: 2 });
    }
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
fn a_resend_that_surely_did_not_leave_keeps_the_request_in_doubt() {
    let mut world = resend();
    let call = order("a");
    dispatched(&mut world, &call, 1);
    let again = dispatched(&mut world, &call, 2);
    world.settle(&call, &again, refused()).is_problem(503, "unavailable", "unknown", "same-id");
    assert_eq!(world.row("a", "state"), Some(7.into()));
}

#[test]
fn a_request_in_doubt_is_not_removed_by_an_acknowledgement_a_forget_or_the_sweep() {
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
fn a_request_in_doubt_for_longer_than_the_retention_wakes_no_sweep() {
    for is_counted in [false, true] {
        let mut world = remote(Policy::Report);
        in_doubt(&mut world, "a");
        world.pass_s(900);
        for n in 0..100 {
            let call = post("/orders").id(&format!("other-{n}")).first_sent_s(world.wall_s());
            let sent = dispatched(&mut world, &call, 1);
            world.settle(&call, &sent, answered(201, "made")).is_executed(201);
        }
        if is_counted {
            world.database.fill(&format!(
                "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {TOTALS_ROWS_MIN}) \
                 INSERT INTO semel_records (id, state, at_ms, first_sent_s, principal, fingerprint, status, headers, body) \
                 SELECT 'n' || n, 1, {0}, {0} / 1000, 'alice', randomblob(32), 200, '', x'' FROM numbers",
                world.wall_ms
            ));
            world.restart();
        }
        world.pass_s(200);
        world.wake().expect("storage");
        assert_eq!(world.database.number("SELECT count(*) FROM semel_totals") == 1, is_counted);
        let due_ms = (START_S + 900 + 1000 + 1) * 1000;
        for _ in 0..2 {
            assert_eq!(world.wakes_at_without_registry(), Some(due_ms));
            assert_eq!(world.sweep_page(), Ok(false));
            world.restart();
            world.count().expect("storage");
        }
        world.wall_ms = due_ms;
        world.wake().expect("storage");
        assert_eq!((world.rows(), world.row("a", "state")), (1, Some(7.into())));
    }
}
