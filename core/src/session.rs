//! Sessions as they are named on the wire: a named client at a key, the epoch of its current holder, and the contiguous
//! number of each request.
//!
//! Invariants:
//! - An epoch or a number is from 1 to [`NUMBER_MAX`], the largest structured-field integer. JSON bodies have the same limit.
//! - An acknowledgement is below the number that it comes with: a request does not acknowledge itself.

use crate::id::{Invalid, REQUEST_ID_CHARS_MAX};
use sfv::{BareItem, Item, Parser};

/// The longest name of a session, in characters.
pub const SESSION_NAME_CHARS_MAX: usize = REQUEST_ID_CHARS_MAX;
/// The largest epoch or number: structured fields have 15 digits.
pub const NUMBER_MAX: i64 = 999_999_999_999_999;

/// Names a session at a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionName(String);

impl SessionName {
    /// Checks the length, and that a structured-field string can hold the characters.
    pub fn new(name: impl Into<String>) -> Result<Self, Invalid> {
        let name = name.into();
        if name.is_empty() || name.len() > SESSION_NAME_CHARS_MAX {
            return Err(Invalid::new(format!("the name of a session has 1 to {SESSION_NAME_CHARS_MAX} characters")));
        }
        if !name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            return Err(Invalid::new("the name of a session has printable ASCII characters only"));
        }
        Ok(Self(name))
    }

    /// Whether the name is reserved for the sessions in which keys send to other keys.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with("semel:")
    }

    /// The name, unquoted.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A place in a session, which names a request there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The session.
    pub session: SessionName,
    /// The epoch of the holder who sends it.
    pub epoch: i64,
    /// The number of the request.
    pub seq: i64,
}

impl Place {
    /// Checks the epoch and the number.
    pub fn new(session: SessionName, epoch: i64, seq: i64) -> Result<Self, Invalid> {
        for (name, number) in [("epoch", epoch), ("seq", seq)] {
            if !(1..=NUMBER_MAX).contains(&number) {
                return Err(Invalid::new(format!("{name}: not an integer from 1 to {NUMBER_MAX}")));
            }
        }
        Ok(Self { session, epoch, seq })
    }
}

/// What `Semel-Session` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    /// The place of the request.
    pub place: Place,
    /// All places up to this one are acknowledged; 0 means none.
    pub ack: i64,
}

/// The reason that a malformed value is refused with.
const FORM: &str = "not as \"name\";epoch=1;seq=1;ack=0";

impl Numbered {
    /// Reads `"name";epoch=N;seq=N;ack=N`. `ack` may be missing.
    pub fn parse(value: &str) -> Result<Self, Invalid> {
        let invalid = |reason: &str| Invalid::new(format!("Semel-Session: {reason}"));
        let item: Item = Parser::new(value).parse().map_err(|_| invalid(FORM))?;
        let BareItem::String(name) = item.bare_item else { return Err(invalid(FORM)) };
        let (mut epoch, mut seq, mut ack) = (None, None, None);
        for (name, value) in item.params {
            let number = match value {
                BareItem::Integer(number) => i64::from(number),
                _ => return Err(invalid(FORM)),
            };
            match name.as_str() {
                "epoch" => epoch = Some(number),
                "seq" => seq = Some(number),
                "ack" => ack = Some(number),
                _ => return Err(invalid(FORM)),
            }
        }
        let (Some(epoch), Some(seq)) = (epoch, seq) else { return Err(invalid(FORM)) };
        let named = SessionName::new(String::from(name)).and_then(|session| Place::new(session, epoch, seq));
        let place = named.map_err(|Invalid(reason)| invalid(&reason))?;
        let ack = ack.unwrap_or(0);
        if !(0..place.seq).contains(&ack) {
            return Err(invalid("ack: not an integer from 0 to below seq"));
        }
        Ok(Self { place, ack })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_session_has_1_to_255_printable_characters() {
        let is_name = |name: &str| SessionName::new(name).is_ok();
        assert!(is_name(" ~") && is_name(&"a".repeat(255)));
        for other in ["", &"a".repeat(256), "a\x1f", "a\x7f", "a\u{e9}"] {
            assert!(!is_name(other), "{other:?}");
        }
    }

    #[test]
    fn a_place_of_a_body_has_an_epoch_and_a_number_of_at_most_15_digits() {
        let is_place = |epoch, seq| Place::new(SessionName("a".to_owned()), epoch, seq).is_ok();
        assert!(is_place(1, 1) && is_place(NUMBER_MAX, NUMBER_MAX));
        for (epoch, seq) in [(0, 1), (1, 0), (NUMBER_MAX + 1, 1), (1, NUMBER_MAX + 1)] {
            assert!(!is_place(epoch, seq), "{epoch} {seq}");
        }
    }

    #[test]
    fn a_place_has_a_name_epoch_seq_and_an_optional_ack_below_its_seq() {
        let parse = |value: &str| {
            let Numbered { place: Place { session, epoch, seq }, ack } = Numbered::parse(value).ok()?;
            Some((session.as_str().to_owned(), epoch, seq, ack))
        };
        assert_eq!(parse("\"a\";epoch=2;seq=5;ack=4"), Some(("a".to_owned(), 2, 5, 4)));
        assert_eq!(parse("\"a b\";seq=1;epoch=1"), Some(("a b".to_owned(), 1, 1, 0)));
        assert_eq!(parse("\"a\";epoch=1;seq=1;ack=0"), Some(("a".to_owned(), 1, 1, 0)));
        let most = format!("\"a\";epoch={NUMBER_MAX};seq={NUMBER_MAX};ack={}", NUMBER_MAX - 1);
        assert_eq!(parse(&most), Some(("a".to_owned(), NUMBER_MAX, NUMBER_MAX, NUMBER_MAX - 1)));
        let long = format!("\"{}\";epoch=1;seq=1", "x".repeat(256));
        for bad in [
            "",
            "\"a\"",
            "\"a\";epoch=1",
            "\"a\";seq=1",
            "a;epoch=1;seq=1",
            "\"\";epoch=1;seq=1",
            "\"a\";epoch=0;seq=1",
            "\"a\";epoch=1;seq=0",
            "\"a\";epoch=1;seq=-1",
            "\"a\";epoch=1;seq=1;ack=1",
            "\"a\";epoch=1;seq=1;ack=-1",
            "\"a\";epoch=1;seq=1.0",
            "\"a\";epoch=1;seq=1;ack",
            "\"a\";epoch=1;seq=1;x=1",
            "\"a\";epoch=1;seq=1000000000000000",
            "\"a\";epoch=1;seq=1, \"a\";epoch=1;seq=1",
            &long,
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
