//! Templates of paths and keys. `{$id}` stands for the request's id, `{name}` for the path's segment at `:name`,
//! `{body.name}` for a member of a JSON body.
//!
//! Invariant: a name stands for one segment. It is never empty, `.` or `..`, and in a path it is percent-encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use semel_core::server::json::read::{Json, Members};

/// All bytes that `encodeURIComponent` escapes.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Id,
    Captured(String),
    Member(String),
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// The values that a template is filled with.
#[derive(Clone, Copy)]
pub struct From<'a> {
    /// The request's id.
    pub id: &'a str,
    /// The named segments of the path.
    pub captured: &'a [(String, String)],
    /// The request's body.
    pub body: &'a [u8],
}

impl Template {
    /// Reads a template. `captures`: the names in the route's path.
    pub fn parse(text: &str, captures: &[&str]) -> Result<Self, String> {
        // This is how `path` writes a name. Here it would be literal text: all requests would share a key, and a probe
        // would find nothing, so that the request would be executed again.
        if text.starts_with(':') || text.contains("/:") {
            return Err(format!("{text:?}: a name is in braces here, as {{name}}"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, behind)) = rest.split_once('{') {
            let (name, after) = behind.split_once('}').ok_or_else(|| format!("{text:?} has a {{ without }}"))?;
            parts.push(Part::Literal(literal.to_owned()));
            parts.push(match name.strip_prefix("body.") {
                Some(member) if !member.is_empty() => Part::Member(member.to_owned()),
                None if name == "$id" => Part::Id,
                None if captures.contains(&name) => Part::Captured(name.to_owned()),
                _ => return Err(format!("{text:?}: nothing is called {{{name}}}")),
            });
            rest = after;
        }
        parts.push(Part::Literal(rest.to_owned()));
        Ok(Self(parts))
    }

    /// Whether it needs only named segments of the path.
    pub fn is_of_path(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Literal(_) | Part::Captured(_)))
    }

    /// Fills the template; `None` if the request lacks a value. `encode`: whether to percent-encode the values, as a
    /// path needs it.
    pub fn fill(&self, from: From<'_>, encode: bool) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            let value = match part {
                Part::Literal(literal) => {
                    text.push_str(literal);
                    continue;
                }
                Part::Id => from.id.to_owned(),
                Part::Captured(name) => from.captured.iter().find(|(each, _)| each == name)?.1.clone(),
                Part::Member(name) => member(from.body, name)?,
            };
            if matches!(value.as_str(), "" | "." | "..") {
                return None;
            }
            if encode {
                text.extend(utf8_percent_encode(&value, SEGMENT));
            } else {
                text.push_str(&value);
            }
        }
        Some(text)
    }
}

/// A member of a body that is a JSON object: a string, or an integer as it was written.
pub fn member(body: &[u8], name: &str) -> Option<String> {
    match Members::parse(body).ok()?.any(name).ok()?? {
        Json::Text(text) => Some(text.into_owned()),
        Json::Integer(integer) => Some(integer.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, body: &str) -> Option<String> {
        let captured = [("till", "1"), ("shop", "a b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let template = Template::parse(template, &["till", "shop"]).expect("a template");
        template.fill(From { id: "i/d", captured: &captured, body: body.as_bytes() }, true)
    }

    #[test]
    fn each_name_in_a_template_is_filled_with_one_encoded_segment() {
        assert_eq!(filled("/shops/{shop}/orders/{$id}?x=1", ""), Some("/shops/a%20b/orders/i%2Fd?x=1".to_owned()));
        assert_eq!(filled("/orders/{body.ref}", r#"{"ref":"../x"}"#), Some("/orders/..%2Fx".to_owned()));
        // A query or an escape of the client's own would have the probe ask for something else.
        assert_eq!(
            filled("/orders/{body.ref}", r#"{"ref":"a?b&c#%2F"}"#),
            Some("/orders/a%3Fb%26c%23%252F".to_owned())
        );
        assert_eq!(filled("/orders/{body.n}", r#"{"n":7}"#), Some("/orders/7".to_owned()));
        assert_eq!(filled("/orders", ""), Some("/orders".to_owned()));
    }

    #[test]
    fn a_template_is_not_filled_if_the_request_lacks_a_value() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"ref":null}"#,
            r#"{"ref":""}"#,
            r#"{"ref":"."}"#,
            r#"{"ref":".."}"#,
            r#"{"ref":1.5}"#,
            r#"{"ref":{}}"#,
        ] {
            assert_eq!(filled("/orders/{body.ref}", body), None, "{body}");
        }
    }

    #[test]
    fn a_template_with_an_unknown_or_malformed_name_is_refused() {
        for text in ["{", "{id}", "{}", "/a/{nobody}", "{body.}", "/{shop", ":shop", "/shops/:shop/orders"] {
            assert!(Template::parse(text, &["shop"]).is_err(), "{text}");
        }
    }
}
