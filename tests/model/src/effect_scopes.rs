//! The scopes of effects that leave: a key that sends, and a key that receives.
//!
//! Invariant: what bounds a scope are the payments, and how often the sender starts and takes its session over. What is sent,
//! lost and repeated has no bound, because it leads to the same states.

use crate::properties::Sometimes;
use semel_core::server::Config;

/// What the checker explores.
#[derive(Debug, Clone)]
pub struct EffectScope {
    /// Its name.
    pub name: &'static str,
    /// The payments, in order.
    pub payments: &'static [&'static str],
    /// The most times that the sender's object ends.
    pub ends_max: u8,
    /// The sender's object may end before any of this many statements while it takes an answer.
    pub statements_max: u16,
    /// Whether the sender is put back, once.
    pub is_put_back: bool,
    /// Whether the receiver may know no credits.
    pub refuses: bool,
    /// Whether somebody may take the ids of closings at the receiver before the closings arrive.
    pub takes_ids: bool,
    /// Whether an administrator has the receiver forget its sessions, once.
    pub forgets: bool,
    /// The most times that the session is taken over.
    pub take_overs_max: usize,
    /// The settings of both keys.
    pub config: Config,
    /// What must happen in some state.
    pub sometimes: &'static [Sometimes],
}

/// All scopes of effects.
pub fn all() -> Vec<EffectScope> {
    vec![restarted(), refused(), put_back(), late(), taken(), forgotten()]
}

/// The scope with this name.
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

/// A sender whose object ends, also between two statements, and starts again.
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

/// A receiver that sometimes knows no credits.
fn refused() -> EffectScope {
    let sometimes = &[Sometimes::Credited, Sometimes::Parked, Sometimes::Cancelled];
    EffectScope { refuses: true, ..scope("refused effects", &["a", "b"], sometimes) }
}

/// A sender that is put back, and has lost what it did since.
fn put_back() -> EffectScope {
    let sometimes = &[Sometimes::Credited, Sometimes::PutBack, Sometimes::TakenOver, Sometimes::Tombstone];
    EffectScope { is_put_back: true, ..scope("sender put back", &["a", "b"], sometimes) }
}

/// A sender that is fenced by its own late take-over.
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

/// A receiver that has to forget its sessions.
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
