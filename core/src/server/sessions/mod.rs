//! Sessions: named senders whose requests have contiguous numbers, and of whom only one at a time may send.
//!
//! - [`decision`]: decides about an attempt, without I/O
//! - `execution`: one attempt from start to end; `closing`: cancels a place; [`takeover`]: a new holder
//!
//! [`storage::sessions`](super::storage::sessions) has what a key keeps of them.
//!
//! Invariants:
//! - What is kept of a session does not grow with the number of its requests. It is the last number, the epochs of
//!   [`EPOCHS_MAX`](super::storage::sessions::state::EPOCHS_MAX) holders, and the outcomes that are not acknowledged, at
//!   most [`WINDOW`](super::storage::sessions::state::WINDOW).
//! - Only the epoch fences, never time: the key's fence and a request's first-sent play no part.
//! - A request that is refused or undone takes no place, and the next one is judged as if it had never come. What it
//!   acknowledged stays acknowledged.
//! - In the steady state, a request inserts one row and deletes one. The row of a session is written only when its holder
//!   changes, a start or a crash is counted, or the session becomes idle.

mod closing;
pub mod decision;
mod execution;
pub mod takeover;

pub(super) use closing::close;
