//! The store: its failures, what other tabs did in it, what is found at the start and left at the end.

use super::super::*;
use super::*;

#[test]
fn a_request_is_not_sent_before_it_is_stored_and_the_clock_is_known() {
    let mut bench = Bench::new();
    bench.client.request(0, "x".into(), draft("x"), false);
    let first = bench.client.poll();
    assert!(matches!(first, Some(Action::Change { .. })), "{first:?}");
    assert_eq!(bench.client.poll(), None, "it waits for the store");
    let mut bench = Bench::new();
    bench.request("x");
    assert_eq!(bench.targets(), ["/semel/v1/health"]);
    bench.lose();
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.targets(), ["/semel/v1/health"; 2], "still asking");
    // This answer is not from Semel, so its clock does not count.
    bench.answer(Answer { headers: [("semel-now", "5")].into_iter().collect(), ..Answer::default() });
    bench.pass(INTERVAL_MS);
    bench.answer(health(bench.server_ms()));
    assert_eq!(bench.last().request.target, "/a/b?c");
    assert_eq!(deadline_ms(bench.last()), bench.server_ms() + TIMEOUT_MS);
}

#[test]
fn a_request_of_a_closed_tab_goes_on_under_its_id_and_first_sent_and_is_recovered() {
    let mut bench = Bench::ready();
    bench.request("x");
    let first_sent = bench.last().headers.get("semel-first-sent").map(str::to_owned);
    let mut next = Bench::with(|settings| settings.owner = "next".into());
    next.rows = bench.rows.clone();
    let rows: Vec<_> = next.rows.clone().into_iter().collect();
    // A request is left alone while its owner lives.
    next.client.stored(0, &rows, Some(&|owner| owner == "tab")).unwrap();
    next.drive();
    assert!(next.sent.is_empty());
    next.now_ms = 77;
    next.client.stored(77, &rows, Some(&|_| false)).unwrap();
    next.drive();
    next.answer(health(next.server_ms()));
    assert_eq!(next.last().headers.get("idempotency-key"), Some("\"x\""));
    assert_eq!(next.last().headers.get("semel-first-sent"), first_sent.as_deref());
    next.answer(outcome("done", next.server_ms()));
    assert_eq!(next.delivered[0].1, Receiver::Recovered);
    assert_eq!(bodies(&next), ["done"]);
}

#[test]
fn nothing_is_sent_while_the_store_fails_and_an_answer_is_settled_once_it_works() {
    let mut bench = Bench::ready();
    bench.is_broken = true;
    bench.request("x");
    assert_eq!(bodies(&bench), ["store-failed"]);
    assert!(bench.sent.is_empty());
    bench.is_broken = false;
    bench.request("y");
    bench.lose();
    bench.is_broken = true;
    bench.pass(5 * INTERVAL_MS);
    assert_eq!(bench.sent.len(), 1, "no attempt without its transaction");
    bench.is_broken = false;
    bench.pass(INTERVAL_MS);
    assert_eq!(bench.sent.len(), 2);
    bench.is_broken = true;
    bench.answer(outcome("done", bench.server_ms()));
    assert_eq!(bodies(&bench), ["store-failed", "done"]);
    assert!(matches!(bench.row("y"), Some(Row::Pending(_))));
    bench.is_broken = false;
    bench.pass(INTERVAL_MS);
    assert!(matches!(bench.row("y"), Some(Row::Settled(_))), "settled once more");
    assert_eq!(bench.delivered.len(), 2, "and not delivered again");
}

#[test]
fn a_request_whose_row_is_gone_is_not_sent_again_and_its_caller_gets_outcome_lost() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.lose();
    bench.rows.clear();
    bench.pass(INTERVAL_MS);
    assert_eq!((bench.sent.len(), bodies(&bench)), (1, vec!["outcome-lost".to_owned()]));
    let Answered::Failure(failure) = &bench.delivered[0].2 else { panic!() };
    assert_eq!(failure.executed, Executed::Unknown);
}

#[test]
fn a_caller_whose_request_another_tab_settled_gets_the_kept_answer() {
    for is_before_the_attempt in [true, false] {
        let mut bench = Bench::ready();
        bench.request("x");
        let adopt = Change::Adopt { by: "other".into(), from: "tab".into(), is_shared: true };
        bench.change("x", &adopt);
        let answered = Answered::Outcome(Response::json(201, "kept")).into();
        let settle = Change::Settle { by: "other".into(), key: Some("a/b".into()), answered, at_s: SERVER_MS / 1000 };
        bench.change("x", &settle);
        if is_before_the_attempt {
            bench.lose();
            bench.pass(INTERVAL_MS);
        } else {
            bench.answer(problem(410, "acknowledged", "yes", "never", bench.server_ms()));
        }
        assert_eq!((bench.sent.len(), bodies(&bench)), (1, vec!["kept".to_owned()]));
        bench.pass(100 * INTERVAL_MS);
        assert_eq!(bench.sent.len(), 1);
    }
}

