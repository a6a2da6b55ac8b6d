//! The store itself.

use super::raw::Database;
use crate::support::rows::{encoded, entry, raise};
use crate::support::wait::{done, eventually, until};
use js_sys::{Object, Reflect, Uint8Array};
use semel_core::client::row::{Settled, Write};
use semel_core::client::{Answered, Change, Changed, Draft, Entry, Row, codec};
use semel_core::message::Response;
use semel_sdk::Done;
use semel_sdk::store::indexeddb::IndexedDb;
use semel_sdk::store::{Rows, Store};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_test::wasm_bindgen_test;

async fn opened(database: &Database, durability: &str) -> Result<Store, JsValue> {
    let options = Object::new();
    Reflect::set(&options, &"durability".into(), &durability.into()).expect("an object takes a member");
    let name = database.name.clone();
    done("the store is open", |done: Done<_>| IndexedDb::open(name, options, done)).await.map(Store::IndexedDb)
}

async fn open(database: &Database) -> Store {
    opened(database, "strict").await.expect("it opens")
}

async fn load(store: &Store) -> Result<Rows, JsValue> {
    done("the rows are loaded", |done| store.load(done)).await
}

async fn change(store: &Store, id: &str, change: &Change) -> Option<Changed> {
    done("the change is reported", |done| store.change(id, change.clone(), done)).await
}

/// Changes a row, and expects what the change itself says of it.
async fn changes(store: &Store, id: &str, made: &Change) -> Option<Row> {
    let before = load(store).await.expect("all can be read").into_iter().find(|(own, _)| own == id);
    let (write, expected) = made.apply(before.as_ref().map(|(_, row)| row.as_slice())).expect("it can be read");
    assert_eq!(change(store, id, made).await, Some(expected), "{made:?}");
    let after = load(store).await.expect("all can be read").into_iter().find(|(own, _)| own == id);
    match write {
        Write::Nothing => assert_eq!(after, before, "{made:?}"),
        Write::Put(row) => assert_eq!(after, Some((id.to_owned(), row)), "{made:?}"),
        Write::Delete => assert_eq!(after, None, "{made:?}"),
    }
    after.map(|(_, row)| codec::decode(&row).expect("it can be read"))
}

fn settle(by: &str) -> Change {
    let answered = Answered::Outcome(Response::json(201, "{}"));
    Change::Settle { by: by.into(), key: Some("accounts/1".into()), answered: answered.into(), at_s: 7 }
}

fn until_ms(row: Option<Row>) -> Option<i64> {
    match row {
        Some(Row::Pending(entry)) => entry.until_ms,
        Some(Row::Settled(Settled { until_ms, .. })) => Some(until_ms),
        None => None,
    }
}

#[wasm_bindgen_test]
async fn opening_makes_the_database() {
    let database = Database::new();
    let store = open(&database).await;
    assert_eq!(load(&store).await.expect("all can be read"), []);
    assert_eq!(database.shape().await, "1 rows");
    store.close();
}

#[wasm_bindgen_test]
async fn changes_report_what_they_say_and_another_connection_sees_them() {
    let database = Database::new();
    let (store, other) = (open(&database).await, open(&database).await);
    let added = entry("tab-a", "/deposit");
    assert_eq!(changes(&store, "id", &Change::Add(added.clone())).await, Some(Row::Pending(added)));
    assert_eq!(changes(&other, "id", &Change::Add(entry("tab-b", "/deposit"))).await.map(owner), Some("tab-a".into()));
    assert_eq!(until_ms(changes(&other, "id", &raise(100)).await), Some(100));
    assert_eq!(until_ms(changes(&store, "id", &raise(50)).await), Some(100));
    changes(&other, "id", &Change::Look).await;
    let adopt = Change::Adopt { by: "tab-b".into(), from: "tab-a".into(), is_shared: false };
    assert_eq!(changes(&other, "id", &adopt).await.map(owner), Some("tab-b".into()));
    let settled = changes(&store, "id", &settle("tab-b")).await;
    assert!(matches!(settled, Some(Row::Settled(Settled { until_ms: 100, .. }))), "{settled:?}");
    assert_eq!(until_ms(changes(&other, "id", &raise(900)).await), Some(100), "a settled row is raised no more");
    assert_eq!(changes(&other, "id", &Change::Acknowledged).await, None);
    assert_eq!(load(&store).await.expect("all can be read"), []);
    store.close();
    other.close();
}

