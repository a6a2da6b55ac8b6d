//! Opening, taking over, closing.

use crate::support::memory::{Memory, Turn};
use crate::support::rows::{all_bytes, encoded, entry, settled_entry};
use crate::support::server::{HEALTH, KEY, Reply, Server, executed};
use crate::support::tab::{Asked, Setup, Tab};
use crate::support::wait::{eventually, settled, turn, until};
use js_sys::Uint8Array;
use semel_core::client::Answered;
use wasm_bindgen::JsCast;
use wasm_bindgen_test::wasm_bindgen_test;

#[wasm_bindgen_test]
async fn what_an_owner_left_that_is_gone_goes_on_under_its_id_and_is_recovered() {
    let (server, store) = (Server::new(), Memory::default());
    server.replies("/left", [Reply::Lost]);
    store.put("id-left", encoded(entry("gone", "/left")));
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    for _ in 0..5 {
        turn().await;
    }
    assert!(server.sent(HEALTH).is_empty() && server.all_sent().is_empty(), "sent before it was taken over");
    assert_eq!(tab.takes_over(Some("")).await.expect("it is taken over"), ["gone"]);
    let delivery = tab.delivery("id-left").await;
    assert!(!delivery.is_awaited);
    assert_eq!(delivery.described, ["id-left", "POST", "/left"]);
    assert_eq!(delivery.got.body(), Some(b"done".as_slice()));
    let sent = server.all_sent();
    assert_eq!(sent.len(), 2);
    for each in &sent {
        assert_eq!((each.id(), &each.body), ("id-left".to_owned(), &all_bytes()));
        assert_eq!(each.pending().map(|entry| entry.owner), Some("tab-a".to_owned()));
        assert!(each.stored_until_ms() >= Some(each.deadline_ms()));
    }
    until("it is settled", || store.settled("id-left").is_some()).await;
    assert_eq!(tab.deliveries("id-left").len(), 1);
    assert!(store.settled("id-left").is_some_and(|settled| settled.kept.is_none()));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn what_an_owner_sees_to_that_lives_is_left_to_it() {
    let (server, store) = (Server::new(), Memory::default());
    store.put("id-left", encoded(entry("lives", "/left")));
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    for alive in ["lives", "tab-a\nlives", "lives\nother"] {
        assert_eq!(tab.takes_over(Some(alive)).await.expect("all can be read"), ["lives"]);
    }
    tab.posts("id-own", "/own", Some(KEY));
    tab.delivery("id-own").await;
    until("all changes are reported", || store.is_idle()).await;
    assert!(server.sent("/left").is_empty());
    assert_eq!(store.pending("id-left"), Some(entry("lives", "/left")));
    assert_eq!(tab.overview().await, ["id-left POST /left elsewhere 0"]);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn what_another_worker_or_identity_left_in_the_same_store_is_left_alone() {
    let (server, store) = (Server::new(), Memory::default());
    store.put("id-left", encoded(entry("gone", "/left")));
    store.put("id-settled", settled_entry(KEY, 77));
    let database = "semel https://test bob".to_owned();
    let tab = Tab::opened(&server, &Setup { database, identity: "bob", ..Setup::with(&store) }).await;
    tab.takes_over(Some("")).await.expect("all can be read");
    tab.posts("id-own", "/own", Some(KEY));
    let sent = eventually("its own is sent", || server.sent("/own").pop()).await;
    assert_eq!(sent.headers.get("semel-ack"), None);
    tab.delivery("id-own").await;
    assert_eq!(tab.overview().await, [""; 0]);
    assert_eq!(server.all_sent().len(), 1);
    assert_eq!(store.pending("id-left"), Some(entry("gone", "/left")));
    assert!(store.settled("id-settled").is_some());
    tab.module().close();
}

#[wasm_bindgen_test]
async fn who_opens_and_writes_while_another_looks_round_is_not_taken_for_gone() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    let (looking, writes) = (tab.clone(), store.clone());
    store.before_load(move || {
        looking.finds_alive("new");
        writes.put("id-new", encoded(entry("new", "/new")));
    });
    assert_eq!(tab.takes_over(Some("")).await.expect("all can be read"), ["new"]);
    assert_eq!(store.begun(), 0, "its request was taken over");
    assert_eq!(tab.overview().await, ["id-new POST /new elsewhere 0"]);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn where_asking_who_lives_fails_nothing_is_taken_over() {
    let (server, store) = (Server::new(), Memory::default());
    store.put("id-left", encoded(entry("may-live", "/left")));
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.finds_alive(js_sys::Error::new("no locks"));
    let error = settled("it has failed", tab.begins_to_take_over()).await.expect_err("nobody knows who lives");
    assert_eq!(String::from(error.unchecked_into::<js_sys::Error>().message()), "no locks");
    assert_eq!(store.begun(), 0);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn where_it_cannot_be_told_who_lives_the_answer_is_kept_for_who_may_wait() {
    let (server, store) = (Server::new(), Memory::default());
    store.put("id-left", encoded(entry("may-live", "/left")));
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    assert_eq!(tab.takes_over(None).await.expect("it is taken over"), ["may-live"]);
    tab.delivery("id-left").await;
    until("it is settled", || store.settled("id-left").is_some()).await;
    let kept = store.settled("id-left").and_then(|settled| settled.kept).expect("it is kept");
    let Answered::Outcome(kept) = (*kept).clone() else { panic!("{kept:?}") };
    assert_eq!((kept.status, kept.body), (201, b"done".to_vec()));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn what_is_taken_over_twice_is_sent_once() {
    let (server, store) = (Server::new(), Memory::default());
    store.put("id-left", encoded(entry("gone", "/left")));
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.finds_alive("");
    let (first, second) = (tab.begins_to_take_over(), tab.begins_to_take_over());
    settled("it is taken over", first).await.expect("all can be read");
    settled("it is taken over again", second).await.expect("all can be read");
    tab.delivery("id-left").await;
    until("it is settled", || store.settled("id-left").is_some() && store.is_idle()).await;
    tab.posts("id-own", "/own", Some(KEY));
    tab.delivery("id-own").await;
    assert_eq!(server.sent("/left").len(), 1);
    assert_eq!(tab.deliveries("id-left").len(), 1);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn an_acknowledgement_that_was_left_goes_to_its_key() {
    let (server, store) = (Server::new(), Memory::default());
    store.put("id-left", settled_entry(KEY, 77));
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.takes_over(Some("")).await.expect("all can be read");
    until("the row has left", || store.is_empty()).await;
    let sent = server.sent("/semel/v1/keys/accounts%2F1/acks");
    assert_eq!(sent.len(), 1);
    assert_eq!(String::from_utf8_lossy(&sent[0].body), "{\"ids\":[{\"id\":\"id-left\",\"until\":77}]}");
    assert_eq!((sent[0].header("content-type"), sent[0].header("semel-principal")), ("application/json", "\"alice\""));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn once_it_is_closed_nothing_is_sent_and_what_is_stored_waits() {
    let server = Server::new();
    let (closed_store, open_store) = (Memory::default(), Memory::default());
    let closed = Tab::opened(&server, &Setup::with(&closed_store)).await;
    let open = Tab::opened(&server, &Setup { owner: "tab-b", ..Setup::with(&open_store) }).await;
    server.always_replies("/closed", Reply::Lost);
    server.always_replies("/open", Reply::Lost);
    server.replies("/silent", [Reply::Silence]);
    let ticket = closed.posts("id-1", "/closed", None);
    closed.posts("id-2", "/silent", None);
    open.posts("id-3", "/open", None);
    until("all are tried", || server.sent("/closed").len() >= 2 && server.sent("/silent").len() == 1).await;
    closed.module().close();

    let sent = server.sent("/closed").len();
    let (asked, begun) = (closed.asked(), closed_store.begun());
    let told: Vec<_> = asked
        .iter()
        .map(|asked| {
            matches!(asked, Asked::GaveUp { failure, .. }
        if failure.failure() == Some(("closed", "unknown", "same-id")))
        })
        .collect();
    assert_eq!(told, [true, true], "who waits is told: {asked:?}");
    assert_eq!(closed_store.closed(), 1);
    let body = Uint8Array::new_with_length(0);
    assert_eq!(closed.module().request("id-4", "POST", "/closed", None, "", body), None);
    closed.module().resume(ticket);
    closed.module().resume_all();
    closed.module().give_up(ticket);
    closed.module().delivered(ticket);
    // What the network still brings is too late.
    closed.hears(server.sent("/silent")[0].attempt, executed("late"));

    let tried = server.sent("/open").len();
    until("the other goes on", || server.sent("/open").len() > tried + 5).await;
    assert_eq!(server.sent("/closed").len(), sent);
    assert_eq!(closed.asked(), asked);
    assert_eq!(closed_store.begun(), begun);
    assert!(closed_store.pending("id-1").is_some() && closed_store.pending("id-2").is_some());
    open.module().close();

    // The next one goes on with it.
    let next = Tab::opened(&server, &Setup { owner: "tab-c", ..Setup::with(&closed_store) }).await;
    server.replies("/closed", []);
    assert_eq!(next.takes_over(Some("")).await.expect("it is taken over"), ["tab-a", "tab-a"]);
    assert!(!next.delivery("id-1").await.is_awaited);
    assert!(!next.delivery("id-2").await.is_awaited);
    next.module().close();
}

#[wasm_bindgen_test]
async fn what_becomes_durable_after_the_end_is_not_sent() {
    let (server, store) = (Server::new(), Memory::default());
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    store.takes_turns(&[Turn::Holds]);
    tab.posts("id-1", "/deposit", Some(KEY));
    until("the row is written", || store.is_holding()).await;
    tab.module().close();
    store.release();
    for _ in 0..20 {
        turn().await;
    }
    assert!(server.all_sent().is_empty() && server.sent(HEALTH).is_empty());
    assert!(store.pending("id-1").is_some());
}

#[wasm_bindgen_test]
async fn what_is_loaded_after_the_end_is_left_alone() {
    let (server, store) = (Server::new(), Memory::default());
    store.put("id-settled", settled_entry(KEY, 77));
    store.put("id-left", encoded(entry("gone", "/left")));
    let tab = Tab::opened(&server, &Setup::with(&store)).await;
    tab.finds_alive("");
    let taking_over = tab.begins_to_take_over();
    tab.module().close();
    // Whatever comes of it.
    settled("an end of taking over", taking_over).await.ok();
    for _ in 0..20 {
        turn().await;
    }
    let sent = server.all_sent();
    assert!(sent.is_empty() && server.sent(HEALTH).is_empty(), "sent: {sent:?}");
    assert_eq!(store.begun(), 0, "a closed store was asked for a change");
    assert_eq!(store.pending("id-left"), Some(entry("gone", "/left")));
}
