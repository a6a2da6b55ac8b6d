//! Any bytes through `semel_properties::sessions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| semel_properties::sessions::check(bytes));
