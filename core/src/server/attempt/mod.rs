//! One attempt at one key: what is known of the key, what becomes of the attempt, and what is written with it.
//!
//! - `turn`: the attempt, what is known, and what it works on
//! - [`decision`]: what becomes of it, from its record, the fence and the clock; pure
//! - `aside`: what goes along with it; `places`: what it changes of its session
//! - [`suspicion`]: requests that end the process, or may have
//! - `doubt`: what is told of one that was sent to where it is executed
//! - [`counters`]: how often each answer was given
//!
//! What it asks for is done by [`engine`](super::engine), [`sessions`](super::sessions) and [`control`](super::control).

pub(super) mod aside;
pub mod counters;
pub mod decision;
pub(super) mod doubt;
pub(super) mod places;
pub mod suspicion;
pub(super) mod turn;
