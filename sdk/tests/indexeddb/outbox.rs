//! The SDK on IndexedDB.

use super::raw::Database;
use crate::support::memory::Memory;
use crate::support::server::{HEALTH, KEY, Reply, Server};
use crate::support::tab::{Asked, Got, Setup, Tab};
use crate::support::wait::{Limit, turn, until};
use js_sys::Uint8Array;
use semel_core::client::row::Settled;
use semel_core::client::{REQUESTS_MAX, Row, codec};
use std::collections::BTreeSet;
use wasm_bindgen::JsCast;
use wasm_bindgen_test::wasm_bindgen_test;

fn setup(owner: &'static str, database: &Database) -> Setup {
    Setup { owner, store: None, database: database.name.clone(), ..Setup::with(&Memory::default()) }
}

async fn row(database: &Database, id: &str) -> Option<Row> {
    let row = database.get(id).await.dyn_into::<Uint8Array>().ok()?;
    Some(codec::decode(&row.to_vec()).expect("it can be read"))
}

async fn settled(database: &Database, id: &str) -> Settled {
    let limit = Limit::of("a settled row");
    loop {
        match row(database, id).await {
            Some(Row::Settled(settled)) => return settled,
            Some(Row::Pending(_)) => limit.turn().await,
            None => panic!("{id} is gone"),
        }
    }
}

#[wasm_bindgen_test]
async fn a_request_goes_from_its_row_to_its_outcome_and_its_row_leaves_with_the_acknowledgement() {
    let (server, database) = (Server::new(), Database::new());
    server.replies("/deposit", [Reply::Lost, Reply::Lost]);
    let tab = Tab::opened(&server, &setup("tab-a", &database)).await;
    assert_eq!(tab.takes_over(Some("")).await.expect("all can be read"), [""; 0]);
    tab.posts("id-1", "/deposit", None);
    let delivery = tab.delivery("id-1").await;
    assert!(delivery.is_awaited);
    assert_eq!(delivery.got.body(), Some(b"done".as_slice()));
    let latest_ms = server.sent("/deposit").iter().map(|sent| sent.deadline_ms()).max();
    assert_eq!(Some(settled(&database, "id-1").await.until_ms), latest_ms);
    tab.posts("id-2", "/deposit", None);
    tab.delivery("id-2").await;
    assert!(server.sent("/deposit")[3].header("semel-ack").starts_with("\"id-1\";until="));
    let limit = Limit::of("an acknowledged row has left");
    while row(&database, "id-1").await.is_some() {
        limit.turn().await;
    }
    tab.module().close();
}

#[wasm_bindgen_test]
async fn what_one_outbox_left_pending_the_next_one_takes_over_under_its_id() {
    let (server, database) = (Server::new(), Database::new());
    server.always_replies("/deposit", Reply::Lost);
    let first = Tab::opened(&server, &setup("tab-a", &database)).await;
    first.posts("id-1", "/deposit", Some(KEY));
    until("it is tried", || server.sent("/deposit").len() >= 3).await;
    first.module().close();
    let tried = server.sent("/deposit").len();
    let Some(Row::Pending(left)) = row(&database, "id-1").await else { panic!("it is not pending") };
    assert_eq!(left.owner, "tab-a");
    assert!(left.until_ms >= server.sent("/deposit").iter().map(|sent| sent.deadline_ms()).max());

    let second = Tab::opened(&server, &setup("tab-b", &database)).await;
    for _ in 0..5 {
        turn().await;
    }
    assert_eq!(server.sent("/deposit").len(), tried, "sent before it was taken over");
    server.replies("/deposit", [Reply::Lost]);
    assert_eq!(second.takes_over(Some("")).await.expect("it is taken over"), ["tab-a"]);
    let delivery = second.delivery("id-1").await;
    assert!(!delivery.is_awaited);
    assert_eq!(delivery.described, ["id-1", "POST", "/deposit"]);
    assert_eq!(delivery.got.body(), Some(b"done".as_slice()));

    let sent = server.sent("/deposit");
    assert_eq!(sent.len(), tried + 2);
    let same = |sent: &crate::support::server::Sent| {
        (sent.id(), sent.header("semel-first-sent").to_owned(), sent.header("semel-key").to_owned(), sent.body.clone())
    };
    assert!(sent.iter().all(|each| same(each) == same(&sent[0])), "{sent:?}");
    assert!(sent[..tried].iter().all(|sent| sent.owner == "tab-a"));
    assert!(sent[tried..].iter().all(|sent| sent.owner == "tab-b"));
    let settled = settled(&database, "id-1").await;
    assert!(settled.until_ms >= sent.iter().map(|sent| sent.deadline_ms()).max().expect("it was sent"));
    assert_eq!(second.deliveries("id-1").len(), 1);
    assert!(first.deliveries("id-1").is_empty());
    second.module().close();
}

#[wasm_bindgen_test]
async fn of_two_outboxes_that_take_over_at_once_one_sends() {
    let (server, database) = (Server::new(), Database::new());
    server.always_replies("/left", Reply::Lost);
    let gone = Tab::opened(&server, &setup("gone", &database)).await;
    gone.posts("id-1", "/left", Some(KEY));
    until("it is tried", || !server.sent("/left").is_empty()).await;
    gone.module().close();
    let tried = server.sent("/left").len();
    server.replies("/left", [Reply::Lost, Reply::Lost, Reply::Lost]);
    let tabs = [
        Tab::opened(&server, &setup("tab-a", &database)).await,
        Tab::opened(&server, &setup("tab-b", &database)).await,
    ];
    tabs.iter().for_each(|tab| tab.finds_alive(""));
    let taking = tabs.each_ref().map(Tab::begins_to_take_over);
    for each in taking {
        crate::support::wait::settled("it is taken over", each).await.expect("all can be read");
    }
    until("it is delivered", || tabs.iter().any(|tab| !tab.deliveries("id-1").is_empty())).await;
    settled(&database, "id-1").await;
    assert_eq!(tabs.iter().map(|tab| tab.deliveries("id-1").len()).sum::<usize>(), 1);
    let sent = server.sent("/left");
    assert_eq!(sent.len(), tried + 4);
    assert!(sent[tried..].iter().all(|each| each.owner == sent[tried].owner), "both have sent it");
    tabs.iter().for_each(|tab| tab.module().close());
}

