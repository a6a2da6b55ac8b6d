//! The request headers of the protocol.
//!
//! Invariants:
//! - A structured-field library parses the fields; this module says what each field may hold.
//! - A value that is not exactly as specified is refused, never guessed: a misread id could mean a second payment.
//! - Several lines of one header count as one value, because servers and proxies may join them.

use crate::id::{Invalid, Key, Principal, RequestId};
use crate::message::Headers;
use crate::session::Numbered;
use crate::structured::{bare_item, string};
use crate::text::cut;
use sfv::{BareItem, Item, List, ListEntry, Parser};
#[cfg(feature = "server")]
use {crate::id::REQUEST_ID_CHARS_MAX, std::borrow::Cow};

#[cfg(feature = "server")]
pub use crate::structured::date;
pub use crate::structured::{plain, quoted, unquoted};

/// The most ids that `Semel-Ack` may name.
pub const ACKS_MAX: usize = 64;
/// The longest `Semel-Ack`, in bytes.
pub const ACK_BYTES_MAX: usize = 4096;
/// How far `Semel-Deadline` and `Semel-First-Sent` may be ahead of the key's clock, in ms.
pub const AHEAD_MS_MAX: i64 = 120_000;
/// The latest instant, in Unix ms: 15 digits.
pub const INSTANT_MAX: i64 = 999_999_999_999_999;
/// How long an attempt waits without `Prefer: wait`, in seconds.
pub const WAIT_S_DEFAULT: u32 = 30;
/// The longest `Prefer: wait`, in seconds.
pub const WAIT_S_MAX: u32 = 60;

/// Every request header of the protocol, for CORS.
pub const REQUEST_HEADERS: &[&str] = &[
    "Idempotency-Key",
    "Semel-Key",
    "Semel-Ack",
    "Semel-First-Sent",
    "Semel-Deadline",
    "Semel-Session",
    "Semel-Principal",
    "Prefer",
    "Authorization",
    "Content-Type",
];

/// Every response header of the protocol, for CORS.
pub const RESPONSE_HEADERS: &[&str] =
    &["Semel-Status", "Semel-Now", "Idempotent-Replayed", "Semel-Key", "Semel-Expires", "Semel-Offset", "Retry-After"];

/// One acknowledged id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// The client holds the outcome of this id, and will never send the id again.
    pub id: RequestId,
    /// The latest deadline that any attempt of the id may carry, in Unix ms.
    pub until_ms: Option<i64>,
}

/// What the headers of one attempt say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attempt {
    /// The request id.
    pub id: Option<RequestId>,
    /// The place in a session, which names the request instead of an id.
    pub session: Option<Numbered>,
    /// When the request was first sent, in Unix seconds.
    pub first_sent_s: Option<i64>,
    /// The instant after which the attempt must not start to execute, in Unix ms.
    pub deadline_ms: Option<i64>,
}

impl Attempt {
    /// Whether the attempt names its request, by an id or by a place.
    pub fn is_named(&self) -> bool {
        self.id.is_some() || self.session.is_some()
    }

    /// Reads the headers of an attempt that arrived when the key's clock was at `now_ms`. Fails if any of them is malformed.
    pub fn parse(headers: &Headers, now_ms: i64) -> Result<Self, Invalid> {
        let session = own_place(headers)?;
        Ok(Self {
            id: if session.is_some() { None } else { own_id(headers)? },
            session,
            first_sent_s: headers.combined("semel-first-sent").map(|value| first_sent(&value, now_ms)).transpose()?,
            deadline_ms: headers.combined("semel-deadline").map(|value| deadline(&value, now_ms)).transpose()?,
        })
    }
}

/// The place in a session that names the request. Reads no other header than those that name a request, and fails if both do.
pub fn own_place(headers: &Headers) -> Result<Option<Numbered>, Invalid> {
    let place = headers.combined("semel-session").map(|value| Numbered::parse(&value)).transpose()?;
    if place.is_some() && own_id(headers)?.is_some() {
        return Err(Invalid::new("Semel-Session: it names a request instead of an Idempotency-Key, not with one"));
    }
    Ok(place)
}

