//! One attempt at one key: what is known of the key, what is decided about the attempt, and what is written with it.
//!
//! - `turn`: the attempt, what is known, and what it works on
//! - [`decision`]: decides about it from its record, the fence and the clock; without I/O
//! - `aside`: what is applied along with it; `places`: what it changes of its session
//! - [`suspicion`]: requests that end the process, or may have
//! - `doubt`: answers about a request that was sent to where it is executed
//! - [`counters`]: how often each answer was given
//!
//! [`engine`](super::engine), [`sessions`](super::sessions) and [`control`](super::control) do what the attempt asks for.

pub(super) mod aside;
pub mod counters;
pub mod decision;
pub(super) mod doubt;
pub(super) mod places;
pub mod suspicion;
pub(super) mod turn;
