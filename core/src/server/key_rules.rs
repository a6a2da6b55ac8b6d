//! Rules of keys: of which keys other limits hold than the defaults. A setting, `SEMEL_KEY_RULES`.
//!
//! Invariant: the first rule that names a key holds, and no other. Rules are read whole or not at all.

use super::config::{BYTES_MAX, COUNT_MAX, FOREVER_S, RETENTION_S_MAX};
use super::pattern::KeyPattern;
use crate::id::Key;
use serde::Deserialize;
use std::sync::Arc;

/// So many rules there may be: each key's object looks through them when it starts.
pub const KEY_RULES_MAX: usize = 256;
/// The retention that has no end.
pub const FOREVER: &str = "forever";

/// What holds of the keys of a pattern; what is `None` is the default.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyLimits {
    keys: KeyPattern,
    /// In s; see [`FOREVER_S`].
    pub retention_s: Option<i64>,
    /// Unacknowledged records.
    pub records_max: Option<u64>,
    /// Tombstones and cancelled ids.
    pub tombstones_max: Option<u64>,
    /// Sessions.
    pub sessions_max: Option<u64>,
    /// The size of the database.
    pub bytes_max: Option<u64>,
}

/// All rules, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyRules(Arc<[KeyLimits]>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RuleText {
    keys: KeyPattern,
    retention_seconds: Option<RetentionText>,
    records_max: Option<i64>,
    tombstones_max: Option<i64>,
    sessions_max: Option<i64>,
    bytes_max: Option<i64>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "retentionSeconds must be an integer or \"forever\"")]
enum RetentionText {
    Seconds(i64),
    Word(String),
}

impl KeyRules {
    /// Reads a JSON array of rules.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rules: Vec<RuleText> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if rules.len() > KEY_RULES_MAX {
            return Err(format!("{} rules; there may be {KEY_RULES_MAX}", rules.len()));
        }
        let numbered = rules.into_iter().enumerate();
        let read = numbered.map(|(n, rule)| rule.read().map_err(|error| format!("rule {}: {error}", n + 1)));
        read.collect::<Result<_, _>>().map(Self)
    }

    /// The rule of a key.
    pub fn first_for(&self, key: &Key) -> Option<&KeyLimits> {
        self.0.iter().find(|rule| rule.keys.matches(key))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl RuleText {
    fn read(self) -> Result<KeyLimits, String> {
        let within = |name: &str, number: Option<i64>, max: i64| match number {
            Some(number) if !(1..=max).contains(&number) => {
                Err(format!("{name} is {number}; it must be an integer from 1 to {max}"))
            }
            number => Ok(number),
        };
        let limit = |name: &str, number, max| within(name, number, max).map(|number| number.map(i64::unsigned_abs));
        let retention_s = match self.retention_seconds {
            Some(RetentionText::Word(word)) if word == FOREVER => Some(FOREVER_S),
            Some(RetentionText::Word(word)) => {
                return Err(format!("retentionSeconds is {word:?}; it must be an integer or \"{FOREVER}\""));
            }
            Some(RetentionText::Seconds(seconds)) => within("retentionSeconds", Some(seconds), RETENTION_S_MAX)?,
            None => None,
        };
        Ok(KeyLimits {
            keys: self.keys,
            retention_s,
            records_max: limit("recordsMax", self.records_max, COUNT_MAX)?,
            tombstones_max: limit("tombstonesMax", self.tombstones_max, COUNT_MAX)?,
            sessions_max: limit("sessionsMax", self.sessions_max, COUNT_MAX)?,
            bytes_max: limit("bytesMax", self.bytes_max, BYTES_MAX)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_rule_is_an_error_that_says_which_and_why() {
        for (text, said) in [
            ("[{\"keys\":\"a\",\"recordsMax\":0}]", "rule 1: recordsMax is 0"),
            ("[{\"keys\":\"a\"},{\"keys\":\"b\",\"bytesMax\":-1}]", "rule 2: bytesMax is -1"),
            ("[{\"keys\":\"a\",\"tombstonesMax\":9000000000}]", "rule 1: tombstonesMax"),
            ("[{\"keys\":\"a\",\"retentionSeconds\":\"never\"}]", "rule 1: retentionSeconds is \"never\""),
            ("[{\"keys\":\"a\",\"retentionSeconds\":1.5}]", "retentionSeconds must be an integer or"),
            ("[{\"keys\":\"a\",\"retentionSeconds\":0}]", "rule 1: retentionSeconds is 0"),
            ("[{\"keys\":\"\"}]", "not empty"),
            ("[{\"recordsMax\":1}]", "missing field `keys`"),
            ("[{\"keys\":\"a\",\"retention\":1}]", "unknown field `retention`"),
            ("{\"keys\":\"a\"}", "expected a sequence"),
            ("[", "EOF"),
        ] {
            let error = KeyRules::parse(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn there_is_a_bounded_number_of_rules() {
        let rules = |n: usize| format!("[{}]", vec!["{\"keys\":\"a\"}"; n].join(","));
        assert!(KeyRules::parse(&rules(KEY_RULES_MAX)).is_ok());
        assert!(KeyRules::parse(&rules(KEY_RULES_MAX + 1)).is_err_and(|error| error.contains("257 rules")));
    }
}
