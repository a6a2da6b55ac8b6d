//! The names in the protocol: request ids, keys, principals.
//!
//! Invariant: every value of these types is valid. Its constructor checks it, and no code checks it again.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use std::borrow::Cow;
#[cfg(feature = "server")]
use std::cmp::Ordering;
use std::fmt;
#[cfg(feature = "server")]
use std::sync::Arc;

/// The longest request id, in characters.
pub const REQUEST_ID_CHARS_MAX: usize = 255;
/// The longest key, in bytes of decoded UTF-8.
pub const KEY_BYTES_MAX: usize = 512;
/// The longest name of a principal, in bytes.
pub const PRINCIPAL_BYTES_MAX: usize = 255;

/// A server copies names from place to place, so a copy costs it no memory. A client has few.
#[cfg(feature = "server")]
type Text = Arc<str>;
#[cfg(not(feature = "server"))]
type Text = String;

/// Why a name was refused, in words for the client's developer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub String);

impl Invalid {
    /// A refusal with its reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names one intended effect at one key; the same on every attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(not(feature = "server"), derive(PartialOrd, Ord))]
pub struct RequestId(Text);

/// Orders ids as their texts are ordered. Ids made around the same time begin with the same bytes, so the comparison
/// takes eight bytes at a time.
#[cfg(feature = "server")]
impl Ord for RequestId {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((words, rest), (other_words, other_rest)) = (self.words(), other.words());
        let differ = words.iter().zip(other_words).find(|(word, other)| word != other);
        match differ {
            Some((word, other)) => u64::from_be_bytes(*word).cmp(&u64::from_be_bytes(*other)),
            // All common words are equal. With the same number of words, the remaining bytes decide.
            None if words.len() == other_words.len() => rest.cmp(other_rest),
            None => self.0.cmp(&other.0),
        }
    }
}

#[cfg(feature = "server")]
impl PartialOrd for RequestId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl RequestId {
    #[cfg(feature = "server")]
    fn words(&self) -> (&[[u8; 8]], &[u8]) {
        self.0.as_bytes().as_chunks()
    }

    /// Checks the length, and that a structured-field string can hold the characters.
    pub fn new(id: impl Into<Text>) -> Result<Self, Invalid> {
        let id = id.into();
        if id.is_empty() || id.len() > REQUEST_ID_CHARS_MAX {
            return Err(Invalid::new(format!(
                "a request id has 1 to {REQUEST_ID_CHARS_MAX} characters, not {}",
                id.len()
            )));
        }
        if !id.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(Invalid::new("a request id has printable ASCII characters only"));
        }
        Ok(Self(id))
    }

    /// The id as it is on the wire, unquoted.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names one serial executor: one Durable Object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

/// The characters that a key has as `%XX` on the wire. Escaping `%` makes the encoding reversible; escaping `"` and `\`
/// means that a quoted key needs no backslashes.
const KEY_ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'%').add(b'\\').add(b'<').add(b'>').add(b'`').add(b'#').add(b'?');

impl Key {
    /// Takes a key in its decoded form.
    pub fn new(key: impl Into<String>) -> Result<Self, Invalid> {
        let key = key.into();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Invalid::new(format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len())));
        }
        if key.chars().any(char::is_control) {
            return Err(Invalid::new("a key has no control characters"));
        }
        // In the URL of a control path, these would name another path, so nothing at such a key could be acknowledged or cancelled.
        if matches!(key.as_str(), "." | "..") {
            return Err(Invalid::new("a key is not . or .."));
        }
        Ok(Self(key))
    }

    /// Takes a key in percent-encoded UTF-8, as it is in `Semel-Key` and in control paths.
    pub fn from_encoded(encoded: &str) -> Result<Self, Invalid> {
        Self::new(percent_decoded(encoded)?)
    }

    /// The key in percent-encoded UTF-8.
    pub fn encoded(&self) -> Cow<'_, str> {
        utf8_percent_encode(&self.0, KEY_ESCAPED).into()
    }

    /// The key, decoded.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who is authenticated. Each record belongs to one principal. The empty name stands for an anonymous caller, who is a principal too.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Principal(Text);

/// The prefix of the layer's own principals. No token and no client may have a name that begins with it.
const RESERVED: &str = "semel:";

impl Principal {
    fn reserved(name: &str) -> Self {
        Self(Text::from(&*[RESERVED, name].concat()))
    }

