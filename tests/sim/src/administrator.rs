//! An administrator who acts at random: forgets, deletes records and keys, cancels. Sometimes somebody without the
//! right tries the same.
//!
//! Invariants:
//! - The decisions come from another stream of random numbers, so a run without them is as if this module did not
//!   exist.
//! - A request without an answer is sent again, a few times.
//! - Each request acknowledges the one before, so that none takes a place of others for long.

use crate::curl;
use crate::letter::{Letter, Message, Sender};
use crate::oracle::Violation;
use crate::sim::{Event, Sim};
use semel_core::header::quoted;
use semel_core::id::Principal;
use semel_support::START_S;

/// A principal without an administration token.
pub const PRETENDER: &str = "pretender";
/// How often a request without an answer is sent at most.
const ATTEMPTS_MAX: u32 = 4;

impl Sim {
    pub fn set_up_administrator(&mut self) {
        for n in 0..self.plan.administrations {
            let at_ms = self.administering.i64(0..self.plan.busy_ms * 2);
            self.push(at_ms, Event::Administer(n));
        }
    }

    /// Makes one request at some key.
    pub fn administer(&mut self, n: usize) -> Result<(), Violation> {
        let account = self.administering.usize(0..self.plan.keys);
        let key = format!("keys/{account}");
        let Some(seen) = self.server.seen(&key) else { return Ok(()) };
        let path = format!("/semel/v1/admin/keys/keys%2F{account}");
        let ids: Vec<String> = seen.rows.keys().cloned().collect();
        let id =
            if ids.is_empty() { "nobodys".to_owned() } else { ids[self.administering.usize(0..ids.len())].clone() };
        let (method, target, body) = match self.administering.u32(0..10) {
            0..=1 => return self.forget(&key),
            2 => ("DELETE", path, String::new()),
            3..=6 => ("DELETE", format!("{path}/records/{id}"), String::new()),
            7 => ("POST", format!("{path}/cancel"), format!("{{\"id\":{}}}", quoted(&id))),
            _ => ("GET", format!("{path}/records/{id}"), String::new()),
        };
        let is_pretender = self.administering.u32(0..4) == 0;
        let administrator = Principal::administrator();
        let mut headers = curl::bearer(if is_pretender { PRETENDER } else { administrator.as_str() });
        if method != "GET" {
            headers.append("idempotency-key", quoted(&format!("admin-{n}")));
            headers
                .append("semel-first-sent", format!("@{}", self.server.clock_ms(&key, self.now_ms).div_euclid(1000)));
        }
        if n > 0 {
            headers.append("semel-ack", quoted(&format!("admin-{}", n - 1)));
        }
        let message =
            Message { method: method.to_owned(), target, headers, body: body.into_bytes(), is_too_large: false };
        for _ in 0..ATTEMPTS_MAX {
            self.arrive(Letter { from: Sender::Nobody, message: message.clone() })?;
            if self.administering.u32(0..3) > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Lets the registry have a key forget, up to an instant that is not ahead of the key's clock.
    fn forget(&mut self, key: &str) -> Result<(), Violation> {
        let now_s = self.server.clock_ms(key, self.now_ms).div_euclid(1000);
        let before_s = now_s - self.administering.i64(0..=(now_s - START_S).clamp(0, 10));
        let (released, now_ms) = self.server.forget(key, before_s, self.now_ms);
        self.note(|| format!("{key} forgets what was first sent before {before_s}"));
        self.tell(released)?;
        if let Some(seen) = self.server.seen(key) {
            // A key without anything has nothing to forget.
            if seen.rows.is_empty() && seen.fence_s == 0 {
                return Ok(());
            }
            let fence_s = seen.fence_s;
            self.oracle.forgot(key, (before_s, fence_s), now_ms)?;
        }
        Ok(())
    }
}
