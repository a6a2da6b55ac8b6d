//! What must hold of callers that wait no longer.
//!
//! Invariants:
//! - When the time of a caller is over, and not before, all who wait for the request in that tab are told.
//! - They are told neither whether it ran nor that it won't. The request goes on, and its result is judged as if nobody had been
//!   told.

use super::{Got, Oracle, Violation, violation};
use crate::tab::Caller;
use semel_core::client::Failure;
use semel_core::problem::{Executed, Retry};

impl Oracle {
    /// All who wait for a request in a tab are told to wait no longer, at this time of the tab's clock.
    pub fn released(
        &mut self,
        number: usize,
        callers: &[Caller],
        failure: &Failure,
        now_ms: i64,
    ) -> Result<(), Violation> {
        let Failure { code, executed, retry, .. } = failure;
        if (code.as_str(), *executed, *retry) != ("gave-up", Executed::Unknown, Retry::SameId) {
            return violation("lie", format!("who waits no longer for {number} is told {failure:?}"));
        }
        if !callers.iter().any(|caller| caller.until_ms.is_some_and(|until_ms| until_ms <= now_ms)) {
            return violation("patience", format!("{number} was waited for no longer at {now_ms}, by {callers:?}"));
        }
        self.see("waiting: the time of a caller is over");
        if callers.len() > 1 {
            self.see("waiting: the time of several is over");
        }
        let wish = self.of(number);
        wish.is_released = true;
        let (is_given_up, is_sent) = (wish.is_given_up, wish.is_sent);
        if is_given_up {
            self.see("waiting: it is over while what was given up is being cancelled");
        }
        if !is_sent {
            self.see("waiting: it is over before anything was sent");
        }
        Ok(())
    }

    /// An answer comes for which nobody waits.
    pub fn recovered(&mut self, number: usize, got: &Got) {
        if !self.of(number).is_released {
            return;
        }
        let what = match got {
            Got::Outcome(..) => "its outcome",
            Got::Failure(code, _) => code,
        };
        self.see(format!("waiting: comes when nobody waits any more: {what}"));
    }
}
