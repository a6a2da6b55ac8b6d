//! Giving up: by the application, by time, and what the key answers.

use super::super::*;
use super::*;

#[test]
fn an_attempt_that_times_out_is_aborted_and_sent_again_and_its_late_answer_is_ignored() {
    let mut bench = Bench::ready();
    bench.request("x");
    let hung = bench.last().attempt;
    bench.pass(TIMEOUT_MS);
    assert_eq!(bench.aborted, [hung]);
    bench.answer_to(hung, outcome("late", bench.server_ms()));
    assert!(bench.delivered.is_empty(), "it is reported no more");
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.sent.len(), 2);
}

#[test]
fn a_given_up_request_is_cancelled_at_its_key_before_its_caller_hears_that_it_did_not_run() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms()));
    bench.give_up(ticket);
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/cancel");
    assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"cancel-x\""));
    let body = String::from_utf8(bench.last().request.body.clone()).unwrap();
    let first_sent_s = bench.last().headers.get("semel-first-sent").unwrap().trim_start_matches('@').to_owned();
    assert_eq!(body, format!("{{\"id\":\"x\",\"firstSent\":{first_sent_s}}}"));
    bench.lose();
    assert!(bench.delivered.is_empty());
    bench.pass(INTERVAL_MS);
    let mut cancelled = outcome("", bench.server_ms());
    cancelled.members.append("state", "cancelled");
    bench.answer(cancelled);
    let [(_, Receiver::Caller, Answered::Failure(failure))] = bench.delivered.as_slice() else { panic!() };
    assert_eq!((failure.executed, failure.retry, failure.code.as_str()), (Executed::No, Retry::Never, "cancelled"));
    bench.pass(ACK_RIDE_MS);
    let body = String::from_utf8(bench.last().request.body.clone()).unwrap();
    assert!(body.contains("\"x\"") && body.contains("\"cancel-x\""), "both have records: {body}");
}

#[test]
fn a_request_that_ran_before_its_cancellation_gets_its_outcome() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.answer(problem(500, "rolled-back", "no", "same-id", bench.server_ms()));
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    let mut executed = outcome("", bench.server_ms());
    executed.members.append("state", "executed");
    bench.answer(executed);
    assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"x\""));
    assert_eq!(deadline_ms(bench.last()), 0, "it is given up: it is executed no more");
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!(bodies(&bench), ["done"]);
}

#[test]
fn a_refusal_of_the_cancellation_is_not_taken_for_the_answer_to_its_request() {
    // The record of the cancellation was deleted or acknowledged, or it was cancelled itself.
    for (code, executed) in [("outcome-expired", "yes"), ("acknowledged", "yes"), ("cancelled", "no")] {
        for (then, told) in [("cancelled", Executed::No), ("outcome-expired", Executed::Yes)] {
            let mut bench = Bench::ready();
            let ticket = bench.request("x");
            bench.answer(problem(500, "rolled-back", "no", "same-id", bench.server_ms()));
            bench.client.give_up(bench.now_ms, ticket);
            bench.drive();
            assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"cancel-x\""));
            bench.answer(problem(410, code, executed, "never", bench.server_ms()));
            assert!(bench.delivered.is_empty(), "{code}");
            assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"x\""), "{code}");
            assert_eq!(deadline_ms(bench.last()), 0, "{code}: it is executed no more");
            let wire = if told == Executed::No { "no" } else { "yes" };
            bench.answer(problem(410, then, wire, "never", bench.server_ms()));
            let [(_, _, Answered::Failure(failure))] = bench.delivered.as_slice() else { panic!("{code} {then}") };
            assert_eq!((failure.code.as_str(), failure.executed), (then, told), "{code}");
        }
    }
}

#[test]
fn without_a_certain_key_a_given_up_request_is_probed_with_deadline_0_and_then_cancelled() {
    let mut bench = Bench::ready();
    // The key of the path is known, but it may depend on the method. So it is a guess.
    let ticket = bench.request("x");
    bench.client.give_up(bench.now_ms, ticket);
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!((bench.last().request.target.as_str(), deadline_ms(bench.last())), ("/a/b?c", 0));
    bench.answer(problem(408, "attempt-expired", "no", "same-id", bench.server_ms()));
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/cancel");
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS, "the probe says nothing of the clock");
}

