//! One holder, and the frames that it sends.

use super::server::{bodies, problem};
use super::*;

pub fn world() -> (Server, Rows) {
    Default::default()
}

#[test]
fn the_take_over_is_sent_again_unchanged_until_it_is_answered() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::new("a");
    tab.session.wake(0);
    tab.drive(&mut rows);
    let first = tab.lose(&mut rows);
    server.serve(&first);
    assert!(tab.sent.is_empty(), "not before the interval");
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!((tab.sent[0].request.clone(), &tab.sent[0].headers), (first.request, &first.headers));
    tab.arrives(&mut server, &mut rows);
    tab.call(&mut rows, "x");
    assert_eq!(tab.sent[0].headers.get("semel-session"), Some("\"s\";epoch=1;seq=1"));
    assert_eq!(tab.sent[0].headers.get("semel-key"), Some("\"a/b\""));
}

#[test]
fn a_take_over_that_is_refused_reports_the_code_and_is_not_sent_again() {
    let (mut server, mut rows) = world();
    Tab::open("a", &mut server, &mut rows, &[]);
    let mut tab = Tab::with("b", |settings| settings.after = Some(0));
    tab.session.wake(0);
    tab.drive(&mut rows);
    assert_eq!(tab.sent[0].request.body, br#"{"name":"s","after":0}"#);
    tab.arrives(&mut server, &mut rows);
    assert_eq!(tab.refused.as_ref().map(|failure| failure.code.as_str()), Some("fenced"));
    assert_eq!((tab.session.wakes_at(), tab.sent.len()), (None, 0));
}

#[test]
fn the_first_request_goes_at_once_and_those_called_meanwhile_go_in_one_frame() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    for id in ["x", "y", "z"] {
        tab.call(&mut rows, id);
    }
    assert_eq!(tab.sent.iter().map(bodies).collect::<Vec<_>>(), [["x"]]);
    tab.arrives(&mut server, &mut rows);
    assert_eq!(tab.sent.iter().map(bodies).collect::<Vec<_>>(), [["y", "z"]]);
    tab.arrives(&mut server, &mut rows);
    assert_eq!(
        (server.effects, tab.body("z"), rows.len()),
        (vec!["x".into(), "y".into(), "z".into()], "ran z".into(), 0)
    );
}

#[test]
fn a_lost_request_is_sent_again_with_those_called_meanwhile_behind_it_and_runs_once() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "x");
    let lost = tab.lose(&mut rows);
    server.serve(&lost);
    tab.call(&mut rows, "y");
    assert!(tab.sent.is_empty(), "not before the interval");
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!(bodies(&tab.sent[0]), ["x", "y"]);
    tab.arrives(&mut server, &mut rows);
    assert_eq!((server.effects, tab.body("x")), (vec!["x".to_owned(), "y".to_owned()], "ran x".to_owned()));
}

#[test]
fn an_attempt_that_times_out_is_sent_again_and_its_late_answer_is_ignored() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "x");
    let slow = tab.sent[0].clone();
    tab.pass(&mut rows, TIMEOUT_MS);
    assert!(tab.sent.is_empty());
    let answer = server.serve(&slow);
    tab.answer(&mut rows, &slow, answer);
    assert!(tab.answers.is_empty());
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives(&mut server, &mut rows);
    assert_eq!((tab.body("x"), server.effects.len()), ("ran x".to_owned(), 1));
}

#[test]
fn a_request_that_fails_in_a_frame_and_those_after_it_are_sent_again_under_the_same_places() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    server.says.insert("y".into(), vec![(500, "rolled-back", "no", "same-id")]);
    for id in ["first", "x", "y", "z"] {
        tab.call(&mut rows, id);
    }
    tab.arrives(&mut server, &mut rows);
    tab.arrives(&mut server, &mut rows);
    assert_eq!((server.effects.clone(), tab.sent.len()), (vec!["first".to_owned(), "x".to_owned()], 0));
    assert_eq!(places(&rows), [("y", Some((1, 3))), ("z", Some((1, 4)))]);
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!(bodies(&tab.sent[0]), ["y", "z"]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["first", "x", "y", "z"]);
}

