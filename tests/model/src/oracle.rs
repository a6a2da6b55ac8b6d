//! The judge: it watches effects and answers, as an outsider would, and knows what must never happen.
//!
//! Invariant: it looks at effects and at answers on the wire, never at records. Of records it knows only the number.

use crate::ledger::effect_in;
use crate::properties::{Never, Sometimes};
use crate::remote_judge::Word;
use crate::server::{Arrived, Server};
use crate::session_judge::{Numbers, SessionJudge};
use crate::tables::Effect;
use semel_core::problem::{Executed, Retry};
use semel_core::server::Answer;
use semel_core::server::storage::crashes::CRASHES_MAX;
use semel_core::server::storage::sessions::state::WINDOW;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The principal that may learn and do more than others.
pub const ADMINISTRATOR: &str = "semel:admin";

/// What an attempt asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aim {
    /// To execute its own id.
    Execute,
    /// To read.
    Read,
    /// To cancel the named id.
    Cancel,
    /// The outcome of the named id.
    LookUp,
    /// Nothing but its acknowledgements.
    Acknowledge,
    /// To delete the record of the named id.
    DeleteRecord,
    /// To delete the key.
    DeleteKey,
    /// To settle the named id, which is in doubt, in this way.
    Resolve(Word),
    /// To take over the named session, after this epoch.
    TakeOver(Option<i64>),
}

/// An attempt as the judge sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asked {
    /// What it asks for.
    pub aim: Aim,
    /// The id that it is about.
    pub id: String,
    /// Who sends it.
    pub by: String,
    /// The payload.
    pub payload: String,
    /// When it was first sent, in Unix s.
    pub first_sent_s: Option<i64>,
    /// Its place in the session.
    pub place: Option<Numbers>,
    /// The ids that it acknowledges, without its own.
    pub acknowledges: Vec<String>,
}

/// The judge's memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Oracle {
    /// The properties that were broken.
    pub broken: BTreeSet<Never>,
    /// What has happened.
    pub seen: BTreeSet<Sometimes>,
    /// The ids of which somebody was told that they never ran and never will.
    denied: BTreeSet<String>,
    /// The ids that their owners have acknowledged.
    acknowledged: BTreeSet<String>,
    /// Requests first sent before this were refused because of the fence, or were forgotten.
    fence_s: i64,
    crashes: BTreeMap<String, i64>,
    session: SessionJudge,
}

/// What a problem claims.
pub(crate) struct Claim {
    pub executed: Executed,
    pub retry: Retry,
}

impl Claim {
    pub fn of(answer: &Answer) -> Option<Self> {
        if answer.headers.get("content-type") != Some("application/problem+json") {
            return None;
        }
        let body: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
        let member = |name: &str| body.get(name).and_then(serde_json::Value::as_str);
        Some(Self { executed: Executed::from_wire(member("executed")?)?, retry: Retry::from_wire(member("retry")?)? })
    }
}

impl Oracle {
    /// An administrator has had requests forgotten that were first sent before this.
    pub fn forgets_before(&mut self, fence_s: i64) {
        self.fence_s = self.fence_s.max(fence_s);
        self.session.may_be_gone();
    }

    /// An attempt was answered. Before it there were `known` effects.
    pub fn watch(&mut self, asked: &Asked, known: usize, server: &Server, arrived: &Arrived, wall_ms: i64) {
        let all = server.tables.effects.len();
        self.watch_one(asked, known.min(all)..all, server, arrived, wall_ms);
    }

