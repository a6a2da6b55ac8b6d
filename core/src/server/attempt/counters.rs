//! How often a key's object has given each answer since it started, by `Semel-Status`.
//!
//! Invariant: no decision depends on these counts, so a checker takes two engines for equal that differ only in them.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Counts of answers.
#[derive(Debug, Clone, Default)]
pub struct Counters(BTreeMap<String, u64>);

impl PartialEq for Counters {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Counters {}

impl Hash for Counters {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Counters {
    /// Counts an answer. There are only as many statuses as codes, and three more.
    pub fn count(&mut self, status: &str) {
        match self.0.get_mut(status) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(status.to_owned(), 1)),
        }
    }

    /// Every status that was answered, with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(status, count)| (status.as_str(), *count))
    }
}
