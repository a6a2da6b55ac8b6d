//! The machine: what happened goes in, what to do comes out.
//!
//! Invariants (beside those of the module above):
//! - Requests are in hand in the order in which they are to take effect: what was taken over first, as it was numbered, then the calls.
//! - An answer that is not definitive never reaches the caller.
//! - A report about something that is no longer in hand changes nothing.

use super::super::action::{Answer, Receiver};
use super::super::failure::{ClientCode, Failure};
use super::super::numbered::Numbered;
use super::super::row::{Answered, Draft, Unreadable};
use super::request::{Request, Stage};
use super::row::{self, Change, Changed, Entry};
use super::sending::InFlight;
use super::{Action, TAKE_OVER, Ticket};
use crate::problem::Executed;
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
}

/// A session, as its client has it.
#[derive(Debug)]
pub struct Session {
    pub(super) settings: Settings,
    /// The session, for its rows.
    session: String,
    /// Its own epoch, once it has one.
    pub(super) epoch: Option<i64>,
    /// The number that comes next.
    pub(super) next_seq: i64,
    pub(super) requests: Numbered<Request>,
    pub(super) in_flight: Option<InFlight>,
    /// Nothing is sent before.
    pub(super) due_ms: i64,
    /// At which request it pauses.
    pub(super) paused: Option<Ticket>,
    /// Whether the next frame is of one: what is wrong with it must not be said of others.
    pub(super) is_alone: bool,
    /// The first place of another holder that lives and may not have its answer yet, as of the last look.
    pub(super) awaited_elsewhere: Option<i64>,
    /// Why there are no more places to be had.
    pub(super) ended: Option<Failure>,
    pub(super) actions: Vec<Action>,
    last_ticket: Ticket,
    last_turn: i64,
    pub(super) last_attempt: u64,
}

