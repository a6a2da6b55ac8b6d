//! Requests, and the events of the run.

use super::midst::Midst;
use semel_support::{Call, Reply};
use std::cell::Cell;
use std::rc::Rc;

/// What somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    Deposit,
    Cancel,
    Read,
    /// An id that has its outcome is used once more, with another payload or as another principal.
    Other,
    /// An administrator deletes the key.
    Delete,
}

/// A message.
#[derive(Debug)]
pub struct Asked {
    pub number: usize,
    pub errand: Errand,
    pub call: Call,
    /// When it was first sent, in Unix seconds, if the request says so.
    pub first_sent_s: Option<i64>,
    /// The attempt must not begin after this instant, in Unix ms.
    pub deadline_ms: Option<i64>,
    /// Its number among the messages that arrived, counted from 1.
    pub arrived: Cell<u64>,
    /// When its turn came, by the clock of the key's machine, and the latest clock that the key had told by then.
    pub turn_ms: Cell<(i64, i64)>,
}

impl Asked {
    /// A line for the trace.
    pub fn line(&self) -> String {
        format!("{:?} {}, arrival {}", self.errand, self.number, self.arrived.get())
    }
}

/// An acknowledged id, and the latest deadline of its attempts, if all had one.
pub type Ack = (String, Option<i64>);

/// The requests that arrive in one call.
#[derive(Debug, Default)]
pub struct Come {
    pub all: Vec<Rc<Asked>>,
    /// Whether they are a batch, which runs in one commit, or one by one while nothing else runs.
    pub is_batch: bool,
    /// The ids that a batch acknowledges.
    pub acks: Vec<Ack>,
}

impl Come {
    /// A single request, or those that came to a Worker together.
    pub fn of(all: Vec<Rc<Asked>>) -> Self {
        Self { all, ..Self::default() }
    }

    /// How many requests this counts as in a commit.
    pub fn count(&self) -> usize {
        if self.is_batch { 1 } else { self.all.len() }
    }
}

#[derive(Debug)]
pub enum Event {
    /// A caller begins to want something, or still wants it.
    Ask(usize),
    GiveUp(usize),
    Read(usize),
    /// The requests that came to the key's Worker together go to the key.
    Gathered,
    /// The requests of a batch go to the key.
    Batched,
    /// Requests arrive at the key in one call.
    Arrival(Come),
    /// An answer arrives at the caller.
    Told(Rc<Asked>, Box<Reply>),
    /// The commit that is under way is over.
    Durable(u32),
    /// What a request that has the object to itself has done so far is durable.
    Part(u32),
    /// Somebody uses an id that was used.
    Other,
    /// An administrator deletes the key, or still wants to.
    Delete(usize),
    /// The object ends.
    End,
    /// Something that happens without a request, whoever has the object.
    Midst(Midst),
    Calm,
}

/// A wish: something that a caller wants once.
#[derive(Debug, Default)]
pub struct Wish {
    /// `None`: the request does not say it.
    pub first_sent_s: Option<i64>,
    pub attempts: u32,
    pub is_given_up: bool,
    pub is_done: bool,
    /// Whose outcome is acknowledged with the next message.
    pub acknowledges: bool,
    /// Whether each attempt has a deadline.
    pub is_dated: bool,
    /// The latest deadline of an attempt, in Unix ms.
    pub until_ms: Option<i64>,
    /// Whether a caller has its outcome.
    pub has_outcome: bool,
}
