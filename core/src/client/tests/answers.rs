//! Answers: what they do to the request, and what the client learns of the server's clock.

use super::super::*;
use super::*;

#[test]
fn a_lost_request_is_sent_again_at_a_constant_interval_with_the_same_id_and_first_sent() {
    let mut bench = Bench::ready();
    bench.request("x");
    let started_ms = bench.now_ms;
    for attempt in 1..=5 {
        assert_eq!((bench.sent.len(), bench.now_ms), (attempt, started_ms + (attempt as i64 - 1) * INTERVAL_MS));
        bench.lose();
        bench.pass(INTERVAL_MS - 1);
        assert_eq!(bench.sent.len(), attempt, "not before the interval is over");
        bench.pass(1);
    }
    for name in ["idempotency-key", "semel-first-sent"] {
        assert!(bench.sent.iter().all(|made| made.headers.get(name) == bench.sent[0].headers.get(name)), "{name}");
    }
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS, "each attempt has its own deadline");
}

#[test]
fn retry_after_delays_the_next_attempt_if_it_is_longer_than_the_interval_up_to_an_hour() {
    for (retry_after, waits_ms) in [("3", 3_000), ("0", INTERVAL_MS), ("soon", INTERVAL_MS), ("999999", 3_600_000)] {
        let mut bench = Bench::ready();
        bench.request("x");
        let mut answer = problem(429, "rate-limited", "no", "same-id", bench.server_ms());
        answer.headers.append("retry-after", retry_after);
        bench.answer(answer);
        bench.pass(waits_ms - 1);
        assert_eq!(bench.sent.len(), 1, "{retry_after}");
        bench.pass(1);
        assert_eq!(bench.sent.len(), 2, "{retry_after}");
    }
}

#[test]
fn a_refusal_for_the_deadline_sets_the_clock_of_that_key_only() {
    let behind_ms = 3_600_000;
    for (http, code, retry) in [(408, "attempt-expired", "same-id"), (400, "key-invalid", "after-fix")] {
        let mut bench = Bench::ready();
        let ahead_ms = if http == 408 { behind_ms } else { -behind_ms };
        bench.request("x");
        bench.answer(problem(http, code, "no", retry, bench.server_ms() + ahead_ms));
        assert!(bench.paused.is_empty());
        bench.pass(INTERVAL_MS);
        assert_eq!(deadline_ms(bench.last()), bench.server_ms() + ahead_ms + TIMEOUT_MS, "{code}");
        let mut elsewhere = draft("y");
        elsewhere.target = "/elsewhere".into();
        bench.client.request(bench.now_ms, "y".into(), elsewhere, false);
        bench.drive();
        assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS, "another key's clock is as it was");
    }
}

#[test]
fn a_fenced_or_cancelled_problem_without_a_body_leaves_executed_unknown() {
    // Both codes have `executed: "unknown"` for some requests, and only the body says for which.
    for (http, code) in [(409, "fenced"), (410, "cancelled")] {
        let mut bench = Bench::ready();
        bench.request("x");
        bench.answer(from_object(Answer { status: http, ..status(code) }, bench.server_ms()));
        bench.drive();
        let [(_, _, Answered::Failure(failure))] = &bench.delivered[..] else { panic!("{code} is definitive") };
        assert_eq!((failure.code.as_str(), failure.executed), (code, Executed::Unknown));
    }
}

#[test]
fn an_after_fix_problem_pauses_the_request_and_resume_sends_it_under_the_same_id() {
    for (http, code) in [(404, "not-found"), (401, "unauthorized"), (403, "forbidden"), (400, "key-invalid")] {
        let mut bench = Bench::ready();
        let ticket = bench.request("x");
        bench.answer(problem(http, code, "no", "after-fix", bench.server_ms()));
        let [(paused, failure)] = bench.paused.as_slice() else { panic!("{:?}", bench.paused) };
        assert_eq!((*paused, failure.executed, failure.code.as_str()), (ticket, Executed::Unknown, code));
        bench.pass(100 * INTERVAL_MS);
        assert_eq!(bench.sent.len(), 1, "{code}");
        bench.client.resume_all(bench.now_ms);
        bench.drive();
        assert_eq!(bench.last().headers.get("idempotency-key"), Some("\"x\""));
        bench.answer(outcome("done", bench.server_ms()));
        assert_eq!(bodies(&bench), ["done"]);
    }
}

#[test]
fn a_problem_with_retry_never_is_definitive_and_delivers_its_code_executed_and_detail() {
    for (code, executed) in [("poisoned", "no"), ("acknowledged", "yes"), ("outside-window", "unknown")] {
        let mut bench = Bench::ready();
        bench.request("x");
        bench.answer(problem(410, code, executed, "never", bench.server_ms()));
        let Answered::Failure(failure) = &bench.delivered[0].2 else { panic!() };
        assert_eq!((failure.code.as_str(), failure.executed.as_str()), (code, executed));
        assert_eq!((failure.retry, failure.detail.as_str()), (Retry::Never, "why"));
    }
}

