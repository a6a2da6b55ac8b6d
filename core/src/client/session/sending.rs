//! Who gets which place, and what leaves when.
//!
//! Invariants:
//! - One place is given at a time, and only once all that was taken over under older epochs has its answer.
//! - One frame is under way at a time, or, where their order is kept, two: the second begins behind the first. What is not answered for good is
//!   in the next one again, in the same order.
//! - What has a place of an older epoch leaves before what has one of its own, which may have no room until that is answered.
//! - A request is in one of them at most.
//! - A holder that is fenced gives no more places, and sends only what it has sent before.

use super::super::action::Ticket;
use super::frame::{self, Element};
use super::hand::List;
use super::machine::Session;
use super::request::Stage;
use super::row::{Change, Place};
use super::{Action, FRAME_BYTES_MAX, PATIENCE_MS_MAX, TAKE_OVER, WINDOW};
use crate::rules::{Rule, holds};

/// What is under way.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) attempt: u64,
    pub(super) ends_ms: i64,
    /// The requests in it, and whether each left as a cancellation; none: the take-over. One that only acknowledges has its ticket.
    pub(super) requests: Vec<(Ticket, bool)>,
    pub(super) is_batch: bool,
    /// Whether it left beside another. That this one has not taken effect before says nothing of it, so no gap is held against it.
    pub(super) is_second: bool,
    /// Whether another may leave beside it: it has nothing but requests, all of one epoch.
    may_be_first: bool,
}

impl Session {
    /// Does all that can be done now.
    pub(super) fn advance(&mut self, now_ms: i64) {
        let is_due = |request: &super::request::Request| matches!(request.stage, Stage::Changing { again_ms: Some(again_ms), .. } if again_ms <= now_ms);
        while self.requests.first(List::Failed).is_some_and(|(again_ms, _)| again_ms <= now_ms) {
            let Some((ticket, request)) = self.requests.iter().find(|(_, request)| is_due(request)) else { break };
            let ticket = *ticket;
            let Stage::Changing { change, .. } = &request.stage else { break };
            let change = change.clone();
            match &self.ended {
                // There is no such place any more.
                Some(failure) if change.gives_place() => self.fence(ticket, failure.clone().never_ran()),
                _ => self.with(ticket, |request, actions| request.change(actions, ticket, change)),
            }
        }
        // What is given up is so after a reload too.
        while let Some((_, ticket)) = self.requests.first(List::GivenUp) {
            let by = self.settings.owner.clone();
            self.with(ticket, |request, actions| request.change(actions, ticket, Change::Cancel { by }));
        }
        self.leave();
        self.give_places();
        while !self.is_held && self.due_ms <= now_ms && self.is_to_send() && self.may_leave() && self.send(now_ms) {}
    }

    /// Up to here it needs no answer any more.
    fn heard(&self) -> i64 {
        let held = self.requests.first(List::Held).filter(|_| holds(Rule::AckHeld));
        held.map_or(self.next_seq, |(seq, _)| seq) - 1
    }

    /// Up to here nobody on this store does, as far as that is waited for.
    fn ack(&self) -> i64 {
        self.unheard_seq.map_or(i64::MAX, |seq| seq - 1).min(self.heard())
    }

    /// Whether a place can do without acknowledging what holders before it, on this store or another, may still have to hear.
    fn has_room(&self, seq: i64) -> bool {
        !self.is_pressed && seq <= self.taken_over_seq + WINDOW
    }

    /// Gives a place to the first that has none, if it may have one. The others are stored without.
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

    /// The first that has no place, and whether it may be that none is to be had for a while.
    fn next_without_place(&self) -> Option<(Ticket, bool)> {
        let (_, ticket) = self.requests.first(List::Lacking)?;
        let is_getting_one =
            matches!(&self.requests.get(&ticket)?.stage, Stage::Changing { change, .. } if change.gives_place());
        Some((ticket, !is_getting_one))
    }

    fn has_places(&self) -> bool {
        // What was taken over comes first, under its own epoch.
        let numbered = self.requests.listed(List::Numbered);
        let waits_for_old =
            [numbered.first(), numbered.last()].iter().flatten().any(|(epoch, _)| Some(*epoch) != self.epoch);
        self.ended.is_none()
            && self.paused.is_none()
            && self.requests.get(&self.in_doubt).is_none()
            && !(waits_for_old && holds(Rule::OlderFirst))
            && (self.has_room(self.next_seq) || self.next_seq <= self.heard() + WINDOW)
    }

    fn sendable(&self) -> impl Iterator<Item = (Ticket, &super::request::Request)> {
        let has_ended = self.ended.is_some();
        // What comes after one that is about to be cancelled would leave a gap.
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

    /// What was under way is so no more.
    pub(super) fn land(&mut self, now_ms: i64, attempt: u64) -> Option<InFlight> {
        let is_it = |each: &mut InFlight| each.attempt == attempt;
        let landed = self.second.take_if(is_it).or_else(|| {
            let landed = self.in_flight.take_if(is_it)?;
            self.in_flight = self.second.take();
            // It has waited for the other.
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

    /// Sends what is to be sent; whether it did. Behind another leaves a full frame or none.
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
        // Who holds the session no more acknowledges nothing.
        let ack = Some(self.ack()).filter(|ack| *ack > 0 && self.ended.is_none() && !self.has_room(self.next_seq - 1));
        let is_second = self.in_flight.is_some();
        let (mut elements, mut requests, mut count, mut bytes) = (Vec::new(), Vec::new(), 0, 0);
        let (mut may_be_first, mut goes_alone) = (true, false);
        let elements_max =
            if self.settings.ahead > 0 { self.elements_max.min(self.settings.ahead) } else { self.elements_max };
        for (ticket, request) in self.sendable() {
            let Some(place) = request.entry.place else { continue };
            // An older epoch acknowledges nothing.
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
        // What is too large for a frame of a socket goes by itself.
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

    /// A frame did not come through in time: the next one is shorter, or, where that can't be, has longer.
    pub(super) fn shorten(&mut self, frame: &InFlight) {
        match frame.requests.len() {
            0 => {}
            1 => self.patience_ms = (self.patience_ms * 2).min(PATIENCE_MS_MAX.max(self.settings.attempt_timeout_ms)),
            count => self.elements_max = count / 2,
        }
    }

    /// Nothing is sent for so long, or for the interval.
    pub(super) fn wait(&mut self, now_ms: i64, after_ms: i64) {
        self.not_before_ms = self.not_before_ms.max(now_ms + after_ms);
        self.due_ms = self.due_ms.max(now_ms + after_ms.max(self.settings.retry_interval_ms));
    }
}
