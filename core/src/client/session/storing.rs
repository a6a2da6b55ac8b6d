//! What the machine of a session does when the host reports the result of a row's change.
//!
//! Invariants:
//! - What the row says decides. If the store failed at a change, it is made again. Only a new request is not stored
//!   again: its caller is told, and if the row may exist with a place, it is deleted.
//! - A place that was given, or may have been, is given to nobody else. If somebody may have taken the row over and be
//!   done with the request, its place is closed.

use super::super::action::Ticket;
use super::super::failure::ClientCode;
use super::super::row::Answered;
use super::TAKE_OVER;
use super::machine::Session;
use super::request::{Request, Stage};
use super::row::{Change, Changed};
use std::rc::Rc;

impl Session {
    /// Reports the result of an [`Action::Change`]. `None`: the store failed. It may have made the change all the same.
    pub fn changed(&mut self, now_ms: i64, ticket: Ticket, changed: Option<Changed>) {
        let Some(mut request) = self.requests.remove(&ticket) else { return };
        let stage = std::mem::replace(&mut request.stage, Stage::Waiting);
        let stays = match stage {
            Stage::Changing { change, again_ms: None } => self.follow(now_ms, ticket, &mut request, change, changed),
            other => {
                request.stage = other;
                true
            }
        };
        if stays {
            self.requests.insert(ticket, request);
        }
        self.advance(now_ms);
    }

    /// Handles the result of a change. Returns whether the request stays in hand.
    fn follow(
        &mut self,
        now_ms: i64,
        ticket: Ticket,
        request: &mut Request,
        change: Change,
        changed: Option<Changed>,
    ) -> bool {
        match (change, changed) {
            (Change::Add(entry), None) => {
                let failure = Answered::Failure(ClientCode::StoreFailed.into());
                request.conclude(&mut self.actions, ticket, Rc::new(failure), &self.settings.owner);
                // The store may have made the change that it failed at. No other request gets this place until the row
                // is surely gone.
                if entry.place.is_some() {
                    self.in_doubt = ticket;
                    request.entry.place = entry.place;
                    request.change(&mut self.actions, ticket, Change::Remove);
                }
            }
            // The answer came during the change. It does not wait for a store that fails either.
            (Change::Cancel { .. }, _) if request.answered.is_some() => {
                if let Some(answered) = request.answered.take() {
                    request.conclude(&mut self.actions, ticket, answered, &self.settings.owner);
                }
            }
            (change, None) => {
                let again_ms = Some(now_ms + self.settings.retry_interval_ms);
                request.stage = Stage::Changing { change, again_ms };
            }
            (Change::Remove, Some(Changed::Not)) if self.in_doubt == ticket && self.loses_places() => {
                self.close(request)
            }
            (Change::Remove, _) | (Change::Leave { .. }, Some(_)) => return false,
            (Change::Take { .. }, Some(Changed::Made(_))) => {
                request.is_stored = false;
                request.deliver(&mut self.actions, ticket);
            }
            // The place has to be closed all the same, or nothing behind it could go on.
            (Change::Cancel { .. }, Some(Changed::Not))
                if request.entry.place.is_some()
                    && (self.ended.is_none() || request.has_caller && request.was_sent) =>
            {
                request.is_stored = false;
                request.entry.is_cancelling = true;
                request.stage = Stage::Placed;
            }
            (change, Some(Changed::Not)) => {
                // Another tab sends the request, or has had its answer.
                let is_awaited = request.has_caller;
                request.answered.get_or_insert_with(|| Rc::new(Answered::Failure(ClientCode::OutcomeLost.into())));
                if is_awaited {
                    request.lose_row();
                    request.deliver(&mut self.actions, ticket);
                }
                if let (Change::Number { place, .. }, true) = (change, self.loses_places()) {
                    request.entry.place = Some(place);
                    self.close(request);
                    return true;
                }
                return is_awaited;
            }
            (change, Some(Changed::Made(entry))) => {
                if change.gives_place() {
                    self.next_seq += 1;
                }
                request.is_stored = true;
                request.entry = entry;
                self.go_on(ticket, request);
            }
        }
        true
    }

    /// Whether another tab may have taken over requests whose places this holder never heard were given, have had them
    /// run, and be done with them. Only where nobody can tell who lives: otherwise the rows of a living owner are left
    /// alone.
    fn loses_places(&self) -> bool {
        self.is_blind && self.ended.is_none()
    }

    /// The request has its answer, and no row of its own. All that is left is to close its place, so that the requests
    /// behind it can go on.
    fn close(&mut self, request: &mut Request) {
        (request.has_caller, request.is_stored, request.is_cancelling) = (false, false, true);
        request.entry.is_cancelling = true;
        request.stage = Stage::Placed;
        self.next_seq += 1;
        self.in_doubt = TAKE_OVER;
    }

    /// The row is stored as the request's entry says.
    fn go_on(&mut self, ticket: Ticket, request: &mut Request) {
        if let Some(answered) = request.entry.answered.clone() {
            request.answered = Some(answered);
            return request.deliver(&mut self.actions, ticket);
        }
        request.stage = if request.entry.place.is_some() { Stage::Placed } else { Stage::Waiting };
        // The former owner may have given it up.
        request.is_cancelling |= request.entry.is_cancelling;
        // A request that was taken over with a place may have left under it.
        request.was_sent |=
            !request.has_caller && request.entry.place.is_some_and(|place| Some(place.epoch) != self.epoch);
        if let Some(failure) = self.ended.clone().filter(|_| !request.was_sent) {
            request.fence(&mut self.actions, ticket, failure.never_ran(), &self.settings);
        } else if request.is_cancelling && request.entry.place.is_none() {
            request.take_back(&mut self.actions, ticket, &self.settings.owner);
        }
    }
}
