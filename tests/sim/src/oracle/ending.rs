//! What must hold of a run that has ended.

use super::{Got, IdStory, Oracle, Violation, Wish, violation};
use crate::snapshot::Snapshot;
use semel_core::client::KEPT_S_MAX;
use semel_core::problem::Executed;

impl Oracle {
    /// Checks what each wish came to, and that nothing happened of which nobody was told.
    pub fn check_end<'a>(&self, keys: impl Iterator<Item = (&'a str, &'a Snapshot)>) -> Result<(), Violation> {
        for (key, seen) in keys {
            if seen.effects != self.effects.get(key).copied().unwrap_or(0) {
                return violation("effects", format!("{key} has {} effects, other than were seen", seen.effects));
            }
            for (number, wish) in self.wishes.iter().filter(|(_, wish)| wish.key == key && wish.browser.is_some()) {
                let state = seen.state_of(&wish.id);
                if matches!(state, "executed" | "poisoned") && !wish.is_lost && !wish.is_reused() {
                    return violation("unacknowledged", format!("{number} is left {state} at {key}"));
                }
            }
        }
        for (&number, wish) in &self.wishes {
            let story = self.ids.get(&(wish.key.clone(), wish.id.clone()));
            self.check_wish(number, wish, story.unwrap_or(&IdStory::default()))?;
        }
        self.history.check(|number| self.happened.contains_key(&number.to_string()))
    }

    fn check_wish(&self, number: usize, wish: &Wish, story: &IdStory) -> Result<(), Violation> {
        let effects = story.effects_ms.len();
        if wish.is_reused() {
            return Ok(());
        }
        for got in wish.got.iter().chain(&wish.told) {
            self.check_got(number, wish, story, got)?;
        }
        // What may run again without first-sent may have several outcomes.
        let is_one = effects <= 1;
        let outcomes = wish.got.iter().chain(&wish.told).filter(|got| matches!(got, Got::Outcome(..)));
        if is_one && outcomes.collect::<Vec<_>>().windows(2).any(|pair| pair[0] != pair[1]) {
            return violation(
                "outcome",
                format!("{number} was answered in several ways: {:?}, {:?}", wish.got, wish.told),
            );
        }
        if wish.browser.is_none() || wish.is_lost {
            return Ok(());
        }
        match (wish.is_stored, !wish.is_told()) {
            // Its tab closed before it was in the store.
            (false, true) if effects > 0 => violation("lost", format!("{number} ran, never stored")),
            (true, true) => violation("lost", format!("nobody got the answer to {number}")),
            _ => Ok(()),
        }
    }

    /// Whether what a caller got is true, and as much as could be said.
    fn check_got(&self, number: usize, wish: &Wish, story: &IdStory, got: &Got) -> Result<(), Violation> {
        let effects = story.effects_ms.len();
        let (code, executed) = match got {
            Got::Outcome(status, body) if story.outcomes.contains(&(*status, body.clone())) && effects > 0 => {
                return Ok(());
            }
            Got::Outcome(..) => return violation("outcome", format!("{number} was answered {got:?}")),
            Got::Failure(code, executed) => (code.as_str(), executed),
        };
        let is_true = match executed {
            // By hand, it may be cancelled in a way that says nothing of what was before.
            Executed::No if wish.browser.is_none() && code == "cancelled" => true,
            Executed::No => effects == 0 || story.first_sent_s.is_none(),
            // What is refused may be the cancellation, which ran.
            Executed::Yes => effects > 0 || (wish.browser.is_none() && wish.is_given_up),
            Executed::Unknown => true,
        };
        if !is_true {
            return violation("lie", format!("{number} ran {effects} times: {got:?}"));
        }
        let is_due = match code {
            "store-failed" => self.plan.fail_store > 0,
            // Without its row, nobody knows what came of it, nor that it was acknowledged.
            "acknowledged" => wish.is_lost,
            // Who asks, or is called again, after it was settled.
            "outcome-lost" => wish.is_lost || wish.is_shared || self.may_be_overslept(),
            "fingerprint-mismatch" => wish.is_disputed,
            // Of what another tab sees to, only the waiting ends.
            "gave-up" => wish.is_shared && wish.is_given_up,
            // By its key, or by the client alone of what has never left.
            "cancelled" => (wish.is_given_up || story.is_administered) && (story.told.contains(code) || !wish.is_sent),
            "outside-window" | "forgotten" | "poisoned" => story.told.contains(code),
            "outcome-expired" if story.is_administered && story.told.contains(code) => true,
            // Whoever sends by hand without first-sent may learn that it is too late.
            "outcome-expired" => {
                wish.browser.is_none() && (story.told.contains(code) || self.is_told_of_cancellation(wish, code))
            }
            _ => false,
        };
        if is_due { Ok(()) } else { violation("answer", format!("{number} was answered {got:?}")) }
    }

    /// Whether what another tab has kept for one that is frozen may be gone when that wakes up: after a day, as far as the server's clock jumps.
    fn may_be_overslept(&self) -> bool {
        let jumped_ms = self.plan.jump_ms_max.saturating_mul(self.plan.jumps as i64);
        self.plan.freezes > 0 && jumped_ms > KEPT_S_MAX * 1000
    }

    /// Whether an id may be that of the other payload which was tried under it: an administrator has deleted what was there, and whichever came first since
    /// counted as new.
    pub fn may_be_anothers(&self, number: usize) -> bool {
        let Some(wish) = self.wishes.get(&number).filter(|wish| wish.is_disputed) else { return false };
        let story = self.ids.get(&(wish.key.clone(), wish.id.clone()));
        story.is_some_and(|story| story.is_administered && story.first_sent_s.is_none())
    }

    /// Whether a key said so of the cancellation itself.
    fn is_told_of_cancellation(&self, wish: &Wish, code: &str) -> bool {
        let own = (wish.key.clone(), format!("cancel-{}", wish.id));
        self.ids.get(&own).is_some_and(|story| story.told.contains(code))
    }
}
