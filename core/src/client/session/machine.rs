//! The machine: what happened goes in, what to do comes out.
//!
//! Invariants (beside those of the module above):
//! - Requests are in hand in the order in which they are to take effect: what was taken over first, as it was numbered, then the calls.
//! - An answer that is not definitive never reaches the caller.
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
    /// Names this holder of the session among all that ever were.
    pub owner: String,
    /// Who makes the requests; empty for nobody in particular.
    pub principal: String,
    /// The key, percent-encoded.
    pub key: String,
    /// The name of the session at its key.
    pub name: String,
    /// The epoch that is to be taken over; `None`: whichever it is.
    pub after: Option<i64>,
    /// The id of the take-over.
    pub take_over_id: String,
    /// The pause between two attempts.
    pub retry_interval_ms: i64,
    /// How long an attempt may take.
    pub attempt_timeout_ms: i64,
    /// Requests in hand at once. Beyond, no more are taken.
    pub requests_max: usize,
    /// Whether one request alone is a batch too: on a socket, all are.
    pub is_framed: bool,
    /// So many requests are ready before a second frame leaves beside the one that is under way; 0: none does. It is for what keeps the order of
    /// frames. Elsewhere nothing breaks, but what comes before the first is refused, and goes again.
    pub ahead: usize,
    /// Whether its rows are where others find them: else nobody goes on with what it leaves.
    pub is_shared: bool,
}

/// A session, as its client has it.
#[derive(Debug)]
pub struct Session {
    pub(super) settings: Settings,
    /// The session, for its rows.
    pub(super) session: String,
    /// Its own epoch, once it has one.
    pub(super) epoch: Option<i64>,
    /// The number that comes next.
    pub(super) next_seq: i64,
    /// What the store may have under that number though it failed: while it is in hand, nothing gets a place.
    pub(super) in_doubt: Ticket,
    /// Whether nobody can tell who lives, as of the last look: so others may have taken what is its own.
    pub(super) is_blind: bool,
    pub(super) requests: Hand,
    pub(super) in_flight: Option<InFlight>,
    /// What left beside it.
    pub(super) second: Option<InFlight>,
    /// Whether frames leave one by one: of the last that was under way something goes again.
    pub(super) is_alone: bool,
    /// Whether nothing leaves yet, for there is more to be told.
    pub(super) is_held: bool,
    /// The first place of which somebody else on this store has still to hear, who lives, as of the last look.
    pub(super) unheard_seq: Option<i64>,
    /// Whether they had their time to hear: a tab that is frozen holds nobody up for ever.
    pub(super) has_waited: bool,
    /// The last number that was taken when it took over.
    pub(super) taken_over_seq: i64,
    /// Whether it acknowledges what holders before it may still want to hear: there is no room to do without.
    pub(super) is_pressed: bool,
    /// Whether an acknowledgement goes in front of a cancellation: the key had no room for one without.
    pub(super) cancels_with_ack: bool,
    /// Nothing is sent before.
    pub(super) due_ms: i64,
    /// Nor, whatever becomes of the network, before the server has asked for.
    pub(super) not_before_ms: i64,
    pub(super) is_offline: bool,
    /// At which request it pauses.
    pub(super) paused: Option<Ticket>,
    /// Which was sent in vain, and how often in a row.
    pub(super) vain: (Ticket, u32),
    /// Of which the application was told that; it is sent on.
    pub(super) stalled: Option<Ticket>,
    /// So many requests may be in the next frame: fewer than there may be after one that did not come through in time, or whose
    /// first was not answered for good, for what is wrong with that must not be said of others.
    pub(super) elements_max: usize,
    /// So long may the next attempt take.
    pub(super) patience_ms: i64,
    /// When callers are told that they need not wait.
    gives_up_after_ms: Option<i64>,
    /// Why there are no more places to be had.
    pub(super) ended: Option<Failure>,
    pub(super) actions: Vec<Action>,
    /// Those that [`Self::poll`] is about to give: none is moved for one that is taken.
    polled: std::vec::IntoIter<Action>,
    last_ticket: Ticket,
    pub(super) last_turn: i64,
    pub(super) last_attempt: u64,
}

