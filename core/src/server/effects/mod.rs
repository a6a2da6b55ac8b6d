//! Effects that leave: requests that a handler has sent to other keys, and calls to addresses outside.
//!
//! They are stored in the commit of the request that makes them, and sent by the object afterwards, at a constant interval, until there is
//! an answer. A *lane* is all that goes to one target, which is a key or an origin, in the order of the commits.
//!
//! - `store`: the tables. What a handler asks for is in [`crate::server::handler`]
//! - [`lane`]: what is to be sent next, and what an answer does; pure
//! - `outbox`: what an object knows of it in memory; `sending`: what leaves, and what comes of it. `tell`: what an administrator sees and mends
//!
//! Invariants:
//! - An effect is stored with what made it, or neither is. It leaves its table only with an answer, or for the parked ones.
//! - Of a lane the first is under way, and no other. To a key it goes as a session of the sending key: its number there is given in the
//!   commit that stores it, so that it is known by it wherever both are put back to.
//! - An object takes its session at a key over before it sends anything there: what one before it has still under way is fenced.
//! - A number is never left unused: what is refused for good is closed at the other key before the next one goes.
//! - Of a handler that has none, nothing of this is there: no table, and no code.

pub mod lane;
mod outbox;
mod sending;
pub(super) mod store;
mod tell;

pub use lane::{Heard, Target};
pub use outbox::Outbox;
pub use sending::Sending;
pub(super) use store::count_parked;
pub use tell::Mending;
pub(super) use tell::{mend, tell};

/// A request makes so many effects at most.
pub const EFFECTS_PER_REQUEST_MAX: usize = 64;
/// The id of one has so many hexadecimal digits.
pub const EFFECT_ID_DIGITS: usize = 32;
/// They have so many bytes at most, all of them together.
pub const EFFECTS_BYTES_MAX: usize = 1 << 20;
/// So many wait at a key, or are parked.
pub const EFFECTS_PER_KEY_MAX: i64 = 10_000;
/// What was not answered is sent again after so long.
pub const RESEND_MS: i64 = 1_000;
/// So many lanes are under way at once.
pub const UNDER_WAY_MAX: usize = 16;
/// So many of them are lanes that had no answer the last time: who hangs is to hold up nobody else. Of requests to addresses outside, the
/// platform has six wait for an answer at once.
pub const SILENT_MAX: usize = 4;
/// What is under way has an answer by then, or none: a host that does not say so has forgotten it. It is the deadline of a take-over or a closing.
pub const UNDER_WAY_MS: i64 = 60_000;
/// What is to be acknowledged on a lane has so many bytes, and one id more: that has room in `Semel-Ack`.
const ACKS_BYTES: usize = 2_000;
/// An object that dies with something to send is woken after so long.
pub const WAKE_MS: i64 = 5_000;
