//! The Worker's side: where a request goes.

use crate::{settings, wire};
use js_sys::Array;
use semel_core::header::quoted;
use semel_core::message::{Headers, Method};
use semel_core::server::router::{Route, route};
use semel_core::server::{Answer, Config, Handler};
use wasm_bindgen::JsValue;

/// A handler's router.
pub struct Router<H> {
    handler: H,
    config: Config,
}

impl<H: Handler> Router<H> {
    /// A router with a deployment's settings.
    pub fn new(handler: H, settings: &str) -> Result<Self, JsValue> {
        Ok(Self { handler, config: settings::read(settings)? })
    }

    /// An answer (see [`crate`]), or `[key, Semel-Key, Semel-Principal, wait in ms]` for an object. The first of an answer
    /// is a number, the first of these a string.
    pub fn route(&self, method: &str, pathname: &str, search: &str, headers: &str, now_ms: f64) -> Array {
        let headers = Headers::from_lines(headers);
        let now_ms = wire::instant_ms(now_ms);
        match route(&self.handler, &self.config, &Method::new(method), (pathname, search), &headers, now_ms) {
            Route::Answer(answer) => wire::answer(&answer),
            Route::Object { key, principal, wait_ms } => Array::of4(
                &JsValue::from_str(key.as_str()),
                &JsValue::from_str(&quoted(&key.encoded())),
                &JsValue::from_str(&quoted(principal.as_str())),
                &JsValue::from(wait_ms as f64),
            ),
        }
    }

    /// The answer where an object can't be reached.
    pub fn unavailable(&self, detail: &str, now_ms: f64) -> Array {
        wire::answer(&Answer::unavailable(detail).stamped(wire::instant_ms(now_ms), None))
    }
}
