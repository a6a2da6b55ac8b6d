//! A key is put back to a backup, while its clients go on.
//!
//! Invariants:
//! - The decisions come from another stream of random numbers, so a run without them is as if this module did not
//!   exist.
//! - A backup contains what was durable when it was made, for the oracle too. What is on its way stays so.

use crate::mutant::{Mutant, Twin};
use crate::oracle::{Past, Violation};
use crate::server::Server;
use crate::sim::{Event, Sim};
use crate::snapshot::Snapshot;
use semel_support::Database;
use std::rc::Rc;

/// A backup of a key.
pub struct Backup {
    key: String,
    database: Database,
    past: Past,
}

impl Sim {
    pub fn set_up_backups(&mut self) {
        for _ in 0..self.plan.restores {
            for event in [Event::BackUp, Event::PutBack] {
                let at_ms = self.restoring.i64(0..self.plan.busy_ms * 2);
                self.push(at_ms, event);
            }
        }
    }

    pub fn back_up(&mut self) -> Result<(), Violation> {
        let key = format!("keys/{}", self.restoring.usize(0..self.plan.keys));
        let released = self.server.release(&key);
        self.tell(released)?;
        if let Some(database) = self.server.copy(&key) {
            self.note(|| format!("{key} is backed up"));
            self.backup = Some(Backup { past: self.oracle.past(&key), key, database });
        }
        Ok(())
    }

    pub fn put_back(&mut self) -> Result<(), Violation> {
        let Some(Backup { key, database, past }) = self.backup.take() else { return Ok(()) };
        let released = self.server.release(&key);
        self.tell(released)?;
        self.note(|| format!("{key} is put back"));
        self.server.put_back(&key, database.copy(), self.now_ms);
        self.oracle.put_back(&key, past.clone());
        self.backup = Some(Backup { key, database, past });
        Ok(())
    }
}

impl Server {
    /// A copy of what is committed at a key.
    fn copy(&self, key: &str) -> Option<Database> {
        self.keys.get(key).filter(|keyed| keyed.apart.is_none()).map(|keyed| keyed.world.database.copy())
    }

    /// Ends the object of a key, and puts its database back.
    fn put_back(&mut self, key: &str, database: Database, at_ms: i64) {
        let Some(keyed) = self.keys.get_mut(key) else { return };
        if self.mutant == Some(Mutant::Twin(Twin::PutBackBare)) {
            database.query("DELETE FROM semel_records WHERE state = 1");
        }
        keyed.world.wall_ms = semel_support::START_MS + at_ms + keyed.ahead_ms;
        keyed.world.restart();
        keyed.world.database = database;
        keyed.started_ms = keyed.world.wall_ms;
        keyed.seen = Rc::new(Snapshot::of(&keyed.world.database, None));
    }
}
