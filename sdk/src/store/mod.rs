//! Where rows are kept.
//!
//! Invariants, of every kind of store:
//! - What is reported as changed is durable, as far as the kind promises; what failed has changed nothing.
//! - A change is one transaction: nobody else changes the row between reading and writing.
//! - Each call ends by one call of its `done`.
//!
//! - [`indexeddb`]: in the browser
//! - [`custom`]: brought along by the application, or kept in memory by `npm/memory.js`

pub mod custom;
pub mod indexeddb;

use crate::Done;
use custom::CustomStore;
use indexeddb::IndexedDb;
use js_sys::{Array, Uint8Array};
use semel_core::client::row::Write;
use semel_core::client::{Change, Changed};
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};

/// All rows, by id.
pub type Rows = Vec<(String, Vec<u8>)>;

/// A store of any kind.
#[derive(Clone)]
pub enum Store {
    /// In the browser.
    IndexedDb(Rc<IndexedDb>),
    /// The application's own.
    Custom(CustomStore),
}

impl Store {
    /// Reads all rows.
    pub fn load(&self, done: Done<Result<Rows, JsValue>>) {
        match self {
            Self::IndexedDb(store) => store.load(done),
            Self::Custom(store) => custom::load(store, done),
        }
    }

    /// Changes one row in one transaction; `None`: it failed, and nothing was changed.
    pub fn change(&self, id: &str, change: Change, done: Done<Option<Changed>>) {
        match self {
            Self::IndexedDb(store) => store.change(id, change, done),
            Self::Custom(store) => custom::change(store, id, change, done),
        }
    }

    /// Deletes rows that nobody changes any more. Nobody waits for it: what stays is acknowledged once more.
    pub fn remove(&self, ids: &[String]) {
        match self {
            Self::IndexedDb(store) => store.remove(ids),
            Self::Custom(store) => custom::remove(store, ids),
        }
    }

    /// Lets go of what it holds.
    pub fn close(&self) {
        match self {
            Self::IndexedDb(store) => store.close(),
            Self::Custom(store) => store.close(),
        }
    }
}

/// The error of a row that this version can't read.
pub fn unreadable() -> JsValue {
    js_sys::Error::new("semel: a stored row is damaged, or was written by a newer version").into()
}

/// Applies a change to what was found under its id.
fn apply(change: &Change, found: &JsValue) -> Result<(Write, Changed), JsValue> {
    let row = if found.is_undefined() { None } else { Some(bytes(found)?) };
    change.apply(row.as_deref()).map_err(|_| unreadable())
}

fn bytes(row: &JsValue) -> Result<Vec<u8>, JsValue> {
    row.dyn_ref::<Uint8Array>().map(Uint8Array::to_vec).ok_or_else(unreadable)
}

/// Reads ids and rows that stand side by side.
fn rows(ids: &JsValue, values: &JsValue) -> Result<Rows, JsValue> {
    let (Some(ids), Some(values)) = (ids.dyn_ref::<Array>(), values.dyn_ref::<Array>()) else {
        return Err(unreadable());
    };
    let mut read = Vec::new();
    for index in 0..ids.length() {
        read.push((ids.get(index).as_string().ok_or_else(unreadable)?, bytes(&values.get(index))?));
    }
    Ok(read)
}
