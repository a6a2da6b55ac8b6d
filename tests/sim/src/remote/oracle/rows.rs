//! Checks that what the key stores is what happened, and is kept.

use super::{Oracle, Story};
use crate::oracle::{Violation, violation};
use crate::remote::asked::{BY_HAND, Dealt, Errand, State, View};
use crate::remote::service::body_of;
use semel_core::server::engine::remote::Call as Sent;

impl Oracle {
    /// Checks that an outcome that nobody acknowledged, deleted or had forgotten is kept for the retention.
    pub(super) fn check_kept(
        &mut self,
        wish: usize,
        Dealt { asked, before, after, now_ms, .. }: &Dealt,
    ) -> Result<(), Violation> {
        let story = &mut self.stories[wish];
        if after.state_of(wish) == State::Executed {
            story.executed_ms.get_or_insert(*now_ms);
            return Ok(());
        }
        let executed_ms = story.executed_ms.take();
        let is_told = matches!(asked.errand, Errand::DeleteRecord | Errand::DeleteKey) || self.has_forgotten;
        if before.state_of(wish) != State::Executed || story.is_acknowledged || is_told {
            return Ok(());
        }
        if executed_ms.is_some_and(|executed_ms| *now_ms < executed_ms.saturating_add(self.retention_ms_min)) {
            let what = format!("the outcome of {wish}, of {executed_ms:?}, leaves at {now_ms} ms: {story:?}");
            return violation("kept", what);
        }
        Ok(())
    }

    /// Checks the change of a request's row, given what was asked.
    pub(super) fn check_row(&mut self, wish: usize, dealt: &Dealt) -> Result<(), Violation> {
        let Dealt { asked, settles, before, after, now_ms, .. } = dealt;
        let (was, is) = (before.state_of(wish), after.state_of(wish));
        let rows = || {
            format!(
                "{wish} went from {:?} to {:?} by {:?} of {}",
                before.0.get(&wish),
                after.0.get(&wish),
                asked.errand,
                asked.wish
            )
        };
        let row = after.0.get(&wish);
        let forgotten_s = self.forgotten_s;
        let story = &mut self.stories[wish];
        let route = story.route.name();
        let is_this = asked.wish == wish;
        match (was, is, asked.errand) {
            _ if story.is_free => {}
            (State::None | State::Other, State::InDoubt, Errand::Request) if is_this => {
                if story.first_sent_s.is_some_and(|first_sent_s| first_sent_s < forgotten_s) {
                    return violation("fence", format!("{}, first sent before {forgotten_s}: {story:?}", rows()));
                }
                story.started_ms.get_or_insert(*now_ms);
            }
            (State::InDoubt, State::InDoubt, _) => {
                let times = |view: &View| view.0.get(&wish).map(|row| row.times);
                if times(before) != times(after) {
                    if !is_this || asked.errand != Errand::Request {
                        return violation("again", rows());
                    }
                    if row.is_some_and(|row| story.is_given_up_at(row.at_ms)) {
                        return violation(
                            "answer",
                            format!("it was given up, and is sent again: {}: {story:?}", rows()),
                        );
                    }
                    story.is_taken_up = true;
                }
            }
            (State::InDoubt, State::Executed, Errand::Resolve(true)) if is_this => {
                let outcome = row.map(|row| row.outcome.clone()).unwrap_or_default();
                story.word = Some(true);
                story.check_outcome(wish, &outcome)?;
                story.outcome = Some(outcome);
                self.see("elsewhere, administrator: says that it ran");
            }
            (State::InDoubt, State::Cancelled, Errand::Resolve(false)) if is_this => {
                (story.word, story.is_denied) = (Some(false), true);
                self.see("elsewhere, administrator: says that it did not run");
            }
            (State::InDoubt, State::Executed, Errand::Request) if is_this && settles.is_some() => {
                let outcome = row.map(|row| row.outcome.clone()).unwrap_or_default();
                story.check_outcome(wish, &outcome)?;
                if story.given_up_ms.is_some() && !story.is_taken_up {
                    return violation("answer", format!("it was given up: {}", rows()));
                }
                story.outcome = Some(outcome);
                let sent = if matches!(settles, Some((Sent::Probe { .. }, ..))) { "a probe" } else { "the service" };
                self.see(format!("elsewhere, {route}: has its outcome from {sent}"));
            }
            (State::InDoubt, State::None, Errand::Request) if is_this && dealt.has_surely_not_left() => {
                if story.left.is_empty() {
                    story.started_ms = None;
                    return Ok(());
                }
                return violation("left", rows());
            }
            (State::InDoubt | State::Executed, State::Gone, Errand::DeleteRecord) if is_this => {
                story.deleted_ms.get_or_insert(*now_ms);
                self.see(format!("elsewhere, administrator: {was:?} is deleted"));
            }
            (_, State::None, Errand::DeleteKey) => {
                story.deleted_ms.get_or_insert(*now_ms);
                story.is_free = !story.is_fenced;
                self.see(format!("elsewhere, administrator: {was:?} is deleted with its key"));
            }
            (State::InDoubt, _, _) => return violation("left", rows()),
            (_, State::InDoubt, _) => return violation("again", rows()),
            (State::Executed, State::Executed, _) => {
                let outcome = |view: &View| view.0.get(&wish).map(|row| row.outcome.clone());
                if outcome(before) != outcome(after) {
                    return violation("outcome", rows());
                }
            }
            // It has an outcome, but there is no start that this belongs to.
            (_, State::Executed, _) => return violation("recorded", rows()),
            (_, State::None, _) => story.is_free = !story.is_fenced,
            _ => {}
        }
        Ok(())
    }
}

impl Story {
    /// Checks that an outcome is the service's first, or what an administrator gave.
    fn check_outcome(&self, wish: usize, outcome: &(u16, String)) -> Result<(), Violation> {
        let is_so = match self.word {
            Some(true) => outcome.1 == BY_HAND,
            Some(false) => false,
            None => {
                let is_first = self.made.first().is_none_or(|first| outcome.1 == body_of(*first));
                let is_explained = self.is_blurred() || self.said_to_misled.contains(outcome);
                self.said.contains(outcome) && (is_first || is_explained)
            }
        };
        if is_so { Ok(()) } else { violation("outcome", format!("{wish} has the outcome {outcome:?}: {self:?}")) }
    }
}
