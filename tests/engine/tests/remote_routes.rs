//! Requests that are executed elsewhere and are in doubt, and whose route has changed since they were sent: its policy, its times or
//! its upstream.

use semel_core::server::engine::remote::Call as Sent;
use semel_core::server::handler::Policy;
use semel_support::elsewhere::{
    answered, dispatched, in_doubt, is_told, lost, order, probe, remote, resend, sent_again_after,
};
use semel_support::look_up;

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
