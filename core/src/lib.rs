//! Semel's protocol, and the state machines that speak it.
//!
//! Invariants of this crate:
//! - Sans-IO: no clock, no randomness, no network, no `wasm-bindgen`. Time is an argument, storage is the [`server::Sql`]
//!   trait, so the native tests, the worker and every checker run one and the same code.
//! - Nothing here panics: a panic in a Durable Object ends every request of its isolate.
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
