//! What `npm/semel.js` calls.

use crate::driver::{Driver, Host};
use crate::promise;
use crate::store::custom::CustomStore;
use crate::store::indexeddb::IndexedDb;
use crate::store::{Rows, Store};
use js_sys::{Object, Promise};
use semel_core::client::{Answer, Client, Draft, Settings};
use semel_core::message::Headers;
use std::rc::Rc;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

/// The outbox of one worker and one identity.
#[wasm_bindgen]
pub struct Outbox {
    driver: Rc<Driver>,
}

#[wasm_bindgen]
impl Outbox {
    /// Opens the store. Nothing is sent before [`Outbox::take_over`]. `give_up_after_ms`: undefined for never; `store`: undefined
    /// for IndexedDB, whose transactions get `options`.
    #[expect(clippy::too_many_arguments, reason = "an object would cost a glue function for each of its members")]
    pub fn open(
        host: Host,
        owner: String,
        identity: String,
        retry_interval_ms: f64,
        attempt_timeout_ms: f64,
        give_up_after_ms: Option<f64>,
        store: JsValue,
        database: String,
        options: Object,
    ) -> Promise {
        promise(Box::new(move |settle| {
            let client = Client::new(Settings {
                outbox: database.clone(),
                owner,
                principal: identity,
                retry_interval_ms: retry_interval_ms as i64,
                attempt_timeout_ms: attempt_timeout_ms as i64,
                give_up_after_ms: give_up_after_ms.map(|after_ms| after_ms as i64),
            });
            let opened = move |store| Self { driver: Driver::new(client, store, host) }.into();
            if store.is_object() {
                return settle(Ok(opened(Store::Custom(store.unchecked_into::<CustomStore>()))));
            }
            let connected = move |store: Result<_, _>| settle(store.map(|store| opened(Store::IndexedDb(store))));
            IndexedDb::open(database, options, Box::new(connected));
        }))
    }

    /// Goes on with what owners left that don't live, and resolves to the owners of all that is pending, one a line.
    pub fn take_over(&self) -> Promise {
        let driver = self.driver.clone();
        promise(Box::new(move |settle| {
            let own = driver.clone();
            let loaded = move |rows: Result<Rows, JsValue>| match rows {
                Ok(rows) => own.clone().ask_who_lives(Box::new(move |lives| {
                    settle(lives.and_then(|lives| own.take(&rows, lives.as_deref())))
                })),
                Err(error) => settle(Err(error)),
            };
            driver.store.load(Box::new(loaded));
        }))
    }

    /// Takes a request in hand, and returns its ticket; undefined if it is closed. `key`: percent-encoded, as the server does.
    pub fn request(
        &self,
        id: String,
        method: String,
        target: String,
        key: Option<String>,
        header_lines: &str,
        body: Vec<u8>,
    ) -> Option<f64> {
        let draft = Draft { method, target, key, headers: Headers::from_lines(header_lines), body };
        self.driver.tell(|client, now_ms| client.request(now_ms, id, draft)).map(|ticket| ticket as f64)
    }

    /// An attempt was answered. `members`: of a body that is a JSON object, those that are strings, one `name:value` a line.
    pub fn answered(&self, attempt: f64, status: u16, header_lines: &str, body: Vec<u8>, members: &str) {
        let (headers, members) = (Headers::from_lines(header_lines), Headers::from_lines(members));
        let answer = Answer { status, headers, body, members };
        self.driver.tell(|client, now_ms| client.answered(now_ms, attempt as u64, answer));
    }

    /// Tells what happened to an attempt, or to the request of a ticket. One function, for each costs its glue:
    /// `0` the attempt got no answer, `1` the receiver of the answer has it, `2` the application gives it up, `3` it is to be
    /// sent again after a pause, `4` so are all.
    pub fn tell(&self, what: u8, number: f64) {
        let number = number as u64;
        self.driver.tell(|client, now_ms| match what {
            0 => client.lost(now_ms, number),
            1 => client.delivered(now_ms, number),
            2 => client.give_up(now_ms, number),
            3 => client.resume(now_ms, number),
            _ => client.resume_all(now_ms),
        });
    }

    /// Each request that is stored and not answered, one a line: id, method, target, state and attempts, with tabs between.
    pub fn pending(&self) -> Promise {
        let driver = self.driver.clone();
        self.with_rows(Box::new(move |rows| driver.overview(&rows)))
    }

    /// Ends it.
    pub fn close(&self) {
        self.driver.close();
    }
}

impl Outbox {
    fn with_rows(&self, work: Box<dyn FnOnce(Rows) -> Result<JsValue, JsValue>>) -> Promise {
        let store = self.driver.store.clone();
        promise(Box::new(move |settle| store.load(Box::new(move |rows| settle(rows.and_then(work))))))
    }
}
