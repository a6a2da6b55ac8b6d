//! The scopes of batches and frames: several requests in one commit, one of which fails, crashes, or does not belong there.
//!
//! Invariants:
//! - Every batch that may go wrong has fewer statements than its scope says, so that a fault falls between any two of them.
//! - Few batches try the order of statements: the more may go wrong, the fewer letters a scope has.

use crate::batches::{BatchScope, Bundle};
use crate::ledger::Mood;
use crate::letters::Letter;
use crate::properties::Sometimes;
use semel_core::message::Method;
use semel_core::server::Config;

const ANN: &str = "ann";

fn scope(
    name: &'static str,
    letters: Vec<Letter>,
    bundles: Vec<Bundle>,
    sometimes: &'static [Sometimes],
) -> BatchScope {
    BatchScope {
        name,
        letters,
        bundles,
        instants_s: &[0],
        counts_starts: false,
        statements_max: 48,
        config: Config { retention_s: 1_000, open: true, ..Config::default() },
        sometimes,
    }
}

/// All scopes of batches.
pub fn all() -> Vec<BatchScope> {
    vec![batches(), frames(), sessions(), crashes(), full()]
}

/// The scope with this name.
pub fn named(name: &str) -> Option<BatchScope> {
    all().into_iter().find(|scope| scope.name == name)
}

fn change(id: &'static str) -> Letter {
    Letter::change(id, ANN, id, "1")
}

/// The same requests in several batches and alone. One batch has a request of another key, and one has a header that a batch may
/// not have.
fn batches() -> BatchScope {
    let mut astray = change("astray");
    astray.request.method = Method::Put;
    let bundles = vec![
        Bundle::batch("a batch of a, b and a again", ANN, vec![change("a"), change("b"), change("a")]),
        Bundle::batch(
            "a batch of c, and the cancellation of b, that acknowledges a",
            ANN,
            vec![change("c"), Letter::cancel("cancels b", ANN, "b", None)],
        )
        .acknowledging("a", 60),
        Bundle::batch("a batch with a request of another key", ANN, vec![astray, change("c")]).unharmed(),
        Bundle::batch("a batch with a header that is not for it", ANN, vec![change("c").with("semel-ack", "\"a\"")])
            .unharmed(),
    ];
    let sometimes = &[Sometimes::Replay, Sometimes::Tombstone, Sometimes::Cancelled, Sometimes::RanBefore];
    BatchScope { statements_max: 48, ..scope("batches", vec![change("a")], bundles, sometimes) }
}

/// Frames on sockets whose tokens expire. One frame acknowledges what the other brought.
fn frames() -> BatchScope {
    let bundles = vec![
        Bundle::batch("a frame of a and b", ANN, vec![change("a").first_sent(0), change("b").by(60)]).on_a_socket(5),
        Bundle::batch("a frame of c that acknowledges a", ANN, vec![change("c")])
            .on_a_socket(20)
            .acknowledging("a", 60),
    ];
    let scope = scope("frames", vec![change("b").by(60)], bundles, &[Sometimes::Replay, Sometimes::Tombstone]);
    BatchScope { instants_s: &[0, 10], statements_max: 48, ..scope }
}

/// Two holders of a session that send in batches. One place is in two batches, and one batch leaves a gap.
fn sessions() -> BatchScope {
    let place = |name, epoch, seq, ack| Letter::place(name, ANN, (epoch, seq, ack), "1");
    let letters =
        vec![Letter::take_over("first", ANN, "first", Some(0)), Letter::take_over("second", ANN, "second", Some(1))];
    let bundles = vec![
        Bundle::batch("a batch of 1/1 and 1/2", ANN, vec![place("1/1", 1, 1, 0), place("1/2", 1, 2, 0)]),
        Bundle::batch("a frame of 1/2 and 1/3", ANN, vec![place("1/2", 1, 2, 0), place("1/3", 1, 3, 1)])
            .on_a_socket(9)
            .unharmed(),
        Bundle::batch(
            "a batch of the second take-over, 2/1 and 2/3",
            ANN,
            vec![Letter::take_over("second", ANN, "second", Some(1)), place("2/1", 2, 1, 0), place("2/3", 2, 3, 2)],
        ),
    ];
    let sometimes = &[
        Sometimes::Replay,
        Sometimes::Gap,
        Sometimes::Fenced,
        Sometimes::OldReplay,
        Sometimes::Tombstone,
        Sometimes::SessionUnknown,
    ];
    scope("session batches", letters, bundles, sometimes)
}

/// A request that fails, crashes or ends the process among others.
fn crashes() -> BatchScope {
    const MOODS: &[Mood] = &[Mood::Works, Mood::Answers500, Mood::Crashes, Mood::Ends];
    let letters = vec![Letter::take_over("first", ANN, "first", Some(0))];
    // Because they have a first-sent, an object that lives on knows that they did not end the process before it.
    let place = Letter::place("1/1", ANN, (1, 1, 0), "1").first_sent(0);
    let bundles = vec![Bundle::batch("a batch of a and 1/1", ANN, vec![change("a").first_sent(0), place]).going(MOODS)];
    let sometimes = &[Sometimes::Poisoned, Sometimes::RolledBack, Sometimes::OneByOne, Sometimes::Replay];
    let scope = scope("batches crash", letters, bundles, sometimes);
    BatchScope { instants_s: &[0, 10], counts_starts: true, statements_max: 48, ..scope }
}

/// A key with room for one record and one session.
fn full() -> BatchScope {
    let bundles = vec![
        Bundle::batch("a batch of a", ANN, vec![change("a")]),
        Bundle::batch("a frame of b that acknowledges a", ANN, vec![change("b")]).on_a_socket(9).acknowledging("a", 60),
        Bundle::batch("a batch that takes over", ANN, vec![Letter::take_over("first", ANN, "first", None)])
            .acknowledging("b", 60),
    ];
    let scope = scope("full batches", Vec::new(), bundles, &[Sometimes::Full, Sometimes::Replay, Sometimes::Tombstone]);
    BatchScope {
        statements_max: 48,
        config: Config { records_max: 1, sessions_max: 1, ..scope.config.clone() },
        ..scope
    }
}
