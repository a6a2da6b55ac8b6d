//! Who gets which place, what leaves when, and what answers do.
//!
//! Invariants:
//! - One place is given at a time, and only once all that was taken over under older epochs has its answer.
//! - One frame is under way at a time. What is not answered for good is in the next one again, in the same order.
//! - What fails is tried again at a constant interval. A gap changes neither epoch nor place.
//! - A holder that is fenced gives no more places, and sends only what it has sent before.

use super::super::action::{Answer, Ticket};
use super::super::failure::Failure;
use super::super::row::Answered;
use super::super::sending::cancelled;
use super::super::verdict::{self, Sent, Verdict};
use super::frame::{self, Element};
use super::machine::{Session, never_ran};
use super::request::Stage;
use super::row::{Change, Place};
use super::{Action, ELEMENTS_MAX, FRAME_BYTES_MAX, WINDOW};
use crate::message::Response;
use crate::problem::{Code, Executed};
use crate::text::number;

/// Sessions go by epochs and numbers, and carry no instants.
const UNTIMED: Sent = Sent { first_sent_s: 0, deadline_ms: 0 };

/// What is under way.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) attempt: u64,
    pub(super) ends_ms: i64,
    /// The requests in it, and whether each left as a cancellation; none: the take-over.
    requests: Vec<(Ticket, bool)>,
    is_batch: bool,
}

impl Session {
    /// Does all that can be done now.
    pub(super) fn advance(&mut self, now_ms: i64) {
        let due = |(ticket, request): (&Ticket, &super::request::Request)| match &request.stage {
            Stage::Changing { change, again_ms: Some(again_ms) } if *again_ms <= now_ms => {
                Some((*ticket, change.clone()))
            }
            _ => None,
        };
        for (ticket, change) in self.requests.iter().filter_map(due).collect::<Vec<_>>() {
            match &self.ended {
                // There is no such place any more.
                Some(failure) if change.gives_place() => self.conclude(ticket, never_ran(failure.clone())),
                _ => self.with(ticket, |request, actions| request.change(actions, ticket, change)),
            }
        }
        self.give_places();
        if self.is_to_send() && self.in_flight.is_none() && self.due_ms <= now_ms {
            self.send(now_ms);
        }
    }

