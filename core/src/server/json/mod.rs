//! JSON, as far as the server needs it: [`read`] takes what clients and operators send, [`write`] makes what they get.
//!
//! Invariant: neither is generic over a Rust type. Each type would add its own parser to the Worker's bundle, whose size is limited.

pub mod read;
pub mod write;