#[test]
fn a_row_that_cannot_be_read_stops_the_client() {
    let mut bench = Bench::ready();
    bench.request("x");
    let mut rows: Vec<_> = bench.rows.clone().into_iter().collect();
    rows.push(("y".into(), vec![9, 9, 9]));
    let mut next = Bench::new();
    next.rows = bench.rows.clone();
    assert!(next.client.stored(0, &rows, None).is_err());
    next.drive();
    assert!(next.sent.is_empty());
}

#[test]
fn the_overview_lists_pending_requests_of_the_outbox_with_their_state() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.lose();
    bench.request("y");
    bench.answer(problem(404, "not-found", "no", "after-fix", bench.server_ms()));
    let foreign = Entry { owner: "other".into(), outbox: "outbox".into(), ..Entry::default() };
    let stranger = Entry { owner: "other".into(), outbox: "another".into(), ..Entry::default() };
    bench.change("stranger", &Change::Add(stranger));
    bench.change("z", &Change::Add(foreign));
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    let all = bench.client.overview(&rows).unwrap();
    let seen: Vec<_> = all.iter().map(|one| (one.id.as_str(), one.state, one.attempts)).collect();
    assert_eq!(seen, [("x", "sending", 1), ("y", "paused", 1), ("z", "elsewhere", 0)]);
}

#[test]
fn a_request_under_the_id_of_another_tabs_request_is_a_mismatch_and_not_sent() {
    let mut bench = Bench::ready();
    bench.change("x", &Change::Add(Entry { owner: "other".into(), outbox: "outbox".into(), ..Entry::default() }));
    bench.request("x");
    assert_eq!((bodies(&bench), bench.sent.len()), (vec!["fingerprint-mismatch".to_owned()], 0));
}

#[test]
fn a_row_that_two_tabs_adopt_is_sent_by_one_and_a_row_in_hand_is_not_adopted_again() {
    let mut bench = Bench::ready();
    bench.request("x");
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    let mut next = Bench::with(|settings| settings.owner = "next".into());
    next.rows = bench.rows.clone();
    next.change("x", &Change::Adopt { by: "third".into(), from: "tab".into(), is_shared: false });
    next.client.stored(0, &rows, Some(&|_| false)).unwrap();
    next.drive();
    assert!(next.sent.is_empty(), "it came too late");
    let before = bench.sent.len();
    for _ in 0..3 {
        bench.client.stored(bench.now_ms, &rows, None).unwrap();
        bench.drive();
        bench.pass(INTERVAL_MS);
    }
    assert_eq!(bench.sent.len(), before);
}

#[test]
fn a_row_that_the_store_kept_despite_a_failure_is_sent_and_answered_or_recovered() {
    for is_asked_for in [false, true] {
        let mut bench = Bench::ready();
        bench.is_broken = true;
        bench.request("x");
        bench.is_broken = false;
        let entry = Entry { draft: draft("x").into(), outbox: "outbox".into(), ..Entry::default() };
        bench.change("x", &Change::Add(Entry { maker: "tab".into(), owner: "tab".into(), ..entry }));
        if is_asked_for {
            bench.client.watch("x".into());
            bench.drive();
        }
        let rows: Vec<_> = bench.rows.clone().into_iter().collect();
        bench.client.stored(bench.now_ms, &rows, Some(&|_| true)).unwrap();
        bench.drive();
        assert_eq!(bench.targets(), ["/a/b?c"]);
        bench.answer(outcome("done", bench.server_ms()));
        assert_eq!(bodies(&bench), ["store-failed", "done"]);
        let to = if is_asked_for { Receiver::Caller } else { Receiver::Recovered };
        assert_eq!(bench.delivered.last().unwrap().1, to);
        assert_eq!(bench.client.counts(), (0, 0));
    }
}

#[test]
fn a_failure_is_not_delivered_while_the_store_cannot_tell_whether_another_tab_has_the_answer() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.is_broken = true;
    bench.answer(problem(410, "acknowledged", "yes", "never", bench.server_ms()));
    assert!(bench.delivered.is_empty());
    bench.is_broken = false;
    bench.pass(INTERVAL_MS);
    bench.answer(problem(410, "acknowledged", "yes", "never", bench.server_ms()));
    assert_eq!(bodies(&bench), ["acknowledged"]);
}

