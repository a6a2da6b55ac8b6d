//! What passes between the client and its host.

use super::failure::Failure;
use super::row::{Answered, Change, Draft};
use crate::message::Headers;
use std::rc::Rc;

/// The client's own name for a request in hand.
pub type Ticket = u64;

/// To whom an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// Who called.
    Caller,
    /// Whoever takes the answers that nobody waits for.
    Recovered,
}

/// What the host is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Change the row of an id in one durable transaction: give [`Change::apply`] who made it, as [`super::Client::maker_of`] says as this
    /// is polled (later, it may not be in hand any more), and what is there, and store what it returns.
    /// Report by [`super::Client::changed`].
    Change {
        /// Whose.
        ticket: Ticket,
        /// The row's id.
        id: String,
        /// What to do to it.
        change: Change,
    },
    /// Delete rows whose ids the server has forgotten, of those that [`super::row::is_done`]. No report.
    Remove(Vec<String>),
    /// Send. Report by [`super::Client::answered`] or [`super::Client::lost`].
    Transmit(Transmission),
    /// Give an attempt up; it is reported no more.
    Abort(u64),
    /// Hand an answer over. Once the receiver has it, report by [`super::Client::delivered`].
    Deliver {
        /// Whose.
        ticket: Ticket,
        /// To whom.
        to: Receiver,
        /// The answer.
        answered: Rc<Answered>,
    },
    /// Tell the caller that it need not wait any more, and why; the request goes on. No report.
    GiveUp {
        /// The request id.
        id: String,
        /// Why.
        failure: Failure,
    },
    /// Tell the application that a request pauses, and why. [`super::Client::resume`] sends it on.
    Pause {
        /// Whose.
        ticket: Ticket,
        /// Why.
        failure: Failure,
    },
}

/// One attempt, or a control request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmission {
    /// Names it in reports.
    pub attempt: u64,
    /// Method, target, headers and body; `key` is among the headers below.
    pub request: Rc<Draft>,
    /// More headers, of this attempt. The host adds its own to both.
    pub headers: Headers,
}

/// What came back, read to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// Of a body that is a JSON object: its members that are strings. Needed where `Semel-Status` is no outcome of an
    /// application request.
    pub members: Headers,
}

impl Answer {
    /// A member of the body.
    pub fn member(&self, name: &str) -> Option<&str> {
        self.members.get(name)
    }
}
