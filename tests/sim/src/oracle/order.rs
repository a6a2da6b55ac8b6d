//! What must hold of requests that a tab makes in order at a key, whoever sends them.
//!
//! Invariants:
//! - A request takes effect only after each earlier one has taken effect or is answered, or never will: because it was given up,
//!   or was lost with the store or before it was stored.
//! - No request takes effect after one that was asked for later, not even a request that was given up.

use super::{Oracle, Violation, violation};
use crate::letter::Sender;

impl Oracle {
    /// A wish takes effect for the first time.
    pub(super) fn check_order(&mut self, number: usize, from: Sender) -> Result<(), Violation> {
        let Some((at, lane)) = self.place_of(number) else { return Ok(()) };
        // What was undone may come once more.
        if self.put_back.contains(&self.wishes[&number].key) {
            return Ok(());
        }
        let has_run = |number: &usize| self.happened.contains_key(&number.to_string());
        let is_over = |before: &&usize| {
            let wish = &self.wishes[before];
            has_run(before) || wish.is_answered || wish.is_given_up || wish.is_lost || !wish.is_stored
        };
        if let Some(before) = lane[..at].iter().find(|before| !is_over(before)) {
            return violation("order", format!("{number} ran before {before}, which its tab had asked for before"));
        }
        let later = lane[at + 1..].iter().find(|later| has_run(later));
        if let Some(later) = later.filter(|_| !self.wishes[&number].is_lost) {
            return violation("order", format!("{number} ran after {later}, which its tab had asked for later"));
        }
        let maker = self.wishes[&number].in_order_of;
        let is_taken_over = matches!(from, Sender::Tab { tab, .. } if Some(tab) != maker);
        if is_taken_over && lane[..at].iter().any(has_run) {
            self.see("order: a request had its turn in a tab that took it over");
        }
        Ok(())
    }

    /// Whether a wish has to wait for its turn.
    pub(super) fn has_to_wait(&self, number: usize) -> bool {
        let before = self.place_of(number).map(|(at, lane)| lane[..at].to_vec()).unwrap_or_default();
        before.iter().any(|before| !self.wishes[before].is_answered)
    }

    fn place_of(&self, number: usize) -> Option<(usize, Vec<usize>)> {
        let wish = self.wishes.get(&number)?;
        let lane = self.in_order.get(&(wish.in_order_of?, wish.key.clone()))?;
        Some((lane.iter().position(|each| *each == number)?, lane.clone()))
    }
}
