//! Requests that are committed together: a run of its own, on one key whose commits take their time.
//!
//! What comes to the key while a commit is under way is in the next one, all in one turn, and callers by hand ask until they have an answer for
//! good. A handler, a statement or a commit fails, or the object ends, at any place of a group. Some attempts have a deadline, and some ids are used again
//! for something else. Some come as batches. In the midst of it the key is told to forget, is put back to a backup and deployed anew, and its clock jumps.
//!
//! - [`run`]: one queue of events in the order of time, and who asks for what; [`asked`]: what that is; [`options`]: what a seed asks for
//! - [`host`]: the object, as `turns.js` and `host.js` have it: whose turn it is, what is committed together, and when answers leave
//! - [`alone`]: who has the object to itself; [`batches`]: batches; [`midst`]: what comes of itself
//! - [`oracle`]: what must hold of effects and answers, and [`tables`] of what is kept; they look at what is committed
//!
//! Invariant: what is drawn here comes of a stream of its own: the other runs are as they would be if this were not here.

// Each is documented where it says more than its name.
#![allow(missing_docs)]

mod alone;
mod asked;
mod batches;
mod host;
mod midst;
mod options;
mod oracle;
mod run;
mod tables;

pub use options::Options;
pub use run::Run;
