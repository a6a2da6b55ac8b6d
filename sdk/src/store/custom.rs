//! A store in JavaScript: the interface `Store` of the package's types, behind `npm/store.js`, which turns its promises into
//! callbacks.
//!
//! Invariant: what the application's store says only counts once the function that changes the row was called, and called
//! once. A store that would retry its transaction fails instead of reporting the wrong change.

use super::{Rows, apply, rows};
use crate::{Done, callback};
use js_sys::{Array, Uint8Array};
use semel_core::client::row::Write;
use semel_core::client::{Change, Changed};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::{Closure, wasm_bindgen};
use wasm_bindgen::{JsCast, JsValue};

#[wasm_bindgen]
extern "C" {
    /// The application's object.
    #[derive(Clone)]
    pub type CustomStore;

    #[wasm_bindgen(method)]
    fn load(this: &CustomStore, done: JsValue);
    #[wasm_bindgen(method)]
    fn change(this: &CustomStore, id: &str, to: JsValue, done: JsValue);
    #[wasm_bindgen(method)]
    fn remove(this: &CustomStore, ids: Array);
    /// Closes it, if it can be closed.
    #[wasm_bindgen(method)]
    pub fn close(this: &CustomStore);
}

/// Reads all rows. JavaScript calls back with `[ids, rows]`, or with an error.
pub fn load(store: &CustomStore, done: Done<Result<Rows, JsValue>>) {
    let loaded = move |loaded: JsValue| match loaded.dyn_ref::<Array>() {
        Some(both) => done(rows(&both.get(0), &both.get(1))),
        None => done(Err(loaded)),
    };
    store.load(callback(Box::new(loaded)));
}

/// Changes one row. JavaScript calls back with whether that is durable.
pub fn change(store: &CustomStore, id: &str, change: Change, done: Done<Option<Changed>>) {
    let changed = Rc::new(RefCell::new(None));
    let told = changed.clone();
    let to = Closure::once_into_js(move |found: JsValue| -> Result<JsValue, JsValue> {
        let (write, changed) = apply(&change, &found)?;
        told.replace(Some(changed));
        Ok(match write {
            Write::Nothing => JsValue::NULL,
            Write::Put(row) => Uint8Array::from(row.as_slice()).into(),
            Write::Delete => JsValue::UNDEFINED,
        })
    });
    let ended = move |is_durable: JsValue| done(changed.take().filter(|_| is_durable.is_truthy()));
    store.change(id, to, callback(Box::new(ended)));
}

/// Deletes rows.
pub fn remove(store: &CustomStore, ids: &[String]) {
    let array = Array::new();
    for id in ids {
        array.push(&JsValue::from_str(id));
    }
    store.remove(array);
}
