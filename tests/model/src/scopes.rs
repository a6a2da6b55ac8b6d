//! The scopes of the letters: small worlds, each around some of the rules.
//!
//! Invariant: no scope checks what Semel doesn't promise. The last instant lies within two retentions of the first.

use crate::ledger::Mood;
use crate::letters::{Letter, Scope};
use crate::oracle::{ADMINISTRATOR, Aim};
use crate::properties::Sometimes;
use crate::session_scopes;
use semel_core::server::Config;

/// The retention, in s, in scopes that depend on it.
const RETENTION_S: i64 = 1_000;
const PRINCIPALS: (&str, &str) = ("ann", "bob");

fn config() -> Config {
    Config { retention_s: RETENTION_S, open: true, ..Config::default() }
}

/// All scopes of letters.
pub fn all() -> Vec<Scope> {
    let mut all = vec![
        fence(),
        careless(),
        forget(),
        administrator(),
        cancel(),
        principals(),
        turns(),
        packed(),
        deleted_key(),
        handler(),
        suspects(),
    ];
    all.extend(session_scopes::all());
    all
}

/// The scope with this name.
pub fn named(name: &str) -> Option<Scope> {
    all().into_iter().find(|scope| scope.name == name)
}

/// The fence and what it protects: retention, ids with and without first-sent, and a clock that falls back.
fn fence() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "fence",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0),
            Letter::change("ann's c without first-sent", ann, "c", "1"),
            Letter::change("bob's b", bob, "b", "1").first_sent(0).by(5),
        ],
        before: Vec::new(),
        instants_s: &[0, RETENTION_S + 5, 2 * RETENTION_S],
        may_fall_back: true,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Replay, Sometimes::Tombstone, Sometimes::Fence],
    }
}

/// A client that keeps neither to its first-sent nor to the deadline that it announces. The attempts that the key has seen
/// protect it.
fn careless() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "careless",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0),
            Letter::change("ann's a without first-sent", ann, "a", "1").first_by(0),
            Letter::change("bob's b", bob, "b", "1").first_sent(0).by(20),
            Letter::change("bob's b with a later deadline", bob, "b", "1").first_sent(0).by(110).first_by(0),
            Letter::acknowledge("bob's acknowledgement of b", bob).acknowledging("b", 20),
        ],
        before: Vec::new(),
        instants_s: &[0, 90, RETENTION_S + 5, 2 * RETENTION_S],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Replay, Sometimes::Tombstone, Sometimes::Late, Sometimes::Fence],
    }
}

/// An administrator who has requests forgotten. An id without first-sent is not protected then, because the fence can't tell how
/// old it is.
fn forget() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "forget",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0),
            Letter::change("bob's b", bob, "b", "1").first_sent(0).by(100),
            Letter::change("bob's c, younger", bob, "c", "1").first_sent(60).by(100),
        ],
        before: Vec::new(),
        instants_s: &[0, 90, RETENTION_S + 5],
        may_fall_back: true,
        forgets_before_s: Some(30),
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Replay, Sometimes::Late, Sometimes::Fence, Sometimes::Forgot],
    }
}

/// An administrator who deletes records and the key, and cancels; and somebody who asks for the same without being one. The clock
/// of bob's client is ahead.
fn administrator() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "administrator",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0).going(&[Mood::Works, Mood::Crashes]),
            Letter::change("bob's b", bob, "b", "1").first_sent(60).by(100),
            Letter::record("the deletion of a", ADMINISTRATOR, Aim::DeleteRecord, "a"),
            Letter::delete_key("the deletion of the key", ADMINISTRATOR),
            Letter::admin_cancel("the cancellation of b", "b", 60).by(100),
            Letter::record("the look at a by bob", bob, Aim::LookUp, "a"),
        ],
        before: Vec::new(),
        instants_s: &[0, 30, RETENTION_S + 40],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[
            Sometimes::Replay,
            Sometimes::Tombstone,
            Sometimes::Cancelled,
            Sometimes::Deleted,
            Sometimes::Fence,
            Sometimes::Forgot,
            Sometimes::Forbidden,
        ],
    }
}

/// Cancelling, with and without first-sent, before and after the execution.
fn cancel() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "cancel",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0).by(100),
            Letter::cancel("cancel a", ann, "a", Some(0)),
            Letter::change("bob's b without first-sent", bob, "b", "1").by(100),
            Letter::cancel("cancel b", bob, "b", None).by(100),
            Letter::look_up("ann's look-up of a", ann, "a"),
        ],
        before: Vec::new(),
        instants_s: &[0, 90, RETENTION_S + 105],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Cancelled, Sometimes::RanBefore, Sometimes::Late, Sometimes::Fence],
    }
}

