//! The machine of a session: it takes what happened, and says what to do.
//!
//! Invariants, besides those of [`super`]:
//! - Requests are in hand in the order in which they have to take effect. Requests that were taken over are in the
//!   order of their calls. Those found at the take-over come before this holder's own calls.
//! - A server's answer that is not definitive never reaches the caller, unless the application gave the request up.
//! - A report about something that is no longer in hand changes nothing.

use super::super::action::{Answer, Receiver};
use super::super::failure::{ClientCode, Failure};
use super::super::row::{Answered, Draft};
use super::frame;
use super::hand::{Hand, List};
use super::request::{Request, Stage};
use super::row::{Change, Entry};
use super::sending::InFlight;
use super::{Action, ELEMENTS_MAX, TAKE_OVER, Ticket};
use crate::text::joined;
use std::rc::Rc;

/// How a session is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Names the worker and the identity.
    pub outbox: String,
    /// Names this holder of the session, unlike any other holder before or after.
    pub owner: String,
    /// The principal under whom the requests are made; empty if none is named.
    pub principal: String,
    /// The key, percent-encoded.
    pub key: String,
    /// The name of the session at its key.
    pub name: String,
    /// The epoch that the take-over expects to be current; `None` if any will do.
    pub after: Option<i64>,
    /// The id of the take-over.
    pub take_over_id: String,
    /// The pause between two attempts, in ms.
    pub retry_interval_ms: i64,
    /// How long an attempt may take, in ms.
    pub attempt_timeout_ms: i64,
    /// Requests in hand at most. Beyond that, no more are taken.
    pub requests_max: usize,
    /// Whether even a single request is sent as a batch, as on a socket.
    pub is_framed: bool,
    /// How many requests must be ready before a second frame leaves beside the one under way; 0: none leaves. This is
    /// meant for transports that keep the order of frames. On others nothing breaks, but requests that arrive too early
    /// are refused and go again.
    pub ahead: usize,
    /// Whether other tabs can find its rows. If not, nobody goes on with what it leaves.
    pub is_shared: bool,
}

/// A session, as the client sees it.
#[derive(Debug)]
pub struct Session {
    pub(super) settings: Settings,
    /// The name of the session in its rows.
    pub(super) session: String,
    /// The epoch of this holder, once it has one.
    pub(super) epoch: Option<i64>,
    /// The number that the next request gets.
    pub(super) next_seq: i64,
    /// A request for which the store failed, but whose row it may have, under the next number. As long as this request
    /// is in hand, no place is given.
    pub(super) in_doubt: Ticket,
    /// Whether, at the last look, nobody could tell which owners live. Then others may have taken rows of this holder.
    pub(super) is_blind: bool,
    pub(super) requests: Hand,
    pub(super) in_flight: Option<InFlight>,
    /// The frame that left beside `in_flight`.
    pub(super) second: Option<InFlight>,
    /// Whether frames leave one at a time, because requests of the last frame have to go again.
    pub(super) is_alone: bool,
    /// Whether nothing leaves yet, because the host will tell more before [`Self::release`].
    pub(super) is_held: bool,
    /// The lowest place whose answer another living tab on this store still has to hear, as of the last look.
    pub(super) unheard_seq: Option<i64>,
    /// Whether those tabs had their time to hear, since a frozen tab must not hold the session up for ever.
    pub(super) has_waited: bool,
    /// The last number that was taken when this holder took over.
    pub(super) taken_over_seq: i64,
    /// Whether it acknowledges answers that earlier holders may still have to hear, because the key has no room
    /// otherwise.
    pub(super) is_pressed: bool,
    /// Whether an acknowledgement goes in front of a cancellation, because the key had no room for the cancellation
    /// alone.
    pub(super) cancels_with_ack: bool,
    /// Nothing is sent before this instant.
    pub(super) due_ms: i64,
    /// Nothing is sent before this instant even if the network comes back: the server asked for that.
    pub(super) not_before_ms: i64,
    pub(super) is_offline: bool,
    /// The request at which it pauses.
    pub(super) paused: Option<Ticket>,
    /// The request that was sent in vain, and how often in a row.
    pub(super) vain: (Ticket, u32),
    /// The request that the application was told is sent in vain. It is still sent.
    pub(super) stalled: Option<Ticket>,
    /// The requests in the next frame at most. It is lower after a frame that did not come through, or whose
    /// first request was not answered for good: what is wrong with that one must not be said of the others.
    pub(super) elements_max: usize,
    /// How long the next attempt may take, in ms.
    pub(super) patience_ms: i64,
    /// After how long a caller is told that it need not wait, in ms.
    gives_up_after_ms: Option<i64>,
    /// Why the session gets no places any more.
    pub(super) ended: Option<Failure>,
    pub(super) actions: Vec<Action>,
    /// The actions that [`Self::poll`] gives next. They are apart from `actions`, so that taking one moves no other.
    polled: std::vec::IntoIter<Action>,
    last_ticket: Ticket,
    pub(super) last_turn: i64,
    pub(super) last_attempt: u64,
}

