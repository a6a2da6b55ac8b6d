//! Decides when a JWK set behind a URL is fetched, and which keys are used meanwhile. This module does no I/O: the host
//! fetches, and the clock is an argument.
//!
//! Invariants:
//! - A set is fetched again once it is [`REFRESH_MS`] old, or for a `kid` that it lacks, but at most once in
//!   [`PAUSE_MS`], whether or not the last fetch succeeded. So nobody can make the layer flood the issuer's server.
//! - The host fetches while requests go on. A request waits only if no young enough key can judge it.
//! - A fetch that fails changes no key: the old keys are used until they are [`STALE_MS_MAX`] old. A token that can't be
//!   judged for lack of keys is not refused as wrong: the caller is told to try again. So is the caller whose token was
//!   issued since the last fetch, perhaps with a new key, until the next one.

use super::LEEWAY_S;
use super::keys::{KeySet, VerifyingKey};
use std::rc::Rc;

/// The age at which a set is fetched again while nobody waits for it, in ms.
pub const REFRESH_MS: i64 = 150_000;
/// For how long a fetched set is used as it is, in ms.
pub const LIFETIME_MS: i64 = 300_000;
/// The greatest age of a set that is used because no other can be fetched, in ms.
pub const STALE_MS_MAX: i64 = 86_400_000;
/// The least time between the starts of two fetches, in ms.
pub const PAUSE_MS: i64 = 30_000;
/// A fetch that takes longer than this has failed, in ms.
pub const FETCH_MS_MAX: i64 = 5_000;

/// What is known about a `kid`.
#[derive(Debug)]
pub(super) enum Found {
    Key(Rc<VerifyingKey>),
    /// There is no key with it.
    Unknown,
    /// It is not known whether there is a key with it.
    Unavailable,
    /// The set is being fetched, and the caller has to ask again in a moment.
    Wait,
}

/// The keys of a deployment.
#[derive(Debug, Default)]
pub(super) struct Keys {
    set: KeySet,
    url: Option<String>,
    fetched: KeySet,
    fetched_ms: Option<i64>,
    /// When the last fetch began.
    started_ms: Option<i64>,
    /// When the last fetch failed; `None` if it succeeded.
    failed_ms: Option<i64>,
    is_fetching: bool,
    /// Whether the host still has to begin the fetch.
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
        // If the clock went back, nothing waits until it has caught up.
        let since = |past: Option<i64>| past.map_or(i64::MAX, |past| now_ms.saturating_sub(past).saturating_abs());
        let age_ms = since(self.fetched_ms);
        let key = self.fetched.get(kid).filter(|_| age_ms < STALE_MS_MAX);
        if (key.is_none() || age_ms >= REFRESH_MS) && since(self.started_ms) >= PAUSE_MS {
            self.started_ms = Some(now_ms);
            self.is_fetching = true;
            self.is_wanted = true;
        }
        let is_fetching = self.is_fetching && since(self.started_ms) < FETCH_MS_MAX;
        // After a failure, the next fetch may be slow and fail again, so nobody waits for it.
        let is_usable = age_ms < LIFETIME_MS || since(self.failed_ms) < LIFETIME_MS || !is_fetching;
        match key {
            Some(key) if is_usable => Found::Key(key),
            _ if is_fetching => Found::Wait,
            // The last fetch succeeded, and it began less than a pause ago. Otherwise another would have begun above.
            _ if self.started_ms <= self.fetched_ms => Found::Unknown,
            _ => Found::Unavailable,
        }
    }

    /// Whether a token that was issued in that second is as young as the set, so that the set may lack its key. A token
    /// from the future is none: it would be that for ever, as with an issuer that counts in ms.
    pub fn may_lack(&self, issued_s: f64, now_ms: i64) -> bool {
        let young =
            |started_ms| (started_ms as f64 - 999.0..(now_ms + LEEWAY_S * 1000) as f64).contains(&(issued_s * 1000.0));
        self.started_ms.is_some_and(young)
    }

    /// The URL from which the set is to be fetched now; `None` if it is not. Each fetch is returned once.
    pub fn wanted(&mut self) -> Option<&str> {
        std::mem::take(&mut self.is_wanted).then_some(self.url.as_deref()).flatten()
    }

    /// Takes the result of a fetch: the text of a set, or nothing. The error is for the log.
    pub fn fetched(&mut self, text: Option<&str>, now_ms: i64) -> Result<(), String> {
        self.is_fetching = false;
        self.failed_ms = Some(now_ms);
        let text = text.ok_or("the JWK set could not be fetched; the keys before stay for a day")?;
        self.fetched = KeySet::from_url(text).map_err(|reason| format!("what was fetched is no JWK set: {reason}"))?;
        self.fetched_ms = Some(now_ms);
        self.failed_ms = None;
        Ok(())
    }

    /// Takes what the module before this one had fetched, if anything, and when the last fetch began.
    pub fn kept(&mut self, text: Option<&str>, fetched_ms: i64, started_ms: i64) {
        if self.fetched(text, fetched_ms).is_err() {
            self.failed_ms = None;
        }
        self.started_ms = Some(started_ms);
    }
}