/// Two principals with the same id; acknowledgements by the owner, by another, and by the request itself.
fn principals() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "principals",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0).by(100),
            Letter::change("ann's a with another payload", ann, "a", "2").first_sent(0).by(100),
            Letter::change("bob's a", bob, "a", "1").first_sent(0).by(100),
            Letter::look_up("bob's look-up of a", bob, "a"),
            Letter::acknowledge("ann's acknowledgement of a", ann).acknowledging("a", 100),
            Letter::acknowledge("bob's acknowledgement of a", bob).acknowledging("a", 100),
            Letter::change("bob's b, which acknowledges itself", bob, "b", "1").by(100).acknowledging("b", 100),
        ],
        before: Vec::new(),
        instants_s: &[0, 165],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Replay, Sometimes::Tombstone, Sometimes::Late, Sometimes::Mismatch],
    }
}

/// Executions that are not committed yet, and duplicates that wait for them.
fn turns() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "turns",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0).by(100),
            Letter::change("ann's a with a later deadline", ann, "a", "1").first_sent(0).by(120),
            Letter::change("bob's b, which acknowledges a", bob, "b", "1").by(100).acknowledging("a", 120),
            Letter::acknowledge("ann's acknowledgement of a", ann).acknowledging("a", 120),
        ],
        before: Vec::new(),
        instants_s: &[0, 110, 185],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: true,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Replay, Sometimes::Waits, Sometimes::Tombstone, Sometimes::Late],
    }
}

/// Tombstones in the rows of records and in chunks: requests that are acknowledged one by one, and all at once.
fn packed() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "packed",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0).by(100),
            Letter::change("bob's a", bob, "a", "1").first_sent(0).by(100),
            Letter::change("ann's a with a later deadline", ann, "a", "1").first_sent(0).by(150).first_by(100),
            Letter::change("ann's b, which acknowledges a", ann, "b", "1").by(100).acknowledging("a", 100),
            Letter::change("ann's c, which acknowledges b", ann, "c", "1").by(100).acknowledging("b", 100),
            Letter::acknowledge("ann's acknowledgement of all", ann)
                .acknowledging("a", 100)
                .acknowledging("b", 100)
                .acknowledging("c", 100),
        ],
        before: Vec::new(),
        instants_s: &[0, 165],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Replay, Sometimes::Tombstone, Sometimes::Late, Sometimes::Mismatch],
    }
}

/// A key that is deleted with packed tombstones in it. The clock of the client is ahead, and no row says when those requests were
/// first sent, so the fence may not have passed them.
fn deleted_key() -> Scope {
    let (ann, _) = PRINCIPALS;
    Scope {
        name: "deleted key",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(60).by(100),
            Letter::change("ann's b, which acknowledges a", ann, "b", "1")
                .first_sent(0)
                .by(100)
                .acknowledging("a", 100),
            Letter::delete_key("the deletion of the key", ADMINISTRATOR),
        ],
        before: Vec::new(),
        instants_s: &[0, 90, 165],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Replay, Sometimes::Tombstone, Sometimes::Late, Sometimes::Deleted],
    }
}

/// A handler that fails and crashes, reads that write, and a key that becomes full.
fn handler() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "handler",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0).by(100).going(&[
                Mood::Works,
                Mood::Answers500,
                Mood::Crashes,
            ]),
            Letter::change("bob's b", bob, "b", "1").first_sent(0).by(100),
            Letter::acknowledge("ann's acknowledgement of a", ann).acknowledging("a", 100),
            Letter::read("a read", bob),
        ],
        before: Vec::new(),
        instants_s: &[0, 165],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: false,
        config: Config { records_max: 1, tombstones_max: 1, ..config() },
        sometimes: &[Sometimes::Poisoned, Sometimes::Full, Sometimes::RolledBack],
    }
}

/// Executions that end the process, and requests that may be blamed for it: starts are counted while the object is young.
fn suspects() -> Scope {
    let (ann, bob) = PRINCIPALS;
    Scope {
        name: "suspects",
        letters: vec![
            Letter::change("ann's a", ann, "a", "1").first_sent(0).by(100).going(&[
                Mood::Works,
                Mood::Answers500,
                Mood::Crashes,
                Mood::Ends,
            ]),
            Letter::change("ann's a with an early deadline", ann, "a", "1").first_sent(0).by(5),
            Letter::change("bob's b without first-sent", bob, "b", "1").by(100).going(&[Mood::Works, Mood::Answers500]),
        ],
        before: Vec::new(),
        instants_s: &[0, 10, 75],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: true,
        goes_on: false,
        config: config(),
        sometimes: &[Sometimes::Replay, Sometimes::Late, Sometimes::Poisoned, Sometimes::RolledBack, Sometimes::Ends],
    }
}
