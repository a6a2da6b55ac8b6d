//! What its handler has sent to others: the host asks what is to leave, and tells what came of it.
//!
//! Invariant: what was parked, or may have been, is told to the registry with the next report, and has a line of the log.

use super::Engine;
use crate::server::effects::{Heard, Sending};
use crate::server::handler::Handler;
use crate::server::log;
use crate::server::storage::sql::{Sql, SqlError};

impl<H: Handler> Engine<H> {
    /// What is to be sent now; `None`: nothing. Each is told once, and waits for [`Engine::sent`]. `chance`: a number that nobody has given
    /// before, not even to an object that was put back since.
    pub fn send_next(&mut self, sql: &dyn Sql, wall_ms: i64, chance: i64) -> Result<Option<Sending>, SqlError> {
        if !self.has_to_send() {
            return Ok(None);
        }
        self.look_at_clock(sql, wall_ms)?;
        let is_touched = self.loaded.as_ref().is_some_and(|loaded| loaded.versions.engine > 0);
        self.outbox.0.send_next(sql, wall_ms, chance, is_touched)
    }

    /// What came of it. Answers are late, and nothing changes, where the lane has gone on since. Gives the line of the log where something
    /// was parked: nobody else is told.
    pub fn sent(
        &mut self,
        sql: &dyn Sql,
        wall_ms: i64,
        told: (i64, i64),
        heard: Heard,
    ) -> Result<Option<String>, SqlError> {
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

    /// Whether something may be there to be sent: now, or at its time.
    pub fn has_to_send(&self) -> bool {
        H::EMITS && self.outbox.0.has_to_send()
    }

    /// When the object has to be awake to send, should it die; `None`: nothing is known to wait.
    pub fn wakes_to_send_at(&self, wall_ms: i64) -> Option<i64> {
        if H::EMITS { self.outbox.0.wakes_at(wall_ms) } else { None }
    }

    fn look_at_clock(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<i64, SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        Ok(self.loaded.insert(loaded).clock_ms)
    }
}
