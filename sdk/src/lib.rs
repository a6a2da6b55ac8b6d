//! The client in WebAssembly: `semel-core`'s machine with its store, timers, clock and randomness.
//!
//! What only moves things between JavaScript and JavaScript (`fetch`, promises, Web Locks) is in `npm/`, where it takes a
//! fraction of the bytes. Nothing is decided there.
//!
//! Invariants:
//! - Nothing is decided here either: what to store, when to send and what an answer means is the machine's.
//! - No call into JavaScript is made while the machine is borrowed: it may call back.
//! - No futures: what takes time ends in a boxed callback. A state machine for each `async` would double the download.
//! - Nothing happens at module scope: importing the package has no side effect.
//!
//! What crosses the boundary are numbers, bytes and text: header lines as `name:value`, anything else with tabs between.
//! Arrays and objects would cost a glue function for each thing that is done to them.

mod clock;
mod driver;
mod outbox;
mod random;
pub mod store;

pub use outbox::Outbox;
pub use random::random_id;

use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::Closure;

/// What is called once something has ended.
pub type Done<T> = Box<dyn FnOnce(T)>;

/// A function for JavaScript, good for one call. Boxed, so that what carries it over is compiled once.
fn callback(called: Done<JsValue>) -> JsValue {
    Closure::once_into_js(called)
}

/// A promise, settled by what `start` is given.
fn promise(start: Done<Done<Result<JsValue, JsValue>>>) -> Promise {
    let mut start = Some(start);
    Promise::new(&mut |resolve, reject| {
        let settle = move |settled: Result<JsValue, JsValue>| {
            let (settle, value) = settled.map_or_else(|error| (&reject, error), |value| (&resolve, value));
            // Neither of them throws.
            drop(settle.call1(&JsValue::UNDEFINED, &value));
        };
        if let Some(start) = start.take() {
            start(Box::new(settle));
        }
    })
}

/// What a browser downloads is compiled for one thread and few blocks: this allocator is a fifth of the usual one.
#[cfg(target_arch = "wasm32")]
#[global_allocator]
#[allow(unsafe_code)]
// SAFETY: wasm without the feature `atomics` has one thread.
static ALLOCATOR: lol_alloc::AssumeSingleThreaded<lol_alloc::FreeListAllocator> =
    unsafe { lol_alloc::AssumeSingleThreaded::new(lol_alloc::FreeListAllocator::new()) };
