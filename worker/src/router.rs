//! The Worker's side: where a request goes.

use crate::{settings, wire};
use js_sys::Array;
use semel_core::header::quoted;
use semel_core::message::{Headers, Method};
use semel_core::problem::{Code, Problem};
use semel_core::server::auth::Wanted;
use semel_core::server::router::{Route, route};
use semel_core::server::{Answer, Config, Cors, Gate, Handler};
use wasm_bindgen::JsValue;

/// A handler's router.
pub struct Router<H> {
    handler: H,
    config: Config,
    cors: Cors,
    gate: Gate,
}

impl<H: Handler> Router<H> {
    /// A router with a deployment's settings.
    pub fn new(handler: H, settings: &str) -> Result<Self, JsValue> {
        let (config, cors) = settings::read(settings)?;
        let gate = Gate::new(settings::access(settings, config.open)?);
        Ok(Self { handler, config, cors, gate })
    }

    /// An answer (see [`crate`]), or `[key, Semel-Key, Semel-Principal, wait in ms]` for an object, or `[undefined, URL]` where
    /// keys are to be fetched first, from there, or from nowhere by this caller. The first of an answer is a number.
    pub fn route(&mut self, method: &str, pathname: &str, search: &str, headers: &str, now_ms: f64) -> Array {
        let (lines, headers) = (headers, Headers::from_lines(headers));
        let (method, now_ms) = (Method::new(method), wire::instant_ms(now_ms));
        let url = (pathname, search);
        match route(&self.handler, &self.config, &mut self.gate, &method, url, &headers, now_ms) {
            Route::Answer(answer) => wire::stamped(answer, &self.cors, &headers),
            Route::Object { key, principal, wait_ms } => Array::of4(
                &JsValue::from_str(key.as_str()),
                &JsValue::from_str(&quoted(&key.encoded())),
                &JsValue::from_str(&quoted(principal.as_str())),
                &JsValue::from(wait_ms as f64),
            ),
            Route::Registry { .. } => {
                let problem = Problem::new(Code::NotFound, "there is no registry of keys");
                self.answer(Answer::problem(&problem), lines, now_ms)
            }
            Route::Keys(Wanted::Fetch(url)) => Array::of2(&JsValue::UNDEFINED, &JsValue::from_str(&url)),
            Route::Keys(Wanted::Wait) => Array::of2(&JsValue::UNDEFINED, &JsValue::UNDEFINED),
        }
    }

    /// What a fetch of the JWK set brought: its text, or undefined. What is wrong with it is for the log.
    pub fn keys_fetched(&mut self, text: Option<String>, now_ms: f64) -> Option<String> {
        self.gate.keys_fetched(text.as_deref(), wire::instant_ms(now_ms)).err()
    }

    /// The answer where an object can't be reached. `headers`: of the request.
    pub fn unavailable(&self, detail: &str, headers: &str, now_ms: f64) -> Array {
        self.answer(Answer::unavailable(detail), headers, wire::instant_ms(now_ms))
    }

    fn answer(&self, answer: Answer, headers: &str, now_ms: i64) -> Array {
        wire::stamped(answer.stamped(now_ms, None), &self.cors, &Headers::from_lines(headers))
    }
}

/// The answer where the settings can't be read. Which pages may read it is told by what can be read of them.
pub fn unset(settings: &str, headers: &str, now_ms: f64) -> Array {
    let cors = settings::cors(settings);
    let answer = Answer::unavailable("the worker can't serve with its settings");
    wire::stamped(answer.stamped(wire::instant_ms(now_ms), None), &cors, &Headers::from_lines(headers))
}
