//! Which pages of other origins may read answers: an allow-list.
//!
//! Invariants:
//! - Nothing else makes an answer readable by another origin: before this module, no answer of the layer has a CORS header.
//! - An origin is allowed by its exact name, never by a part of it. An origin that is not allowed gets no CORS headers.
//! - If there is a list, every answer says that it varies by origin, so that no cache gives it to another origin.

use crate::header::{REQUEST_HEADERS, RESPONSE_HEADERS};
use crate::message::Headers;
use crate::server::answer::{Answer, is_token};

const SETTING: &str = "SEMEL_ORIGINS";
const ORIGINS_MAX: usize = 100;
/// How long a preflight may be cached, in seconds. Browsers cache it for less.
const PREFLIGHT_S: u32 = 86_400;

/// Whose pages may read answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cors {
    /// Pages of any origin.
    Any,
    /// Pages of these origins. If the list is empty, only the Worker's own pages.
    Listed(Vec<String>),
}

impl Cors {
    /// Reads the operator's setting. Without it, an open deployment allows any origin. The error is for the operator.
    pub fn from_settings(is_open: bool, setting: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let text = setting(SETTING).unwrap_or_default();
        let origins: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
        match origins.as_slice() {
            [] if is_open => return Ok(Self::Any),
            [any] if any == "*" => return Ok(Self::Any),
            _ if origins.len() > ORIGINS_MAX => return Err(format!("{SETTING} has more than {ORIGINS_MAX} origins")),
            _ => {}
        }
        match origins.iter().find(|origin| !is_origin(origin)) {
            Some(bad) => Err(format!(
                "{SETTING} has {bad:?}; an origin is like https://app.example, as browsers write it: without a path, and without the port of its scheme. Between two of them is a space"
            )),
            None => Ok(Self::Listed(origins)),
        }
    }

    /// Whether the caller may open a socket, which a browser lets any page do. Allowed are pages that may read answers,
    /// the Worker's own pages, and callers that are not pages.
    pub fn lets_open(&self, request: &Headers) -> bool {
        let Some(origin) = request.combined("origin") else { return true };
        let own = origin.split_once("://").map(|(_, authority)| authority);
        own.is_some() && own == request.get("host") || self.allowed(request).is_some()
    }

    fn allowed(&self, request: &Headers) -> Option<&str> {
        match self {
            Self::Any => Some("*"),
            Self::Listed(origins) => {
                let origin = request.combined("origin");
                origins.iter().map(String::as_str).find(|each| origin.as_deref() == Some(each))
            }
        }
    }

    /// Makes an answer readable for the page that asked, if it may read it. `request`: the headers of the page's request.
    pub fn stamp(&self, answer: &mut Answer, request: &Headers) {
        if let Self::Listed(_) = self {
            answer.headers.append("vary", "Origin");
        }
        let allowed = self.allowed(request);
        let Some(allowed) = allowed else {
            answer.headers.retain(|name| !name.starts_with("access-control-"));
            return;
        };
        let mut exposed = RESPONSE_HEADERS.join(", ");
        for (name, _) in answer.headers.iter() {
            let is_known = RESPONSE_HEADERS.iter().any(|known| known.eq_ignore_ascii_case(name));
            if !is_known && !name.starts_with("access-control-") {
                exposed.push_str(", ");
                exposed.push_str(name);
            }
        }
        answer.headers.append("access-control-allow-origin", allowed);
        answer.headers.append("access-control-expose-headers", exposed);
    }
}

/// The answer to a browser's preflight. It allows all headers of the protocol, and those that the browser asks for.
pub(super) fn preflight(request: &Headers) -> Answer {
    let asked = request.combined("access-control-request-headers").unwrap_or_default();
    let mut allowed: Vec<&str> = REQUEST_HEADERS.to_vec();
    allowed.extend(asked.split(',').map(str::trim).filter(|name| is_token(name)));
    let headers = Headers::from_iter([
        ("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE".to_owned()),
        ("access-control-allow-headers", allowed.join(", ")),
        ("access-control-max-age", PREFLIGHT_S.to_string()),
        ("semel-status", "read".to_owned()),
    ]);
    Answer { status: 204, headers, body: Vec::new(), log: None }
}

