//! Writes JSON: objects member by member, in the order of the calls.
//!
//! Invariant: the result is valid JSON, whatever texts go in. Only JSON that this module wrote is copied without escaping.

/// Most objects are shorter.
const OBJECT_BYTES: usize = 256;

/// A complete JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written(String);

/// An object that can still get members.
#[derive(Debug, Clone, Default)]
pub struct Object(String);

/// The value of a member.
#[derive(Debug)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Integer(i64),
    /// A string.
    Text(&'a str),
    /// JSON that was written before.
    Written(Written),
    /// The same, borrowed, for JSON that is used more than once.
    Again(&'a Written),
}

impl Object {
    /// An empty object, with room for this many bytes.
    pub fn with_room(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Adds a member.
    pub fn with<'a>(mut self, name: &str, value: impl Into<Value<'a>>) -> Self {
        self.put(name, value.into());
        self
    }

    /// Adds a member if there is a value.
    pub fn with_some<'a>(self, name: &str, value: Option<impl Into<Value<'a>>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Completes the object.
    pub fn end(self) -> Written {
        Written(if self.0.is_empty() { "{}".to_owned() } else { self.0 + "}" })
    }

    fn put(&mut self, name: &str, value: Value<'_>) {
        // Without this, the text would be moved again and again as it grows.
        if self.0.capacity() == 0 {
            self.0.reserve(OBJECT_BYTES);
        }
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        quote(&mut self.0, name);
        self.0.push(':');
        value.write(&mut self.0);
    }
}

impl Value<'_> {
    fn write(self, text: &mut String) {
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(bool) => text.push_str(if bool { "true" } else { "false" }),
            Self::Integer(integer) => text.push_str(itoa::Buffer::new().format(integer)),
            Self::Text(value) => quote(text, value),
            Self::Written(written) => text.push_str(&written.0),
            Self::Again(written) => text.push_str(&written.0),
        }
    }
}

/// Writes an array.
pub fn array<'a, T: Into<Value<'a>>>(items: impl IntoIterator<Item = T>) -> Written {
    let mut text = String::from("[");
    for (n, item) in items.into_iter().enumerate() {
        text.push_str(if n == 0 { "" } else { "," });
        item.into().write(&mut text);
    }
    text.push(']');
    Written(text)
}

fn quote(text: &mut String, value: &str) {
    // Most texts need no escape; checking that is cheaper than escaping.
    if is_plain(value) {
        text.push('"');
        text.push_str(value);
        text.push('"');
    } else {
        // Writing a string to a string can't fail.
        text.push_str(&serde_json::to_string(value).unwrap_or_default());
    }
}

/// Whether nothing in the text needs an escape: no control character, no `"`, no `\`. Checks eight bytes at a time,
/// because all of an answer passes through here.
fn is_plain(value: &str) -> bool {
    let bytes = value.as_bytes();
    match bytes.last_chunk() {
        // The last eight bytes may overlap the word before them, which does no harm.
        Some(last) => bytes.as_chunks().0.iter().chain([last]).all(|word| is_plain_word(u64::from_le_bytes(*word))),
        None => !bytes.iter().any(|byte| matches!(byte, ..0x20 | b'"' | b'\\')),
    }
}

fn is_plain_word(word: u64) -> bool {
    const EACH: u64 = u64::MAX / 0xff;
    // Sets the high bit of the first byte below the limit, and perhaps of some bytes after it, but never that of a byte above 0x7f.
    let below = |word: u64, limit: u8| word.wrapping_sub(EACH * u64::from(limit)) & !word;
    let is = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    (below(word, 0x20) | is(b'"') | is(b'\\')) & (EACH << 7) == 0
}

impl Written {
    /// How many bytes the JSON has.
    pub(in crate::server) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The JSON as text.
    pub fn into_text(self) -> String {
        self.0
    }
}

impl From<Written> for Vec<u8> {
    fn from(written: Written) -> Self {
        written.0.into_bytes()
    }
}

impl From<Written> for Value<'_> {
    fn from(written: Written) -> Self {
        Self::Written(written)
    }
}

impl<'a> From<&'a Written> for Value<'a> {
    fn from(written: &'a Written) -> Self {
        Self::Again(written)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value<'_> {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// No integer here is past 2^53, see `sql.rs`.
macro_rules! integers {
    ($($type:ty)+) => {
        $(impl From<$type> for Value<'_> {
            fn from(integer: $type) -> Self {
                Self::Integer(integer as i64)
            }
        })+
    };
}

integers!(i64 u64 usize u32 u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_json_is_read_by_serde_json_as_the_same_value() {
        let text = "\"\\\u{0}\n\u{1f}\u{7f}\u{2028}\u{1f600}</script>";
        let inner = Object::default().with(text, text).end();
        let all = Object::default()
            .with("a", array([1_i64, -9_007_199_254_740_991]))
            .with("b", None::<&str>)
            .with_some("c", None::<bool>)
            .with_some("d", Some(true))
            .with("e", inner)
            .with("f", array::<&str>([]));
        let expected = serde_json::json!({
            "a": [1, -9_007_199_254_740_991_i64], "b": null, "d": true, "e": { text: text }, "f": [],
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&all.end().into_text()).expect("JSON"), expected);
        assert_eq!(Object::default().end().into_text(), "{}");
    }

    #[test]
    fn a_character_that_must_be_escaped_is_found_at_any_position() {
        for char in (0..=0x100).filter_map(char::from_u32) {
            for (before, after) in (0..20).flat_map(|before| (0..20).map(move |after| (before, after))) {
                let text = ["~".repeat(before), char.to_string(), "!".repeat(after)].concat();
                let is_escaped = char < ' ' || char == '"' || char == '\\';
                assert_eq!(is_plain(&text), !is_escaped, "{text:?}");
            }
        }
    }
}