impl Session {
    /// A session that is still to be taken over: by [`Session::wake`].
    pub fn new(settings: Settings) -> Self {
        // None of the three has a line feed in it.
        let session = joined(&[&settings.outbox, "\n", &settings.key, "\n", &settings.name]);
        Self {
            settings,
            session,
            epoch: None,
            next_seq: 0,
            requests: Numbered::new(),
            in_flight: None,
            due_ms: i64::MIN,
            paused: None,
            is_alone: false,
            awaited_elsewhere: None,
            ended: None,
            actions: Vec::new(),
            last_ticket: TAKE_OVER,
            last_turn: 0,
            last_attempt: 0,
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Action> {
        (!self.actions.is_empty()).then(|| self.actions.remove(0))
    }

    /// Takes what is stored: once the session is taken over, and when an owner has gone. `lives`: whether an owner certainly lives;
    /// `None` where that can't be told.
    pub fn stored(
        &mut self,
        now_ms: i64,
        rows: &[(String, Vec<u8>)],
        lives: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<(), Unreadable> {
        // All or nothing: what can't be read must not be sent past.
        for (_, bytes) in rows {
            row::decode(bytes)?;
        }
        // Who holds the session no more goes on with nobody's requests: what is new to its epoch would never run.
        if self.ended.is_some() {
            return Ok(());
        }
        let mut left: Vec<(&String, Entry)> = Vec::new();
        self.awaited_elsewhere = None;
        for (id, bytes) in rows {
            let entry = row::decode(bytes)?;
            if entry.session != self.session || entry.owner == self.settings.owner {
                continue;
            }
            self.last_turn = self.last_turn.max(entry.turn);
            if lives.is_some_and(|lives| lives(&entry.owner)) {
                for place in entry.place.iter().filter(|_| entry.answered.is_none()) {
                    self.awaited_elsewhere = Some(self.awaited_elsewhere.map_or(place.seq, |seq| seq.min(place.seq)));
                }
                continue;
            }
            // What has a place comes before what has none.
            let order = |entry: &Entry| (entry.place.is_none(), entry.place, entry.turn);
            left.insert(left.partition_point(|(_, other)| order(other) <= order(&entry)), (id, entry));
        }
        for (id, entry) in left {
            if self.requests.values().any(|request| request.id == *id) {
                continue;
            }
            let change = Change::Adopt { by: self.settings.owner.clone(), from: entry.owner.clone() };
            let ticket = self.insert(id.clone(), entry, false);
            self.with(ticket, |request, actions| request.change(actions, ticket, change));
        }
        self.advance(now_ms);
        Ok(())
    }

    /// Takes a request in hand.
    pub fn request(&mut self, now_ms: i64, id: String, mut draft: Draft) -> Ticket {
        draft.key = Some(self.settings.key.clone());
        let bytes: usize = self.requests.values().map(|request| request.entry.draft.body.len()).sum();
        let refused = if self.requests.len() >= self.settings.requests_max || bytes > super::super::PENDING_BYTES_MAX {
            Some(ClientCode::OutboxFull.into())
        } else {
            self.ended.clone().map(never_ran)
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
        if let Some(failure) = refused {
            self.conclude(ticket, failure);
        }
        self.advance(now_ms);
        ticket
    }

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
            (Change::Add(_), None | Some(Changed::Not)) => {
                let failure = Answered::Failure(ClientCode::StoreFailed.into());
                request.conclude(&mut self.actions, ticket, failure, &self.settings.owner);
            }
            (change, None) => {
                let again_ms = Some(now_ms + self.settings.retry_interval_ms);
                request.stage = Stage::Changing { change, again_ms };
            }
            (Change::Remove, _) => return false,
            (Change::Take { .. }, Some(Changed::Made(_))) => {
                request.is_stored = false;
                request.deliver(&mut self.actions, ticket);
            }
            (_, Some(Changed::Not)) => {
                // Somebody else sees to it, or its answer was given there.
                if !request.has_caller {
                    return false;
                }
                request.answered.get_or_insert_with(|| Rc::new(Answered::Failure(ClientCode::OutcomeLost.into())));
                request.lose_row();
                request.deliver(&mut self.actions, ticket);
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

    /// It is stored as its entry says.
    fn go_on(&mut self, ticket: Ticket, request: &mut Request) {
        if let Some(answered) = request.entry.answered.clone() {
            request.answered = Some(answered);
            return request.deliver(&mut self.actions, ticket);
        }
        request.stage = if request.entry.place.is_some() { Stage::Placed } else { Stage::Waiting };
        // What was taken over with a place may have left under it.
        request.was_sent |=
            !request.has_caller && request.entry.place.is_some_and(|place| Some(place.epoch) != self.epoch);
        if let Some(failure) = self.ended.clone().filter(|_| !request.was_sent) {
            let failure = Answered::Failure(never_ran(failure));
            request.conclude(&mut self.actions, ticket, failure, &self.settings.owner);
        } else if request.is_cancelling && request.entry.place.is_none() {
            request.take_back(&mut self.actions, ticket, &self.settings.owner);
        }
    }

    /// Reports the answer to [`Action::Transmit`].
    pub fn answered(&mut self, now_ms: i64, attempt: u64, answer: Answer) {
        if let Some(ended) = self.in_flight.take_if(|each| each.attempt == attempt) {
            self.judge(now_ms, ended, answer);
        }
        self.advance(now_ms);
    }

    /// Reports that [`Action::Transmit`] got no answer.
    pub fn lost(&mut self, now_ms: i64, attempt: u64) {
        if self.in_flight.take_if(|each| each.attempt == attempt).is_some() {
            self.wait(now_ms, 0);
        }
        self.advance(now_ms);
    }

    /// Reports that the receiver of [`Action::Deliver`] has the answer.
    pub fn delivered(&mut self, now_ms: i64, ticket: Ticket) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        if !matches!(request.stage, Stage::Delivering) {
            return;
        }
        if request.is_stored {
            request.change(&mut self.actions, ticket, Change::Remove);
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
            if matches!(request.stage, Stage::New | Stage::Waiting) {
                request.take_back(actions, ticket, &owner);
            }
        });
        if self.paused == Some(ticket) {
            self.paused = None;
        }
        self.advance(now_ms);
    }

    /// Goes on after a pause.
    pub fn resume(&mut self, now_ms: i64) {
        self.paused = None;
        self.advance(now_ms);
    }

    /// Time has passed.
    pub fn wake(&mut self, now_ms: i64) {
        if let Some(ended) = self.in_flight.take_if(|each| each.ends_ms <= now_ms) {
            self.actions.push(Action::Abort(ended.attempt));
            self.wait(now_ms, 0);
        }
        self.advance(now_ms);
    }

    /// When [`Session::wake`] is to be called.
    pub fn wakes_at(&self) -> Option<i64> {
        let mut earliest_ms = match &self.in_flight {
            Some(in_flight) => in_flight.ends_ms,
            None if self.is_to_send() => self.due_ms,
            None => i64::MAX,
        };
        for request in self.requests.values() {
            if let Stage::Changing { again_ms: Some(again_ms), .. } = request.stage {
                earliest_ms = earliest_ms.min(again_ms);
            }
        }
        (earliest_ms != i64::MAX).then_some(earliest_ms)
    }

    /// How many requests are in hand without an answer, and how many of them are paused.
    pub fn counts(&self) -> (usize, usize) {
        let open = self.requests.values().filter(|request| request.answered.is_none()).count();
        (open, self.paused.iter().len())
    }

    /// Id, method and target of a request in hand.
    pub fn describe(&self, ticket: Ticket) -> Option<(&str, &str, &str)> {
        let request = self.requests.get(&ticket)?;
        Some((&request.id, &request.entry.draft.method, &request.entry.draft.target))
    }

    /// Who owns a row of this session, for who looks whether they live.
    pub fn owner_of(&self, row: &[u8]) -> Option<String> {
        row::decode(row).ok().filter(|entry| entry.session == self.session).map(|entry| entry.owner)
    }

    fn insert(&mut self, id: String, entry: Entry, has_caller: bool) -> Ticket {
        self.last_ticket += 1;
        let request = Request {
            id,
            entry,
            stage: Stage::New,
            is_stored: !has_caller,
            has_caller,
            was_sent: false,
            is_cancelling: false,
            ran_anyway: false,
            answered: None,
        };
        self.requests.insert(self.last_ticket, request);
        self.last_ticket
    }

    pub(super) fn with(&mut self, ticket: Ticket, work: impl FnOnce(&mut Request, &mut Vec<Action>)) {
        if let Some(request) = self.requests.get_mut(&ticket) {
            work(request, &mut self.actions);
        }
    }

    pub(super) fn conclude(&mut self, ticket: Ticket, failure: Failure) {
        let owner = self.settings.owner.clone();
        self.with(ticket, |request, actions| request.conclude(actions, ticket, Answered::Failure(failure), &owner));
    }

    /// The take-over has its answer.
    pub(super) fn deliver_take_over(&mut self, answered: Answered) {
        self.actions.push(Action::Deliver { ticket: TAKE_OVER, to: Receiver::Caller, answered: Rc::new(answered) });
    }
}

/// Of a request that never left, or whose place nobody can take any more.
pub(super) fn never_ran(failure: Failure) -> Failure {
    Failure { executed: Executed::No, ..failure }
}
