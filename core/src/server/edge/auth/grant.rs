//! What a token allows, from its claim `semel`: `{"methods":[...],"keys":[patterns]}`.
//!
//! Invariant: a limit that can't be read makes the token invalid, and never counts as no limit. The same holds for
//! `null`, which some issuers write for an empty list.

use crate::id::Key;
use crate::message::Method;
use crate::server::config::pattern::KeyPattern;
use crate::server::json::read::Members;
use crate::server::json::write::{Object, Written, array};

/// What a token allows. A limit that is left out does not apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    methods: Option<Vec<Method>>,
    keys: Option<Vec<KeyPattern>>,
}

impl Grant {
    pub(super) fn read(mut members: Members) -> Result<Self, String> {
        let count = members.count();
        let method = |name: String| {
            let method = Some(Method::new(&name)).filter(|method| method.changes() || method.reads());
            method.ok_or("no method")
        };
        let methods: Option<Vec<String>> = members.optional("methods")?;
        let keys: Option<Vec<String>> = members.optional("keys")?;
        if usize::from(methods.is_some()) + usize::from(keys.is_some()) != count {
            return Err("a limit is unknown, or null".to_owned());
        }
        Ok(Self { methods: each(methods, method)?, keys: each(keys, KeyPattern::try_from)? })
    }

    /// Writes the limits for [`Grant::read`].
    pub(super) fn written(&self) -> Written {
        let methods = self.methods.as_ref().map(|methods| array(methods.iter().map(Method::as_str)));
        let keys = self.keys.as_ref().map(|keys| array(keys.iter().map(KeyPattern::as_str)));
        Object::default().with_some("methods", methods).with_some("keys", keys).end()
    }

    /// Whether the key may be asked at all.
    pub fn allows_key(&self, key: &Key) -> bool {
        self.keys.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(key)))
    }

    /// Whether a request to a key may have this method. `HEAD` is allowed with `GET`.
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

fn each<T>(
    names: Option<Vec<String>>,
    read: impl Fn(String) -> Result<T, &'static str>,
) -> Result<Option<Vec<T>>, &'static str> {
    names.map(|names| names.into_iter().map(read).collect()).transpose()
}