/// Whether a text is `scheme://host[:port]` as a browser writes it: in lower case, with nothing after it, and without the
/// default port of the scheme.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte));
    let is_authority_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:[]".contains(&byte);
    let has_own_port =
        matches!((scheme, authority.rsplit_once(':')), ("https", Some((_, "443"))) | ("http", Some((_, "80"))));
    is_scheme && !has_own_port && !authority.is_empty() && authority.bytes().all(is_authority_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(text: &str) -> Result<Cors, String> {
        Cors::from_settings(false, |_| Some(text.to_owned()))
    }

    /// The CORS headers and `Vary` of an answer to a page of that origin.
    fn stamped(cors: &Cors, origin: Option<&str>) -> Vec<(String, String)> {
        let mut answer = Answer::unavailable("test");
        answer.headers.append("x-own", "1");
        cors.stamp(&mut answer, &Headers::from_iter(origin.map(|origin| ("origin", origin))));
        let of_cors = |(name, _): &(&str, &str)| name.starts_with("access-control-") || *name == "vary";
        answer.headers.iter().filter(of_cors).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn only_a_listed_origin_gets_cors_headers() {
        let cors = cors("https://app.example  http://localhost:5173").unwrap_or(Cors::Any);
        let vary = [("vary".to_owned(), "Origin".to_owned())];
        for origin in ["https://app.example", "http://localhost:5173"] {
            let got = stamped(&cors, Some(origin));
            assert_eq!(got.first(), vary.first());
            assert_eq!(got.get(1), Some(&("access-control-allow-origin".to_owned(), origin.to_owned())));
            assert!(
                got.get(2).is_some_and(|(_, exposed)| exposed.contains(", x-own") && exposed.contains("Semel-Status"))
            );
        }
        for origin in [
            "https://app.example.evil",
            "https://evil-app.example",
            "http://app.example",
            "https://app.example:444",
            "null",
            "*",
            "",
        ] {
            assert_eq!(stamped(&cors, Some(origin)), vary, "{origin}");
        }
        assert_eq!(stamped(&cors, None), vary);
    }

    #[test]
    fn a_socket_may_be_opened_by_listed_origins_the_workers_own_origin_and_clients_without_one() {
        let listed = cors("https://app.example").unwrap_or(Cors::Any);
        let lets_open = |cors: &Cors, origin: Option<&str>| {
            let origin = origin.map(|origin| ("origin", origin));
            cors.lets_open(&Headers::from_iter([("host", "api.example:8080")].into_iter().chain(origin)))
        };
        for origin in [None, Some("https://app.example"), Some("https://api.example:8080")] {
            assert!(lets_open(&listed, origin), "{origin:?}");
        }
        for origin in
            ["https://evil.example", "https://api.example", "null", "", "https://app.example.evil", "api.example:8080"]
        {
            assert!(!lets_open(&listed, Some(origin)), "{origin}");
            assert!(lets_open(&Cors::Any, Some(origin)), "{origin}");
        }
        // Without a host there is none of its own.
        assert!(!listed.lets_open(&Headers::from_iter([("origin", "null")])));
    }

    #[test]
    fn no_list_allows_no_origin_except_in_an_open_deployment_and_a_star_allows_any() {
        assert_eq!(Cors::from_settings(false, |_| None), Ok(Cors::Listed(Vec::new())));
        assert_eq!(Cors::from_settings(true, |_| None), Ok(Cors::Any));
        assert_eq!(cors("*"), Ok(Cors::Any));
        let of_another_scheme = "web2+a.b-c://app.example";
        assert_eq!(cors(of_another_scheme), Ok(Cors::Listed(vec![of_another_scheme.to_owned()])));
        assert_eq!(stamped(&Cors::Any, None).len(), 2, "and nothing varies");
    }

    #[test]
    fn an_invalid_origin_is_an_error_that_names_semel_origins() {
        for bad in [
            "https://app.example/",
            "app.example",
            "https://",
            "HTTPS://app.example",
            "hTTPS://app.example",
            "1https://app.example",
            "ht_tps://app.example",
            "null",
            "* https://a",
            "https://*.example",
            "https://app.example:443",
            "http://app.example:80",
        ] {
            assert!(cors(bad).is_err_and(|error| error.contains("SEMEL_ORIGINS")), "{bad}");
        }
    }

    #[test]
    fn a_list_of_origins_has_at_most_100() {
        let list = |count: usize| (0..count).map(|n| format!("https://a{n}.example")).collect::<Vec<_>>().join(" ");
        assert!(matches!(cors(&list(ORIGINS_MAX)), Ok(Cors::Listed(origins)) if origins.len() == 100));
        assert!(cors(&list(ORIGINS_MAX + 1)).is_err_and(|error| error.contains("more than 100 origins")));
    }

    #[test]
    fn the_error_of_a_list_with_another_separator_says_that_it_must_be_a_space() {
        for bad in [
            "https://a.example,https://b.example",
            "https://a.example, https://b.example",
            "https://a.example;b",
            "[\"https://a.example\"]",
        ] {
            assert!(cors(bad).is_err_and(|error| error.contains("Between two of them is a space")), "{bad}");
        }
    }

    #[test]
    fn the_answer_to_a_preflight_of_an_unlisted_origin_allows_nothing() {
        let asked =
            Headers::from_iter([("origin", "https://evil.example"), ("access-control-request-headers", "x-own")]);
        let mut answer = preflight(&asked);
        Cors::Listed(vec!["https://app.example".to_owned()]).stamp(&mut answer, &asked);
        assert_eq!(answer.headers.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["semel-status", "vary"]);
    }
}
