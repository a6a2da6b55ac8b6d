//! A request from its store to its outcome, against a stub for `fetch`.

use crate::support::memory::{Memory, Turn};
use crate::support::rows::{all_bytes, entry};
use crate::support::server::{HEALTH, KEY, Reply, Server, executed, executed_with, portal, problem};
use crate::support::tab::{ATTEMPT_TIMEOUT_MS, Asked, Got, Setup, Tab};
use crate::support::wait::{eventually, turn, until};
use semel_core::client::Entry;
use semel_core::message::Headers;
use std::collections::BTreeSet;
use wasm_bindgen_test::wasm_bindgen_test;

/// The server's clock as the client knows it is late by what the answer took on its way, and by what a busy machine adds.
const SLACK_MS: i64 = 10_000;

#[wasm_bindgen_test]
async fn a_request_is_durable_before_it_is_sent() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    store.takes_turns(&[Turn::Holds]);
    tab.posts("id-1", "/deposit?a=b", Some(KEY));
    until("the row is written", || store.is_holding()).await;
    for _ in 0..5 {
        turn().await;
    }
    assert!(server.all_sent().is_empty(), "it is sent before the store has said that the row is durable");
    store.release();
    assert_eq!(store.pending("id-1"), Some(entry("tab-a", "/deposit?a=b")));
    let sent = eventually("it is sent", || server.sent("/deposit?a=b").pop()).await;
    assert_eq!(sent.id(), "id-1");
    tab.delivery("id-1").await;
    tab.module().close();
}

#[wasm_bindgen_test]
async fn once_the_clock_is_known_a_request_is_stored_with_its_first_deadline_and_sent_at_once() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.posts("id-1", "/deposit", Some(KEY));
    tab.delivery("id-1").await;
    until("it is settled", || store.settled("id-1").is_some() && store.is_idle()).await;

    store.takes_turns(&[Turn::Holds]);
    let begun = store.begun();
    tab.posts("id-2", "/deposit", Some(KEY));
    until("the row is written", || store.is_holding()).await;
    for _ in 0..5 {
        turn().await;
    }
    assert_eq!(server.sent("/deposit").len(), 1, "it is sent before the store has said that the row is durable");
    store.release();
    let sent = eventually("it is sent", || server.sent("/deposit").into_iter().nth(1)).await;
    assert_eq!(sent.stored_until_ms(), Some(sent.deadline_ms()));
    assert_eq!(store.begun(), begun + 1, "one transaction is enough");
    assert_eq!(server.sent(HEALTH).len(), 1);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn whatever_comes_between_all_attempts_are_one_request_whose_outcome_is_delivered_once() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies(HEALTH, [Reply::Lost, portal()]);
    let replies = [
        Reply::Lost,
        problem(503, "unavailable", "no", "same-id", None),
        portal(),
        executed_with(500, b"no outcome"),
        problem(409, "in-flight", "unknown", "same-id", Some(KEY)),
        Reply::Jump(7_200_000),
        executed_with(201, &all_bytes()),
    ];
    let attempts = replies.len();
    server.replies("/deposit", replies);
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    let ticket = tab.posts("id-1", "/deposit", None);
    let delivery = tab.delivery("id-1").await;
    until("it is settled", || store.settled("id-1").is_some() && store.is_idle()).await;

    let deliveries = tab.asked();
    assert_eq!(deliveries.len(), 1, "{deliveries:?}");
    assert!(delivery.is_awaited);
    assert_eq!(delivery.ticket, ticket);
    assert_eq!(delivery.described, ["id-1", "POST", "/deposit"]);
    let Got::Outcome { status: 201, headers, body } = delivery.got else { panic!("{delivery:?}") };
    assert_eq!(body, all_bytes());
    assert_eq!(headers.get("x-receipt"), Some("7:8"));

    let sent = server.sent("/deposit");
    assert_eq!(sent.len(), attempts);
    let first_sent = sent[0].header("semel-first-sent").to_owned();
    let first_sent_s: i64 = first_sent.trim_start_matches('@').parse().expect("a date");
    assert!((0..=SLACK_MS).contains(&(sent[0].server_ms - first_sent_s * 1000)), "{:?}", sent[0]);
    for each in &sent {
        assert_eq!(each.header("idempotency-key"), "\"id-1\"");
        assert_eq!(each.header("semel-first-sent"), first_sent);
        assert_eq!(each.header("semel-principal"), "\"alice\"");
        assert_eq!((each.header("content-type"), each.header("x-note")), ("application/octet-stream", "a:b"));
        assert_eq!((each.method.as_str(), &each.body), ("POST", &all_bytes()));
        let other = ["semel-deadline"];
        let same = |headers: &Headers| {
            let lines = headers.iter().filter(|(name, _)| !other.contains(name));
            lines.map(|(name, value)| format!("{name}:{value}")).collect::<BTreeSet<_>>()
        };
        assert_eq!(same(&each.headers), same(&sent[0].headers));
        let late_ms = each.server_ms + ATTEMPT_TIMEOUT_MS - each.deadline_ms();
        assert!((-1..=SLACK_MS).contains(&late_ms), "the deadline is {late_ms} ms from where it should be");
        let Some(Entry { first_sent_s: Some(stored_s), until_ms: Some(until_ms), .. }) = each.pending() else {
            panic!("no pending row covers {each:?}");
        };
        assert_eq!(stored_s, first_sent_s);
        assert!(until_ms >= each.deadline_ms(), "{each:?}");
    }
    let latest_ms = sent.iter().map(|sent| sent.deadline_ms()).max();
    assert_eq!(store.settled("id-1").map(|settled| settled.until_ms), latest_ms);
    assert_eq!(server.sent(HEALTH).len(), 3);
    assert!(server.sent(HEALTH).iter().all(|sent| sent.method == "GET" && sent.headers == Headers::new()));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn between_two_attempts_lies_the_interval() {
    const INTERVAL_MS: f64 = 60.0;
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [Reply::Lost, portal(), problem(503, "unavailable", "no", "same-id", None)]);
    let setup = Setup { retry_interval_ms: INTERVAL_MS, ..Setup::with(&store) };
    let tab = Tab::opened(&server, &setup).await;
    tab.posts("id-1", "/deposit", None);
    tab.delivery("id-1").await;
    let sent = server.sent("/deposit");
    assert_eq!(sent.len(), 4);
    for pair in sent.windows(2) {
        let between_ms = pair[1].at_ms - pair[0].at_ms;
        // Instants are whole ms.
        assert!(between_ms >= INTERVAL_MS - 1.0, "{between_ms} ms");
    }
    tab.module().close();
}

