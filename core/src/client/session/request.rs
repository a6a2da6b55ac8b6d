//! A request of a session in hand, and its stages.
//!
//! Invariant: a request is in one stage at a time, and each stage ends by a report of the host, an answer, or an
//! instant.

use super::super::action::Receiver;
use super::super::failure::Failure;
use super::super::row::Answered;
use super::super::sending::cancelled;
use super::row::{Change, Entry};
use super::{Action, Settings, Ticket};
use crate::problem::Executed;
use crate::rules::{Rule, holds};
use std::rc::Rc;

/// The stage of a request.
#[derive(Debug)]
pub(super) enum Stage {
    /// Not stored yet. It is stored with its place, or without one if none can be had for a while.
    New,
    /// Its row is being changed. If `again_ms` is set, the store failed, and the change is tried again at that instant.
    Changing { change: Change, again_ms: Option<i64> },
    /// Stored without a place of this epoch.
    Waiting,
    /// Stored with a place. It is sent until it has its answer.
    Placed,
    /// Its answer is being handed over.
    Delivering,
    /// No caller waits for it, and it can't run here. It is for the holder that the session has now.
    Left,
}

/// A request in hand.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) entry: Entry,
    pub(super) stage: Stage,
    /// Whether its row may exist.
    pub(super) is_stored: bool,
    /// Whether a caller waits for it. None does for a request that was taken over.
    pub(super) has_caller: bool,
    /// Whether it may have left under its place.
    pub(super) was_sent: bool,
    /// Whether it is in a frame that is under way.
    pub(super) is_under_way: bool,
    /// Whether no batch takes it.
    pub(super) goes_alone: bool,
    /// Whether the application gave it up, so that its place has to be closed.
    pub(super) is_cancelling: bool,
    /// Whether it ran before its place could be closed. It is then sent again, for its outcome.
    pub(super) ran_anyway: bool,
    /// How often it left from here.
    pub(super) attempts: u32,
    /// When its caller is told that it need not wait any longer, in ms.
    pub(super) gives_up_ms: Option<i64>,
    pub(super) answered: Option<Rc<Answered>>,
}

impl Request {
    /// Whether it needs a place of this epoch and has none.
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

    /// Whether it is sent as a cancellation that closes its place.
    pub(super) fn leaves_as_cancellation(&self) -> bool {
        self.is_cancelling && !self.ran_anyway
    }

    /// Whether it is sent by itself, and not on a socket. The cancellation of its place is another request, which a
    /// batch takes.
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

    /// Takes its definitive answer. An answer that it never ran lets other holders give it another place. So its row is
    /// first taken back, to be sure that nobody sends it.
    pub(super) fn conclude(&mut self, actions: &mut Vec<Action>, ticket: Ticket, answered: Rc<Answered>, by: &str) {
        if self.answered.is_some() && matches!(self.stage, Stage::Placed) {
            // It had its answer before, and now its place is closed. No caller waits for that, and it has no row of its
            // own.
            return self.change(actions, ticket, Change::Take { by: by.to_owned() });
        }
        self.answered = Some(answered.clone());
        if matches!(self.stage, Stage::Changing { change: Change::Cancel { .. }, again_ms: None }) {
            // The row is just being marked as given up. The answer is handed on once the store has reported that.
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

    /// It never ran, and can't run here. If no caller waits for it and nobody gave it up, the session's current holder
    /// goes on with it, provided that it can find the row.
    pub(super) fn fence(&mut self, actions: &mut Vec<Action>, ticket: Ticket, failure: Failure, settings: &Settings) {
        if !self.has_caller && !self.is_cancelling && self.answered.is_none() && settings.is_shared {
            if self.is_stored {
                self.stage = Stage::Left;
            } else {
                // Once the row is stored, this method is called again.
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

    /// Its row is gone, or another tab sends it. So nobody can say that it never runs.
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
