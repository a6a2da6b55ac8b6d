//! What the tests share: a server and a host that are stubs, a store in memory, and how to wait for something.
//!
//! - [`wait`]: waiting for what happens, with a deadline
//! - [`memory`]: the application's own store, in memory, good and bad
//! - [`server`]: answers by a script, and remembers what was sent
//! - [`tab`]: the module with a stub for its host, as `js/semel.js` is one
//! - [`timers`]: for how long timers are set
//! - [`rows`]: rows as they are stored

pub mod memory;
pub mod rows;
pub mod server;
pub mod tab;
pub mod timers;
pub mod wait;
