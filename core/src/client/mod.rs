//! The client: it stores a request, sends it until the answer is definitive, gives the answer to the caller, and
//! acknowledges it.
//!
//! This module makes every decision: what to store and when, when to send and with which headers, what an answer means,
//! when to forget. The host carries the decisions out: it keeps the rows, moves the bytes, keeps time, and wakes the
//! caller.
//!
//! How the host drives a [`Client`]: after each call of a method, it takes actions from [`Client::poll`] until there
//! are none. Then it arranges that [`Client::wake`] is called at [`Client::wakes_at`]. It reports the result of each
//! action as the action's documentation says.
//!
//! Invariants:
//! - Persist, then send: an attempt leaves only after the row of its request is stored, and after a transaction that
//!   found the row still there and raised its `until` to the attempt's deadline.
//! - Forget after: a row becomes an acknowledgement only after the host reported that the caller has the answer.
//! - The id of a request never changes.
//! - No randomness and no clock: ids and instants are arguments. `now_ms` may come from any clock that doesn't go back.
//!
//! - [`machine`]: the machine, as its host sees it
//! - [`in_hand`]: a request in hand, and its stages
//! - [`sending`]: when an attempt starts, and what its answer does
//! - [`waking`]: what the machine does when time passes, or the network comes or goes
//! - [`showing`]: the requests that exist, for an application that shows them
//! - [`storing`]: what the machine does when the host reports the change of a row
//! - [`numbered`]: a map whose keys are numbers
//! - [`request`]: how an attempt looks on the wire
//! - [`row`]: what is stored of a request, and its transitions, each in one transaction
//! - [`codec`]: how a row is laid out in bytes
//! - [`bytes`]: how integers, flags and texts are laid out in bytes
//! - [`verdict`]: what an answer means
//! - [`acknowledgements`]: the ids that the key may forget
//! - [`clock`]: the server's clock, as far as it is known
//! - [`failure`]: what a caller gets if there is no outcome
//! - [`session`]: requests with consecutive places at a key, in a machine of their own

pub mod acknowledgements;
pub mod action;
pub mod bytes;
pub mod clock;
pub mod codec;
pub mod failure;
mod in_hand;
pub mod machine;
pub mod numbered;
pub mod request;
pub mod row;
mod sending;
pub mod session;
mod showing;
mod storing;
#[cfg(test)]
mod tests;
pub mod verdict;
mod waking;

pub use action::{Action, Answer, Receiver, Ticket, Transmission};
pub use failure::{ClientCode, Failure};
pub use in_hand::Overview;
pub use machine::{Client, Settings};
pub use row::{Answered, Change, Changed, Draft, Entry, Row};

/// The requests that a client has in hand at most. Beyond that, it takes no more.
pub const REQUESTS_MAX: usize = 1_000;
/// The bytes of bodies that a client has in hand at most. Beyond that, it takes no more requests.
pub const PENDING_BYTES_MAX: usize = 256 << 20;
/// The acknowledgements that may wait for their key. Beyond that, the client takes no more requests.
pub const ACKS_WAITING_MAX: usize = 10_000;
/// The attempts under way at once. Further requests that are due wait until an attempt ends.
pub const ATTEMPTS_MAX: usize = 32;
/// The requests under way at once that only acknowledge.
pub const POSTS_MAX: usize = 4;
/// How long an acknowledgement waits for a request to ride on. After that it is sent by itself.
pub const ACK_RIDE_MS: i64 = 5_000;
/// The longest `Retry-After` that the client obeys; a longer one counts as this.
pub const RETRY_AFTER_S_MAX: i64 = 3_600;
/// The keys whose clocks are remembered at most, and the paths whose keys are.
pub const KEYS_KNOWN_MAX: usize = 1_000;
/// How long an answer is kept for a caller in another tab.
pub const KEPT_S_MAX: i64 = 86_400;
