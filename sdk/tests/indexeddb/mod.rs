//! What only a browser has: rows in IndexedDB.
//!
//! - [`raw`]: the database as others reach it
//! - [`store`]: the store
//! - [`outbox`]: the SDK on it

mod outbox;
mod raw;
mod store;
