//! The rows of a session that are stored only in the module's own memory. Nobody else can see them, so no store is
//! asked, and a change needs no call of the host.
//!
//! Invariant: a row changes as it would in a store, by [`Change::made`].

use super::host::Rows;
use semel_core::client::Ticket;
use semel_core::client::numbered::Numbered;
use semel_core::client::session::row::encode;
use semel_core::client::session::{Change, Changed, Entry};

/// The rows, with their ids, by the ticket of their request.
#[derive(Debug, Default)]
pub(crate) struct Kept(Numbered<(String, Entry)>);

impl Kept {
    /// Changes the row of a request.
    pub(crate) fn change(&mut self, ticket: Ticket, id: &str, change: &Change) -> Changed {
        let Some(row) = change.made(self.0.get(&ticket).map(|(_, row)| row.clone())) else { return Changed::Not };
        self.0.remove(&ticket);
        if !change.deletes() {
            self.0.insert(ticket, (id.to_owned(), row.clone()));
        }
        Changed::Made(row)
    }

    /// Adds all rows to `rows`, encoded as in a store.
    pub(crate) fn list(&self, rows: &mut Rows) {
        for (_, (id, row)) in self.0.iter() {
            rows.push((id.clone(), encode(row)));
        }
    }
}
