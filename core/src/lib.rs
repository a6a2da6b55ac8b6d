//! Semel's protocol, and the two state machines that speak it: the client's and the server's.
//!
//! Invariants of this crate:
//! - The crate does no I/O: it has no clock, no randomness, no network and no `wasm-bindgen`. Time is an argument and
//!   storage is the [`server::Sql`] trait, so the native tests, the worker and every checker run the same code.
//! - Nothing in this crate panics: a panic in a Durable Object ends every request of its isolate.
//! - Words mean what the table in `PROTOCOL.md` says, here as on the wire.

pub mod client;
pub mod fingerprint;
pub mod header;
pub mod id;
pub mod message;
pub mod path;
pub mod problem;
pub mod rules;
#[cfg(feature = "server")]
pub mod server;
pub mod session;
mod structured;
pub mod text;