/// The request id. Reads no other header.
pub fn own_id(headers: &Headers) -> Result<Option<RequestId>, Invalid> {
    headers.combined("idempotency-key").map(|value| request_id(&value)).transpose()
}

/// The request id as a text, for callers that only look at it. Copies nothing of an id in its usual form; `None` also
/// stands for a malformed id.
#[cfg(feature = "server")]
pub fn id_text(headers: &Headers) -> Option<Cow<'_, str>> {
    let plain = match headers.combined("idempotency-key")? {
        Cow::Borrowed(value) => plain_id(value),
        Cow::Owned(_) => None,
    };
    let plain = plain.filter(|id| (1..=REQUEST_ID_CHARS_MAX).contains(&id.len())).map(Cow::Borrowed);
    plain.or_else(|| Some(own_id(headers).ok()??.as_str().to_owned().into()))
}

/// `Idempotency-Key`: a structured-field string, or a bare run of letters, digits and `- . _ ~ : / + =`.
fn request_id(value: &str) -> Result<RequestId, Invalid> {
    match plain_id(value) {
        Some(id) => RequestId::new(id),
        None => RequestId::new(string("Idempotency-Key", value)?),
    }
}

/// The header value for an id, whichever way the client wrote it: bare where possible, else quoted.
pub fn id_value(id: &RequestId) -> String {
    let id = id.as_str();
    if is_bare(id) { id.to_owned() } else { quoted(id) }
}

fn is_bare(value: &str) -> bool {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/+=".contains(&byte);
    !value.is_empty() && value.bytes().all(bare)
}

/// `Semel-First-Sent`: a structured-field date.
fn first_sent(value: &str, now_ms: i64) -> Result<i64, Invalid> {
    match bare_item(value) {
        Some(BareItem::Date(date)) => checked_first_sent(date.unix_seconds().into(), now_ms),
        _ => Err(Invalid::new("Semel-First-Sent: not a structured-field date: @ and Unix s")),
    }
}

/// Checks the bounds of a first-sent, from a header or from a body.
pub fn checked_first_sent(first_sent_s: i64, now_ms: i64) -> Result<i64, Invalid> {
    if !(0..=INSTANT_MAX / 1000).contains(&first_sent_s) {
        return Err(Invalid::new("first-sent: out of range"));
    }
    if first_sent_s * 1000 > now_ms.saturating_add(AHEAD_MS_MAX) {
        return Err(Invalid::new("first-sent: more than 120 s ahead of the server's clock (Semel-Now)"));
    }
    Ok(first_sent_s)
}

/// The deadline of an attempt, in Unix ms. Reads no other header; `None` if the deadline is absent or malformed.
#[cfg(feature = "server")]
pub fn deadline_ms(headers: &Headers, now_ms: i64) -> Option<i64> {
    deadline(&headers.combined("semel-deadline")?, now_ms).ok()
}

/// `Semel-Deadline`: an integer.
fn deadline(value: &str, now_ms: i64) -> Result<i64, Invalid> {
    let Some(BareItem::Integer(deadline)) = bare_item(value) else {
        return Err(Invalid::new("Semel-Deadline: not an integer of at most 15 digits (Unix ms)"));
    };
    let deadline_ms = checked_instant(deadline.into())?;
    if deadline_ms > now_ms.saturating_add(AHEAD_MS_MAX) {
        return Err(Invalid::new("Semel-Deadline: more than 120 s ahead of the server's clock (Semel-Now)"));
    }
    Ok(deadline_ms)
}

/// Checks the bounds of an instant in Unix ms.
pub fn checked_instant(instant_ms: i64) -> Result<i64, Invalid> {
    if (0..=INSTANT_MAX).contains(&instant_ms) {
        Ok(instant_ms)
    } else {
        Err(Invalid::new("an instant has 1 to 15 digits and no sign"))
    }
}

/// `Semel-Ack`: a list of strings, each with an optional `until`.
pub fn acks(headers: &Headers) -> Result<Vec<Ack>, Invalid> {
    let Some(value) = headers.combined("semel-ack") else { return Ok(Vec::new()) };
    if value.len() > ACK_BYTES_MAX {
        return Err(Invalid::new(format!("Semel-Ack: more than {ACK_BYTES_MAX} bytes")));
    }
    plain_ack(&value).map_or_else(|| listed_acks(&value), |ack| Ok(vec![ack?]))
}

