//! A request in hand.
//!
//! Invariant: it is in one stage at a time, and every stage ends by a report of the host, by an answer, or by time.

use super::super::action::Receiver;
use super::super::failure::Failure;
use super::super::row::Answered;
use super::super::sending::cancelled;
use super::row::{Change, Entry};
use super::{Action, Settings, Ticket};
use crate::problem::Executed;
use crate::rules::{Rule, holds};
use std::rc::Rc;

/// Where a request stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// It is stored with its place, or without one while there is none to be had.
    New,
    /// The store is asked; or it failed, and is asked again at that instant.
    Changing { change: Change, again_ms: Option<i64> },
    /// Stored without a place of this epoch.
    Waiting,
    /// Stored with a place: it is sent until it has its answer.
    Placed,
    /// Its receiver has still to say that it has the answer.
    Delivering,
    /// Nobody waits for it, and it can't run here: it is for who holds the session now.
    Left,
}

/// The request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) entry: Entry,
    pub(super) stage: Stage,
    /// Whether its row may be there.
    pub(super) is_stored: bool,
    /// Whether somebody waits for it: not for what was taken over.
    pub(super) has_caller: bool,
    /// Whether it may have left under its place.
    pub(super) was_sent: bool,
    /// Whether it is in a frame that is under way.
    pub(super) is_under_way: bool,
    /// Whether no batch takes it.
    pub(super) goes_alone: bool,
    /// Whether the application gave it up, so that its place is to be closed.
    pub(super) is_cancelling: bool,
    /// It ran before its place could be closed: now for its outcome.
    pub(super) ran_anyway: bool,
    /// How often it left from here.
    pub(super) attempts: u32,
    /// When its caller is told that it need not wait.
    pub(super) gives_up_ms: Option<i64>,
    pub(super) answered: Option<Rc<Answered>>,
}

impl Request {
    /// Whether it is to have a place of this epoch and has none.
    pub(super) fn lacks_place(&self) -> bool {
        let on_its_way =
            |change: &Change| matches!(change, Change::Add(_) | Change::Adopt { .. } | Change::Number { .. });
        self.answered.is_none()
            && self.entry.place.is_none()
            && match &self.stage {
                Stage::New | Stage::Waiting => true,
                Stage::Changing { change, .. } => on_its_way(change),
                _ => false,
            }
    }

    /// Whether the acknowledgement must not pass its place.
    pub(super) fn holds_place(&self) -> bool {
        self.entry.answered.is_none()
    }

    /// Whether it leaves as a cancellation of its place.
    pub(super) fn leaves_as_cancellation(&self) -> bool {
        self.is_cancelling && !self.ran_anyway
    }

    /// Whether it leaves by itself, and by no socket. The cancellation of its place is a request of its own.
    pub(super) fn leaves_alone(&self) -> bool {
        self.goes_alone && !self.leaves_as_cancellation()
    }

    pub(super) fn change(&mut self, actions: &mut Vec<Action>, ticket: Ticket, change: Change) {
        actions.push(Action::Change { ticket, id: self.id.clone(), change: change.clone() });
        self.stage = Stage::Changing { change, again_ms: None };
    }

    /// Whether a caller still waits for an answer that isn't there yet.
    pub(super) fn may_give_up(&self) -> bool {
        self.has_caller && self.answered.is_none()
    }

    /// It has its definitive answer. Nobody may send it after an answer that lets others give it another place: so it is taken back first.
    pub(super) fn conclude(&mut self, actions: &mut Vec<Action>, ticket: Ticket, answered: Rc<Answered>, by: &str) {
        if self.answered.is_some() && matches!(self.stage, Stage::Placed) {
            // It was, and its place is closed. Nobody waits for that, and no row of its own is there.
            return self.change(actions, ticket, Change::Take { by: by.to_owned() });
        }
        self.answered = Some(answered.clone());
        if matches!(self.stage, Stage::Changing { change: Change::Cancel { .. }, again_ms: None }) {
            // Once the store has said what became of that.
            return;
        }
        let by = by.to_owned();
        let never_ran = matches!(&*answered, Answered::Failure(Failure { executed: Executed::No, .. }));
        let takes_back = never_ran && holds(Rule::RowTakenBack);
        if !self.is_stored && self.entry.place.is_some() {
            self.lose_row();
            self.deliver(actions, ticket);
        } else if !self.is_stored || self.has_caller && !takes_back {
            self.deliver(actions, ticket);
        } else if self.has_caller {
            self.change(actions, ticket, Change::Take { by });
        } else {
            self.change(actions, ticket, Change::Keep { by, answered });
        }
    }

    /// Whether it is the application's wish still, though nobody waits for it.
    pub(super) fn is_wanted_by_nobody_here(&self) -> bool {
        !self.has_caller && !self.is_cancelling && self.answered.is_none()
    }

    /// It never ran, and can't here. Where nobody waits for it, and nobody gave it up, who holds the session goes on with it, if that one can find it.
    pub(super) fn fence(&mut self, actions: &mut Vec<Action>, ticket: Ticket, failure: Failure, settings: &Settings) {
        if self.is_wanted_by_nobody_here() && settings.is_shared {
            if self.is_stored {
                self.stage = Stage::Left;
            } else {
                // That comes back here.
                self.change(actions, ticket, Change::Add(self.entry.clone()));
            }
        } else {
            let failure = if self.is_cancelling { cancelled() } else { failure };
            self.conclude(actions, ticket, Rc::new(Answered::Failure(failure)), &settings.owner);
        }
    }

    /// The application gave it up before it left.
    pub(super) fn take_back(&mut self, actions: &mut Vec<Action>, ticket: Ticket, by: &str) {
        self.conclude(actions, ticket, Rc::new(Answered::Failure(cancelled())), by);
    }

    /// It is not stored any more, or somebody else sees to it: so nobody can say that it won't run.
    pub(super) fn lose_row(&mut self) {
        self.is_stored = false;
        if let Some(Answered::Failure(failure)) = self.answered.as_deref() {
            let failure = Failure { executed: Executed::Unknown, ..failure.clone() };
            self.answered = Some(Rc::new(Answered::Failure(failure)));
        }
    }

    pub(super) fn deliver(&mut self, actions: &mut Vec<Action>, ticket: Ticket) {
        let to = if self.has_caller { Receiver::Caller } else { Receiver::Recovered };
        if let Some(answered) = &self.answered {
            actions.push(Action::Deliver { ticket, to, answered: answered.clone() });
        }
        self.stage = Stage::Delivering;
    }
}
