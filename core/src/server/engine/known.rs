//! What an object tells its host about its key. None of these calls is an attempt, and none writes.

use super::Engine;
use crate::header::Attempt;
use crate::message::Headers;
use crate::server::attempt::counters::Counters;
use crate::server::handler::Handler;
use crate::server::log;
use crate::server::storage::record::{Change, State};
use crate::server::storage::sql::{Sql, SqlError};
use crate::server::storage::{rows, schema, sessions};
use crate::session::Numbered;

impl<H: Handler> Engine<H> {
    /// Stands for the key in the log; `None` if the key is not known.
    pub fn key_hash(&self, sql: &dyn Sql) -> Option<String> {
        let stored = || schema::key(sql).ok().flatten();
        self.own.0.clone().or_else(stored).as_ref().map(log::key_hash)
    }

    /// How often each `Semel-Status` was answered since the object started.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many records and tombstones the key keeps, as of the last commit.
    pub fn count(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<Change, SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        Ok(self.loaded.insert(loaded).count)
    }

    /// The key's clock, for an answer that needs nothing from the storage. No later answer tells an earlier clock.
    pub fn tell_ms(&mut self, wall_ms: i64) -> i64 {
        let clock_ms = self.loaded.as_mut().map_or(&mut self.told_ms, |loaded| &mut loaded.clock_ms);
        *clock_ms = wall_ms.max(*clock_ms);
        *clock_ms
    }

    /// Whether an attempt's request has an outcome of any kind, so that its handler won't run. Writes nothing; `false` if
    /// that is not known.
    pub fn has_outcome(&self, sql: &dyn Sql, headers: &Headers) -> bool {
        // Without tables each statement would fail, with the same result.
        let Some(loaded) = self.loaded.as_ref().filter(|loaded| loaded.versions.engine > 0) else { return false };
        match Attempt::parse(headers, loaded.clock_ms) {
            Ok(Attempt { session: Some(Numbered { place, .. }), .. }) => {
                let found = sessions::rows::find(sql, &place.session);
                matches!(found, Ok(Some(session)) if place.seq <= session.last_seq())
            }
            Ok(Attempt { id: Some(id), .. }) => {
                let found = rows::find_bare(sql, &id);
                matches!(found, Ok(Some(record)) if !matches!(record.state, State::Suspect { .. }))
            }
            _ => false,
        }
    }
}
