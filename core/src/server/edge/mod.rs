//! What happens before a key's object is asked.
//!
//! - [`router`]: which key is asked, whether the caller may ask it, and how long to wait
//! - [`auth`]: who asks. [`rate`]: how often. [`cors`]: which pages may read the answer.

pub mod auth;
pub mod cors;
pub mod rate;
pub mod router;
