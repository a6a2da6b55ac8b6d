//! The judge of what one key has another credited with. It sees what is committed at both, and what leaves.
//!
//! Invariants:
//! - Credits are known by their names, which are their bodies: whatever place one has.
//! - What a key has waiting when it is put back may have been sent since, and be forgotten by the other: of that alone it may say that it
//!   doesn't know. What it has committed since, and lost, may be there; nobody accounts for it.

use crate::oracle::Oracle;
use crate::properties::{Never, Sometimes};
use crate::tables::{Effect, Tables};
use std::collections::BTreeSet;

/// What the judge remembers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct EffectJudge {
    /// What did not hold, and what came about.
    pub oracle: Oracle,
    /// What the sender has committed in a time that is no more.
    lost: BTreeSet<String>,
    /// What waited when the sender was put back, or under a session that was forgotten.
    in_doubt: BTreeSet<String>,
}

fn names(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(|effect| effect.payload.clone()).collect()
}

impl EffectJudge {
    fn breaks(&mut self, is_broken: bool, property: Never) {
        self.oracle.broken.extend(is_broken.then_some(property));
    }

    fn sees(&mut self, is_seen: bool, property: Sometimes) {
        self.oracle.seen.extend(is_seen.then_some(property));
    }

    /// The sender is put back from what it had committed to this.
    pub fn is_put_back(&mut self, from: &Tables, to: &Tables) {
        let kept = names(&to.effects);
        self.lost.extend(names(&from.effects).into_iter().filter(|name| !kept.contains(name)));
        self.in_doubt = to.sent.waiting().collect();
        self.sees(true, Sometimes::PutBack);
    }

    /// Those wait whose sender knows no other session than one that was forgotten: an object before it may have sent them there.
    pub fn may_be_forgotten(&mut self, waiting: impl Iterator<Item = String>) {
        self.in_doubt.extend(waiting);
    }

    /// A credit leaves under a place; which others did before, and by what names.
    pub fn leaves(&mut self, name: &str, others: &[&str]) {
        self.breaks(others.iter().any(|other| *other != name), Never::TwoRequests);
        self.sees(others.contains(&name), Sometimes::Resent);
    }

    /// The receiver has answered a credit.
    pub fn answers(&mut self, status: &str) {
        self.sees(status == "replayed", Sometimes::Replay);
        self.sees(status == "fenced", Sometimes::Fenced);
        self.sees(status == "cancelled", Sometimes::Cancelled);
        self.sees(status == "acknowledged", Sometimes::Tombstone);
        self.sees(status == "session-unknown", Sometimes::SessionUnknown);
    }

    /// What is committed now.
    pub fn watch(&mut self, sender: &Tables, receiver: &Tables) {
        let (made, credited) = (names(&sender.effects), names(&receiver.effects));
        let waiting: BTreeSet<String> = sender.sent.waiting().collect();
        let parked: Vec<(String, String)> = sender.sent.parked().collect();
        let is_there = |name: &String| credited.contains(name);
        self.breaks(credited.iter().collect::<BTreeSet<_>>().len() < credited.len(), Never::Twice);
        let is_lost = |name: &String| self.lost.contains(name);
        self.breaks(!credited.iter().all(|name| made.contains(name) || is_lost(name)), Never::Made);
        let order: Vec<&String> = credited.iter().filter(|name| made.contains(name)).collect();
        let is_ordered = made.iter().filter(|name| is_there(name)).eq(order);
        // Those before it have been parked, if they haven't come.
        let last = made.iter().rposition(is_there).unwrap_or(0);
        let is_early = made.iter().take(last).any(|name| waiting.contains(name) && !is_there(name));
        self.breaks(!is_ordered || is_early, Never::OutOfOrder);
        for name in &made {
            let is_kept = waiting.contains(name) || parked.iter().any(|(each, _)| each == name);
            self.breaks(!is_kept && !is_there(name), Never::Vanished);
            self.sees(!is_kept, Sometimes::Credited);
        }
        for (name, executed) in &parked {
            match executed.as_str() {
                "no" => self.breaks(is_there(name), Never::NoForGood),
                "yes" => self.breaks(!is_there(name), Never::YesOfNone),
                _ => self.breaks(!self.in_doubt.contains(name), Never::Doubted),
            }
            self.sees(executed == "unknown", Sometimes::OutcomeUnknown);
            self.sees(executed == "no", Sometimes::Parked);
        }
    }
}
