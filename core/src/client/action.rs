//! What the client and its host exchange: the actions that the client asks for, and the answers that the host reports.

use super::failure::Failure;
use super::row::{Answered, Change, Draft};
use crate::message::Headers;
use std::rc::Rc;

/// The client's own number for a request in hand.
pub type Ticket = u64;

/// Who gets an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// The caller of the request.
    Caller,
    /// The application's handler of answers that no caller waits for (`onrecovered`).
    Recovered,
}

/// What the host has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Change the row of an id in one durable transaction: call [`Change::apply`] with the maker and the stored row,
    /// and store what it returns. Ask [`super::Client::maker_of`] for the maker when polling this action; later the
    /// request may no longer be in hand. Report with [`super::Client::changed`].
    Change {
        /// The request.
        ticket: Ticket,
        /// The row's id.
        id: String,
        /// The change.
        change: Change,
    },
    /// Delete those of these rows for which [`super::row::is_done`] holds. There is nothing left to do for them. No
    /// report.
    Remove(Vec<String>),
    /// Send this. Report with [`super::Client::answered`] or [`super::Client::lost`].
    Transmit(Transmission),
    /// Abort this attempt, and report nothing more about it.
    Abort(u64),
    /// Hand an answer over. Once the receiver has it, report with [`super::Client::delivered`].
    Deliver {
        /// The request.
        ticket: Ticket,
        /// The receiver.
        to: Receiver,
        /// The answer.
        answered: Rc<Answered>,
    },
    /// Tell the caller that it need not wait any longer, and why. The request goes on. No report.
    GiveUp {
        /// The request id.
        id: String,
        /// The reason.
        failure: Failure,
    },
    /// Tell the application that a request pauses, and why. [`super::Client::resume`] continues it.
    Pause {
        /// The request.
        ticket: Ticket,
        /// The reason.
        failure: Failure,
    },
}

/// One attempt, or a control request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmission {
    /// The number of the attempt, for the host's report.
    pub attempt: u64,
    /// Method, target, headers and body. Its `key` is already among `headers` below.
    pub request: Rc<Draft>,
    /// Further headers, of this attempt only. The host adds its own to both.
    pub headers: Headers,
}

/// An answer from the server. The host has read it to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// If the body is a JSON object: those of its members that are strings. Needed unless `Semel-Status` says that this
    /// is the outcome of an application request.
    pub members: Headers,
}

impl Answer {
    /// The value of a string member of the body.
    pub fn member(&self, name: &str) -> Option<&str> {
        self.members.get(name)
    }
}