    /// Everything up to here is acknowledged. What a holder before it has still to hear is left to it, as long as there is room.
    pub(super) fn ack(&self) -> i64 {
        let held = self.requests.values().filter(|request| request.holds_place());
        let own = held.filter_map(|request| request.entry.place).map(|place| place.seq).min().unwrap_or(self.next_seq);
        let all = self.awaited_elsewhere.map_or(own, |seq| seq.min(own));
        (if self.next_seq < all + WINDOW { all } else { own }) - 1
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
            for (ticket, request) in self.requests.iter_mut() {
                if matches!(request.stage, Stage::New) {
                    let entry = request.entry.clone();
                    request.change(&mut self.actions, *ticket, Change::Add(entry));
                }
            }
        }
    }

    /// The first that has no place, and whether it may be that none is to be had for a while.
    fn next_without_place(&self) -> Option<(Ticket, bool)> {
        let (ticket, request) = self.requests.iter().find(|(_, request)| request.lacks_place())?;
        let is_getting_one = matches!(&request.stage, Stage::Changing { change, .. } if change.gives_place());
        Some((*ticket, !is_getting_one))
    }

    fn has_places(&self) -> bool {
        // What was taken over comes first, under its own epoch.
        let is_old = |place: Place| Some(place.epoch) != self.epoch;
        let waits_for_old =
            self.requests.values().any(|request| request.answered.is_none() && request.entry.place.is_some_and(is_old));
        self.ended.is_none() && self.paused.is_none() && !waits_for_old && self.next_seq <= self.ack() + WINDOW
    }

    fn sendable(&self) -> impl Iterator<Item = (Ticket, &super::request::Request)> {
        let has_ended = self.ended.is_some();
        let may_go = move |request: &super::request::Request| {
            matches!(request.stage, Stage::Placed) && (request.was_sent || !has_ended)
        };
        self.requests.iter().filter(move |(_, request)| may_go(request)).map(|(ticket, request)| (*ticket, request))
    }

    /// Whether there is anything to send, once its time has come.
    pub(super) fn is_to_send(&self) -> bool {
        self.paused.is_none() && (self.epoch.is_none() && self.ended.is_none() || self.sendable().next().is_some())
    }

    fn send(&mut self, now_ms: i64) {
        self.last_attempt += 1;
        let attempt = self.last_attempt;
        let ends_ms = now_ms + self.settings.attempt_timeout_ms;
        if self.epoch.is_none() {
            self.actions.push(Action::Transmit(frame::take_over(attempt, &self.settings)));
            self.in_flight = Some(InFlight { attempt, ends_ms, requests: Vec::new(), is_batch: false });
            return;
        }
        let ack = self.ack();
        let (mut elements, mut requests, mut bytes) = (Vec::new(), Vec::new(), 0);
        let elements_max = if self.is_alone { 1 } else { ELEMENTS_MAX };
        for (ticket, request) in self.sendable() {
            let Some(place) = request.entry.place else { continue };
            // An older epoch acknowledges nothing.
            let ack = (Some(place.epoch) == self.epoch && ack > 0).then_some(ack);
            let is_cancelled = request.leaves_as_cancellation();
            let element = Element::new(&self.settings, &request.id, &request.entry, place, ack, is_cancelled);
            let is_full = elements.len() >= elements_max || bytes + element.bytes() > FRAME_BYTES_MAX;
            if is_full && !elements.is_empty() {
                break;
            }
            bytes += element.bytes();
            elements.push(element);
            requests.push((ticket, is_cancelled));
        }
        for (ticket, _) in &requests {
            self.with(*ticket, |request, _| request.was_sent = true);
        }
        // What is too large for a frame of a socket goes by itself.
        let is_batch = elements.len() > 1 || (self.settings.is_framed && bytes <= FRAME_BYTES_MAX);
        self.actions.push(Action::Transmit(frame::frame(attempt, &self.settings, elements, is_batch)));
        self.in_flight = Some(InFlight { attempt, ends_ms, requests, is_batch });
    }

    /// Nothing is sent for so long, or for the interval.
    pub(super) fn wait(&mut self, now_ms: i64, after_ms: i64) {
        self.due_ms = self.due_ms.max(now_ms + after_ms.max(self.settings.retry_interval_ms));
    }

    pub(super) fn judge(&mut self, now_ms: i64, frame: InFlight, answer: Answer) {
        let Some((first, _)) = frame.requests.first().copied() else { return self.judge_take_over(now_ms, answer) };
        self.is_alone = false;
        let is_one = frame.requests.len() == 1;
        if !frame.is_batch {
            self.judge_element(now_ms, frame.requests, vec![answer]);
        } else {
            match verdict::judge(&answer, UNTIMED) {
                Verdict::Outcome => match frame::answers(&answer.body, frame.requests.len()) {
                    Some(answers) => self.judge_element(now_ms, frame.requests, answers),
                    None => self.wait(now_ms, 0),
                },
                Verdict::Again { after_ms, .. } => self.wait(now_ms, after_ms),
                Verdict::Pause(failure) if is_one || matches!(answer.status, 401 | 403) => {
                    self.pause(now_ms, first, failure);
                }
                // Which of them it is will be seen.
                Verdict::Pause(_) | Verdict::Never(_) => self.wait(now_ms, 0),
            }
        }
        // It may be what keeps the others from theirs: an answer that is too large for a batch, say.
        self.is_alone = self.requests.get(&first).is_some_and(|request| matches!(request.stage, Stage::Placed));
    }

    fn judge_take_over(&mut self, now_ms: i64, answer: Answer) {
        let member = |name: &str| answer.member(name).and_then(number);
        match (verdict::judge(&answer, UNTIMED), member("epoch"), member("lastseq")) {
            (Verdict::Outcome, Some(epoch), Some(last_seq)) => {
                self.epoch = Some(epoch);
                self.next_seq = last_seq + 1;
                let Answer { status, headers, body, .. } = answer;
                self.deliver_take_over(Answered::Outcome(Response { status, headers, body }));
            }
            (Verdict::Never(failure) | Verdict::Pause(failure), ..) => {
                self.ended = Some(failure.clone());
                self.deliver_take_over(Answered::Failure(failure));
            }
            (Verdict::Again { after_ms, .. }, ..) => self.wait(now_ms, after_ms),
            (Verdict::Outcome, ..) => self.wait(now_ms, 0),
        }
    }

    fn judge_element(&mut self, now_ms: i64, requests: Vec<(Ticket, bool)>, answers: Vec<Answer>) {
        for ((ticket, was_cancellation), answer) in requests.into_iter().zip(answers) {
            match verdict::judge(&answer, UNTIMED) {
                Verdict::Outcome if was_cancellation => match answer.member("state") {
                    Some("cancelled") => self.conclude(ticket, cancelled()),
                    Some("executed") => self.with(ticket, |request, _| request.ran_anyway = true),
                    _ => self.wait(now_ms, 0),
                },
                Verdict::Outcome => {
                    let Answer { status, headers, body, .. } = answer;
                    let outcome = Answered::Outcome(Response { status, headers, body });
                    let owner = self.settings.owner.clone();
                    self.with(ticket, |request, actions| request.conclude(actions, ticket, outcome, &owner));
                }
                Verdict::Never(failure) => self.judge_failure(ticket, failure),
                Verdict::Again { after_ms, .. } => self.wait(now_ms, after_ms),
                Verdict::Pause(failure) => self.pause(now_ms, ticket, failure),
            }
        }
    }

    fn judge_failure(&mut self, ticket: Ticket, failure: Failure) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        let is_own_epoch = request.entry.place.is_some_and(|place| Some(place.epoch) == self.epoch);
        let is_fenced = failure.code == Code::Fenced.as_str();
        if is_fenced
            && !is_own_epoch
            && failure.executed == Executed::No
            && !request.is_cancelling
            && self.ended.is_none()
        {
            // It never ran under its place, and never will: it may have another.
            request.entry.place = None;
            request.was_sent = false;
            request.stage = Stage::Waiting;
            return;
        }
        self.conclude(ticket, failure.clone());
        if is_own_epoch && (is_fenced || failure.code == Code::SessionUnknown.as_str()) && self.ended.is_none() {
            self.end(failure);
        }
    }

    /// Somebody else holds the session now. What never left never runs; what may have run is asked for on.
    fn end(&mut self, failure: Failure) {
        let is_over = |stage: &Stage| matches!(stage, Stage::New | Stage::Waiting | Stage::Placed);
        let unsent = self.requests.iter().filter(|(_, request)| !request.was_sent && is_over(&request.stage));
        for ticket in unsent.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.conclude(ticket, never_ran(failure.clone()));
        }
        self.ended = Some(failure);
    }

    fn pause(&mut self, now_ms: i64, ticket: Ticket, failure: Failure) {
        // Whoever goes on at once, again and again, does so at the interval.
        self.wait(now_ms, 0);
        if self.paused.is_none() {
            self.paused = Some(ticket);
            self.actions.push(Action::Pause { ticket, failure });
        }
    }
}
