//! Attempts: when one starts, how it is sent, and what its answer does.
//!
//! Invariants:
//! - Before each attempt there is a transaction that found the row pending and raised its `until`.
//! - A request that fails is tried again at a constant interval, and never under another id.

use super::action::{Action, Answer, Ticket, Transmission};
use super::failure::Failure;
use super::in_hand::{Request, Seen, Stage};
use super::machine::{Client, InFlight, Purpose};
use super::request::{self, Aim, path_of};
use super::row::{Answered, Change};
use super::verdict::{self, Sent, Verdict};
use super::{KEPT_S_MAX, KEYS_KNOWN_MAX, POSTS_MAX};
use crate::message::{Headers, Response};
use crate::problem::{Code, Executed};
use crate::rules::{Rule, holds};
use std::rc::Rc;

impl Client {
    /// Decides what an answer means for its request. `sent`: the instants that the attempt carried; `key`: the key that
    /// answered.
    #[expect(clippy::too_many_arguments, reason = "one answer and all that is known of its attempt")]
    pub(super) fn judge(
        &mut self,
        now_ms: i64,
        ticket: Ticket,
        request: &mut Request,
        aim: Aim,
        sent: Sent,
        key: Option<String>,
        answer: Answer,
    ) {
        if let Some(key) = &key {
            self.learn_key(request, aim, key);
        }
        let again = |after_ms: i64| Stage::Waiting { due_ms: now_ms + after_ms.max(self.settings.retry_interval_ms) };
        match verdict::judge(&answer, sent) {
            Verdict::Outcome | Verdict::Never(_) if aim == Aim::Cancel => match answer.member("state") {
                Some("cancelled") => request.fail(&mut self.actions, ticket, cancelled()),
                // The request ran. Or this answer is about the cancellation's own record, for instance because an
                // administrator has deleted that. So ask for the request itself before cancelling it again, by an
                // attempt that can't execute it.
                _ => {
                    request.ends_by = Aim::Probe;
                    request.stage = Stage::Waiting { due_ms: now_ms };
                }
            },
            Verdict::Outcome => {
                let Answer { status, headers, body, .. } = answer;
                request.deliver(
                    &mut self.actions,
                    ticket,
                    Rc::new(Answered::Outcome(Response { status, headers, body })),
                );
            }
            Verdict::Never(failure) => {
                self.actions.push(Action::Change { ticket, id: request.id.clone(), change: Change::Look });
                request.stage = Stage::Looking(failure);
            }
            Verdict::Again { after_ms, clock_ms } => {
                // The request is in doubt or under way, so it can't be cancelled. Ask what became of it, and if that
                // finds nothing out, send it again.
                if answer.status == 409 && answer.member("executed") == Some("unknown") && aim != Aim::Execute {
                    request.ends_by = if aim == Aim::Cancel { Aim::Probe } else { Aim::Execute };
                }
                // Without a deadline it is a probe, which is refused whatever the clocks say, or from before a sleep.
                if let Some(clock_ms) = clock_ms.filter(|_| sent.deadline_ms > 0) {
                    self.clock.learn(key.as_deref(), clock_ms, now_ms);
                }
                request.stage = again(after_ms);
                request.not_before_ms = now_ms + after_ms;
            }
            // The request was given up, and can't be cancelled as it is. Only for credentials is it worth waiting.
            Verdict::Pause(failure) if request.is_cancelling && !matches!(answer.status, 401 | 403) => {
                if aim == Aim::Execute {
                    // It was given up while this attempt was under way, so it can still be cancelled.
                    request.stage = Stage::Waiting { due_ms: now_ms };
                } else {
                    // The key has no record of this request. It may have one of another request under this id, whose
                    // caller may not have the answer yet. So nothing is acknowledged.
                    request.ends_by = Aim::Probe;
                    request.fail(&mut self.actions, ticket, failure);
                }
            }
            Verdict::Pause(failure) => {
                // If the application resumes it at once, again and again, it is still sent only at the interval.
                request.not_before_ms = now_ms + self.settings.retry_interval_ms;
                request.stage = Stage::Paused;
                self.actions.push(Action::Pause { ticket, failure });
            }
        }
    }

    pub(super) fn learn_key(&mut self, request: &mut Request, aim: Aim, key: &str) {
        request.key = Some(key.to_owned());
        request.ends_by = Aim::Cancel;
        if aim != Aim::Cancel && request.entry.draft.key.is_none() {
            self.guess_key(&request.entry.draft.target, key);
        }
    }

    /// The key that answered this path before. A request with another method may go to another key, so this is a guess,
    /// good enough for acknowledgements and clocks.
    pub(super) fn guessed_key(&self, target: &str) -> Option<String> {
        let path = path_of(target);
        self.keys_of_paths.iter().find(|(each, _)| each == path).map(|(_, key)| key.clone())
    }

