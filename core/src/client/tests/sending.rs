//! Attempts: when the client sends, and what.

use super::super::*;
use super::*;

#[test]
fn the_requests_in_hand_and_the_attempts_under_way_are_limited() {
    let mut bench = Bench::ready();
    for n in 0..REQUESTS_MAX {
        bench.request(&n.to_string());
    }
    assert_eq!(bench.sent.len(), ATTEMPTS_MAX);
    bench.request("one too many");
    assert_eq!((bodies(&bench), bench.row("one too many")), (vec!["outbox-full".to_owned()], None));
    let first = bench.sent[0].attempt;
    bench.answer_to(first, outcome("", bench.server_ms()));
    assert_eq!(bench.sent.len(), ATTEMPTS_MAX + 1, "the next takes its place");
}

#[test]
fn resume_does_not_send_a_request_that_is_under_way_again() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.client.resume_all(bench.now_ms);
    bench.drive();
    assert_eq!(bench.sent.len(), 1);
}

#[test]
fn a_request_that_waits_for_a_free_attempt_sets_no_timer() {
    let mut bench = Bench::ready();
    for n in 0..=ATTEMPTS_MAX {
        bench.request(&n.to_string());
    }
    assert_eq!(bench.client.wakes_at(), Some(bench.now_ms + TIMEOUT_MS));
}

#[test]
fn the_number_of_paths_whose_keys_are_remembered_is_bounded() {
    let mut bench = Bench::ready();
    for n in 0..KEYS_KNOWN_MAX + 10 {
        let target = format!("/{n}");
        bench.client.request(bench.now_ms, target.clone(), Draft { target, ..draft("") }, false);
        bench.drive();
        bench.answer(outcome("", bench.server_ms()));
    }
    assert!(bench.client.keys_of_paths.len() <= KEYS_KNOWN_MAX);
}

/// The query of a path may decide about the key.
#[test]
fn a_path_with_many_keys_does_not_push_out_the_keys_of_other_paths() {
    let mut bench = Bench::ready();
    let ask = |bench: &mut Bench, target: &str, key: &str, n: usize| {
        bench.client.request(bench.now_ms, n.to_string(), Draft { target: target.into(), ..draft("") }, false);
        bench.drive();
        let mut answer = outcome("", bench.server_ms());
        answer.headers.retain(|name| name != "semel-key");
        answer.headers.append("semel-key", format!("\"{key}\""));
        bench.answer(answer);
    };
    ask(&mut bench, "/a", "k", 0);
    for n in 1..KEYS_KNOWN_MAX + 10 {
        ask(&mut bench, &format!("/rpc?of={}", n % 2), &format!("k{}", n % 2), n);
    }
    assert_eq!(bench.client.guessed_key("/a").as_deref(), Some("k"));
}

#[test]
fn requests_to_a_key_that_hangs_do_not_block_other_keys_for_ever() {
    let mut bench = Bench::ready();
    for n in 0..2 * ATTEMPTS_MAX {
        bench.request(&format!("dead{n}"));
    }
    let mut healthy = draft("healthy");
    healthy.target = "/elsewhere".into();
    bench.client.request(bench.now_ms, "healthy".into(), healthy, false);
    bench.drive();
    // Nothing is answered, so all attempts at /a/b end by their time-out.
    bench.pass(3_600_000);
    assert!(bench.targets().contains(&"/elsewhere"), "not sent once in an hour, of {} attempts", bench.sent.len());
}

#[test]
fn changes_are_polled_in_the_order_of_the_requests() {
    let mut bench = Bench::ready();
    for id in ["a", "b", "c"] {
        bench.client.request(bench.now_ms, id.into(), draft(id), false);
    }
    let id = |action| match action {
        Some(Action::Change { id, .. }) => id,
        action => panic!("{action:?}"),
    };
    assert_eq!(id(bench.client.poll()), "a");
    bench.client.request(bench.now_ms, "d".into(), draft("d"), false);
    assert_eq!([(); 3].map(|()| id(bench.client.poll())), ["b", "c", "d"]);
    assert!(bench.client.poll().is_none());
    for id in ["e", "f"] {
        bench.client.request(bench.now_ms, id.into(), draft(id), false);
    }
    assert_eq!(id(bench.client.poll()), "e");
    assert_eq!((id(bench.client.poll()), bench.client.poll()), ("f".into(), None));
}

/// The system gives zeroed memory only when it is touched, so the large body costs nothing.
#[test]
fn a_request_beyond_the_limit_of_bytes_is_refused_as_outbox_full() {
    let mut bench = Bench::ready();
    let large = Draft { body: vec![0; PENDING_BYTES_MAX + 1], ..draft("") };
    bench.client.request(bench.now_ms, "large".into(), large, false);
    bench.client.request(bench.now_ms, "x".into(), draft("x"), false);
    assert!(matches!(bench.client.poll(), Some(Action::Change { .. })), "it is stored");
    let Some(Action::Deliver { answered, .. }) = bench.client.poll() else { panic!("the next one is not refused") };
    assert!(matches!(&*answered, Answered::Failure(failure) if failure.code == ClientCode::OutboxFull.as_str()));
}

#[test]
fn of_many_requests_made_at_once_only_the_limit_is_sent_whether_the_clock_is_known_or_not() {
    for knows_clock in [true, false] {
        let mut bench = if knows_clock { Bench::ready() } else { Bench::new() };
        for n in 0..2 * ATTEMPTS_MAX {
            bench.client.request(bench.now_ms, n.to_string(), draft(""), false);
        }
        bench.drive();
        if !knows_clock {
            bench.answer(health(bench.server_ms()));
        }
        let sent = bench.targets().into_iter().filter(|target| *target == "/a/b?c").count();
        assert_eq!(sent, ATTEMPTS_MAX, "knows the clock: {knows_clock}");
    }
}

/// The change that stores it is the transaction before its first attempt, too.
#[test]
fn a_request_that_may_leave_at_once_leaves_after_one_change_of_its_row() {
    let mut bench = Bench::ready();
    // None of these comes before it: one has no order, and the other goes elsewhere.
    bench.request("unordered");
    let elsewhere = Draft { target: "/elsewhere".into(), ..draft("elsewhere") };
    bench.client.request(bench.now_ms, "elsewhere".into(), elsewhere, true).expect("a new id");
    bench.drive();
    bench.client.request(bench.now_ms, "x".into(), draft("x"), true).expect("a new id");
    let Some(Action::Change { ticket, id, change }) = bench.client.poll() else { panic!("it is stored") };
    let changed = bench.change(&id, &change);
    bench.client.changed(bench.now_ms, ticket, Some(changed));
    assert!(matches!(bench.client.poll(), Some(Action::Transmit(_))));
}

#[test]
fn with_one_attempt_at_a_time_a_lost_request_is_sent_again() {
    let mut bench = Bench::with(|settings| settings.attempts_max = 1);
    bench.learn_clock();
    bench.request("x");
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.sent.len(), 2);
}
