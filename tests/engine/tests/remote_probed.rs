//! Requests that are executed elsewhere and are in doubt: what a probe finds or proves.

use semel_core::server::engine::remote::Call as Sent;
use semel_core::server::handler::Policy;
use semel_support::elsewhere::{Elsewhere, answered, dispatched, lost, order, probe, refused, sent_again_after};
use semel_support::{Call, START_MS, World, look_up};

/// Sends an attempt. A probe finds nothing, which proves that nothing is there, so the request is sent for the `times`th time.
#[track_caller]
fn sent_at_once(world: &mut World<Elsewhere>, call: &Call, times: i64) -> Sent {
    world.send(call);
    let probed = world.take_call().expect("a probe");
    world.settle(call, &probed, answered(404, ""));
    let sent = world.take_call();
    assert_eq!(sent, Some(Sent::Dispatch { times }));
    Sent::Dispatch { times }
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

/// The other side could not be connected to after the probe. What the probe has proven still holds, in the next object too.
#[test]
fn a_request_that_surely_did_not_leave_after_a_proof_is_sent_at_once_when_a_probe_finds_nothing() {
    let mut world = probe();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    world.settle(&call, &first, lost());
    world.pass_s(30);
    for times in [2, 3] {
        let again = sent_at_once(&mut world, &call, times);
        let told = world.settle(&call, &again, refused());
        told.is_problem(503, "unavailable", "unknown", "same-id");
        assert_eq!(told.log(), Some("in doubt: connection refused"));
        world.restart();
    }
    let last = sent_at_once(&mut world, &call, 4);
    // This time it may have left, so nothing is proven any more.
    world.settle(&call, &last, lost());
    assert_eq!(sent_again_after(&mut world, &call, 30_000, "it was sent"), Sent::Dispatch { times: 5 });
}

/// The record has an earlier time then, and the object ends, and its machine's clock is put back.
#[test]
fn the_clock_of_a_key_does_not_go_back_behind_a_call_that_could_not_be_sent_after_a_proof() {
    let mut world = probe();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    world.settle(&call, &first, lost());
    world.pass_s(30);
    let again = sent_at_once(&mut world, &call, 2);
    let told_ms = world.settle(&call, &again, refused()).now_ms();
    world.restart();
    world.wall_ms -= 20_000;
    assert!(world.send(&look_up("b")).now_ms() >= told_ms);
}

/// It could not be sent after the proof, and then a deployment says that the effect may need longer.
#[test]
fn a_proof_by_a_shorter_settle_time_holds_once_the_rest_of_the_longer_one_has_passed() {
    let mut world = probe();
    let call = order("a");
    let first = dispatched(&mut world, &call, 1);
    world.settle(&call, &first, lost());
    let again = sent_again_after(&mut world, &call, 30_000, "it was sent");
    world.settle(&call, &again, refused());
    world.restart();
    *world.handler.policy.borrow_mut() = Policy::Probe { path: "/orders/1".to_owned(), timeout_s: 20, settle_s: 40 };
    assert_eq!(sent_again_after(&mut world, &call, 10_000, "ten seconds more"), Sent::Dispatch { times: 3 });
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