    fn guess_key(&mut self, target: &str, key: &str) {
        let path = path_of(target);
        match self.keys_of_paths.iter_mut().find(|(each, _)| each == path) {
            // The path may lead to several keys; the latest is the guess.
            Some((_, known)) => key.clone_into(known),
            None => {
                if self.keys_of_paths.len() >= KEYS_KNOWN_MAX {
                    self.keys_of_paths.clear();
                }
                self.keys_of_paths.push((path.to_owned(), key.to_owned()));
            }
        }
    }

    /// How many more attempts may start now. None while offline, or while the server's clock is unknown.
    pub(super) fn places(&self) -> usize {
        if self.is_offline || !self.clock.is_known() {
            return 0;
        }
        let raising = self.requests.values().filter(|request| matches!(request.stage, Stage::Raising { .. })).count();
        self.settings.attempts_max.saturating_sub(self.attempts.len() - self.posting() + raising)
    }

    /// Whether the worker has to be asked for its clock, because a request waits for that.
    pub(super) fn needs_health(&self) -> bool {
        let is_asking = self.attempts.values().any(|attempt| matches!(attempt.purpose, Purpose::Health));
        !self.is_offline
            && !self.clock.is_known()
            && !is_asking
            && self.requests.values().any(|request| matches!(request.stage, Stage::Waiting { .. }))
    }

    /// Deletes answers that were kept for longer than anybody waits, once the server's clock is known.
    fn drop_kept(&mut self, now_ms: i64) {
        let Some(at_ms) = self.clock.at(None, now_ms).filter(|_| !self.kept.is_empty()) else { return };
        let mut old = Vec::new();
        for (id, at_s) in std::mem::take(&mut self.kept) {
            if at_ms / 1000 > at_s.saturating_add(KEPT_S_MAX) {
                old.push(id);
            }
        }
        if !old.is_empty() {
            self.actions.push(Action::Remove(old));
        }
    }

    /// Starts everything that is due and has a free place.
    pub(super) fn advance(&mut self, now_ms: i64) {
        self.drop_kept(now_ms);
        if self.needs_health() && self.health_due_ms <= now_ms {
            let attempt = self.next_attempt();
            let made = Transmission { attempt, request: request::health(), headers: Headers::new() };
            self.transmit(now_ms, made, Purpose::Health);
        }
        self.catch_up(now_ms);
        // The longest waiting request goes first, so that one that hangs does not keep the others from their turn.
        let places = self.places();
        if places > 0 {
            // An insertion sort by hand: the standard library's sort would be a tenth of the module.
            let mut due: Vec<(i64, Ticket)> = Vec::new();
            for each in self.waiting().into_iter().filter(|(due_ms, _)| *due_ms <= now_ms) {
                due.insert(due.partition_point(|other| *other <= each), each);
            }
            for (_, ticket) in due.into_iter().take(places) {
                self.raise(now_ms, ticket);
            }
        }
        // Acknowledgements have their own places, so that those that hang keep no request from its turn.
        while self.may_post() {
            let attempt = self.next_attempt();
            let Some((key, body)) = self.acks.post(attempt, now_ms) else { break };
            let made = Transmission { attempt, request: request::control(&key, "acks", body), headers: Headers::new() };
            self.transmit(now_ms, made, Purpose::Acknowledge);
        }
    }

