//! For each rule of the core, the scope and the property that show when it is switched off; and for each flaw of a host that
//! commits together, the scope and the property that show the flaw.
//!
//! Invariant: every rule and every flaw is listed.

use crate::batch_scopes;
use crate::batches::Batches;
use crate::effect_scopes;
use crate::effects::Effects;
use crate::group_scopes;
use crate::groups::{Flaw, Groups};
use crate::holder_scopes;
use crate::holders::Holders;
use crate::letters::Letters;
use crate::properties::{Never, Watched};
use crate::remote_scopes;
use crate::remotes::Remotes;
use crate::scopes;
use crate::tab_scopes;
use crate::tabs::Tabs;
use semel_core::rules::Rule;
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::hash::Hash;

/// The scope that needs a rule, and the property that is broken without it.
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
        Rule::StartCounted => ("suspects", Never::CrashesOn),
        Rule::StartEnded => ("suspects", Never::Blamed),
        Rule::OwnStart => ("suspects", Never::CrashesOn),
        Rule::Until => ("reload", Never::Twice),
        Rule::SeenDeadlines => ("careless", Never::Twice),
        Rule::AcknowledgedByOwner => ("principals", Never::Freed),
        Rule::OwnAcknowledgement => ("principals", Never::Freed),
        Rule::UnacknowledgedStay => ("turns", Never::Twice),
        Rule::ExpiredTombstone => ("fence", Never::Twice),
        Rule::TombstoneStays => ("turns", Never::Twice),
        Rule::CarriedOn => ("packed", Never::Twice),
        Rule::PackedKnown => ("packed", Never::Twice),
        Rule::ClockForward => ("fence", Never::TooLate),
        Rule::FenceForward => ("forget", Never::FenceBack),
        Rule::FenceDurable => ("fence", Never::FenceBack),
        Rule::CheckedOutcome => ("handler", Never::NoOutcome),
        Rule::ReadUndone => ("handler", Never::ReadWrites),
        Rule::CancellationJudged => ("cancel", Never::NoForGood),
        Rule::CancellationRecorded => ("cancel", Never::NoForGood),
        Rule::Capacity => ("handler", Never::Overfull),
        Rule::ForgottenDurable => ("administrator", Never::Twice),
        Rule::DeletedRecordStaysRefused => ("administrator", Never::Twice),
        Rule::PackedOutliveKey => ("deleted key", Never::Twice),
        Rule::AdministratorOnly => ("administrator", Never::Learnt),
        Rule::SessionOwned => ("session owner", Never::Learnt),
        Rule::EpochKnown => ("sessions", Never::Unheld),
        Rule::EpochForward => ("deleted session", Never::EpochTwice),
        Rule::PlaceReplay => ("sessions", Never::Freed),
        Rule::PlaceFingerprint => ("session owner", Never::Foreign),
        Rule::PlaceCancelled => ("session owner", Never::Freed),
        Rule::PlacePoisoned => ("sessions crash", Never::Freed),
        Rule::PlaceGone => ("sessions", Never::Twice),
        Rule::PlaceOfEpoch => ("sessions", Never::Different),
        Rule::OwnNumbers => ("sessions", Never::OutOfNumber),
        Rule::Fenced => ("sessions", Never::Unheld),
        Rule::FencedUnknown => ("many epochs", Never::NoForGood),
        Rule::NoGap => ("sessions", Never::OutOfNumber),
        Rule::Window => ("full session", Never::Overfull),
        Rule::AckOfCurrent => ("sessions", Never::Freed),
        Rule::LastPlaceStays => ("sessions", Never::Twice),
        Rule::StubKeepsLast => ("idle session", Never::Twice),
        Rule::TakeOverExpected => ("sessions", Never::Usurped),
        Rule::CountOfPlace => ("sessions crash", Never::Blamed),
        Rule::SessionsBounded => ("full session", Never::Overfull),
        Rule::DispatchRecorded => ("report", Never::Unrecorded),
        Rule::DoubtHolds => ("report", Never::Twice),
        Rule::DoubtStays => ("report", Never::Twice),
        Rule::ResendEnds => ("resend", Never::Twice),
        Rule::ProbeSettles => ("probe", Never::Twice),
        Rule::OwnDispatch => ("resend and deleted", Never::Different),
        Rule::UnderWayKnown => ("report", Never::Different),
        Rule::RaiseChecked => ("tabs", Never::Twice),
        Rule::UntilRaised => ("reload", Never::Twice),
        Rule::UntilTold => ("reload", Never::Twice),
        Rule::AcknowledgementAnswered => ("rides", Never::Unacknowledged),
        Rule::StatusNeeded => ("between", Never::Different),
        Rule::NoServerError => ("between", Never::NoForGood),
        Rule::UnknownWhenPaused => ("between", Never::NoOfEffect),
        Rule::PrincipalTold => ("between", Never::Impersonated),
        Rule::UnsentWithdrawn => ("gives up", Never::NoForGood),
        Rule::Ordered => ("in order", Never::OutOfOrder),
        Rule::CertainKey => ("gives up", Never::NoForGood),
        Rule::BatchInOrder => ("frames", Never::OutOfOrder),
        Rule::BatchInOneCommit => ("session batches", Never::Partly),
        Rule::BatchMemory => ("full batches", Never::Needless),
        Rule::DeskUndone => ("batches crash", Never::NoOfEffect),
        Rule::DeskSeen => ("batches", Never::Twice),
        Rule::DeskWritten => ("batches", Never::Twice),
        Rule::BatchAcknowledges => ("frames", Never::Unacknowledged),
        Rule::BatchKey => ("batches", Never::Astray),
        Rule::BatchHeaders => ("batches", Never::Freed),
        Rule::FrameOfToken => ("frames", Never::AfterToken),
        Rule::PlaceKept => ("overtaken", Never::Twice),
        Rule::OnlyFencedRenumbered => ("expired", Never::Twice),
        Rule::UnderWayOnce => ("two frames", Never::ToldTwice),
        Rule::OlderFirst => ("two epochs", Never::OutOfOrder),
        Rule::LeftInOrder => ("overtaken", Never::OutOfOrder),
        Rule::LeftTaken => ("left again", Never::Stuck),
        Rule::AckHeld => ("overtaken", Never::Unheard),
        Rule::RowTakenBack => ("overtaken", Never::NoForGood),
        Rule::TakenEpoch => ("restarted sender", Never::Doubted),
        Rule::LaneTakenOver => ("sender put back", Never::TwoRequests),
        Rule::PutBackRenumbered => ("sender put back", Never::Doubted),
        Rule::ClosingOfPlace => ("taken closings", Never::NoForGood),
        Rule::FirstOfKnownSession => ("forgotten sessions", Never::Twice),
        Rule::ClosedBeforeParked => ("refused effects", Never::NoForGood),
        Rule::AnswerOfLast => ("restarted sender", Never::Vanished),
    }
}

