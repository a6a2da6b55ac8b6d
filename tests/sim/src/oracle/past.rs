//! What the oracle makes of a key that is put back to a backup.
//!
//! Invariants:
//! - What was promised until the backup holds: what ran is replayed, what was acknowledged or cancelled does not run.
//! - What was said since is void. What ran since has no effect any more, and may run once more. What somebody was told
//!   of it stays said.

use super::{Got, IdStory, Oracle, Violation, Wish, violation};
use std::collections::BTreeMap;

/// What a backup contains.
#[derive(Debug, Clone)]
pub struct Past {
    ids: BTreeMap<String, IdStory>,
    effects: i64,
    fence_s: i64,
}

impl Oracle {
    /// What a backup of a key contains that is made now.
    pub fn past(&self, key: &str) -> Past {
        let of_key = self.ids.iter().filter(|((at, _), _)| at == key);
        Past {
            ids: of_key.map(|((_, id), story)| (id.clone(), story.clone())).collect(),
            effects: self.effects.get(key).copied().unwrap_or(0),
            fence_s: self.fences_s.get(key).copied().unwrap_or(0),
        }
    }

    /// Takes note that a key is put back.
    pub fn put_back(&mut self, key: &str, past: Past) {
        self.see("put back: a key");
        self.effects.insert(key.to_owned(), past.effects);
        self.fences_s.insert(key.to_owned(), past.fence_s);
        self.history.is_no_longer_promised(key);
        self.put_back.insert(key.to_owned());
        for ((_, id), story) in self.ids.iter_mut().filter(|((at, _), _)| at == key) {
            let was = past.ids.get(id).cloned().unwrap_or_default();
            let now = std::mem::take(story);
            if was.effects_ms.len() < now.effects_ms.len() {
                self.happened.retain(|_, ran| ran != id);
            }
            *story = IdStory {
                is_void: now.is_void || !was.is_like(&now),
                undone: now.undone.into_iter().chain(now.outcomes).collect(),
                first_sent_s: now.first_sent_s,
                said_sent_s: now.said_sent_s,
                sent_ms: now.sent_ms,
                told: now.told,
                ..was
            };
        }
    }

    /// Checks what was told of a wish, part of which is void.
    pub(super) fn check_void(&self, number: usize, wish: &Wish, story: &IdStory) -> Result<(), Violation> {
        let is_its = |told: &(u16, Vec<u8>)| story.outcomes.contains(told) || story.undone.contains(told);
        for got in wish.got.iter().chain(&wish.told) {
            if let Got::Outcome(status, body) = got
                && !is_its(&(*status, body.clone()))
            {
                return violation("outcome", format!("{number} was answered {got:?}"));
            }
        }
        Ok(())
    }
}

impl IdStory {
    /// Whether nothing was done or said of it since.
    fn is_like(&self, now: &Self) -> bool {
        let Self { effects_ms, never_ran_ms, told, kept_ms, panics, .. } = self;
        (effects_ms, never_ran_ms, told, kept_ms, panics)
            == (&now.effects_ms, &now.never_ran_ms, &now.told, &now.kept_ms, &now.panics)
    }
}
