//! Sessions of the client: the requests at one key have consecutive places, leave many in one frame, and take effect in
//! that order.
//!
//! The host drives a [`Session`] as it drives a [`super::Client`]. Each session that an outbox opens has its own
//! machine.
//!
//! Invariants:
//! - Persist, then send: a request leaves only under the place that its row holds.
//! - A place never names a second request. The next number is used only once a row holds the number before. A number
//!   that a row may hold is used again only once that row is surely gone.
//! - A request that may have left under a place is sent under that place until its answer is definitive, whoever sends
//!   it by then. It gets another place only if its key answers `fenced` with `no`.
//! - `ack` passes a place only once its row is gone or holds the answer.
//! - There are no deadlines. The clock only ends attempts, pauses and the waiting of callers.
//!
//! - [`machine`]: the machine, as its host sees it
//! - [`storing`]: what the machine does when the host reports the change of a row
//! - [`left`]: the requests that earlier holders have left
//! - [`sending`]: which request gets which place, and when frames leave
//! - [`judging`]: what the machine does with answers
//! - [`request`]: a request in hand, and its stages
//! - [`hand`]: all requests in hand, with lists for the questions that are asked about all of them
//! - [`frame`]: how frames look on the wire
//! - [`row`]: what is stored of a request, and its transitions, each in one transaction

pub mod frame;
mod hand;
mod judging;
pub mod left;
pub mod machine;
mod request;
pub mod row;
mod sending;
mod storing;
#[cfg(test)]
mod tests;

use super::action::{Receiver, Ticket, Transmission};
use super::failure::Failure;
use super::row::Answered;
use std::rc::Rc;

pub use machine::{Session, Settings};
pub use row::{Change, Changed, Entry, Place};

/// The server refuses a number that is further than this beyond the acknowledged one.
pub const WINDOW: i64 = 64;
/// The requests in a frame at most.
pub const ELEMENTS_MAX: usize = 256;
/// How many requests must have a place before a second frame leaves beside the one under way: half of the window. So
/// the client makes and hears one frame while the server works on the other. A frame then has no more requests than
/// this, or there would be no second frame.
pub const AHEAD: usize = WINDOW as usize / 2;
/// The bytes of a frame of more than one request, as the client counts them. The server takes 1 MiB.
pub const FRAME_BYTES_MAX: usize = 1_000_000;
/// The ticket of the take-over, whose answer is delivered like a request's.
pub const TAKE_OVER: Ticket = 0;
/// A place this far beyond the next is certainly not the next when it arrives, since the window is far smaller.
pub const BEYOND: i64 = 1_000_000;
/// After so many refusals in a row that allow another attempt, the application is told of the request.
pub const VAIN_MAX: u32 = 8;
/// If an attempt with one request does not come through in time, the next may take longer, up to this.
pub const PATIENCE_MS_MAX: i64 = 100_000;

/// What the host has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Change the row of an id in one durable transaction: give [`Change::apply`] the stored row, and store what it
    /// returns. Report with [`Session::changed`].
    Change {
        /// The request.
        ticket: Ticket,
        /// The row's id.
        id: String,
        /// The change.
        change: Change,
    },
    /// Send this. Report with [`Session::answered`] or [`Session::lost`].
    Transmit(Transmission),
    /// Abort this attempt, and report nothing more about it.
    Abort(u64),
    /// Hand an answer over. Once the receiver has it, report with [`Session::delivered`]. The answer `gave-up` only
    /// tells a caller that it need not wait any longer. It is handed over at once, and not reported.
    Deliver {
        /// The request.
        ticket: Ticket,
        /// The receiver.
        to: Receiver,
        /// The answer.
        answered: Rc<Answered>,
    },
    /// Tell the application that the session pauses at a request, or keeps sending it in vain, and why.
    /// [`Session::resume`] goes on, [`Session::give_up`] goes on without the request. For [`TAKE_OVER`]: the session
    /// gets no places any more.
    Pause {
        /// The request.
        ticket: Ticket,
        /// The reason.
        failure: Failure,
    },
}
