//! Requests that are executed elsewhere, as `remote.js` sends them: which call to send, and what became of it.
//!
//! Invariant: what crosses the boundary is read completely, or the request stays in doubt.

use crate::object::{Object, Purpose, id_of};
use js_sys::{Array, Uint8Array};
use semel_core::header;
use semel_core::message::{Headers, Response};
use semel_core::server::Handler;
use semel_core::server::engine::remote::{Call, Ended};
use wasm_bindgen::{JsCast, JsValue};

impl<H: Handler> Object<H> {
    /// The call that has to be sent before the last attempt has an answer: `[times, path, is proof, id]`. The path is
    /// undefined unless it is a probe. Is proof: whether a probe that finds nothing proves something. `None` if there
    /// is no call. It is returned only once.
    pub fn take_call(&mut self) -> Option<Array> {
        let (call, id) = self.engine.take_call_of()?;
        let (times, path, is_proof) = match call {
            Call::Dispatch { times } => (times, JsValue::UNDEFINED, false),
            Call::Probe { path, times, is_proof } => (times, JsValue::from_str(&path), is_proof),
        };
        let id = JsValue::from_str(&header::id_value(&id));
        Some(Array::of4(&JsValue::from(times as f64), &path, &JsValue::from(is_proof), &id))
    }

    /// Says that the request whose id `take_call` returned is still under way: what came of it could not be recorded,
    /// and will be given again.
    pub fn know_under_way(&mut self, id: String) {
        if let Some(id) = id_of(id) {
            self.engine.know_under_way(id);
        }
    }
}

/// Reads a call that was sent, and its result: `[status, header lines, body]`, or `[is unsent, reason]`, where the
/// first says whether surely nothing was sent.
pub fn settled(call: &Array, ended: &Array) -> Purpose {
    // No start has the number 0.
    let times = call.get(0).as_f64().map_or(0, |times| times as i64);
    let call = match call.get(1).as_string() {
        None => Call::Dispatch { times },
        Some(path) => Call::Probe { path, times, is_proof: call.get(2).is_truthy() },
    };
    Purpose::Settle(call, self::ended(ended))
}

/// Reads the result of a call, as in [`settled`].
pub fn ended(ended: &Array) -> Ended {
    read(ended).unwrap_or_else(|| Ended::Unknown("what came of it can't be read".to_owned()))
}

fn read(ended: &Array) -> Option<Ended> {
    let text = ended.get(1).as_string()?;
    let Some(status) = ended.get(0).as_f64() else {
        return Some(if ended.get(0).is_truthy() { Ended::Unreachable(text) } else { Ended::Unknown(text) });
    };
    let body = ended.get(2).dyn_into::<Uint8Array>().ok()?.to_vec();
    Some(Ended::Answered(Response { status: status as u16, headers: Headers::from_lines(&text), body }))
}
