//! The tests are in `tests/`, a file a part of the protocol.
