//! Requests and responses as client and server see them: bytes and text, without an HTTP library.
//!
//! Invariants:
//! - Header names are lower-case.
//! - A header that occurs twice is stored twice, in order.

use crate::path::Path;
use crate::text::{cut, split};
use std::borrow::Cow;

#[cfg(feature = "server")]
use known::{Name, Value, name_of, value_of};

/// Plain strings: a client has few requests, and its users download every byte of its code.
#[cfg(not(feature = "server"))]
type Name = String;

#[cfg(not(feature = "server"))]
type Value = String;

/// Names arrive in lower case: a runtime's `Headers` gives them so, and the layer writes its own so.
#[cfg(not(feature = "server"))]
fn name_of(name: &str) -> Name {
    name.to_owned()
}

#[cfg(not(feature = "server"))]
fn value_of(value: impl Into<String>) -> Value {
    value.into()
}

/// Names and values without their own allocation. A server makes a dozen header lines for each request; nearly all of
/// their names, and half of their values, are in these lists.
#[cfg(feature = "server")]
mod known {
    use crate::text::known;
    use std::borrow::Cow;

    pub type Name = Cow<'static, str>;
    pub type Value = Cow<'static, str>;

    known! {
        known_name:
        "cache-control" "content-length" "content-type" "host" "idempotency-key" "idempotent-replayed" "semel-ack"
        "semel-deadline" "semel-expires" "semel-first-sent" "semel-key" "semel-now" "semel-principal" "semel-session"
        "semel-status"
    }
    known! { known_value: "application/json" "executed" "false" "no-store" "read" "replayed" "true" }

    pub fn name_of(name: &str) -> Name {
        known_name(name).map_or_else(|| name.to_ascii_lowercase().into(), Cow::Borrowed)
    }

    pub fn value_of(value: impl AsRef<str> + Into<String>) -> Value {
        known_value(value.as_ref()).map_or_else(|| Cow::Owned(value.into()), Cow::Borrowed)
    }
}

/// Header lines in order. On a server, names are lower-cased as they are added. Only this crate can add a line without
/// lower-casing its name:
///
/// ```compile_fail
/// semel_core::message::Headers::new().add("Location", "/orders/1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(Name, Value)>);

impl Headers {
    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same lines, with room for `more` lines.
    #[cfg(feature = "server")]
    pub fn with_room(&self, more: usize) -> Self {
        let mut lines = Vec::with_capacity(self.0.len() + more);
        lines.extend_from_slice(&self.0);
        Self(lines)
    }

    /// The lines with one of these (lower-case) names.
    #[cfg(feature = "server")]
    pub fn only(&self, names: &[&str]) -> Self {
        Self(self.0.iter().filter(|(name, _)| names.contains(&&**name)).cloned().collect())
    }

    /// Adds a line; earlier lines of that name stay.
    pub fn append(&mut self, name: &str, value: impl AsRef<str> + Into<String>) {
        self.push(name, value_of(value));
    }

