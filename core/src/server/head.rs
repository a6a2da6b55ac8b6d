//! Limits for the path and the headers of a request. Runtimes have their own limits, which differ; these are the same everywhere.
//!
//! Invariant: this check comes before any other, so nothing after it works on more than these limits.

use crate::message::Headers;
use crate::problem::{Code, Problem};

/// The longest path with its query, in bytes.
pub const URL_BYTES_MAX: usize = 8 << 10;
/// The most headers of a request.
pub const HEADERS_MAX: usize = 100;
/// The longest headers of a request, names and values together, in bytes.
pub const HEADER_BYTES_MAX: usize = 32 << 10;

/// Refuses a request whose path or headers are too large.
pub fn check((pathname, search): (&str, &str), headers: &Headers) -> Result<(), Problem> {
    let too_large = |what: &str, is: usize, max: usize, unit: &str| {
        Problem::new(Code::TooLarge, format!("{what} has {is} {unit}; the limit is {max}"))
    };
    let url_bytes = pathname.len() + search.len();
    if url_bytes > URL_BYTES_MAX {
        return Err(too_large("the path with its query", url_bytes, URL_BYTES_MAX, "bytes"));
    }
    let count = headers.iter().count();
    if count > HEADERS_MAX {
        return Err(too_large("the request", count, HEADERS_MAX, "headers"));
    }
    let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > HEADER_BYTES_MAX {
        return Err(too_large("the head", bytes, HEADER_BYTES_MAX, "bytes of headers"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_at_its_limits_is_accepted_and_a_larger_one_is_too_large() {
        let code = |url: (&str, &str), headers: &Headers| check(url, headers).err().map(|problem| problem.code);
        let path = "x".repeat(URL_BYTES_MAX - 2);
        assert_eq!(code((&path, "?a"), &Headers::new()), None);
        assert_eq!(code((&path, "?ab"), &Headers::new()), Some(Code::TooLarge));
        let many = |count| Headers::from_iter((0..count).map(|_| ("x", "")));
        assert_eq!(code(("/", ""), &many(HEADERS_MAX)), None);
        assert_eq!(code(("/", ""), &many(HEADERS_MAX + 1)), Some(Code::TooLarge));
        let large = |bytes: usize| Headers::from_iter([("x", "y".repeat(bytes - 1))]);
        assert_eq!(code(("/", ""), &large(HEADER_BYTES_MAX)), None);
        assert_eq!(code(("/", ""), &large(HEADER_BYTES_MAX + 1)), Some(Code::TooLarge));
    }
}
