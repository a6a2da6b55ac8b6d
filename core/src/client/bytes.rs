//! Writes and reads integers, flags, texts and bytes, one after the other. Rows consist of them, and so does everything
//! that crosses the boundary of the module.
//!
//! Invariant: what was written is read back the same, and nothing else is ever read as a valid value.
//!
//! This is written by hand instead of using a serialisation library, because every visitor downloads every byte of the
//! SDK.

use crate::message::Headers;

/// Writes values into a buffer.
#[derive(Debug)]
pub struct Writer(Vec<u8>);

/// Starts with a capacity that is enough for most buffers.
impl Default for Writer {
    fn default() -> Self {
        Self(Vec::with_capacity(512))
    }
}

impl Writer {
    /// The bytes written.
    pub fn done(self) -> Vec<u8> {
        self.0
    }

    /// Writes a byte.
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Writes a flag, as one byte: 0 or 1.
    pub fn flag(&mut self, flag: bool) {
        self.byte(flag.into());
    }

    /// Writes an integer, as 8 bytes, the lowest first.
    pub fn integer(&mut self, integer: i64) {
        self.0.extend_from_slice(&integer.to_le_bytes());
    }

    /// Writes the number of bytes, then the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.integer(bytes.len() as i64);
        self.0.extend_from_slice(bytes);
    }

    /// Writes a text, as UTF-8.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Writes a flag that says whether there is a value, then the value if there is one.
    pub fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Reads values from bytes. A value that can't be read comes out empty, and the reader remembers the failure. So the
/// code that reads has no branches for failures, which every visitor would download.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    has_failed: bool,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest, has_failed: false }
    }

    /// Ends the reading. `None` if bytes are left over, or if any value could not be read.
    pub fn end(&self) -> Option<()> {
        (self.rest.is_empty() && !self.has_failed).then_some(())
    }

    /// The bytes that are still to be read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether any value could not be read.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Marks the reading as failed.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }

    /// Reads a byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// Reads a flag. Any byte but 0 and 1 is a failure.
    pub fn flag(&mut self) -> bool {
        let byte = self.byte();
        if byte > 1 {
            self.fail();
        }
        byte == 1
    }

    /// Reads an integer.
    pub fn integer(&mut self) -> i64 {
        self.take(8).first_chunk().copied().map_or(0, i64::from_le_bytes)
    }

    /// Reads a number of bytes, then the bytes.
    pub fn bytes(&mut self) -> &'a [u8] {
        let length = self.integer();
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Reads a text. Invalid UTF-8 is a failure.
    pub fn text(&mut self) -> String {
        // Valid UTF-8 is a single chunk. Asking for the chunk takes a third of the code of `from_utf8`.
        let Some(chunk) = self.bytes().utf8_chunks().next() else { return String::new() };
        if !chunk.invalid().is_empty() {
            self.fail();
        }
        chunk.valid().to_owned()
    }

    /// Reads headers, which are stored as lines.
    pub fn headers(&mut self) -> Headers {
        let headers = Headers::from_stored(&self.text());
        if headers.is_none() {
            self.fail();
        }
        headers.unwrap_or_default()
    }

    /// Reads a flag, then a value if the flag says that there is one.
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