/// Reads a list of one id without escapes, because the library takes several times as long. `None`: the library has to
/// read the value.
fn plain_ack(value: &str) -> Option<Result<Ack, Invalid>> {
    let (id, until) = cut(value, b';').map_or((value, None), |(id, until)| (id, Some(until)));
    let id = plain(id)?;
    let until = match until {
        Some(until) => match bare_item(until.strip_prefix("until=")?)? {
            BareItem::Integer(until) => Some(until.into()),
            _ => return None,
        },
        None => None,
    };
    Some(checked_ack(id, until))
}

fn listed_acks(value: &str) -> Result<Vec<Ack>, Invalid> {
    let list: List = Parser::new(value).parse().map_err(|_| no_acks())?;
    if list.len() > ACKS_MAX {
        return Err(Invalid::new(format!("Semel-Ack: more than {ACKS_MAX} ids")));
    }
    list.into_iter().map(ack).collect()
}

fn no_acks() -> Invalid {
    Invalid::new(
        "Semel-Ack: not a list of structured-field strings, whose only parameter is until, an integer (Unix ms)",
    )
}

fn ack(entry: ListEntry) -> Result<Ack, Invalid> {
    let ListEntry::Item(Item { bare_item: BareItem::String(id), params }) = entry else {
        return Err(no_acks());
    };
    let mut until = None;
    for (name, value) in params {
        match (name.as_str(), value) {
            ("until", BareItem::Integer(integer)) => until = Some(integer.into()),
            _ => return Err(no_acks()),
        }
    }
    checked_ack(id.as_str(), until)
}

fn checked_ack(id: &str, until: Option<i64>) -> Result<Ack, Invalid> {
    let until_ms = until.map(checked_instant).transpose()?;
    Ok(Ack { id: RequestId::new(id)?, until_ms })
}

/// `Semel-Key`: a structured-field string of percent-encoded UTF-8.
pub fn key(headers: &Headers) -> Result<Option<Key>, Invalid> {
    headers.combined("semel-key").map(|value| Key::from_encoded(&string("Semel-Key", &value)?)).transpose()
}

/// `Semel-Principal`: a structured-field string.
pub fn principal(headers: &Headers) -> Result<Option<Principal>, Invalid> {
    headers.combined("semel-principal").map(|value| Principal::new(string("Semel-Principal", &value)?)).transpose()
}

/// `Prefer: wait=N`, in seconds. A preference that is not understood is ignored, as RFC 7240 says.
pub fn wait_s(headers: &Headers) -> u32 {
    let value = headers.combined("prefer").unwrap_or_default();
    // What follows a semicolon is a parameter of that preference.
    let named = value.split(',').filter_map(|each| each.split(';').next()?.split_once('='));
    let mut waits =
        named.filter(|(name, _)| name.trim().eq_ignore_ascii_case("wait")).map(|(_, seconds)| seconds.trim());
    match waits.next() {
        Some(seconds) if !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit()) => {
            // At least 1 s: a caller that asks for 0 still waits for its own execution.
            seconds.parse().unwrap_or(WAIT_S_MAX).clamp(1, WAIT_S_MAX)
        }
        _ => WAIT_S_DEFAULT,
    }
}

