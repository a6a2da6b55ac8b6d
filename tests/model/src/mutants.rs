//! For each rule, what finds out that it does not hold.
//!
//! Invariant: every rule is listed, each with the scope and the property that catch it.

use crate::letters::Letters;
use crate::properties::{Never, Watched};
use crate::scopes;
use crate::tabs::Tabs;
use semel_core::rules::Rule;
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::hash::Hash;

/// The scope that is no scope of letters.
pub const TABS: &str = "tabs";

/// The scope in which a rule is missed, and the property that is broken then.
pub fn caught(rule: Rule) -> (&'static str, Never) {
    match rule {
        Rule::Principal => ("principals", Never::Learnt),
        Rule::Fingerprint => ("principals", Never::Foreign),
        Rule::Replay => ("turns", Never::Twice),
        Rule::Fence => ("fence", Never::Twice),
        Rule::Deadline => ("turns", Never::TooLate),
        Rule::Cancelled => ("cancel", Never::NoForGood),
        Rule::Tombstone => ("turns", Never::Twice),
        Rule::Poisoned => ("handler", Never::NoForGood),
        Rule::CrashCounted => ("handler", Never::CrashesOn),
        Rule::Until => (TABS, Never::Twice),
        Rule::SeenDeadlines => ("careless", Never::Twice),
        Rule::AcknowledgedByOwner => ("principals", Never::Freed),
        Rule::OwnAcknowledgement => ("principals", Never::Freed),
        Rule::UnacknowledgedStay => ("turns", Never::Twice),
        Rule::ExpiredTombstone => ("fence", Never::Twice),
        Rule::TombstoneStays => ("turns", Never::Twice),
        Rule::ClockForward => ("fence", Never::TooLate),
        Rule::FenceForward => ("forget", Never::FenceBack),
        Rule::FenceDurable => ("fence", Never::FenceBack),
        Rule::CheckedOutcome => ("handler", Never::NoOutcome),
        Rule::ReadUndone => ("handler", Never::ReadWrites),
        Rule::CancellationJudged => ("cancel", Never::NoForGood),
        Rule::CancellationRecorded => ("cancel", Never::NoForGood),
        Rule::Capacity => ("handler", Never::Overfull),
        Rule::RaiseChecked => (TABS, Never::Twice),
        Rule::UntilRaised => (TABS, Never::Twice),
        Rule::UntilTold => (TABS, Never::Twice),
        Rule::AcknowledgementAnswered => (TABS, Never::Unacknowledged),
        Rule::StatusNeeded => (TABS, Never::Different),
        Rule::NoServerError => (TABS, Never::NoForGood),
        Rule::UnknownWhenPaused => (TABS, Never::NoOfEffect),
        Rule::PrincipalTold => (TABS, Never::Impersonated),
    }
}

/// A counter-example to a property without a rule: a line a step, or `None`.
pub fn counter_example(rule: Rule, scope: &str, property: Never) -> Option<Vec<String>> {
    if scope == TABS {
        return trace(&Tabs { without: Some(rule) }, property);
    }
    let scope = scopes::named(scope)?;
    trace(&Letters { scope, without: Some(rule) }, property)
}

fn trace<M>(model: &M, property: Never) -> Option<Vec<String>>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Hash + Clone + PartialEq + Send + Sync + Watched,
    M::Action: std::fmt::Debug + Clone + PartialEq,
{
    let first = HasDiscoveries::AnyOf(BTreeSet::from([property.name()]));
    let checker = model.clone().checker().finish_when(first).spawn_bfs().join();
    let mut steps = checker.discovery(property.name())?.into_actions();
    // The checker stops some states after the first that it finds, so a trace has steps that are of no account.
    let mut at = 0;
    while at < steps.len() {
        let mut fewer = steps.clone();
        fewer.remove(at);
        if breaks(model, &fewer, property) {
            steps = fewer;
            at = 0;
        } else {
            at += 1;
        }
    }
    Some(steps.iter().map(|step| model.format_action(step)).collect())
}

/// Whether the steps are possible, one after the other, and break a property.
fn breaks<M>(model: &M, steps: &[M::Action], property: Never) -> bool
where
    M: Model,
    M::State: Watched,
    M::Action: Clone + PartialEq,
{
    let Some(mut state) = model.init_states().pop() else { return false };
    for step in steps {
        let mut possible = Vec::new();
        model.actions(&state, &mut possible);
        let next = possible.contains(step).then(|| model.next_state(&state, step.clone()));
        let Some(next) = next.flatten() else { return false };
        state = next;
    }
    state.oracle().broken.contains(&property)
}
