//! Lines of the log, for the operator of a deployment: one JSON document per line, at most one line per answer. A crash has its own lines.
//!
//! Invariants:
//! - A line has no header's value except the request id and a well-formed `traceparent`, and no path, body, principal or token.
//! - A key is logged as a hash, because its name may identify a person. With the name one can find its lines, but the
//!   lines are no list of names.
//! - The content of a field stays in the field: nothing in it ends the line or moves a terminal's cursor.
//! - Either all attempts of a request have a line or none has, because the sample goes by the id. A fault of the server always has a line.

use super::answer::Answer;
use super::json::read::Members;
use super::json::write::Object;
use crate::header;
use crate::id::Key;
use crate::message::Headers;
use crate::problem::Code;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The longest message in a line, in characters.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// What is known of an attempt when it is answered.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The clock, in Unix ms.
    pub now_ms: i64,
    /// How long the attempt took, in ms.
    pub took_ms: i64,
    /// Who answers: `router`, `object` or `registry`.
    pub by: &'a str,
    /// The method.
    pub method: &'a str,
    /// The headers of the request.
    pub headers: &'a Headers,
    /// The key, where an object answers.
    pub key: Option<&'a Key>,
}

/// Which of the ordinary answers get a line.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The share, in parts per million.
    ppm: u32,
    /// The same in all isolates of a deployment. Callers must not know it: with it, they could choose ids that get no line.
    seed: u64,
}

impl Sample {
    /// `settings`: the deployment's settings, which callers don't know.
    pub fn new(ppm: u32, settings: &str) -> Self {
        let seed = Sha256::digest(settings).iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte));
        Self { ppm, seed }
    }

    /// Whether a text is in the sample. The hash is FNV-1a, mixed so that similar texts are spread.
    fn has(self, text: &str) -> bool {
        let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ self.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        for shift in [33, 29] {
            hash = (hash ^ (hash >> shift)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        }
        ((hash >> 32) * 1_000_000) >> 32 < u64::from(self.ppm)
    }
}

#[derive(Default)]
struct Line<'a> {
    time: i64,
    level: &'a str,
    by: Option<&'a str>,
    method: Option<&'a str>,
    key: Option<String>,
    id: Option<&'a str>,
    code: Option<&'a str>,
    status: Option<u16>,
    ms: Option<i64>,
    traceparent: Option<&'a str>,
    message: Option<&'a str>,
}

/// The line of an answer; `None` if it is not in the sample.
pub fn line(sample: Sample, answered: &Answered<'_>, answer: &Answer) -> Option<String> {
    let Answered { now_ms, took_ms, by, method, headers, key } = *answered;
    let code = answer.headers.get("semel-status");
    let id = header::id_text(headers);
    let level = match answer.status {
        500.. => "error",
        _ if answer.log.is_some() || code == Some(Code::Poisoned.as_str()) => "warn",
        _ => "info",
    };
    let is_in_sample = || match (&id, traceparent(headers)) {
        (Some(id), _) => sample.has(id),
        (None, Some(trace)) => sample.has(trace),
        (None, None) => sample.has(&now_ms.to_string()),
    };
    (level != "info" || is_in_sample()).then(|| {
        written(&Line {
            time: now_ms,
            level,
            by: Some(by),
            method: Some(method),
            key: key.map(key_hash),
            id: id.as_deref(),
            code,
            status: Some(answer.status),
            ms: Some(took_ms),
            traceparent: traceparent(headers),
            message: answer.log.as_deref().or(refusal(answer).as_deref()).map(cut),
        })
    })
}

/// Why a token was refused. Whoever is on call needs it, and the text is the layer's own: it has nothing of the token.
fn refusal(answer: &Answer) -> Option<String> {
    if answer.headers.get("semel-status") != Some(Code::Unauthorized.as_str()) {
        return None;
    }
    Members::parse(&answer.body).and_then(|mut problem| problem.required("detail")).ok()
}

/// A line that belongs to no request.
pub fn note(now_ms: i64, level: &str, message: &str) -> String {
    written(&Line { time: now_ms, level, message: Some(cut(message)), ..Line::default() })
}

