//! Sessions and batches: after the run of the outbox, a run of its own, under the same faults.
//!
//! Holders (the real machine of the client's sessions) contend for named sessions at some keys; others send batches of ordinary
//! requests there, some of which crash the handler or end the object; and by hand comes what nobody should send.
//!
//! - [`run`]: one queue of events in the order of time
//! - [`holder`]: a tab that holds a session, or did; [`frame`]: what its machine asks for, as the SDK puts it on the wire
//! - [`tabs`]: what the tabs do; `faults`: what goes wrong
//! - `sockets`: who sends what goes together as frames of a socket
//! - [`batches`]: ordinary requests, many in a frame; [`hands`]: what is sent by hand, and [`hoards`]: many requests at once
//! - `held`: what is not durable yet, and nobody hears of
//! - [`server`]: the keys; [`asked`]: what is asked; [`view`]: what a key stores
//! - [`oracle`]: what must hold
//!
//! Invariant: what is drawn here comes of a stream of its own: the run of the outbox is as it would be if this were not here.

// Each is documented where it says more than its name.
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
mod run;
mod server;
mod sockets;
mod tabs;
mod view;

pub use run::Run;