#[test]
fn the_requests_of_a_batch_that_is_refused_as_a_whole_are_sent_one_by_one() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    for id in ["first", "x", "y"] {
        tab.call(&mut rows, id);
    }
    tab.arrives(&mut server, &mut rows);
    let batch = tab.sent.remove(0);
    tab.answer(&mut rows, &batch, problem(400, "body-invalid", "no", "after-fix"));
    assert_eq!(tab.paused.len(), 0);
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!(bodies(&tab.sent[0]), ["x"]);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["first", "x", "y"]);
}

#[test]
fn an_unreadable_answer_to_a_batch_counts_as_lost() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    for id in ["first", "x", "y"] {
        tab.call(&mut rows, id);
    }
    tab.arrives(&mut server, &mut rows);
    for body in [b"".as_slice(), b"{}", &[0; 64]] {
        let batch = tab.sent.remove(0);
        assert_eq!(bodies(&batch), ["x", "y"]);
        tab.answer(&mut rows, &batch, Answer { body: body.to_vec(), ..server::outcome("", &[]) });
        assert_eq!((tab.answers.len(), tab.sent.len()), (1, 0));
        tab.pass(&mut rows, INTERVAL_MS);
        let alone = tab.sent.remove(0);
        assert_eq!(bodies(&alone), ["x"]);
        tab.answer(&mut rows, &alone, Answer::default());
        tab.session.elements_max = super::super::ELEMENTS_MAX;
        tab.pass(&mut rows, INTERVAL_MS);
    }
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["first", "x", "y"]);
}

#[test]
fn a_request_beyond_the_window_is_stored_without_a_place() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    for number in 0..70 {
        tab.call(&mut rows, &format!("{number:02}"));
    }
    assert_eq!(rows.len(), 70);
    assert_eq!(places(&rows)[63], ("63", Some((1, 64))));
    assert_eq!(places(&rows)[64], ("64", None));
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, (0..70).map(|number| format!("{number:02}")).collect::<Vec<_>>());
    assert_eq!(rows.len(), 0);
}

#[test]
fn a_request_is_acknowledged_only_once_its_row_is_deleted() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "x");
    let made = tab.sent.remove(0);
    let answer = server.serve(&made);
    tab.is_broken = true;
    tab.answer(&mut rows, &made, answer);
    tab.is_broken = false;
    tab.call(&mut rows, "y");
    assert_eq!(tab.sent[0].headers.get("semel-session"), Some("\"s\";epoch=1;seq=2"), "the row of x is there");
    for _ in 0..2 {
        tab.lose(&mut rows);
        tab.pass(&mut rows, INTERVAL_MS);
    }
    assert_eq!(tab.sent[0].headers.get("semel-session"), Some("\"s\";epoch=1;seq=2;ack=1"));
    tab.arrives(&mut server, &mut rows);
    assert_eq!(server.ack, 1);
}

#[test]
fn a_request_that_could_not_be_stored_fails_and_its_number_goes_to_the_next() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.is_broken = true;
    tab.call(&mut rows, "x");
    assert_eq!(tab.failure("x"), ("store-failed", Executed::No));
    tab.is_broken = false;
    tab.call(&mut rows, "y");
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((server.effects, server.ack), (vec!["y".to_owned()], 0));
}

/// The store has the row of `x`, although it said that it failed, and then failed to delete the row. Now it works
/// again, and `y` is called.
fn unsure() -> (Server, Rows, Tab) {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    (tab.is_broken, tab.is_unsure, tab.slow) = (true, true, Some(Vec::new()));
    tab.call(&mut rows, "x");
    tab.store_next(&mut rows);
    assert_eq!(tab.failure("x").0, "store-failed");
    tab.is_unsure = false;
    while tab.slow.as_ref().is_some_and(|slow| !slow.is_empty()) {
        tab.store_next(&mut rows);
    }
    (tab.is_broken, tab.slow) = (false, None);
    tab.call(&mut rows, "y");
    (server, rows, tab)
}

