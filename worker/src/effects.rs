//! The effects of a key, as `effects.js` sends them: which to send next, and what became of each.
//!
//! Invariant: if the handler emits no effects, the module contains none of this.

use crate::object::Object;
use crate::storage::console_log;
use crate::wire;
use js_sys::{Array, Uint8Array};
use semel_core::server::Handler;
use semel_core::server::effects::{Heard, Sending};
use wasm_bindgen::JsValue;

impl<H: Handler> Object<H> {
    /// Whether there may be effects to send.
    pub fn has_to_send(&self) -> bool {
        self.engine.has_to_send()
    }

    /// When the object has to be awake to send effects, in case it dies before; `None` if none is known to wait.
    pub fn wakes_to_send_at(&self, now_ms: f64) -> Option<f64> {
        self.engine.wakes_to_send_at(wire::instant_ms(now_ms)).map(|at_ms| at_ms as f64)
    }

    /// The next effect to send: `[lane, token, key or undefined, method, URL, header lines, body]`; `None` if none is
    /// due. `chance`: a whole number that was never passed before.
    pub fn send_next(&mut self, now_ms: f64, chance: f64) -> Result<Option<Array>, JsValue> {
        if !H::EMITS {
            return Ok(None);
        }
        let next = self.engine.send_next(&self.sql, wire::instant_ms(now_ms), chance as i64);
        let next = next.map_err(|error| wire::error(&error))?;
        Ok(next.map(|Sending { lane, token, key, method, url, headers, body }| {
            let sending = Array::of2(&JsValue::from(lane as f64), &JsValue::from(token as f64));
            sending.push(&key.map_or(JsValue::UNDEFINED, |key| JsValue::from_str(key.as_str())));
            for text in [method, url, headers.to_lines()] {
                sending.push(&JsValue::from_str(&text));
            }
            sending.push(&Uint8Array::from(body.as_slice()));
            sending
        }))
    }

    /// Reports what became of an effect. Either the status, what `Semel-Status` said, and the body. Or `status` is
    /// undefined, and `text` the reason why no answer came. Or it is null, and `text` the reason why the effect can't
    /// be sent at all.
    pub fn sent(
        &mut self,
        (lane, token): (f64, f64),
        (status, text, body): (&JsValue, String, Vec<u8>),
        now_ms: f64,
    ) -> Result<(), JsValue> {
        if !H::EMITS {
            return Ok(());
        }
        let heard = match status.as_f64() {
            Some(status) => Heard::Answered { status: status as u16, semel: text, body },
            None if status.is_null() => Heard::Unsendable(text),
            None => Heard::Nothing(text),
        };
        let ended = self.engine.sent(&self.sql, wire::instant_ms(now_ms), (lane as i64, token as i64), heard);
        if let Some(line) = ended.map_err(|error| wire::error(&error))? {
            console_log(&line);
        }
        Ok(())
    }
}
