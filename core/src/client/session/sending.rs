//! Which request gets which place, and when frames leave.
//!
//! Invariants:
//! - One place is given at a time, and only once all requests that were taken over under older epochs have their
//!   answers.
//! - One frame is under way at a time, or two if the transport keeps their order: the second starts behind the first. A
//!   request that is not answered for good is in the next frame again, in the same order.
//! - Requests with a place of an older epoch leave before requests of this epoch, which may have no room until then.
//! - A request is in one frame at a time.
//! - A fenced holder gives no more places, and sends only what it has sent before.

use super::super::action::Ticket;
use super::frame::{self, Element};
use super::hand::List;
use super::machine::Session;
use super::request::Stage;
use super::row::{Change, Place};
use super::{Action, FRAME_BYTES_MAX, PATIENCE_MS_MAX, TAKE_OVER, WINDOW};
use crate::rules::{Rule, holds};

/// A frame that is under way.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) attempt: u64,
    pub(super) ends_ms: i64,
    /// The requests in it, and for each whether it left as a cancellation. Empty for the take-over. An attempt that
    /// only acknowledges has the ticket [`TAKE_OVER`].
    pub(super) requests: Vec<(Ticket, bool)>,
    pub(super) is_batch: bool,
    /// Whether it left beside another. The first may not have taken effect yet, so no gap counts against the second.
    pub(super) is_second: bool,
    /// Whether another may leave beside it: it has only requests, no cancellations, and all of this epoch.
    may_be_first: bool,
}

impl Session {
    /// Does everything that can be done now.
    pub(super) fn advance(&mut self, now_ms: i64) {
        let is_due = |request: &super::request::Request| matches!(request.stage, Stage::Changing { again_ms: Some(again_ms), .. } if again_ms <= now_ms);
        while self.requests.first(List::Failed).is_some_and(|(again_ms, _)| again_ms <= now_ms) {
            let Some((ticket, request)) = self.requests.iter().find(|(_, request)| is_due(request)) else { break };
            let ticket = *ticket;
            let Stage::Changing { change, .. } = &request.stage else { break };
            let change = change.clone();
            match &self.ended {
                // This place can't be given any more.
                Some(failure) if change.gives_place() => self.fence(ticket, failure.clone().never_ran()),
                _ => self.with(ticket, |request, actions| request.change(actions, ticket, change)),
            }
        }
        // That a request was given up is stored, so that it holds after a reload.
        while let Some((_, ticket)) = self.requests.first(List::GivenUp) {
            let by = self.settings.owner.clone();
            self.with(ticket, |request, actions| request.change(actions, ticket, Change::Cancel { by }));
        }
        self.leave();
        self.give_places();
        while !self.is_held && self.due_ms <= now_ms && self.is_to_send() && self.may_leave() && self.send(now_ms) {}
    }

    /// The number up to which all requests are gone, or have their answer in the row.
    fn heard(&self) -> i64 {
        let held = self.requests.first(List::Held).filter(|_| holds(Rule::AckHeld));
        held.map_or(self.next_seq, |(seq, _)| seq) - 1
    }

    /// The number to acknowledge: the same, but not past what other tabs on this store have still to hear, as far as
    /// the session waits for them.
    fn ack(&self) -> i64 {
        self.unheard_seq.map_or(i64::MAX, |seq| seq - 1).min(self.heard())
    }

    /// Whether the request with this number can leave without acknowledging answers that earlier holders, on this store
    /// or another, may still have to hear.
    fn has_room(&self, seq: i64) -> bool {
        !self.is_pressed && seq <= self.taken_over_seq + WINDOW
    }

