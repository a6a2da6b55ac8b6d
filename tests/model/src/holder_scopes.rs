//! What is explored of the tabs of a session: small worlds, each around one thing that may go wrong.
//!
//! Invariant: a scope is bounded by what is asked for, and by how often each tab is opened. What is sent, lost and repeated has no bound: it comes
//! to the same.

use crate::letters::Letter;
use crate::properties::Sometimes;
use semel_core::server::Config;

/// What is explored.
#[derive(Debug, Clone)]
pub struct HolderScope {
    /// Its name.
    pub name: &'static str,
    /// How often each tab may be opened.
    pub opens_max: &'static [u8],
    /// What each is asked for, in order. The names are in another order, for rows are found by these.
    pub calls: &'static [&'static [&'static str]],
    /// How much of it the first is asked for at once.
    pub calls_at_once: usize,
    /// What has arrived before.
    pub before: Vec<Letter>,
    /// The wall clock, in s.
    pub instants_s: &'static [i64],
    /// Whether the application gives up, once.
    pub gives_up: bool,
    /// When callers are told that they need not wait.
    pub give_up_after_ms: Option<i64>,
    /// So many requests are ready before a second frame leaves beside another; 0: none does.
    pub ahead: usize,
    /// Whether tabs can tell who lives.
    pub knows_who_lives: bool,
    /// Whether the key's process crashes.
    pub key_crashes: bool,
    /// How often the store fails.
    pub failures_max: u8,
    /// The settings of the server.
    pub config: Config,
    /// What must come about.
    pub sometimes: &'static [Sometimes],
}

const RETENTION_S: i64 = 1_000;

/// All of them.
pub fn all() -> Vec<HolderScope> {
    vec![
        overtaken(),
        two_epochs(),
        left(),
        waits_no_longer(),
        given_up(),
        expired(),
        unheard(),
        failing(),
        unaware(),
        two_frames(),
        two_given_up(),
    ]
}

/// The scope of a name.
pub fn named(name: &str) -> Option<HolderScope> {
    all().into_iter().find(|scope| scope.name == name)
}

fn scope(
    name: &'static str,
    opens_max: &'static [u8],
    calls: &'static [&'static [&'static str]],
    sometimes: &'static [Sometimes],
) -> HolderScope {
    HolderScope {
        name,
        opens_max,
        calls,
        calls_at_once: calls[0].len(),
        before: Vec::new(),
        instants_s: &[0],
        gives_up: false,
        give_up_after_ms: None,
        ahead: 0,
        knows_who_lives: true,
        key_crashes: false,
        failures_max: 0,
        config: Config { retention_s: RETENTION_S, open: true, ..Config::default() },
        sometimes,
    }
}

/// A tab with two requests, which another one overtakes; either may crash.
fn overtaken() -> HolderScope {
    let sometimes =
        &[Sometimes::Replay, Sometimes::Fenced, Sometimes::Renumbered, Sometimes::Withdrawn, Sometimes::Forgotten];
    scope("overtaken", &[1, 1], &[&["b", "a"], &[]], sometimes)
}

/// A holder with a request of its own, and one that it took over, at a key that crashes.
fn two_epochs() -> HolderScope {
    let sometimes = &[Sometimes::Fenced, Sometimes::Renumbered, Sometimes::Forgotten];
    let scope = scope("two epochs", &[1, 1], &[&["b"], &["a"]], sometimes);
    HolderScope { key_crashes: true, ..scope }
}

/// A tab that is overtaken while it goes on with what it took over itself, and lives.
fn left() -> HolderScope {
    scope("left again", &[2, 1], &[&["a"], &[]], &[Sometimes::Fenced, Sometimes::Renumbered, Sometimes::Forgotten])
}

/// Callers that wait no longer, whose tab is overtaken and lives.
fn waits_no_longer() -> HolderScope {
    let sometimes = &[Sometimes::GaveUp, Sometimes::LeftBehind, Sometimes::Renumbered, Sometimes::Forgotten];
    let scope = scope("waits no longer", &[1, 1], &[&["b"], &["a"]], sometimes);
    HolderScope { give_up_after_ms: Some(0), ..scope }
}

/// A request that the application gives up, before one that it does not.
fn given_up() -> HolderScope {
    let sometimes = &[Sometimes::Cancelled, Sometimes::RanBefore, Sometimes::Withdrawn, Sometimes::Forgotten];
    let scope = scope("given up", &[1, 1], &[&["b", "a"], &[]], sometimes);
    HolderScope { gives_up: true, ..scope }
}

/// A session that is idle for so long that its key keeps no outcome of it.
fn expired() -> HolderScope {
    let scope = scope("expired", &[1, 1], &[&["a"], &[]], &[Sometimes::Stub, Sometimes::Forgotten]);
    HolderScope { instants_s: &[0, RETENTION_S + 5], ..scope }
}

/// A session with as many outcomes as it may have, which have to make room while a tab that lives has still to hear of one.
fn unheard() -> HolderScope {
    let first = Letter::take_over("first", "ann", "first", None);
    let before = (1..=63).map(|seq| Letter::place("a place", "ann", (1, seq, 0), "before"));
    let scope =
        scope("unheard", &[1, 1], &[&["a"], &["b"]], &[Sometimes::Full, Sometimes::Replay, Sometimes::Forgotten]);
    HolderScope { before: [first].into_iter().chain(before).collect(), ..scope }
}

/// A store that fails once.
fn failing() -> HolderScope {
    let scope = scope(
        "failing store",
        &[1, 1],
        &[&["b", "a"], &[]],
        &[Sometimes::Renumbered, Sometimes::Withdrawn, Sometimes::Forgotten],
    );
    HolderScope { failures_max: 1, ..scope }
}

/// Tabs that can't tell who lives, and so take over what others have in hand.
fn unaware() -> HolderScope {
    let sometimes = &[Sometimes::Replay, Sometimes::Renumbered, Sometimes::Forgotten];
    let scope = scope("unaware", &[1, 1], &[&["a"], &[]], sometimes);
    HolderScope { knows_who_lives: false, ..scope }
}

/// A tab with two frames under way, which another one overtakes. Either frame may come first, or never.
fn two_frames() -> HolderScope {
    let sometimes =
        &[Sometimes::Replay, Sometimes::Fenced, Sometimes::Renumbered, Sometimes::Gap, Sometimes::Forgotten];
    HolderScope { ahead: 1, ..scope("two frames", &[1, 1], &[&["b", "a"], &[]], sometimes) }
}

/// The same, and the application gives one of the two up.
fn two_given_up() -> HolderScope {
    let sometimes = &[Sometimes::Cancelled, Sometimes::RanBefore, Sometimes::Gap, Sometimes::Forgotten];
    let scope = scope("one of two frames given up", &[1], &[&["b", "a"]], sometimes);
    HolderScope { ahead: 1, gives_up: true, ..scope }
}
