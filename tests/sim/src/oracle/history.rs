//! Checks that each account behaved as if it did one thing at a time, in the order that its clients saw.
//!
//! Invariants:
//! - Each operation is a thread of the history, from the call to the answer. One with an effect and without an answer
//!   may have happened at any time since the call. One without both is not part of the history.
//! - Only the beginning of a key's history is checked: up to [`OPERATIONS_MAX`] operations, or until more than
//!   [`OPEN_MAX`] are under way at once. The search grows fast, and if a history can be put in order, so can each
//!   beginning of it.

use super::{Violation, violation};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::collections::{BTreeMap, BTreeSet};

/// The most operations of a key that are checked.
const OPERATIONS_MAX: usize = 16;
/// The most of them that may be under way at once.
const OPEN_MAX: usize = 6;

/// An operation on an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Deposit,
    Read,
}

/// An account: the number of deposits, which is also its answer.
#[derive(Debug, Clone, Copy, Default)]
struct Account(i64);

impl SequentialSpec for Account {
    type Op = Operation;
    type Ret = i64;

    fn invoke(&mut self, operation: &Operation) -> i64 {
        self.0 += i64::from(*operation == Operation::Deposit);
        self.0
    }
}

#[derive(Debug)]
enum Event {
    Called(usize, Operation),
    Returned(usize, i64),
}

/// What was asked of each key, and answered.
#[derive(Debug, Default)]
pub struct History {
    keys: BTreeMap<String, Vec<Event>>,
    key_of: BTreeMap<usize, String>,
    returned: BTreeSet<usize>,
    unjudged: BTreeSet<String>,
}

impl History {
    /// Takes note that a deposit is asked for.
    pub fn deposits(&mut self, number: usize, key: &str) {
        self.called(number, key, Operation::Deposit);
    }

    /// Takes note that a read is asked for.
    pub fn reads(&mut self, number: usize, key: &str) {
        self.called(number, key, Operation::Read);
    }

    fn called(&mut self, number: usize, key: &str, operation: Operation) {
        self.key_of.insert(number, key.to_owned());
        self.keys.entry(key.to_owned()).or_default().push(Event::Called(number, operation));
    }

    /// Takes note that somebody got the outcome.
    pub fn returned(&mut self, number: usize, body: &[u8]) {
        let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let (Some(count), Some(key)) = (json["count"].as_i64(), self.key_of.get(&number)) else { return };
        if self.returned.insert(number) {
            self.keys.entry(key.clone()).or_default().push(Event::Returned(number, count));
        }
    }

    /// Takes note that something happened again at a key although it had happened before, when nothing was promised of
    /// it any more.
    pub fn is_no_longer_promised(&mut self, key: &str) {
        self.unjudged.insert(key.to_owned());
    }

    /// Checks all of it. `happened`: whether a deposit had an effect.
    pub fn check(&self, happened: impl Fn(usize) -> bool) -> Result<(), Violation> {
        for (key, events) in self.keys.iter().filter(|(key, _)| !self.unjudged.contains(*key)) {
            let mut tester = LinearizabilityTester::new(Account::default());
            let (mut operations, mut open) = (0, 0);
            for event in events {
                let told = match event {
                    Event::Called(number, _) if !self.returned.contains(number) && !happened(*number) => continue,
                    Event::Called(..) if operations == OPERATIONS_MAX || open == OPEN_MAX => break,
                    Event::Called(number, operation) => {
                        operations += 1;
                        open += 1;
                        tester.on_invoke(*number, *operation).map(|_| ())
                    }
                    Event::Returned(number, count) => {
                        open -= 1;
                        tester.on_return(*number, *count).map(|_| ())
                    }
                };
                if let Err(error) = told {
                    return violation("history", error);
                }
            }
            if tester.serialized_history().is_none() {
                return violation("history", format!("{key} did not do one thing at a time: {events:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn returned(count: i64) -> String {
        format!("{{\"count\":{count}}}")
    }

    #[test]
    fn overlapping_deposits_may_count_in_any_order_and_a_later_read_may_not_be_older() {
        let mut history = History::default();
        history.deposits(1, "k");
        history.deposits(2, "k");
        history.returned(2, returned(1).as_bytes());
        history.returned(1, returned(2).as_bytes());
        history.reads(3, "k");
        assert_eq!(history.check(|_| true), Ok(()));
        history.returned(3, returned(1).as_bytes());
        assert!(history.check(|_| true).is_err(), "the read is older than what was answered before it began");
    }
}