fn owner(row: Row) -> String {
    match row {
        Row::Pending(entry) => entry.owner,
        Row::Settled(settled) => panic!("{settled:?}"),
    }
}

#[wasm_bindgen_test]
async fn a_change_of_a_row_that_is_gone_says_so_and_writes_nothing() {
    let database = Database::new();
    let store = open(&database).await;
    let adopt = Change::Adopt { by: "tab-b".into(), from: "tab-a".into(), is_shared: false };
    for made in [raise(9), Change::Look, adopt, settle("tab-a"), Change::Acknowledged] {
        assert_eq!(change(&store, "id", &made).await, Some(Changed::Gone), "{made:?}");
        assert!(database.get("id").await.is_undefined(), "{made:?}");
    }
    store.close();
}

#[wasm_bindgen_test]
async fn of_two_connections_that_raise_a_row_at_once_neither_is_lost() {
    const ROUNDS: i64 = 50;
    let database = Database::new();
    let (store, other) = (open(&database).await, open(&database).await);
    change(&store, "id", &Change::Add(entry("tab-a", "/deposit"))).await;
    let reported = Rc::new(RefCell::new(Vec::new()));
    for round in 1..=ROUNDS {
        // In turn one and the other asks for more.
        for (store, until_ms) in [(&store, round * 10 + round % 2), (&other, round * 10 + 1 - round % 2)] {
            let reported = reported.clone();
            let told = move |changed| reported.borrow_mut().push((until_ms, changed));
            store.change("id", raise(until_ms), Box::new(told));
        }
    }
    until("all are reported", || reported.borrow().len() as i64 == 2 * ROUNDS).await;
    let mut latest_ms = 0;
    for (asked_ms, changed) in reported.borrow().iter() {
        let Some(Changed::Pending(Entry { until_ms: Some(until_ms), .. })) = changed else { panic!("{changed:?}") };
        assert!(until_ms >= asked_ms, "{until_ms} does not cover {asked_ms}");
        latest_ms = latest_ms.max(*asked_ms);
        assert_eq!(*until_ms, latest_ms, "reports come in the order of the transactions");
    }
    assert_eq!(until_ms(changes(&store, "id", &Change::Look).await), Some(ROUNDS * 10 + 1));
    store.close();
    other.close();
}

