//! Patterns of keys: one key, or the beginning of keys followed by `*`.

use crate::id::Key;

/// Names one key or many. `*` is special only as the last character.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPattern(String);

impl KeyPattern {
    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern names this key.
    pub fn matches(&self, key: &Key) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => key.as_str().starts_with(beginning),
            None => key.as_str() == self.0,
        }
    }
}

impl TryFrom<String> for KeyPattern {
    type Error = &'static str;

    fn try_from(pattern: String) -> Result<Self, Self::Error> {
        if pattern.is_empty() { Err("a pattern of keys is not empty") } else { Ok(Self(pattern)) }
    }
}
