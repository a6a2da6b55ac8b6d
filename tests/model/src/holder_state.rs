//! The state of the tabs of a session and of everything around them, and its judge.
//!
//! Invariants:
//! - A request is identified by its name, which is its body, whatever its place and whoever sends it. So the judge compares with
//!   what the application wanted, and not with what a machine or a key makes of it.
//! - The judge knows which rows there are, and what the tabs were told to do. It never asks a machine.

use crate::frames::{Frame, Part};
use crate::holder::Holder;
use crate::ledger::effect_in;
use crate::oracle::Oracle;
use crate::properties::{Never, Sometimes, Watched};
use crate::server::Server;
use crate::session_judge::Numbers;
use crate::tables::Effect;
use semel_core::client::session::Place;
use semel_core::client::session::row::decode;
use semel_core::client::{Answered, ClientCode, Failure};
use semel_core::problem::Executed;
use semel_core::server::Answer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) instant: usize,
    /// How often each tab was opened.
    pub(crate) opened: Vec<u8>,
    /// How many of its requests were made in each tab.
    pub(crate) called: Vec<usize>,
    pub(crate) has_given_up: bool,
    /// How often the store has failed.
    pub(crate) failed: u8,
    pub(crate) rows: BTreeMap<String, Vec<u8>>,
    pub(crate) holders: Vec<Option<Holder>>,
    pub(crate) frames: BTreeSet<Arc<Frame>>,
    pub(crate) server: Server,
    /// Whether tabs can tell which tabs live.
    pub(crate) knows_who_lives: bool,
    /// For each request, those that come before it.
    pub(crate) before: BTreeMap<String, Vec<String>>,
    /// The requests whose answer somebody has, and whether the answer is that they never ran and never will.
    pub(crate) told: BTreeMap<String, bool>,
    pub(crate) oracle: Oracle,
}

impl Watched for State {
    fn oracle(&self) -> &Oracle {
        &self.oracle
    }
}

impl State {
    fn breaks(&mut self, is_broken: bool, property: Never) {
        // If several tabs have the same request in hand, one may lose the answer that another gets, and overtake it. So these
        // properties are not promised then.
        let is_promised =
            self.knows_who_lives || !matches!(property, Never::OutOfOrder | Never::Freed | Never::Unheard);
        if is_broken && is_promised {
            self.oracle.broken.insert(property);
        }
    }

    fn has_run(&self, id: &str) -> bool {
        first_of(&self.server.tables.effects, id).is_some()
    }

    /// The rows that a tab finds and that no other tab has in hand come before the requests that are made in it from now on.
    pub(crate) fn finds(&mut self, at: usize) {
        let is_elsewhere = |id: &String| {
            let others = self.holders.iter().enumerate().filter(|(each, _)| *each != at);
            others.filter_map(|(_, holder)| holder.as_ref()).any(|holder| holder.tickets.contains_key(id))
        };
        let free: Vec<String> = self.rows.keys().filter(|id| !is_elsewhere(id)).cloned().collect();
        if let Some(holder) = &mut self.holders[at] {
            let new = free.into_iter().filter(|id| !holder.before.contains(id)).collect::<Vec<_>>();
            holder.before.extend(new);
        }
    }

    /// If nothing will happen by itself, and the holder has just looked at the rows, no request may be left.
    pub(crate) fn may_rest(&mut self, holder: usize) {
        let is_last = self.holders[holder].as_ref().is_some_and(|holder| !holder.is_over);
        let all_quiet = self.holders.iter().flatten().all(Holder::is_quiet);
        if is_last && all_quiet {
            let is_waited_for = self.holders.iter().flatten().any(|holder| !holder.callers.is_empty());
            let is_done = self.rows.is_empty() && !is_waited_for;
            self.breaks(!is_done, Never::Stuck);
            self.oracle.seen.extend(is_done.then_some(Sometimes::Forgotten));
        }
    }

    /// A frame leaves.
    pub(crate) fn sends(&mut self, frame: &Frame) {
        for part in frame.parts.iter().filter(|part| !part.only_acknowledges()) {
            let Some(Numbers { epoch, seq, .. }) = part.place else { continue };
            let of = |other: &Part| other.place.map(|place| (place.epoch, place.seq));
            let mut others = self.frames.iter().flat_map(|frame| &frame.parts);
            let is_anothers = others.any(|other| of(other) == Some((epoch, seq)) && other.id != part.id);
            let had_another =
                |other: &Part| other.id == part.id && of(other).is_some_and(|place| place != (epoch, seq));
            let has_moved = self.frames.iter().flat_map(|frame| &frame.parts).any(had_another);
            let is_new =
                !self.frames.iter().flat_map(|frame| &frame.parts).any(|other| of(other) == Some((epoch, seq)));
            let is_stored = self.place_of(&part.id) == Some(Place { epoch, seq });
            self.breaks(is_anothers, Never::TwoRequests);
            self.breaks(is_new && !is_stored, Never::Unstored);
            self.oracle.seen.extend(has_moved.then_some(Sometimes::Renumbered));
        }
    }