    /// The holder of the administration token.
    pub fn administrator() -> Self {
        Self::reserved("admin")
    }

    /// The queues that a deployment consumes.
    pub fn queue() -> Self {
        Self::reserved("queue")
    }

    /// The sender of the requests that one key emits to another.
    pub fn emitter() -> Self {
        Self::reserved("emit")
    }

    /// Stands for any principal other than the caller, where the caller may learn no more about it.
    pub fn another() -> Self {
        Self::reserved("another")
    }

    /// Whether this is the holder of the administration token.
    pub fn is_administrator(&self) -> bool {
        self.0.strip_prefix(RESERVED) == Some("admin")
    }

    /// Whether the name is reserved: only the layer itself may use it.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(RESERVED)
    }

    /// Takes a name that a structured-field string can hold. The empty name stands for an anonymous caller.
    pub fn new(name: impl Into<Text>) -> Result<Self, Invalid> {
        let name = name.into();
        if name.len() > PRINCIPAL_BYTES_MAX {
            return Err(Invalid::new(format!("a principal has at most {PRINCIPAL_BYTES_MAX} characters")));
        }
        if !name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(Invalid::new("a principal has printable ASCII characters only"));
        }
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Decodes `%XX` once. Unlike browsers, it refuses a malformed escape, and bytes that are not UTF-8.
pub fn percent_decoded(text: &str) -> Result<String, Invalid> {
    // Nearly all texts have no escape.
    #[cfg(feature = "server")]
    if !text.contains('%') {
        return Ok(text.to_owned());
    }
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let is_hex = |digit: Option<u8>| digit.is_some_and(|digit| digit.is_ascii_hexdigit());
        if byte == b'%' && !(is_hex(rest.next()) && is_hex(rest.next())) {
            return Err(Invalid::new("a % is not followed by two hexadecimal digits"));
        }
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(Invalid::new("the escapes do not decode to UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "server")]
    #[test]
    fn ids_are_ordered_like_their_texts() {
        let texts: Vec<String> = (0..40)
            .flat_map(|length| ["", "!", "~", "!~", "~!"].map(|end| ["m".repeat(length), end.to_owned()].concat()))
            .collect();
        let ids: Vec<_> = texts.iter().filter_map(|text| RequestId::new(text.as_str()).ok()).collect();
        for (one, other) in ids.iter().flat_map(|one| ids.iter().map(move |other| (one, other))) {
            assert_eq!(one.cmp(other), one.as_str().cmp(other.as_str()), "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_request_id_has_1_to_255_printable_ascii_characters() {
        assert!(RequestId::new("").is_err());
        assert!(RequestId::new("x".repeat(255)).is_ok());
        assert!(RequestId::new("x".repeat(256)).is_err());
        assert!(RequestId::new("a b\"c\\").is_ok());
        for bad in ["a\nb", "a\u{7f}", "\u{e9}", "\0"] {
            assert!(RequestId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_key_is_the_same_after_encoding_and_decoding() {
        for key in ["accounts/alice", "a b", "100%", "\"quoted\\\"", "h\u{e9}", "\u{1f600}/x?y#z"] {
            let key = Key::new(key);
            assert_eq!(key.clone().and_then(|key| Key::from_encoded(&key.encoded())), key);
        }
    }

    #[test]
    fn a_key_is_refused_if_it_is_empty_or_too_long_or_a_dot_segment_or_has_controls() {
        assert!(Key::new("").is_err());
        assert!(Key::new("x".repeat(512)).is_ok());
        assert!(Key::new("x".repeat(513)).is_err());
        assert!(Key::new("\u{e9}".repeat(257)).is_err(), "the limit counts bytes");
        assert!(Key::from_encoded("a%00b").is_err());
        assert!(Key::from_encoded("a%c2%85b").is_err(), "C1 controls are controls");
        assert!(Key::from_encoded("%2e").is_err() && Key::new("..").is_err() && Key::new("...").is_ok());
    }

    #[test]
    fn an_invalid_percent_escape_is_refused_and_a_valid_one_is_decoded_once() {
        for bad in ["%", "%4", "%zz", "a%4gb", "%ff", "%c3"] {
            assert!(percent_decoded(bad).is_err(), "{bad}");
        }
        assert_eq!(percent_decoded("%2541"), Ok("%41".to_owned()), "decoded once");
    }
}
