//! A key goes back to a backup.
//!
//! Invariant: nothing of the object that lived survives, except what is not its own: the clock of the machine, and the
//! settings.

use super::Server;
use crate::mutant::Twin;
use semel_core::server::Sql;
use semel_support::{Database, START_MS};

/// What is committed at a key.
pub struct Copy {
    database: Database,
    forgotten_s: i64,
}

impl Server {
    /// A copy of what is committed at a key.
    pub fn copy(&self, key: &str) -> Option<Copy> {
        let keyed = self.keys.get(key)?;
        Some(Copy { database: keyed.world.database.copy(), forgotten_s: keyed.forgotten_s })
    }

    /// Ends the object of a key, and puts its database back.
    pub fn put_back(&mut self, key: &str, copy: &Copy, at_ms: i64) {
        let (is_placeless, is_epochless) = (self.is_twin(Twin::PutBackPlaceless), self.is_twin(Twin::PutBackEpochless));
        let Some(keyed) = self.keys.get_mut(key) else { return };
        keyed.world.wall_ms = START_MS + at_ms + keyed.ahead_ms;
        keyed.world.restart();
        keyed.world.database = copy.database.copy();
        if is_placeless {
            drop(keyed.world.database.exec("DELETE FROM semel_places", &[]));
        }
        if is_epochless {
            drop(keyed.world.database.exec("UPDATE semel_meta SET epoch = 0", &[]));
        }
        keyed.forgotten_s = copy.forgotten_s;
        keyed.died();
        keyed.look();
    }
}
