//! What an attempt changes of its session.
//!
//! Invariant: crashes are counted for the next place of the current epoch, and the count ends with that place.

use super::turn::Work;
use crate::rules::{Rule, holds};
use crate::server::storage::crashes::Count;
use crate::server::storage::sessions::rows;
use crate::server::storage::sessions::state::{Session, Taken, TakenState};
use crate::server::storage::sql::SqlError;
use crate::session::{Place, SessionName};

/// What an attempt that takes no place changes of its session.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Noted<'a> {
    pub session: &'a Session,
    pub freed_seq: i64,
    pub count: Option<Count>,
}

impl Noted<'_> {
    /// Whether there is anything to write.
    pub fn is_any(&self) -> bool {
        self.freed_seq > self.session.freed_seq() || self.count.is_some()
    }
}

impl Work<'_> {
    /// The session of a name; `None` if there is none, or if it is forgotten.
    pub fn find_session(&self, name: &SessionName) -> Result<Option<Session>, SqlError> {
        Ok(rows::find(self.sql, name)?.filter(|session| !self.instant.forgets(session.used_ms())))
    }

    /// Records what became of the next place, and frees the acknowledged places.
    pub fn take(
        &mut self,
        session: &Session,
        place: &Place,
        state: TakenState,
        freed_seq: i64,
    ) -> Result<(), SqlError> {
        let taken = Taken { epoch: place.epoch, at_ms: self.instant.now_ms, state };
        rows::put_taken(self.sql, session.number, place.seq, &taken)?;
        // The last place stays even when it is acknowledged, so it can be deleted only now that another follows.
        if session.rows.is_some_and(|rows| rows.first <= freed_seq) {
            rows::delete_places(self.sql, session.number, freed_seq)?;
        }
        if session.count != Count::default() && holds(Rule::CountOfPlace) {
            rows::put_count(self.sql, session.number, Count::default())?;
        }
        self.after.sessions.used(self.instant.now_ms, self.retention_s);
        Ok(())
    }

    /// Writes what an attempt changes that took no place.
    pub fn note(&self, noted: &Noted<'_>) -> Result<(), SqlError> {
        let Noted { session, freed_seq, count } = *noted;
        if freed_seq > session.freed_seq() {
            if freed_seq < session.last_seq() || !holds(Rule::LastPlaceStays) {
                rows::delete_places(self.sql, session.number, freed_seq)?;
            } else {
                rows::delete_places(self.sql, session.number, freed_seq - 1)?;
                rows::reduce(self.sql, session.number, freed_seq)?;
            }
        }
        count.map_or(Ok(()), |count| rows::put_count(self.sql, session.number, count))
    }
}
