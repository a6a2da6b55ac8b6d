//! Feeds arbitrary bytes to the checks of `semel_properties::client`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| semel_properties::client::check(bytes));