    /// Adds a line of the layer itself. The name must be in lower case, and is not looked up among the known ones.
    #[cfg(feature = "server")]
    #[inline(never)]
    pub(crate) fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((Cow::Borrowed(name), value.into()));
    }

    // Not inlined, to keep one copy of the code instead of one for each caller.
    #[cfg_attr(feature = "server", inline(never))]
    fn push(&mut self, name: &str, value: Value) {
        self.0.push((name_of(name), value));
    }

    /// The first line of that (lower-case) name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(each, _)| *each == name).map(|(_, value)| value)
    }

    /// All lines of that (lower-case) name, joined into one value as HTTP defines it, so that a second line is never ignored.
    pub fn combined(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut lines = self.iter().filter(|(each, _)| *each == name).map(|(_, value)| value);
        let mut combined = Cow::Borrowed(lines.next()?);
        for line in lines {
            let combined = combined.to_mut();
            combined.push_str(", ");
            combined.push_str(line);
        }
        Some(combined)
    }

    /// Every line, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, value.as_ref()))
    }

    /// Keeps the lines whose name passes the test.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    /// Reads what [`Headers::to_lines`] wrote. Drops a line without a colon, which no HTTP server lets through.
    pub fn from_lines(lines: &str) -> Self {
        #[cfg(feature = "server")]
        let mut headers = Self::new().with_room(lines.bytes().filter(|byte| *byte == b'\n').count());
        #[cfg(not(feature = "server"))]
        let mut headers = Self::new();
        for line in split(lines, b'\n') {
            if let Some((name, value)) = cut(line, b':') {
                headers.append(name, value);
            }
        }
        headers
    }

    /// Reads what [`Headers::to_lines`] wrote to a store; `None` if it is damaged.
    pub fn from_stored(lines: &str) -> Option<Self> {
        Some(Self::from_lines(lines)).filter(|headers| headers.to_lines() == lines)
    }

    /// Writes one `name:value` a line, to be stored or handed over in one piece. Values hold no line feed.
    pub fn to_lines(&self) -> String {
        // A server writes a dozen lines for each request.
        #[cfg(feature = "server")]
        let mut lines = String::with_capacity(self.iter().map(|(name, value)| name.len() + value.len() + 2).sum());
        #[cfg(not(feature = "server"))]
        let mut lines = String::new();
        for (name, value) in self.iter() {
            for part in [name, ":", value, "\n"] {
                lines.push_str(part);
            }
        }
        lines
    }
}

impl<N: AsRef<str>, V: AsRef<str> + Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(lines: I) -> Self {
        let mut headers = Self::new();
        for (name, value) in lines {
            headers.append(name.as_ref(), value);
        }
        headers
    }
}

/// A request method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// `GET`: reads.
    Get,
    /// `HEAD`: reads, and answers without a body.
    Head,
    /// `POST`: changes.
    Post,
    /// `PUT`: changes.
    Put,
    /// `PATCH`: changes.
    Patch,
    /// `DELETE`: changes.
    Delete,
    /// `OPTIONS`: asks what is allowed.
    Options,
    /// Any other method, which nothing handles.
    Other(String),
}

impl Method {
    /// Takes a method as sent: methods are case-sensitive.
    pub fn new(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The method as sent.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Other(other) => other,
        }
    }

    /// Whether requests with this method are executed exactly once, and so need an id.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch | Self::Delete)
    }

    /// Whether requests with this method only read.
    pub fn reads(&self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

/// A whole request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path with its query.
    pub path: Path,
    /// All headers, including those of the protocol.
    pub headers: Headers,
    /// The body, as sent.
    pub body: Vec<u8>,
}

/// A handler's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// A status from 200 to 299 or 400 to 499 makes an outcome; any other is rolled back.
    pub status: u16,
    /// The handler's headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// A response with a body of JSON.
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Headers::from_iter([("content-type", "application/json")]), body: body.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_their_order_and_repetitions_and_empty_values() {
        let headers = Headers::from_iter([("X-A", "1"), ("x-b", ""), ("X-A", "a:b")]);
        assert_eq!(Headers::from_lines(&headers.to_lines()), headers);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("x-a", "1"), ("x-b", ""), ("x-a", "a:b")]);
        assert_eq!(headers.get("x-a"), Some("1"));
        assert_eq!(headers.combined("x-a").as_deref(), Some("1, a:b"));
        assert_eq!(headers.combined("x-b").as_deref(), Some(""));
        assert_eq!(headers.combined("x-c"), None);
    }

    #[test]
    fn stored_header_lines_that_are_damaged_are_not_read() {
        let headers = Headers::from_iter([("x-a", "1"), ("x-b", "")]);
        assert_eq!(Headers::from_stored(&headers.to_lines()), Some(headers));
        for bad in ["x-a", "x-a:1", "x-a\n", "x-a:1\nx-b\n", "X-a:1\n", "\n"] {
            assert_eq!(Headers::from_stored(bad), None, "{bad}");
        }
    }
}