#[test]
fn a_caller_gets_gave_up_after_the_limit_and_its_request_goes_on_and_is_recovered() {
    let mut bench = Bench::with(|settings| settings.give_up_after_ms = Some(3_000));
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    bench.pass(2_999);
    assert!(bench.given_up.is_empty());
    bench.pass(1);
    let [failure] = bench.given_up.as_slice() else { panic!("{:?}", bench.given_up) };
    assert_eq!((failure.code.as_str(), failure.executed), (ClientCode::GaveUp.as_str(), Executed::Unknown));
    assert!(matches!(bench.row("x"), Some(Row::Pending(_))));
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!(bench.delivered[0].1, Receiver::Recovered);
    bench.pass(10_000);
    assert_eq!(bench.given_up.len(), 1);
}

#[test]
fn the_key_that_the_application_names_is_sent_and_a_cancellation_goes_to_it_at_once() {
    let mut bench = Bench::ready();
    let named = Draft { key: Some("a%20b/c".into()), ..draft("x") };
    let ticket = bench.client.request(bench.now_ms, "x".into(), named, false).expect("a new id");
    bench.drive();
    assert_eq!(bench.last().headers.get("semel-key"), Some("\"a%20b/c\""));
    bench.client.give_up(bench.now_ms, ticket);
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%20b%2Fc/cancel");
    assert_eq!(bench.last().headers.get("semel-key"), None);
}

#[test]
fn a_cancellation_with_an_unreadable_answer_is_probed_and_sent_again() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms()));
    bench.give_up(ticket);
    bench.pass(INTERVAL_MS);
    let first = bench.last().attempt;
    bench.answer(outcome("not an object", bench.server_ms()));
    assert!(bench.delivered.is_empty(), "the outcome of a cancellation is not that of the request");
    assert_eq!((bench.last().headers.get("idempotency-key"), deadline_ms(bench.last())), (Some("\"x\""), 0));
    bench.answer(problem(408, "attempt-expired", "no", "same-id", bench.server_ms()));
    bench.pass(INTERVAL_MS);
    assert_ne!(bench.last().attempt, first);
    assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"cancel-x\""));
}

#[test]
fn a_request_that_is_given_up_before_it_is_stored_is_sent_only_with_deadline_0() {
    let mut bench = Bench::ready();
    let ticket = bench.client.request(bench.now_ms, "x".into(), draft("x"), false).expect("a new id");
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    assert_eq!(deadline_ms(bench.last()), 0);
}

#[test]
fn a_row_that_was_given_up_after_it_was_read_is_adopted_as_given_up() {
    let mut bench = Bench::ready();
    bench.request("x");
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    let raise = Change::Raise { first_sent_s: 0, until_ms: 0, is_cancelling: true };
    bench.change("x", &raise);
    let mut next = Bench::with(|settings| settings.owner = "next".into());
    next.rows = bench.rows.clone();
    next.client.stored(0, &rows, None).unwrap();
    next.drive();
    next.answer(health(next.server_ms()));
    assert_eq!(deadline_ms(next.last()), 0, "it is not to be executed");
}

/// The store may have made a change that it reported as failed, or another tab may have sent the request. The page may be
/// closed right after the change that should have taken the row back.
#[test]
fn a_row_that_can_not_be_taken_back_says_from_then_on_that_its_request_was_given_up() {
    let mut bench = Bench::new();
    let ticket = bench.request("x");
    bench.change("x", &Change::Raise { first_sent_s: 1, until_ms: 2, is_cancelling: false });
    bench.client.give_up(bench.now_ms, ticket);
    let Some(Action::Change { id, change, .. }) = bench.client.poll() else { panic!("the row is changed") };
    bench.change(&id, &change);
    let Some(Row::Pending(entry)) = bench.row("x") else { panic!("it may have been sent, so it is still stored") };
    assert!(entry.is_cancelling, "{entry:?}");
}

#[test]
fn a_caller_that_has_its_answer_does_not_get_gave_up_though_the_store_fails() {
    let mut bench = Bench::with(|settings| settings.give_up_after_ms = Some(3_000));
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    bench.is_broken = true;
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(10_000);
    assert_eq!((bodies(&bench), bench.given_up.len()), (vec!["done".to_owned()], 0));
}

#[test]
fn a_given_up_request_that_the_router_refuses_twice_ends_with_that_refusal_and_unknown() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.answer(by_router(413, "too-large", "no", "after-fix", bench.server_ms()));
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    assert_eq!(bench.sent.len(), 1, "whoever gives up at once, again and again, does so at the interval");
    bench.pass(INTERVAL_MS);
    bench.answer(by_router(413, "too-large", "no", "after-fix", bench.server_ms()));
    let [(_, _, Answered::Failure(failure))] = bench.delivered.as_slice() else { panic!("its caller gets an answer") };
    assert_eq!((failure.code.as_str(), failure.executed), ("too-large", Executed::Unknown));
    assert!(bench.rows.is_empty());
}

