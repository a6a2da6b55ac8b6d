//! The operator's settings. Each has a default and a bound; [`key_rules`] change some for the keys that a [`pattern`] names.

pub mod key_rules;
pub mod pattern;

use crate::id::Key;
use key_rules::KeyRules;

/// The settings of a deployment, or those of one key after [`Config::for_key`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long outcomes can be replayed, and how far the fence is behind the clock, in seconds; or [`FOREVER_S`].
    pub retention_s: i64,
    /// The number of unacknowledged records at which a key refuses new work.
    pub records_max: u64,
    /// The number of tombstones and cancelled ids at which a key refuses new work.
    pub tombstones_max: u64,
    /// The number of sessions at which a key takes no new one.
    pub sessions_max: u64,
    /// The size of a key's database, the handler's tables included, at which it refuses new work, in bytes.
    pub bytes_max: u64,
    /// The rules for some keys. Empty in the settings of one key.
    pub key_rules: KeyRules,
    /// Whether unauthenticated callers are served. For development only: the bearer token is taken, unchecked, as the principal's name.
    pub open: bool,
    /// The least time between two reports of a key to the registry, for which the key is woken, in ms.
    pub report_ms: i64,
    /// The share of ordinary requests that get a line in the log, in parts per million.
    pub log_sample_ppm: u32,
}

/// The longest body of a request, in bytes.
pub const REQUEST_BODY_BYTES_MAX: usize = 1 << 20;
/// The most elements of a batch, or of a frame of a socket.
pub const ELEMENTS_MAX: usize = 256;
/// The most bytes of the answers to a batch or a frame.
pub const ANSWERS_BYTES_MAX: usize = 4 << 20;
/// The longest body of an outcome, in bytes.
pub const OUTCOME_BODY_BYTES_MAX: usize = 1 << 20;
/// The longest headers of an outcome, names and values together, in bytes. Node's `fetch` accepts twice as many,
/// including the headers that this layer adds. Longer ones would never arrive, however often the outcome is replayed.
pub const OUTCOME_HEADER_BYTES_MAX: usize = 8 << 10;
/// The most header lines of an outcome.
pub const OUTCOME_HEADERS_MAX: usize = 256;
/// The most ids that a control request may name.
pub const CONTROL_IDS_MAX: usize = 256;
/// The default of `records_max` in an open deployment. It is so high that no benchmark measures how fast a full key refuses.
const OPEN_RECORDS_MAX: u64 = 10_000_000;
/// The longest retention that can be set, in seconds: a hundred years.
pub(super) const RETENTION_S_MAX: i64 = 100 * 366 * 86_400;
/// The retention of what is kept for good, in seconds. No clock gets that far, and twice as many ms after any clock still
/// fit into an integer of the storage.
pub const FOREVER_S: i64 = 1_000_000_000_000;
/// The highest limit of a number.
pub(super) const COUNT_MAX: i64 = 1_000_000_000;
/// The highest limit of bytes.
pub(super) const BYTES_MAX: i64 = 1_000_000_000_000;

impl Default for Config {
    fn default() -> Self {
        Self {
            retention_s: 86_400,
            records_max: 100_000,
            tombstones_max: 1_000_000,
            sessions_max: 100_000,
            bytes_max: 8_000_000_000,
            key_rules: KeyRules::default(),
            open: false,
            report_ms: 60_000,
            log_sample_ppm: 10_000,
        }
    }
}