#[wasm_bindgen_test]
async fn an_attempt_without_an_end_is_aborted_and_what_is_heard_of_it_later_counts_for_nothing() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [Reply::Silence, Reply::Silence]);
    let setup = Setup { attempt_timeout_ms: 150.0, ..Setup::with(&store) };
    let tab = Tab::opened(&server, &setup).await;
    tab.posts("id-1", "/deposit", None);
    let second = eventually("a second attempt", || server.sent("/deposit").into_iter().nth(1)).await;
    let first = server.sent("/deposit").swap_remove(0);
    assert_eq!(tab.asked(), [Asked::Abort(first.attempt)]);
    assert!(second.at_ms - first.at_ms >= 149.0, "aborted after {} ms", second.at_ms - first.at_ms);
    tab.hears(first.attempt, executed("late"));
    tab.hears(first.attempt, Reply::Lost);
    let delivery = tab.delivery("id-1").await;
    assert_eq!(delivery.got.body(), Some(b"done".as_slice()));
    let third = server.sent("/deposit").swap_remove(2);
    assert!(third.at_ms - second.at_ms >= 149.0, "what was heard of the first ended the second");
    assert_eq!([first.id(), second.id(), third.id()], ["id-1", "id-1", "id-1"]);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn an_acknowledgement_rides_on_the_next_request_to_its_key_and_then_the_row_leaves() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/deposit", [Reply::Lost, Reply::Jump(5_000), executed("one"), Reply::Lost, executed("two")]);
    server.replies("/other", [Reply::Silence]);
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.posts("id-1", "/deposit", None);
    tab.delivery("id-1").await;
    until("it is settled", || store.settled("id-1").is_some() && store.is_idle()).await;
    let latest_ms = server.sent("/deposit").iter().map(|sent| sent.deadline_ms()).max().expect("it was sent");

    tab.posts("id-2", "/other", Some("accounts/2"));
    let other = eventually("the one to another key", || server.sent("/other").pop()).await;
    assert_eq!(other.headers.get("semel-ack"), None);

    tab.posts("id-3", "/deposit", None);
    assert_eq!(tab.delivery("id-3").await.got.body(), Some(b"two".as_slice()));
    let sent = server.sent("/deposit");
    assert!(sent[..3].iter().all(|sent| sent.headers.get("semel-ack").is_none()));
    assert_eq!(sent.len(), 5);
    for each in &sent[3..] {
        assert_eq!(each.id(), "id-3");
        assert_eq!(each.header("semel-ack"), format!("\"id-1\";until={latest_ms}"));
    }
    until("the first row has left", || store.durable("id-1").is_none()).await;
    until("the other is settled", || store.settled("id-3").is_some()).await;
    tab.module().close();
}

#[wasm_bindgen_test]
async fn a_key_that_the_application_names_goes_along_and_one_that_was_learned_does_not() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.posts("id-1", "/deposit", Some("a%20b/%C3%BC"));
    tab.posts("id-2", "/other", None);
    tab.delivery("id-1").await;
    tab.delivery("id-2").await;
    tab.posts("id-3", "/other", None);
    tab.delivery("id-3").await;
    assert_eq!(server.sent("/deposit")[0].header("semel-key"), "\"a%20b/%C3%BC\"");
    assert!(server.sent("/other").iter().all(|sent| sent.headers.get("semel-key").is_none()));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn many_requests_at_once_are_each_delivered_once() {
    const REQUESTS: usize = 100;
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    for number in 0..REQUESTS {
        let target = format!("/deposit/{number}");
        server.replies(&target, [Reply::Lost, executed(&number.to_string())]);
        tab.posts(&format!("id-{number}"), &target, Some(KEY));
    }
    for number in 0..REQUESTS {
        let delivery = tab.delivery(&format!("id-{number}")).await;
        assert_eq!(delivery.got.body(), Some(number.to_string().as_bytes()));
    }
    until("all changes are reported", || store.is_idle()).await;
    assert_eq!(tab.asked().len(), REQUESTS);
    tab.module().close();
}
