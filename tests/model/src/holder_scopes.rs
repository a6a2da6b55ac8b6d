//! The scopes of the tabs of a session: small worlds, each around one thing that may go wrong.
//!
//! Invariant: what bounds a scope are the requests, and how often each tab is opened. What is sent, lost and repeated has no
//! bound, because it leads to the same states.

use crate::letters::Letter;
use crate::properties::Sometimes;
use semel_core::server::Config;

/// What the checker explores.
#[derive(Debug, Clone)]
pub struct HolderScope {
    /// Its name.
    pub name: &'static str,
    /// How often each tab may be opened.
    pub opens_max: &'static [u8],
    /// The requests that the application makes in each tab, in order. Their names are in another order, because rows are found in
    /// the order of names.
    pub calls: &'static [&'static [&'static str]],
    /// How many of them are made in the first tab at once.
    pub calls_at_once: usize,
    /// The letters that have arrived before.
    pub before: Vec<Letter>,
    /// The instants of the wall clock, in s.
    pub instants_s: &'static [i64],
    /// Whether the application gives up a request, once.
    pub gives_up: bool,
    /// When callers are told to wait no longer.
    pub give_up_after_ms: Option<i64>,
    /// How many requests must be ready before a second frame leaves beside another; 0: no second frame leaves.
    pub ahead: usize,
    /// Whether tabs can tell which tabs live.
    pub knows_who_lives: bool,
    /// Whether the key's process crashes.
    pub key_crashes: bool,
    /// How often the store fails.
    pub failures_max: u8,
    /// The settings of the server.
    pub config: Config,
    /// What must happen in some state.
    pub sometimes: &'static [Sometimes],
}

const RETENTION_S: i64 = 1_000;

/// All scopes of holders.
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

/// The scope with this name.
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

/// A tab with two requests, from which another tab takes the session over. Either may crash.
fn overtaken() -> HolderScope {
    let sometimes =
        &[Sometimes::Replay, Sometimes::Fenced, Sometimes::Renumbered, Sometimes::Withdrawn, Sometimes::Forgotten];
    scope("overtaken", &[1, 1], &[&["b", "a"], &[]], sometimes)
}

/// A holder with a request of its own and one that it took over, at a key that crashes.
fn two_epochs() -> HolderScope {
    let sometimes = &[Sometimes::Fenced, Sometimes::Renumbered, Sometimes::Forgotten];
    let scope = scope("two epochs", &[1, 1], &[&["b"], &["a"]], sometimes);
    HolderScope { key_crashes: true, ..scope }
}

/// A tab that loses the session while it goes on with requests that it took over itself. It lives on.
fn left() -> HolderScope {
    scope("left again", &[2, 1], &[&["a"], &[]], &[Sometimes::Fenced, Sometimes::Renumbered, Sometimes::Forgotten])
}

/// Callers that wait no longer, in a tab that loses the session and lives on.
fn waits_no_longer() -> HolderScope {
    let sometimes = &[Sometimes::GaveUp, Sometimes::LeftBehind, Sometimes::Renumbered, Sometimes::Forgotten];
    let scope = scope("waits no longer", &[1, 1], &[&["b"], &["a"]], sometimes);
    HolderScope { give_up_after_ms: Some(0), ..scope }
}

/// A request that the application gives up, before one that it doesn't give up.
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

/// A session with the most outcomes that it may keep. They have to make room while a living tab has not heard of one yet.
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

/// Tabs that can't tell which tabs live, and therefore take over what others have in hand.
fn unaware() -> HolderScope {
    let sometimes = &[Sometimes::Replay, Sometimes::Renumbered, Sometimes::Forgotten];
    let scope = scope("unaware", &[1, 1], &[&["a"], &[]], sometimes);
    HolderScope { knows_who_lives: false, ..scope }
}

/// A tab with two frames under way, from which another tab takes the session over. Either frame may arrive first, or never.
fn two_frames() -> HolderScope {
    let sometimes =
        &[Sometimes::Replay, Sometimes::Fenced, Sometimes::Renumbered, Sometimes::Gap, Sometimes::Forgotten];
    HolderScope { ahead: 1, ..scope("two frames", &[1, 1], &[&["b", "a"], &[]], sometimes) }
}

/// A tab with two frames under way; the application gives up one of the two requests.
fn two_given_up() -> HolderScope {
    let sometimes = &[Sometimes::Cancelled, Sometimes::RanBefore, Sometimes::Gap, Sometimes::Forgotten];
    let scope = scope("one of two frames given up", &[1], &[&["b", "a"]], sometimes);
    HolderScope { ahead: 1, gives_up: true, ..scope }
}
