//! Requests that are executed elsewhere: another run, under the same faults.
//!
//! One key stands in front of a service that may be slow, gone, or forget. Callers ask until they have an answer, and
//! some ask again long after. An administrator settles what is in doubt, deletes it, or has it forgotten. And the
//! object may end between any two steps.
//!
//! - [`run`]: a queue of events in the order of time; [`options`]: what a seed decides
//! - [`host`]: the object, as `remote.js` drives it: one request of the key at a time, from its recorded start to its
//!   recorded outcome; [`turns`]: which request has its turn; [`routes`]: the handler
//! - [`service`]: where requests are executed, and the network on the way there
//! - [`shifts`]: the clock of the key's machine jumps, and the key is put back to a backup; [`mistimed`]: mutants with a
//!   wrong clock
//! - [`callers`]: who asks for what; [`asked`]: requests, and what a key stores of them
//! - [`oracle`]: what must hold; it counts the calls at the service, and what they made
//!
//! Invariant: the decisions come from another stream of random numbers, so the other runs are as if this module did not
//! exist.

// An item has a comment only if that says more than its name.
#![allow(missing_docs)]

mod asked;
mod callers;
mod host;
mod mistimed;
mod options;
mod oracle;
mod room;
mod routes;
mod run;
mod service;
mod shifts;
mod turns;

pub use options::Options;
pub use run::Run;
