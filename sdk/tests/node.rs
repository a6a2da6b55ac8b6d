//! The SDK in Node.
#![cfg(target_arch = "wasm32")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(dead_code, reason = "each of the two files uses its part of what they share")]

mod both;
mod support;

use support::memory::Memory;
use support::server::Server;
use support::tab::{Setup, Tab};
use wasm_bindgen::JsCast;
use wasm_bindgen_test::wasm_bindgen_test;

#[wasm_bindgen_test]
async fn where_there_is_no_indexeddb_opening_fails_and_says_what_to_do() {
    let setup = Setup { store: None, database: "semel test".into(), ..Setup::with(&Memory::default()) };
    let error = Tab::open(&Server::new(), &setup).await.err().expect("there is no IndexedDB in Node");
    let error: js_sys::Error = error.dyn_into().expect("an error");
    assert!(String::from(error.message()).contains("there is no IndexedDB here"), "{error:?}");
}