#[test]
fn the_number_of_a_row_that_a_failing_store_kept_goes_to_the_next_once_that_row_is_deleted() {
    let (mut server, mut rows, mut tab) = unsure();
    assert_eq!(places(&rows), [("x", Some((1, 1))), ("y", None)]);
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.body("y"), rows.len(), server.effects), ("ran y".to_owned(), 0, vec!["y".to_owned()]));
}

#[test]
fn a_request_whose_row_a_failing_store_kept_runs_with_the_next_holder() {
    let (mut server, mut rows, mut tab) = unsure();
    tab.arrives_all(&mut server, &mut rows);
    let mut next = Tab::open("b", &mut server, &mut rows, &[]);
    next.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["x", "y"]);
    assert_eq!((next.body("x"), next.body("y")), ("ran x".to_owned(), "ran y".to_owned()));
}

/// The store may have the row of `x` after all. But no caller waits for `x` any more.
#[test]
fn each_call_fails_while_the_store_fails_though_it_may_have_kept_the_first() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.is_broken = true;
    for id in ["x", "y", "z"] {
        tab.call(&mut rows, id);
        assert_eq!(tab.failure(id), ("store-failed", Executed::No));
    }
    assert_eq!(tab.session.counts(), (0, 0));
}

#[test]
fn calls_run_in_order_though_the_store_is_slow() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.slow = Some(Vec::new());
    for id in ["c", "a", "b"] {
        tab.call(&mut rows, id);
    }
    for _ in 0..3 {
        tab.store_next(&mut rows);
    }
    tab.slow = None;
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["c", "a", "b"]);
}

#[test]
fn an_after_fix_refusal_pauses_the_session_and_requests_go_on_in_order_after_resume() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    server.says.insert("x".into(), vec![(401, "unauthorized", "no", "after-fix")]);
    tab.call(&mut rows, "x");
    tab.call(&mut rows, "y");
    tab.arrives(&mut server, &mut rows);
    tab.pass(&mut rows, 10 * INTERVAL_MS);
    assert_eq!((tab.paused.len(), tab.sent.len(), tab.session.counts()), (1, 0, (2, 1)));
    assert_eq!((tab.paused[0].1.code.as_str(), tab.paused[0].1.executed), ("unauthorized", Executed::Unknown));
    tab.session.resume(tab.now_ms);
    tab.drive(&mut rows);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects, ["x", "y"]);
}

#[test]
fn a_request_that_is_given_up_in_a_pause_is_cancelled_and_later_ones_go_on() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    server.says.insert("x".into(), vec![(404, "not-found", "no", "after-fix"); 5]);
    let ticket = tab.call(&mut rows, "x");
    tab.call(&mut rows, "y");
    tab.arrives(&mut server, &mut rows);
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(&mut rows);
    tab.pass(&mut rows, INTERVAL_MS);
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.failure("x"), tab.body("y")), (("cancelled", Executed::No), "ran y".to_owned()));
    assert_eq!((server.effects, rows.len()), (vec!["y".to_owned()], 0));
}

#[test]
fn a_request_that_ran_and_is_given_up_gets_its_outcome() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let ticket = tab.call(&mut rows, "x");
    server.serve(&tab.sent[0]);
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(&mut rows);
    tab.lose(&mut rows);
    tab.pass(&mut rows, INTERVAL_MS);
    assert_eq!(tab.sent[0].headers.get("idempotency-key"), Some("\"cancel-x;epoch=1;seq=1\""));
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!((tab.body("x"), server.effects.len()), ("ran x".to_owned(), 1));
}

#[test]
fn an_expired_outcome_of_a_cancellation_leaves_the_request_unknown() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let ticket = tab.call(&mut rows, "x");
    tab.lose(&mut rows);
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(&mut rows);
    tab.pass(&mut rows, INTERVAL_MS);
    let made = tab.sent.remove(0);
    assert_eq!(made.headers.get("idempotency-key"), Some("\"cancel-x;epoch=1;seq=1\""));
    tab.answer(&mut rows, &made, server::problem(410, "outcome-expired", "yes", "never"));
    assert_eq!((tab.failure("x"), server.effects.len()), (("outcome-expired", Executed::Unknown), 0));
}

