//! Answers that are no outcome, and requests that are given up.

use crate::support::memory::Memory;
use crate::support::server::{CANCEL, HEALTH, KEY, Reply, Server, control, executed, problem, problem_body};
use crate::support::tab::{ATTEMPT_TIMEOUT_MS, Asked, Got, Setup, Tab};
use crate::support::timers::Timers;
use crate::support::wait::{eventually, until};
use semel_core::client::Row;
use wasm_bindgen_test::wasm_bindgen_test;

#[wasm_bindgen_test]
async fn a_problem_that_stays_one_is_delivered_as_a_failure() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [problem(409, "outcome-unknown", "unknown", "never", Some(KEY))]);
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.posts("id-1", "/deposit", None);
    let delivery = tab.delivery("id-1").await;
    assert!(delivery.is_awaited);
    let expected = Got::Failure {
        code: "outcome-unknown".into(),
        executed: "unknown".into(),
        retry: "never".into(),
        detail: "as it is".into(),
        problem: problem_body("outcome-unknown"),
    };
    assert_eq!(delivery.got, expected);
    until("it is settled", || store.settled("id-1").is_some() && store.is_idle()).await;
    assert_eq!(tab.asked().len(), 1);
    assert_eq!(server.sent("/deposit").len(), 1);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn a_problem_that_can_be_mended_pauses_the_request_until_it_is_resumed_under_its_id() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [problem(401, "unauthorized", "no", "after-fix", None), executed("mended")]);
    server.always_replies("/other", Reply::Lost);
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    let ticket = tab.posts("id-1", "/deposit", None);
    let paused = eventually("it pauses", || tab.asked().pop()).await;
    let Asked::Pause { ticket: paused_ticket, described, failure } = paused else { panic!("{paused:?}") };
    assert_eq!(paused_ticket, ticket);
    assert_eq!(described, ["id-1", "POST", "/deposit"]);
    assert_eq!(failure.failure(), Some(("unauthorized", "unknown", "after-fix")));
    assert!(matches!(failure, Got::Failure { problem, .. } if problem == problem_body("unauthorized")));

    // While others go on, it does not.
    tab.posts("id-2", "/other", None);
    until("others go on", || server.sent("/other").len() >= 5).await;
    assert_eq!(server.sent("/deposit").len(), 1);
    assert!(store.pending("id-1").is_some());
    let overview = tab.overview().await;
    assert_eq!(overview[0], "id-1 POST /deposit paused 1");
    assert!(overview[1].starts_with("id-2 POST /other sending "), "{overview:?}");

    tab.module().resume(ticket);
    assert_eq!(tab.delivery("id-1").await.got.body(), Some(b"mended".as_slice()));
    let sent = server.sent("/deposit");
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].id(), sent[1].id());
    assert_eq!(sent[0].header("semel-first-sent"), sent[1].header("semel-first-sent"));
    assert!(sent[1].deadline_ms() > sent[1].server_ms, "it could not be executed");
    assert!(sent[1].stored_until_ms() >= Some(sent[1].deadline_ms()));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn all_that_pause_are_resumed_at_once() {
    let (server, store) = (Server::new(), Memory::default());
    let targets = ["/a", "/b", "/c"];
    for target in targets {
        server.replies(target, [problem(403, "forbidden", "no", "after-fix", None)]);
    }
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    for target in targets {
        tab.posts(target, target, None);
    }
    until("all pause", || tab.asked().len() == targets.len()).await;
    assert!(tab.asked().iter().all(|asked| matches!(asked, Asked::Pause { .. })), "{:?}", tab.asked());
    tab.module().resume_all();
    for target in targets {
        assert_eq!(tab.delivery(target).await.got.body(), Some(b"done".as_slice()));
    }
    tab.module().close();
}

