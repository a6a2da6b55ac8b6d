//! The SDK in a browser.
#![cfg(target_arch = "wasm32")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(dead_code, reason = "each of the two files uses its part of what they share")]

mod both;
mod indexeddb;
mod support;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_browser);
