//! Waiting for what happens.
//!
//! Invariant: a test waits for something that it can see, never for a guess of how long it takes. What never comes fails
//! the test by its name.

use js_sys::{Function, Promise};
use semel_sdk::Done;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::{Closure, wasm_bindgen};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};

const DEADLINE_MS: f64 = 10_000.0;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(called: &Function, after_ms: i32) -> JsValue;
    type Clock;
    #[wasm_bindgen(thread_local_v2, js_name = performance)]
    static CLOCK: Clock;
    // Not called as the SDK's own: two imports of one package and one name are one symbol too many.
    #[wasm_bindgen(method, js_name = now)]
    fn tests_now(this: &Clock) -> f64;
}

/// A clock that does not go back, in ms, and not of the SDK's.
pub fn clock_ms() -> f64 {
    CLOCK.with(Clock::tests_now)
}

/// Calls in a task of its own.
pub fn later(work: impl FnOnce() + 'static) {
    set_timeout(Closure::once_into_js(work).unchecked_ref(), 0);
}

/// Lets everything run that is ready to.
pub async fn turn() {
    let ended = Promise::new(&mut |resolve, _| {
        set_timeout(&resolve, 1);
    });
    JsFuture::from(ended).await.expect("a timer ends");
}

/// Looks until there is something to see.
pub async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let ends_ms = clock_ms() + DEADLINE_MS;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(clock_ms() < ends_ms, "never came: {what}");
        turn().await;
    }
}

/// The deadline of a loop that awaits by itself.
pub struct Limit {
    what: &'static str,
    ends_ms: f64,
}

impl Limit {
    pub fn of(what: &'static str) -> Self {
        Self { what, ends_ms: clock_ms() + DEADLINE_MS }
    }

    /// Lets everything run that is ready to, if there is time left.
    pub async fn turn(&self) {
        assert!(clock_ms() < self.ends_ms, "never came: {}", self.what);
        turn().await;
    }
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(())).await;
}

/// Waits for the call of a `done`.
pub async fn done<T: 'static>(what: &str, start: impl FnOnce(Done<T>)) -> T {
    let slot = Rc::new(RefCell::new(None));
    let told = slot.clone();
    start(Box::new(move |value| drop(told.replace(Some(value)))));
    eventually(what, || slot.take()).await
}

/// Waits for a promise.
pub async fn settled(what: &str, promise: Promise) -> Result<JsValue, JsValue> {
    let slot = Rc::new(RefCell::new(None));
    let told = slot.clone();
    spawn_local(async move { drop(told.replace(Some(JsFuture::from(promise).await))) });
    eventually(what, || slot.take()).await
}
