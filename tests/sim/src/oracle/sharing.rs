//! What must hold for an id that several calls use or wait for.
//!
//! Invariants:
//! - Nobody is told the outcome of another payload than their own, nor anything that another identity made.
//! - All effects of an id have the same payload.
//! - A tab that waits for a pending request of another gets its answer. It is told `outcome-lost` only if the store was
//!   lost, or the request was taken back.
//! - Nobody else is told `outcome-lost` either before somebody has had the answer, unless there was no such request when
//!   the tab looked.

use super::{Got, OTHER_PAYLOAD, Oracle, Violation, Wish, violation};
use crate::snapshot::Effect;
use crate::tab::{Caller, DRIFT_MS_MAX};
use semel_core::client::KEPT_S_MAX;
use semel_core::problem::Executed;

/// The codes that only say that nothing is known here.
const UNKNOWN: [&str; 3] = ["outcome-lost", "fingerprint-mismatch", "gave-up"];

impl Oracle {
    /// Takes note that a row was made for an id. A second row is another request: the application used the id after it
    /// was answered or lost.
    pub fn stored_anew(&mut self, number: usize) {
        let wish = self.of(number);
        wish.rows += 1;
        if wish.rows > 1 {
            let key = wish.key.clone();
            self.see("id: used again when its row was gone");
            self.history.is_no_longer_promised(&key);
        }
    }

    /// Takes note of how far the worker's clock is ahead, in ms.
    pub fn worker_is_at(&mut self, ahead_ms: i64) {
        let (least_ms, most_ms) = self.worker_ahead_ms;
        self.worker_ahead_ms = (least_ms.min(ahead_ms), most_ms.max(ahead_ms));
    }

    /// Checks that an answer that was kept for another tab was kept for a day, by the worker's clock as any tab may know
    /// it, perhaps of before a jump. A tab whose own clock jumps far knows none. If the id was used again, somebody may
    /// have acknowledged the former request late.
    pub fn dropped(&mut self, number: usize, now_ms: i64) -> Result<(), Violation> {
        let (least_ms, most_ms) = self.worker_ahead_ms;
        let drift_ms = DRIFT_MS_MAX * self.plan.jumps as i64;
        if !self.of(number).is_reused() && now_ms + most_ms - least_ms + drift_ms <= KEPT_S_MAX * 1000 {
            return violation("kept", format!("the answer to {number} is gone at {now_ms} ms"));
        }
        self.of(number).is_dropped = true;
        Ok(())
    }

    /// Takes note that a tab found the request pending, and waits for its answer.
    pub fn joined(&mut self, number: usize, tab: usize) {
        self.of(number).joined.insert(tab);
    }

    /// Checks what a caller in a tab is told of an id.
    pub fn tell(
        &mut self,
        number: usize,
        tab: usize,
        principal: &str,
        caller: Caller,
        got: Got,
    ) -> Result<(), Violation> {
        let wish = &self.wishes[&number];
        if principal != wish.principal {
            let is_nothing = matches!(&got, Got::Failure(code, Executed::Unknown) if code == "outcome-lost");
            self.see("id: asked for by another identity");
            let told = || violation("stranger", format!("{principal} was told of {number}: {got:?}"));
            return if is_nothing { Ok(()) } else { told() };
        }
        // An outcome that is no answer of an account at all is judged at the end.
        let is_of = |body: &[u8], payload: &str| body.starts_with(format!("{{\"number\":\"{payload}").as_bytes());
        if let (Got::Outcome(_, body), Some(payload)) = (&got, caller.payload)
            && is_of(body, "")
            && !is_of(body, &format!("{payload}\""))
        {
            return violation("payload", format!("who asked for {payload} was told {}", got.line()));
        }
        let is_lost = matches!(&got, Got::Failure(code, _) if code == "outcome-lost");
        // A call with another payload under the id, made before the tab knows what it waits for, has taken the place of
        // the one that waits.
        let has_joined = wish.joined.contains(&tab) && !wish.is_disputed;
        if is_lost && has_joined && !wish.is_lost && wish.is_stored && wish.rows < 2 {
            return violation("lost", format!("tab-{tab} waited for {number} while it was pending, and it is lost"));
        }
        if matches!(&got, Got::Failure(code, _) if code == "fingerprint-mismatch") {
            self.see("id: another payload is refused across tabs");
        }
        self.check_lost(number, tab, &got)?;
        if caller.is_first {
            self.deliver(number, got);
        } else {
            if let Got::Outcome(_, body) = &got {
                self.history.returned(number, body);
            }
            self.of(number).told.push(got);
        }
        Ok(())
    }

    /// Takes note that a tab looked for a request that it does not have in hand, and found none.
    pub fn looked_in_vain(&mut self, number: usize, tab: usize) {
        let wish = self.of(number);
        if wish.is_stored {
            wish.missed.remove(&tab);
        } else {
            wish.missed.insert(tab);
        }
    }

    /// Checks that nobody is told that an answer is lost, unless somebody has had it by then, or there was no such request
    /// when the tab looked for it.
    pub fn check_lost(&self, number: usize, tab: usize, got: &Got) -> Result<(), Violation> {
        let wish = &self.wishes[&number];
        let is_lost = matches!(got, Got::Failure(code, _) if code == "outcome-lost");
        let is_excused = wish.is_lost || wish.is_dropped || wish.is_reused();
        if !is_lost || is_excused || wish.is_shared && (wish.is_told() || wish.missed.contains(&tab)) {
            return Ok(());
        }
        violation("lost", format!("tab-{tab} is told that the answer to {number} is lost, and nobody has had it"))
    }

    /// Whether an id was used again after its row was gone. It is new to its key once its tombstone has lapsed.
    pub(super) fn is_used_again(&self, id: &str) -> bool {
        self.numbers.get(id).is_some_and(|number| self.wishes[number].is_reused())
    }

    /// Checks that all effects of a shared id have the same payload.
    pub(super) fn check_payload(&mut self, key: &str, effect: &Effect) -> Result<(), Violation> {
        let Some(wish) = self.numbers.get(&effect.id).and_then(|number| self.wishes.get(number)) else { return Ok(()) };
        if !wish.is_shared || wish.is_reused() {
            return Ok(());
        }
        if effect.number.parse().is_ok_and(|number: usize| number >= OTHER_PAYLOAD) {
            self.history.is_no_longer_promised(key);
        }
        let other = self.happened.iter().find(|(number, id)| **id == effect.id && **number != effect.number);
        match other {
            Some((other, id)) => violation("payload", format!("{id} ran with {other} and with {}", effect.number)),
            None => Ok(()),
        }
    }
}

impl Wish {
    /// Whether the id was used again when nothing was promised of it any more.
    pub(super) fn is_reused(&self) -> bool {
        self.rows > 1
    }

    /// Whether anybody has the answer.
    pub(super) fn is_told(&self) -> bool {
        let is_answer = |got: &Got| !matches!(got, Got::Failure(code, _) if UNKNOWN.contains(&code.as_str()));
        self.got.iter().chain(&self.told).any(is_answer)
    }
}