/// The line of an effect that was refused for good.
pub fn parked(now_ms: i64, key: Option<&Key>) -> String {
    let message = Some("what the key has sent was refused for good, and is parked");
    written(&Line {
        time: now_ms,
        level: "warn",
        by: Some("object"),
        key: key.map(key_hash),
        message,
        ..Line::default()
    })
}

/// The beginning of a message, which may come from a handler.
fn cut(message: &str) -> &str {
    message.char_indices().nth(MESSAGE_CHARS_MAX).and_then(|(end, _)| message.get(..end)).unwrap_or(message)
}

/// Stands for a key: the first 16 hexadecimal digits of its SHA-256.
pub fn key_hash(key: &Key) -> String {
    let mut hash = String::new();
    for byte in Sha256::digest(key.as_str().as_bytes()).iter().take(8) {
        // Writing to a string can't fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

/// The request's place in a trace, by W3C Trace Context version 00; `None` if it is missing or malformed.
pub fn traceparent(headers: &Headers) -> Option<&str> {
    let mut lines = headers.iter().filter(|(name, _)| *name == "traceparent").map(|(_, value)| value);
    let value = lines.next().filter(|value| lines.next().is_none() && is_traceparent(value))?;
    Some(value)
}

/// Removes a malformed `traceparent`, so that a handler that passes it on does not break somebody's trace.
pub fn without_broken_trace(headers: &mut Headers) {
    if traceparent(headers).is_none() {
        headers.retain(|name| name != "traceparent");
    }
}

fn is_traceparent(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let [version, trace, parent, flags] = parts.as_slice() else { return false };
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    *version == "00"
        && is_hex(trace, 32)
        && is_hex(parent, 16)
        && is_hex(flags, 2)
        && !is_zero(trace)
        && !is_zero(parent)
}

fn written(line: &Line<'_>) -> String {
    let json = Object::default()
        .with("time", line.time)
        .with("level", line.level)
        .with_some("by", line.by)
        .with_some("method", line.method)
        .with_some("key", line.key.as_deref())
        .with_some("id", line.id)
        .with_some("code", line.code)
        .with_some("status", line.status)
        .with_some("ms", line.ms)
        .with_some("traceparent", line.traceparent)
        .with_some("message", line.message);
    let json = json.end().into_text();
    let mut safe = String::with_capacity(json.len());
    for char in json.chars() {
        // JSON escapes the control characters of ASCII. Other invisible characters can end a line, move a cursor or
        // reverse the direction of text.
        let is_hidden = char.is_control() || !char.is_ascii() && char.escape_debug().len() > 1;
        if is_hidden {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(char);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use serde_json::Value;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn line_of(ppm: u32, headers: &[(&str, &str)], answer: &Answer) -> Option<Value> {
        let headers = headers.iter().copied().collect();
        let key = Key::new("accounts/alice").unwrap();
        let answered =
            Answered { now_ms: 5, took_ms: 2, by: "object", method: "POST", headers: &headers, key: Some(&key) };
        line(Sample::new(ppm, "SEMEL_OPEN=true\0"), &answered, answer).map(|line| {
            assert!(line.chars().all(|char| !char.is_control() && char != '\u{2028}'), "{line}");
            serde_json::from_str(&line).unwrap()
        })
    }

    #[test]
    fn a_log_line_has_a_hash_of_the_key_and_no_secrets() {
        let headers = [("idempotency-key", "\"a\""), ("authorization", "Bearer secret"), ("traceparent", TRACE)];
        let line = line_of(1_000_000, &headers, &Answer::changed()).unwrap();
        let hash = key_hash(&Key::new("accounts/alice").unwrap());
        assert_eq!(
            line,
            serde_json::json!({ "time": 5, "level": "info", "by": "object", "method": "POST", "key": hash, "id": "a",
                "code": "executed", "status": 204, "ms": 2, "traceparent": TRACE })
        );
    }

    #[test]
    fn only_the_log_line_of_an_unauthorized_refusal_has_its_reason() {
        let refused = |code| Answer::problem(&Problem::new(code, "accounts/alice"));
        let line = line_of(1_000_000, &[], &refused(Code::Unauthorized)).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"info".into(), &"accounts/alice".into()));
        assert_eq!(line_of(0, &[], &refused(Code::Unauthorized)), None);
        assert!(line_of(1_000_000, &[], &refused(Code::KeyMismatch)).unwrap().get("message").is_none());
        let outcome = Answer { status: 401, body: br#"{"detail":"x"}"#.to_vec(), ..Answer::changed() };
        assert!(line_of(1_000_000, &[], &outcome).unwrap().get("message").is_none());
    }

    #[test]
    fn a_failure_is_always_logged_and_its_text_cannot_break_out_of_the_line() {
        let poisoned = Answer::problem(&Problem::new(Code::Poisoned, "x"));
        assert_eq!(line_of(0, &[], &poisoned).unwrap()["level"], "warn");
        let text = "a\r\nb\u{1b}[2J\u{9b}c\u{2028}\u{7f}\u{202e}\"}";
        let failed = Answer::unavailable("x").with_log(text);
        let line = line_of(0, &[], &failed).unwrap();
        assert_eq!((&line["level"], &line["message"]), (&"error".into(), &text.into()));
        assert_eq!(line_of(0, &[], &Answer::changed()), None);
        assert!(note(1, "warn", "h\u{e9}").contains("h\u{e9}"), "what can be seen stays readable");
        let noted = note(1, "warn", text);
        assert_eq!(serde_json::from_str::<Value>(&noted).unwrap()["message"], text);
        assert!(noted.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{noted}");
    }

    #[test]
    fn a_log_sample_has_all_attempts_of_an_id_and_about_its_share_of_ids() {
        let is_in = |id: usize| {
            let id = format!("\"order-{id}\"");
            let lines: Vec<bool> = [Answer::changed(), Answer::read(crate::message::Response::json(200, ""))]
                .iter()
                .map(|answer| line_of(100_000, &[("idempotency-key", &id)], answer).is_some())
                .collect();
            assert_eq!(lines[0], lines[1]);
            lines[0]
        };
        let count = (0..10_000).filter(|id| is_in(*id)).count();
        assert!((850..=1150).contains(&count), "{count}");
    }

    #[test]
    fn the_samples_of_two_deployments_are_independent() {
        let [one, other] =
            ["SEMEL_ADMIN_TOKEN=a\0", "SEMEL_ADMIN_TOKEN=b\0"].map(|settings| Sample::new(100_000, settings));
        let ids: Vec<String> = (0..10_000).map(|n| format!("order-{n}")).collect();
        let both = ids.iter().filter(|id| one.has(id) && other.has(id)).count();
        assert!((50..=150).contains(&both), "{both}");
    }

    #[test]
    fn a_malformed_or_repeated_traceparent_is_ignored() {
        let of =
            |lines: &[&str]| traceparent(&lines.iter().map(|line| ("traceparent", *line)).collect()).map(str::to_owned);
        assert_eq!(of(&[TRACE]).as_deref(), Some(TRACE));
        let bad = [
            TRACE.to_uppercase(),
            TRACE.replacen("00-", "ff-", 1),
            TRACE.replace("b7ad6b7169203331", "0000000000000000"),
            TRACE.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0af7651916cd43dd8448eb211c80319g"),
            TRACE.replace("b7ad6b7169203331", "B7ad6b7169203331"),
            TRACE.replacen("-01", "-0x", 1),
            TRACE.replacen("00-0a", "00-a", 1),
            TRACE.replacen("331-", "31-", 1),
            TRACE.replacen("-01", "-1", 1),
            format!("{TRACE}-x"),
            format!("{TRACE}, {TRACE}"),
            String::new(),
        ];
        for bad in bad {
            assert_eq!(of(&[&bad]), None, "{bad}");
        }
        assert_eq!(of(&[TRACE, TRACE]), None);
    }
}
