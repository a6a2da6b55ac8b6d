//! The rows of a session that are stored nowhere but in memory, where the machine is: nobody else can see them, so no store is asked, and a change
//! takes no call of the host.
//!
//! Invariant: a row changes as it does in a store, by [`Change::made`].

use super::host::Rows;
use semel_core::client::Ticket;
use semel_core::client::numbered::Numbered;
use semel_core::client::session::row::encode;
use semel_core::client::session::{Change, Changed, Entry};

/// The rows, with their ids.
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

    /// Adds all of them, as they are stored elsewhere.
    pub(crate) fn list(&self, rows: &mut Rows) {
        for (_, (id, row)) in self.0.iter() {
            rows.push((id.clone(), encode(row)));
        }
    }
}