impl Config {
    /// Reads the settings of a deployment, each a text with a name. An unreadable setting is an error, whose text is for
    /// the operator; it never falls back to the default.
    pub fn from_settings(setting: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let default = Self::default();
        let number = |name: &str, default: i64, max: i64| match setting(name) {
            None => Ok(default),
            Some(text) => match text.parse::<i64>() {
                Ok(number) if (1..=max).contains(&number) => Ok(number),
                _ => Err(format!("{name} is {text:?}; it must be an integer from 1 to {max}")),
            },
        };
        let limit =
            |name: &str, default: u64, max: i64| number(name, default as i64, max).map(|limit| limit.unsigned_abs());
        let retention_s = match setting("SEMEL_RETENTION_SECONDS").as_deref() {
            Some(key_rules::FOREVER) => FOREVER_S,
            _ => number("SEMEL_RETENTION_SECONDS", default.retention_s, RETENTION_S_MAX)?,
        };
        let open = match setting("SEMEL_OPEN").as_deref() {
            None | Some("" | "false") => false,
            Some("true") => true,
            Some(other) => return Err(format!("SEMEL_OPEN is {other:?}; it must be \"true\" or \"false\"")),
        };
        let key_rules = match setting("SEMEL_KEY_RULES").as_deref() {
            None | Some("") => KeyRules::default(),
            Some(text) => KeyRules::parse(text).map_err(|error| format!("SEMEL_KEY_RULES: {error}"))?,
        };
        Ok(Self {
            retention_s,
            records_max: limit(
                "SEMEL_RECORDS_MAX",
                if open { OPEN_RECORDS_MAX } else { default.records_max },
                COUNT_MAX,
            )?,
            tombstones_max: limit("SEMEL_TOMBSTONES_MAX", default.tombstones_max, COUNT_MAX)?,
            sessions_max: limit("SEMEL_SESSIONS_MAX", default.sessions_max, COUNT_MAX)?,
            bytes_max: limit("SEMEL_BYTES_MAX", default.bytes_max, BYTES_MAX)?,
            key_rules,
            open,
            report_ms: number("SEMEL_REPORT_SECONDS", default.report_ms / 1000, 86_400)? * 1000,
            log_sample_ppm: match setting("SEMEL_LOG_SAMPLE") {
                None => default.log_sample_ppm,
                Some(text) => share_ppm(&text)
                    .ok_or_else(|| format!("SEMEL_LOG_SAMPLE is {text:?}; it must be a number from 0 to 1"))?,
            },
        })
    }

    /// The settings of one key: what its rule says, and the defaults for the rest.
    pub fn for_key(self, key: &Key) -> Self {
        let Self { key_rules, .. } = &self;
        let Some(rule) = key_rules.first_for(key).cloned() else {
            return Self { key_rules: KeyRules::default(), ..self };
        };
        Self {
            retention_s: rule.retention_s.unwrap_or(self.retention_s),
            records_max: rule.records_max.unwrap_or(self.records_max),
            tombstones_max: rule.tombstones_max.unwrap_or(self.tombstones_max),
            sessions_max: rule.sessions_max.unwrap_or(self.sessions_max),
            bytes_max: rule.bytes_max.unwrap_or(self.bytes_max),
            key_rules: KeyRules::default(),
            ..self
        }
    }

    /// Whether these settings apply as they are, because no key rules are left.
    pub fn is_of_key(&self) -> bool {
        self.key_rules.is_empty()
    }

    /// The retention in seconds; `None` means for ever.
    pub fn retention(&self) -> Option<i64> {
        Some(self.retention_s).filter(|retention_s| *retention_s < FOREVER_S)
    }
}

