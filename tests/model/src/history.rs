//! What a machine was told, from which it is made anew for each step.
//!
//! The machines of the client hold what can't be copied, nor cross threads. But they decide by nothing but what they are told, so a
//! history stands for one.
//!
//! Invariant: a history is no part of a state. Two machines with different histories are one state if they are alike to the last
//! field, which a digest says that stands beside the history.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What was told, and when.
#[derive(Clone)]
pub struct History<T>(Vec<Arc<(i64, T)>>);

impl<T> Default for History<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> History<T> {
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &(i64, T)> {
        self.0.iter().map(|told| &**told)
    }

    /// One more.
    pub fn push(&mut self, now_ms: i64, told: T) {
        self.0.push(Arc::new((now_ms, told)));
    }
}

impl<T> PartialEq for History<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for History<T> {}

impl<T> Hash for History<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<T> fmt::Debug for History<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} reports", self.0.len())
    }
}

/// Of all that is written to it.
#[derive(Default)]
pub struct Digest(DefaultHasher);

impl Digest {
    /// The digest.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
