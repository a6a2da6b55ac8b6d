//! What must hold for a run that has ended, and for what callers are told.

use super::{Got, Oracle, Violation, Wish, violation};
use crate::sessions::holder::Which;
use semel_core::problem::Executed;

impl Oracle {
    /// Checks what a caller is told about a wish by a holder of a session. `is_behind`: its key may not know any more what
    /// that has.
    pub fn told(&mut self, number: usize, (which, is_behind): (&Which, bool), got: Got) -> Result<(), Violation> {
        if let Got::Outcome(status, body) = &got
            && !self.has_been_its_outcome(number, &(*status, body.clone()))
        {
            return violation("outcome", format!("who wanted {number} is told {}", got.line()));
        }
        if let Got::Failure(code, _) = &got {
            self.see(format!("session: somebody is told {code}"));
            let is_due = is_behind && self.is_unclosed(which) || self.is_behind_missing_rows(number, which);
            if code == "sequence-gap" && !is_due {
                return violation("answer", format!("{number} of {which:?} is answered {code}"));
            }
        }
        self.wishes.entry(number).or_default().got.push(got);
        Ok(())
    }

    fn has_been_its_outcome(&self, number: usize, told: &(u16, Vec<u8>)) -> bool {
        let undone = self.wishes.get(&number).and_then(|wish| self.undone(&wish.key, number));
        self.outcomes.get(&number.to_string()) == Some(told) || undone.is_some_and(|all| all.contains(told))
    }

    /// What the handler answered to a number before its key was put back.
    fn undone(&self, key: &str, number: usize) -> Option<&Vec<(u16, Vec<u8>)>> {
        self.undone.get(&(key.to_owned(), number.to_string()))
    }

    /// Checks the result of each wish. `is_left`: whether it is still stored, so that nobody can be told yet.
    pub fn check_end(&self, is_left: &dyn Fn(usize) -> bool) -> Result<(), Violation> {
        for (number, wish) in &self.wishes {
            let ran_as = self.happened.get(&number.to_string()).filter(|(key, _)| *key == wish.key);
            let has_run = ran_as.is_some();
            // It was told so, and then its key was put back.
            let is_void = ran_as.is_some_and(|named| self.never_undone.contains(named));
            // A caller who was told to wait no longer has no answer yet.
            let has_answer = wish.got.iter().any(|got| !matches!(got, Got::Failure(code, _) if code == "gave-up"));
            if !has_answer && wish.is_stored && has_run && !self.has_lost_storage && !is_left(*number) {
                return violation("lost", format!("{number} ran, and nobody is told"));
            }
            for got in &wish.got {
                let is_true = match got {
                    Got::Outcome(..) | Got::Failure(_, Executed::Yes) => {
                        has_run || self.undone(&wish.key, *number).is_some()
                    }
                    Got::Failure(_, Executed::No) => !has_run || is_void,
                    Got::Failure(_, Executed::Unknown) => true,
                };
                if !is_true {
                    return violation("lie", format!("{number} ran: {has_run}, and its caller is told {}", got.line()));
                }
                if let Got::Failure(code, _) = got {
                    self.check_due(*number, code)?;
                }
            }
        }
        Ok(())
    }

    /// Whether something of a session may have to be closed, and can't be if its key does not know the numbers before it
    /// any more: it was given up, or could not be stored. That ends the session for all that its holder has in hand.
    fn is_unclosed(&self, which: &Which) -> bool {
        let mut all = self.wishes.values().filter(|wish| wish.which.as_ref() == Some(which));
        all.any(|wish| wish.is_given_up || wish.is_unstored())
    }

    /// Whether a request was given up, and earlier ones of its tab have no row: they were lost with a store, or could not be
    /// stored where nobody can tell who lives. Another tab that takes it over then can't close its place.
    fn is_behind_missing_rows(&self, number: usize, which: &Which) -> bool {
        let Some(wish) = self.wishes.get(&number).filter(|wish| wish.is_given_up && !wish.is_row_lost) else {
            return false;
        };
        let mut earlier = self.wishes.values().filter(|other| other.tab == wish.tab && other.turn < wish.turn);
        let is_missing = |other: &Wish| other.is_row_lost || !self.plan.has_locks && other.is_unstored();
        earlier.any(|other| other.which.as_ref() == Some(which) && is_missing(other))
    }

    fn check_due(&self, number: usize, code: &str) -> Result<(), Violation> {
        let plan = &self.plan;
        let wish = &self.wishes[&number];
        let is_due = match code {
            "fenced" | "session-unknown" => true,
            "cancelled" => wish.is_given_up,
            "gave-up" => wish.is_impatient,
            "poisoned" => self.has_undone_crashes || self.crashes.values().any(|crashes| *crashes > 0),
            "store-failed" => plan.fail_store > 0,
            // An administrator may delete the record of a cancellation.
            "outcome-expired" => {
                plan.sessions.retentions_s.iter().any(|retention_s| *retention_s < 86_400)
                    || plan.jump_ms_max > 0
                    || plan.sessions.administrations > 0
            }
            // A holder in another browser does not know who waits in this one.
            "acknowledged" => plan.browsers > 1 || self.has_lost_storage || !plan.has_locks,
            // Whether its holder may tell of that is checked when it does.
            "sequence-gap" => true,
            "outcome-lost" => self.has_lost_storage || !plan.has_locks,
            _ => false,
        };
        if is_due { Ok(()) } else { violation("answer", format!("{number} is answered {code}")) }
    }
}

impl Wish {
    /// Whether its caller was told that it could not be stored.
    fn is_unstored(&self) -> bool {
        self.got.iter().any(|got| matches!(got, Got::Failure(code, _) if code == "store-failed"))
    }
}