#[test]
fn the_place_of_a_given_up_request_whose_row_is_gone_is_closed_and_later_requests_go_on() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let ticket = tab.call(&mut rows, "x");
    tab.lose(&mut rows);
    rows.clear();
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(&mut rows);
    tab.call(&mut rows, "y");
    for _ in 0..4 {
        tab.pass(&mut rows, INTERVAL_MS);
        tab.arrives_all(&mut server, &mut rows);
    }
    assert_eq!(tab.failure("x"), ("cancelled", Executed::Unknown));
    assert_eq!((tab.body("y"), server.effects.len()), ("ran y".to_owned(), 1));
}

#[test]
fn the_place_of_a_given_up_request_without_caller_or_row_is_closed_and_later_requests_go_on() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.session.give_up_after(Some(1));
    let ticket = tab.call(&mut rows, "x");
    tab.session.give_up_after(None);
    tab.lose(&mut rows);
    tab.pass(&mut rows, 1);
    assert_eq!(tab.failure("x"), ("gave-up", Executed::Unknown));
    rows.clear();
    tab.session.give_up(tab.now_ms, ticket);
    tab.drive(&mut rows);
    tab.call(&mut rows, "y");
    for _ in 0..4 {
        tab.pass(&mut rows, INTERVAL_MS);
        tab.arrives_all(&mut server, &mut rows);
    }
    assert_eq!((tab.body("y"), server.effects.len()), ("ran y".to_owned(), 1));
    assert!(
        matches!(&tab.recovered["x"], Answered::Failure(failure) if failure.code == "cancelled"),
        "{:?}",
        tab.recovered
    );
}

#[test]
fn a_request_without_a_place_is_given_up_at_once_and_leaves_no_gap() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let tickets: Vec<_> = (0..70).map(|number| tab.call(&mut rows, &format!("{number:02}"))).collect();
    tab.session.give_up(tab.now_ms, tickets[66]);
    tab.drive(&mut rows);
    assert_eq!(tab.failure("66"), ("cancelled", Executed::No));
    tab.arrives_all(&mut server, &mut rows);
    assert_eq!(server.effects.len(), 69);
    assert!(!server.effects.contains(&"66".to_owned()));
}

#[test]
fn a_request_beyond_the_limit_of_requests_fails_as_outbox_full_and_is_not_stored() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.session.settings.requests_max = 1;
    tab.call(&mut rows, "x");
    tab.call(&mut rows, "y");
    assert_eq!((tab.failure("y"), rows.len()), (("outbox-full", Executed::No), 1));
}

/// The system gives zeroed memory only when it is touched, so the large body costs nothing.
#[test]
fn a_request_beyond_the_limit_of_bytes_fails_as_outbox_full() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    let body = vec![0; crate::client::PENDING_BYTES_MAX + 1];
    tab.session.request(tab.now_ms, "large".into(), Draft { body, ..Draft::default() });
    tab.session.request(tab.now_ms, "x".into(), Draft::default());
    assert!(matches!(tab.session.poll(), Some(Action::Change { .. })), "it is stored");
    let Some(Action::Deliver { answered, .. }) = tab.session.poll() else { panic!("the next one is not refused") };
    assert!(matches!(&*answered, Answered::Failure(failure) if failure.code == "outbox-full"));
}

#[test]
fn the_size_of_a_frame_counts_its_bodies_as_base64() {
    let (mut server, mut rows) = world();
    let mut tab = Tab::open("a", &mut server, &mut rows, &[]);
    tab.call(&mut rows, "first");
    let bodies = ["x", "y"].map(|id| id.repeat(4 * super::super::FRAME_BYTES_MAX / 10));
    for body in &bodies {
        tab.call(&mut rows, body);
    }
    tab.arrives(&mut server, &mut rows);
    assert_eq!(server::bodies(&tab.sent[0]).len(), 1, "base64 takes a third more");
}
