//! How values are laid out that cross the boundary to JavaScript.
//!
//! Invariant: an answer is always `[status, header lines, body or undefined, log line or undefined]`.

use crate::storage::{from_js, to_js};
use js_sys::Array;
use semel_core::id::Invalid;
use semel_core::message::{Headers, Method, Request};
use semel_core::path::Path;
use semel_core::problem::Problem;
use semel_core::server::storage::sql::Row;
use semel_core::server::{Answer, Cors, SqlError};
use wasm_bindgen::prelude::*;

// These make an array in one call. Making each value by itself would take one more call each.
#[wasm_bindgen(raw_module = "./lines.js")]
extern "C" {
    fn answered(status: u16, lines: &str, body: Option<&[u8]>, log: Option<&str>) -> Array;

    #[wasm_bindgen(js_name = routedTo)]
    pub fn routed_to(key: &str, says: &str, wait_ms: f64, asker: Option<&str>) -> Array;
}

/// Lays out an answer of the layer, with the headers that let the asking page read it. `request`: the headers of the
/// request.
pub fn stamped(mut answer: Answer, cors: &Cors, request: &Headers, log: Option<String>) -> Array {
    cors.stamp(&mut answer, request);
    self::answer(&answer, log)
}

/// How a socket is closed for a problem: `[close code, reason]`.
pub fn closing(problem: &Problem) -> Array {
    Array::of2(&JsValue::from(4000 + problem.code.status()), &JsValue::from_str(problem.code.as_str()))
}

pub fn answer(answer: &Answer, log: Option<String>) -> Array {
    // Even an empty body would make the runtime throw for 204 and the like.
    let body = (!answer.body.is_empty()).then_some(answer.body.as_slice());
    answered(answer.status, &answer.headers.to_lines(), body, log.as_deref())
}

pub fn request(
    method: &str,
    (pathname, search): (&str, &str),
    headers: &str,
    body: Vec<u8>,
) -> Result<Request, Invalid> {
    let headers = Headers::from_lines(headers);
    Ok(Request { method: Method::new(method), path: Path::new(pathname, search)?, headers, body })
}

/// Lays out what one object tells another, as an array of texts and numbers.
pub fn array(row: &Row) -> Array {
    row.iter().map(to_js).collect()
}

/// Reads what another object told or returned. Throws if it can't be read.
pub fn received<T>(array: &Array, read: impl FnOnce(Row) -> Option<T>) -> Result<T, JsValue> {
    let row = array.iter().map(|value| from_js(&value)).collect();
    read(row).ok_or_else(|| JsValue::from_str("another object of the worker is of another build"))
}

/// A failure of the storage, as `host.js` catches it.
pub fn error(error: &SqlError) -> JsValue {
    JsValue::from_str(&format!("storage failed: {error}"))
}

/// An instant of JavaScript's clock, in whole ms.
pub fn instant_ms(now_ms: f64) -> i64 {
    now_ms as i64
}
