//! Tools of the native tests: the real engine on real SQLite, one key at a time.
//!
//! - [`database`]: SQLite in a file, which can die before any statement
//! - [`call`]: a request that a test sends as often as it likes
//! - [`batches`]: batches and frames
//! - [`admin`]: an administrator's requests
//! - [`session`]: requests of a session
//! - [`reply`]: an answer, checked for what every answer must have
//! - [`world`]: one key with its clock, engine and database
//! - [`retained`]: a world with a short retention; [`idle`]: one with sessions
//! - [`packed`]: keys with packed tombstones
//! - [`chores`]: what the host does with the object without a request
//! - [`token`]: valid and forged tokens
//! - [`crashes`]: crashes between any two statements of a request
//! - [`bank`]: a handler that sends requests to other keys
//! - [`carrying`]: carries those requests to the other keys
//! - [`elsewhere`]: a handler whose requests are executed elsewhere
//! - [`counter`]: a handler whose effects can be counted, and that fails when told to
//!
//! Invariants:
//! - There is no wall clock and no sleeping: time passes when a test says so.
//! - A test sees what is committed, never what is in memory or in an open transaction.

pub mod admin;
pub mod bank;
pub mod batches;
pub mod call;
pub mod carrying;
pub mod chores;
pub mod counter;
pub mod crashes;
pub mod database;
pub mod elsewhere;
pub mod idle;
pub mod packed;
pub mod registry;
pub mod reply;
pub mod retained;
pub mod session;
pub mod token;
pub mod world;

pub use bank::Bank;
pub use call::{Call, acknowledge, cancel, delete, get, head, look_up, patch, post, put};
pub use counter::{Counter, Trouble};
pub use database::{Database, RECORDS};
pub use reply::Reply;
pub use session::{SESSION, cancel_place, numbered, numbered_of, take_over, take_over_after, take_over_with};
pub use token::{Signer, claims};
pub use world::{KEY, START_MS, START_S, World};

/// The `n`th UUID of a sequence that looks random, and is the same in each run.
pub fn uuid(n: i64) -> String {
    let mix = |seed: u64| {
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let (a, b) = (mix(n as u64 * 2 + 1), mix(n as u64 * 2 + 2));
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}
