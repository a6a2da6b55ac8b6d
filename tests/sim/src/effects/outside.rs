//! The other side of calls to addresses outside. It knows requests by their `Idempotency-Key`, refuses some for good,
//! and fails at times.
//!
//! Invariant: it does things once for each id, whatever the rest of the request says.

use semel_core::header::unquoted;
use semel_core::server::effects::{Heard, Sending};
use std::collections::{BTreeMap, BTreeSet};

/// The address that a key calls.
pub fn url_of(account: &str) -> String {
    format!("https://outside.example/of/{account}")
}

/// What it has done: for each address, the ids.
#[derive(Debug, Default)]
pub struct Outside(BTreeMap<String, BTreeSet<String>>);

impl Outside {
    pub fn done_of(&self, account: &str) -> BTreeSet<&str> {
        self.0.get(&url_of(account)).into_iter().flatten().map(String::as_str).collect()
    }

    /// Answers a request. `fails`: whether it fails right now.
    pub fn answer(&mut self, sending: &Sending, fails: bool) -> Heard {
        let id = sending.headers.get("idempotency-key").and_then(unquoted).unwrap_or_default();
        let status = match id.as_bytes().first() {
            // A request without an id changes nothing.
            None => 400,
            _ if fails => 503,
            Some(b'0' | b'1') => 422,
            Some(_) => {
                self.0.entry(sending.url.clone()).or_default().insert(id);
                201
            }
        };
        Heard::Answered { status, semel: String::new(), body: b"{}".to_vec() }
    }
}
