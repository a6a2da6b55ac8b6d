//! The judge of the credits that one key sends to another. It watches what both commit, and what leaves.
//!
//! Invariants:
//! - A credit is identified by its name, which is its body, and not by its place.
//! - Credits that wait when their key is put back may have been sent since, and the other key may have forgotten them. Only of
//!   these may the sender say that it doesn't know. What it committed after the copy is lost; such a credit may have arrived, and
//!   nobody accounts for it.

use crate::oracle::Oracle;
use crate::properties::{Never, Sometimes};
use crate::tables::{Effect, Tables};
use std::collections::BTreeSet;

/// The judge's memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct EffectJudge {
    /// The properties that were broken, and what has happened.
    pub oracle: Oracle,
    /// What the sender committed after the copy to which it was put back.
    lost: BTreeSet<String>,
    /// The credits that waited when the sender was put back, or under a session that was forgotten.
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

    /// The sender is put back from one state to another.
    pub fn is_put_back(&mut self, from: &Tables, to: &Tables) {
        let kept = names(&to.effects);
        self.lost.extend(names(&from.effects).into_iter().filter(|name| !kept.contains(name)));
        self.in_doubt = to.sent.waiting().collect();
        self.sees(true, Sometimes::PutBack);
    }

    /// These credits wait, and their sender knows no session later than one that was forgotten. An object before it may have sent
    /// them in that session.
    pub fn may_be_forgotten(&mut self, waiting: impl Iterator<Item = String>) {
        self.in_doubt.extend(waiting);
    }

    /// A credit leaves at a place. `others`: the names of the credits that left at this place before.
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

    /// Judges what both have committed now.
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
        // The credits before the last one that arrived must not wait: they have arrived, or were parked.
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
