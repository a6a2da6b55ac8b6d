//! Effects that leave: requests that a handler sends to other keys, and calls to addresses outside.
//!
//! An effect is stored in the commit of the request that makes it. Afterwards the object sends it, at a constant
//! interval, until there is an answer. A *lane* is all that goes to one target, a key or an origin, in the order of the
//! commits.
//!
//! - `store`: the tables. [`crate::server::handler`] takes what a handler asks for
//! - [`lane`]: decides what to send next, and what an answer does; without I/O
//! - `outbox`: what an object knows of it in memory; `sending`: sends it and takes the answers. `tell`: what an
//!   administrator sees and can change
//!
//! Invariants:
//! - An effect and the request that made it are committed together. An effect leaves its table only when it is answered or parked.
//! - Only the first effect of a lane is under way. To a key it goes in a session of the sending key. The commit that
//!   stores the effect gives it its number in that session, so the other key recognises it, even after either key was
//!   restored to an earlier state.
//! - An object takes over its session at a key before it sends anything there. So whatever an earlier object still has under way is fenced.
//! - No number is left unused: what is refused for good is closed at the other key before the next one goes.
//! - A handler that emits nothing has none of this: no table and no code.

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

/// The most effects that a request may make.
pub const EFFECTS_PER_REQUEST_MAX: usize = 64;
/// The number of hexadecimal digits in the id of an effect.
pub const EFFECT_ID_DIGITS: usize = 32;
/// The most bytes of all effects of a request together.
pub const EFFECTS_BYTES_MAX: usize = 1 << 20;
/// The most effects that may wait or be parked at a key.
pub const EFFECTS_PER_KEY_MAX: i64 = 10_000;
/// How long after a failed try an effect is sent again, in ms.
pub const RESEND_MS: i64 = 1_000;
/// How many lanes may be under way at once.
pub const UNDER_WAY_MAX: usize = 16;
/// How many of them may be silent lanes, which had no answer the last time, so that a target that hangs holds up no
/// other. The platform lets six requests to outside addresses wait for an answer at once.
pub const SILENT_MAX: usize = 4;
/// How long an effect may be under way, in ms. If the host has reported nothing by then, it has forgotten the effect. It
/// is also the deadline of a take-over or a closing.
pub const UNDER_WAY_MS: i64 = 60_000;
/// How long the acknowledgements of a lane may get, in bytes, before the next id is added. That fits into `Semel-Ack`.
const ACKS_BYTES: usize = 2_000;
/// How long after its death an object with something to send is woken, in ms.
pub const WAKE_MS: i64 = 5_000;
