//! What an operator sets. Everything has a default and a bound.

/// The settings of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long outcomes can be replayed, and how far the fence is behind the clock.
    pub retention_s: i64,
    /// How many unacknowledged records a key keeps before it refuses new work.
    pub records_max: u64,
    /// How many tombstones and cancelled ids a key keeps before it refuses new work.
    pub tombstones_max: u64,
    /// Whether strangers are served. Development only: the bearer token is then taken as the principal's name, unchecked.
    pub open: bool,
}

/// A request's body has at most so many bytes.
pub const REQUEST_BODY_BYTES_MAX: usize = 1 << 20;
/// An outcome's body has at most so many bytes.
pub const OUTCOME_BODY_BYTES_MAX: usize = 1 << 20;
/// An outcome's headers have at most so many bytes, names and values together.
pub const OUTCOME_HEADER_BYTES_MAX: usize = 64 << 10;
/// An outcome has at most so many header lines.
pub const OUTCOME_HEADERS_MAX: usize = 256;
/// A control request names at most so many ids.
pub const CONTROL_IDS_MAX: usize = 256;
/// The longest retention that can be set: a hundred years.
const RETENTION_S_MAX: i64 = 100 * 366 * 86_400;

impl Default for Config {
    fn default() -> Self {
        Self { retention_s: 86_400, records_max: 100_000, tombstones_max: 1_000_000, open: false }
    }
}

impl Config {
    /// Reads the settings as a deployment has them: text by name. An unreadable one is an error, not a default.
    pub fn from_settings(setting: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let default = Self::default();
        let number = |name: &str, default: i64, max: i64| match setting(name) {
            None => Ok(default),
            Some(text) => match text.parse::<i64>() {
                Ok(number) if (1..=max).contains(&number) => Ok(number),
                _ => Err(format!("{name} is {text:?}; it must be an integer from 1 to {max}")),
            },
        };
        let limit = |name: &str, default: u64| number(name, default as i64, 1_000_000_000).map(|limit| limit as u64);
        Ok(Self {
            retention_s: number("SEMEL_RETENTION_SECONDS", default.retention_s, RETENTION_S_MAX)?,
            records_max: limit("SEMEL_RECORDS_MAX", default.records_max)?,
            tombstones_max: limit("SEMEL_TOMBSTONES_MAX", default.tombstones_max)?,
            open: match setting("SEMEL_OPEN").as_deref() {
                None | Some("" | "false") => false,
                Some("true") => true,
                Some(other) => return Err(format!("SEMEL_OPEN is {other:?}; it must be \"true\" or \"false\"")),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &'static str, value: &'static str) -> Result<Config, String> {
        Config::from_settings(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn a_setting_that_cannot_be_read_is_an_error_that_names_it() {
        for (name, value) in [
            ("SEMEL_RETENTION_SECONDS", "0"),
            ("SEMEL_RECORDS_MAX", "many"),
            ("SEMEL_TOMBSTONES_MAX", "-1"),
            ("SEMEL_OPEN", "yes"),
        ] {
            assert!(one(name, value).is_err_and(|error| error.contains(name)), "{name}");
        }
    }

    #[test]
    fn nobody_is_served_unless_it_is_said() {
        assert_eq!(Config::from_settings(|_| None), Ok(Config::default()));
        assert!(!Config::default().open);
        assert!(one("SEMEL_OPEN", "true").is_ok_and(|config| config.open));
    }
}