impl Session {
    /// Makes a session that is not taken over yet. [`Session::wake`] starts the take-over.
    pub fn new(settings: Settings) -> Self {
        // None of the three contains a line feed.
        let session = joined(&[&settings.outbox, "\n", &settings.key, "\n", &settings.name]);
        let patience_ms = settings.attempt_timeout_ms;
        Self {
            settings,
            session,
            epoch: None,
            next_seq: 0,
            in_doubt: TAKE_OVER,
            is_blind: false,
            requests: Hand::default(),
            in_flight: None,
            second: None,
            is_alone: false,
            is_held: false,
            unheard_seq: None,
            has_waited: false,
            taken_over_seq: 0,
            is_pressed: false,
            cancels_with_ack: false,
            due_ms: i64::MIN,
            not_before_ms: i64::MIN,
            is_offline: false,
            paused: None,
            vain: Default::default(),
            stalled: None,
            elements_max: ELEMENTS_MAX,
            patience_ms,
            gives_up_after_ms: None,
            ended: None,
            actions: Vec::new(),
            polled: Default::default(),
            last_ticket: TAKE_OVER,
            last_turn: 0,
            last_attempt: 0,
        }
    }

    /// Tells callers after so many ms that they need not wait any longer. Their requests go on, and the answers go to
    /// whoever takes recovered answers.
    pub fn give_up_after(&mut self, after_ms: Option<i64>) {
        self.gives_up_after_ms = after_ms;
    }

    /// Lets nothing leave before [`Session::release`]: requests that are told together leave together, once the store
    /// has done what it is asked for at the same moment.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// Ends [`Session::hold`], and returns the next action, if there is one.
    pub fn release(&mut self, now_ms: i64) -> Option<Action> {
        if std::mem::take(&mut self.is_held) {
            self.advance(now_ms);
        }
        self.poll()
    }

    /// The next action, if there is one.
    pub fn poll(&mut self) -> Option<Action> {
        if self.polled.as_slice().is_empty() {
            self.polled = std::mem::take(&mut self.actions).into_iter();
        }
        self.polled.next()
    }

    /// Takes a request in hand.
    pub fn request(&mut self, now_ms: i64, id: String, mut draft: Draft) -> Ticket {
        draft.key = Some(self.settings.key.clone());
        let bytes = self.requests.bytes();
        let refused = if self.counts().0 >= self.settings.requests_max || bytes > super::super::PENDING_BYTES_MAX {
            Some(ClientCode::OutboxFull.into())
        } else {
            self.ended.clone().map(Failure::never_ran)
        };
        // A turn is this high only in a damaged row.
        self.last_turn = self.last_turn.saturating_add(1);
        let entry = Entry {
            draft: Rc::new(draft),
            session: self.session.clone(),
            owner: self.settings.owner.clone(),
            turn: self.last_turn,
            ..Entry::default()
        };
        let ticket = self.insert(id, entry, true);
        let gives_up_ms = self.gives_up_after_ms.map(|after_ms| now_ms.saturating_add(after_ms));
        self.with(ticket, |request, _| request.gives_up_ms = gives_up_ms);
        if let Some(failure) = refused {
            self.conclude(ticket, failure);
        }
        self.advance(now_ms);
        ticket
    }

    /// Reports the answer to an [`Action::Transmit`].
    pub fn answered(&mut self, now_ms: i64, attempt: u64, answer: Answer) {
        if let Some(ended) = self.land(now_ms, attempt) {
            self.judge(now_ms, ended, answer);
        }
        self.advance(now_ms);
    }

    /// Reports that an [`Action::Transmit`] got no answer.
    pub fn lost(&mut self, now_ms: i64, attempt: u64) {
        if let Some(ended) = self.land(now_ms, attempt) {
            // A single request was not too slow, so it gets no more time.
            self.fail(now_ms, &ended, ended.requests.len() > 1);
        }
        self.advance(now_ms);
    }

    /// A frame got no answer. Something between may lose those that are as long.
    fn fail(&mut self, now_ms: i64, ended: &InFlight, shortens: bool) {
        self.is_alone = self.settings.ahead > 0;
        if shortens {
            self.shorten(ended);
        }
        self.wait(now_ms, 0);
    }

    /// Reports that the receiver of an [`Action::Deliver`] has the answer.
    pub fn delivered(&mut self, now_ms: i64, ticket: Ticket) {
        let Some(request) = self.requests.get(&ticket) else { return };
        if !matches!(request.stage, Stage::Delivering) {
            return;
        }
        if request.is_stored {
            self.with(ticket, |request, actions| request.change(actions, ticket, Change::Remove));
        } else {
            self.requests.remove(&ticket);
        }
        self.advance(now_ms);
    }

