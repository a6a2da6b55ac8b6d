//! Attempts: when one starts, how it is sent, what its answer does.
//!
//! Invariants:
//! - Between an attempt and its row stands a transaction that found the row pending and raised its `until`.
//! - What fails is tried again at a constant interval, never under another id.

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
                // It ran; or this is said of the cancellation's own record, which an administrator has deleted, say. So the request
                // itself is asked for, by an attempt that can't execute it, before it is cancelled again.
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
                // It is in doubt, or under way: that can't be cancelled, so it is asked what became of it, and if that finds nothing out, sent again.
                if answer.status == 409 && answer.member("executed") == Some("unknown") && aim != Aim::Execute {
                    request.ends_by = if aim == Aim::Cancel { Aim::Probe } else { Aim::Execute };
                }
                request.stage = again(after_ms);
                request.not_before_ms = now_ms + after_ms;
                match (clock_ms, &key) {
                    // A probe is refused whatever the clock: its deadline is long past.
                    (Some(clock_ms), Some(key)) if aim != Aim::Probe => self.clock.learn_of(key, clock_ms, now_ms),
                    (Some(clock_ms), None) if aim != Aim::Probe => self.clock.learn(clock_ms, now_ms),
                    _ => {}
                }
            }
            // It was given up, and can't be cancelled as it is: there is nothing to wait for but credentials.
            Verdict::Pause(failure) if request.is_cancelling && !matches!(answer.status, 401 | 403) => {
                if aim == Aim::Execute {
                    // It was given up while this was under way: it can be cancelled still.
                    request.stage = Stage::Waiting { due_ms: now_ms };
                } else {
                    // Its key has no record of it; of one that it has under this id, another's answer may still have to be heard. So nothing is acknowledged.
                    request.ends_by = Aim::Probe;
                    request.fail(&mut self.actions, ticket, failure);
                }
            }
            Verdict::Pause(failure) => {
                // Whoever resumes it at once, again and again, does so at the interval.
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

    /// The key that answered this path before. Its method may have had another: a guess, good for acknowledgements and clocks.
    pub(super) fn guessed_key(&self, target: &str) -> Option<String> {
        let path = path_of(target);
        self.keys_of_paths.iter().find(|(each, _)| each == path).map(|(_, key)| key.clone())
    }

    fn guess_key(&mut self, target: &str, key: &str) {
        let path = path_of(target);
        match self.keys_of_paths.iter_mut().find(|(each, _)| each == path) {
            // It may have had another, and may have it again.
            Some((_, known)) => key.clone_into(known),
            None => {
                if self.keys_of_paths.len() >= KEYS_KNOWN_MAX {
                    self.keys_of_paths.clear();
                }
                self.keys_of_paths.push((path.to_owned(), key.to_owned()));
            }
        }
    }

    /// How many more attempts may be under way: none without a network, or the server's clock.
    pub(super) fn places(&self) -> usize {
        if self.is_offline || !self.clock.is_known() {
            return 0;
        }
        let raising = self.requests.values().filter(|request| matches!(request.stage, Stage::Raising { .. })).count();
        self.settings.attempts_max.saturating_sub(self.attempts.len() - self.posting() + raising)
    }

    pub(super) fn needs_health(&self) -> bool {
        let is_asking = self.attempts.values().any(|attempt| matches!(attempt.purpose, Purpose::Health));
        !self.is_offline
            && !self.clock.is_known()
            && !is_asking
            && self.requests.values().any(|request| matches!(request.stage, Stage::Waiting { .. }))
    }

    /// Lets go of answers that were kept for longer than anybody waits, once the server's clock is known.
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

    /// Starts all that is due and has a place.
    pub(super) fn advance(&mut self, now_ms: i64) {
        self.drop_kept(now_ms);
        if self.needs_health() && self.health_due_ms <= now_ms {
            let attempt = self.next_attempt();
            let made = Transmission { attempt, request: request::health(), headers: Headers::new() };
            self.transmit(now_ms, made, Purpose::Health);
        }
        self.catch_up(now_ms);
        // Who waits longest comes first: what hangs must not keep all else from its turn.
        let places = self.places();
        if places > 0 {
            // Put in order by hand: the standard library's sorting is a tenth of the module.
            let mut due: Vec<(i64, Ticket)> = Vec::new();
            for each in self.waiting().into_iter().filter(|(due_ms, _)| *due_ms <= now_ms) {
                due.insert(due.partition_point(|other| *other <= each), each);
            }
            for (_, ticket) in due.into_iter().take(places) {
                self.raise(now_ms, ticket);
            }
        }
        // These have places of their own, for the same reason.
        while self.may_post() {
            let attempt = self.next_attempt();
            let Some((key, body)) = self.acks.post(attempt, now_ms) else { break };
            let made = Transmission { attempt, request: request::control(&key, "acks", body), headers: Headers::new() };
            self.transmit(now_ms, made, Purpose::Acknowledge);
        }
    }

    /// Looks at the rows of others that somebody waits for, and does once more what the store failed to do.
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

    /// What waits for its time or a place, and may go: none before it in its lane is without an answer.
    pub(super) fn waiting(&self) -> Vec<(i64, Ticket)> {
        let mut waiting = Vec::new();
        // Of a thousand requests, each would be compared with all before it.
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

    /// Whether there is a place for a request's attempt, and none before it in its lane is without an answer.
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

    /// The transaction before an attempt.
    pub(super) fn raise(&mut self, now_ms: i64, ticket: Ticket) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        if !matches!(request.stage, Stage::Paused | Stage::Waiting { .. }) {
            return;
        }
        if request.may_withdraw() {
            return request.withdraw(&mut self.actions, ticket);
        }
        // Without a clock nothing leaves. But what was given up is stored as that, and raises nothing then.
        let at_ms = self.clock.at(request.key.as_deref(), now_ms).unwrap_or_default();
        let deadline_ms = at_ms + self.settings.attempt_timeout_ms;
        let is_certain = request.ends_by != Aim::Probe || (request.key.is_some() && !holds(Rule::CertainKey));
        let (aim, deadline_ms) = match (request.is_cancelling, is_certain) {
            (false, _) => (Aim::Execute, deadline_ms),
            (true, true) if !holds(Rule::CertainKey) && request.ends_by == Aim::Probe => (Aim::Cancel, deadline_ms),
            // What is in doubt is sent once: whatever comes of that, it may be cancelled after it.
            (true, true) => (std::mem::replace(&mut request.ends_by, Aim::Cancel), deadline_ms),
            // To cancel at a key that has not answered for the request would prove nothing.
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

/// It never left; nobody was asked whether another of its id ran. See [`super::ClientCode`] for the words.
pub(super) fn withdrawn() -> Failure {
    failure(Code::Cancelled, Executed::No, "given up, so it was not sent")
}

/// The id is another request's, which is not changed by this one.
pub(super) fn other_payload() -> Failure {
    // That this one never ran says nothing of the other.
    failure(Code::FingerprintMismatch, Executed::Unknown, "the id is of another request")
}

fn failure(code: Code, executed: Executed, detail: &str) -> Failure {
    Failure::of(code.as_str(), executed, code.retry(), detail)
}
