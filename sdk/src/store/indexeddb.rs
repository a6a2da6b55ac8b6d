//! Rows in IndexedDB: one database for each worker and identity, one object store, one row for each request.
//!
//! Invariants:
//! - A change is reported on `complete`, when the transaction is committed, and never on a request's `success`. With
//!   `strict` durability it is on disk then.
//! - Inside a transaction there is nothing but its own requests, one from the callback of the other: it can't commit half.
//! - A connection that the browser has closed is opened again; what failed meanwhile is reported as failed.

use super::{Rows, apply, rows, unreadable};
use crate::{Done, callback};
use js_sys::{Function, Object, Uint8Array};
use semel_core::client::row::Write;
use semel_core::client::{Change, Changed};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{IdbDatabase, IdbFactory, IdbObjectStore, IdbRequest, IdbTransaction};

const VERSION: u32 = 1;
const ROWS: &str = "rows";

#[wasm_bindgen]
extern "C" {
    /// A database whose transactions take options.
    #[wasm_bindgen(extends = IdbDatabase)]
    type Transacting;

    /// The event with which a transaction ends.
    type Ended;

    #[wasm_bindgen(thread_local_v2, js_name = indexedDB)]
    static FACTORY: Option<IdbFactory>;

    #[wasm_bindgen(method, getter, js_name = type)]
    fn kind(this: &Ended) -> String;

    #[wasm_bindgen(method, catch)]
    fn transaction(this: &Transacting, store: &str, mode: &str, options: &Object) -> Result<IdbTransaction, JsValue>;
}

/// The store.
pub struct IndexedDb {
    factory: IdbFactory,
    name: String,
    options: Object,
    database: RefCell<Transacting>,
    connection: Cell<Connection>,
    /// What failed for want of a connection, to be told so once there is one. At once would be too soon: whoever tries again until
    /// it works would never let the browser open one.
    failed: RefCell<Vec<Box<dyn FnOnce()>>>,
}

/// How it stands with the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Open,
    /// Lost; a new one is on its way.
    Reopening,
    Closed,
}

impl IndexedDb {
    /// Opens a database, and makes it where there is none. `options`: of its transactions, such as `durability`.
    pub fn open(name: String, options: Object, done: Done<Result<Rc<Self>, JsValue>>) {
        let Some(factory) = FACTORY.with(Clone::clone) else {
            let detail = "semel: there is no IndexedDB here; give a store, or durability: \"memory\"";
            return done(Err(js_sys::Error::new(detail).into()));
        };
        let (own, own_name) = (factory.clone(), name.clone());
        let opened = move |opened: Result<Transacting, JsValue>| {
            done(opened.map(|database| {
                let (database, connection) = (RefCell::new(database), Cell::new(Connection::Open));
                let failed = RefCell::new(Vec::new());
                Rc::new(Self { factory: own, name: own_name, options, database, connection, failed })
            }));
        };
        connect(&factory, &name, Box::new(opened));
    }

    /// Reads all rows.
    pub fn load(self: &Rc<Self>, done: Done<Result<Rows, JsValue>>) {
        let begun = self
            .begin("readonly")
            .and_then(|(transaction, store)| Ok((transaction, store.get_all_keys()?, store.get_all()?)));
        match begun {
            Ok((transaction, ids, values)) => when_ended(
                &transaction,
                Box::new(move |ended| done(ended.and_then(|()| rows(&ids.result()?, &values.result()?)))),
            ),
            Err(error) => self.fail(Box::new(move || done(Err(error)))),
        }
    }

    /// Changes one row.
    pub fn change(self: &Rc<Self>, id: &str, change: Change, done: Done<Option<Changed>>) {
        let id = JsValue::from_str(id);
        let begun = self.begin("readwrite").and_then(|(transaction, store)| {
            let read = store.get(&id)?;
            Ok((transaction, store, read))
        });
        let Ok((transaction, store, read)) = begun else { return self.fail(Box::new(move || done(None))) };
        let changed = Rc::new(RefCell::new(None));
        let (found, told, own) = (read.clone(), changed.clone(), transaction.clone());
        let on_read = callback(Box::new(move |_| match write(&store, &id, &found, &change) {
            Ok(made) => drop(told.replace(Some(made))),
            // What was not applied must not look like a change that left all as it was.
            Err(_) => drop(own.abort()),
        }));
        read.set_onsuccess(Some(on_read.unchecked_ref()));
        when_ended(&transaction, Box::new(move |ended| done(changed.take().filter(|_| ended.is_ok()))));
    }