#[test]
fn an_answer_that_is_not_semels_or_not_definitive_is_tried_again() {
    let now_ms = SERVER_MS;
    let portal = Answer { status: 200, body: b"<html>".to_vec(), ..Answer::default() };
    let refusal = Answer { status: 403, ..Answer::default() };
    let redirect = Answer { status: 307, ..Answer::default() };
    let read = from_object(status("read"), now_ms);
    let server_error = problem(503, "unavailable", "no", "never", now_ms);
    let executed_500 = from_object(Answer { status: 500, ..status("executed") }, now_ms);
    let executed_302 = from_object(Answer { status: 302, ..status("replayed") }, now_ms);
    let in_flight = problem(409, "in-flight", "unknown", "same-id", now_ms);
    let unheard_of = from_object(Answer { status: 418, ..status("of-the-future") }, now_ms);
    for answer in [portal, refusal, redirect, read, server_error, executed_500, executed_302, in_flight, unheard_of] {
        let mut bench = Bench::ready();
        bench.request("x");
        bench.answer(answer.clone());
        assert!(bench.delivered.is_empty() && bench.paused.is_empty(), "{answer:?}");
        bench.pass(INTERVAL_MS);
        assert_eq!(bench.sent.len(), 2, "{answer:?}");
    }
}

#[test]
fn an_unknown_code_is_judged_by_the_retry_of_its_body() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(problem(418, "of-the-future", "no", "never", bench.server_ms()));
    assert_eq!(bodies(&bench), ["of-the-future"]);
}

#[test]
fn a_missing_executed_is_unknown_and_a_known_code_needs_no_body() {
    let judged = |http, code: &str, members: &[(&str, &str)]| {
        let mut bench = Bench::ready();
        bench.request("x");
        let members = members.iter().copied().collect();
        let answer = from_object(Answer { status: http, members, ..status(code) }, bench.server_ms());
        bench.answer(answer);
        bench
    };
    let bench = judged(410, "of-the-future", &[("retry", "never")]);
    let [(_, _, Answered::Failure(failure))] = bench.delivered.as_slice() else { panic!() };
    assert_eq!(failure.executed, Executed::Unknown, "nothing says that it did not run");
    assert_eq!(bodies(&judged(410, "cancelled", &[])), ["cancelled"]);
    assert_eq!(judged(401, "unauthorized", &[]).paused.len(), 1);
}

#[test]
fn a_refusal_for_another_reason_than_the_clock_pauses_though_the_clock_is_wrong() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms() - 3_600_000));
    assert_eq!(bench.paused.len(), 1);
}

#[test]
fn a_request_whose_first_sent_is_too_far_ahead_is_tried_again_without_a_pause() {
    let mut bench = Bench::ready();
    bench.request("x");
    for _ in 0..2 {
        // Only for the first attempt is the deadline too far ahead as well.
        bench.answer(problem(400, "key-invalid", "no", "after-fix", bench.server_ms() - 3_600_000));
        assert!(bench.paused.is_empty());
        bench.pass(INTERVAL_MS);
    }
    assert_eq!(bench.sent.len(), 3);
}

#[test]
fn after_the_router_has_refused_a_deadline_its_clock_holds_and_no_other_request_waits() {
    let mut bench = Bench::ready();
    bench.request("x");
    let ahead_ms = 3_600_000;
    bench.answer(by_router(408, "attempt-expired", "no", "same-id", bench.server_ms() + ahead_ms));
    bench.request("y");
    assert_eq!(bench.targets(), ["/a/b?c"; 2]);
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + ahead_ms + TIMEOUT_MS);
    bench.pass(INTERVAL_MS);
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + ahead_ms + TIMEOUT_MS);
    assert_eq!(bench.targets(), ["/a/b?c"; 3]);
}

#[test]
fn after_the_router_has_refused_a_deadline_by_the_clock_of_a_key_the_clock_of_the_router_holds_there() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(problem(408, "attempt-expired", "no", "same-id", bench.server_ms() + 60_000));
    bench.pass(INTERVAL_MS);
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + 60_000 + TIMEOUT_MS);
    // The clock of the client was put forward, and nothing told it so.
    let behind_ms = 3_600_000;
    bench.answer(by_router(400, "key-invalid", "no", "after-fix", bench.server_ms() - behind_ms));
    bench.pass(INTERVAL_MS);
    assert_eq!((deadline_ms(bench.last()), bench.sent.len()), (bench.server_ms() - behind_ms + TIMEOUT_MS, 3));
}

#[test]
fn first_sent_is_the_servers_second_at_the_first_attempt() {
    let mut bench = Bench::new();
    bench.now_ms = 1_999;
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    let expected = format!("@{}", bench.server_ms() / 1000);
    assert_eq!(bench.last().headers.get("semel-first-sent"), Some(expected.as_str()));
}

#[test]
fn after_a_sleep_the_client_asks_for_the_clock_before_it_sends_a_request() {
    let mut bench = Bench::ready();
    let slept_ms = 48 * 3_600_000;
    bench.client.doubt_clock();
    bench.request("x");
    assert_eq!(bench.targets(), ["/semel/v1/health"]);
    let server_ms = bench.server_ms() + slept_ms;
    bench.answer(health(server_ms));
    let first_sent = format!("@{}", server_ms / 1000);
    assert_eq!(bench.last().headers.get("semel-first-sent"), Some(first_sent.as_str()));
}

