//! Single structured-field values: strings, integers and dates.
//!
//! Invariants:
//! - The usual forms are parsed here, because the library takes several times as long. The result is what the library would have read.
//! - The SDK parses only strings here: the whole library would be a tenth of the SDK's size.

use crate::id::Invalid;
use crate::text::{cut, joined, replaced};
use sfv::{BareItem, Item, Parser};
#[cfg(feature = "server")]
use sfv::{Date, Integer};
use std::borrow::Cow;

/// Writes a text as a structured-field string.
pub fn quoted(text: &str) -> String {
    // Most texts need no escapes.
    #[cfg(feature = "server")]
    if !text.bytes().any(|byte| matches!(byte, b'"' | b'\\')) {
        return ["\"", text, "\""].concat();
    }
    let escaped = replaced(&replaced(text, b'\\', "\\\\"), b'"', "\\\"");
    joined(&["\"", &escaped, "\""])
}

/// A structured-field date: `@` and Unix seconds.
#[cfg(feature = "server")]
pub fn date(seconds: i64) -> String {
    let mut buffer = itoa::Buffer::new();
    ["@", buffer.format(seconds)].concat()
}

/// The text of a structured-field string without parameters; `None` for anything else.
pub fn unquoted(value: &str) -> Option<String> {
    let mut rest = value.get(1..value.len().checked_sub(1)?)?;
    let mut text = String::new();
    while let Some((before, after)) = cut(rest, b'\\') {
        let (escaped, after) = after.split_at_checked(1)?;
        text.push_str(before);
        text.push_str(escaped);
        rest = after;
    }
    text.push_str(rest);
    // If the value was not a valid string, writing the text again gives another value.
    let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    (is_printable && quoted(&text) == value).then_some(text)
}

/// The text of a structured-field string without escapes; `None` for anything else.
pub fn plain(value: &str) -> Option<&str> {
    let text = value.strip_prefix('"')?.strip_suffix('"')?;
    let is_plain = |byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    text.bytes().all(is_plain).then_some(text)
}

pub(crate) fn string<'a>(header: &str, value: &'a str) -> Result<Cow<'a, str>, Invalid> {
    #[cfg(feature = "server")]
    if let Some(text) = plain(value) {
        return Ok(text.into());
    }
    match bare_item(value) {
        Some(BareItem::String(string)) => Ok(String::from(string).into()),
        _ => Err(Invalid::new(format!(
            "{header}: not a structured-field string: printable ASCII in quotes, and nothing else"
        ))),
    }
}

/// Reads an integer, or with a leading `@` a date (`true`), of 1 to 15 digits. `None`: the library has to read the value.
#[cfg(feature = "server")]
fn plain_number(value: &str) -> Option<(bool, Integer)> {
    let digits = value.strip_prefix('@').unwrap_or(value);
    let is_number = (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = digits.parse().ok().filter(|_| is_number)?;
    Some((digits.len() < value.len(), number.try_into().ok()?))
}

/// Reads a value without parameters; `None` for anything else. The caller says in its error how the value must be written.
pub(crate) fn bare_item(value: &str) -> Option<BareItem> {
    #[cfg(feature = "server")]
    if let Some((is_date, number)) = plain_number(value) {
        return Some(if is_date { BareItem::Date(Date::from_unix_seconds(number)) } else { BareItem::Integer(number) });
    }
    let item: Item = Parser::new(value).parse().ok()?;
    item.params.is_empty().then_some(item.bare_item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_string_is_read_back_and_a_malformed_one_is_refused() {
        for text in ["a\"b\\c", "", "a b"] {
            assert_eq!(string("Test", &quoted(text)), Ok(text.into()));
            assert_eq!(unquoted(&quoted(text)), Some(text.to_owned()));
        }
        for bad in ["", "\"", "a", "\"a", "\"a\"b\"", "\"\\a\"", "\"\\\"", "\"\u{e9}\"", "\"a\";p=1"] {
            assert_eq!(unquoted(bad), None, "{bad}");
            assert!(string("Test", bad).is_err(), "{bad}");
        }
    }

    #[cfg(feature = "server")]
    fn read_by_library(value: &str) -> Option<BareItem> {
        let read: Option<Item> = Parser::new(value).parse().ok();
        read.filter(|item| item.params.is_empty()).map(|item| item.bare_item)
    }

    #[cfg(feature = "server")]
    #[test]
    fn a_number_or_date_is_parsed_as_by_the_library() {
        let all = [
            "0",
            "5",
            "007",
            "999999999999999",
            "1000000000000000",
            "0000000000000001",
            "-1",
            "+1",
            "1.5",
            "",
            "@",
            "@0",
            "@5",
            "@007",
            "@999999999999999",
            "@1000000000000000",
            "@-1",
            "@+1",
            "@1.5",
            "@@1",
            "5 ",
            " 5",
            "5;a",
            "@5;a",
            "5, 6",
            "\u{665}",
            "0x5",
            "1e3",
            "@ 5",
            "5@",
        ];
        for value in all {
            assert_eq!(bare_item(value), read_by_library(value), "{value}");
        }
        assert!(plain_number("5").is_some() && plain_number("@5").is_some());
    }

    #[cfg(feature = "server")]
    #[test]
    fn a_string_is_parsed_as_by_the_library() {
        let all = [
            "\"a\"",
            "\"\"",
            "\"a b~\"",
            "\"a\\\"b\"",
            "\"\\\\\"",
            "\"a\\\"",
            "\"",
            "",
            "\"a\" ",
            " \"a\"",
            "\"a\"b\"",
            "\"a\";x=\"\"",
            "\"a",
            "a\"",
            "a",
            "\"\u{e9}\"",
            "\"\u{7f}\"",
            "\"\t\"",
            ":YQ==:",
            "\"a\\nb\"",
        ];
        for value in all {
            let read = read_by_library(value).and_then(|item| match item {
                BareItem::String(text) => Some(String::from(text)),
                _ => None,
            });
            assert_eq!(string("X", value).ok().map(Cow::into_owned), read, "{value}");
        }
    }
}
