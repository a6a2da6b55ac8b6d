//! Requests that are executed elsewhere and are in doubt: when one is sent again, and which answers are its outcome then.

use semel_core::message::{Headers, Response};
use semel_core::server::engine::remote::Ended;
use semel_support::elsewhere::{answered, dispatched, is_told, lost, order, refused, resend};
use semel_support::look_up;

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

#[test]
fn a_resend_that_surely_did_not_leave_keeps_the_request_in_doubt() {
    let mut world = resend();
    let call = order("a");
    dispatched(&mut world, &call, 1);
    let again = dispatched(&mut world, &call, 2);
    world.settle(&call, &again, refused()).is_problem(503, "unavailable", "unknown", "same-id");
    assert_eq!(world.row("a", "state"), Some(7.into()));
}
