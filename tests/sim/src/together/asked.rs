//! What is asked for, and what happens in the run.

use super::midst::Midst;
use semel_support::{Call, Reply};
use std::cell::Cell;
use std::rc::Rc;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    Deposit,
    Cancel,
    Read,
    /// The id of what somebody had is used once more, with another payload or as somebody else.
    Other,
}

/// A message.
#[derive(Debug)]
pub struct Asked {
    pub number: usize,
    pub errand: Errand,
    pub call: Call,
    /// When it was first sent, if it says so, in Unix s.
    pub first_sent_s: Option<i64>,
    /// No attempt begins past this, in Unix ms.
    pub deadline_ms: Option<i64>,
    /// Which it is of those that arrived, counted from 1.
    pub arrived: Cell<u64>,
    /// When its turn came, by the clock of the key's machine; and the latest that this had told by then.
    pub turn_ms: Cell<(i64, i64)>,
}

impl Asked {
    /// For who reads the run.
    pub fn line(&self) -> String {
        format!("{:?} {}, arrival {}", self.errand, self.number, self.arrived.get())
    }
}

/// The id that is acknowledged, and the latest deadline of its attempts, if all had one.
pub type Ack = (String, Option<i64>);

/// What comes in one call.
#[derive(Debug, Default)]
pub struct Come {
    pub all: Vec<Rc<Asked>>,
    /// Whether it is a batch: in one commit, or one by one while nothing else runs.
    pub is_batch: bool,
    /// What a batch acknowledges.
    pub acks: Vec<Ack>,
}

impl Come {
    /// One by itself, or those that have come to a Worker together.
    pub fn of(all: Vec<Rc<Asked>>) -> Self {
        Self { all, ..Self::default() }
    }

    /// As how many it counts among those that are committed together.
    pub fn count(&self) -> usize {
        if self.is_batch { 1 } else { self.all.len() }
    }
}

#[derive(Debug)]
pub enum Event {
    /// Somebody begins to want something, or wants it still.
    Ask(usize),
    GiveUp(usize),
    Read(usize),
    /// Those go to the key that have come to its Worker together.
    Gathered,
    /// Those go to the key, as one batch, that are wanted together.
    Batched,
    /// What is asked arrives at the key, all in one call.
    Arrival(Come),
    /// An answer arrives at who asked.
    Told(Rc<Asked>, Box<Reply>),
    /// The commit that is under way is over.
    Durable(u32),
    /// What one who has the object to itself has done so far is durable.
    Part(u32),
    /// Somebody uses an id that was used.
    Other,
    /// The object ends.
    End,
    /// What comes of itself, whoever has the object.
    Midst(Midst),
    Calm,
}

/// What somebody wants.
#[derive(Debug, Default)]
pub struct Wish {
    /// `None`: it is not said.
    pub first_sent_s: Option<i64>,
    pub attempts: u32,
    pub is_given_up: bool,
    pub is_done: bool,
    /// Whose outcome is to be acknowledged with the next message.
    pub acknowledges: bool,
    /// Whether each attempt has a deadline.
    pub is_dated: bool,
    /// The latest that an attempt had.
    pub until_ms: Option<i64>,
    /// Whether somebody has its outcome.
    pub has_outcome: bool,
}
