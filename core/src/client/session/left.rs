//! What earlier holders have left in the store, and who goes on with it.
//!
//! Invariants:
//! - An owner that may live keeps the requests that its callers wait for. A fenced holder takes over nothing.
//! - Requests that no caller waits for belong to the holder of the session, from the take-over on. They were called
//!   before its own calls, so they come first.
//! - A holder leaves its own requests one at a time, in the order of the calls, and none while the row of an earlier one
//!   may still have to be left, or be taken over once its owner has gone. So whoever finds one finds all those before it.
//! - A row that can't be read stops everything, since it may hold an earlier request.

use super::super::in_hand::Overview;
use super::super::row::Unreadable;
use super::machine::Session;
use super::request::{Request, Stage};
use super::row::{self, Change, Entry};
use crate::rules::{Rule, holds};

/// Checks, before a session is taken over, that all stored rows can be read.
pub fn are_readable(rows: &[(String, Vec<u8>)]) -> Result<(), Unreadable> {
    rows.iter().try_for_each(|(_, bytes)| row::decode(bytes).map(drop))
}

impl Session {
    /// Takes over what is stored. The host calls this once the session is taken over, and when an owner has gone.
    /// `lives`: whether an owner certainly lives; `None` if nobody can tell.
    pub fn stored(
        &mut self,
        now_ms: i64,
        rows: &[(String, Vec<u8>)],
        lives: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<(), Unreadable> {
        are_readable(rows)?;
        self.is_blind = lives.is_none();
        // A holder that is fenced goes on with nobody's requests: they would need a place of its epoch, and so never
        // run.
        let Some(epoch) = self.epoch.filter(|_| self.ended.is_none()) else { return Ok(()) };
        let mut left: Vec<(&String, Entry)> = Vec::new();
        self.unheard_seq = None;
        for (id, bytes) in rows {
            let entry = row::decode(bytes)?;
            if entry.session != self.session || entry.owner == self.settings.owner {
                continue;
            }
            self.last_turn = self.last_turn.max(entry.turn);
            if lives.is_some_and(|lives| lives(&entry.owner)) && !entry.is_left_before(epoch) {
                let unheard = entry.place.filter(|_| entry.answered.is_none() && !self.has_waited);
                // A request that had not run by the take-over never runs under its place, so its owner waits for no
                // answer there.
                let unheard = unheard.map(|place| place.seq).filter(|seq| *seq <= self.taken_over_seq);
                self.unheard_seq = self.unheard_seq.into_iter().chain(unheard).min();
                continue;
            }
            // In the order of the calls. The place does not say that order: some requests may have got another place
            // since.
            let order = |entry: &Entry| if holds(Rule::LeftInOrder) { entry.turn } else { -entry.turn };
            left.insert(left.partition_point(|(_, other)| order(other) <= order(&entry)), (id, entry));
        }
        for (id, entry) in left {
            if self.requests.iter().any(|(_, request)| request.id == *id) {
                continue;
            }
            let change = Change::Adopt { by: self.settings.owner.clone(), from: entry.owner.clone(), epoch };
            let ticket = self.insert(id.clone(), entry, false);
            self.with(ticket, |request, actions| request.change(actions, ticket, change));
        }
        self.advance(now_ms);
        Ok(())
    }

    /// Leaves the requests that no caller waits for here, if this holder is fenced. Those that it took over itself need
    /// no change: the next holder finds them as they are.
    pub(super) fn leave(&mut self) {
        let Some(epoch) = self.epoch.filter(|_| self.ended.is_some()) else { return };
        let is_left = |request: &Request| matches!(request.stage, Stage::Left);
        let taken = self.requests.iter().filter(|(_, request)| is_left(request) && request.entry.orphaned > 0);
        for ticket in taken.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.requests.remove(&ticket);
        }
        // No later holder runs what is only handed over here, or what its row says was given up.
        let may_run = |Request { entry, stage, .. }: &Request| {
            entry.orphaned == 0 && !entry.is_cancelling && !matches!(stage, Stage::Delivering)
        };
        let first = self.requests.iter().find(|(_, request)| may_run(request));
        let first = first.filter(|(_, request)| is_left(request)).map(|(ticket, _)| *ticket);
        if let Some(ticket) = first {
            let by = self.settings.owner.clone();
            self.with(ticket, |request, actions| request.change(actions, ticket, Change::Leave { by, epoch }));
        }
    }

    /// The requests of this session that are stored without an answer. `rows`: all rows of the store.
    pub fn overview(&self, rows: &[(String, Vec<u8>)]) -> Result<Vec<Overview>, Unreadable> {
        let mut all = Vec::new();
        for (id, bytes) in rows {
            let entry = row::decode(bytes)?;
            if entry.session != self.session || entry.answered.is_some() {
                continue;
            }
            let own = self.requests.iter().find(|(_, request)| request.id == *id);
            let state = match own {
                None => "elsewhere",
                Some((_, request)) if request.answered.is_some() => "answered",
                Some((ticket, _)) if self.paused.or(self.stalled) == Some(*ticket) => "paused",
                Some(_) => "sending",
            };
            let attempts = own.map_or(0, |(_, request)| request.attempts);
            all.push(Overview {
                id: id.clone(),
                method: entry.draft.method.clone(),
                target: entry.draft.target.clone(),
                attempts,
                state,
            });
        }
        Ok(all)
    }
}
