//! What must hold of any input.
//!
//! - [`headers`]: one header value, through every parser
//! - [`paths`]: URLs, the router, fingerprints
//! - [`bodies`]: JSON of control requests
//! - [`client`]: rows of the client, their changes, and answers
//! - [`machine`]: the client's machine, whatever server, store and other tabs do
//! - [`sessions`]: the client's sessions: rows, changes, and the machine
//! - [`table`]: rows of a key, whole and damaged
//! - [`engine`]: any requests in any order
//! - [`desk`]: many requests together, and one by one. [`desk_calls`]: which; [`desk_handler`]: what answers them; [`desk_sent`]: what
//!   these have sent
//! - [`source`]: choices out of bytes. [`memory`]: SQLite in memory. [`effects`]: a handler whose effects are counted
//!
//! Invariants:
//! - A check panics if and only if something does not hold. It runs under the property tests of this crate and under the
//!   fuzzer in `tests/fuzz/`, so it depends on its input alone.
//! - What a parser must say of a text is said by a second reading of the specification in the check itself, never by the
//!   parser under test.

pub mod bodies;
pub mod client;
pub mod desk;
pub mod desk_calls;
pub mod desk_handler;
pub mod desk_sent;
pub mod effects;
pub mod engine;
pub mod headers;
pub mod machine;
pub mod memory;
pub mod paths;
pub mod sessions;
pub mod source;
pub mod table;