    /// One attempt of several that were committed together was answered. `own`: its own effects.
    pub fn watch_one(&mut self, asked: &Asked, own: Range<usize>, server: &Server, arrived: &Arrived, wall_ms: i64) {
        let effects = &server.tables.effects;
        for acknowledged in &asked.acknowledges {
            // An id that did not run can be acknowledged too: the word that it never will is then its outcome.
            let is_owner = |(_, effect): (usize, &Effect)| effect.principal == asked.by;
            if first_of(effects, acknowledged).map_or(self.denied.contains(acknowledged), is_owner) {
                self.acknowledged.insert(acknowledged.clone());
            }
        }
        self.acknowledged.extend(self.session.acknowledges(asked, &arrived.answer));
        self.broken.extend(self.session.watch(asked, &effects[own.clone()], &arrived.answer));
        for number in own.clone() {
            self.watch_effect(asked, effects, number, wall_ms);
        }
        if arrived.is_crash {
            let count = self.crashes.entry(asked.id.clone()).or_default();
            *count += 1;
            if *count > CRASHES_MAX {
                self.broken.insert(Never::CrashesOn);
            }
        }
        self.watch_answer(asked, effects, &arrived.answer);
        let claim = Claim::of(&arrived.answer);
        if claim.as_ref().is_some_and(|claim| claim.executed == Executed::No) && !own.is_empty() {
            self.broken.insert(Never::NoOfEffect);
        }
        // A cancellation, deletion or take-over may also be answered from its own record. `yes` then says that this command ran.
        let is_command = matches!(asked.aim, Aim::Cancel | Aim::DeleteRecord | Aim::DeleteKey | Aim::TakeOver(_));
        let is_own = |claim: &Claim| is_command && claim.executed == Executed::Yes;
        if let Some(claim) = claim.filter(|claim| !is_own(claim)) {
            self.watch_claim(&asked.id, claim.executed, claim.retry, effects);
        }
        let config = server.config();
        // Only one session of a model takes places, so its window bounds all of them.
        let sessions = &server.tables.sessions;
        if sessions.places() as i64 > WINDOW || sessions.sessions() as u64 > config.sessions_max {
            self.broken.insert(Never::Overfull);
        }
        if server.tables.count(true) as u64 > config.records_max
            || server.tables.count(false) as u64 > config.tombstones_max
        {
            self.broken.insert(Never::Overfull);
        }
    }

    fn watch_effect(&mut self, asked: &Asked, effects: &[Effect], number: usize, wall_ms: i64) {
        let (before, effect) = (&effects[..number], &effects[number]);
        // The key's clock is not behind any commit.
        let clock_ms = before.iter().map(|effect| effect.at_ms).max().unwrap_or(0).max(wall_ms);
        let is_before_fence = effect.first_sent_s.is_some_and(|first_sent_s| first_sent_s < self.fence_s);
        for (is_broken, property) in [
            (before.iter().any(|each| each.id == effect.id), Never::Twice),
            (effect.deadline_ms.is_some_and(|deadline_ms| deadline_ms < clock_ms), Never::TooLate),
            (self.denied.contains(&effect.id), Never::NoForGood),
            (is_before_fence, Never::FenceBack),
            (asked.aim == Aim::Read, Never::ReadWrites),
            (effect.principal != asked.by, Never::Impersonated),
        ] {
            if is_broken {
                self.broken.insert(property);
            }
        }
    }

    fn watch_answer(&mut self, asked: &Asked, effects: &[Effect], answer: &Answer) {
        let status = answer.headers.get("semel-status").unwrap_or_default();
        let has_outcome = matches!(status, "executed" | "replayed");
        let told = effect_in(&answer.body);
        if has_outcome && matches!(asked.aim, Aim::Execute | Aim::LookUp) {
            self.watch_outcome(&asked.id, told, effects);
            if !matches!(answer.status, 200..=299 | 400..=499) {
                self.broken.insert(Never::NoOutcome);
            }
        }
        let effect = told.and_then(|number| effects.get(number.checked_sub(1)?));
        let tells_of_record = matches!(status, "acknowledged" | "outcome-expired" | "cancelled" | "poisoned");
        let whose = if tells_of_record { first_of(effects, &asked.id).map(|(_, effect)| effect) } else { effect };
        let may_know = asked.aim == Aim::Read || asked.by == ADMINISTRATOR;
        if whose.is_some_and(|effect| effect.principal != asked.by) && !may_know {
            self.broken.insert(Never::Learnt);
        }
        let has_payload = asked.aim == Aim::Execute && has_outcome;
        if has_payload && effect.is_some_and(|effect| effect.payload != asked.payload) {
            self.broken.insert(Never::Foreign);
        }
        if asked.aim == Aim::Cancel && has_outcome && told.is_none() {
            self.watch_claim(&asked.id, Executed::No, Retry::Never, effects);
        }
        if has_outcome && matches!(asked.aim, Aim::DeleteRecord | Aim::DeleteKey) {
            self.watch_deletion(asked, answer, effects);
        }
        if status == "acknowledged" && !self.acknowledged.contains(&asked.id) {
            self.broken.insert(Never::Freed);
        }
        if status == "poisoned" && self.crashes.get(&asked.id).is_none_or(|count| *count < CRASHES_MAX) {
            self.broken.insert(Never::Blamed);
        }
        if matches!(status, "outside-window" | "forgotten") {
            self.fence_s = self.fence_s.max(asked.first_sent_s.map_or(0, |first_sent_s| first_sent_s + 1));
        }
        self.seen.extend(match status {
            "replayed" if asked.place.is_some_and(|place| self.session.is_over(place.epoch)) => {
                Some(Sometimes::OldReplay)
            }
            "outcome-expired" if asked.place.is_some() => Some(Sometimes::Stub),
            "sequence-gap" => Some(Sometimes::Gap),
            "fenced" => Some(Sometimes::Fenced),
            "session-unknown" => Some(Sometimes::SessionUnknown),
            "replayed" => Some(Sometimes::Replay),
            "acknowledged" | "outcome-expired" => Some(Sometimes::Tombstone),
            "attempt-expired" => Some(Sometimes::Late),
            "outside-window" => Some(Sometimes::Fence),
            "forgotten" => Some(Sometimes::Forgot),
            "forbidden" => Some(Sometimes::Forbidden),
            "cancelled" => Some(Sometimes::Cancelled),
            "fingerprint-mismatch" => Some(Sometimes::Mismatch),
            "poisoned" => Some(Sometimes::Poisoned),
            "capacity" => Some(Sometimes::Full),
            "rolled-back" => Some(Sometimes::RolledBack),
            "unavailable" => Some(Sometimes::Ends),
            "executed" if asked.aim == Aim::Cancel && told.is_some() => Some(Sometimes::RanBefore),
            _ => None,
        });
    }