#[wasm_bindgen_test]
async fn what_is_given_up_is_cancelled_at_its_key_and_both_ids_are_acknowledged() {
    let (server, store) = (Server::new(), Memory::default());
    server.always_replies("/deposit", Reply::Lost);
    server.replies(CANCEL, [Reply::Lost, control("cancelled")]);
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    let ticket = tab.posts("id-1", "/deposit", Some(KEY));
    until("it is tried", || server.sent("/deposit").len() >= 2).await;
    tab.module().give_up(ticket);
    let delivery = tab.delivery("id-1").await;
    assert_eq!(delivery.got.failure(), Some(("cancelled", "no", "never")));
    assert_eq!(delivery.ticket, ticket);
    assert!(delivery.is_awaited);
    until("it is settled", || store.settled("id-1").is_some() && store.is_idle()).await;
    assert_eq!(tab.deliveries("id-1").len(), 1);

    let first_sent = server.sent("/deposit")[0].header("semel-first-sent").to_owned();
    let cancellations = server.sent(CANCEL);
    assert_eq!(cancellations.len(), 2);
    for each in &cancellations {
        assert_eq!((each.method.as_str(), each.id()), ("POST", "cancel-id-1".to_owned()));
        assert_eq!(each.header("semel-first-sent"), first_sent);
        let body = format!("{{\"id\":\"id-1\",\"firstSent\":{}}}", first_sent.trim_start_matches('@'));
        assert_eq!(String::from_utf8_lossy(&each.body), body);
        assert!((each.server_ms + ATTEMPT_TIMEOUT_MS - each.deadline_ms()).abs() < 10_000);
        assert!(each.stored_until_ms() >= Some(each.deadline_ms()), "the row does not cover {each:?}");
        assert!(matches!(&each.row, Some(Row::Pending(entry)) if entry.is_cancelling));
    }
    let last = server.all_sent().pop().expect("something was sent");
    assert_eq!(last.target, CANCEL, "it was sent on after it had been given up");

    let latest_ms = server.all_sent().iter().map(|sent| sent.deadline_ms()).max().expect("something was sent");
    tab.posts("id-2", "/other", Some(KEY));
    let sent = eventually("the next request", || server.sent("/other").pop()).await;
    let acks = format!("\"id-1\";until={latest_ms}, \"cancel-id-1\";until={latest_ms}");
    assert_eq!(sent.header("semel-ack"), acks);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn where_the_key_is_not_known_it_is_found_by_an_attempt_that_cannot_execute() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [Reply::Lost, Reply::Lost, Reply::Jump(0)]);
    let tab = Tab::opened(&server, &Setup { retry_interval_ms: 100.0, ..Setup::with(&store) }).await;
    let ticket = tab.posts("id-1", "/deposit", None);
    until("it is tried", || server.sent("/deposit").len() == 1).await;
    tab.module().give_up(ticket);
    assert_eq!(tab.delivery("id-1").await.got.failure(), Some(("cancelled", "no", "never")));
    let sent = server.sent("/deposit");
    assert_eq!(sent.len(), 3);
    assert!(sent[0].deadline_ms() > 0);
    assert_eq!([sent[1].deadline_ms(), sent[2].deadline_ms()], [0, 0]);
    assert_eq!(server.sent(CANCEL).len(), 1);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn what_had_run_before_it_was_given_up_brings_its_outcome() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [Reply::Lost, executed("it ran")]);
    server.replies(CANCEL, [control("executed")]);
    let tab = Tab::opened(&server, &Setup { retry_interval_ms: 200.0, ..Setup::with(&store) }).await;
    let ticket = tab.posts("id-1", "/deposit", Some(KEY));
    until("it is tried", || server.sent("/deposit").len() == 1).await;
    tab.module().give_up(ticket);
    assert_eq!(tab.delivery("id-1").await.got.body(), Some(b"it ran".as_slice()));
    assert_eq!(server.sent(CANCEL).len(), 1);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn what_is_given_up_while_it_pauses_is_cancelled() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [problem(401, "unauthorized", "no", "after-fix", None)]);
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    let ticket = tab.posts("id-1", "/deposit", Some(KEY));
    eventually("it pauses", || tab.asked().pop()).await;
    tab.module().give_up(ticket);
    assert_eq!(tab.delivery("id-1").await.got.failure(), Some(("cancelled", "no", "never")));
    assert_eq!(server.sent("/deposit").len(), 1);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn a_caller_that_waited_long_enough_is_told_so_and_the_answer_goes_to_who_takes_what_is_recovered() {
    let (server, store) = (Server::new(), Memory::default());
    server.always_replies("/deposit", Reply::Lost);
    let tab = Tab::opened(&server, &Setup { give_up_after_ms: Some(100.0), ..Setup::with(&store) }).await;
    tab.posts("id-1", "/deposit", None);
    let asked = eventually("the caller is told", || tab.asked().pop()).await;
    let Asked::GaveUp { id, failure } = asked else { panic!("{asked:?}") };
    assert_eq!(id, "id-1");
    assert_eq!(failure.failure(), Some(("gave-up", "unknown", "same-id")));
    assert!(store.pending("id-1").is_some());
    let tried = server.sent("/deposit").len();
    until("it goes on", || server.sent("/deposit").len() > tried + 2).await;
    assert_eq!(tab.asked().len(), 1, "it is told once");
    server.replies("/deposit", []);
    let delivery = tab.delivery("id-1").await;
    assert!(!delivery.is_awaited);
    assert_eq!(delivery.got.body(), Some(b"done".as_slice()));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn a_time_longer_than_a_timer_can_be_set_for_does_not_end_at_once() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [problem(401, "unauthorized", "no", "after-fix", None)]);
    let timers = Timers::watch();
    let tab = Tab::opened(&server, &Setup { give_up_after_ms: Some(1e12), ..Setup::with(&store) }).await;
    tab.posts("id-1", "/deposit", None);
    let asked = eventually("it pauses", || tab.asked().pop()).await;
    assert!(matches!(asked, Asked::Pause { .. }), "{asked:?}");
    until("nothing is left but the end of the caller's time", || timers.longest_ms() > 1e9).await;
    assert!(timers.longest_ms() <= f64::from(i32::MAX), "{} ms", timers.longest_ms());
    assert_eq!(tab.asked().len(), 1);
    assert_eq!(server.sent(HEALTH).len(), 1);
    tab.module().close();
}
