//! The client: it sees to it that a request is stored, sent until its answer is definitive, answered to its caller, and
//! acknowledged.
//!
//! The core owns every decision: what is stored and when, when to send and with which headers, what an answer means, when
//! to forget. The host owns the doing: it keeps rows, moves bytes, keeps time, wakes the caller.
//!
//! How the host drives a [`Client`]: after each call of a method it takes actions from [`Client::poll`] until there is
//! none, then sees to it that [`Client::wake`] is called at [`Client::wakes_at`]. It reports back what became of an action,
//! as the action says.
//!
//! Invariants:
//! - Persist, then send: no attempt of a request leaves before its row is stored, nor without a transaction that found
//!   the row still there and raised its `until` to the attempt's deadline.
//! - Forget after: a row becomes an acknowledgement only after the host said that the caller has the answer.
//! - The id of a request never changes.
//! - No randomness, no clock: ids and instants are arguments. `now_ms` may be any clock that doesn't go back.
//!
//! - [`machine`]: the machine, as its host sees it
//! - [`in_hand`]: a request in hand, and its stages
//! - [`sending`]: when an attempt starts, and what its answer does
//! - [`waking`]: what time and the network bring
//! - [`showing`]: what there is, for whoever shows it
//! - [`storing`]: what became of the changes of a row, and what follows
//! - [`numbered`]: a map from numbers
//! - [`request`]: how an attempt looks on the wire
//! - [`row`]: what is stored of a request, and its transitions, each in one transaction
//! - [`codec`]: how a row is laid out in bytes
//! - [`bytes`]: what that is made of
//! - [`verdict`]: what an answer means
//! - [`acknowledgements`]: the ids that the key may forget
//! - [`clock`]: the server's clock, as far as it is known
//! - [`failure`]: what a caller gets where there is no outcome
//! - [`session`]: requests with places in a row, in a machine of their own

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

/// Requests that a client has in hand at once. Beyond, it takes no more.
pub const REQUESTS_MAX: usize = 1_000;
/// Bytes of bodies that a client has in hand. Beyond, it takes no more requests.
pub const PENDING_BYTES_MAX: usize = 256 << 20;
/// Acknowledgements that wait to be taken. Beyond, the client takes no more requests.
pub const ACKS_WAITING_MAX: usize = 10_000;
/// Attempts under way at once; what is due beyond waits for one to end.
pub const ATTEMPTS_MAX: usize = 32;
/// Requests under way at once that only acknowledge.
pub const POSTS_MAX: usize = 4;
/// An acknowledgement that found no ride in so long goes by itself.
pub const ACK_RIDE_MS: i64 = 5_000;
/// `Retry-After` is obeyed up to here.
pub const RETRY_AFTER_S_MAX: i64 = 3_600;
/// Keys of which the clock is remembered, and paths of which the key is.
pub const KEYS_KNOWN_MAX: usize = 1_000;
/// How long an answer is kept for a caller in another tab.
pub const KEPT_S_MAX: i64 = 86_400;
