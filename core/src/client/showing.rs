//! What an application can show of its requests.
//!
//! Invariant: nothing here changes anything.

use super::action::Ticket;
use super::codec;
use super::in_hand::{Overview, Request, Stage};
use super::machine::Client;
use super::row::{Row, Unreadable};

impl Client {
    /// All pending requests of this outbox, whichever tab sends them. `rows`: all rows of the store.
    pub fn overview(&self, rows: &[(String, Vec<u8>)]) -> Result<Vec<Overview>, Unreadable> {
        let mut all = Vec::new();
        for (id, bytes) in rows {
            let Row::Pending(entry) = codec::decode(bytes)? else { continue };
            if entry.outbox != self.settings.outbox {
                continue;
            }
            let own = self.in_hand(id).map(|(_, request)| request);
            all.push(Overview {
                id: id.clone(),
                method: entry.draft.method.clone(),
                target: entry.draft.target.clone(),
                attempts: own.map_or(0, |request| request.attempts),
                state: own.map_or("elsewhere", Request::state),
            });
        }
        Ok(all)
    }

    /// The number of requests in hand without an answer, and how many of them are paused.
    pub fn counts(&self) -> (usize, usize) {
        let mut counts = (0, 0);
        for request in self.requests.values() {
            if request.is_open() {
                counts.0 += 1;
                counts.1 += usize::from(matches!(request.stage, Stage::Paused));
            }
        }
        counts
    }

    /// Whether this tab sends the request, and it has no answer yet.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.requests.get(&ticket).is_some_and(Request::is_open)
    }

    /// The id, method and target of a request in hand.
    pub fn describe(&self, ticket: Ticket) -> Option<(&str, &str, &str)> {
        let request = self.requests.get(&ticket)?;
        Some((&request.id, &request.entry.draft.method, &request.entry.draft.target))
    }
}
