//! What happens before a key's object is asked.
//!
//! - [`router`]: who asks, which key, may they, how long to wait
//! - [`auth`]: who is asking. [`rate`]: how often. [`cors`]: which pages may read the answer. [`head`]: how large a head may be

pub mod auth;
pub mod cors;
pub mod head;
pub mod rate;
pub mod router;