    /// Deletes rows.
    pub fn remove(self: &Rc<Self>, ids: &[String]) {
        if let Ok((_, store)) = self.begin("readwrite") {
            for id in ids {
                drop(store.delete(&id.into()));
            }
        }
    }

    /// Closes the connection; what is under way is finished.
    pub fn close(&self) {
        self.connection.set(Connection::Closed);
        self.database.borrow().close();
    }

    fn begin(self: &Rc<Self>, mode: &str) -> Result<(IdbTransaction, IdbObjectStore), JsValue> {
        if self.connection.get() != Connection::Open {
            return Err(unreadable());
        }
        let begun = self.database.borrow().transaction(ROWS, mode, &self.options);
        let begun = begun.and_then(|transaction| Ok((transaction.clone(), transaction.object_store(ROWS)?)));
        begun.inspect_err(|_| self.reconnect())
    }

    /// Tells of a failure, once the connection that was lost is there again or can't be had.
    fn fail(&self, told: Box<dyn FnOnce()>) {
        match self.connection.get() {
            Connection::Reopening => self.failed.borrow_mut().push(told),
            Connection::Open | Connection::Closed => told(),
        }
    }

    fn reconnect(self: &Rc<Self>) {
        self.connection.set(Connection::Reopening);
        let own = self.clone();
        let reopened = move |database: Result<Transacting, JsValue>| {
            match database {
                // It was closed meanwhile.
                Ok(database) if own.connection.get() == Connection::Closed => database.close(),
                Ok(database) => {
                    own.connection.set(Connection::Open);
                    own.database.replace(database).close();
                }
                // The next that needs it tries again.
                Err(_) if own.connection.get() == Connection::Reopening => own.connection.set(Connection::Open),
                Err(_) => {}
            }
            for told in own.failed.take() {
                told();
            }
        };
        connect(&self.factory, &self.name, Box::new(reopened));
    }
}

fn write(store: &IdbObjectStore, id: &JsValue, found: &IdbRequest, change: &Change) -> Result<Changed, JsValue> {
    let (write, changed) = apply(change, &found.result()?)?;
    match write {
        Write::Nothing => {}
        Write::Put(row) => drop(store.put_with_key(&Uint8Array::from(row.as_slice()), id)?),
        Write::Delete => drop(store.delete(id)?),
    }
    Ok(changed)
}

fn connect(factory: &IdbFactory, name: &str, done: Done<Result<Transacting, JsValue>>) {
    let opening = match factory.open_with_u32(name, VERSION) {
        Ok(opening) => opening,
        Err(error) => return done(Err(error)),
    };
    let own = opening.clone();
    let on_upgrade = callback(Box::new(move |_| {
        if let Ok(database) = own.result() {
            // A failure here makes the opening fail.
            drop(database.unchecked_into::<IdbDatabase>().create_object_store(ROWS));
        }
    }));
    opening.set_onupgradeneeded(Some(on_upgrade.unchecked_ref()));
    let own = opening.clone();
    // Of an opening that failed, the result is undefined.
    let on_end = callback(Box::new(move |_| match own.result() {
        Ok(database) if database.is_object() => done(Ok(database.unchecked_into())),
        _ => done(Err(error_of(own.error().ok().flatten()))),
    }));
    let on_end: &Function = on_end.unchecked_ref();
    opening.set_onsuccess(Some(on_end));
    opening.set_onerror(Some(on_end));
}

/// Waits until a transaction is committed, or has failed.
fn when_ended(transaction: &IdbTransaction, done: Done<Result<(), JsValue>>) {
    let own = transaction.clone();
    let on_end = callback(Box::new(move |event| {
        let ended: Ended = event.unchecked_into();
        done(if ended.kind() == "complete" { Ok(()) } else { Err(error_of(own.error())) });
    }));
    let on_end: &Function = on_end.unchecked_ref();
    transaction.set_oncomplete(Some(on_end));
    transaction.set_onabort(Some(on_end));
}

fn error_of(error: Option<web_sys::DomException>) -> JsValue {
    error.map_or_else(unreadable, JsValue::from)
}