#[wasm_bindgen_test]
async fn a_connection_that_the_browser_closes_costs_a_retry_and_no_answer() {
    let (server, database) = (Server::new(), Database::new());
    let tab = Tab::opened(&server, &setup("tab-a", &database)).await;
    let watch = database.watch();
    server.always_replies("/deposit", Reply::Lost);
    tab.posts("id-1", "/deposit", Some(KEY));
    until("it is tried", || server.sent("/deposit").len() >= 2).await;
    watch.sever();
    let tried = server.sent("/deposit").len();
    until("it goes on", || server.sent("/deposit").len() > tried + 2).await;
    server.replies("/deposit", []);
    assert_eq!(tab.delivery("id-1").await.got.body(), Some(b"done".as_slice()));
    let latest_ms = server.sent("/deposit").iter().map(|sent| sent.deadline_ms()).max();
    assert_eq!(Some(settled(&database, "id-1").await.until_ms), latest_ms);
    tab.module().close();
}

#[wasm_bindgen_test]
async fn a_connection_that_is_closed_under_all_that_can_be_in_hand_costs_no_answer() {
    let (server, database) = (Server::new(), Database::new());
    // So many transactions take their time if each waits for the disk.
    // The shortest interval: all are due again before the last of them has failed.
    let setup = Setup { retry_interval_ms: 10.0, durability: "relaxed", ..setup("tab-a", &database) };
    let tab = Tab::opened(&server, &setup).await;
    // Without the clock they are stored, and wait.
    server.always_replies(HEALTH, Reply::Lost);
    let watch = database.watch();
    for number in 0..REQUESTS_MAX {
        tab.posts(&format!("id-{number}"), "/deposit", Some(KEY));
    }
    let limit = Limit::of("all are stored");
    while tab.overview().await.len() < REQUESTS_MAX {
        limit.turn().await;
    }
    // With the clock all are due at once, and the store fails them at once.
    watch.sever();
    server.replies(HEALTH, []);
    until("all are delivered", || tab.asked().len() >= REQUESTS_MAX).await;
    let is_outcome = |asked: &Asked| matches!(asked, Asked::Deliver { got: Got::Outcome { .. }, .. });
    assert_eq!(tab.asked().iter().filter(|asked| is_outcome(asked)).count(), REQUESTS_MAX);
    let ids: BTreeSet<_> = server.sent("/deposit").iter().map(|sent| sent.id()).collect();
    assert_eq!((ids.len(), server.sent("/deposit").len()), (REQUESTS_MAX, REQUESTS_MAX));
    tab.module().close();
}

#[wasm_bindgen_test]
async fn what_is_not_committed_is_not_sent() {
    let (server, database) = (Server::new(), Database::new());
    let tab = Tab::opened(&server, &setup("tab-a", &database)).await;
    let disk = database.fill();
    tab.posts("id-1", "/deposit", Some(KEY));
    assert_eq!(tab.delivery("id-1").await.got.failure(), Some(("store-failed", "no", "never")));
    drop(disk);
    tab.posts("id-2", "/deposit", Some(KEY));
    assert_eq!(tab.delivery("id-2").await.got.body(), Some(b"done".as_slice()));
    assert!(server.all_sent().iter().all(|sent| sent.id() == "id-2"));
    assert!(database.get("id-1").await.is_undefined());
    tab.module().close();
}

#[wasm_bindgen_test]
async fn a_row_that_cannot_be_read_makes_taking_over_fail_and_nothing_is_sent() {
    let (server, database) = (Server::new(), Database::new());
    let left = Tab::opened(&server, &setup("gone", &database)).await;
    server.always_replies("/left", Reply::Silence);
    left.posts("id-1", "/left", Some(KEY));
    until("it is tried", || !server.sent("/left").is_empty()).await;
    left.module().close();
    for damaged in [Uint8Array::new_with_length(3).into(), "row".into()] {
        database.put("id-2", &damaged).await;
        let tab = Tab::opened(&server, &setup("tab-a", &database)).await;
        tab.takes_over(Some("")).await.expect_err("a row can't be read");
        for _ in 0..20 {
            turn().await;
        }
        assert_eq!(server.all_sent().len(), 1);
        let Some(Row::Pending(entry)) = row(&database, "id-1").await else { panic!("it is not pending") };
        assert_eq!(entry.owner, "gone");
        tab.module().close();
    }
}

#[wasm_bindgen_test]
async fn a_closed_outbox_holds_no_connection() {
    let (server, database) = (Server::new(), Database::new());
    let tab = Tab::opened(&server, &setup("tab-a", &database)).await;
    server.always_replies("/deposit", Reply::Lost);
    tab.posts("id-1", "/deposit", Some(KEY));
    until("it is tried", || server.sent("/deposit").len() >= 3).await;
    tab.module().close();
    database.drop().await.expect("nobody holds it");
}