    /// Looks at the rows of other tabs that a caller waits for, and repeats what the store failed to do.
    fn catch_up(&mut self, now_ms: i64) {
        let mut due = Vec::new();
        for (ticket, request) in self.requests.iter() {
            if request.again_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                due.push(*ticket);
            }
        }
        for ticket in due {
            match self.requests.get(&ticket).map(|request| &request.stage) {
                Some(Stage::Unsettled { answered, .. }) => {
                    let answered = answered.clone();
                    self.settle(now_ms, ticket, answered);
                }
                Some(&Stage::Unadopted { is_shared, .. }) => self.ask_to_adopt(ticket, is_shared),
                Some(Stage::Watching { .. }) => self.ask_to_watch(ticket),
                _ => {}
            }
        }
    }

    /// The requests that wait for their time or a place, and are not held up by an earlier one in their lane. Each with
    /// its instant.
    pub(super) fn waiting(&self) -> Vec<(i64, Ticket)> {
        let mut waiting = Vec::new();
        // Comparing each of a thousand requests with all those before it would take too long.
        let mut busy = Seen::new(2 * self.requests.len());
        for (ticket, request) in self.requests.iter() {
            let lane = request.lane();
            let is_blocked = request.is_waiting_for_turn() && (busy.has(lane.0) || busy.has(lane.1));
            match request.stage {
                Stage::Waiting { due_ms } if !is_blocked => waiting.push((due_ms, *ticket)),
                _ => {}
            }
            if request.is_waited_for() {
                busy.is_new(lane.0);
                busy.is_new(lane.1);
            }
        }
        waiting
    }

    /// Whether an attempt of this request may start: there is a place, and no earlier request in its lane is without an
    /// answer.
    pub(super) fn may_leave(&self, ticket: Ticket, own: &Request) -> bool {
        if self.places() == 0 {
            return false;
        }
        let mut before = self.requests.iter().take_while(|(each, _)| **each < ticket).map(|(_, request)| request);
        let lane = own.lane();
        !own.is_waiting_for_turn() || !before.any(|request| request.is_waited_for() && request.lane().meets(lane))
    }

    pub(super) fn may_post(&self) -> bool {
        !self.is_offline && self.posting() < POSTS_MAX
    }

    pub(super) fn posting(&self) -> usize {
        self.attempts.values().filter(|attempt| matches!(attempt.purpose, Purpose::Acknowledge)).count()
    }

    /// Asks for the transaction before an attempt.
    pub(super) fn raise(&mut self, now_ms: i64, ticket: Ticket) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        if !matches!(request.stage, Stage::Paused | Stage::Waiting { .. }) {
            return;
        }
        if request.may_withdraw() {
            return request.withdraw(&mut self.actions, ticket);
        }
        // Without a clock nothing leaves. But a request that was given up is stored as such, and then this deadline
        // raises nothing.
        let at_ms = self.clock.at(request.key.as_deref(), now_ms).unwrap_or_default();
        let deadline_ms = at_ms + self.settings.attempt_timeout_ms;
        let is_certain = request.ends_by != Aim::Probe || (request.key.is_some() && !holds(Rule::CertainKey));
        let (aim, deadline_ms) = match (request.is_cancelling, is_certain) {
            (false, _) => (Aim::Execute, deadline_ms),
            (true, true) if !holds(Rule::CertainKey) && request.ends_by == Aim::Probe => (Aim::Cancel, deadline_ms),
            // A request in doubt is sent once more. Whatever comes of that, it may be cancelled afterwards.
            (true, true) => (std::mem::replace(&mut request.ends_by, Aim::Cancel), deadline_ms),
            // A cancellation at a key that has not answered for this request would prove nothing.
            (true, false) => (Aim::Probe, 0),
        };
        let change = Change::Raise {
            first_sent_s: at_ms.div_euclid(1000),
            until_ms: deadline_ms,
            is_cancelling: request.is_cancelling,
        };
        request.stage = Stage::Raising { aim, deadline_ms };
        self.actions.push(Action::Change { ticket, id: request.id.clone(), change });
    }

    pub(super) fn send(&mut self, now_ms: i64, ticket: Ticket, request: &mut Request, aim: Aim, sent: Sent) {
        let attempt = self.next_attempt();
        let mut made = request::transmission(attempt, &request.id, &request.entry, aim, request.key.as_deref(), sent);
        if let Some(acks) = request.key.as_deref().and_then(|key| self.acks.ride(key, attempt)) {
            made.headers.append("semel-ack", acks);
        }
        request.attempts += 1;
        request.stage = Stage::Sending(attempt);
        self.transmit(now_ms, made, Purpose::Request { ticket, aim, sent });
    }

    pub(super) fn transmit(&mut self, now_ms: i64, mut made: Transmission, purpose: Purpose) {
        if !matches!(purpose, Purpose::Health) {
            request::tell_principal(&mut made, &self.settings.principal);
        }
        let ends_ms = now_ms + self.settings.attempt_timeout_ms;
        self.attempts.insert(made.attempt, InFlight { purpose, ends_ms });
        self.actions.push(Action::Transmit(made));
    }

    pub(super) fn next_attempt(&mut self) -> u64 {
        self.last_attempt += 1;
        self.last_attempt
    }
}

pub(super) fn cancelled() -> Failure {
    failure(Code::Cancelled, Executed::No, "it never ran, and never will")
}

/// The failure of a request that never left. Nobody was asked whether another request of its id ran. The detail ends as
/// [`super::ClientCode`] says.
pub(super) fn withdrawn() -> Failure {
    failure(Code::Cancelled, Executed::No, "given up, so it was not sent")
}

/// The failure of a request whose id is another request's. That one stays as it is.
pub(super) fn other_payload() -> Failure {
    // That this request never ran says nothing about the other.
    failure(Code::FingerprintMismatch, Executed::Unknown, "the id is of another request")
}

fn failure(code: Code, executed: Executed, detail: &str) -> Failure {
    Failure::of(code.as_str(), executed, code.retry(), detail)
}
