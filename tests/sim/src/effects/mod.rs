//! Effects that leave: transfers between accounts, each a key, by what its handler emits, and calls to an address outside. A run of its own, under faults of its own.
//!
//! What is sent may be lost, late, or come twice, and so may answers; objects end between any two statements, their module may be made
//! anew under them, one key is put back to an earlier instant, and somebody takes the ids of closings before they come. In the end all is sent, and of what was committed each credit is there once.
//!
//! - [`run`]: one queue of events in the order of time, and the host, as `effects.js` drives the engine; [`options`]: what a seed asks for
//! - [`administrator`]: who mends what is sent
//! - [`bank`]: the handler; [`outside`]: the other side of its calls; [`oracle`]: what must hold in the end
//!
//! Invariant: what is drawn here comes of a stream of its own: the other runs are as they would be if this were not here.

// Each is documented where it says more than its name.
#![allow(missing_docs)]

mod administrator;
mod bank;
mod options;
mod oracle;
mod outside;
mod run;

pub use options::Options;
pub use run::Run;
