//! The same ledger without protection, to compare with: there is no id and no record, so a retry does things twice.
//!
//! The demonstration shows it beside the protected one. It runs the same handler on the same storage, without the
//! engine.

use crate::Ledger;
use semel_worker::object::Plain;
use wasm_bindgen::prelude::*;

/// The unprotected ledger, as the Durable Object of an account calls it.
#[wasm_bindgen]
pub struct NaiveEngine(Plain<Ledger>);

#[wasm_bindgen]
impl NaiveEngine {
    /// Makes a ledger over an object's storage.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: JsValue) -> Self {
        Self(Plain::new(Ledger, storage))
    }

    /// Runs the handler each time it is called.
    pub fn handle(&mut self, method: &str, pathname: &str, headers: &str, body: Vec<u8>, now_ms: f64) -> js_sys::Array {
        self.0.handle(method, pathname, headers, body, now_ms)
    }
}
