//! What a key keeps of sessions. [`crate::server::sessions`] decides what happens to their requests.
//!
//! - [`state`]: a session and its places, without I/O. [`rows`]: their rows
//! - [`sweep`]: what is known of all sessions of a key, and what happens to idle ones

pub mod rows;
pub mod state;
pub mod sweep;
