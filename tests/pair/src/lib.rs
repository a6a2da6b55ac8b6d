//! The pair: the real client and the real engine on real SQLite, in one process, on one fake clock.
//!
//! A run is made by one seed: what is requested and when, what the network does to each message, when a tab is reloaded,
//! frozen or opened, when the server crashes and before which statement. The same seed makes the same run.
//!
//! - [`plan`]: what a seed asks for, and the ways in which a run can be wrong on purpose
//! - [`server`]: the keys, each with its engine, reached through the real router
//! - [`store`]: the rows that the tabs share
//! - [`tab`]: a client with its host
//! - [`pair`]: the run: one queue of events in the order of time
//! - [`check`]: what must hold of a run that has ended
//!
//! Invariants:
//! - No wall clock, no sleeping, no randomness but the seed's.
//! - The checks look at effects in committed SQLite and at what callers got, never into the code under test.

pub mod check;
pub mod pair;
pub mod plan;
pub mod server;
pub mod store;
pub mod tab;

pub use pair::run;
pub use plan::{Plan, Wrong};
