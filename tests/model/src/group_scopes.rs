//! The scopes of groups: two or three requests that wait for a commit, one of which fails, repeats another, or is late.
//!
//! Invariant: in a scope whose statements fail, every request has fewer statements than the scope says, so that each of them
//! fails once.

use crate::groups::GroupScope;
use crate::ledger::Mood;
use crate::letters::Letter;
use crate::properties::Sometimes;
use semel_core::server::Config;

const ANN: &str = "ann";
const BOB: &str = "bob";

fn scope(name: &'static str, letters: Vec<Letter>, sometimes: &'static [Sometimes]) -> GroupScope {
    GroupScope {
        name,
        before: Vec::new(),
        letters,
        instants_s: &[0],
        counts_starts: false,
        group_max: 3,
        under_way_max: 4,
        statements_max: 0,
        config: Config { retention_s: 1_000, open: true, ..Config::default() },
        sometimes,
    }
}

/// All scopes of groups.
pub fn all() -> Vec<GroupScope> {
    vec![groups(), crashes(), sessions(), late(), suspects()]
}

/// The scope with this name.
pub fn named(name: &str) -> Option<GroupScope> {
    all().into_iter().find(|scope| scope.name == name)
}

/// Two clients, one of which acknowledges. Any of their requests may be in a group twice, and fail at any statement.
fn groups() -> GroupScope {
    let letters = vec![
        Letter::change("ann's a", ANN, "a", "1").first_sent(0),
        Letter::change("bob's b", BOB, "b", "1").first_sent(0).going(&[Mood::Works, Mood::Answers500]),
        Letter::acknowledge("ann's acknowledgement of a", ANN).acknowledging("a", 60),
    ];
    let sometimes = &[
        Sometimes::Grouped,
        Sometimes::GroupedBeside,
        Sometimes::GroupLost,
        Sometimes::GroupReplay,
        Sometimes::Tombstone,
        Sometimes::RolledBack,
    ];
    GroupScope { under_way_max: 3, statements_max: 40, ..scope("groups", letters, sometimes) }
}

/// A handler that crashes, or ends the process, among the requests of a group; and a read, which leaves what the others did.
fn crashes() -> GroupScope {
    let letters = vec![
        Letter::change("ann's a", ANN, "a", "1").first_sent(0),
        Letter::change("bob's b", BOB, "b", "1").first_sent(0).going(&[Mood::Works, Mood::Crashes, Mood::Ends]),
        Letter::read("ann's read", ANN),
    ];
    let sometimes = &[
        Sometimes::Grouped,
        Sometimes::GroupedBeside,
        Sometimes::GroupLost,
        Sometimes::GroupReplay,
        Sometimes::Poisoned,
    ];
    scope("groups crash", letters, sometimes)
}

/// Places of a session that wait together, beside a take-over of it.
fn sessions() -> GroupScope {
    let place = |name, epoch, seq, ack| Letter::place(name, ANN, (epoch, seq, ack), "1");
    let letters = vec![
        place("1/1", 1, 1, 0).going(&[Mood::Works, Mood::Answers500]),
        place("1/2", 1, 2, 1),
        Letter::take_over("second", ANN, "second", Some(1)),
    ];
    let sometimes = &[
        Sometimes::Grouped,
        Sometimes::GroupedBeside,
        Sometimes::GroupLost,
        Sometimes::GroupReplay,
        Sometimes::Gap,
        Sometimes::Fenced,
        Sometimes::OldReplay,
    ];
    let scope = scope("session groups", letters, sometimes);
    GroupScope {
        before: vec![Letter::take_over("first", ANN, "first", Some(0))],
        under_way_max: 3,
        statements_max: 40,
        ..scope
    }
}

/// A request that is late by its turn, a request that is cancelled in its own group, and a group that takes only two.
fn late() -> GroupScope {
    let letters = vec![
        Letter::change("ann's a", ANN, "a", "1").first_sent(0).by(5),
        Letter::cancel("cancels a", ANN, "a", Some(0)),
        Letter::change("bob's b", BOB, "b", "1").first_sent(0),
    ];
    let sometimes =
        &[Sometimes::Grouped, Sometimes::GroupLost, Sometimes::Late, Sometimes::Cancelled, Sometimes::RanBefore];
    GroupScope { instants_s: &[0, 10], group_max: 2, ..scope("late groups", letters, sometimes) }
}

/// A request that ends the process again and again, among others. Its crashes are counted for no other request, and come to an
/// end.
fn suspects() -> GroupScope {
    let letters = vec![
        Letter::change("ann's a", ANN, "a", "1").first_sent(0).going(&[Mood::Works, Mood::Ends]),
        Letter::change("bob's b", BOB, "b", "1").first_sent(0),
        Letter::change("bob's c, younger", BOB, "c", "1").first_sent(10),
    ];
    let sometimes = &[Sometimes::Grouped, Sometimes::GroupLost, Sometimes::Replay, Sometimes::Poisoned];
    let scope = scope("suspect groups", letters, sometimes);
    GroupScope { instants_s: &[0, 10], counts_starts: true, under_way_max: 3, ..scope }
}
