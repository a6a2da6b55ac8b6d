//! The registry of keys: which there are, and what each last told of itself; and what is asked of all of them at once.
//!
//! It is off the way of a request: a key tells it by its own alarm, and it is never asked by one.
//!
//! - `shard`: one part of the keys, in an object of its own, and its part of a job. `listing`: the parts as one list
//! - `forgets`: jobs that all keys have to do, in an object that takes them as requests like any other
//!
//! Invariants:
//! - A key belongs to one shard, by a hash, for ever: the number of shards is recorded in each, and another is refused.
//! - A key that registers while all are to forget, or after it, is told so in the answer.

mod forgets;
mod listing;
mod shard;

pub use forgets::{Coordinator, Job};
pub use listing::{Listing, merged};
pub use shard::{Progress, Shard, Tried, Visit};

use super::control::json_object;
use crate::id::Invalid;
use crate::message::Method;
use crate::path::Path;
use crate::problem::Problem;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// How many shards there are. Fixed: each key would have to move if it changed.
pub const SHARDS: u8 = 16;

/// What a key tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The key, decoded.
    pub key: String,
    /// Its clock, in Unix ms.
    pub at: i64,
    /// Its unacknowledged records.
    pub records: i64,
    /// Its tombstones and cancelled ids.
    pub tombstones: i64,
    /// The size of its database.
    pub bytes: i64,
    /// When its oldest row was last changed, in Unix ms.
    pub oldest: Option<i64>,
    /// Whether it is to be listed; else it is taken out.
    pub is_listed: bool,
    /// As of which change of the key: for itself, to know what it has told.
    pub changes: u64,
}

/// What a report is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Told {
    /// What was first sent before this is to be forgotten, in Unix s.
    pub before: i64,
}

/// What is asked of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// `GET keys`: the shards answer together.
    Keys(Listing),
    /// `POST forget`, `GET forget/{id}`: the coordinator answers.
    Forget,
}

/// Reads a request to the registry; `None` if it is none.
pub fn parse(method: &Method, path: &Path) -> Result<Option<Asked>, Problem> {
    if !path.is_control() {
        return Ok(None);
    }
    let segments = path.segments();
    let ["semel", "v1", "admin", rest @ ..] = segments.as_slice() else { return Ok(None) };
    Ok(match (method, rest) {
        (Method::Get | Method::Head, ["keys"]) => Some(Asked::Keys(Listing::parse(path.with_query())?)),
        (Method::Post, ["forget"]) | (Method::Get | Method::Head, ["forget", _]) => Some(Asked::Forget),
        _ => None,
    })
}

/// The shard of a key.
pub fn shard_of(key: &str) -> u8 {
    Sha256::digest(key.as_bytes()).first().map_or(0, |byte| byte % SHARDS)
}

/// Reads what another object sent as JSON.
pub fn received<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Invalid> {
    json_object(text.as_bytes())
        .map_err(|error| Invalid(format!("another object of the worker is of another build: {error}")))
}

/// Writes what goes to another object. These types can't fail to be written; what would come of it is refused where it is read.
pub fn sent<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_in_its_shard() {
        // Were these to change, every deployment would lose its keys.
        assert_eq!(["accounts/alice", "a", "caf\u{e9}"].map(shard_of), [9, 10, 5]);
        let counts = (0..1600).fold([0; SHARDS as usize], |mut counts, number| {
            counts[usize::from(shard_of(&format!("accounts/{number}")))] += 1;
            counts
        });
        assert!(counts.iter().all(|count| (60..=150).contains(count)), "{counts:?}");
    }
}
