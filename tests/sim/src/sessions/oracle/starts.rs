//! What must hold for the counts of started suspects, and what they may be blamed for.

use super::{Asked, Dealt, Oracle, Violation, violation};
use crate::sessions::view::View;

impl Oracle {
    /// Takes note that the object of a key dies or is stopped: what it has started and not ended never ends.
    pub fn dies(&mut self, key: &str, seen: &View) {
        let started = seen.started.iter().map(|(name, crashes)| (key.to_owned(), name.clone(), *crashes));
        self.dead.extend(started);
    }

    /// Checks that a start that ended no longer counts, and that the start of an object that died counts until it is
    /// counted as a crash.
    pub(super) fn check_starts(&mut self, dealt: &Dealt) -> Result<(), Violation> {
        if dealt.has_crashed {
            self.dies(&dealt.key, &dealt.after);
            return Ok(());
        }
        if dealt.is_uncounted {
            self.see("server: a start can't be counted");
            if !dealt.effects.is_empty() || !dealt.panicked.is_empty() {
                return violation("uncounted", format!("{} ran, and its start was not counted", dealt.line()));
            }
        }
        for (asked, reply) in dealt.asked.iter().zip(&dealt.replies) {
            let (name, code) = (asked.name(), reply.only("semel-status"));
            if code == "attempt-expired" {
                let is_its = |(started, crashes): &&(String, i64)| {
                    *started == name && self.dead.contains(&(dealt.key.clone(), name.clone(), *crashes))
                };
                let before = dealt.before.started.iter().find(is_its);
                if before.is_some() {
                    self.see("server: what a dead object has started comes too late");
                }
                if let Some(before) = before.filter(|before| !dealt.after.started.contains(before)) {
                    return violation(
                        "uncounted",
                        format!("{before:?} ended an object, and a late attempt takes it back"),
                    );
                }
            }
            let is_new = |(started, crashes): &(String, i64)| {
                *started == name && !dealt.before.started.contains(&(name.clone(), *crashes))
            };
            if dealt.after.started.iter().any(is_new) && !is_unavailable(dealt, &name) {
                return violation("blamed", format!("{name} was started, is {code}, and counts as what never ended"));
            }
        }
        Ok(())
    }

    /// Counts crashes. Any request of a message that crashed may have crashed; a panic is of its number. A start whose
    /// end nobody has written is taken for a dead object's, once what its own object knows is lost.
    pub(super) fn count_crashes(&mut self, dealt: &Dealt) {
        let died = dealt.asked.iter().filter(|_| dealt.has_crashed);
        let its = |number: &String| dealt.asked.iter().find(|asked| asked.number == *number);
        let panicked = dealt.panicked.iter().filter_map(its);
        let mut crashed: Vec<String> = died.chain(panicked).map(Asked::name).collect();
        if !dealt.has_crashed {
            let left = dealt.after.started.difference(&dealt.before.started).map(|(name, _)| name.clone());
            let before = crashed.len();
            crashed.extend(left);
            crashed.extend(left_and_found(dealt));
            if crashed.len() > before {
                self.see("server: nobody writes that a start ended");
            }
        }
        for name in crashed {
            *self.crashes.entry((dealt.key.clone(), name)).or_default() += 1;
        }
    }
}

/// Requests whose answer said that the storage failed, and that are in the same message once more: the second finds the
/// start of the first.
fn left_and_found(dealt: &Dealt) -> impl Iterator<Item = String> + '_ {
    let names: Vec<String> = dealt.asked.iter().map(Asked::name).collect();
    dealt.replies.iter().enumerate().filter_map(move |(at, reply)| {
        let (name, rest) = names.get(at..)?.split_first()?;
        (reply.only("semel-status") == "unavailable" && rest.contains(name)).then(|| name.clone())
    })
}

/// Whether an attempt of the request was told that the storage failed, so that its end may not be written.
fn is_unavailable(dealt: &Dealt, name: &str) -> bool {
    let mut all = dealt.asked.iter().zip(&dealt.replies);
    all.any(|(asked, reply)| asked.name() == name && reply.only("semel-status") == "unavailable")
}
