//! Everything a machine was told: from it the machine is rebuilt for each step.
//!
//! The client's machines can neither be copied nor sent to other threads. But they decide by nothing but what they are told, so a
//! history can stand for a machine.
//!
//! Invariant: a history is not compared as part of a state. Two machines with different histories are one state if all their
//! fields are equal; for that, a digest of the fields is kept beside the history.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What a machine was told, and when.
#[derive(Clone)]
pub struct History<T>(Vec<Arc<(i64, T)>>);

impl<T> Default for History<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> History<T> {
    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(i64, T)> {
        self.0.iter().map(|told| &**told)
    }

    /// Adds an entry.
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

/// A hash of everything that is written to it.
#[derive(Default)]
pub struct Digest(DefaultHasher);

impl Digest {
    /// The hash.
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
