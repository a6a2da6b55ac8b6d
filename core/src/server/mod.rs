//! The half that executes: what a key's object and the router in front of it decide.
//!
//! In this order each knows those before it, and none after it:
//!
//! - [`json`]: how JSON is read and written. `uncompared`: what a checker does not take for state
//! - [`config`]: what an operator sets
//! - [`storage`]: what a key keeps, and how it is read and written
//! - [`answer`]: what goes back, with the headers of the layer. [`log`]: what an operator sees of it. [`head`]: how large the head of a request may be
//! - [`effects`]: requests that a handler has sent, to other keys and outside
//! - [`handler`]: what an application implements
//! - [`attempt`]: one attempt at one key: what is known, what becomes of it, what is written with it
//! - [`control`]: requests under `/semel/v1/keys/{key}/`, and an administrator's
//! - [`sessions`]: named senders, whose requests have numbers instead of ids
//! - [`engine`]: the way of an attempt from start to end, and what the object of a key does without one
//! - [`registry`]: which keys there are, and what all of them have to do
//! - [`edge`]: what happens before a key's object is asked
//! - [`batch`]: many requests in one, as text and in one commit

pub mod answer;
pub mod attempt;
pub mod batch;
pub mod config;
pub mod control;
pub mod edge;
pub mod effects;
pub mod engine;
pub mod handler;
pub mod head;
pub mod json;
pub mod log;
pub mod registry;
pub mod sessions;
pub mod storage;
mod uncompared;

pub use answer::Answer;
pub use config::Config;
pub use edge::auth::{Access, Gate};
pub use edge::cors::Cors;
pub use engine::Engine;
pub use handler::{Context, Failure, Handler, KeyRule};
pub use storage::sql::{Sql, SqlError, Value};
pub use storage::state::State;
