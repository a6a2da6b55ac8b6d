//! Sessions and batches: another run after the run of the outbox, under the same faults.
//!
//! Holders (the real machine of the client's sessions) contend for named sessions at some keys. Other clients send
//! batches of ordinary requests there, some of which crash the handler or end the object. And there are messages by
//! hand that nobody should send.
//!
//! - [`run`]: a queue of events in the order of time
//! - [`holder`]: a tab that holds or held a session; [`frame`]: what its machine asks for, as the SDK puts it on the
//!   wire
//! - [`tabs`]: what the tabs do; `faults`: what goes wrong
//! - `sockets`: what is sent as frames of a socket
//! - [`batches`]: ordinary requests, many in a frame; [`hands`]: messages by hand; [`hoards`]: many requests at once
//! - `putting_back`: a key is put back to a backup; `rest`: what is left at the end
//! - `held`: what is not durable yet, and nobody hears of
//! - [`server`]: the keys; [`asked`]: requests and their results; [`view`]: what a key stores
//! - [`oracle`]: what must hold
//!
//! Invariant: the decisions come from another stream of random numbers, so the run of the outbox is as if this module
//! did not exist.

// An item has a comment only if that says more than its name.
#![allow(missing_docs)]

mod asked;
mod batches;
mod faults;
mod frame;
mod hands;
mod held;
mod hoards;
mod holder;
mod oracle;
mod putting_back;
mod rest;
mod run;
mod server;
mod sockets;
mod tabs;
mod view;

pub use run::Run;
