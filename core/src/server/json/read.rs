//! Reads JSON. serde_json parses any text into one kind of tree; callers then take members out of it by name and type.
//!
//! Invariants:
//! - Taking a member fails if it occurs twice or has another type. A member that is `null` counts as absent.
//! - An integer must be written as one: `1.0` and `1e3` are not integers.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent that fits into 64 bits.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// A string. It borrows from the text if nothing in it is escaped.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object.
    Object(Members<'a>),
}

/// The members of an object that are not taken yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Members<'a>(Vec<(Name<'a>, Json<'a>)>);

/// The name of a member.
#[derive(Debug, Clone, PartialEq)]
struct Name<'a>(Cow<'a, str>);

impl<'a> Json<'a> {
    /// Reads a whole text. The error may quote the text.
    pub fn parse(text: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }
}

impl<'a> Members<'a> {
    /// Reads a text that must be an object.
    pub fn parse(text: &'a [u8]) -> Result<Self, String> {
        Self::try_from(Json::parse(text)?).map_err(|_| "not a JSON object".to_owned())
    }

    /// Takes a member of any type; `None` if it is absent or `null`.
    pub fn any(&mut self, name: &str) -> Result<Option<Json<'a>>, String> {
        let mut found = self.0.extract_if(.., |(each, _)| each.0 == name).map(|(_, json)| json);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("duplicate field `{name}`")),
            (json, None) => Ok(json.filter(|json| *json != Json::Null)),
        }
    }

    /// How many members are left, including those that are `null`.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Takes a member that may be absent.
    pub fn optional<T: TryFrom<Json<'a>, Error = &'static str>>(&mut self, name: &str) -> Result<Option<T>, String> {
        let taken = self.any(name)?.map(T::try_from).transpose();
        taken.map_err(|expected| format!("{name} must be {expected}"))
    }

    /// Takes a member that must be there.
    pub fn required<T: TryFrom<Json<'a>, Error = &'static str>>(&mut self, name: &str) -> Result<T, String> {
        self.optional(name)?.ok_or_else(|| format!("missing field `{name}`"))
    }

    /// Takes all members, whatever their names.
    pub fn all(self) -> impl Iterator<Item = (Cow<'a, str>, Json<'a>)> {
        self.0.into_iter().map(|(name, json)| (name.0, json))
    }

    /// Fails if any member was not taken.
    pub fn end(self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |(Name(name), _)| Err(format!("unknown field `{name}`")))
    }
}

/// Says how a value of each type is taken out of the tree.
macro_rules! taken {
    ($($type:ty: $expected:literal, $($variant:pat => $value:expr),+;)+) => {
        $(impl<'a> TryFrom<Json<'a>> for $type {
            type Error = &'static str;

            fn try_from(json: Json<'a>) -> Result<Self, Self::Error> {
                match json {
                    $($variant => Ok($value),)+
                    _ => Err($expected),
                }
            }
        })+
    };
}

taken! {
    String: "a string", Json::Text(text) => text.into_owned();
    Cow<'a, str>: "a string", Json::Text(text) => text;
    i64: "an integer", Json::Integer(integer) => integer;
    f64: "a number", Json::Integer(integer) => integer as f64, Json::Real(real) => real;
    Vec<Json<'a>>: "an array", Json::Array(items) => items;
    Members<'a>: "an object", Json::Object(members) => members;
}

impl<'a> TryFrom<Json<'a>> for Vec<String> {
    type Error = &'static str;

    fn try_from(json: Json<'a>) -> Result<Self, Self::Error> {
        let items = Vec::<Json>::try_from(json)?;
        items.into_iter().map(String::try_from).collect::<Result<_, _>>().map_err(|_| "an array of strings")
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Named)
    }
}

struct Named;

impl<'de> Visitor<'de> for Named {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(bool))
    }

    fn visit_i64<E>(self, integer: i64) -> Result<Json<'de>, E> {
        Ok(Json::Integer(integer))
    }

    fn visit_u64<E>(self, integer: u64) -> Result<Json<'de>, E> {
        Ok(i64::try_from(integer).map_or(Json::Real(integer as f64), Json::Integer))
    }

    fn visit_f64<E>(self, real: f64) -> Result<Json<'de>, E> {
        Ok(Json::Real(real))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Json::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json<'de>, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = members.next_entry()? {
            all.push(member);
        }
        Ok(Json::Object(Members(all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Members<'_> {
        Members::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn members_are_taken_by_name_and_type_and_a_remaining_one_is_an_error() {
        let mut all = members(r#"{"a":"x\n","b":-7,"c":1.5,"d":["y"],"e":null,"f":{"g":3}}"#);
        assert_eq!(all.required("a"), Ok("x\n".to_owned()));
        assert_eq!(all.required("b"), Ok(-7_i64));
        assert_eq!(all.required("c"), Ok(1.5));
        assert_eq!(all.required("d"), Ok(vec!["y".to_owned()]));
        assert_eq!(all.optional::<i64>("e"), Ok(None));
        assert_eq!(all.clone().end(), Err("unknown field `f`".to_owned()));
        assert_eq!(all.required::<Members>("f").and_then(|mut inner| inner.required("g")), Ok(3.0));
        assert_eq!(all.end(), Ok(()));
    }

    #[test]
    fn a_member_that_is_missing_or_duplicate_or_of_another_type_is_an_error() {
        assert_eq!(members("{}").required::<i64>("a"), Err("missing field `a`".to_owned()));
        assert_eq!(members("{\"a\":null}").required::<i64>("a"), Err("missing field `a`".to_owned()));
        assert_eq!(members("{\"a\":1,\"b\":2,\"a\":1}").any("a"), Err("duplicate field `a`".to_owned()));
        assert_eq!(
            members("{\"a\":[1]}").required::<Vec<String>>("a"),
            Err("a must be an array of strings".to_owned())
        );
        for number in ["1.0", "1e3", "-0", "9223372036854775808", "\"1\"", "true"] {
            let taken = members(&format!("{{\"a\":{number}}}")).optional::<i64>("a");
            assert_eq!(taken, Err("a must be an integer".to_owned()), "{number}");
        }
    }

    #[test]
    fn text_that_is_not_a_json_object_is_refused() {
        for text in ["", "[]", "1", "null", "{", "{} {}", "{\"a\":01}", "{\"a\":\"\u{1}\"}", "{a:1}"] {
            assert!(Members::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Members::parse(&[b'[', 0xff, b']']).is_err());
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
        assert!(Members::parse(deep.as_bytes()).is_err());
    }
}