impl Session {
    /// A session that is still to be taken over: by [`Session::wake`].
    pub fn new(settings: Settings) -> Self {
        // None of the three has a line feed in it.
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

    /// Has callers told after so long that they need not wait: their requests go on, and what comes of them is for whoever takes what
    /// is recovered.
    pub fn give_up_after(&mut self, after_ms: Option<i64>) {
        self.gives_up_after_ms = after_ms;
    }

    /// Nothing leaves before [`Session::release`]: what is told together leaves together, once what is asked of the store at once is done.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// All of it is told, if there was such. The next thing to do.
    pub fn release(&mut self, now_ms: i64) -> Option<Action> {
        if std::mem::take(&mut self.is_held) {
            self.advance(now_ms);
        }
        self.poll()
    }

    /// The next thing to do.
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
        // Only a damaged row has such a turn that there is none after it.
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

    /// Reports the answer to [`Action::Transmit`].
    pub fn answered(&mut self, now_ms: i64, attempt: u64, answer: Answer) {
        if let Some(ended) = self.land(now_ms, attempt) {
            self.judge(now_ms, ended, answer);
        }
        self.advance(now_ms);
    }

    /// Reports that [`Action::Transmit`] got no answer.
    pub fn lost(&mut self, now_ms: i64, attempt: u64) {
        if self.land(now_ms, attempt).is_some() {
            self.is_alone = self.settings.ahead > 0;
            self.wait(now_ms, 0);
        }
        self.advance(now_ms);
    }

    /// Reports that the receiver of [`Action::Deliver`] has the answer.
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

    /// The application gives a request up: its place is closed, unless it ran.
    pub fn give_up(&mut self, now_ms: i64, ticket: Ticket) {
        let owner = self.settings.owner.clone();
        self.with(ticket, |request, actions| {
            if request.answered.is_some() {
                return;
            }
            request.is_cancelling = true;
            // What waits to be left for who holds the session is not its to go on with any more.
            if matches!(request.stage, Stage::New | Stage::Waiting | Stage::Left) {
                request.take_back(actions, ticket, &owner);
            }
        });
        if self.paused == Some(ticket) || self.stalled == Some(ticket) {
            self.go_on_after_pause();
        }
        self.advance(now_ms);
    }

    /// Goes on after a pause.
    pub fn resume(&mut self, now_ms: i64) {
        self.go_on_after_pause();
        self.advance(now_ms);
    }

    fn go_on_after_pause(&mut self) {
        (self.paused, self.stalled, self.vain) = Default::default();
    }

    /// The network is gone, or there again. Without it nothing is sent.
    pub fn set_offline(&mut self, now_ms: i64, is_offline: bool) {
        self.is_offline = is_offline;
        self.due_ms = self.due_ms.min(self.not_before_ms.max(now_ms));
        self.advance(now_ms);
    }

    /// Time has passed.
    pub fn wake(&mut self, now_ms: i64) {
        let overdue = self.in_flight.as_ref().filter(|each| each.ends_ms <= now_ms).map(|each| each.attempt);
        if let Some(ended) = overdue.and_then(|attempt| self.land(now_ms, attempt)) {
            self.actions.push(Action::Abort(ended.attempt));
            self.is_alone = self.settings.ahead > 0;
            self.shorten(&ended);
            self.wait(now_ms, 0);
        }
        self.release_callers(now_ms);
        self.advance(now_ms);
    }

    /// When [`Session::wake`] is to be called.
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

    /// How many requests are in hand without an answer, and how many of them are paused.
    pub fn counts(&self) -> (usize, usize) {
        let is_open = |request: &&Request| request.answered.is_none();
        let stalled = self.paused.or(self.stalled).and_then(|ticket| self.requests.get(&ticket)).filter(is_open);
        (self.requests.listed(List::Open).len(), stalled.iter().len())
    }

    /// Whether a request in hand has no answer yet.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.requests.get(&ticket).is_some_and(|request| request.answered.is_none())
    }

    /// Id, method and target of a request in hand.
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

    /// It can have no place of its own here.
    pub(super) fn fence(&mut self, ticket: Ticket, failure: Failure) {
        let (actions, settings) = (&mut self.actions, &self.settings);
        self.requests.changing(ticket, |request| request.fence(actions, ticket, failure, settings));
    }

    /// Callers that have waited long enough are told so.
    fn release_callers(&mut self, now_ms: i64) {
        while let Some((_, ticket)) = self.requests.first(List::Waited).filter(|(ms, _)| *ms <= now_ms) {
            self.with(ticket, |request, actions| {
                let answered = Rc::new(Answered::Failure(ClientCode::GaveUp.into()));
                actions.push(Action::Deliver { ticket, to: Receiver::Caller, answered });
                request.has_caller = false;
            });
        }
    }

    /// The take-over has its answer.
    pub(super) fn deliver_take_over(&mut self, answered: Answered) {
        self.actions.push(Action::Deliver { ticket: TAKE_OVER, to: Receiver::Caller, answered: Rc::new(answered) });
    }
}
