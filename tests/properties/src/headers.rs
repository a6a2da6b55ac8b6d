//! One header value, through every parser that reads what a stranger sent.
//!
//! Invariant: the readings below follow RFC 9651 and PROTOCOL.md, without the library that the parsers use.

use semel_core::header::{self, ACK_BYTES_MAX, ACKS_MAX, AHEAD_MS_MAX, Ack, Attempt, INSTANT_MAX, quoted, unquoted};
use semel_core::id::{KEY_BYTES_MAX, Key, PRINCIPAL_BYTES_MAX, Principal, REQUEST_ID_CHARS_MAX};
use semel_core::message::{Headers, Method};
use semel_core::server::attempt::suspicion::is_suspect;

/// The clock at which values are read. Instants with the same number of digits lie on both sides of it.
pub const NOW_MS: i64 = 1_800_000_000_000;

/// Reads a value as each header of the protocol.
pub fn check(value: &str) {
    check_id(value);
    check_instants(value);
    check_key_and_principal(value);
    check_acks(value);
    check_lines(value);
    let waits = header::wait_s(&one("prefer", value));
    assert!((1..=header::WAIT_S_MAX).contains(&waits), "{waits}");
    for name in ["idempotency-key", "semel-first-sent"] {
        is_suspect(&Method::Post, "/a", &one(name, value), NOW_MS, NOW_MS + 1);
    }
}

/// Headers with one line.
pub fn one(name: &str, value: &str) -> Headers {
    [(name, value)].into_iter().collect()
}

fn attempt(name: &str, value: &str) -> Option<Attempt> {
    Attempt::parse(&one(name, value), NOW_MS).ok()
}

fn check_id(value: &str) {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/+=".contains(&byte);
    let is_bare = !value.is_empty() && value.bytes().all(bare);
    let text = if is_bare { Some(value.to_owned()) } else { string(value) };
    let expected = text.filter(|text| (1..=REQUEST_ID_CHARS_MAX).contains(&text.len()));
    let id = attempt("idempotency-key", value).and_then(|attempt| attempt.id);
    assert_eq!(id.as_ref().map(|id| id.as_str()), expected.as_deref());
    if let Some(id) = id {
        let again = attempt("idempotency-key", &quoted(id.as_str())).and_then(|attempt| attempt.id);
        assert_eq!(again, Some(id));
    }
    // The SDK's own reader of strings doesn't accept spaces around them, which HTTP removes.
    let is_trimmed = value.trim_matches(' ') == value;
    assert_eq!(unquoted(value), string(value).filter(|_| is_trimmed));
    if let Some(text) = unquoted(value) {
        assert_eq!(quoted(&text), value, "there is one way to write a string");
    }
}

fn check_instants(value: &str) {
    let first_sent_s = value.trim_matches(' ').strip_prefix('@').and_then(integer);
    let first_sent_s = first_sent_s.filter(|seconds| (0..=(NOW_MS + AHEAD_MS_MAX) / 1000).contains(seconds));
    assert_eq!(attempt("semel-first-sent", value).and_then(|attempt| attempt.first_sent_s), first_sent_s);
    let deadline_ms = integer(value.trim_matches(' ')).filter(|ms| (0..=NOW_MS + AHEAD_MS_MAX).contains(ms));
    assert_eq!(attempt("semel-deadline", value).and_then(|attempt| attempt.deadline_ms), deadline_ms);
    if let Some(first_sent_s) = first_sent_s {
        let written = format!("@{first_sent_s}");
        assert_eq!(attempt("semel-first-sent", &written).and_then(|attempt| attempt.first_sent_s), Some(first_sent_s));
    }
}

fn check_key_and_principal(value: &str) {
    let key = header::key(&one("semel-key", value)).ok().flatten();
    let expected = string(value).and_then(|text| decoded(&text)).filter(|text| is_key(text));
    assert_eq!(key.as_ref().map(Key::as_str), expected.as_deref());
    if let Some(key) = key {
        check_key(&key);
    }
    let principal = header::principal(&one("semel-principal", value)).ok().flatten();
    let expected = string(value).filter(|text| text.len() <= PRINCIPAL_BYTES_MAX);
    assert_eq!(principal.as_ref().map(Principal::as_str), expected.as_deref());
}

/// Asserts what must hold of every key.
pub fn check_key(key: &Key) {
    assert!(is_key(key.as_str()), "{key:?}");
    let encoded = key.encoded();
    assert!(encoded.bytes().all(|byte| (0x21..0x7f).contains(&byte)), "{encoded}");
    assert_eq!(Key::from_encoded(&encoded).as_ref(), Ok(key));
    assert_eq!(unquoted(&quoted(&encoded)), Some(encoded.clone().into_owned()));
    assert_eq!(header::key(&one("semel-key", &quoted(&encoded))), Ok(Some(key.clone())));
}

fn is_key(text: &str) -> bool {
    let is_dots = matches!(text, "." | "..");
    (1..=KEY_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control) && !is_dots
}

fn check_acks(value: &str) {
    let Ok(acks) = header::acks(&one("semel-ack", value)) else { return };
    assert!(value.len() <= ACK_BYTES_MAX && acks.len() <= ACKS_MAX);
    for ack in &acks {
        assert!((1..=REQUEST_ID_CHARS_MAX).contains(&ack.id.as_str().len()));
        assert!(ack.until_ms.is_none_or(|until_ms| (0..=INSTANT_MAX).contains(&until_ms)));
    }
    let written = ack_header(&acks);
    if written.len() <= ACK_BYTES_MAX {
        assert_eq!(header::acks(&one("semel-ack", &written)), Ok(acks));
    }
}

/// Writes the value of `Semel-Ack`.
pub fn ack_header(acks: &[Ack]) -> String {
    let entry = |ack: &Ack| {
        let until = ack.until_ms.map_or(String::new(), |until_ms| format!(";until={until_ms}"));
        quoted(ack.id.as_str()) + &until
    };
    acks.iter().map(entry).collect::<Vec<_>>().join(", ")
}

/// Several lines of one name must be read like one joined value, because every HTTP server may join them.
fn check_lines(value: &str) {
    let Some((first, second)) = value.split_once(", ") else { return };
    for name in ["idempotency-key", "semel-first-sent", "semel-deadline", "semel-key", "semel-principal", "semel-ack"] {
        let apart: Headers = [(name, first), (name, second)].into_iter().collect();
        let joined = one(name, value);
        assert_eq!(Attempt::parse(&apart, NOW_MS), Attempt::parse(&joined, NOW_MS), "{name}");
        assert_eq!(header::key(&apart), header::key(&joined), "{name}");
        assert_eq!(header::principal(&apart), header::principal(&joined), "{name}");
        assert_eq!(header::acks(&apart), header::acks(&joined), "{name}");
    }
}

/// Reads a structured-field string with nothing around it but spaces.
fn string(value: &str) -> Option<String> {
    let mut rest = value.trim_matches(' ').strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match rest.next()? {
            '"' => break,
            '\\' => text.push(rest.next().filter(|escaped| ['"', '\\'].contains(escaped))?),
            char if (' '..='~').contains(&char) => text.push(char),
            _ => return None,
        }
    }
    rest.next().is_none().then_some(text)
}

/// Reads a structured-field integer.
fn integer(value: &str) -> Option<i64> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_integer = (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_integer { value.parse().ok() } else { None }
}

/// Percent-decodes a text; `None` if any escape is invalid.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            rest = after;
            let digit = |byte: u8| char::from(byte).to_digit(16);
            bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