/// The id in a value in one of its two usual forms, bare or quoted without escapes; `None` for any other form.
pub(crate) fn plain_id(value: &str) -> Option<&str> {
    if is_bare(value) { Some(value) } else { plain(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000_000_000;

    fn attempt(name: &str, value: &str) -> Result<Attempt, Invalid> {
        Attempt::parse(&[(name, value)].into_iter().collect(), NOW)
    }

    fn id(value: &str) -> Option<String> {
        attempt("idempotency-key", value).ok()?.id.map(|id| id.as_str().to_owned())
    }

    #[test]
    fn a_quoted_id_and_a_bare_id_are_the_same() {
        assert_eq!(id("\"8e03978e-40d5-43dd-bc93-6894a57f9324\""), id("8e03978e-40d5-43dd-bc93-6894a57f9324"));
        assert_eq!(id("AZaz09-._~:/+="), Some("AZaz09-._~:/+=".into()));
        assert_eq!(id("\"with space, and \\\"quotes\\\"\""), Some("with space, and \"quotes\"".into()));
    }

    #[test]
    fn an_id_has_one_header_form_which_parses_to_that_id() {
        for (id, form) in [("a-1._~:/+=", "a-1._~:/+="), ("two words", "\"two words\""), ("a\"b\\", "\"a\\\"b\\\\\"")] {
            let id = RequestId::new(id).expect("an id");
            assert_eq!(id_value(&id), form);
            assert_eq!(request_id(form), Ok(id));
        }
    }

    /// The parser's position would not help a developer who wrote the header by hand.
    #[test]
    fn the_error_of_a_malformed_header_names_it_and_says_how_it_is_written() {
        let text = "not a structured-field string: printable ASCII in quotes, and nothing else";
        let list = "not a list of structured-field strings, whose only parameter is until, an integer (Unix ms)";
        let session = "not as \"name\";epoch=1;seq=1;ack=0";
        for (name, value, told) in [
            ("Idempotency-Key", "order 17", text),
            ("Idempotency-Key", "", text),
            ("Idempotency-Key", "\"a\", \"b\"", text),
            ("Semel-Key", "accounts/alice", text),
            ("Semel-Key", "\"a\";p=1", text),
            ("Semel-Principal", "\"\u{e9}\"", text),
            ("Semel-Ack", "a, b", list),
            ("Semel-Ack", "\"a\",", list),
            ("Semel-Ack", "\"a\";until=soon", list),
            ("Semel-Ack", "\"a\";til=1", list),
            ("Semel-Session", "s;epoch=1;seq=1", session),
            ("Semel-Session", "\"s\";epoch=;seq=1", session),
            ("Semel-Session", "\"s\";epoch=\"1\";seq=1", session),
            ("Semel-Session", "\"s\";epoch=1;seq=1;last=1", session),
            ("Semel-Session", "\"s\";epoch=1", session),
            ("Semel-First-Sent", "1000000000", "not a structured-field date: @ and Unix s"),
            ("Semel-First-Sent", "@yesterday", "not a structured-field date: @ and Unix s"),
            ("Semel-Deadline", "12 s", "not an integer of at most 15 digits (Unix ms)"),
            ("Semel-Deadline", "1000000000000000", "not an integer of at most 15 digits (Unix ms)"),
        ] {
            let headers: Headers = [(name.to_lowercase().as_str(), value)].into_iter().collect();
            let refused = key(&headers).err().or(principal(&headers).err()).or(acks(&headers).err());
            let refused = refused.or(Attempt::parse(&headers, NOW).err());
            assert_eq!(refused.map(|Invalid(reason)| reason), Some(format!("{name}: {told}")), "{value}");
        }
    }

    #[test]
    fn an_ambiguous_or_malformed_id_is_refused() {
        let long = "x".repeat(256);
        for bad in [
            "",
            "\"\"",
            "a, b",
            "\"a\", \"b\"",
            "a b",
            "\"a",
            "\"a\";p=1",
            "a;p",
            ":YQ==:;x",
            "\u{e9}",
            "a\tb",
            "(a)",
            &long,
            &format!("\"{long}\""),
        ] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_second_line_of_a_header_is_an_error_or_for_acks_and_prefer_is_read_too() {
        let two = |name, values: [&str; 2]| values.into_iter().map(|value| (name, value)).collect::<Headers>();
        let session = ("semel-session", "\"a\";epoch=1;seq=1");
        for (name, value) in [("idempotency-key", "a"), ("semel-first-sent", "@5"), ("semel-deadline", "5"), session] {
            assert!(Attempt::parse(&two(name, [value; 2]), NOW).is_err(), "{name}");
        }
        assert!(key(&two("semel-key", ["\"a\""; 2])).is_err());
        assert!(principal(&two("semel-principal", ["\"a\""; 2])).is_err());
        let acks = acks(&two("semel-ack", ["\"a\"", "\"b\""]));
        assert_eq!(acks.map(|acks| acks.len()), Ok(2), "a list may be in several lines");
        assert_eq!(wait_s(&two("prefer", ["respond-async", "wait=5"])), 5);
    }

    #[test]
    fn a_deadline_is_an_integer_of_at_most_15_digits_and_at_most_120_s_ahead() {
        let deadline = |value: &str| attempt("semel-deadline", value).ok().and_then(|attempt| attempt.deadline_ms);
        assert_eq!(deadline("1000000120000"), Some(NOW + 120_000));
        assert_eq!(deadline("0"), Some(0));
        for bad in ["1000000120001", "-1", "1.5", "1000000000000000", "abc", "", "\"1\"", "1, 2", "1;x=1", "+1", "0x10"]
        {
            assert_eq!(deadline(bad), None, "{bad}");
        }
    }

    #[test]
    fn first_sent_is_a_date_at_most_120_s_ahead() {
        let first_sent = |value: &str| attempt("semel-first-sent", value).ok().and_then(|attempt| attempt.first_sent_s);
        assert_eq!(first_sent("@1000000120"), Some(NOW / 1000 + 120));
        for bad in ["@1000000121", "@-1", "1000000000", "@1.5", "@", "\"@1\""] {
            assert_eq!(first_sent(bad), None, "{bad}");
        }
    }

    #[test]
    fn semel_ack_is_a_list_of_at_most_64_strings_with_an_optional_until() {
        let parse = |value: &str| acks(&[("semel-ack", value)].into_iter().collect());
        let ack = |id: &str, until_ms| RequestId::new(id).map(|id| Ack { id, until_ms });
        assert_eq!(parse("\"a\", \"b\";until=5"), [ack("a", None), ack("b", Some(5))].into_iter().collect());
        assert_eq!(parse(""), Ok(Vec::new()));
        let sixty_four = vec!["\"a\""; 64].join(", ");
        assert_eq!(parse(&sixty_four).map(|acks| acks.len()), Ok(64));
        let too_many = vec!["\"a\""; 65].join(", ");
        let too_long = format!("\"{}\"", vec!["x".repeat(250); 17].join("\", \""));
        for bad in [
            "a",
            "1",
            "\"a\";until=x",
            "\"a\";until=-1",
            "\"a\";until=1000000000000000",
            "\"a\";u=1",
            "(\"a\")",
            "\"a\",",
            "\"\"",
            &too_many,
            &too_long,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_acknowledged_id_is_read_as_by_the_library() {
        let plain =
            ["\"a\"", "\"a\";until=5", "\"a b;c\";until=999999999999999", "\"a\";until=-5", "\"\"", "\"\";until=5"];
        let library = [
            "\"a\";until=1000000000000000",
            "\"a\", \"b\"",
            "\"a\";until=5, \"b\"",
            "\"a\";until=5;until=6",
            "\"a\";until",
            "\"a\";until=x",
            "\"a\";until=1.5",
            "\"a\";until=@5",
            "\"a\"; until=5",
            "\"a\";u=5",
            "\"a\\\"b\";until=5",
            " \"a\"",
            "a;until=5",
            "\"a",
            ";until=5",
        ];
        let long = format!("\"{}\"", "x".repeat(256));
        for value in plain.into_iter().chain([&*long]) {
            // An id with a `;` is left to the library.
            assert_eq!(plain_ack(value).is_none(), value.contains("b;c"), "{value}");
        }
        for value in plain.into_iter().chain(library).chain([&*long]) {
            if let Some(read) = plain_ack(value) {
                assert_eq!(read.map(|ack| vec![ack]), listed_acks(value), "{value}");
            }
        }
        assert!(library.iter().all(|value| plain_ack(value).is_none()));
    }

    #[test]
    fn the_wait_of_prefer_is_bounded_and_never_an_error() {
        let wait = |value: &str| wait_s(&[("prefer", value)].into_iter().collect());
        assert_eq!(wait("wait=5"), 5);
        assert_eq!(wait("respond-async, wait=5"), 5);
        assert_eq!(wait("wait=500"), 60);
        assert_eq!(wait("wait=99999999999"), 60);
        assert_eq!(wait("wait=0"), 1);
        assert_eq!(wait("foo; wait=5"), 30);
        assert_eq!(wait("wait=5; foo"), 5);
        assert_eq!(wait("wait=x"), 30);
        assert_eq!(wait("return=minimal"), 30);
    }
}