/// Reads a number from 0 to 1 as millionths. It does not parse a float, which would add 10 kB to the Worker's bundle.
fn share_ppm(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = [whole, fraction].iter().all(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let millionths: u32 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let share_ppm = whole.parse::<u32>().ok()?.checked_mul(1_000_000)?.checked_add(millionths)?;
    Some(share_ppm).filter(|share_ppm| is_number && *share_ppm <= 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &'static str, value: &'static str) -> Result<Config, String> {
        Config::from_settings(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn the_error_of_an_invalid_setting_names_the_setting() {
        for (name, value) in [
            ("SEMEL_RETENTION_SECONDS", "0"),
            ("SEMEL_RECORDS_MAX", "many"),
            ("SEMEL_TOMBSTONES_MAX", "-1"),
            ("SEMEL_SESSIONS_MAX", "0"),
            ("SEMEL_BYTES_MAX", "10 GB"),
            ("SEMEL_RETENTION_SECONDS", "Forever"),
            ("SEMEL_KEY_RULES", "{}"),
            ("SEMEL_OPEN", "yes"),
            ("SEMEL_REPORT_SECONDS", "0"),
            ("SEMEL_LOG_SAMPLE", "1.5"),
            ("SEMEL_LOG_SAMPLE", "1.000001"),
            ("SEMEL_LOG_SAMPLE", "4295"),
            ("SEMEL_LOG_SAMPLE", "99999999999"),
            ("SEMEL_LOG_SAMPLE", "-0.5"),
            ("SEMEL_LOG_SAMPLE", "0.+5"),
            ("SEMEL_LOG_SAMPLE", "0.1234567x"),
            ("SEMEL_LOG_SAMPLE", "0.1.2"),
            ("SEMEL_LOG_SAMPLE", ""),
            ("SEMEL_LOG_SAMPLE", "NaN"),
        ] {
            assert!(one(name, value).is_err_and(|error| error.contains(name)), "{name}");
        }
    }

    #[test]
    fn a_log_sample_is_a_decimal_from_0_to_1_whose_first_six_places_count() {
        for (text, share_ppm) in
            [("0", 0), ("1", 1_000_000), ("1.0", 1_000_000), ("0.5", 500_000), ("0.01", 10_000), ("0.0000019", 1)]
        {
            assert_eq!(one("SEMEL_LOG_SAMPLE", text).map(|config| config.log_sample_ppm), Ok(share_ppm), "{text}");
        }
    }

    #[test]
    fn a_retention_of_forever_has_no_end() {
        let config = one("SEMEL_RETENTION_SECONDS", "forever");
        assert_eq!(config.map(|config| (config.retention_s, config.retention())), Ok((FOREVER_S, None)));
        assert_eq!(Config::default().retention(), Some(86_400));
    }

    #[test]
    fn the_first_rule_that_matches_a_key_applies_and_leaves_other_settings_unchanged() {
        let rules = r#"[{"keys":"a/b","recordsMax":1},{"keys":"a/*","retentionSeconds":"forever","recordsMax":2},
            {"keys":"*","tombstonesMax":3,"bytesMax":4,"retentionSeconds":5}]"#;
        let config = one("SEMEL_KEY_RULES", rules).expect("rules");
        assert!(!config.is_of_key());
        for (key, retention_s, records_max, tombstones_max, bytes_max) in [
            ("a/b", 86_400, 1, 1_000_000, 8_000_000_000),
            ("a/bc", FOREVER_S, 2, 1_000_000, 8_000_000_000),
            ("a", 5, 100_000, 3, 4),
        ] {
            let found = config.clone().for_key(&Key::new(key).expect("a key"));
            let expected = Config { retention_s, records_max, tombstones_max, bytes_max, ..Config::default() };
            assert_eq!(found, expected, "{key}");
            assert!(found.is_of_key());
        }
    }

    #[test]
    fn an_open_deployment_has_its_own_records_max_unless_that_is_set() {
        let of = |set: &[(&str, &str)]| {
            let found = |asked: &str| set.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
            Config::from_settings(found).map(|config| config.records_max)
        };
        assert_eq!(of(&[("SEMEL_OPEN", "true")]), Ok(OPEN_RECORDS_MAX));
        assert_eq!(of(&[("SEMEL_OPEN", "true"), ("SEMEL_RECORDS_MAX", "5")]), Ok(5));
        assert_eq!(of(&[("SEMEL_OPEN", "false")]), Ok(Config::default().records_max));
    }

    #[test]
    fn a_deployment_is_open_only_if_semel_open_says_so() {
        assert_eq!(Config::from_settings(|_| None), Ok(Config::default()));
        assert!(!Config::default().open);
        assert!(one("SEMEL_OPEN", "true").is_ok_and(|config| config.open));
    }
}