/// No attempt left this tab, but another tab may have taken the request over and sent it.
#[test]
fn a_given_up_request_whose_row_is_gone_is_unknown() {
    let mut bench = Bench::ready();
    bench.client.set_offline(bench.now_ms, true);
    let ticket = bench.request("x");
    bench.rows.remove("x");
    bench.client.give_up(bench.now_ms, ticket);
    bench.drive();
    let Some((_, _, Answered::Failure(failure))) = bench.delivered.last() else { panic!("no failure") };
    assert_eq!(failure.executed, Executed::Unknown, "{failure:?}");
}

#[test]
fn giving_up_aborts_an_attempt_under_way_and_cancels_or_probes_at_once() {
    for key in [Some("a/b"), None] {
        let mut bench = Bench::ready();
        let named = Draft { key: key.map(str::to_owned), ..draft("x") };
        let ticket = bench.client.request(bench.now_ms, "x".into(), named, false).expect("a new id");
        bench.drive();
        let hung = bench.last().attempt;
        bench.give_up(ticket);
        assert_eq!(bench.aborted, [hung]);
        assert_eq!(bench.last().request.target == "/semel/v1/keys/a%2Fb/cancel", key.is_some());
        assert_eq!(deadline_ms(bench.last()) == 0, key.is_none(), "without a certain key it is asked for");
        assert_eq!(bench.sent.len(), 2);
        bench.answer_to(hung, outcome("late", bench.server_ms()));
        assert!(bench.delivered.is_empty(), "the key says what became of it");
        assert!(is_kept_as_given_up(&bench));
    }
}

#[test]
fn the_cancellation_of_a_request_takes_the_place_of_its_attempt_under_way() {
    let mut bench = Bench::with(|settings| settings.attempts_max = 1);
    bench.learn_clock();
    let named = Draft { key: Some("a/b".into()), ..draft("x") };
    let ticket = bench.client.request(bench.now_ms, "x".into(), named, false).expect("a new id");
    bench.request("y");
    bench.give_up(ticket);
    assert_eq!(bench.targets(), ["/a/b?c", "/semel/v1/keys/a%2Fb/cancel"]);
}

/// Another tab that goes on with it, even after the end of this one, must not execute it.
#[test]
fn giving_up_is_stored_though_no_attempt_may_leave() {
    for why in ["offline", "no place", "no clock"] {
        let mut bench = Bench::with(|settings| settings.attempts_max = 1);
        bench.learn_clock();
        let ticket = bench.request("x");
        bench.lose();
        match why {
            "offline" => bench.client.set_offline(bench.now_ms, true),
            "no place" => drop(bench.client.request(bench.now_ms, "other".into(), draft("other"), false)),
            _ => bench.client.doubt_clock(),
        }
        bench.drive();
        let sent = bench.sent.iter().filter(|made| made.headers.get("idempotency-key") == Some("\"x\"")).count();
        bench.give_up(ticket);
        let then = bench.sent.iter().filter(|made| made.headers.get("idempotency-key") == Some("\"x\"")).count();
        assert_eq!((sent, then), (1, 1), "{why}");
        assert!(is_kept_as_given_up(&bench), "{why}");
    }
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    let mut refused = problem(503, "capacity", "no", "same-id", bench.server_ms());
    refused.headers.append("retry-after", "60");
    bench.answer(refused);
    bench.give_up(ticket);
    bench.pass(59_999);
    assert_eq!(bench.sent.len(), 1, "the server asked for no attempt before");
    assert!(is_kept_as_given_up(&bench));
    bench.pass(1);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/cancel");
}

#[test]
fn a_request_that_is_given_up_while_its_row_is_raised_is_sent_only_with_deadline_0() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    bench.lose();
    let later_ms = bench.now_ms + INTERVAL_MS;
    bench.client.wake(later_ms);
    bench.client.give_up(later_ms, ticket);
    bench.now_ms = later_ms;
    bench.drive();
    assert_eq!(bench.sent.iter().map(deadline_ms).skip(1).collect::<Vec<_>>(), [0]);
}

