//! The state of a key whose commits take time, and the steps that change it.

use crate::ledger::Mood;
use crate::oracle::Oracle;
use crate::properties::Watched;
use crate::server::{Arrived, Server};
use crate::tables::Tables;
use semel_core::message::Headers;
use semel_core::server::Answer;

/// A request that was executed and is not durable yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Worked {
    pub(crate) letter: usize,
    pub(crate) at_ms: i64,
    pub(crate) is_crash: bool,
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) instant: usize,
    /// The object, including what is not durable yet.
    pub(crate) server: Server,
    pub(crate) durable: Tables,
    /// The requests in the commit that is under way, in the order in which they arrived.
    pub(crate) committing: Option<Vec<Worked>>,
    /// The requests that arrived since, in that order.
    pub(crate) waiting: Vec<(usize, Mood)>,
    pub(crate) oracle: Oracle,
}

impl Watched for State {
    fn oracle(&self) -> &Oracle {
        &self.oracle
    }
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A letter arrives. It waits if a commit is under way.
    Arrives(usize, Mood),
    /// The commit is done, and the waiting requests are executed. If there is a statement number, that statement fails. With the
    /// index of a request, the statement is that request's when it is executed by itself (then the very first statement of the
    /// turn has failed too); without an index, it is a statement of all of them together.
    Commits(Option<(Option<usize>, u16)>),
    /// The commit fails, or the process ends.
    Ends,
    /// Time passes until this instant, in s.
    Passes(i64),
}

impl Worked {
    pub(crate) fn new(letter: usize, at_ms: i64, arrived: Arrived) -> Self {
        let Arrived { answer: Answer { status, headers, body, .. }, is_crash, .. } = arrived;
        Self { letter, at_ms, is_crash, status, headers: headers.to_lines(), body }
    }

    pub(crate) fn arrived(&self) -> Arrived {
        let headers = Headers::from_lines(&self.headers);
        let answer = Answer { status: self.status, headers, body: self.body.clone(), log: None };
        Arrived { answer, is_crash: self.is_crash, has_ended: false }
    }
}

pub(crate) fn semel_status(arrived: &Arrived) -> &str {
    arrived.answer.headers.get("semel-status").unwrap_or_default()
}
