//! What must hold of a run that has ended.

use super::{Got, IdStory, Oracle, Violation, Wish, violation};
use crate::snapshot::Snapshot;
use semel_core::problem::Executed;

impl Oracle {
    /// Checks what came of each wish, and that there is no effect that the oracle was not told of.
    pub fn check_end<'a>(&self, keys: impl Iterator<Item = (&'a str, &'a Snapshot)>) -> Result<(), Violation> {
        for (key, seen) in keys {
            if seen.effects != self.effects.get(key).copied().unwrap_or(0) {
                return violation("effects", format!("{key} has {} effects, other than were seen", seen.effects));
            }
            for (number, wish) in self.wishes.iter().filter(|(_, wish)| wish.key == key && wish.browser.is_some()) {
                let state = seen.state_of(&wish.id);
                let story = self.ids.get(&(key.to_owned(), wish.id.clone()));
                let is_void = story.is_some_and(|story| story.is_void);
                if matches!(state, "executed" | "poisoned") && !wish.is_lost && !wish.is_reused() && !is_void {
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
        if story.is_void {
            self.check_void(number, wish, story)?;
        }
        for got in wish.got.iter().chain(&wish.told).filter(|_| !story.is_void) {
            self.check_got(number, wish, story, got)?;
        }
        // Without first-sent, a request may run again and have several outcomes.
        let is_one = effects <= 1 && !story.is_void;
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
            // The tab closed before the request was stored, so it must not have run.
            (false, true) if effects > 0 => violation("lost", format!("{number} ran, never stored")),
            (true, true) => violation("lost", format!("nobody got the answer to {number}")),
            _ => Ok(()),
        }
    }

    /// Whether what a caller got is true, and says as much as could be known.
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
            // A request by hand may be cancelled without first-sent, which says nothing of what was before.
            Executed::No if wish.browser.is_none() && code == "cancelled" => true,
            Executed::No => effects == 0 || story.first_sent_s.is_none(),
            // The refused request may be the cancellation, which ran.
            Executed::Yes => effects > 0 || (wish.browser.is_none() && wish.is_given_up),
            Executed::Unknown => true,
        };
        if !is_true {
            return violation("lie", format!("{number} ran {effects} times: {got:?}"));
        }
        let is_due = match code {
            "store-failed" => self.plan.fail_store > 0,
            // Without its row, the client doesn't know what came of the request, nor that it was acknowledged.
            "acknowledged" => wish.is_lost,
            // Whether the answer may be lost is checked when somebody is told so.
            "outcome-lost" => wish.browser.is_some(),
            "fingerprint-mismatch" => wish.is_disputed,
            // If another tab has the request in hand, giving up ends only the waiting.
            "gave-up" => wish.is_shared && wish.is_given_up,
            // The key has cancelled it, or the client alone withdrew a request that had never left.
            "cancelled" => (wish.is_given_up || story.is_administered) && (story.told.contains(code) || !wish.is_sent),
            "outside-window" | "forgotten" | "poisoned" => story.told.contains(code),
            "outcome-expired" if story.is_administered && story.told.contains(code) => true,
            // A client by hand that sends without first-sent may learn that it is too late.
            "outcome-expired" => {
                wish.browser.is_none() && (story.told.contains(code) || self.is_told_of_cancellation(wish, code))
            }
            _ => false,
        };
        if is_due { Ok(()) } else { violation("answer", format!("{number} was answered {got:?}")) }
    }

    /// Whether the id may belong to the other payload that was tried under it: an administrator has deleted the record, and the
    /// next attempt of either payload counted as new.
    pub fn may_be_anothers(&self, number: usize) -> bool {
        let Some(wish) = self.wishes.get(&number).filter(|wish| wish.is_disputed) else { return false };
        let story = self.ids.get(&(wish.key.clone(), wish.id.clone()));
        story.is_some_and(|story| story.is_administered && story.first_sent_s.is_none())
    }

    /// Whether the key said this of the cancellation itself.
    fn is_told_of_cancellation(&self, wish: &Wish, code: &str) -> bool {
        let own = (wish.key.clone(), format!("cancel-{}", wish.id));
        self.ids.get(&own).is_some_and(|story| story.told.contains(code))
    }
}
