//! Random names: of requests, and of tabs.

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// A random UUID (version 4).
#[wasm_bindgen]
pub fn random_id() -> Result<String, JsValue> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| js_sys::Error::new("semel: there is no randomness here"))?;
    let mut text = uuid::Uuid::encode_buffer();
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().hyphenated().encode_lower(&mut text).to_owned())
}
