//! What happens before a key's object is asked.
//!
//! - [`router`]: who asks, which key, may they, how long to wait
//! - [`auth`]: who is asking. [`rate`]: how often. [`cors`]: which pages may read the answer.

pub mod auth;
pub mod cors;
pub mod rate;
pub mod router;
