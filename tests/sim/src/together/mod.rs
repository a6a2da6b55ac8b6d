//! Requests that are committed together: another run, on one key whose commits take time.
//!
//! Requests that arrive at the key during a commit are in the next commit, all in one turn. Callers by hand ask until
//! they have a definitive answer. A handler, a statement or a commit may fail, or the object may end, at any place of a
//! group. Some attempts have a deadline, some ids are used again for something else, and some requests come in batches.
//! In the middle of this, the key is told to forget, is deleted, restored from a backup and deployed anew, and its clock
//! jumps.
//!
//! - [`run`]: a queue of events in the order of time, and who asks for what; [`asked`]: requests and events;
//!   [`options`]: what a seed decides
//! - [`host`]: the object as `turns.js` and `host.js` drive it: whose turn it is, what is committed together, and when
//!   answers leave
//! - [`alone`]: requests that have the object to themselves; [`batches`]: batches; [`midst`]: what happens without a
//!   request; [`deletion`]: an administrator who deletes the key
//! - [`oracle`]: what must hold for effects and answers, and [`tables`] for what is kept, and [`room`] for a key
//!   that may be full; they look at what is committed
//!
//! Invariant: the decisions come from another stream of random numbers, so the other runs are as if this module did not
//! exist.

// An item has a comment only if that says more than its name.
#![allow(missing_docs)]

mod alone;
mod asked;
mod batches;
mod deletion;
mod host;
mod midst;
mod options;
mod oracle;
mod room;
mod run;
mod tables;

pub use options::Options;
pub use run::Run;
