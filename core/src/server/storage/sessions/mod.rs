//! What a key keeps of sessions. What becomes of their requests is decided in [`crate::server::sessions`].
//!
//! - [`state`]: a session and its places; pure. [`rows`]: their rows
//! - [`sweep`]: what is known of all sessions of a key, and what becomes of idle ones

pub mod rows;
pub mod state;
pub mod sweep;
