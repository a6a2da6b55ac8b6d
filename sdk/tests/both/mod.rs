//! What holds in Node as in a browser.
//!
//! - [`ids`]: random ids
//! - [`requests`]: from the store to the outcome
//! - [`ends`]: answers that are no outcome, and requests that are given up
//! - [`stores`]: stores that fail
//! - [`life`]: opening, taking over, closing

mod ends;
mod ids;
mod life;
mod requests;
mod stores;
