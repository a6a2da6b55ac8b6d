//! Requests that are executed elsewhere and are in doubt: what they are told, and that they stay.

use semel_core::server::engine::chores::TOTALS_ROWS_MIN;
use semel_core::server::handler::Policy;
use semel_support::elsewhere::{answered, dispatched, in_doubt, is_told, lost, order, remote, resend};
use semel_support::{START_MS, START_S, acknowledge, post};

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
fn a_late_attempt_of_a_request_in_doubt_sends_nothing_and_is_in_flight() {
    let mut world = resend();
    let call = order("a").deadline_ms(START_MS + 1000);
    dispatched(&mut world, &call, 1);
    world.restart();
    world.pass_ms(1001);
    is_told(&mut world, &call, 409, "in-flight", "unknown", "same-id");
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
