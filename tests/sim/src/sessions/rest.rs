//! How the run comes to rest: what still waits, and for which rows the application opens a session.
//!
//! Invariant: only rows of a session that nobody may open are left in the end.

use super::batches::Batcher;
use super::holder::Which;
use super::run::{Event, REOPENS_MS, Run};
use semel_core::client::session::Entry;

impl Run {
    /// What still waits.
    pub(super) fn pending(&self) -> String {
        let mut all = Vec::new();
        for tab in self.tabs.iter().filter(|tab| tab.is_open) {
            all.extend(tab.callers.values().map(|number| format!("{number} waits in {}", tab.owner)));
            if tab.machine.counts().0 > 0 {
                all.push(format!("{} has {:?} in hand", tab.owner, tab.machine.counts()));
            }
        }
        for rows in &self.rows {
            let left = rows.entries().filter(|(_, entry)| self.may_open(&entry.session));
            all.extend(left.map(|(id, entry)| format!("{id} is left at {:?} by {}", entry.place, entry.owner)));
        }
        all.extend(self.batchers.iter().filter_map(Batcher::pending));
        all.join("; ")
    }

    /// Whether a session may be opened. A key with the most sessions that it may have takes no other.
    fn may_open(&self, session: &str) -> bool {
        let mut parts = session.split('\n').skip(1);
        let (key, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let seen = self.server.seen(key);
        let has_room = seen.is_none_or(|seen| {
            seen.sessions.contains_key(name) || (seen.count as u64) < self.plan.sessions.sessions_max
        });
        has_room && !self.is_given_up(key, name)
    }

    /// Opens the session of rows that nobody sends again, one at a time, as the application does.
    pub(super) fn reopen(&mut self) {
        let is_left = |entry: &Entry| {
            let owner = self.tabs.iter().find(|tab| tab.is_open && tab.owner == entry.owner);
            owner.is_none_or(|owner| owner.is_over && entry.orphaned > 0)
        };
        let mut left = None;
        for (browser, rows) in self.rows.iter().enumerate() {
            left = left.or_else(|| {
                let (_, entry) = rows.entries().find(|(_, entry)| is_left(entry) && self.may_open(&entry.session))?;
                Some((browser, entry.session.clone()))
            });
        }
        let Some((browser, session)) = left else { return };
        let mut parts = session.split('\n');
        let (outbox, key, name) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let user = crate::tab::USERS.iter().position(|user| Some(*user) == outbox).unwrap_or(0);
        let account = key.trim_start_matches("keys/").parse().unwrap_or(0);
        self.open(Which { browser, user, account, name: name.to_owned() }, false);
        self.push(self.now_ms + REOPENS_MS, Event::Reopen);
    }
}
