//! The path of a request, as `new URL(request.url)` gives it, and its segments for the key rule.
//!
//! Invariants:
//! - Every segment of a [`Path`] is decoded once, is not empty and holds no control characters.
//! - No segment of an application's path is `.` or `..`, or holds a slash or backslash. In a control path, a segment is a
//!   whole key or id, and may.

use crate::id::{Invalid, percent_decoded};
use std::borrow::Cow;
use std::sync::Arc;

/// The prefix of the protocol's paths. All other paths are the application's.
const CONTROL_PREFIX: &str = "/semel/";

/// A checked path. Cloning it copies nothing: most requests of a batch share one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(Arc<Checked>);

#[derive(Debug, PartialEq, Eq)]
struct Checked {
    with_query: String,
    /// The decoded segments, with [`BETWEEN`] between them.
    segments: String,
    is_control: bool,
}

/// No segment has one. So all of them are one text, which costs one allocation, and not one for each.
const BETWEEN: char = '\0';

impl Path {
    /// Takes `pathname` and `search` of a URL (`search` with its `?`, or empty).
    pub fn new(pathname: &str, search: &str) -> Result<Self, Invalid> {
        let Some(rest) = pathname.strip_prefix('/') else {
            return Err(Invalid::new("a path begins with /"));
        };
        let is_control = Self::begins_control(pathname);
        let mut segments = String::with_capacity(rest.len());
        // The root has no segments. In any other path, two adjacent slashes, or a slash at the end, make an empty segment.
        if !rest.is_empty() {
            for raw in rest.split('/') {
                // Nearly no segment has an escape.
                let decoded = if raw.contains('%') { Cow::from(percent_decoded(raw)?) } else { raw.into() };
                check(&decoded)?;
                // In a control path, a segment is a whole key or id.
                if !is_control {
                    check_unambiguous(&decoded)?;
                }
                if !segments.is_empty() {
                    segments.push(BETWEEN);
                }
                segments.push_str(&decoded);
            }
        }
        Ok(Self(Arc::new(Checked { with_query: [pathname, search].concat(), segments, is_control })))
    }

    /// Whether a path that is not checked yet is one of the protocol's.
    pub fn begins_control(pathname: &str) -> bool {
        pathname.starts_with(CONTROL_PREFIX)
    }

    /// Whether it was made from this `pathname` and `search`.
    #[cfg(feature = "server")]
    pub fn is(&self, pathname: &str, search: &str) -> bool {
        self.0.with_query.strip_prefix(pathname) == Some(search)
    }

    /// Whether it is one of the protocol's paths.
    pub fn is_control(&self) -> bool {
        self.0.is_control
    }

    /// The path as sent, with its query: what the fingerprint covers.
    pub fn with_query(&self) -> &str {
        &self.0.with_query
    }

    /// The decoded segments, to match on.
    pub fn segments(&self) -> Vec<&str> {
        // Without this, the root would have one segment, which is empty.
        self.0.segments.split(BETWEEN).filter(|segment| !segment.is_empty()).collect()
    }

    /// The decoded segments, joined with `/`: the key of a path that no rule names.
    pub fn joined(&self) -> String {
        self.0.segments.replace(BETWEEN, "/")
    }
}

fn check(segment: &str) -> Result<(), Invalid> {
    if segment.is_empty() {
        return Err(Invalid::new("the path has an empty segment"));
    }
    if segment.chars().any(char::is_control) {
        return Err(Invalid::new("a path segment decodes to something with control characters"));
    }
    Ok(())
}

fn check_unambiguous(segment: &str) -> Result<(), Invalid> {
    if segment == "." || segment == ".." {
        return Err(Invalid::new("a path segment decodes to . or .."));
    }
    if segment.contains(['/', '\\']) {
        return Err(Invalid::new("a path segment decodes to something with / or \\"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segments_of_a_path_are_decoded_once_and_its_query_is_kept_as_sent() {
        let path = Path::new("/accounts/h%C3%A9%2541/deposit", "?a=%20b");
        assert_eq!(path.as_ref().map(Path::segments), Ok(vec!["accounts", "h\u{e9}%41", "deposit"]));
        assert_eq!(path.as_ref().map(Path::with_query), Ok("/accounts/h%C3%A9%2541/deposit?a=%20b"));
        assert_eq!(Path::new("/", "").map(|path| path.segments().len()), Ok(0));
    }

    #[test]
    fn a_segment_of_a_control_path_holds_a_whole_key() {
        let path = Path::new("/semel/v1/keys/accounts%2Falice/acks", "");
        assert_eq!(path.as_ref().map(Path::segments), Ok(vec!["semel", "v1", "keys", "accounts/alice", "acks"]));
        assert_eq!(path.map(|path| path.is_control()), Ok(true));
        assert!(Path::new("/semel/v1/keys/%00/acks", "").is_err());
    }

    #[test]
    fn an_ambiguous_path_is_refused() {
        for bad in [
            "",
            "a",
            "//",
            "/a//b",
            "/a/",
            "/%00",
            "/%ff",
            "/%zz",
            "/a/..%2f..",
            "/%2e%2e",
            "/%2E",
            "/a%5cb",
            "/a%0ab",
            "/%7f",
        ] {
            assert!(Path::new(bad, "").is_err(), "{bad}");
        }
    }
}
