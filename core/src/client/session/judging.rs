//! What the machine of a session does with answers.
//!
//! Invariants:
//! - The session never pauses for a refusal that only a batch may get: such a request is sent again at once, by itself.
//! - A request that fails is tried again at a constant interval. A gap changes neither epoch nor place.
//! - No request holds the others up in silence: the application is told of one that is refused again and again, and one
//!   that can't even be given up is let go.

use super::super::action::{Answer, Ticket};
use super::super::failure::Failure;
use super::super::row::Answered;
use super::super::sending::cancelled;
use super::super::verdict::{self, Sent, Verdict};
use super::frame;
use super::hand::List;
use super::machine::Session;
use super::request::Stage;
use super::sending::InFlight;
use super::{Action, ELEMENTS_MAX, TAKE_OVER, VAIN_MAX};
use crate::message::Response;
use crate::problem::{Code, Executed};
use crate::rules::{Rule, holds};
use crate::text::number;
use std::rc::Rc;

/// Sessions use epochs and numbers, so their attempts carry no instants.
const UNTIMED: Sent = Sent { first_sent_s: 0, deadline_ms: 0 };

fn is_for_credentials(answer: &Answer) -> bool {
    matches!(answer.status, 401 | 403)
}

/// Whether the failure may be about the form that a request has in a batch, and not about the request.
fn is_of_batch(failure: &Failure) -> bool {
    [Code::TooLarge, Code::BodyInvalid].iter().any(|code| failure.code == code.as_str())
}

impl Session {
    /// Decides what the answer to a frame means for its requests.
    pub(super) fn judge(&mut self, now_ms: i64, frame: InFlight, answer: Answer) {
        let mut requests = frame.requests.iter().filter(|(ticket, _)| *ticket != TAKE_OVER);
        let Some((first, is_cancellation)) = requests.next().copied() else {
            return self.judge_take_over(now_ms, answer);
        };
        let is_one = requests.next().is_none();
        let last = frame.requests.last().map_or(first, |(ticket, _)| *ticket);
        self.patience_ms = self.settings.attempt_timeout_ms;
        if !frame.is_second {
            self.elements_max = (self.elements_max * 2).min(ELEMENTS_MAX);
        }
        if !frame.is_batch {
            self.judge_elements(now_ms, &frame, vec![answer]);
        } else {
            match verdict::judge(&answer, UNTIMED) {
                Verdict::Outcome => match frame::answers(&answer.body, frame.requests.len()) {
                    Some(answers) => self.judge_elements(now_ms, &frame, answers),
                    None => self.wait(now_ms, 0),
                },
                Verdict::Again { after_ms, .. } => {
                    self.wait(now_ms, after_ms);
                    if let Some(failure) = verdict::refusal(&answer).filter(|_| !frame.is_second) {
                        self.judge_refusal(first, failure, false);
                    }
                }
                Verdict::Pause(failure) if is_one && !is_cancellation && is_of_batch(&failure) => {
                    self.leave_alone(first)
                }
                Verdict::Pause(failure) if is_one || is_for_credentials(&answer) => {
                    self.pause(now_ms, first, failure);
                }
                // Which of the requests is refused will show: the next frame is shorter.
                Verdict::Pause(_) | Verdict::Never(_) => self.wait(now_ms, 0),
            }
        }
        self.is_alone =
            self.settings.ahead > 0 && self.requests.first(List::Ready).is_some_and(|(_, ticket)| ticket <= last);
        if !frame.is_second && self.requests.get(&first).is_some_and(|request| matches!(request.stage, Stage::Placed)) {
            // This request may be what keeps the others from their answers, for instance because its answer is too
            // large for a batch.
            self.elements_max = 1;
        }
    }