/// A counter-example to a property with a rule switched off: one line a step. `None` if there is none.
pub fn counter_example(rule: Rule, scope: &str, property: Never) -> Option<Vec<String>> {
    if let Some(scope) = tab_scopes::named(scope) {
        return trace(&Tabs { scope, without: Some(rule) }, property);
    }
    if let Some(scope) = holder_scopes::named(scope) {
        return trace(&Holders { scope, without: Some(rule) }, property);
    }
    if let Some(scope) = batch_scopes::named(scope) {
        return trace(&Batches { scope, without: Some(rule) }, property);
    }
    if let Some(scope) = remote_scopes::named(scope) {
        return trace(&Remotes { scope, without: Some(rule) }, property);
    }
    if let Some(scope) = effect_scopes::named(scope) {
        return trace(&Effects { scope, without: Some(rule) }, property);
    }
    let scope = scopes::named(scope)?;
    trace(&Letters { scope, without: Some(rule) }, property)
}

/// The scope that shows a flaw of the host, and the property that the flaw breaks.
pub fn found(flaw: Flaw) -> (&'static str, Never) {
    match flaw {
        Flaw::Isolation => ("groups crash", Never::Entangled),
        Flaw::Kept => ("groups crash", Never::NoOfEffect),
        Flaw::Order => ("groups", Never::OutOfOrder),
        Flaw::EarlyAnswer => ("groups", Never::Early),
        Flaw::SuspectTogether => ("suspect groups", Never::CrashesOn),
    }
}

/// A counter-example to a property for a host with a flaw.
pub fn flawed_example(flaw: Flaw, scope: &str, property: Never) -> Option<Vec<String>> {
    trace(&Groups { scope: group_scopes::named(scope)?, flaw: Some(flaw) }, property)
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
    // The checker doesn't stop at the very first state that breaks the property, so a trace may have steps that aren't needed.
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

/// Whether the steps are possible, one after the other, and break the property.
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
