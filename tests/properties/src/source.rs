//! Choices made of bytes: turns one string of bytes into an input of many parts.
//!
//! Invariant: bytes that are used up count as zeros. So every string of bytes is a complete input, and a shorter one is simpler.

/// Instants and counts at limits.
const EDGES: &[i64] = &[
    0,
    1,
    -1,
    255,
    1_000,
    999_999_999_999_999,
    1_000_000_000_000_000,
    9_007_199_254_740_991,
    9_007_199_254_740_992,
    -9_007_199_254_740_991,
    i64::MAX,
    i64::MIN,
];

/// The bytes from which choices are made.
#[derive(Debug, Clone)]
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// Choices made of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all bytes are used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// One of several options.
    pub fn pick<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())]
    }

    /// Something, or nothing.
    pub fn optional<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| make(self))
    }

    /// Any integer, often one at a limit.
    pub fn integer(&mut self) -> i64 {
        match self.below(4) {
            0 => i64::from(self.byte()),
            1 => self.pick(EDGES),
            2 => self.pick(EDGES).wrapping_add(i64::from(self.byte() as i8)),
            _ => i64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// Some bytes.
    pub fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (first, rest) = self.0.split_at(length);
        self.0 = rest;
        first
    }

    /// Some text.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// Some text that HTTP allows in a header value.
    pub fn header_text(&mut self) -> String {
        self.text().replace(['\r', '\n', '\0'], "")
    }
}