    fn judge_take_over(&mut self, now_ms: i64, answer: Answer) {
        let member = |name: &str| answer.member(name).and_then(number);
        // Member names keep their case, except in builds with the feature `server`, where all are in lower case.
        let last_seq = member("lastSeq").or_else(|| member("lastseq"));
        match (verdict::judge(&answer, UNTIMED), member("epoch").filter(|epoch| *epoch > 0), last_seq) {
            (Verdict::Outcome, Some(epoch), Some(last_seq)) => {
                self.epoch = Some(epoch);
                self.next_seq = last_seq + 1;
                self.taken_over_seq = last_seq;
                // In a new session, nobody has an answer still to hear.
                self.is_pressed = last_seq == 0;
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

    fn judge_elements(&mut self, now_ms: i64, frame: &InFlight, answers: Vec<Answer>) {
        let (mut is_first, mut is_pressing) = (!frame.is_second, false);
        let answered = frame.requests.iter().zip(answers).filter(|((ticket, _), _)| *ticket != TAKE_OVER);
        for (&(ticket, was_cancellation), answer) in answered {
            match verdict::judge(&answer, UNTIMED) {
                Verdict::Outcome if was_cancellation => match answer.member("state") {
                    Some("cancelled") => self.conclude(ticket, cancelled()),
                    Some("executed") => self.with(ticket, |request, _| request.ran_anyway = true),
                    _ => self.wait(now_ms, 0),
                },
                Verdict::Outcome => {
                    let Answer { status, headers, body, .. } = answer;
                    let outcome = Rc::new(Answered::Outcome(Response { status, headers, body }));
                    let owner = self.settings.owner.clone();
                    self.with(ticket, |request, actions| request.conclude(actions, ticket, outcome, &owner));
                }
                // It is the cancellation that ran, and whose outcome is not kept. That says nothing of the request.
                Verdict::Never(failure) if was_cancellation && failure.executed == Executed::Yes => {
                    self.judge_failure(ticket, Failure { executed: Executed::Unknown, ..failure });
                }
                Verdict::Never(failure) => self.judge_failure(ticket, failure),
                Verdict::Again { after_ms, .. } => {
                    let refusal = verdict::refusal(&answer);
                    is_pressing |= refusal.as_ref().is_some_and(|failure| self.presses(failure, was_cancellation));
                    let is_behind = |failure: &Failure| frame.is_second && failure.code == Code::SequenceGap.as_str();
                    if !is_pressing && !refusal.as_ref().is_some_and(is_behind) {
                        self.wait(now_ms, after_ms);
                        // Only the first is judged: the requests after it are refused because of it.
                        if let Some(failure) = refusal.filter(|_| is_first) {
                            self.judge_refusal(ticket, failure, was_cancellation);
                        }
                    }
                }
                Verdict::Pause(failure) if frame.is_batch && !was_cancellation && is_of_batch(&failure) => {
                    self.leave_alone(ticket);
                }
                // It was given up, so only for credentials is it worth waiting.
                Verdict::Pause(failure) if self.is_given_up(ticket) && !is_for_credentials(&answer) => {
                    if was_cancellation || self.requests.get(&ticket).is_some_and(|request| request.ran_anyway) {
                        self.let_go(ticket, failure);
                    } else {
                        self.wait(now_ms, 0);
                    }
                }
                Verdict::Pause(failure) => self.pause(now_ms, ticket, failure),
            }
            is_first = false;
        }
    }

    /// Sends the request by itself from now on.
    fn leave_alone(&mut self, ticket: Ticket) {
        self.with(ticket, |request, _| request.goes_alone = true);
    }

    fn is_given_up(&self, ticket: Ticket) -> bool {
        self.requests.get(&ticket).is_some_and(|request| request.is_cancelling)
    }

    /// Whether the key has no room because an acknowledgement is missing. The next attempt then carries it.
    fn presses(&mut self, failure: &Failure, was_cancellation: bool) -> bool {
        if failure.code != Code::Capacity.as_str() || self.is_pressed && (self.cancels_with_ack || !was_cancellation) {
            return false;
        }
        self.is_pressed = true;
        self.cancels_with_ack |= was_cancellation;
        true
    }

    /// The first request of a frame did not run, and may be sent again.
    fn judge_refusal(&mut self, ticket: Ticket, failure: Failure, was_cancellation: bool) {
        let (before, count) = self.vain;
        let count = if before == ticket { count + 1 } else { 1 };
        self.vain = (ticket, count);
        if count < VAIN_MAX {
            return;
        }
        let is = |code: Code| failure.code == code.as_str();
        if is(Code::Capacity) && self.unheard_seq.take().is_some() {
            self.has_waited = true;
            self.vain = Default::default();
        } else if was_cancellation && (is(Code::SequenceGap) || is(Code::Capacity)) {
            self.let_go(ticket, failure);
        } else if self.stalled != Some(ticket) {
            self.stalled = Some(ticket);
            let failure = Failure { executed: Executed::Unknown, ..failure };
            self.actions.push(Action::Pause { ticket, failure });
        }
    }

    fn judge_failure(&mut self, ticket: Ticket, failure: Failure) {
        let Some(request) = self.requests.get(&ticket) else { return };
        let is_own_epoch = request.entry.place.is_some_and(|place| Some(place.epoch) == self.epoch);
        let is_fenced = failure.code == Code::Fenced.as_str();
        if is_fenced && failure.executed == Executed::No || !holds(Rule::OnlyFencedRenumbered) {
            if !is_own_epoch && !request.is_cancelling && self.ended.is_none() {
                // It never ran under its place, and never will. So it may get another.
                return self.with(ticket, |request, _| {
                    request.entry.place = None;
                    request.was_sent = false;
                    request.stage = Stage::Waiting;
                });
            }
            self.fence(ticket, failure.clone());
        } else {
            self.conclude(ticket, failure.clone());
        }
        if is_own_epoch && (is_fenced || failure.code == Code::SessionUnknown.as_str()) {
            self.end(failure);
        }
    }

    /// The request was given up, but its place can't be closed, or something ran there whose outcome can't be had: it may
    /// have been another's request. Nothing after it is certain to run in this epoch.
    fn let_go(&mut self, ticket: Ticket, failure: Failure) {
        let place = self.requests.get(&ticket).and_then(|request| request.entry.place);
        let failure = Failure { executed: Executed::Unknown, ..failure };
        self.conclude(ticket, failure.clone());
        if place.is_some_and(|place| Some(place.epoch) == self.epoch) {
            self.end(failure);
        }
    }

    /// The session gets no places any more. Requests that never left never run. Those that may have run are still asked
    /// for.
    fn end(&mut self, failure: Failure) {
        if self.ended.is_some() {
            return;
        }
        let is_over = |stage: &Stage| matches!(stage, Stage::New | Stage::Waiting | Stage::Placed);
        let unsent = self.requests.iter().filter(|(_, request)| !request.was_sent && is_over(&request.stage));
        for ticket in unsent.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.fence(ticket, failure.clone().never_ran());
        }
        self.ended = Some(failure.clone());
        self.actions.push(Action::Pause { ticket: TAKE_OVER, failure });
    }

    fn pause(&mut self, now_ms: i64, ticket: Ticket, failure: Failure) {
        // If the application resumes at once, again and again, requests still leave only at the interval.
        self.wait(now_ms, 0);
        if self.paused.is_none() {
            self.paused = Some(ticket);
            self.actions.push(Action::Pause { ticket, failure });
        }
    }
}
