//! What the native tests stand on: the real engine on real SQLite, one key at a time.
//!
//! - [`database`]: SQLite in a file, that can die before any statement
//! - [`call`]: a request to send, as often as a test likes
//! - [`batches`]: many of them at once
//! - [`admin`]: what an administrator sends
//! - [`reply`]: what came back, checked for what every answer must have
//! - [`world`]: one key with its clock, its engine and its database
//! - [`chores`]: what the host does with it without a request
//! - [`token`]: tokens, true and forged
//! - [`counter`]: a handler whose effects can be counted, and that fails when told to
//!
//! Invariants:
//! - No wall clock and no sleeping: time passes when a test says so.
//! - A test sees what is committed, never what is in memory or in an open transaction.

pub mod admin;
pub mod batches;
pub mod call;
pub mod chores;
pub mod counter;
pub mod database;
pub mod reply;
pub mod token;
pub mod world;

pub use call::{Call, acknowledge, cancel, delete, get, head, look_up, patch, post, put};
pub use counter::{Counter, Trouble};
pub use database::Database;
pub use reply::Reply;
pub use token::{Signer, claims};
pub use world::{KEY, START_MS, START_S, World};
