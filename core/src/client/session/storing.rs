//! What became of the changes of a row, and what follows.
//!
//! Invariants:
//! - What is stored decides. A change that the store did not make is made again, but for that of a new request, which is taken back.
//! - A place that was given, or may have been, is nobody else's. Where somebody who took its row over may be done with it, it is closed.

use super::super::action::Ticket;
use super::super::failure::ClientCode;
use super::super::row::Answered;
use super::TAKE_OVER;
use super::machine::Session;
use super::request::{Request, Stage};
use super::row::{Change, Changed};
use std::rc::Rc;

impl Session {
    /// Reports what became of [`Action::Change`]; `None`: the store failed, and nothing was changed.
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

    /// What follows from a change. Whether the request stays in hand.
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
                // A store may have made what it failed at: nothing else gets that place before its row is gone for sure.
                if entry.place.is_some() {
                    self.in_doubt = ticket;
                    request.entry.place = entry.place;
                    request.change(&mut self.actions, ticket, Change::Remove);
                }
            }
            // Its answer came meanwhile, and waits no longer: neither does it for a store that fails.
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
            // Its place is to be closed all the same, or nothing behind it could go on.
            (Change::Cancel { .. }, Some(Changed::Not))
                if request.entry.place.is_some()
                    && (self.ended.is_none() || request.has_caller && request.was_sent) =>
            {
                request.is_stored = false;
                request.entry.is_cancelling = true;
                request.stage = Stage::Placed;
            }
            (change, Some(Changed::Not)) => {
                // Somebody else sees to it, or its answer was given there.
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

    /// Whether somebody may have had its requests run under places of which it was never told that they are given, and be done with them. Who is known to
    /// live is left what is its own.
    fn loses_places(&self) -> bool {
        self.is_blind && self.ended.is_none()
    }

    /// Its answer is given, and no row is there that would be its own: what is left is to close its place, behind which others can go on.
    fn close(&mut self, request: &mut Request) {
        (request.has_caller, request.is_stored, request.is_cancelling) = (false, false, true);
        request.entry.is_cancelling = true;
        request.stage = Stage::Placed;
        self.next_seq += 1;
        self.in_doubt = TAKE_OVER;
    }

    /// It is stored as its entry says.
    fn go_on(&mut self, ticket: Ticket, request: &mut Request) {
        if let Some(answered) = request.entry.answered.clone() {
            request.answered = Some(answered);
            return request.deliver(&mut self.actions, ticket);
        }
        request.stage = if request.entry.place.is_some() { Stage::Placed } else { Stage::Waiting };
        // It may have been given up by who had it before.
        request.is_cancelling |= request.entry.is_cancelling;
        // What was taken over with a place may have left under it.
        request.was_sent |=
            !request.has_caller && request.entry.place.is_some_and(|place| Some(place.epoch) != self.epoch);
        if let Some(failure) = self.ended.clone().filter(|_| !request.was_sent) {
            request.fence(&mut self.actions, ticket, failure.never_ran(), &self.settings);
        } else if request.is_cancelling && request.entry.place.is_none() {
            request.take_back(&mut self.actions, ticket, &self.settings.owner);
        }
    }
}
