//! The effects of the key's handler: the host asks what to send, and reports what came of it.
//!
//! Invariant: a parked effect, or one that may have been parked, is in the next report to the registry, and has a line in the log.

use super::Engine;
use crate::server::effects::{Heard, Sending};
use crate::server::handler::Handler;
use crate::server::log;
use crate::server::storage::sql::{Sql, SqlError};

impl<H: Handler> Engine<H> {
    /// What to send now; `None` if there is nothing. Each request is returned once, and then waits for [`Engine::sent`].
    /// `chance`: a random number that was never given before, not even to an object whose key was restored since.
    pub fn send_next(&mut self, sql: &dyn Sql, wall_ms: i64, chance: i64) -> Result<Option<Sending>, SqlError> {
        if !self.has_to_send() {
            return Ok(None);
        }
        self.look_at_clock(sql, wall_ms)?;
        let is_touched = self.loaded.as_ref().is_some_and(|loaded| loaded.versions.engine > 0);
        self.outbox.0.send_next(sql, wall_ms, chance, is_touched)
    }

    /// Takes the host's report on what was sent. A late report, for a lane that has gone on since, changes nothing.
    /// Returns the line of the log if an effect was parked, which is told nobody else.
    pub fn sent(
        &mut self,
        sql: &dyn Sql,
        wall_ms: i64,
        told: (i64, i64),
        heard: Heard,
    ) -> Result<Option<String>, SqlError> {
        // Nothing was sent then. Without this, the compiler could not leave the rest out.
        if !H::EMITS {
            return Ok(None);
        }
        let clock_ms = self.look_at_clock(sql, wall_ms);
        let is_parked = self.outbox.0.sent(sql, (clock_ms, wall_ms), told, heard);
        if !matches!(is_parked, Ok(false)) {
            self.chores.parked();
        }
        Ok(is_parked?.then(|| log::parked(wall_ms, self.outbox.0.own.as_ref())))
    }

    /// Whether there may be an effect to send, now or later.
    pub fn has_to_send(&self) -> bool {
        H::EMITS && self.outbox.0.has_to_send()
    }

    /// When the object must be awake to send, in Unix ms, in case it dies; `None` if no effect is known to wait.
    pub fn wakes_to_send_at(&self, wall_ms: i64) -> Option<i64> {
        if H::EMITS { self.outbox.0.wakes_at(wall_ms) } else { None }
    }

    fn look_at_clock(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<i64, SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        Ok(self.loaded.insert(loaded).clock_ms)
    }
}
