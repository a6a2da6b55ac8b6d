//! Checks of what must hold for any input.
//!
//! - [`headers`]: one header value, through every parser
//! - [`paths`]: URLs, the router, fingerprints
//! - [`bodies`]: the JSON of control requests
//! - [`client`]: rows of the client, their changes, and answers
//! - [`machine`]: the client's machine, whatever the server, the store and other tabs do
//! - [`sessions`]: the client's sessions: rows, changes, and the machine
//! - [`table`]: rows of a key, whole and damaged
//! - [`engine`]: any requests in any order
//! - [`desk`]: many requests together, compared with one by one. [`desk_calls`]: the requests. [`desk_handler`]: the handler.
//!   [`desk_sent`]: the effects that it emits. [`desk_faults`]: what goes wrong
//! - [`source`]: choices made of bytes. [`memory`]: SQLite in memory. [`effects`]: a handler whose effects are counted
//!
//! Invariants:
//! - A check panics if and only if something does not hold. It runs under the property tests of this crate and under the fuzzer
//!   in `tests/fuzz/`, so it depends on its input alone.
//! - What a parser must make of a text is decided by a second reading of the specification in the check itself, never by the
//!   parser under test.

pub mod bodies;
pub mod client;
pub mod desk;
pub mod desk_calls;
pub mod desk_faults;
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
