//! Effects: another run, under its own faults. Accounts, each a key, make transfers by the effects that their handlers
//! emit, and calls to an address outside.
//!
//! Messages may be lost, late, or arrive twice, and so may answers. Objects end between any two statements, their
//! module may be made anew under them, one key is restored to an earlier instant, and somebody takes the ids of
//! closings before these arrive. At the end all effects are sent, and each credit that was committed exists once.
//!
//! - [`run`]: a queue of events in the order of time; [`options`]: what a seed decides
//! - [`host`]: the host of each key, as `effects.js` drives its engine
//! - [`administrator`]: an administrator who mends effects
//! - [`bank`]: the handler; [`outside`]: the other side of its calls; [`oracle`]: what must hold at the end
//!
//! Invariant: the decisions come from another stream of random numbers, so the other runs are as if this module did not
//! exist.

// An item has a comment only if that says more than its name.
#![allow(missing_docs)]

mod administrator;
mod bank;
mod deletion;
mod host;
mod options;
mod oracle;
mod outside;
mod run;

pub use options::Options;
pub use run::Run;