#[test]
fn a_kept_answer_is_deleted_after_its_time_and_not_before() {
    for (old_s, stays) in [(KEPT_S_MAX - 10, true), (KEPT_S_MAX + 10, false)] {
        let mut bench = Bench::ready();
        let kept = Some(Answered::Outcome(Response::json(201, "kept")).into());
        let at_s = bench.server_ms() / 1000 - old_s;
        let settled = row::Settled {
            outbox: "outbox".into(),
            maker: "tab".into(),
            key: None,
            until_ms: 0,
            was_cancelled: false,
            kept,
            at_s,
            is_acknowledged: true,
        };
        bench.rows.insert("x".into(), codec::encode(&Row::Settled(settled)));
        let rows: Vec<_> = bench.rows.clone().into_iter().collect();
        bench.client.stored(bench.now_ms, &rows, None).unwrap();
        bench.drive();
        assert_eq!(bench.row("x").is_some(), stays, "{old_s}");
    }
}

#[test]
fn a_kept_answer_with_a_damaged_time_in_the_future_stays() {
    let mut bench = Bench::ready();
    let settled = row::Settled {
        outbox: "outbox".into(),
        maker: "tab".into(),
        key: None,
        until_ms: 0,
        was_cancelled: false,
        kept: Some(Answered::Outcome(Response::json(201, "kept")).into()),
        at_s: i64::MAX,
        is_acknowledged: true,
    };
    let rows = [("x".to_owned(), codec::encode(&Row::Settled(settled)))];
    bench.rows.extend(rows.clone());
    bench.client.stored(bench.now_ms, &rows, None).unwrap();
    bench.drive();
    assert!(bench.row("x").is_some());
}

#[test]
fn requests_that_could_not_be_stored_do_not_count_against_the_limit() {
    let mut bench = Bench::ready();
    bench.is_broken = true;
    for n in 0..=REQUESTS_MAX {
        bench.request(&n.to_string());
    }
    bench.is_broken = false;
    bench.request("x");
    assert!(bench.row("x").is_some(), "{:?}", bodies(&bench).last());
}

#[test]
fn a_kept_answer_is_deleted_after_its_time_though_the_store_is_read_only_once() {
    let mut bench = Bench::new();
    let settled = row::Settled {
        outbox: "outbox".into(),
        maker: "tab".into(),
        key: None,
        until_ms: 0,
        was_cancelled: false,
        kept: Some(Answered::Outcome(Response::json(201, "kept")).into()),
        at_s: SERVER_MS / 1000 - 10 * KEPT_S_MAX,
        is_acknowledged: true,
    };
    bench.rows.insert("old".into(), codec::encode(&Row::Settled(settled)));
    let rows: Vec<_> = bench.rows.clone().into_iter().collect();
    bench.client.stored(0, &rows, None).unwrap();
    bench.drive();
    bench.request("x");
    bench.answer(health(bench.server_ms()));
    bench.answer(outcome("done", bench.server_ms()));
    bench.pass(ACK_RIDE_MS);
    bench.answer(from_object(Answer { status: 204, ..status("executed") }, bench.server_ms()));
    bench.pass(3_600_000);
    assert!(!bench.rows.contains_key("old"), "ten days too old");
}

#[test]
fn a_row_that_could_not_be_adopted_because_the_store_failed_is_adopted_later() {
    let mut bench = Bench::ready();
    bench.request("x");
    let mut next = Bench::with(|settings| settings.owner = "next".into());
    next.rows = bench.rows.clone();
    let rows: Vec<_> = next.rows.clone().into_iter().collect();
    next.is_broken = true;
    next.client.stored(0, &rows, None).unwrap();
    next.drive();
    next.is_broken = false;
    next.pass(3_600_000);
    assert!(!next.sent.is_empty(), "the store failed once, at the open");
    assert!(matches!(next.row("x"), Some(Row::Pending(entry)) if entry.is_shared), "its tab may live");
}

#[test]
fn an_answer_that_is_kept_right_after_a_sleep_has_a_time_not_before_the_servers() {
    let mut bench = Bench::ready();
    bench.request("x");
    bench.change("x", &Change::Adopt { by: "other".into(), from: "tab".into(), is_shared: true });
    bench.client.doubt_clock();
    bench.answer(outcome("done", bench.server_ms()));
    let Some(Row::Settled(settled)) = bench.row("x") else { panic!("{:?}", bench.row("x")) };
    assert!(settled.kept.is_some() && settled.at_s >= bench.server_ms() / 1000, "{settled:?}");
}