    /// A frame arrives. Nobody may still have to hear of a place that it acknowledges.
    pub(crate) fn acknowledges(&mut self, frame: &Frame) {
        let places = frame.parts.iter().filter_map(|part| part.place);
        let ack = places.max_by_key(|place| place.ack).filter(|place| place.ack > 0);
        let is_early = ack.is_some_and(|place| self.rows.keys().any(|id| self.has_still_to_hear(id, place)));
        self.breaks(is_early, Never::Unheard);
    }

    fn place_of(&self, id: &str) -> Option<Place> {
        self.rows.get(id).and_then(|row| decode(row).ok()?.place)
    }

    /// Whether nobody was told the answer of a request whose place is acknowledged, and which has run at it or may still.
    fn has_still_to_hear(&self, id: &str, Numbers { epoch, ack, .. }: Numbers) -> bool {
        let may_run = |place: &Place| place.epoch == epoch || self.has_run(id);
        let place = self.place_of(id).filter(|place| place.seq <= ack).filter(may_run);
        place.is_some() && !self.told.contains_key(id)
    }

    /// The key has answered a request of a frame.
    pub(crate) fn answers(&mut self, part: &Part, answer: &Answer) {
        let status = answer.headers.get("semel-status").unwrap_or_default();
        let has_outcome = matches!(status, "executed" | "replayed");
        if part.place.is_some() && has_outcome && !part.closes {
            self.check_outcome(&part.id, effect_in(&answer.body));
        }
        let is_lost = status == "acknowledged" && !self.told.contains_key(&part.id);
        self.breaks(is_lost, Never::Freed);
        self.breaks(status == "fingerprint-mismatch", Never::TwoRequests);
        self.oracle.seen.extend(match status {
            "fenced" => Some(Sometimes::Fenced),
            "replayed" if part.place.is_some() => Some(Sometimes::Replay),
            "acknowledged" => Some(Sometimes::Tombstone),
            "outcome-expired" => Some(Sometimes::Stub),
            "capacity" => Some(Sometimes::Full),
            "sequence-gap" => Some(Sometimes::Gap),
            "executed" if part.closes && effect_in(&answer.body).is_some() => Some(Sometimes::RanBefore),
            _ => None,
        });
    }

    /// If the key answers that a place is closed, the request there never runs.
    pub(crate) fn closes(&mut self, part: &Part, answer: &Answer) {
        let status = answer.headers.get("semel-status").unwrap_or_default();
        let is_closed = matches!(status, "executed" | "replayed") && answer.body == b"{\"state\":\"cancelled\"}";
        if part.closes && is_closed {
            self.told.insert(part.id.clone(), true);
        }
    }

    /// Judges the effects after the first `known`.
    pub(crate) fn takes_effect(&mut self, known: usize) {
        let effects = self.server.tables.effects.clone();
        for (number, effect) in effects.iter().enumerate().skip(known) {
            let (id, earlier) = (&effect.payload, &effects[..number]);
            let has_run = |id: &str| first_of(earlier, id).is_some();
            let before = self.before.get(id).into_iter().flatten();
            let is_early = before.into_iter().any(|each| !self.told.contains_key(each) && !has_run(each));
            let is_late = earlier.iter().any(|each| self.before.get(&each.payload).is_some_and(|all| all.contains(id)));
            let (is_again, is_denied) = (has_run(id), self.told.get(id) == Some(&true));
            self.breaks(is_again, Never::Twice);
            self.breaks(is_denied, Never::NoForGood);
            self.breaks(is_early || is_late, Never::OutOfOrder);
        }
    }

    fn check_outcome(&mut self, id: &str, told: Option<usize>) {
        let effects = &self.server.tables.effects;
        let effect = told.and_then(|number| effects.get(number.checked_sub(1)?));
        let is_foreign = effect.is_some_and(|effect| effect.payload != id);
        let is_first = told.is_some() && told == first_of(effects, id).map(|number| number + 1);
        self.breaks(is_foreign, Never::Foreign);
        self.breaks(!is_first, Never::Different);
    }

    /// Somebody is told what became of a request.
    pub(crate) fn tells(&mut self, id: &str, answered: &Answered) {
        match answered {
            Answered::Outcome(response) => {
                self.check_outcome(id, effect_in(&response.body));
                self.told.entry(id.to_owned()).or_default();
            }
            Answered::Failure(Failure { code, .. }) if code == ClientCode::GaveUp.as_str() => {
                self.oracle.seen.insert(Sometimes::GaveUp);
            }
            Answered::Failure(Failure { code, executed, .. }) => {
                let has_run = self.has_run(id);
                self.breaks(*executed == Executed::Yes && !has_run, Never::YesOfNone);
                self.breaks(*executed == Executed::No && has_run, Never::NoForGood);
                // An outcome that the key has kept must reach everybody who waits for it.
                let is_lost = *executed == Executed::Unknown && code != "outcome-expired";
                self.breaks(is_lost && self.knows_who_lives, Never::Different);
                *self.told.entry(id.to_owned()).or_default() |= *executed == Executed::No;
                self.oracle.seen.extend((code == "cancelled").then_some(Sometimes::Cancelled));
            }
        }
    }
}

fn first_of(effects: &[Effect], id: &str) -> Option<usize> {
    effects.iter().position(|effect| effect.payload == id)
}