    /// Gives a place to the first request without one, if there is a place. If not, stores the new requests without a
    /// place.
    fn give_places(&mut self) {
        let Some((ticket, may_store)) = self.next_without_place() else { return };
        let place = self.epoch.map(|epoch| Place { epoch, seq: self.next_seq });
        if let Some(place) = place.filter(|_| self.has_places()) {
            let by = self.settings.owner.clone();
            return self.with(ticket, |request, actions| match request.stage {
                Stage::New => {
                    let mut entry = request.entry.clone();
                    entry.place = Some(place);
                    request.change(actions, ticket, Change::Add(entry));
                }
                Stage::Waiting => request.change(actions, ticket, Change::Number { by, place }),
                _ => {}
            });
        }
        if may_store {
            while let Some((_, ticket)) = self.requests.first(List::New) {
                self.with(ticket, |request, actions| {
                    let entry = request.entry.clone();
                    request.change(actions, ticket, Change::Add(entry));
                });
            }
        }
    }

    /// The first request without a place. The flag says whether new requests may be stored without one: not while this
    /// request is getting its place.
    fn next_without_place(&self) -> Option<(Ticket, bool)> {
        let (_, ticket) = self.requests.first(List::Lacking)?;
        let is_getting_one =
            matches!(&self.requests.get(&ticket)?.stage, Stage::Changing { change, .. } if change.gives_place());
        Some((ticket, !is_getting_one))
    }

    fn has_places(&self) -> bool {
        // Requests that were taken over come first, under their own epochs.
        let numbered = self.requests.listed(List::Numbered);
        let waits_for_old =
            [numbered.first(), numbered.last()].iter().flatten().any(|(epoch, _)| Some(*epoch) != self.epoch);
        self.ended.is_none()
            && self.paused.is_none()
            && self.requests.get(&self.in_doubt).is_none()
            && !(waits_for_old && holds(Rule::OlderFirst))
            && (self.has_room(self.next_seq) || self.next_seq <= self.heard() + WINDOW)
    }

    /// The requests that may be sent, in order.
    fn sendable(&self) -> impl Iterator<Item = (Ticket, &super::request::Request)> {
        let has_ended = self.ended.is_some();
        // If a request is about to be cancelled, the requests after it would leave a gap.
        let blocked = self.requests.first(List::Cancelling).map_or(Ticket::MAX, |(_, ticket)| ticket);
        let placed = self.requests.listed(List::Ready).iter().map(|(_, ticket)| *ticket);
        let before = placed.filter(move |ticket| *ticket < blocked);
        let requests = before.filter_map(|ticket| Some((ticket, self.requests.get(&ticket)?)));
        requests.filter(move |(_, request)| request.was_sent || !has_ended)
    }

    /// Whether there is anything to send, once its time has come.
    pub(super) fn is_to_send(&self) -> bool {
        !self.is_offline
            && self.paused.is_none()
            && (self.epoch.is_none() && self.ended.is_none() || self.sendable().next().is_some())
    }

    /// Whether a frame may leave now: alone, or behind the one that is under way.
    fn may_leave(&self) -> bool {
        let Some(first) = &self.in_flight else { return true };
        if !first.may_be_first || self.is_alone || self.second.is_some() {
            return false;
        }
        let last = first.requests.last().map_or(Ticket::MAX, |(ticket, _)| *ticket);
        let mut missing = self.settings.ahead;
        for (ticket, request) in self.sendable() {
            if missing == 0 || !self.is_plain(request) || ticket < last && holds(Rule::UnderWayOnce) {
                break;
            }
            missing -= 1;
        }
        missing == 0
    }

    fn is_plain(&self, request: &super::request::Request) -> bool {
        let is_own = request.entry.place.map(|place| place.epoch) == self.epoch;
        is_own && !request.leaves_as_cancellation() && !request.goes_alone
    }

    /// Takes note that a frame is no longer under way, and returns it. `None` if it was not under way.
    pub(super) fn land(&mut self, now_ms: i64, attempt: u64) -> Option<InFlight> {
        let is_it = |each: &mut InFlight| each.attempt == attempt;
        let landed = self.second.take_if(is_it).or_else(|| {
            let landed = self.in_flight.take_if(is_it)?;
            self.in_flight = self.second.take();
            // The next frame had to wait for this one, so its time starts now.
            if let Some(next) = &mut self.in_flight {
                next.ends_ms = now_ms + self.patience_ms;
            }
            Some(landed)
        })?;
        for (ticket, _) in &landed.requests {
            self.with(*ticket, |request, _| request.is_under_way = false);
        }
        Some(landed)
    }

