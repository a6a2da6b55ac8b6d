//! Requests that are executed elsewhere: a run of its own, under the same faults.
//!
//! One key stands in front of a service that may be slow, gone, or short of memory. Callers ask until they have an answer, and some ask
//! again long after; an administrator settles what is in doubt, deletes it, or has it forgotten; and the object ends between any two steps.
//!
//! - [`run`]: one queue of events in the order of time; [`options`]: what a seed asks for
//! - [`host`]: the object, as `remote.js` drives it: one request of the key at a time, from its recorded start to its recorded outcome
//! - [`service`]: where requests are executed, and the network on the way to it
//! - [`callers`]: who asks for what; [`asked`]: what is asked, and what a key stores of it
//! - [`oracle`]: what must hold; it counts the calls at the service, and what they made
//!
//! Invariant: what is drawn here comes of a stream of its own: the other runs are as they would be if this were not here.

// Each is documented where it says more than its name.
#![allow(missing_docs)]

mod asked;
mod callers;
mod host;
mod options;
mod oracle;
mod run;
mod service;

pub use options::Options;
pub use run::Run;
