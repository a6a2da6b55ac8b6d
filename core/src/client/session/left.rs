//! What holders before have left, as it is stored.
//!
//! Invariants:
//! - Who may live keeps what its callers wait for. Who is fenced takes nothing.
//! - What nobody waits for is for who holds the session, from the take-over on: so it comes before what that one is asked for, as it was
//!   called before.
//! - Of its own, a holder leaves one after the other, in the order of the calls: whoever finds one has found those before it.
//! - What can't be read stops all: it must not be sent past.

use super::super::in_hand::Overview;
use super::super::row::Unreadable;
use super::machine::Session;
use super::request::{Request, Stage};
use super::row::{self, Change, Entry};
use crate::rules::{Rule, holds};

/// Whether all of what is stored can be read, before a session is taken over.
pub fn are_readable(rows: &[(String, Vec<u8>)]) -> Result<(), Unreadable> {
    rows.iter().try_for_each(|(_, bytes)| row::decode(bytes).map(drop))
}

impl Session {
    /// Takes what is stored: once the session is taken over, and when an owner has gone. `lives`: whether an owner certainly lives;
    /// `None` where that can't be told.
    pub fn stored(
        &mut self,
        now_ms: i64,
        rows: &[(String, Vec<u8>)],
        lives: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<(), Unreadable> {
        are_readable(rows)?;
        self.is_blind = lives.is_none();
        // Who holds the session no more goes on with nobody's requests: what is new to its epoch would never run.
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
                // What had not run by the take-over never runs under its place.
                let unheard = unheard.map(|place| place.seq).filter(|seq| *seq <= self.taken_over_seq);
                self.unheard_seq = self.unheard_seq.into_iter().chain(unheard).min();
                continue;
            }
            // As they were called. A place tells nothing of that: some may have had another since.
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

    /// Who is fenced leaves what nobody waits for here. What it took over itself, the next holder finds as it is.
    pub(super) fn leave(&mut self) {
        let Some(epoch) = self.epoch.filter(|_| self.ended.is_some()) else { return };
        let is_left = |request: &Request| matches!(request.stage, Stage::Left);
        let taken = self.requests.iter().filter(|(_, request)| is_left(request) && request.entry.orphaned > 0);
        for ticket in taken.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.requests.remove(&ticket);
        }
        let is_own = |request: &Request| request.is_wanted_by_nobody_here() && request.entry.orphaned == 0;
        let first = self.requests.iter().find(|(_, request)| is_own(request));
        let first = first.filter(|(_, request)| is_left(request)).map(|(ticket, _)| *ticket);
        if let Some(ticket) = first {
            let by = self.settings.owner.clone();
            self.with(ticket, |request, actions| request.change(actions, ticket, Change::Leave { by, epoch }));
        }
    }

    /// What is stored of this session without an answer.
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
