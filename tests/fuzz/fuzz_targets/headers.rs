//! Feeds arbitrary bytes to the checks of `semel_properties::headers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| semel_properties::headers::check(&String::from_utf8_lossy(bytes)));
