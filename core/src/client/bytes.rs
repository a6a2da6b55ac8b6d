//! Integers, flags, texts and bytes, one after the other: what rows and what crosses the boundary of the module are made of.
//!
//! Invariant: what was written is read as the same, and nothing else is read as anything.
//!
//! By hand, and not by a serialisation library: every byte of the SDK is downloaded by every visitor.

use crate::message::Headers;

/// Lays out.
#[derive(Debug)]
pub struct Writer(Vec<u8>);

/// With room for most of what is laid out.
impl Default for Writer {
    fn default() -> Self {
        Self(Vec::with_capacity(512))
    }
}

impl Writer {
    /// What was laid out.
    pub fn done(self) -> Vec<u8> {
        self.0
    }

    /// A byte.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A flag.
    pub fn flag(&mut self, flag: bool) {
        self.byte(flag.into());
    }

    /// An integer.
    pub fn integer(&mut self, integer: i64) {
        self.0.extend_from_slice(&integer.to_le_bytes());
    }

    /// Bytes, after their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.integer(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// A flag, and then it, if it is there.
    pub fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Reads. What can't be read is empty, and remembered: so the reading itself has no branches, which would all be downloaded.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    has_failed: bool,
}

impl<'a> Reader<'a> {
    /// From the first byte.
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest, has_failed: false }
    }

    /// The end; `None` where something is left, or something that was read was not there.
    pub fn end(&self) -> Option<()> {
        (self.rest.is_empty() && !self.has_failed).then_some(())
    }

    /// What is still to be read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether something was not there.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// What was read can't be.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// A flag.
    pub fn flag(&mut self) -> bool {
        let byte = self.byte();
        if byte > 1 {
            self.fail();
        }
        byte == 1
    }

    /// An integer.
    pub fn integer(&mut self) -> i64 {
        self.take(8).first_chunk().copied().map_or(0, i64::from_le_bytes)
    }

    /// Bytes, after their number.
    pub fn bytes(&mut self) -> &'a [u8] {
        let length = self.integer();
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// A text.
    pub fn text(&mut self) -> String {
        // What is all valid is one chunk. To ask for it so is a third of `from_utf8`.
        let Some(chunk) = self.bytes().utf8_chunks().next() else { return String::new() };
        if !chunk.invalid().is_empty() {
            self.fail();
        }
        chunk.valid().to_owned()
    }

    /// Header lines.
    pub fn headers(&mut self) -> Headers {
        let headers = Headers::from_stored(&self.text());
        if headers.is_none() {
            self.fail();
        }
        headers.unwrap_or_default()
    }

    /// A flag, and then it, if it is there.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| read(self))
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let Some((first, rest)) = self.rest.split_at_checked(length) else {
            self.fail();
            return &[];
        };
        self.rest = rest;
        first
    }
}