/// Another tab that goes on with it, even after the end of this one, must not execute it.
#[test]
fn a_request_that_is_given_up_while_its_row_is_written_is_stored_so_though_the_network_goes() {
    for is_new in [true, false] {
        let mut bench = Bench::ready();
        let ticket = if is_new {
            bench.client.request(bench.now_ms, "x".into(), draft("x"), false).expect("a new id")
        } else {
            let ticket = bench.request("x");
            bench.lose();
            bench.now_ms += INTERVAL_MS;
            bench.client.wake(bench.now_ms);
            ticket
        };
        bench.client.give_up(bench.now_ms, ticket);
        bench.client.set_offline(bench.now_ms, true);
        let sent = bench.sent.len();
        bench.drive();
        assert!(is_kept_as_given_up(&bench), "{is_new}");
        assert_eq!(bench.sent.len(), sent);
    }
}

fn is_kept_as_given_up(bench: &Bench) -> bool {
    matches!(bench.row("x"), Some(Row::Pending(entry)) if entry.is_cancelling)
}

#[test]
fn a_given_up_request_that_is_sent_once_more_and_refused_is_cancelled_but_unauthorized_pauses() {
    for (http, code, is_cancelled) in [(404, "not-found", true), (401, "unauthorized", false)] {
        let mut bench = Bench::ready();
        let ticket = bench.request("x");
        bench.give_up(ticket);
        // It is in doubt, and no probe finds out. So it is sent once.
        bench.answer(problem(409, "in-flight", "unknown", "same-id", bench.server_ms()));
        bench.pass(INTERVAL_MS);
        assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS, "{code}");
        bench.answer(problem(http, code, "no", "after-fix", bench.server_ms()));
        bench.pass(INTERVAL_MS);
        assert_eq!(bench.last().request.target == "/semel/v1/keys/a%2Fb/cancel", is_cancelled, "{code}");
        assert_eq!(bench.paused.is_empty(), is_cancelled, "credentials are waited for: {code}");
    }
}

#[test]
fn the_first_caller_gets_gave_up_in_its_own_time_though_another_call_joins() {
    let mut bench = Bench::with(|settings| settings.give_up_after_ms = Some(3_000));
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    bench.pass(2_000);
    bench.request("x");
    bench.pass(1_000);
    assert_eq!(bench.given_up.len(), 1);
}

#[test]
fn a_question_for_the_clock_that_times_out_is_asked_again() {
    let mut bench = Bench::new();
    bench.request("x");
    let hung = bench.last().attempt;
    bench.pass(TIMEOUT_MS + INTERVAL_MS);
    assert_eq!((bench.aborted.as_slice(), bench.targets()), ([hung].as_slice(), vec!["/semel/v1/health"; 2]));
}

/// Nothing that may execute it leaves without need.
#[test]
fn a_given_up_request_in_doubt_is_cancelled_asked_for_sent_once_more_and_cancelled_again() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    let in_flight = |bench: &Bench| problem(409, "in-flight", "unknown", "same-id", bench.server_ms());
    let locked = |bench: &Bench| problem(409, "locked", "no", "same-id", bench.server_ms());
    let cancels = |bench: &Bench| bench.last().request.target == "/semel/v1/keys/a%2Fb/cancel";
    bench.answer(in_flight(&bench));
    bench.give_up(ticket);
    bench.pass(INTERVAL_MS);
    assert!(cancels(&bench), "it was not asked yet whether it is given up");
    bench.answer(locked(&bench));
    bench.pass(INTERVAL_MS);
    assert!(cancels(&bench), "it is not in doubt");
    bench.answer(in_flight(&bench));
    bench.pass(INTERVAL_MS);
    assert_eq!((cancels(&bench), deadline_ms(bench.last())), (false, 0), "it is asked for");
    bench.answer(in_flight(&bench));
    bench.pass(INTERVAL_MS);
    assert_eq!((cancels(&bench), deadline_ms(bench.last())), (false, bench.server_ms() + TIMEOUT_MS), "it is sent");
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert!(cancels(&bench), "it is sent once");
}

#[test]
fn a_caller_that_joins_after_the_first_one_gave_up_has_its_own_time() {
    let mut bench = Bench::with(|settings| settings.give_up_after_ms = Some(3_000));
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    bench.pass(3_000);
    assert_eq!(bench.given_up.len(), 1);
    bench.request("x");
    bench.pass(2_999);
    assert_eq!(bench.given_up.len(), 1);
    bench.pass(1);
    assert_eq!(bench.given_up.len(), 2);
}
