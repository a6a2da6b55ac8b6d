//! Acknowledgements: how they ride, their limits, and when they are done.

use super::super::*;
use super::*;

#[test]
fn a_definitive_answer_is_delivered_once_and_leaves_a_settled_row_to_acknowledge() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    let until_ms = deadline_ms(bench.last());
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!((bench.delivered.len(), bench.delivered[0].0, bench.delivered[0].1), (1, ticket, Receiver::Caller));
    assert_eq!(bodies(&bench), ["done"]);
    let Some(Row::Settled(settled)) = bench.row("x") else { panic!("{:?}", bench.row("x")) };
    assert_eq!((settled.key.as_deref(), settled.until_ms), (Some("a/b"), until_ms));
}

#[test]
fn an_acknowledgement_rides_on_requests_to_its_key_until_the_key_itself_answers() {
    let mut bench = Bench::ready();
    bench.request("x");
    let until_ms = deadline_ms(bench.last());
    bench.answer(outcome("done", bench.server_ms()));
    bench.request("y");
    let ack = format!("\"x\";until={until_ms}");
    assert_eq!(bench.last().headers.get("semel-ack"), Some(ack.as_str()));
    // An answer of the router, or of another key's object, proves nothing.
    bench.answer(Answer { status: 503, ..status("unavailable") });
    assert!(bench.row("x").is_some());
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().headers.get("semel-ack"), Some(ack.as_str()), "it rides again");
    bench.answer(problem(500, "rolled-back", "no", "same-id", bench.server_ms()));
    assert!(bench.row("x").is_none(), "a refusal of the object takes it too");
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().headers.get("semel-ack"), None);
}

#[test]
fn an_acknowledgement_that_finds_no_request_to_ride_on_is_posted_until_it_is_answered() {
    let mut bench = Bench::ready();
    bench.request("x");
    let until_ms = deadline_ms(bench.last());
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS - 1);
    assert_eq!(bench.sent.len(), 1);
    bench.pass(1);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/acks");
    let body = format!("{{\"ids\":[{{\"id\":\"x\",\"until\":{until_ms}}}]}}");
    assert_eq!(bench.last().request.body, body.as_bytes());
    bench.lose();
    bench.pass(ACK_RIDE_MS);
    assert_eq!(bench.sent.len(), 3, "and again");
    bench.answer(from_object(Answer { status: 204, ..status("executed") }, bench.server_ms()));
    assert!(bench.rows.is_empty());
    assert_eq!(bench.client.wakes_at(), None, "nothing is left to do");
}

#[test]
fn acknowledgements_on_requests_keep_the_limits_of_the_header() {
    let mut bench = Bench::ready();
    let ids: Vec<String> = (0..REQUESTS_MAX / 2).map(|n| format!("{n:0>36}")).collect();
    for id in &ids {
        bench.request(id);
        bench.answer(outcome("", bench.server_ms()));
    }
    for made in &bench.sent {
        let Some(acks) = made.headers.get("semel-ack") else { continue };
        assert!(acks.len() <= 4096 && acks.split(',').count() <= 64);
        let headers = [("semel-ack", acks)].into_iter().collect();
        assert!(crate::header::acks(&headers).is_ok());
    }
    bench.lose();
    let rides = bench.sent.iter().filter(|made| made.headers.get("semel-ack").is_some()).count();
    assert!(rides >= ids.len() - 1, "each rides on the next");
}

#[test]
fn a_row_that_was_settled_before_a_restart_is_acknowledged_at_once() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("done", bench.server_ms()));
    let mut next = Bench::new();
    next.rows = bench.rows.clone();
    let rows: Vec<_> = next.rows.clone().into_iter().collect();
    next.client.stored(0, &rows, None).unwrap();
    next.drive();
    assert_eq!(next.targets(), ["/semel/v1/keys/a%2Fb/acks"]);
}

#[test]
fn an_answer_that_names_no_key_leaves_nothing_to_acknowledge() {
    let mut bench = Bench::ready();
    bench.request("x");
    let mut answer = problem(410, "forgotten", "unknown", "never", bench.server_ms());
    answer.headers.retain(|name| name != "semel-key");
    bench.answer(answer);
    assert_eq!((bodies(&bench), bench.row("x")), (vec!["forgotten".to_owned()], None));
}

