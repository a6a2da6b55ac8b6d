//! Sessions: named senders whose requests have numbers without a gap, and of whom one at a time may send.
//!
//! - [`decision`]: what becomes of an attempt; pure
//! - `execution`: one attempt from start to end; `closing`: cancelling a place; [`takeover`]: a new holder
//!
//! What is kept of them is in [`storage::sessions`](super::storage::sessions).
//!
//! Invariants:
//! - What is kept of a session does not grow with the number of its requests: its last number, the epochs of [`EPOCHS_MAX`](super::storage::sessions::state::EPOCHS_MAX)
//!   holders, and outcomes only from the acknowledged one on, at most [`WINDOW`](super::storage::sessions::state::WINDOW).
//! - Fencing is by epoch alone, never by time: neither the fence of the key nor a first-sent plays a part.
//! - A request that is refused, or undone, takes no place, and the next is judged as if it had never come; what it acknowledged stands.
//! - In the steady state a request inserts one row and deletes one. The row of a session is written only where its holder changes,
//!   a start or crash is counted, or it becomes idle.

mod closing;
pub mod decision;
mod execution;
pub mod takeover;

pub(super) use closing::close;
