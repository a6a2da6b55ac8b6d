//! The scopes of sessions: two holders of one session, the older of which doesn't know that it lost it, and what ends a session.
//!
//! Invariant: the letters name only epochs that the take-overs of the scope give.

use crate::ledger::Mood;
use crate::letters::{Letter, Scope};
use crate::oracle::ADMINISTRATOR;
use crate::properties::Sometimes;
use semel_core::server::Config;

const RETENTION_S: i64 = 1_000;

fn scope(name: &'static str, letters: Vec<Letter>, sometimes: &'static [Sometimes]) -> Scope {
    Scope {
        name,
        before: Vec::new(),
        letters,
        instants_s: &[0],
        may_fall_back: false,
        forgets_before_s: None,
        has_turns: false,
        counts_starts: false,
        goes_on: true,
        config: Config { retention_s: RETENTION_S, open: true, ..Config::default() },
        sometimes,
    }
}

/// All scopes of sessions.
pub fn all() -> Vec<Scope> {
    vec![sessions(), owner(), idle(), deleted(), crashes(), many_epochs(), full()]
}

fn takes_over(name: &'static str, after: Option<i64>) -> Letter {
    Letter::take_over(name, "ann", &name.replace(' ', "-"), after)
}

fn place(name: &'static str, epoch: i64, seq: i64, ack: i64) -> Letter {
    Letter::place(name, "ann", (epoch, seq, ack), "1")
}

/// A holder, its successor, and a take-over that is under way for long. Any letter may arrive again, late, or in another order.
fn sessions() -> Scope {
    let letters = vec![
        takes_over("first", Some(0)),
        takes_over("late", Some(0)),
        takes_over("second", Some(1)),
        place("1/1", 1, 1, 0),
        place("1/2", 1, 2, 1),
        place("the zombie's 1/3", 1, 3, 2),
        place("2/1", 2, 1, 0),
        place("2/2", 2, 2, 0),
        place("2/3", 2, 3, 2),
    ];
    let sometimes = &[
        Sometimes::Replay,
        Sometimes::Gap,
        Sometimes::Fenced,
        Sometimes::OldReplay,
        Sometimes::Tombstone,
        Sometimes::SessionUnknown,
    ];
    scope("sessions", letters, sometimes)
}

/// Another principal, another payload, and places that are closed.
fn owner() -> Scope {
    let letters = vec![
        takes_over("first", None),
        Letter::take_over("bob's take-over", "bob", "bob", None),
        place("1/1", 1, 1, 0),
        Letter::place("1/1 with another payload", "ann", (1, 1, 0), "2"),
        Letter::place("bob's 1/1", "bob", (1, 1, 0), "1"),
        Letter::place("bob's 1/2, which acknowledges", "bob", (1, 2, 1), "1"),
        Letter::close("the closing of 1/1", "ann", (1, 1)),
        Letter::close("bob's closing of 1/2", "bob", (1, 2)),
        place("1/2", 1, 2, 0),
    ];
    let sometimes = &[
        Sometimes::Replay,
        Sometimes::Mismatch,
        Sometimes::Cancelled,
        Sometimes::RanBefore,
        Sometimes::Forbidden,
        Sometimes::Gap,
    ];
    scope("session owner", letters, sometimes)
}

/// A session that becomes a stub, or is forgotten: by time, and by an administrator.
fn idle() -> Scope {
    let letters = vec![
        takes_over("first", None),
        takes_over("second", None),
        place("1/1", 1, 1, 0),
        place("1/2", 1, 2, 1),
        place("2/1", 2, 1, 0),
    ];
    let sometimes = &[Sometimes::Stub, Sometimes::SessionUnknown, Sometimes::Fenced, Sometimes::Tombstone];
    let scope = scope("idle session", letters, sometimes);
    Scope { instants_s: &[0, RETENTION_S + 5], forgets_before_s: Some(500), ..scope }
}

/// An administrator who deletes the key.
fn deleted() -> Scope {
    let letters = vec![
        takes_over("first", None),
        takes_over("second", None),
        place("1/1", 1, 1, 0),
        place("2/1", 2, 1, 0),
        Letter::delete_key("the deletion of the key", ADMINISTRATOR),
    ];
    let sometimes = &[Sometimes::SessionUnknown, Sometimes::Fenced, Sometimes::Deleted];
    scope("deleted session", letters, sometimes)
}

/// A handler that crashes or ends the process at a place, and what this means for the next place.
fn crashes() -> Scope {
    const MOODS: &[Mood] = &[Mood::Works, Mood::Crashes, Mood::Ends];
    let letters = vec![
        takes_over("first", Some(0)),
        place("1/1", 1, 1, 0).going(MOODS),
        place("1/2", 1, 2, 0).going(&[Mood::Works, Mood::Crashes]),
    ];
    let sometimes = &[Sometimes::Poisoned, Sometimes::RolledBack, Sometimes::Ends, Sometimes::Gap];
    Scope { instants_s: &[0, 10], counts_starts: true, ..scope("sessions crash", letters, sometimes) }
}

/// A session with so many holders that the next take-over forgets the first epoch.
fn many_epochs() -> Scope {
    let own = |epoch: i64| format!("take-over-{epoch}");
    let first = Letter::take_over("a take-over", "ann", &own(1), None);
    let more = (2..=64).map(|epoch| Letter::take_over("a take-over", "ann", &own(epoch), None));
    let letters = vec![
        takes_over("the last", Some(64)),
        place("1/1", 1, 1, 0),
        place("1/2", 1, 2, 0),
        place("2/2", 2, 2, 0),
        place("64/2", 64, 2, 1),
        place("65/2", 65, 2, 1),
    ];
    let sometimes = &[Sometimes::OldReplay, Sometimes::Fenced, Sometimes::Replay];
    let before = [first, place("1/1", 1, 1, 0)].into_iter().chain(more).collect();
    Scope { before, ..scope("many epochs", letters, sometimes) }
}

/// A session that keeps the most outcomes that it may, at a key that has the most sessions that it may.
fn full() -> Scope {
    let letters = vec![
        place("1/65", 1, 65, 0),
        place("1/65, which acknowledges", 1, 65, 1),
        place("1/66", 1, 66, 1),
        Letter::close("the closing of 1/65", "ann", (1, 65)),
        Letter::take_over_of("another session", "other", "ann", "other", None),
    ];
    let before =
        [takes_over("first", None)].into_iter().chain((1..=64).map(|seq| place("a place", 1, seq, 0))).collect();
    let sometimes = &[Sometimes::Full, Sometimes::Gap, Sometimes::Cancelled];
    let scope = scope("full session", letters, sometimes);
    Scope { before, config: Config { sessions_max: 1, ..scope.config.clone() }, ..scope }
}
