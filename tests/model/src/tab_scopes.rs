//! The scopes of the tabs: small worlds, each around one way in which a client may go wrong.
//!
//! Invariant: what bounds a scope is how many messages its tabs send, and how often each tab is opened; not what arrives.

use crate::properties::Sometimes;
use crate::tab::Wish;
use semel_core::server::Config;

/// What the checker explores.
#[derive(Debug, Clone)]
pub struct TabScope {
    /// Its name.
    pub name: &'static str,
    /// How many tabs there are.
    pub tabs: usize,
    /// How often each may be opened.
    pub opens_max: &'static [u8],
    /// The requests that the first tab made before; they are answered.
    pub before: Vec<Wish>,
    /// The requests that the first tab makes.
    pub wishes: Vec<Wish>,
    /// The instants of the wall clock, in s.
    pub instants_s: &'static [i64],
    /// How many messages may leave.
    pub messages_max: u8,
    /// Whether proxies answer, and another principal may be logged in.
    pub has_proxies: bool,
    /// Whether the application gives up a request, once.
    pub gives_up: bool,
    /// When callers are told to wait no longer.
    pub give_up_after_ms: Option<i64>,
    /// The settings of the servers.
    pub config: Config,
    /// What must happen in some state.
    pub sometimes: &'static [Sometimes],
}

const A: Wish = Wish { id: "a", method: "POST", path: "/k", key: "k", is_ordered: false };
const B: Wish = Wish { id: "b", method: "POST", path: "/k", key: "k", is_ordered: false };
/// The first of two requests in order. By its id it would be the second.
const FIRST: Wish = Wish { id: "b", is_ordered: true, ..A };
const SECOND: Wish = Wish { id: "a", is_ordered: true, ..A };
/// A request at the same path as the others, but of another key.
const ELSEWHERE: Wish = Wish { id: "e", method: "PUT", path: "/k", key: "elsewhere", is_ordered: false };

impl TabScope {
    /// The requests of the first tab that must have their effects or their answers before this one takes effect.
    pub fn before_in_order(&self, id: &str) -> Vec<&'static str> {
        let Some(at) = self.wishes.iter().position(|wish| wish.id == id && wish.is_ordered) else { return Vec::new() };
        let (own, before) = (self.wishes[at], &self.wishes[..at]);
        before.iter().filter(|wish| wish.is_ordered && wish.key == own.key).map(|wish| wish.id).collect()
    }

    /// Whether a request is made in order.
    pub fn is_ordered(&self, id: &str) -> bool {
        self.wishes.iter().any(|wish| wish.id == id && wish.is_ordered)
    }

    /// The key of a request.
    pub fn key_of(&self, id: &str) -> &'static str {
        self.wishes.iter().chain(&self.before).find(|wish| wish.id == id).map_or("", |wish| wish.key)
    }
}

/// All scopes of tabs.
pub fn all() -> Vec<TabScope> {
    vec![tabs(), reload(), between(), rides(), gives_up(), in_order()]
}

/// The scope with this name.
pub fn named(name: &str) -> Option<TabScope> {
    all().into_iter().find(|scope| scope.name == name)
}

fn one() -> TabScope {
    TabScope {
        name: "",
        tabs: 1,
        opens_max: &[2],
        before: Vec::new(),
        wishes: vec![A],
        // At the last instant, a tombstone has lapsed that knows only the first attempt's deadline, and an attempt that was sent
        // at the second instant may still be executed.
        instants_s: &[0, 90, 170],
        messages_max: 3,
        has_proxies: false,
        gives_up: false,
        give_up_after_ms: None,
        config: Config { open: true, ..Config::default() },
        sometimes: &[],
    }
}

/// Two tabs of one client, either of which may send, acknowledge, or freeze.
fn tabs() -> TabScope {
    TabScope {
        name: "tabs",
        tabs: 2,
        opens_max: &[1, 1],
        instants_s: &[0, 170],
        messages_max: 4,
        sometimes: &[Sometimes::Replay, Sometimes::Tombstone, Sometimes::Late, Sometimes::Forgotten],
        ..one()
    }
}

/// Two tabs, the first of which is reloaded, or crashes.
fn reload() -> TabScope {
    TabScope { name: "reload", opens_max: &[2, 1], messages_max: 3, ..tabs() }
}

/// Somebody in between: captive portals, gateways, another principal's login.
fn between() -> TabScope {
    TabScope {
        name: "between",
        has_proxies: true,
        sometimes: &[Sometimes::Replay, Sometimes::Late, Sometimes::Forgotten],
        ..one()
    }
}

/// Two requests at one key: the acknowledgement of one rides on an attempt of the other.
fn rides() -> TabScope {
    TabScope {
        name: "rides",
        wishes: vec![A, B],
        instants_s: &[0, 170],
        messages_max: 4,
        opens_max: &[1],
        sometimes: &[Sometimes::Rides, Sometimes::Replay, Sometimes::Tombstone, Sometimes::Forgotten],
        ..one()
    }
}

/// A request that the application gives up, at a key that the client can only guess, and a caller that waits no longer.
fn gives_up() -> TabScope {
    TabScope {
        name: "gives up",
        before: vec![ELSEWHERE],
        instants_s: &[0, 70],
        messages_max: 4,
        gives_up: true,
        give_up_after_ms: Some(60_000),
        sometimes: &[
            Sometimes::GaveUp,
            Sometimes::Probes,
            Sometimes::Cancelled,
            Sometimes::RanBefore,
            Sometimes::Forgotten,
        ],
        ..one()
    }
}

/// Two requests in order at one key. Their tab may be reloaded or crash while another tab opens and takes them over. The
/// application may give up one of them.
fn in_order() -> TabScope {
    TabScope {
        name: "in order",
        tabs: 2,
        opens_max: &[2, 1],
        wishes: vec![FIRST, SECOND],
        instants_s: &[0, 170],
        messages_max: 3,
        gives_up: true,
        sometimes: &[
            Sometimes::Turn,
            Sometimes::Withdrawn,
            Sometimes::Replay,
            Sometimes::Late,
            Sometimes::Cancelled,
            Sometimes::Forgotten,
        ],
        ..one()
    }
}
