//! What the machine does when the host reports the result of a row's change.
//!
//! Invariants:
//! - A request of this tab leaves the hand only once its row is settled or gone, or another tab has taken it and no
//!   caller waits here.
//! - If another tab has settled a request, a caller here gets the answer that the row keeps, or a failure, never an
//!   invented outcome.

use super::ACK_RIDE_MS;
use super::action::{Action, Ticket};
use super::failure::{ClientCode, Failure};
use super::in_hand::{Request, Stage};
use super::machine::Client;
use super::request::Aim;
use super::row::{Answered, Change, Changed};
use super::sending::{other_payload, withdrawn};
use super::verdict::Sent;
use std::rc::Rc;

impl Client {
    /// Reports the result of an [`Action::Change`]. `None`: the store failed. It may have made the change all the same;
    /// where that matters to a caller, `sdk/js/semel.js` tells it `unknown`.
    pub fn changed(&mut self, now_ms: i64, ticket: Ticket, changed: Option<Changed>) {
        let Some(mut request) = self.requests.remove(&ticket) else { return };
        let stage = std::mem::replace(&mut request.stage, Stage::Paused);
        let is_made = changed.is_some();
        let stays = match stage {
            Stage::Adding => self.added(now_ms, ticket, &mut request, changed),
            Stage::Watching { .. } => self.watched(now_ms, ticket, &mut request, changed),
            Stage::Adopting { is_shared } => self.adopted(now_ms, ticket, &mut request, changed, is_shared),
            Stage::Raising { aim, deadline_ms } => {
                self.raised(now_ms, ticket, &mut request, changed, (aim, deadline_ms))
            }
            Stage::Withdrawing => self.withdrawn(now_ms, ticket, &mut request, changed),
            Stage::Looking(failure) => self.looked(now_ms, ticket, &mut request, changed, failure),
            Stage::Settling(answered) => self.settled(now_ms, &mut request, changed, answered),
            other => {
                request.stage = other;
                true
            }
        };
        if stays {
            // It was given up meanwhile. That is stored at once, whether or not anything may be sent.
            let is_untold = is_made && request.is_cancelling && !request.entry.is_cancelling;
            self.requests.insert(ticket, request);
            if is_untold {
                self.raise(now_ms, ticket);
            }
        }
        self.advance(now_ms);
    }

    /// Handles the report that the row was to be added. Returns, as all these methods do, whether the request stays in hand.
    fn added(&mut self, now_ms: i64, ticket: Ticket, request: &mut Request, changed: Option<Changed>) -> bool {
        match changed {
            Some(Changed::Pending(entry))
                if entry.draft == request.entry.draft && entry.outbox == self.settings.outbox =>
            {
                if entry.owner != self.settings.owner {
                    // Another tab made the same request under this id.
                    request.entry.maker = entry.maker;
                    request.watch(&mut self.actions, ticket, &self.settings.outbox);
                    return true;
                }
                let may_go = !request.is_cancelling && self.may_leave(ticket, request);
                match (entry.first_sent_s, entry.until_ms) {
                    (Some(first_sent_s), Some(deadline_ms)) if may_go => {
                        self.send(now_ms, ticket, request, Aim::Execute, Sent { first_sent_s, deadline_ms });
                    }
                    _ => request.stage = Stage::Waiting { due_ms: now_ms },
                }
            }
            found => {
                let failure = match found {
                    Some(Changed::Settled(settled)) if settled.outbox == self.settings.outbox => {
                        ClientCode::OutcomeLost.into()
                    }
                    Some(Changed::Pending(_) | Changed::Settled(_)) => other_payload(),
                    Some(Changed::Gone | Changed::Withdrawn) | None => ClientCode::StoreFailed.into(),
                };
                request.is_stored = false;
                request.fail(&mut self.actions, ticket, failure);
            }
        }
        true
    }

    pub(super) fn ask_to_watch(&mut self, ticket: Ticket) {
        if let Some(request) = self.requests.get_mut(&ticket) {
            request.watch(&mut self.actions, ticket, &self.settings.outbox);
        }
    }

