//! What the oracle makes of a key that is put back to a backup.
//!
//! Invariants:
//! - What was promised until the backup holds: what ran is replayed, what is taken stays taken.
//! - What was said since is void. What ran since has no effect any more, and may run once more. What somebody was told
//!   of it stays said.

use super::{Oracle, Story, View};
use std::collections::{BTreeMap, BTreeSet};

/// What a backup contains of a key.
#[derive(Debug, Clone)]
pub struct Past {
    stories: BTreeMap<(String, String), Story>,
    ids: BTreeMap<(String, String), String>,
    highest: Option<i64>,
    given: BTreeMap<(String, String), (i64, i64)>,
    happened: BTreeMap<String, (String, String)>,
    ran: BTreeSet<(String, String)>,
    never: BTreeSet<(String, String)>,
    crashes: BTreeMap<(String, String), u32>,
    dead: BTreeSet<(String, String, i64)>,
    acked: BTreeSet<(String, String)>,
}

impl Oracle {
    /// What a backup of a key contains that is made now.
    pub fn past(&self, key: &str) -> Past {
        let is_its = |(at, _): &(String, String)| at == key;
        Past {
            stories: of_key(&self.stories, key),
            ids: of_key(&self.ids, key),
            highest: self.highest.get(key).copied(),
            given: of_key(&self.given, key),
            happened: self.happened.clone().into_iter().filter(|(_, (at, _))| at == key).collect(),
            ran: self.ran.iter().filter(|named| is_its(named)).cloned().collect(),
            never: self.never.iter().filter(|named| is_its(named)).cloned().collect(),
            crashes: of_key(&self.crashes, key),
            dead: self.dead.iter().filter(|(at, ..)| at == key).cloned().collect(),
            acked: self.acked.iter().filter(|named| is_its(named)).cloned().collect(),
        }
    }

    /// Whether a key was put back.
    pub fn was_put_back(&self, key: &str) -> bool {
        self.put_back.contains_key(key)
    }

    /// Whether a key may not know any more what a holder has, because it was put back since that began.
    pub fn is_behind(&self, key: &str, opened_ms: i64) -> bool {
        self.put_back.get(key).is_some_and(|put_back_ms| opened_ms <= *put_back_ms)
    }

    /// Whether a request to a key is given up.
    pub fn is_any_given_up(&self, key: &str) -> bool {
        self.wishes.values().any(|wish| wish.key == key && wish.is_given_up)
    }

    /// Takes note that a key is put back. `seen`: what it stores since, and the time. Returns whether it has given epochs
    /// since the backup, and so will give them again.
    pub fn put_back(&mut self, key: &str, past: Past, (seen, now_ms): (&View, i64)) -> bool {
        let gives_again = self.highest.get(key).copied() > past.highest;
        self.see("session: a key is put back");
        self.put_back.insert(key.to_owned(), now_ms);
        for (number, (at, _)) in self.happened.iter().filter(|(number, _)| !past.happened.contains_key(*number)) {
            if at == key
                && let Some(told) = self.outcomes.get(number)
            {
                self.undone.entry((at.clone(), number.clone())).or_default().push(told.clone());
            }
        }
        replace(&mut self.stories, past.stories, key);
        replace(&mut self.ids, past.ids, key);
        replace(&mut self.given, past.given, key);
        self.has_undone_crashes |=
            self.crashes.iter().any(|(named, n)| named.0 == key && past.crashes.get(named) != Some(n));
        replace(&mut self.crashes, past.crashes, key);
        let since = self.never.difference(&past.never).filter(|(at, _)| at == key);
        self.never_undone.extend(since.cloned());
        self.happened.retain(|_, (at, _)| at != key);
        self.happened.extend(past.happened);
        for (all, before) in [(&mut self.ran, past.ran), (&mut self.never, past.never), (&mut self.acked, past.acked)] {
            all.retain(|(at, _)| at != key);
            all.extend(before);
        }
        self.dead.retain(|(at, ..)| at != key);
        self.dead.extend(past.dead);
        match past.highest {
            Some(highest) => drop(self.highest.insert(key.to_owned(), highest)),
            None => drop(self.highest.remove(key)),
        }
        self.dies(key, seen);
        gives_again
    }
}

/// Something of a key, by the key and a name.
pub(super) type OfKey<T> = BTreeMap<(String, String), T>;

fn of_key<T: Clone>(all: &OfKey<T>, key: &str) -> OfKey<T> {
    all.iter().filter(|((at, _), _)| at == key).map(|(named, each)| (named.clone(), each.clone())).collect()
}

fn replace<T>(all: &mut OfKey<T>, before: OfKey<T>, key: &str) {
    all.retain(|(at, _), _| at != key);
    all.extend(before);
}