    /// The application gives a request up. Its place is closed, unless it ran.
    pub fn give_up(&mut self, now_ms: i64, ticket: Ticket) {
        let owner = self.settings.owner.clone();
        self.with(ticket, |request, actions| {
            if request.answered.is_some() {
                return;
            }
            request.is_cancelling = true;
            // A request that is about to be left to the session's current holder is taken back: that holder must not go
            // on with it.
            if matches!(request.stage, Stage::New | Stage::Waiting | Stage::Left) {
                request.take_back(actions, ticket, &owner);
            }
        });
        if self.paused == Some(ticket) || self.stalled == Some(ticket) {
            self.go_on_after_pause();
        }
        self.advance(now_ms);
    }

    /// Continues after a pause.
    pub fn resume(&mut self, now_ms: i64) {
        self.go_on_after_pause();
        self.advance(now_ms);
    }

    fn go_on_after_pause(&mut self) {
        (self.paused, self.stalled, self.vain) = Default::default();
    }

    /// The network is gone, or back. Without it nothing is sent.
    pub fn set_offline(&mut self, now_ms: i64, is_offline: bool) {
        self.is_offline = is_offline;
        self.due_ms = self.due_ms.min(self.not_before_ms.max(now_ms));
        self.advance(now_ms);
    }

    /// Time has passed: ends an attempt that took too long and the waiting of callers, and starts what is due.
    pub fn wake(&mut self, now_ms: i64) {
        let overdue = self.in_flight.as_ref().filter(|each| each.ends_ms <= now_ms).map(|each| each.attempt);
        if let Some(ended) = overdue.and_then(|attempt| self.land(now_ms, attempt)) {
            self.actions.push(Action::Abort(ended.attempt));
            self.fail(now_ms, &ended, true);
        }
        self.release_callers(now_ms);
        self.advance(now_ms);
    }

    /// When [`Session::wake`] has to be called.
    pub fn wakes_at(&self) -> Option<i64> {
        let mut earliest_ms = match &self.in_flight {
            Some(in_flight) => in_flight.ends_ms,
            None if self.is_to_send() => self.due_ms,
            None => i64::MAX,
        };
        for list in [List::Failed, List::Waited] {
            earliest_ms = self.requests.first(list).map_or(i64::MAX, |(ms, _)| ms).min(earliest_ms);
        }
        (earliest_ms != i64::MAX).then_some(earliest_ms)
    }

    /// The number of requests in hand without an answer, and how many of them are paused or sent in vain.
    pub fn counts(&self) -> (usize, usize) {
        let is_open = |request: &&Request| request.answered.is_none();
        let stalled = self.paused.or(self.stalled).and_then(|ticket| self.requests.get(&ticket)).filter(is_open);
        (self.requests.listed(List::Open).len(), stalled.iter().len())
    }

    /// Whether a request in hand has no answer yet.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.requests.get(&ticket).is_some_and(|request| request.answered.is_none())
    }

    /// The id, method and target of a request in hand.
    pub fn describe(&self, ticket: Ticket) -> Option<(&str, &str, &str)> {
        let request = self.requests.get(&ticket)?;
        Some((&request.id, &request.entry.draft.method, &request.entry.draft.target))
    }

    pub(super) fn insert(&mut self, id: String, entry: Entry, has_caller: bool) -> Ticket {
        self.last_ticket += 1;
        let goes_alone = !frame::takes(&entry.draft);
        let request = Request {
            id,
            entry,
            stage: Stage::New,
            is_stored: !has_caller,
            has_caller,
            was_sent: false,
            is_under_way: false,
            goes_alone,
            is_cancelling: false,
            ran_anyway: false,
            attempts: 0,
            gives_up_ms: None,
            answered: None,
        };
        self.requests.insert(self.last_ticket, request);
        self.last_ticket
    }

    pub(super) fn with(&mut self, ticket: Ticket, work: impl FnOnce(&mut Request, &mut Vec<Action>)) {
        let actions = &mut self.actions;
        self.requests.changing(ticket, |request| work(request, actions));
    }

    pub(super) fn conclude(&mut self, ticket: Ticket, failure: Failure) {
        let owner = self.settings.owner.clone();
        self.with(ticket, |request, actions| {
            request.conclude(actions, ticket, Rc::new(Answered::Failure(failure)), &owner);
        });
    }

    /// The request can't get a place of its own here.
    pub(super) fn fence(&mut self, ticket: Ticket, failure: Failure) {
        let (actions, settings) = (&mut self.actions, &self.settings);
        self.requests.changing(ticket, |request| request.fence(actions, ticket, failure, settings));
    }

    /// Tells callers that have waited long enough that they need not wait any longer.
    fn release_callers(&mut self, now_ms: i64) {
        while let Some((_, ticket)) = self.requests.first(List::Waited).filter(|(ms, _)| *ms <= now_ms) {
            self.with(ticket, |request, actions| {
                let answered = Rc::new(Answered::Failure(ClientCode::GaveUp.into()));
                actions.push(Action::Deliver { ticket, to: Receiver::Caller, answered });
                request.has_caller = false;
            });
        }
    }

    /// Delivers the answer to the take-over.
    pub(super) fn deliver_take_over(&mut self, answered: Answered) {
        self.actions.push(Action::Deliver { ticket: TAKE_OVER, to: Receiver::Caller, answered: Rc::new(answered) });
    }
}
