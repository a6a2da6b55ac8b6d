//! Empty: the tests are in `tests/`, with a file for each part of the protocol.
