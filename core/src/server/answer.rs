//! Answers: outcomes, reads and problems, with the headers of the layer.
//!
//! Invariants:
//! - `Semel-Status` and `Semel-Now` are on every answer. `executed` and `replayed` are only on outcomes.
//! - An outcome is checked before it is committed, so whatever is recorded can be sent, again and again, byte for byte.

use super::config::{OUTCOME_HEADER_BYTES_MAX, OUTCOME_HEADERS_MAX};
use super::json::write::Object;
use crate::header::{date, quoted};
use crate::id::Key;
use crate::message::{Headers, Response};
use crate::problem::{Code, Position, Problem};
use crate::rules::{Rule, holds};
use crate::server::storage::record::Outcome;

/// How many headers the layer adds to an outcome.
const ADDED: usize = 5;

/// An answer, with a line for the log if the operator should know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// A message for the operator's log.
    pub log: Option<String>,
}

impl Answer {
    /// The answer to an attempt that ran just now. `expires_s`: until when it can be replayed, in Unix seconds.
    pub fn executed(outcome: &Outcome, expires_s: Option<i64>) -> Self {
        Self::outcome(outcome, "executed", "false", expires_s)
    }

    /// The recorded outcome, sent again.
    pub fn replayed(outcome: &Outcome, expires_s: Option<i64>) -> Self {
        Self::outcome(outcome, "replayed", "true", expires_s)
    }

    fn outcome(outcome: &Outcome, status: &'static str, replayed: &'static str, expires_s: Option<i64>) -> Self {
        let mut headers = outcome.headers.with_room(ADDED);
        headers.add("semel-status", status);
        headers.add("idempotent-replayed", replayed);
        if let Some(expires_s) = expires_s {
            headers.add("semel-expires", date(expires_s));
        }
        Self { status: outcome.status, headers, body: outcome.body.clone(), log: None }
    }

    /// The answer to a read, which is not recorded.
    pub fn read(response: Response) -> Self {
        let mut headers = response.headers;
        headers.add("semel-status", "read");
        Self { status: response.status, headers, body: response.body, log: None }
    }

    /// The answer to a control request that changed something and is not recorded.
    pub fn changed() -> Self {
        let headers = Headers::from_iter([("semel-status", "executed"), ("idempotent-replayed", "false")]);
        Self { status: 204, headers, body: Vec::new(), log: None }
    }

    /// The answer for a problem.
    pub fn problem(problem: &Problem) -> Self {
        let code = problem.code;
        let (current_epoch, expected_seq) = match problem.position {
            Some(Position::CurrentEpoch(epoch)) => (Some(epoch), None),
            Some(Position::ExpectedSeq(seq)) => (None, Some(seq)),
            None => (None, None),
        };
        let body = Object::default()
            .with("type", problem.type_uri().as_str())
            .with("title", code.title())
            .with("status", code.status())
            .with("detail", problem.detail.as_str())
            .with("code", code.as_str())
            .with("executed", problem.executed.as_str())
            .with("retry", code.retry().as_str())
            .with_some("currentEpoch", current_epoch)
            .with_some("expectedSeq", expected_seq);
        let mut headers = Headers::from_iter([
            ("content-type", "application/problem+json"),
            ("cache-control", "no-store"),
            ("semel-status", code.as_str()),
        ]);
        if code == Code::Unauthorized {
            headers.append("www-authenticate", "Bearer");
        }
        if let Some(seconds) = problem.retry_after_s() {
            headers.append("retry-after", seconds.to_string());
        }
        Self { status: code.status(), headers, body: body.end().into(), log: None }
    }

    /// The answer when the storage or the object is not available.
    pub fn unavailable(detail: &str) -> Self {
        Self::problem(&Problem::new(Code::Unavailable, detail))
    }

    /// The same answer, with a line for the log.
    pub fn with_log(self, line: impl Into<String>) -> Self {
        Self { log: Some(line.into()), ..self }
    }

    /// The same answer, with the headers that every answer has. Pass `key` only for an object that has applied the acknowledgements.
    pub fn stamped(mut self, now_ms: i64, key: Option<&Key>) -> Self {
        self.headers.add("semel-now", now_ms.to_string());
        if let Some(key) = key {
            self.headers.add("semel-key", quoted(&key.encoded()));
        }
        self
    }
}

/// Checks a handler's answer to a change, and turns it into what is recorded. The error is for the log.
pub fn checked_outcome(response: Response, body_bytes_max: usize) -> Result<Outcome, String> {
    if !matches!(response.status, 200..=299 | 400..=499) && holds(Rule::CheckedOutcome) {
        return Err(format!(
            "{} was answered, which is no outcome: 200 to 299 is one, and 400 to 499",
            response.status
        ));
    }
    let Response { status, headers, body } = checked_response(response)?;
    if body.len() > body_bytes_max {
        return Err(format!("the handler's body has {} bytes, more than {body_bytes_max}", body.len()));
    }
    Ok(Outcome { status, headers, body })
}

/// Checks a handler's answer to a read. The error is for the log.
pub fn checked_response(response: Response) -> Result<Response, String> {
    let Response { status, headers, body } = response;
    if !(200..=599).contains(&status) {
        return Err(format!("the handler answered {status}, which is no status"));
    }
    if matches!(status, 204 | 205 | 304) && !body.is_empty() {
        return Err(format!("the handler answered {status} with a body"));
    }
    Ok(Response { status, headers: checked_headers(headers)?, body })
}

/// Headers that belong to one connection, to one answer or to this layer, and so are not recorded.
const UNRECORDED: &[&str] = &[
    "connection",
    "content-length",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "server-timing",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn checked_headers(mut headers: Headers) -> Result<Headers, String> {
    let connection = headers.iter().filter(|(name, _)| *name == "connection");
    let named: Vec<String> =
        connection.flat_map(|(_, names)| names.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    headers.retain(|name| {
        let ours = name.starts_with("semel-") || name.starts_with("access-control-");
        !ours && !UNRECORDED.contains(&name) && !named.iter().any(|each| each == name)
    });
    let mut bytes = 0;
    for (name, value) in headers.iter() {
        if !is_token(name) {
            return Err(format!("the handler's header name {name:?} is malformed"));
        }
        // HTTP trims such a value on its way, so it could not be replayed as it was.
        if value.trim_matches([' ', '\t']) != value || !is_value(value) {
            return Err(format!("the handler's header {name} has a malformed value"));
        }
        bytes += name.len() + value.len();
    }
    if headers.iter().count() > OUTCOME_HEADERS_MAX {
        return Err(format!("the handler's answer has more than {OUTCOME_HEADERS_MAX} header lines"));
    }
    if bytes > OUTCOME_HEADER_BYTES_MAX {
        return Err(format!("the handler's headers have {bytes} bytes, more than {OUTCOME_HEADER_BYTES_MAX}"));
    }
    if headers.get("cache-control").is_none() {
        headers.add("cache-control", "no-store");
    }
    Ok(headers)
}

/// Whether a text can be the name of a header, or a method (a token of RFC 9110).
pub(super) fn is_token(text: &str) -> bool {
    let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

pub(super) fn is_value(value: &str) -> bool {
    // Nearly all values are plain ASCII, which is checked faster.
    value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || value.chars().all(is_value_char)
}

fn is_value_char(char: char) -> bool {
    char == '\t' || (' '..='\u{ff}').contains(&char) && char != '\u{7f}'
}
