//! When the keys behind a URL are fetched, and what is known meanwhile. Pure: the host fetches, the clock is an argument.
//!
//! Invariants:
//! - A set is asked for again once it is [`LIFETIME_MS`] old, or for a `kid` that it lacks, but at most once in [`PAUSE_MS`]:
//!   no stranger can have the issuer's server flooded.
//! - A fetch that fails changes no key. A token that can't be judged for want of keys is nobody's fault, and no refusal.
//! - One caller fetches at a time. The others wait, and one of them takes over should the first never come back.

use super::keys::{KeySet, VerifyingKey};
use std::rc::Rc;

/// A set that was fetched is taken as it is for so long.
pub const LIFETIME_MS: i64 = 300_000;
/// Between the starts of two fetches lies at least so much.
pub const PAUSE_MS: i64 = 30_000;
/// A fetch that took longer than this has failed.
pub const FETCH_MS_MAX: i64 = 5_000;

/// What is to be done before a token can be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The caller fetches the keys from this URL, tells what came, and asks again.
    Fetch(String),
    /// Somebody fetches: the caller asks again in a moment.
    Wait,
}

/// What is known of a `kid`.
#[derive(Debug)]
pub(super) enum Found {
    Key(Rc<VerifyingKey>),
    /// There is no such key.
    Unknown,
    /// It can't be told whether there is.
    Unavailable,
    Wanted(Wanted),
}

/// The keys of a deployment.
#[derive(Debug, Default)]
pub(super) struct Keys {
    set: KeySet,
    url: Option<String>,
    fetched: KeySet,
    fetched_ms: Option<i64>,
    /// The start of the last fetch.
    started_ms: Option<i64>,
    is_fetching: bool,
}

impl Keys {
    pub fn new(set: KeySet, url: Option<String>) -> Self {
        Self { set, url, ..Self::default() }
    }

    pub fn find(&mut self, kid: &str, now_ms: i64) -> Found {
        if let Some(key) = self.set.get(kid) {
            return Found::Key(key);
        }
        let Some(url) = &self.url else { return Found::Unknown };
        let key = self.fetched.get(kid);
        let since = |past: Option<i64>| past.map_or(i64::MAX, |past| now_ms.saturating_sub(past));
        let is_fresh = since(self.fetched_ms) < LIFETIME_MS;
        let is_fetching = self.is_fetching && since(self.started_ms) < FETCH_MS_MAX;
        match key {
            Some(key) if is_fresh || is_fetching => Found::Key(key),
            _ if is_fetching => Found::Wanted(Wanted::Wait),
            _ if since(self.started_ms) >= PAUSE_MS || self.is_fetching => {
                self.started_ms = Some(now_ms);
                self.is_fetching = true;
                Found::Wanted(Wanted::Fetch(url.clone()))
            }
            Some(key) => Found::Key(key),
            None if is_fresh && self.started_ms <= self.fetched_ms => Found::Unknown,
            None => Found::Unavailable,
        }
    }

    /// What a fetch brought: the text of a set, or nothing. An error is for the log.
    pub fn fetched(&mut self, text: Option<&str>, now_ms: i64) -> Result<(), String> {
        self.is_fetching = false;
        let text = text.ok_or("the JWK set could not be fetched; the keys before stay")?;
        self.fetched = KeySet::from_url(text).map_err(|reason| format!("what was fetched is no JWK set: {reason}"))?;
        self.fetched_ms = Some(now_ms);
        Ok(())
    }
}