    /// Sends the next frame. Returns whether it did: behind another frame, only a full one leaves.
    fn send(&mut self, now_ms: i64) -> bool {
        self.last_attempt += 1;
        let attempt = self.last_attempt;
        let ends_ms = now_ms + self.patience_ms;
        if self.epoch.is_none() {
            self.actions.push(Action::Transmit(frame::take_over(attempt, &self.settings)));
            let (requests, is_batch, is_second, may_be_first) = Default::default();
            self.in_flight = Some(InFlight { attempt, ends_ms, requests, is_batch, is_second, may_be_first });
            return true;
        }
        // A holder that lost the session acknowledges nothing.
        let ack = Some(self.ack()).filter(|ack| *ack > 0 && self.ended.is_none() && !self.has_room(self.next_seq - 1));
        let is_second = self.in_flight.is_some();
        let (mut elements, mut requests, mut count, mut bytes) = (Vec::new(), Vec::new(), 0, 0);
        let (mut may_be_first, mut goes_alone) = (true, false);
        let elements_max =
            if self.settings.ahead > 0 { self.elements_max.min(self.settings.ahead) } else { self.elements_max };
        for (ticket, request) in self.sendable() {
            let Some(place) = request.entry.place else { continue };
            // A request under an older epoch acknowledges nothing.
            let is_cancelled = request.leaves_as_cancellation();
            let ack = ack.filter(|_| Some(place.epoch) == self.epoch);
            if let Some(ack) = ack.filter(|_| requests.is_empty() && is_cancelled && self.cancels_with_ack) {
                elements.push(Element::acknowledging(&self.settings, &request.id, &request.entry, place, ack));
                requests.push((TAKE_OVER, false));
            }
            let element = Element::new(&self.settings, &request.id, &request.entry, place, ack, is_cancelled);
            let is_full = count >= elements_max || bytes + element.bytes() > FRAME_BYTES_MAX;
            if (is_full || goes_alone || request.leaves_alone()) && count > 0 {
                break;
            }
            goes_alone = request.leaves_alone();
            count += 1;
            may_be_first &= self.is_plain(request);
            bytes += element.bytes();
            elements.push(element);
            requests.push((ticket, is_cancelled));
        }
        // A request that is too large for a frame of a socket goes by itself.
        let is_batch = elements.len() > 1 || (self.settings.is_framed && bytes <= FRAME_BYTES_MAX && !goes_alone);
        may_be_first &= is_batch && self.settings.ahead > 0;
        if is_second && !(may_be_first && count == self.settings.ahead) {
            return false;
        }
        for (ticket, _) in &requests {
            self.with(*ticket, |request, _| {
                request.was_sent = true;
                request.is_under_way = true;
                request.attempts += 1;
            });
        }
        self.actions.push(Action::Transmit(frame::frame(attempt, &self.settings, elements, is_batch)));
        let left = Some(InFlight { attempt, ends_ms, requests, is_batch, is_second, may_be_first });
        *if is_second { &mut self.second } else { &mut self.in_flight } = left;
        true
    }

    /// After a frame that did not come through, the next one has half as many requests. If it had only one, the next
    /// attempt may take twice as long.
    pub(super) fn shorten(&mut self, frame: &InFlight) {
        match frame.requests.len() {
            0 => {}
            1 => self.patience_ms = (self.patience_ms * 2).min(PATIENCE_MS_MAX.max(self.settings.attempt_timeout_ms)),
            count => self.elements_max = count / 2,
        }
    }

    /// Sends nothing for `after_ms` or the retry interval, whichever is longer.
    pub(super) fn wait(&mut self, now_ms: i64, after_ms: i64) {
        self.not_before_ms = self.not_before_ms.max(now_ms + after_ms);
        self.due_ms = self.due_ms.max(now_ms + after_ms.max(self.settings.retry_interval_ms));
    }
}
