//! Reads JSON: serde_json makes one kind of tree of any text, and members are taken out of it by name and type.
//!
//! Invariants:
//! - A member that is taken is there once, or it is an error; so is one of another type. `null` is a member that is not there.
//! - An integer is written as one: `1.0` and `1e3` are none.

use crate::text::known;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// What a text says.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent that fits.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(Members),
}

/// The members of an object that are not taken yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Members(Vec<(Name, Json)>);

/// The name of a member. Those of which a frame has hundreds are without memory of their own.
#[derive(Debug, Clone, PartialEq)]
struct Name(Cow<'static, str>);

known! {
    known_name:
    "ack" "body" "deadline" "epoch" "firstSent" "headers" "id" "method" "name" "path" "seq" "session" "until"
}

impl From<&str> for Name {
    fn from(name: &str) -> Self {
        Self(known_name(name).map_or_else(|| Cow::Owned(name.to_owned()), Cow::Borrowed))
    }
}

impl Json {
    /// Reads a whole text. The error may quote it.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }
}

impl Members {
    /// Reads a text that is an object.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        Self::try_from(Json::parse(text)?).map_err(|_| "not a JSON object".to_owned())
    }

    /// Takes a member of any type.
    pub fn any(&mut self, name: &str) -> Result<Option<Json>, String> {
        let mut found = self.0.extract_if(.., |(each, _)| each.0 == name).map(|(_, json)| json);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("duplicate field `{name}`")),
            (json, None) => Ok(json.filter(|json| *json != Json::Null)),
        }
    }

    /// How many there are, `null` too.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Takes a member that may be left out.
    pub fn optional<T: TryFrom<Json, Error = &'static str>>(&mut self, name: &str) -> Result<Option<T>, String> {
        let taken = self.any(name)?.map(T::try_from).transpose();
        taken.map_err(|expected| format!("{name} must be {expected}"))
    }

    /// Takes a member that must be there.
    pub fn required<T: TryFrom<Json, Error = &'static str>>(&mut self, name: &str) -> Result<T, String> {
        self.optional(name)?.ok_or_else(|| format!("missing field `{name}`"))
    }

    /// Takes all, whatever their names.
    pub fn all(self) -> impl Iterator<Item = (String, Json)> {
        self.0.into_iter().map(|(name, json)| (name.0.into_owned(), json))
    }

    /// Makes sure that all were taken.
    pub fn end(self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |(Name(name), _)| Err(format!("unknown field `{name}`")))
    }
}

/// How a value of one type is taken out of the tree.
macro_rules! taken {
    ($($type:ty: $expected:literal, $($variant:pat => $value:expr),+;)+) => {
        $(impl TryFrom<Json> for $type {
            type Error = &'static str;

            fn try_from(json: Json) -> Result<Self, Self::Error> {
                match json {
                    $($variant => Ok($value),)+
                    _ => Err($expected),
                }
            }
        })+
    };
}

taken! {
    String: "a string", Json::Text(text) => text;
    i64: "an integer", Json::Integer(integer) => integer;
    f64: "a number", Json::Integer(integer) => integer as f64, Json::Real(real) => real;
    Vec<Json>: "an array", Json::Array(items) => items;
    Members: "an object", Json::Object(members) => members;
}

impl TryFrom<Json> for Vec<String> {
    type Error = &'static str;

    fn try_from(json: Json) -> Result<Self, Self::Error> {
        let items = Vec::<Json>::try_from(json)?;
        items.into_iter().map(String::try_from).collect::<Result<_, _>>().map_err(|_| "an array of strings")
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Named)
    }
}

struct Named;

impl Visitor<'_> for Named {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Name, E> {
        Ok(name.into())
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Json, E> {
        Ok(Json::Bool(bool))
    }

    fn visit_i64<E>(self, integer: i64) -> Result<Json, E> {
        Ok(Json::Integer(integer))
    }

    fn visit_u64<E>(self, integer: u64) -> Result<Json, E> {
        Ok(i64::try_from(integer).map_or(Json::Real(integer as f64), Json::Integer))
    }

    fn visit_f64<E>(self, real: f64) -> Result<Json, E> {
        Ok(Json::Real(real))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Json::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
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

    fn members(text: &str) -> Members {
        Members::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn members_are_taken_by_name_and_type_and_none_is_left() {
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
    fn what_is_not_there_or_there_twice_or_of_another_type_is_an_error() {
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
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "1", "null", "{", "{} {}", "{\"a\":01}", "{\"a\":\"\u{1}\"}", "{a:1}"] {
            assert!(Members::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Members::parse(&[b'[', 0xff, b']']).is_err());
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
        assert!(Members::parse(deep.as_bytes()).is_err());
    }
}