#[wasm_bindgen_test]
async fn of_two_connections_that_take_a_row_over_at_once_one_has_it() {
    let database = Database::new();
    let stores = [open(&database).await, open(&database).await];
    change(&stores[0], "id", &Change::Add(entry("gone", "/deposit"))).await;
    let reported = Rc::new(RefCell::new(Vec::new()));
    for (store, by) in stores.iter().zip(["tab-a", "tab-b"]) {
        let reported = reported.clone();
        let adopt = Change::Adopt { by: by.into(), from: "gone".into(), is_shared: false };
        store.change("id", adopt, Box::new(move |changed| reported.borrow_mut().push(changed)));
    }
    until("both are reported", || reported.borrow().len() == 2).await;
    let owners: Vec<_> = reported
        .borrow()
        .iter()
        .cloned()
        .map(|changed| match changed {
            Some(Changed::Pending(entry)) => entry.owner,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(owners[0], owners[1]);
    assert_ne!(owners[0], "gone");
    stores.iter().for_each(Store::close);
}

#[wasm_bindgen_test]
async fn rows_survive_closing_and_what_is_removed_does_not_come_back() {
    let database = Database::new();
    let store = open(&database).await;
    let ids = ["id-1", "id-2", "id-3", "id-4"];
    for id in ids {
        change(&store, id, &Change::Add(entry("tab-a", id))).await;
    }
    store.remove(&["id-2".to_owned(), "id-4".to_owned(), "id-unknown".to_owned()]);
    // What is under way is finished.
    store.close();
    let store = open(&database).await;
    let rows = load(&store).await.expect("all can be read");
    let expected = ["id-1", "id-3"].map(|id| (id.to_owned(), encoded(entry("tab-a", id))));
    assert_eq!(rows, expected);
    store.close();
}

#[wasm_bindgen_test]
async fn a_row_that_cannot_be_read_makes_loading_fail_and_is_left_as_it_is() {
    let good = encoded(entry("tab-a", "/deposit"));
    let mut newer = good.clone();
    newer[0] += 1;
    let bytes = |bytes: &[u8]| JsValue::from(Uint8Array::from(bytes));
    let damages = [
        ("another version", bytes(&newer)),
        ("cut short", bytes(&good[..good.len() - 1])),
        ("too long", bytes(&[good.as_slice(), &[0]].concat())),
        ("empty", bytes(&[])),
        ("a text", "row".into()),
        ("null", JsValue::NULL),
        ("an object", Object::new().into()),
    ];
    for (damage, row) in damages {
        let database = Database::new();
        let store = open(&database).await;
        change(&store, "id-good", &Change::Add(entry("tab-a", "/good"))).await;
        database.put("id", &row).await;
        if !row.is_instance_of::<Uint8Array>() {
            assert!(load(&store).await.is_err(), "{damage}");
        }
        for made in [Change::Add(entry("tab-b", "/deposit")), raise(9), settle("tab-a"), Change::Acknowledged] {
            assert_eq!(change(&store, "id", &made).await, None, "{damage}, {made:?}");
        }
        let found = database.get("id").await;
        match row.dyn_ref::<Uint8Array>() {
            Some(row) => assert_eq!(found.unchecked_into::<Uint8Array>().to_vec(), row.to_vec(), "{damage}"),
            None => assert_eq!(format!("{found:?}"), format!("{row:?}"), "{damage}"),
        }
        // The others are none the worse.
        assert!(matches!(change(&store, "id-good", &raise(9)).await, Some(Changed::Pending(_))), "{damage}");
        store.close();
    }
}

#[wasm_bindgen_test]
async fn bytes_come_back_as_they_were() {
    let body: Vec<u8> = (0..1_u32 << 20).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let draft = Draft { method: "PUT".into(), target: "/\u{fc}".into(), body, ..Draft::default() };
    let large = Entry { draft: draft.into(), owner: "tab-a".into(), ..Entry::default() };
    let database = Database::new();
    let store = open(&database).await;
    assert_eq!(change(&store, "id", &Change::Add(large.clone())).await, Some(Changed::Pending(large.clone())));
    store.close();
    let store = open(&database).await;
    let rows = load(&store).await.expect("all can be read");
    // Not by `assert_eq`: nobody reads a MiB.
    assert!(rows == [("id".to_owned(), encoded(large))], "another row came back");
    store.close();
}

#[wasm_bindgen_test]
async fn every_transaction_is_as_durable_as_was_asked_for() {
    for durability in ["strict", "relaxed"] {
        let database = Database::new();
        let store = opened(&database, durability).await.expect("it opens");
        let watch = database.watch();
        change(&store, "id", &Change::Add(entry("tab-a", "/deposit"))).await;
        load(&store).await.expect("all can be read");
        store.remove(&["id".to_owned()]);
        let expected = ["readwrite", "readonly", "readwrite"].map(|mode| format!("rows {mode} {durability}"));
        assert_eq!(watch.ended(), expected);
        store.close();
    }
}

#[wasm_bindgen_test]
async fn a_connection_that_was_closed_fails_once_and_is_opened_again() {
    let database = Database::new();
    let store = open(&database).await;
    let watch = database.watch();
    change(&store, "id", &Change::Add(entry("tab-a", "/deposit"))).await;
    watch.sever();
    assert_eq!(change(&store, "id", &raise(9)).await, None);
    assert_eq!(until_ms(row(&database, "id").await), None, "what failed has changed something");
    let changed = reconnected(&store).await;
    assert!(matches!(changed, Changed::Pending(Entry { until_ms: Some(10), .. })), "{changed:?}");

    watch.sever();
    load(&store).await.expect_err("it is closed");
    reconnected(&store).await;
    load(&store).await.expect("it is open again");
    let options = watch.ended();
    assert!(options.iter().all(|one| one.ends_with(" strict")), "{options:?}");
    store.close();
}

/// Raises the row `id` until a connection is open again.
async fn reconnected(store: &Store) -> Changed {
    let slot = Rc::new(RefCell::new(Some(None)));
    eventually("the connection is open again", || match slot.take() {
        Some(Some(changed)) => Some(changed),
        Some(None) => {
            let told = slot.clone();
            store.change("id", raise(10), Box::new(move |changed| drop(told.replace(Some(changed)))));
            None
        }
        None => None,
    })
    .await
}

async fn row(database: &Database, id: &str) -> Option<Row> {
    let row = database.get(id).await.dyn_into::<Uint8Array>().ok()?;
    Some(codec::decode(&row.to_vec()).expect("it can be read"))
}

#[wasm_bindgen_test]
async fn what_is_under_way_when_the_store_is_closed_is_finished_and_reported() {
    let database = Database::new();
    let store = open(&database).await;
    let reported = Rc::new(RefCell::new(None));
    let told = reported.clone();
    let tell = Box::new(move |changed| drop(told.replace(Some(changed))));
    store.change("id", Change::Add(entry("tab-a", "/deposit")), tell);
    store.close();
    let changed = eventually("it is reported", || reported.take()).await;
    assert_eq!(changed, Some(Changed::Pending(entry("tab-a", "/deposit"))));
    assert_eq!(row(&database, "id").await, Some(Row::Pending(entry("tab-a", "/deposit"))));
}

#[wasm_bindgen_test]
async fn a_change_is_reported_once_it_is_committed() {
    let database = Database::new();
    let (store, other) = (open(&database).await, open(&database).await);
    for round in 0..20 {
        let id = format!("id-{round}");
        let seen = Rc::new(RefCell::new(None));
        let (told, reader, own) = (seen.clone(), other.clone(), id.clone());
        let reported = move |_| {
            // A read that starts now finds it.
            reader.load(Box::new(move |rows: Result<Rows, JsValue>| {
                told.replace(Some(rows.expect("all can be read").iter().any(|(id, _)| *id == own)));
            }));
        };
        store.change(&id, Change::Add(entry("tab-a", "/deposit")), Box::new(reported));
        assert!(eventually("the rows are read", || seen.take()).await);
    }
    store.close();
    other.close();
}

#[wasm_bindgen_test]
async fn what_was_written_and_not_committed_has_failed() {
    let database = Database::new();
    let store = open(&database).await;
    let sent = Entry { first_sent_s: Some(5), until_ms: Some(8), ..entry("tab-a", "/deposit") };
    change(&store, "id", &Change::Add(sent.clone())).await;
    let disk = database.fill();
    for made in [raise(9), settle("tab-a")] {
        assert_eq!(change(&store, "id", &made).await, None, "{made:?}");
    }
    assert_eq!(change(&store, "id-other", &Change::Add(entry("tab-a", "/deposit"))).await, None);
    drop(disk);
    let rows = load(&store).await.expect("all can be read");
    assert_eq!(rows, [("id".to_owned(), encoded(sent))]);
    assert!(matches!(change(&store, "id", &raise(9)).await, Some(Changed::Pending(_))));
    store.close();
}

#[wasm_bindgen_test]
async fn a_closed_store_holds_no_connection() {
    let database = Database::new();
    let store = open(&database).await;
    change(&store, "id", &Change::Add(entry("tab-a", "/deposit"))).await;
    store.close();
    database.drop().await.expect("nobody holds it");
}

#[wasm_bindgen_test]
async fn a_closed_store_that_is_asked_again_holds_no_connection() {
    let database = Database::new();
    let store = open(&database).await;
    store.close();
    assert_eq!(change(&store, "id", &raise(9)).await, None);
    load(&store).await.expect_err("it is closed");
    // Whatever was begun by asking has ended when another connection is open.
    open(&database).await.close();
    database.drop().await.expect("nobody holds it");
}

#[wasm_bindgen_test]
async fn a_store_that_is_closed_while_it_connects_again_holds_no_connection() {
    let database = Database::new();
    let store = open(&database).await;
    let watch = database.watch();
    load(&store).await.expect("all can be read");
    watch.sever();
    assert_eq!(change(&store, "id", &raise(9)).await, None);
    store.close();
    // Whatever was begun has ended when another connection is open.
    open(&database).await.close();
    database.drop().await.expect("nobody holds it");
}

#[wasm_bindgen_test]
async fn a_database_of_a_newer_version_is_not_opened() {
    let database = Database::new();
    database.make(2).await;
    let error = opened(&database, "strict").await.err().expect("it is of a newer version");
    assert_eq!(Reflect::get(&error, &"name".into()), Ok("VersionError".into()));
    assert_eq!(database.shape().await, "2 rows");
}
