//! What must hold for a run that has ended, and for what callers are told.

use super::{Got, Oracle, Violation, violation};
use semel_core::problem::Executed;

impl Oracle {
    /// Checks what a caller is told about a wish.
    pub fn told(&mut self, number: usize, got: Got) -> Result<(), Violation> {
        if let Got::Outcome(status, body) = &got
            && self.outcomes.get(&number.to_string()) != Some(&(*status, body.clone()))
        {
            return violation("outcome", format!("who wanted {number} is told {}", got.line()));
        }
        if let Got::Failure(code, _) = &got {
            self.see(format!("session: somebody is told {code}"));
        }
        self.wishes.entry(number).or_default().got.push(got);
        Ok(())
    }

    /// Checks the result of each wish. `is_left`: whether it is still stored, so that nobody can be told yet.
    pub fn check_end(&self, is_left: &dyn Fn(usize) -> bool) -> Result<(), Violation> {
        for (number, wish) in &self.wishes {
            let has_run = self.happened.get(&number.to_string()).is_some_and(|(key, _)| *key == wish.key);
            // A caller who was told to wait no longer has no answer yet.
            let has_answer = wish.got.iter().any(|got| !matches!(got, Got::Failure(code, _) if code == "gave-up"));
            if !has_answer && wish.is_stored && has_run && !self.has_lost_storage && !is_left(*number) {
                return violation("lost", format!("{number} ran, and nobody is told"));
            }
            for got in &wish.got {
                let is_true = match got {
                    Got::Outcome(..) | Got::Failure(_, Executed::Yes) => has_run,
                    Got::Failure(_, Executed::No) => !has_run,
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

    fn check_due(&self, number: usize, code: &str) -> Result<(), Violation> {
        let plan = &self.plan;
        let wish = &self.wishes[&number];
        let is_due = match code {
            "fenced" | "session-unknown" => true,
            "cancelled" => wish.is_given_up,
            "gave-up" => wish.is_impatient,
            "poisoned" => self.crashes.values().any(|crashes| *crashes > 0),
            "store-failed" => plan.fail_store > 0,
            // An administrator may delete the record of a cancellation.
            "outcome-expired" => {
                plan.sessions.retentions_s.iter().any(|retention_s| *retention_s < 86_400)
                    || plan.jump_ms_max > 0
                    || plan.sessions.administrations > 0
            }
            // A holder in another browser does not know who waits in this one.
            "acknowledged" => plan.browsers > 1 || self.has_lost_storage || !plan.has_locks,
            "outcome-lost" => self.has_lost_storage || !plan.has_locks,
            _ => false,
        };
        if is_due { Ok(()) } else { violation("answer", format!("{number} is answered {code}")) }
    }
}
