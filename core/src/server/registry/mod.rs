//! The registry of keys: which keys there are, what each last reported of itself, and jobs for all of them.
//!
//! No request of an application asks it: a key reports to it when its own alarm wakes it.
//!
//! - `shard`: the object of one part of the keys, with its part of each job. `listing`: the parts as one list
//! - `forgets`: jobs that all keys have to do, in an object that takes them like any other requests
//!
//! Invariants:
//! - A key belongs to one shard for ever, by a hash. Each shard records the number of shards, and refuses another number.
//! - Objects exchange rows, in the form of SQL, and their host passes these on unchanged. A row that can't be read is an error.
//! - A key that registers while all keys are to forget something, or after that, is told so in the answer.

mod forgets;
mod listing;
mod shard;

pub use crate::server::engine::report::Report;
pub use forgets::{Coordinator, Job};
pub use listing::{Few, Listing, Page, merged};
pub use shard::{Progress, Shard, Tried, Visit};

use crate::message::Method;
use crate::path::Path;
use crate::problem::Problem;
use sha2::{Digest, Sha256};

/// The number of shards. It is fixed: if it changed, every key would have to move.
pub const SHARDS: u8 = 16;

/// What is asked of the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// `GET keys`: all shards answer together.
    Keys(Listing),
    /// `POST forget`, `GET forget/{id}`: the coordinator answers.
    Forget,
}

/// Reads a request to the registry; `None` if it is for something else.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_of_a_key_never_changes_and_keys_spread_over_all_shards() {
        // If these changed, every deployment would lose its keys.
        assert_eq!(["accounts/alice", "a", "caf\u{e9}"].map(shard_of), [9, 10, 5]);
        let counts = (0..1600).fold([0; SHARDS as usize], |mut counts, number| {
            counts[usize::from(shard_of(&format!("accounts/{number}")))] += 1;
            counts
        });
        assert!(counts.iter().all(|count| (60..=150).contains(count)), "{counts:?}");
    }
}
