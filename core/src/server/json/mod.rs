//! JSON, as far as the server needs it: [`read`] what clients and operators send, [`write`] what they are told.
//!
//! Invariant: neither is generic over what is read or written. Each type would bring a parser of its own, and the Worker's bundle has
//! a limit.

pub mod read;
pub mod write;
