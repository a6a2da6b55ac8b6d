//! The server: what the object of a key decides, and the router in front of it.
//!
//! Each module knows only those before it in this list:
//!
//! - [`json`]: reads and writes JSON. `uncompared`: fields that a checker does not count as state
//! - [`config`]: the operator's settings
//! - [`storage`]: what a key keeps, and how it is read and written
//! - [`answer`]: answers, with the headers of the layer. [`log`]: the operator's log lines about them. [`head`]: limits
//!   of a request's path and headers
//! - [`effects`]: requests that a handler sends to other keys and outside
//! - [`handler`]: what an application implements
//! - [`attempt`]: one attempt at one key: what is known, what is decided, and what is written with it
//! - [`control`]: requests under `/semel/v1/keys/{key}/`, and those of administrators
//! - [`sessions`]: named senders, whose requests have numbers instead of ids
//! - [`engine`]: leads an attempt from start to end, and does what the object of a key does without a request
//! - [`registry`]: lists all keys, and tells them what all of them have to do
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