#[test]
fn a_posted_acknowledgement_obeys_retry_after() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS);
    let sent = bench.sent.len();
    let mut answer = by_router(429, "rate-limited", "no", "same-id", bench.server_ms());
    answer.headers.append("retry-after", "600");
    bench.answer(answer);
    bench.pass(599_000);
    assert_eq!(bench.sent.len(), sent, "POST acks");
}

#[test]
fn a_posted_acknowledgement_that_is_refused_waits_for_a_request_to_its_key_or_for_resume_all() {
    for (status, code) in [(401, "unauthorized"), (403, "forbidden"), (404, "not-found")] {
        let mut bench = Bench::ready();
        bench.request("x");
        bench.answer(outcome("done", bench.server_ms()));
        bench.pass(ACK_RIDE_MS);
        bench.answer(by_router(status, code, "no", "after-fix", bench.server_ms()));
        assert_eq!(bench.client.wakes_at(), None, "{code}: nothing wakes the client for it");
        bench.pass(86_400_000);
        assert_eq!((bench.sent.len(), bench.rows.len()), (2, 1), "{code}");
        bench.client.resume_all(bench.now_ms);
        bench.drive();
        assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/acks", "{code}");
        bench.answer(by_router(status, code, "no", "after-fix", bench.server_ms()));
        bench.request("y");
        assert!(
            bench.last().headers.get("semel-ack").is_some_and(|acks| acks.starts_with("\"x\"")),
            "{code}: it rides"
        );
        bench.answer(outcome("done", bench.server_ms()));
        assert!(bench.row("x").is_none(), "{code}");
    }
}

#[test]
fn an_acknowledgement_that_was_refused_is_posted_again_once_another_key_has_answered() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS);
    bench.answer(by_router(401, "unauthorized", "no", "after-fix", bench.server_ms()));
    let elsewhere = Draft { target: "/c/d".into(), ..draft("y") };
    bench.client.request(bench.now_ms, "y".into(), elsewhere, false).unwrap();
    bench.drive();
    let attempt = bench.last().attempt;
    bench.pass(ACK_RIDE_MS - 1);
    assert_eq!(bench.targets(), ["/a/b?c", "/semel/v1/keys/a%2Fb/acks", "/c/d"], "nothing is known of the token yet");
    let mut answered = outcome("done", bench.server_ms());
    answered.headers.retain(|name| name != "semel-key");
    answered.headers.append("semel-key", "\"c/d\"");
    bench.answer_to(attempt, answered);
    bench.pass(ACK_RIDE_MS - 1);
    assert_eq!(bench.sent.len(), 3, "and not at once");
    bench.pass(1);
    assert!(bench.targets().iter().skip(3).any(|target| *target == "/semel/v1/keys/a%2Fb/acks"));
}

#[test]
fn an_acknowledgement_on_a_refused_request_is_posted_by_itself() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("done", bench.server_ms()));
    bench.request("y");
    assert!(bench.last().headers.get("semel-ack").is_some());
    bench.answer(by_router(413, "too-large", "no", "after-fix", bench.server_ms()));
    assert_eq!(bench.paused.len(), 1);
    bench.pass(ACK_RIDE_MS);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/acks");
}

/// A tab that sees another tab's settled row acknowledges it too. The other tab may be faster.
#[test]
fn an_acknowledgement_that_another_tab_made_is_not_sent_though_the_id_is_used_again() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("done", bench.server_ms()));
    let settled: Vec<_> = bench.rows.clone().into_iter().collect();
    let mut other = Bench::with(|settings| settings.owner = "other".into());
    let stored = |other: &mut Bench, rows: &[(String, Vec<u8>)]| {
        other.client.stored(other.now_ms, rows, Some(&|_| true)).unwrap();
        other.drive();
    };
    stored(&mut other, &settled);
    other.lose();
    stored(&mut other, &settled);
    other.pass(ACK_RIDE_MS);
    assert_eq!(other.sent.len(), 2, "as long as the row is there");
    other.lose();
    // The id is used again, and its row is pending.
    let again = Entry { until_ms: Some(SERVER_MS + 1_000_000), outbox: "outbox".into(), ..Entry::default() };
    stored(&mut other, &[("x".to_owned(), codec::encode(&Row::Pending(again)))]);
    other.pass(10 * ACK_RIDE_MS);
    assert_eq!(other.sent.len(), 2);
    // The tab's own acknowledgement is not lost, though its row was settled after the rows were read.
    let mut own = Bench::ready();
    own.request("y");
    let pending: Vec<_> = own.rows.clone().into_iter().collect();
    own.answer(outcome("done", own.server_ms()));
    stored(&mut own, &pending);
    own.pass(ACK_RIDE_MS);
    assert_eq!(own.last().request.target, "/semel/v1/keys/a%2Fb/acks");
}

