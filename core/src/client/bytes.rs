//! Integers, flags, texts and bytes, one after the other: what rows and what crosses the boundary of the module are made of.
//!
//! Invariant: what was written is read as the same, and nothing else is read as anything.
//!
//! By hand, and not by a serialisation library: every byte of the SDK is downloaded by every visitor.

use crate::message::Headers;

/// Texts, one after the other.
pub fn text(parts: &[&str]) -> String {
    let mut text = String::new();
    for part in parts {
        text.push_str(part);
    }
    text
}

/// An integer in decimal digits. By a library, for the standard one brings all of its formatting along.
pub fn decimal(integer: i64) -> String {
    itoa::Buffer::new().format(integer).to_owned()
}

/// Lays out.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

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

/// Reads.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all of it was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A flag.
    pub fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// An integer.
    pub fn integer(&mut self) -> Option<i64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i64::from_le_bytes(*first))
    }

    /// Bytes, after their number.
    pub fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.integer()?).ok()?;
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first.to_vec())
    }

    /// A text.
    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    /// Header lines.
    pub fn headers(&mut self) -> Option<Headers> {
        Headers::from_stored(&self.text()?)
    }

    /// A flag, and then it, if it is there.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }
}
