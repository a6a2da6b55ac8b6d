//! When the keys behind a URL are fetched, and what is known meanwhile. Pure: the host fetches, the clock is an argument.
//!
//! Invariants:
//! - A set is asked for again once it is [`REFRESH_MS`] old, or for a `kid` that it lacks, but at most once in [`PAUSE_MS`], whatever
//!   became of the fetch before: no stranger can have the issuer's server flooded.
//! - The host fetches beside the requests. One waits only where no key that it could be judged by is young enough.
//! - A fetch that fails changes no key: the old ones go on until they are [`STALE_MS_MAX`] old. A token that can't be judged for want of
//!   keys is nobody's fault, and no refusal.

use super::keys::{KeySet, VerifyingKey};
use std::rc::Rc;

/// So old, a set is fetched again, while nobody waits for it.
pub const REFRESH_MS: i64 = 150_000;
/// A set that was fetched is taken as it is for so long.
pub const LIFETIME_MS: i64 = 300_000;
/// So old may it be where no other can be had.
pub const STALE_MS_MAX: i64 = 86_400_000;
/// Between the starts of two fetches lies at least so much.
pub const PAUSE_MS: i64 = 30_000;
/// A fetch that took longer than this has failed.
pub const FETCH_MS_MAX: i64 = 5_000;

/// What is known of a `kid`.
#[derive(Debug)]
pub(super) enum Found {
    Key(Rc<VerifyingKey>),
    /// There is no such key.
    Unknown,
    /// It can't be told whether there is.
    Unavailable,
    /// The set is being fetched: the caller asks again in a moment.
    Wait,
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
    /// When a fetch failed, if none has succeeded since.
    failed_ms: Option<i64>,
    is_fetching: bool,
    /// Whether the host has yet to begin with it.
    is_wanted: bool,
}

impl Keys {
    pub fn new(set: KeySet, url: Option<String>) -> Self {
        Self { set, url, ..Self::default() }
    }

    pub fn find(&mut self, kid: &str, now_ms: i64) -> Found {
        if let Some(key) = self.set.get(kid) {
            return Found::Key(key);
        }
        if self.url.is_none() {
            return Found::Unknown;
        }
        // Where the clock was put back, nothing waits until it is there again.
        let since = |past: Option<i64>| past.map_or(i64::MAX, |past| now_ms.saturating_sub(past).saturating_abs());
        let age_ms = since(self.fetched_ms);
        let key = self.fetched.get(kid).filter(|_| age_ms < STALE_MS_MAX);
        if (key.is_none() || age_ms >= REFRESH_MS) && since(self.started_ms) >= PAUSE_MS {
            self.started_ms = Some(now_ms);
            self.is_fetching = true;
            self.is_wanted = true;
        }
        let is_fetching = self.is_fetching && since(self.started_ms) < FETCH_MS_MAX;
        // Who failed just now may fail slowly again: nobody waits for that.
        let is_usable = age_ms < LIFETIME_MS || since(self.failed_ms) < LIFETIME_MS || !is_fetching;
        match key {
            Some(key) if is_usable => Found::Key(key),
            _ if is_fetching => Found::Wait,
            _ if age_ms < LIFETIME_MS && self.started_ms <= self.fetched_ms => Found::Unknown,
            _ => Found::Unavailable,
        }
    }

    /// From where the set is to be fetched now, if it is. It is told once.
    pub fn wanted(&mut self) -> Option<&str> {
        std::mem::take(&mut self.is_wanted).then_some(self.url.as_deref()).flatten()
    }

    /// What a fetch brought: the text of a set, or nothing. An error is for the log.
    pub fn fetched(&mut self, text: Option<&str>, now_ms: i64) -> Result<(), String> {
        self.is_fetching = false;
        self.failed_ms = Some(now_ms);
        let text = text.ok_or("the JWK set could not be fetched; the keys before stay for a day")?;
        self.fetched = KeySet::from_url(text).map_err(|reason| format!("what was fetched is no JWK set: {reason}"))?;
        self.fetched_ms = Some(now_ms);
        self.failed_ms = None;
        Ok(())
    }

    /// What the module before this one had fetched, if anything, and when the last fetch began.
    pub fn kept(&mut self, text: Option<&str>, fetched_ms: i64, started_ms: i64) {
        if self.fetched(text, fetched_ms).is_err() {
            self.failed_ms = None;
        }
        self.started_ms = Some(started_ms);
    }
}