    fn watch_deletion(&mut self, asked: &Asked, answer: &Answer, effects: &[Effect]) {
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if let Some(fence_s) = body["fence"].as_i64() {
            self.seen.insert(Sometimes::Deleted);
            self.forgets_before(fence_s);
        }
        let executed = body["executed"].as_str().and_then(Executed::from_wire);
        if let Some(executed) = executed.filter(|_| asked.aim == Aim::DeleteRecord) {
            self.watch_claim(&asked.id, executed, Retry::Never, effects);
        }
    }

    /// Somebody was told an outcome of an id. It must be that of the id's first effect.
    pub fn watch_outcome(&mut self, id: &str, told: Option<usize>, effects: &[Effect]) {
        let first = first_of(effects, id).map(|(number, _)| number + 1);
        if told.is_none() || told != first {
            self.broken.insert(Never::Different);
        }
    }

    /// Somebody was told whether an id ran.
    pub fn watch_claim(&mut self, id: &str, executed: Executed, retry: Retry, effects: &[Effect]) {
        let has_run = first_of(effects, id).is_some();
        if executed == Executed::Yes && !has_run {
            self.broken.insert(Never::YesOfNone);
        }
        if executed == Executed::No && retry == Retry::Never {
            self.denied.insert(id.to_owned());
            if has_run {
                self.broken.insert(Never::NoForGood);
            }
        }
    }
}

fn first_of<'a>(effects: &'a [Effect], id: &str) -> Option<(usize, &'a Effect)> {
    effects.iter().enumerate().find(|(_, effect)| effect.id == id)
}

/// Divides the effects of one commit, those after the first `known`, among its requests. `came`: their ids and answers, in the
/// order of arrival. Returns the effects of each request, and whether the commit has no other effects, in that order.
pub fn own_effects(effects: &[Effect], known: usize, came: &[(&str, &Answer)]) -> (Vec<Range<usize>>, bool) {
    let is_executed = |answer: &Answer| answer.headers.get("semel-status") == Some("executed");
    let is_denied = |answer: &Answer| Claim::of(answer).is_some_and(|claim| claim.executed == Executed::No);
    let mut next = known;
    let own = |(n, (id, answer)): (usize, &(&str, &Answer))| {
        // If an id occurs again, an effect that this attempt denies or does not know of belongs to the later attempt.
        let mut later = came[n + 1..].iter().filter(|(later, _)| later == id);
        let is_later = later.any(|(_, later)| is_denied(answer) || is_executed(later)) && !is_executed(answer);
        let begin = next;
        if effects.get(next).is_some_and(|effect| effect.id == *id) && !is_later {
            next += 1;
        }
        begin..next
    };
    let own: Vec<_> = came.iter().enumerate().map(own).collect();
    (own, next >= effects.len())
}
