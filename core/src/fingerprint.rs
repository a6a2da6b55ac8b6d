//! The fingerprint, which tells whether two attempts of an id are the same request.
//!
//! Invariant: two requests have the same fingerprint only if all parts that it covers are equal. The length of each part
//! is hashed before the part, so that no byte can move from one part into the next.

use crate::message::Request;
use sha2::{Digest, Sha256};

/// SHA-256 over method, path with query, content type, content encoding and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a request.
    pub fn of(request: &Request) -> Self {
        let content_type = request.headers.combined("content-type").map(|value| normalised(&value)).unwrap_or_default();
        let encoding = request.headers.combined("content-encoding").unwrap_or_default();
        let parts = [
            request.method.as_str().as_bytes(),
            request.path.with_query().as_bytes(),
            content_type.as_bytes(),
            encoding.as_bytes(),
            &request.body,
        ];
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Takes the bytes that [`Fingerprint::as_bytes`] gave; `None` if they are not 32.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Lower-cases type and subtype, which are case-insensitive. Parameters stay as sent, because some, such as a boundary, are case-sensitive.
fn normalised(content_type: &str) -> String {
    let (essence, parameters) = match content_type.find(';') {
        Some(at) => content_type.split_at(at),
        None => (content_type, ""),
    };
    format!("{}{parameters}", essence.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Headers, Method};
    use crate::path::Path;

    fn fingerprint(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Fingerprint {
        let (pathname, query) = path.split_at(path.find('?').unwrap_or(path.len()));
        let Ok(path) = Path::new(pathname, query) else { return Fingerprint([0; 32]) };
        let headers = headers.iter().copied().collect::<Headers>();
        Fingerprint::of(&Request { method: Method::new(method), path, headers, body: body.into() })
    }

    #[test]
    fn every_covered_part_of_a_request_changes_the_fingerprint() {
        let base =
            fingerprint("POST", "/a?b=1", &[("content-type", "text/plain; x=Y"), ("content-encoding", "gzip")], "body");
        let others = [
            fingerprint("PUT", "/a?b=1", &[("content-type", "text/plain; x=Y"), ("content-encoding", "gzip")], "body"),
            fingerprint("POST", "/a?b=2", &[("content-type", "text/plain; x=Y"), ("content-encoding", "gzip")], "body"),
            fingerprint("POST", "/a", &[("content-type", "text/plain; x=Y"), ("content-encoding", "gzip")], "body"),
            fingerprint("POST", "/a?b=1", &[("content-type", "text/html; x=Y"), ("content-encoding", "gzip")], "body"),
            fingerprint("POST", "/a?b=1", &[("content-type", "text/plain; x=y"), ("content-encoding", "gzip")], "body"),
            fingerprint("POST", "/a?b=1", &[("content-type", "text/plain; x=Y")], "body"),
            fingerprint("POST", "/a?b=1", &[("content-type", "text/plain; x=Y"), ("content-encoding", "gzip")], "bodY"),
        ];
        for other in others {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn other_headers_and_the_case_of_the_media_type_do_not_change_the_fingerprint() {
        assert_eq!(
            fingerprint("POST", "/a", &[("content-type", "Text/Plain; x=Y"), ("user-agent", "one")], "body"),
            fingerprint("POST", "/a", &[("content-type", "text/plain; x=Y"), ("user-agent", "two")], "body"),
        );
    }

    #[test]
    fn a_second_line_of_a_covered_header_changes_the_fingerprint() {
        let gzip = ("content-encoding", "gzip");
        assert_ne!(fingerprint("POST", "/a", &[gzip], ""), fingerprint("POST", "/a", &[gzip, gzip], ""));
    }

    #[test]
    fn bytes_that_move_from_one_part_into_the_next_change_the_fingerprint() {
        assert_ne!(
            fingerprint("POST", "/a", &[("content-type", "x")], "yz"),
            fingerprint("POST", "/a", &[("content-type", "xy")], "z"),
        );
    }
}