    /// Handles the look at the row of another tab's request, for whose answer a caller waits here.
    fn watched(&mut self, now_ms: i64, ticket: Ticket, request: &mut Request, changed: Option<Changed>) -> bool {
        // The row of another outbox is none of this request's, whatever its id. Nor is a row that the maker has made
        // anew under the id.
        let is_own = match &changed {
            Some(Changed::Pending(entry)) => entry.outbox == self.settings.outbox && request.may_be(entry),
            Some(Changed::Settled(settled)) => settled.outbox == self.settings.outbox,
            _ => true,
        };
        let changed = if is_own { changed } else { Some(Changed::Gone) };
        match changed {
            Some(Changed::Settled(_) | Changed::Gone | Changed::Withdrawn) => {
                return self.settled_elsewhere(ticket, request, changed, ClientCode::OutcomeLost.into());
            }
            // It was given up here before it was known that another tab sends it.
            Some(Changed::Pending(entry)) if request.is_cancelling && !entry.is_cancelling => {
                return self.settled_elsewhere(ticket, request, None, ClientCode::GaveUp.into());
            }
            Some(Changed::Pending(entry)) => {
                let known = std::mem::replace(&mut request.entry, entry);
                // Each attempt raises `until`, so a row with the same `until` and owner as before had none.
                let is_idle = known.until_ms == request.entry.until_ms && known.owner == request.entry.owner;
                if !is_idle || self.is_offline {
                    request.not_before_ms = now_ms + 2 * self.settings.attempt_timeout_ms;
                } else if request.is_neglected(now_ms) {
                    request.adopt(&mut self.actions, ticket, &self.settings.owner, true);
                    return true;
                }
            }
            None => {}
        }
        request.stage = Stage::Watching { due_ms: Some(now_ms + self.settings.retry_interval_ms) };
        request.has_caller
    }

    /// Handles the deletion of a row. The request was given up before any attempt left, as far as this tab knew.
    fn withdrawn(&mut self, now_ms: i64, ticket: Ticket, request: &mut Request, changed: Option<Changed>) -> bool {
        match changed {
            Some(Changed::Withdrawn) => {
                request.is_stored = false;
                request.fail(&mut self.actions, ticket, withdrawn());
                true
            }
            // Another tab has sent it.
            Some(Changed::Pending(entry)) => {
                request.entry = entry;
                request.stage = Stage::Waiting { due_ms: now_ms };
                true
            }
            None => {
                request.stage = Stage::Waiting { due_ms: now_ms + self.settings.retry_interval_ms };
                true
            }
            // Another tab may have sent and settled it.
            Some(Changed::Settled(_) | Changed::Gone) => {
                self.settled_elsewhere(ticket, request, changed, ClientCode::OutcomeLost.into())
            }
        }
    }

    /// Asks to take a request over from the owner that its row names.
    pub(super) fn ask_to_adopt(&mut self, ticket: Ticket, is_shared: bool) {
        let by = self.settings.owner.clone();
        self.with(ticket, |request, actions| request.adopt(actions, ticket, &by, is_shared));
    }

    fn adopted(
        &mut self,
        now_ms: i64,
        ticket: Ticket,
        request: &mut Request,
        changed: Option<Changed>,
        is_shared: bool,
    ) -> bool {
        match changed {
            Some(Changed::Pending(entry)) if entry.owner == self.settings.owner => {
                // It may have been given up here while it was being taken over.
                request.is_cancelling |= entry.is_cancelling;
                request.entry = entry;
                request.stage = Stage::Waiting { due_ms: now_ms };
                true
            }
            // Another tab has it now, and a caller waits here.
            Some(_) if request.has_caller => {
                request.watch(&mut self.actions, ticket, &self.settings.outbox);
                true
            }
            None => {
                request.stage = Stage::Unadopted { due_ms: now_ms + self.settings.retry_interval_ms, is_shared };
                true
            }
            // Another tab has it. A request here has to wait for it, so both tabs send it, and it is shared.
            Some(Changed::Pending(entry)) if self.requests.values().any(|other| other.entry.comes_after(&entry)) => {
                request.entry = entry;
                request.adopt(&mut self.actions, ticket, &self.settings.owner, true);
                true
            }
            // Another tab has it, or it was settled meanwhile.
            Some(_) => false,
        }
    }

