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
    /// The bearer token of the administrator; `None`: there is none.
    pub admin_token: Option<String>,
    /// How often at most a key tells the registry, and is woken for it, in ms.
    pub report_ms: i64,
    /// Of a million ordinary requests, so many have a line in the log.
    pub log_sample_ppm: u32,
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
        Self {
            retention_s: 86_400,
            records_max: 100_000,
            tombstones_max: 1_000_000,
            open: false,
            admin_token: None,
            report_ms: 60_000,
            log_sample_ppm: 10_000,
        }
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
            admin_token: setting("SEMEL_ADMIN_TOKEN"),
            report_ms: number("SEMEL_REPORT_SECONDS", default.report_ms / 1000, 86_400)? * 1000,
            log_sample_ppm: match setting("SEMEL_LOG_SAMPLE") {
                None => default.log_sample_ppm,
                Some(text) => share_ppm(&text)
                    .ok_or_else(|| format!("SEMEL_LOG_SAMPLE is {text:?}; it must be a number from 0 to 1"))?,
            },
        })
    }
}

/// A share of 1, in millionths.
fn share_ppm(text: &str) -> Option<u32> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share))?;
    Some((share * 1e6).round() as u32)
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
            ("SEMEL_REPORT_SECONDS", "0"),
            ("SEMEL_LOG_SAMPLE", "1.5"),
            ("SEMEL_LOG_SAMPLE", "NaN"),
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
