//! What is explored of effects that leave: a key that sends and one that receives.
//!
//! Invariant: a scope is bounded by what is paid, and by how often the sender starts and takes its session over. What is sent, lost and repeated
//! has no bound: it comes to the same.

use crate::properties::Sometimes;
use semel_core::server::Config;

/// What is explored.
#[derive(Debug, Clone)]
pub struct EffectScope {
    /// Its name.
    pub name: &'static str,
    /// What is to be paid, in order.
    pub payments: &'static [&'static str],
    /// How often the sender's object ends, at most.
    pub ends_max: u8,
    /// Before which statement it may end while it takes an answer, at most.
    pub statements_max: u16,
    /// Whether the sender is put back, once.
    pub is_put_back: bool,
    /// Whether the receiver may know no credits.
    pub refuses: bool,
    /// Whether somebody at the receiver takes the ids of closings before they come.
    pub takes_ids: bool,
    /// Whether an administrator has the receiver forget its sessions, once.
    pub forgets: bool,
    /// How often the session is taken over, at most.
    pub take_overs_max: usize,
    /// The settings of both.
    pub config: Config,
    /// What must come about.
    pub sometimes: &'static [Sometimes],
}

/// All of them.
pub fn all() -> Vec<EffectScope> {
    vec![restarted(), refused(), put_back(), late(), taken(), forgotten()]
}

/// The scope of a name.
pub fn named(name: &str) -> Option<EffectScope> {
    all().into_iter().find(|scope| scope.name == name)
}

fn scope(name: &'static str, payments: &'static [&'static str], sometimes: &'static [Sometimes]) -> EffectScope {
    EffectScope {
        name,
        payments,
        ends_max: 0,
        statements_max: 0,
        is_put_back: false,
        refuses: false,
        takes_ids: false,
        forgets: false,
        take_overs_max: 2,
        config: Config { open: true, ..Config::default() },
        sometimes,
    }
}

/// A sender whose object ends, also between two statements, and starts anew.
fn restarted() -> EffectScope {
    let sometimes = &[
        Sometimes::Credited,
        Sometimes::Resent,
        Sometimes::Replay,
        Sometimes::Fenced,
        Sometimes::TakenOver,
        Sometimes::Renumbered,
    ];
    EffectScope { ends_max: 1, statements_max: 12, ..scope("restarted sender", &["a", "b"], sometimes) }
}

/// A receiver that now and then knows no credits.
fn refused() -> EffectScope {
    let sometimes = &[Sometimes::Credited, Sometimes::Parked, Sometimes::Cancelled];
    EffectScope { refuses: true, ..scope("refused effects", &["a", "b"], sometimes) }
}

/// A sender that is put back, and has lost what it has sent since.
fn put_back() -> EffectScope {
    let sometimes = &[Sometimes::Credited, Sometimes::PutBack, Sometimes::TakenOver, Sometimes::Tombstone];
    EffectScope { is_put_back: true, ..scope("sender put back", &["a", "b"], sometimes) }
}

/// A sender that is fenced by its own take-over, which comes late.
fn late() -> EffectScope {
    let sometimes = &[
        Sometimes::Credited,
        Sometimes::Resent,
        Sometimes::Replay,
        Sometimes::Fenced,
        Sometimes::TakenOver,
        Sometimes::Parked,
        Sometimes::Cancelled,
    ];
    EffectScope { refuses: true, take_overs_max: 3, ..scope("late take-overs", &["a"], sometimes) }
}

/// Closings whose ids somebody else may take.
fn taken() -> EffectScope {
    let sometimes = &[Sometimes::Credited, Sometimes::Parked, Sometimes::Cancelled];
    EffectScope { refuses: true, takes_ids: true, take_overs_max: 1, ..scope("taken closings", &["a"], sometimes) }
}

/// A receiver that is made to forget its sessions.
fn forgotten() -> EffectScope {
    let sometimes = &[
        Sometimes::Credited,
        Sometimes::SessionUnknown,
        Sometimes::OutcomeUnknown,
        Sometimes::Fenced,
        Sometimes::TakenOver,
        Sometimes::Renumbered,
    ];
    EffectScope { ends_max: 1, forgets: true, take_overs_max: 3, ..scope("forgotten sessions", &["a"], sometimes) }
}
