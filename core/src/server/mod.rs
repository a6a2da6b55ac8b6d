//! The half that executes: what a key's object and the router in front of it decide.
//!
//! - [`sql`]: the one trait through which all storage goes
//! - [`decision`]: what becomes of an attempt, from its record, the fence and the clock; pure
//! - [`record`]: records and their life; pure. [`rows`]: their rows
//! - [`tombstones`]: those of acknowledged requests, many to a row
//! - [`retention`]: the fence and the sweep
//! - [`schema`]: the tables, with a version
//! - [`suspicion`]: requests that end the process, or may have
//! - [`handler`]: what an application implements
//! - [`engine`]: the engine of one key, and what it knows without asking
//! - `turn`: one attempt, and what it works on; `execution`: its way from start to end; `aside`: what goes along with it
//! - [`control`]: requests under `/semel/v1/keys/{key}/`
//! - [`answer`]: what goes back, with the headers of the layer
//! - [`router`]: what happens before a key's object is asked

pub mod answer;
mod aside;
pub mod config;
pub mod control;
pub mod decision;
pub mod engine;
mod execution;
pub mod handler;
pub mod record;
pub mod retention;
pub mod router;
pub mod rows;
pub mod schema;
pub mod sql;
pub mod suspicion;
pub mod tombstones;
mod turn;
mod uncompared;

pub use answer::Answer;
pub use config::Config;
pub use engine::Engine;
pub use handler::{Context, Failure, Handler, KeyRule};
pub use sql::{Sql, SqlError, Value};
