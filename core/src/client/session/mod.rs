//! Sessions of the client: its requests at one key have places in a row, go out many in one frame, and take effect in that order.
//!
//! Who drives it, and how, is as with the [`super::Client`] beside it; an outbox has a machine of its own for each session that it opens.
//!
//! Invariants:
//! - Persist, then send: a request leaves only under a place that its row has.
//! - A place never names a second request: the next number is used once the row has the one before, and one that a row may have once that is surely gone.
//! - What may have left under a place is sent under that place, whoever sees to it by then, until its answer is definitive. Only
//!   what its key calls `fenced` with `no` gets another place.
//! - `ack` passes a place only once its row is gone, or holds the answer.
//! - No deadlines, and no clock but for pauses: nothing is decided by time.
//!
//! - [`machine`]: the machine, as its host sees it
//! - [`storing`]: what became of the changes of a row, and what follows
//! - [`left`]: what holders before have left
//! - [`sending`]: who gets which place, and what leaves when
//! - [`judging`]: what answers do
//! - [`request`]: a request in hand, and its stages
//! - [`hand`]: all of them, and what is asked of all
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

/// The server takes no number beyond the acknowledged one by more than this.
pub const WINDOW: i64 = 64;
/// Requests in a frame.
pub const ELEMENTS_MAX: usize = 256;
/// So many have a place, half of all that may, before a second frame leaves while one is under way: so the client makes and hears one while the
/// server works on the other. A frame has no more of them then, or there would be no second.
pub const AHEAD: usize = WINDOW as usize / 2;
/// Bytes of a frame of more than one request, as far as the client counts them: the server takes 1 MiB.
pub const FRAME_BYTES_MAX: usize = 1_000_000;
/// The ticket of the take-over, which is delivered like a request.
pub const TAKE_OVER: Ticket = 0;
/// So far beyond the next place none is ever the next by the time that it arrives, for the window is far smaller.
pub const BEYOND: i64 = 1_000_000;
/// A request that was refused so often in a row, though it may be sent again, is told of.
pub const VAIN_MAX: u32 = 8;
/// An attempt of one request that does not come through in time gets longer, up to this.
pub const PATIENCE_MS_MAX: i64 = 100_000;

/// What the host is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Change the row of an id in one durable transaction: give [`Change::apply`] what is there and store what it returns.
    /// Report by [`Session::changed`].
    Change {
        /// Whose.
        ticket: Ticket,
        /// The row's id.
        id: String,
        /// What to do to it.
        change: Change,
    },
    /// Send. Report by [`Session::answered`] or [`Session::lost`].
    Transmit(Transmission),
    /// Give an attempt up; it is reported no more.
    Abort(u64),
    /// Hand an answer over. Once the receiver has it, report by [`Session::delivered`]. A caller that need not wait any more (`gave-up`) is
    /// told at once, without a report.
    Deliver {
        /// Whose.
        ticket: Ticket,
        /// To whom.
        to: Receiver,
        /// The answer.
        answered: Rc<Answered>,
    },
    /// Tell the application that the session pauses at a request, or has been sending it in vain, and why. [`Session::resume`] goes on,
    /// [`Session::give_up`] without it. Of [`TAKE_OVER`]: that it has no places any more.
    Pause {
        /// Whose.
        ticket: Ticket,
        /// Why.
        failure: Failure,
    },
}
