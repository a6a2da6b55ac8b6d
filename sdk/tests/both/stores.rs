//! Stores that fail.

use crate::support::memory::{Memory, Turn};
use crate::support::rows::{encoded, entry};
use crate::support::server::{KEY, Server};
use crate::support::tab::{Setup, Tab};
use crate::support::wait::until;
use wasm_bindgen::JsCast;
use wasm_bindgen_test::wasm_bindgen_test;

#[wasm_bindgen_test]
async fn what_could_not_be_stored_is_not_sent_and_fails() {
    for turn in [Turn::Fails, Turn::Aborts, Turn::Pretends, Turn::AsksTwice] {
        let (server, store) = (Server::new(), Memory::default());
        let tab = Tab::opened(&server, &Setup::with(&store)).await;
        store.takes_turns(&[turn]);
        tab.posts("id-1", "/deposit", Some(KEY));
        let delivery = tab.delivery("id-1").await;
        assert_eq!(delivery.got.failure(), Some(("store-failed", "no", "never")), "{turn:?}");
        assert!(delivery.is_awaited);

        // One that is stored gets its answer, and the other was never sent.
        tab.posts("id-2", "/deposit", Some(KEY));
        assert_eq!(tab.delivery("id-2").await.got.body(), Some(b"done".as_slice()));
        assert!(server.all_sent().iter().all(|sent| sent.id() == "id-2"), "{turn:?}");
        assert_eq!(store.durable("id-1"), None, "{turn:?}");
        assert_eq!(tab.asked().len(), 2, "{turn:?}");
        tab.module().close();
    }
}

#[wasm_bindgen_test]
async fn no_attempt_leaves_before_its_deadline_is_stored() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    // The clock is not known yet: the request is added first, and raised for its attempt.
    store.takes_turns(&[Turn::Keeps, Turn::Fails, Turn::Pretends, Turn::Aborts, Turn::AsksTwice]);
    tab.posts("id-1", "/deposit", Some(KEY));
    assert_eq!(tab.delivery("id-1").await.got.body(), Some(b"done".as_slice()));
    let sent = server.all_sent();
    assert_eq!(sent.len(), 1);
    assert!(store.begun() >= 6);
    assert_eq!(sent[0].stored_until_ms(), Some(sent[0].deadline_ms()));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn an_answer_whose_row_cannot_be_settled_is_delivered_once_and_settled_later() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    store.takes_turns(&[Turn::Keeps, Turn::Keeps, Turn::Fails, Turn::Aborts, Turn::Pretends]);
    tab.posts("id-1", "/deposit", Some(KEY));
    tab.delivery("id-1").await;
    assert!(store.pending("id-1").is_some());
    until("it is settled", || store.settled("id-1").is_some() && store.is_idle()).await;
    assert_eq!(tab.asked().len(), 1);
    assert_eq!(server.all_sent().len(), 1);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn an_answer_that_nobody_has_taken_leaves_its_row_as_it_is() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.takes_answers(false);
    let ticket = tab.posts("id-1", "/deposit", Some(KEY));
    tab.delivery("id-1").await;
    let begun = store.begun();
    // Another one goes all its way meanwhile.
    let other = tab.posts("id-2", "/other", Some(KEY));
    tab.delivery("id-2").await;
    tab.module().delivered(other);
    until("the other is settled", || store.settled("id-2").is_some()).await;
    assert!(store.pending("id-1").is_some());
    assert!(store.begun() > begun);
    tab.module().delivered(ticket);
    until("it is settled", || store.settled("id-1").is_some()).await;
    tab.module().close();
}

#[wasm_bindgen_test]
async fn a_store_that_fails_to_load_says_why() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    store.cannot_load();
    let error = tab.takes_over(None).await.expect_err("it can't be loaded");
    let error: js_sys::Error = error.dyn_into().expect("an error");
    assert_eq!(String::from(error.message()), "no disk");
    tab.module().close();
}

#[wasm_bindgen_test]
async fn a_row_that_cannot_be_read_is_an_error_and_stays_as_it_is() {
    let (server, store) = (Server::new(), Memory::default());
    let good = encoded(entry("gone", "/good"));
    let mut newer = good.clone();
    newer[0] += 1;
    store.put("id-good", good.clone());
    store.put("id-newer", newer);
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    let error = tab.takes_over(Some("")).await.expect_err("one row can't be read");
    let error: js_sys::Error = error.dyn_into().expect("an error");
    assert!(String::from(error.message()).starts_with("semel: a stored row"), "{error:?}");

    tab.posts("id-newer", "/deposit", Some(KEY));
    assert_eq!(tab.delivery("id-newer").await.got.failure(), Some(("store-failed", "no", "never")));
    store.put("id-newer", good);
    assert_eq!(tab.overview().await.len(), 2);
    assert!(server.all_sent().is_empty(), "what can't be read was sent past");
    assert_eq!(store.begun(), 1);
    tab.module().close();
}
