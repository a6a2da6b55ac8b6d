//! The operator's settings about who may ask.
//!
//! Invariants:
//! - A setting that can't be read, or contradicts another, is an error. The layer does not guess.
//! - No error shows anything of a secret.

use super::hash;
use super::keys::KeySet;

/// The shortest administrator's token, in characters: nobody can guess one of this length.
const ADMIN_TOKEN_CHARS_MIN: usize = 16;
const RATE_MAX: u32 = 1_000_000;
const RATE_PER_SECOND: u32 = 100;
const RATE_BURST: u32 = 200;

/// Who may ask, and how often.
#[derive(Debug, Default)]
pub struct Access {
    /// Everybody is served, and a token is a name.
    pub(super) is_open: bool,
    pub(super) administrator: Option<[u8; 32]>,
    pub(super) issuer: Option<String>,
    pub(super) audience: String,
    pub(super) keys: Option<KeySet>,
    pub(super) url: Option<String>,
    pub(super) rate_per_second: u32,
    pub(super) rate_burst: u32,
}

impl Access {
    /// Serves everybody or nobody, without any other setting.
    pub fn open_or_closed(is_open: bool) -> Self {
        Self { is_open, rate_per_second: RATE_MAX, rate_burst: RATE_MAX, ..Self::default() }
    }

    /// Reads the settings of a deployment, each a text with a name. The error is for the operator.
    pub fn from_settings(is_open: bool, setting: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| setting(name).filter(|text| !text.is_empty());
        let number = |name: &str, default: u32| match set(name) {
            None => Ok(if is_open { RATE_MAX } else { default }),
            Some(text) => match text.parse::<u32>() {
                Ok(number) if (1..=RATE_MAX).contains(&number) => Ok(number),
                _ => Err(format!("{name} is {text:?}; it must be an integer from 1 to {RATE_MAX}")),
            },
        };
        let keys = set("SEMEL_JWT_KEYS").map(|text| KeySet::from_setting(&text)).transpose();
        let keys = keys.map_err(|reason| format!("SEMEL_JWT_KEYS can't be read: {reason}"))?;
        let url = set("SEMEL_JWKS_URL");
        // The address is not shown: it may have a password.
        if url.as_deref().is_some_and(|url| !is_fetchable(url)) {
            let form = "begin with https://, or http:// and a local host, without a user name";
            return Err(format!("SEMEL_JWKS_URL can't be used: it must {form}"));
        }
        let audience = set("SEMEL_JWT_AUDIENCE");
        let has_keys = keys.is_some() || url.is_some();
        if has_keys && is_open {
            return Err("SEMEL_OPEN is \"true\", and there are keys for tokens: nobody would ask for them".to_owned());
        }
        if has_keys && audience.is_none() {
            return Err("SEMEL_JWT_AUDIENCE is not set: tokens for other audiences would be accepted".to_owned());
        }
        let admin = set("SEMEL_ADMIN_TOKEN");
        if admin.as_ref().is_some_and(|token| token.chars().count() < ADMIN_TOKEN_CHARS_MIN) {
            return Err(format!("SEMEL_ADMIN_TOKEN has fewer than {ADMIN_TOKEN_CHARS_MIN} characters"));
        }
        if admin.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err("SEMEL_ADMIN_TOKEN has characters that no header can hold".to_owned());
        }
        Ok(Self {
            is_open,
            administrator: admin.as_deref().map(hash),
            issuer: set("SEMEL_JWT_ISSUER"),
            audience: audience.unwrap_or_default(),
            keys,
            url,
            rate_per_second: number("SEMEL_RATE_PER_SECOND", RATE_PER_SECOND)?,
            rate_burst: number("SEMEL_RATE_BURST", RATE_BURST)?,
        })
    }
}

/// Whether nobody between there and here can change what is fetched.
fn is_fetchable(url: &str) -> bool {
    let authority = |rest: &str| rest.split(['/', '?', '#']).next().unwrap_or_default().to_owned();
    if let Some(rest) = url.strip_prefix("https://") {
        let authority = authority(rest);
        return !authority.is_empty() && !authority.contains('@');
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = authority(rest);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority.as_str(),
    };
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jwks_url_must_be_https_or_on_this_machine() {
        for good in [
            "https://id.example/jwks",
            "http://localhost/a",
            "http://localhost:1/a",
            "http://127.0.0.1:80",
            "http://[::1]:9/",
        ] {
            assert!(is_fetchable(good), "{good}");
        }
        for bad in [
            "",
            "id.example",
            "http://id.example/",
            "http://localhost@id.example/",
            "http://localhost:1@id.example/",
            "http://localhost.id.example/",
            "https://",
            "https:///x",
            "https://a@b/",
            "file:///x",
        ] {
            assert!(!is_fetchable(bad), "{bad}");
        }
    }
}