#[test]
fn an_answer_to_a_question_from_before_a_sleep_does_not_set_the_clock() {
    let mut bench = Bench::new();
    bench.request("x");
    assert_eq!(bench.targets(), ["/semel/v1/health"]);
    let (asked, before_ms) = (bench.last().attempt, bench.server_ms());
    bench.client.doubt_clock();
    bench.client.answered(bench.now_ms, asked, health(before_ms));
    bench.drive();
    assert_eq!(bench.targets(), ["/semel/v1/health"; 2], "it is asked for anew");
    let slept_ms = 48 * 3_600_000;
    bench.answer(health(before_ms + slept_ms));
    let first_sent = format!("@{}", (before_ms + slept_ms) / 1000);
    assert_eq!(bench.last().headers.get("semel-first-sent"), Some(first_sent.as_str()));
}

#[test]
fn an_answer_to_a_request_that_was_sent_before_a_sleep_teaches_no_clock() {
    for expired in [problem, by_router] {
        let mut bench = Bench::ready();
        bench.request("x");
        let (asked, told) = (bench.last().attempt, expired(408, "attempt-expired", "no", "same-id", bench.server_ms()));
        bench.client.doubt_clock();
        bench.answer_to(asked, told);
        bench.pass(INTERVAL_MS);
        assert_eq!(bench.targets(), ["/a/b?c", "/semel/v1/health"]);
        let server_ms = bench.server_ms() + 48 * 3_600_000;
        bench.answer(health(server_ms));
        bench.request("y");
        let first_sent = format!("@{}", server_ms / 1000);
        assert_eq!(bench.last().headers.get("semel-first-sent"), Some(first_sent.as_str()));
    }
}

#[test]
fn an_answer_to_a_request_that_was_sent_before_a_sleep_teaches_no_clock_after_the_worker_has_told_its_own() {
    for expired in [problem, by_router] {
        let mut bench = Bench::ready();
        bench.request("x");
        let (asked, told) = (bench.last().attempt, expired(408, "attempt-expired", "no", "same-id", bench.server_ms()));
        bench.client.doubt_clock();
        bench.request("y");
        let server_ms = bench.server_ms() + 48 * 3_600_000;
        bench.answer(health(server_ms));
        bench.answer_to(asked, told);
        bench.request("z");
        let first_sent = format!("@{}", server_ms / 1000);
        assert_eq!(bench.last().headers.get("semel-first-sent"), Some(first_sent.as_str()));
        assert_eq!(bench.targets(), ["/a/b?c", "/semel/v1/health", "/a/b?c", "/a/b?c"]);
    }
}

#[test]
fn a_refusal_from_before_a_sleep_of_a_deadline_too_far_ahead_pauses_nothing() {
    let mut bench = Bench::ready();
    bench.request("x");
    let (asked, now_ms) = (bench.last().attempt, bench.server_ms() - 3_600_000);
    bench.client.doubt_clock();
    bench.answer_to(asked, problem(400, "key-invalid", "no", "after-fix", now_ms));
    bench.answer(health(bench.server_ms()));
    bench.pass(INTERVAL_MS);
    assert_eq!((bench.paused.len(), bench.targets()), (0, vec!["/a/b?c", "/semel/v1/health", "/a/b?c"]));
}

#[test]
fn a_server_clock_out_of_range_does_not_panic() {
    let mut bench = Bench::new();
    bench.request("x");
    bench.answer(health(i64::MAX));
    bench.pass(INTERVAL_MS);
    bench.answer(health(bench.server_ms()));
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS);
}

#[test]
fn the_clock_of_a_key_is_learned_at_each_change_and_forgotten_after_a_sleep() {
    let mut bench = Bench::ready();
    bench.request("x");
    for ahead_ms in [3_600_000, 7_200_000] {
        bench.answer(problem(408, "attempt-expired", "no", "same-id", bench.server_ms() + ahead_ms));
        bench.pass(INTERVAL_MS);
        assert_eq!(deadline_ms(bench.last()), bench.server_ms() + ahead_ms + TIMEOUT_MS);
    }
    bench.lose();
    bench.client.doubt_clock();
    bench.pass(INTERVAL_MS);
    let slept_ms = 48 * 3_600_000;
    bench.answer(health(bench.server_ms() + slept_ms));
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + slept_ms + TIMEOUT_MS);
}

#[test]
fn resuming_at_once_sends_only_at_the_interval() {
    let resumes: [fn(&mut Bench, Ticket); 2] =
        [|bench, ticket| bench.client.resume(bench.now_ms, ticket), |bench, _| bench.client.resume_all(bench.now_ms)];
    for resume in resumes {
        let mut bench = Bench::ready();
        let ticket = bench.request("x");
        bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms()));
        resume(&mut bench, ticket);
        bench.drive();
        bench.pass(INTERVAL_MS - 1);
        assert_eq!(bench.sent.len(), 1);
        bench.pass(1);
        assert_eq!(bench.sent.len(), 2);
    }
}