/// The row stays, because it keeps the answer for a caller in another tab.
#[test]
fn an_acknowledgement_that_another_tab_made_is_not_sent_though_the_row_stays() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.change("x", &Change::Join { outbox: "outbox".into() });
    bench.answer(outcome("done", bench.server_ms()));
    let settled: Vec<_> = bench.rows.clone().into_iter().collect();
    bench.change("x", &Change::Acknowledged);
    let acknowledged: Vec<_> = bench.rows.clone().into_iter().collect();
    for (rows, sent) in [(&settled, 2), (&acknowledged, 1)] {
        let mut other = Bench::with(|settings| settings.owner = "other".into());
        other.client.stored(0, &settled, Some(&|_| true)).unwrap();
        other.drive();
        other.lose();
        other.client.stored(0, rows, Some(&|_| true)).unwrap();
        other.pass(ACK_RIDE_MS);
        assert_eq!(other.sent.len(), sent);
    }
}

#[test]
fn a_row_that_keeps_its_answer_for_another_tab_stays_once_it_is_acknowledged() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.change("x", &Change::Join { outbox: "outbox".into() });
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS);
    bench.answer(from_object(Answer { status: 204, ..status("executed") }, bench.server_ms()));
    let Some(Row::Settled(settled)) = bench.row("x") else { panic!("{:?}", bench.row("x")) };
    assert_eq!((settled.is_acknowledged, settled.kept.is_some()), (true, true));
}

#[test]
fn an_acknowledgement_that_times_out_is_sent_again() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS + TIMEOUT_MS + ACK_RIDE_MS);
    assert_eq!(bench.targets()[1..], ["/semel/v1/keys/a%2Fb/acks"; 2]);
}

#[test]
fn posted_acknowledgements_under_way_are_limited_and_do_not_count_as_attempts() {
    let mut bench = Bench::with(|settings| settings.attempts_max = 1);
    bench.learn_clock();
    let settled = |n: usize| row::Settled {
        outbox: "outbox".into(),
        maker: "tab".into(),
        key: Some(n.to_string()),
        until_ms: 5,
        was_cancelled: false,
        kept: None,
        at_s: 0,
        is_acknowledged: false,
    };
    let rows: Vec<_> = (0..2 * POSTS_MAX).map(|n| (n.to_string(), codec::encode(&Row::Settled(settled(n))))).collect();
    bench.client.stored(bench.now_ms, &rows, None).unwrap();
    bench.drive();
    assert_eq!(bench.sent.len(), POSTS_MAX);
    bench.request("x");
    assert_eq!((bench.sent.len(), bench.last().headers.get("idempotency-key")), (POSTS_MAX + 1, Some("\"x\"")));
}

/// The key has a record of another request under this id, whose caller may not have its answer yet.
#[test]
fn giving_up_a_mismatched_request_does_not_acknowledge_the_record_of_the_other_request() {
    let mut bench = Bench::ready();
    let ticket = bench.request("x");
    let other = |bench: &Bench| problem(422, "fingerprint-mismatch", "no", "after-fix", bench.server_ms());
    bench.answer(other(&bench));
    bench.give_up(ticket);
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.last().request.target, "/semel/v1/keys/a%2Fb/cancel");
    let members = [("state", "executed")].into_iter().collect();
    bench.answer(from_object(Answer { members, ..status("executed") }, bench.server_ms()));
    bench.pass(INTERVAL_MS);
    bench.answer(other(&bench));
    assert_eq!(bodies(&bench), ["fingerprint-mismatch"]);
    let sent = bench.sent.len();
    bench.pass(ACK_RIDE_MS);
    assert_eq!((bench.sent.len(), bench.rows.len()), (sent, 0));
}
