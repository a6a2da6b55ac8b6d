//! For how long timers are set.

use js_sys::{Function, Reflect, global};
use std::cell::Cell;
use std::rc::Rc;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};

/// Looks at every `setTimeout` until it is dropped.
pub struct Timers {
    longest_ms: Rc<Cell<f64>>,
    original: Function,
}

impl Timers {
    pub fn watch() -> Self {
        let original: Function = Reflect::get(&global(), &"setTimeout".into()).expect("timers").unchecked_into();
        let longest_ms = Rc::new(Cell::new(0.0_f64));
        let (told, real) = (longest_ms.clone(), original.clone());
        let watched: Closure<dyn Fn(JsValue, JsValue) -> JsValue> = Closure::new(move |called, ms: JsValue| {
            told.set(told.get().max(ms.as_f64().unwrap_or_default()));
            real.call2(&global(), &called, &ms).expect("a timer is set")
        });
        Reflect::set(&global(), &"setTimeout".into(), &watched.into_js_value()).expect("it can be replaced");
        Self { longest_ms, original }
    }

    pub fn longest_ms(&self) -> f64 {
        self.longest_ms.get()
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        Reflect::set(&global(), &"setTimeout".into(), &self.original).expect("it can be put back");
    }
}