    fn raised(
        &mut self,
        now_ms: i64,
        ticket: Ticket,
        request: &mut Request,
        changed: Option<Changed>,
        (aim, deadline_ms): (Aim, i64),
    ) -> bool {
        let Some(found) = &changed else {
            request.stage = Stage::Waiting { due_ms: now_ms + self.settings.retry_interval_ms };
            return true;
        };
        match found.leave(&request.entry) {
            Some(entry) => {
                let first_sent_s = entry.first_sent_s.unwrap_or_default();
                // It was given up during the transaction, so this attempt is no longer the right one. Or it is stored
                // as given up, but the server asked for no attempt yet.
                let is_early = request.is_cancelling && (!entry.is_cancelling || request.not_before_ms > now_ms);
                request.entry = entry;
                // Not before the instant that the server asked for.
                request.stage = Stage::Waiting { due_ms: request.not_before_ms.max(now_ms) };
                if !is_early && self.places() > 0 {
                    self.send(now_ms, ticket, request, aim, Sent { first_sent_s, deadline_ms });
                }
                true
            }
            None => self.settled_elsewhere(ticket, request, changed, ClientCode::OutcomeLost.into()),
        }
    }

    fn looked(
        &mut self,
        now_ms: i64,
        ticket: Ticket,
        request: &mut Request,
        changed: Option<Changed>,
        failure: Failure,
    ) -> bool {
        match changed {
            Some(Changed::Pending(_)) => {
                request.fail(&mut self.actions, ticket, failure);
                true
            }
            Some(_) => self.settled_elsewhere(ticket, request, changed, failure),
            None => {
                request.stage = Stage::Waiting { due_ms: now_ms + self.settings.retry_interval_ms };
                true
            }
        }
    }

    /// Another tab has delivered the answer. A caller here gets it from the row, or `failure` if the row does not keep
    /// it.
    fn settled_elsewhere(
        &mut self,
        ticket: Ticket,
        request: &mut Request,
        changed: Option<Changed>,
        failure: Failure,
    ) -> bool {
        request.is_stored = false;
        let kept = match changed {
            Some(Changed::Settled(settled)) => settled.kept,
            _ => None,
        };
        if request.has_caller {
            request.deliver(&mut self.actions, ticket, kept.unwrap_or_else(|| Rc::new(Answered::Failure(failure))));
        }
        request.has_caller
    }

    fn settled(
        &mut self,
        now_ms: i64,
        request: &mut Request,
        changed: Option<Changed>,
        answered: Rc<Answered>,
    ) -> bool {
        match changed {
            Some(Changed::Settled(settled)) => self.acks.add(&request.id, settled, now_ms + ACK_RIDE_MS),
            Some(Changed::Gone | Changed::Withdrawn) => {}
            Some(Changed::Pending(_)) | None => {
                request.stage = Stage::Unsettled { due_ms: now_ms + self.settings.retry_interval_ms, answered };
                return true;
            }
        }
        false
    }

    pub(super) fn settle(&mut self, now_ms: i64, ticket: Ticket, answered: Rc<Answered>) {
        // Right after a sleep the clock is unknown. The row's own `until` is by the server's clock too, and close
        // enough.
        let until_ms = self.requests.get(&ticket).and_then(|request| request.entry.until_ms);
        let at_s = self.clock.at(None, now_ms).or(until_ms).unwrap_or_default().div_euclid(1000);
        let by = self.settings.owner.clone();
        self.with(ticket, |request, actions| {
            let change = Change::Settle {
                by,
                key: request.key.clone().filter(|_| request.ends_by != Aim::Probe),
                answered: answered.clone(),
                at_s,
            };
            actions.push(Action::Change { ticket, id: request.id.clone(), change });
            request.stage = Stage::Settling(answered);
        });
    }
}
