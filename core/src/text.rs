//! Cuts texts apart and joins them, byte by byte.
//!
//! Invariant: texts are cut only at ASCII characters, so every part is valid UTF-8.
//!
//! These functions replace those of the standard library, whose searches handle any pattern and whose numbers handle any
//! format: every visitor of a page with the SDK downloads that code.

use std::iter;

/// Makes a function that returns the static copy of a text if it is in the list, so that the text needs no allocation.
#[cfg(feature = "server")]
macro_rules! known {
    ($of:ident: $($known:literal)+) => {
        #[inline(never)]
        fn $of(text: &str) -> Option<&'static str> {
            match text {
                $($known => Some($known),)+
                _ => None,
            }
        }
    };
}

#[cfg(feature = "server")]
pub(crate) use known;

/// The parts before and after the first `at`, which must be ASCII; `None` if there is none.
pub fn cut(text: &str, at: u8) -> Option<(&str, &str)> {
    let index = text.bytes().position(|byte| byte == at)?;
    Some((text.get(..index)?, text.get(index + 1..)?))
}

/// The parts between each `at`, which must be ASCII.
pub fn split(text: &str, at: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let text = rest?;
        let (part, after) = cut(text, at).map_or((text, None), |(part, after)| (part, Some(after)));
        rest = after;
        Some(part)
    })
}

/// The text with each `at`, which must be ASCII, replaced by `by`.
pub fn replaced(text: &str, at: u8, by: &str) -> String {
    let mut parts = split(text, at);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        replaced.push_str(by);
        replaced.push_str(part);
    }
    replaced
}

/// The parts, one after the other.
pub fn joined(parts: &[&str]) -> String {
    let mut text = String::new();
    for part in parts {
        text.push_str(part);
    }
    text
}

/// An integer in decimal digits.
pub fn decimal(integer: i64) -> String {
    let mut text = (if integer < 0 { "-" } else { "" }).to_owned();
    push_digits(&mut text, integer.unsigned_abs());
    text
}

fn push_digits(text: &mut String, number: u64) {
    if number >= 10 {
        push_digits(text, number / 10);
    }
    let digit = (number % 10) as usize;
    text.push_str("0123456789".get(digit..=digit).unwrap_or_default());
}

/// Reads a number of 1 to 15 decimal digits, such as an instant or a number of seconds; `None` for anything else.
pub fn number(digits: &str) -> Option<i64> {
    if !(1..=15).contains(&digits.len()) {
        return None;
    }
    let mut number = 0;
    for byte in digits.bytes() {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(byte - b'0');
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_the_first_occurrence_of_a_character() {
        assert_eq!(cut("h\u{e9}:a:b", b':'), Some(("h\u{e9}", "a:b")));
        assert_eq!(cut(":", b':'), Some(("", "")));
        assert_eq!(cut("h\u{e9}", b':'), None);
    }

    #[test]
    fn a_text_is_split_and_replaced_as_by_the_standard_library() {
        for text in ["", "/", "a", "/a//h\u{e9}/", "\u{e9}/\u{1f600}"] {
            assert_eq!(split(text, b'/').collect::<Vec<_>>(), text.split('/').collect::<Vec<_>>());
            assert_eq!(replaced(text, b'/', "%2F"), text.replace('/', "%2F"));
        }
    }

    #[test]
    fn an_integer_is_written_as_by_the_standard_library() {
        for integer in [i64::MIN, -10, -1, 0, 9, 10, 1_800_000_000_001, i64::MAX] {
            assert_eq!(decimal(integer), integer.to_string());
        }
    }

    #[test]
    fn a_number_has_1_to_15_digits_and_nothing_else() {
        assert_eq!(
            (number("0"), number("007"), number("999999999999999")),
            (Some(0), Some(7), Some(999_999_999_999_999))
        );
        for bad in ["", "1000000000000000", "-1", "+1", " 1", "1.5", "\u{661}"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }
}
