//! What holders before have left, as it is stored.
//!
//! Invariants:
//! - Who may live keeps what it has. Who is fenced takes nothing.
//! - What can't be read stops all: it must not be sent past.

use super::super::in_hand::Overview;
use super::super::row::Unreadable;
use super::machine::Session;
use super::row::{self, Change, Entry};

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
        // Who holds the session no more goes on with nobody's requests: what is new to its epoch would never run.
        if self.ended.is_some() {
            return Ok(());
        }
        let mut left: Vec<(&String, Entry)> = Vec::new();
        for (id, bytes) in rows {
            let entry = row::decode(bytes)?;
            if entry.session != self.session || entry.owner == self.settings.owner {
                continue;
            }
            self.last_turn = self.last_turn.max(entry.turn);
            if lives.is_some_and(|lives| lives(&entry.owner)) {
                continue;
            }
            // What has a place comes before what has none.
            let order = |entry: &Entry| (entry.place.is_none(), entry.place, entry.turn);
            left.insert(left.partition_point(|(_, other)| order(other) <= order(&entry)), (id, entry));
        }
        for (id, entry) in left {
            if self.requests.values().any(|request| request.id == *id) {
                continue;
            }
            let change = Change::Adopt { by: self.settings.owner.clone(), from: entry.owner.clone() };
            let ticket = self.insert(id.clone(), entry, false);
            self.with(ticket, |request, actions| request.change(actions, ticket, change));
        }
        self.advance(now_ms);
        Ok(())
    }

    /// Who owns a row of this session, for who looks whether they live.
    pub fn owner_of(&self, row: &[u8]) -> Option<String> {
        row::decode(row).ok().filter(|entry| entry.session == self.session).map(|entry| entry.owner)
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
