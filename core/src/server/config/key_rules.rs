//! Key rules, the setting `SEMEL_KEY_RULES`: limits for the keys that a pattern names, instead of the defaults.
//!
//! Invariants:
//! - The first rule that names a key applies to it, and no other.
//! - All rules are read, or none.

use super::pattern::KeyPattern;
use super::{BYTES_MAX, COUNT_MAX, FOREVER_S, RETENTION_S_MAX};
use crate::id::Key;
use crate::server::json::read::{Json, Members};
use std::sync::Arc;

/// The most rules that may be set: the object of each key searches them when it starts.
pub const KEY_RULES_MAX: usize = 256;
/// The word for a retention without end.
pub const FOREVER: &str = "forever";

/// One rule: the limits for the keys of a pattern. `None` means the default.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyLimits {
    keys: KeyPattern,
    /// The retention in seconds; see [`FOREVER_S`].
    pub retention_s: Option<i64>,
    /// The most unacknowledged records.
    pub records_max: Option<u64>,
    /// The most tombstones and cancelled ids.
    pub tombstones_max: Option<u64>,
    /// The most sessions.
    pub sessions_max: Option<u64>,
    /// The largest size of the database, in bytes.
    pub bytes_max: Option<u64>,
}

/// All rules, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyRules(Arc<[KeyLimits]>);

impl KeyRules {
    /// Reads a JSON array of rules. The error is for the operator.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rules = Json::parse(text.as_bytes())
            .and_then(|rules| Vec::<Json>::try_from(rules).map_err(|expected| format!("not {expected}")))
            .map_err(|error| format!("{error}; rules are as [{{\"keys\":\"accounts/*\",\"recordsMax\":10}}]"))?;
        if rules.len() > KEY_RULES_MAX {
            return Err(format!("{} rules; there may be {KEY_RULES_MAX}", rules.len()));
        }
        let numbered = rules.into_iter().enumerate();
        let read = numbered.map(|(n, rule)| self::rule(rule).map_err(|error| format!("rule {}: {error}", n + 1)));
        read.collect::<Result<_, _>>().map(Self)
    }

    /// The rule that applies to a key.
    pub fn first_for(&self, key: &Key) -> Option<&KeyLimits> {
        self.0.iter().find(|rule| rule.keys.matches(key))
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn rule(rule: Json) -> Result<KeyLimits, String> {
    let mut members = Members::try_from(rule).map_err(|expected| format!("a rule must be {expected}"))?;
    let keys = KeyPattern::try_from(members.required::<String>("keys")?)?;
    let retention_s = match members.any("retentionSeconds")? {
        Some(Json::Text(word)) if word == FOREVER => Some(FOREVER_S),
        Some(Json::Integer(seconds)) => Some(within("retentionSeconds", seconds, RETENTION_S_MAX)?),
        Some(_) => return Err(format!("retentionSeconds must be an integer or \"{FOREVER}\"")),
        None => None,
    };
    let mut limit = |name: &str, max: i64| {
        let number = members.optional(name)?.map(|number| within(name, number, max)).transpose()?;
        Ok::<_, String>(number.map(i64::unsigned_abs))
    };
    let records_max = limit("recordsMax", COUNT_MAX)?;
    let tombstones_max = limit("tombstonesMax", COUNT_MAX)?;
    let sessions_max = limit("sessionsMax", COUNT_MAX)?;
    let bytes_max = limit("bytesMax", BYTES_MAX)?;
    members.end()?;
    Ok(KeyLimits { keys, retention_s, records_max, tombstones_max, sessions_max, bytes_max })
}

fn within(name: &str, number: i64, max: i64) -> Result<i64, String> {
    if (1..=max).contains(&number) {
        return Ok(number);
    }
    Err(format!("{name} is {number}; it must be an integer from 1 to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_invalid_rule_names_the_rule_and_the_reason() {
        for (text, said) in [
            ("[{\"keys\":\"a\",\"recordsMax\":0}]", "rule 1: recordsMax is 0"),
            ("[{\"keys\":\"a\"},{\"keys\":\"b\",\"bytesMax\":-1}]", "rule 2: bytesMax is -1"),
            ("[{\"keys\":\"a\",\"tombstonesMax\":9000000000}]", "rule 1: tombstonesMax"),
            (
                "[{\"keys\":\"a\",\"retentionSeconds\":\"never\"}]",
                "rule 1: retentionSeconds must be an integer or \"forever\"",
            ),
            ("[{\"keys\":\"a\",\"retentionSeconds\":1.5}]", "retentionSeconds must be an integer or"),
            ("[{\"keys\":\"a\",\"retentionSeconds\":0}]", "rule 1: retentionSeconds is 0"),
            ("[{\"keys\":\"\"}]", "not empty"),
            ("[{\"recordsMax\":1}]", "missing field `keys`"),
            ("[{\"keys\":\"a\",\"retention\":1}]", "unknown field `retention`"),
            ("{\"keys\":\"a\"}", "not an array; rules are as [{\"keys\":"),
            ("accounts/*, carts/*", "; rules are as [{\"keys\":"),
            ("[1]", "rule 1: a rule must be an object"),
            ("[", "EOF"),
        ] {
            let error = KeyRules::parse(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn the_number_of_key_rules_is_limited_to_256() {
        let rules = |n: usize| format!("[{}]", vec!["{\"keys\":\"a\"}"; n].join(","));
        assert!(KeyRules::parse(&rules(KEY_RULES_MAX)).is_ok());
        assert!(KeyRules::parse(&rules(KEY_RULES_MAX + 1)).is_err_and(|error| error.contains("257 rules")));
    }
}
