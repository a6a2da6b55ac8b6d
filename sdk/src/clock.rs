//! Instants of a clock that does not go back, in ms.
//!
//! On some systems it stands still while the machine sleeps. That shows in the wall clock, which may jump for other
//! reasons as well: it is never taken for the time, only for a hint that what was learned may be wrong.

use std::cell::Cell;
use wasm_bindgen::prelude::wasm_bindgen;

/// So far may the two clocks drift apart by themselves.
const DRIFT_MS_MAX: i64 = 5_000;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance)]
    fn now() -> f64;
}

/// Now. Its start means nothing: the server's clock is learned from the server.
pub fn now_ms() -> i64 {
    now() as i64
}

/// How far the wall clock is ahead.
pub fn wall_ahead_ms() -> i64 {
    js_sys::Date::now() as i64 - now_ms()
}

/// Whether one of the clocks has jumped since `ahead_ms` was taken, which is taken anew then.
pub fn was_asleep(ahead_ms: &Cell<i64>) -> bool {
    let before_ms = ahead_ms.get();
    let now_ahead_ms = wall_ahead_ms();
    let has_jumped = (now_ahead_ms - before_ms).abs() > DRIFT_MS_MAX;
    if has_jumped {
        ahead_ms.set(now_ahead_ms);
    }
    has_jumped
}
