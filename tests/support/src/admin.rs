//! An administrator's requests to the key under test.

use crate::call::{Call, delete, get, post};
use crate::world::KEY;
use semel_core::id::{Key, Principal};

/// A read. `what` follows the key in the path, with its `/` or `?`. If it is empty, the read shows the key.
pub fn ask(what: &str) -> Call {
    by_administrator(get(&path(what)))
}

/// The deletion of everything at the key.
pub fn delete_key(own: &str) -> Call {
    by_administrator(delete(&path("")).id(own))
}

/// The deletion of an id's record.
pub fn delete_record(own: &str, id: &str) -> Call {
    by_administrator(delete(&path(&format!("/records/{id}"))).id(own))
}

/// Settles a request in doubt. `body` is JSON.
pub fn resolve(own: &str, id: &str, body: &str) -> Call {
    by_administrator(post(&path(&format!("/records/{id}/resolve"))).id(own).body(body))
}

/// A cancellation. `body` is JSON.
pub fn cancel_for(own: &str, body: &str) -> Call {
    by_administrator(post(&path("/cancel")).id(own).body(body))
}

/// Has an effect sent again, dropped or given up.
pub fn mend(own: &str, id: &str, what: &str) -> Call {
    by_administrator(post(&path(&format!("/effects/{id}/{what}"))).id(own))
}

/// The path of an administrator's request.
pub fn path(what: &str) -> String {
    let key = Key::new(KEY).expect("a key").encoded().replace('/', "%2F");
    format!("/semel/v1/admin/keys/{key}{what}")
}

fn by_administrator(call: Call) -> Call {
    call.by(Principal::administrator().as_str())
}
