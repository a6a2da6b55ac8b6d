//! The half that executes: what a key's object and the router in front of it decide.
//!
//! - [`sql`]: the one trait through which all storage goes
//! - [`decision`]: what becomes of an attempt, from its record, the fence and the clock; pure
//! - [`record`]: records and their life; pure. [`rows`]: their rows; [`survey`]: what is asked of all at once
//! - [`opening`]: what an object that starts looks at; [`totals`]: what all rows come to
//! - [`tombstones`]: those of acknowledged requests, many to a row; [`packed`]: as bytes
//! - [`retention`]: the fence and the sweep
//! - [`schema`]: the tables, with a version
//! - [`suspicion`]: requests that end the process, or may have; [`crashes`]: how often
//! - [`handler`]: what an application implements; [`remote`]: requests that are executed elsewhere, `settling`: what comes of their calls
//! - [`engine`]: the engine of one key, and what it knows without asking. [`chores`]: what its object does without a request
//! - [`effects`]: requests that a handler has sent, to other keys and outside
//! - [`sessions`]: named senders, whose requests have numbers instead of ids
//! - `turn`: one attempt, and what it works on; `execution`: its way from start to end; `aside`: what goes along with it
//! - [`control`]: requests under `/semel/v1/keys/{key}/`
//! - [`admin`]: an administrator's requests to a key; [`deletion`]: those that delete, `resolve`: that which settles; [`counters`]: what they tell of answers
//! - [`batch`]: many requests in one, as text; [`together`]: in one commit; [`desk`]: their rows, read and written together
//! - [`config`]: what an operator sets; [`key_rules`]: for which keys, by their [`pattern`]
//! - [`auth`]: who is asking. [`rate`]: how often. [`cors`]: which pages may read the answer. [`head`]: how large a head may be
//! - [`answer`]: what goes back, with the headers of the layer. [`log`]: what an operator sees of it
//! - [`registry`]: which keys there are, and what all of them have to do
//! - [`json`]: how JSON is read and written
//! - [`router`]: what happens before a key's object is asked

pub mod admin;
pub mod answer;
mod aside;
pub mod auth;
pub mod batch;
pub mod chores;
pub mod config;
pub mod control;
pub mod cors;
pub mod counters;
pub mod crashes;
pub mod decision;
pub mod deletion;
pub mod desk;
pub mod effects;
pub mod engine;
mod execution;
pub mod handler;
pub mod head;
pub mod json;
pub mod key_rules;
pub mod log;
pub mod opening;
pub mod packed;
pub mod pattern;
pub mod rate;
pub mod record;
pub mod registry;
pub mod remote;
mod resolve;
pub mod retention;
pub mod router;
pub mod rows;
pub mod schema;
pub mod sessions;
mod settling;
pub mod sql;
pub mod state;
pub mod survey;
pub mod suspicion;
pub mod together;
pub mod tombstones;
pub mod totals;
mod turn;
mod uncompared;
mod watched;

pub use answer::Answer;
pub use auth::{Access, Gate};
pub use config::Config;
pub use cors::Cors;
pub use engine::Engine;
pub use handler::{Context, Failure, Handler, KeyRule};
pub use sql::{Sql, SqlError, Value};
pub use state::State;
