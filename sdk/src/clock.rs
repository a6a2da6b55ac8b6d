//! Instants of a clock that does not go back, in ms.

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance)]
    fn now() -> f64;
}

/// Now. Its start means nothing: the server's clock is learned from the server.
pub fn now_ms() -> i64 {
    now() as i64
}
