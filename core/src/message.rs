//! Requests and responses as both halves see them: bytes and text, no HTTP library.
//!
//! Invariant: header names are lower-case; a header that occurs twice is there twice, in order.

use crate::path::Path;
use crate::text::{cut, split};
use std::borrow::Cow;

#[cfg(feature = "server")]
use known::{Name, Value, name_of, value_of};

/// A client has few requests, and every byte of it is downloaded.
#[cfg(not(feature = "server"))]
type Name = String;

#[cfg(not(feature = "server"))]
type Value = String;

/// In lower case already: so a runtime's `Headers` gives them, and so the layer writes its own.
#[cfg(not(feature = "server"))]
fn name_of(name: &str) -> Name {
    name.to_owned()
}

#[cfg(not(feature = "server"))]
fn value_of(value: impl Into<String>) -> Value {
    value.into()
}

/// Names and values without memory of their own: a server makes a dozen lines for each request, and nearly all names are these, and half of
/// the values.
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

/// Header lines in order. Whatever a server is given a name in, it is lower-case from then on; lines as they are kept are not to be had from outside:
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

    /// The same lines, and room for more.
    #[cfg(feature = "server")]
    pub fn with_room(&self, more: usize) -> Self {
        let mut lines = Vec::with_capacity(self.0.len() + more);
        lines.extend_from_slice(&self.0);
        Self(lines)
    }

    /// The lines of these (lower-case) names.
    #[cfg(feature = "server")]
    pub fn only(&self, names: &[&str]) -> Self {
        Self(self.0.iter().filter(|(name, _)| names.contains(&&**name)).cloned().collect())
    }

    /// Adds a line; earlier lines of that name stay.
    pub fn append(&mut self, name: &str, value: impl AsRef<str> + Into<String>) {
        self.push(name, value_of(value));
    }

    /// Adds a line of the layer's own, of a name in lower case, which is not looked up.
    #[cfg(feature = "server")]
    #[inline(never)]
    pub(crate) fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((Cow::Borrowed(name), value.into()));
    }

    // Once, and not in each place that makes a header.
    #[cfg_attr(feature = "server", inline(never))]
    fn push(&mut self, name: &str, value: Value) {
        self.0.push((name_of(name), value));
    }

    /// The first line of that (lower-case) name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(each, _)| *each == name).map(|(_, value)| value)
    }

    /// All lines of that (lower-case) name as the one value that they are in HTTP: a second line is never passed over.
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

    /// Keeps the lines of which the test is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    /// Reads what [`Headers::to_lines`] wrote. A line without a colon is left out: no HTTP server lets one through.
    pub fn from_lines(lines: &str) -> Self {
        let mut headers = Self::new();
        for line in split(lines, b'\n') {
            if let Some((name, value)) = cut(line, b':') {
                headers.append(name, value);
            }
        }
        headers
    }

    /// Reads what [`Headers::to_lines`] wrote, where it may be damaged; `None`: it is.
    pub fn from_stored(lines: &str) -> Option<Self> {
        Some(Self::from_lines(lines)).filter(|headers| headers.to_lines() == lines)
    }

    /// One `name:value` a line: a form to store, and to hand over in one piece. Values hold no line feed.
    pub fn to_lines(&self) -> String {
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
    /// Any other: nothing handles it.
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

    /// Whether a request with this method is executed exactly once, and so needs an id.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch | Self::Delete)
    }

    /// Whether a request with this method reads.
    pub fn reads(&self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

/// A request, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path with its query.
    pub path: Path,
    /// All headers, ours among them.
    pub headers: Headers,
    /// The body, as sent.
    pub body: Vec<u8>,
}

/// A handler's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// 200 to 299 or 400 to 499 make an outcome; anything else is rolled back.
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
    fn headers_keep_order_repetition_and_empty_values() {
        let headers = Headers::from_iter([("X-A", "1"), ("x-b", ""), ("X-A", "a:b")]);
        assert_eq!(Headers::from_lines(&headers.to_lines()), headers);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("x-a", "1"), ("x-b", ""), ("x-a", "a:b")]);
        assert_eq!(headers.get("x-a"), Some("1"));
        assert_eq!(headers.combined("x-a").as_deref(), Some("1, a:b"));
        assert_eq!(headers.combined("x-b").as_deref(), Some(""));
        assert_eq!(headers.combined("x-c"), None);
    }

    #[test]
    fn stored_lines_that_were_damaged_are_not_read() {
        let headers = Headers::from_iter([("x-a", "1"), ("x-b", "")]);
        assert_eq!(Headers::from_stored(&headers.to_lines()), Some(headers));
        for bad in ["x-a", "x-a:1", "x-a\n", "x-a:1\nx-b\n", "X-a:1\n", "\n"] {
            assert_eq!(Headers::from_stored(bad), None, "{bad}");
        }
    }
}
