//! The same ledger without protection, to compare with: no id, no record. Retrying here does things twice.
//!
//! The demonstration shows it beside the protected one: the same handler on the same storage, with the engine left out.

use crate::Ledger;
use semel_worker::object::Plain;
use wasm_bindgen::prelude::*;

/// What the Durable Object of a naive account asks.
#[wasm_bindgen]
pub struct NaiveEngine(Plain<Ledger>);

#[wasm_bindgen]
impl NaiveEngine {
    /// A ledger over an object's storage.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: JsValue) -> Self {
        Self(Plain::new(Ledger, storage))
    }

    /// Runs the handler, every time it is asked.
    pub fn handle(&mut self, method: &str, pathname: &str, headers: &str, body: Vec<u8>, now_ms: f64) -> js_sys::Array {
        self.0.handle(method, pathname, headers, body, now_ms)
    }
}
