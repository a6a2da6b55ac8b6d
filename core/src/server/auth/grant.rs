//! What a token allows: its claim `semel`, `{"methods":[...],"keys":[patterns]}`.
//!
//! Invariant: a limit that can't be read makes the token invalid. It is never taken for none.

use super::super::pattern::KeyPattern;
use crate::id::Key;
use crate::message::Method;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

/// What may be asked. What is left out is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    #[serde(default, deserialize_with = "methods", serialize_with = "names")]
    methods: Option<Vec<Method>>,
    keys: Option<Vec<KeyPattern>>,
}

impl Grant {
    /// Whether anything may be asked of a key.
    pub fn allows_key(&self, key: &Key) -> bool {
        self.keys.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(key)))
    }

    /// Whether a request to a key may have this method. Who may `GET` may `HEAD`.
    pub fn allows(&self, method: &Method, key: &Key) -> bool {
        let asked = if *method == Method::Head { &Method::Get } else { method };
        let is_granted = |granted: &Method| granted == method || granted == asked;
        self.allows_key(key) && self.methods.as_ref().is_none_or(|methods| methods.iter().any(is_granted))
    }

    /// Whether any change may be made at a key.
    pub fn allows_some_change(&self, key: &Key) -> bool {
        self.allows_key(key) && self.methods.as_ref().is_none_or(|methods| methods.iter().any(Method::changes))
    }
}

fn methods<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Method>>, D::Error> {
    let Some(names) = Option::<Vec<String>>::deserialize(deserializer)? else { return Ok(None) };
    let method = |name: &String| Some(Method::new(name)).filter(|method| method.changes() || method.reads());
    names.iter().map(method).collect::<Option<_>>().map(Some).ok_or_else(|| D::Error::custom("no method"))
}

fn names<S: Serializer>(methods: &Option<Vec<Method>>, serializer: S) -> Result<S::Ok, S::Error> {
    let names: Option<Vec<&str>> = methods.as_ref().map(|methods| methods.iter().map(Method::as_str).collect());
    names.serialize(serializer)
}
