//! Places of sessions on a desk.
//!
//! Invariant: a session that is here says what its rows are, once all that waits is written.

use super::insert;
use crate::server::record::Outcome;
use crate::server::sessions::rows;
use crate::server::sessions::state::{Rows, Session, Taken, TakenState};
use crate::server::sql::{Sql, SqlError, Value};
use crate::session::SessionName;
use std::collections::BTreeMap;

#[derive(Debug)]
struct Open {
    session: Session,
    /// The lowest number that has a row in the tables; `None`: none has.
    stored_first: Option<i64>,
    /// Those to be written.
    places: BTreeMap<i64, Taken>,
    /// The places up to this one are to be deleted; 0: none.
    deleted_seq: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<SessionName, Open>);

impl Places {
    pub fn open(&mut self, name: &SessionName, session: &Session) {
        let stored_first = session.rows.map(|rows| rows.first);
        let open = Open { session: session.clone(), stored_first, places: BTreeMap::new(), deleted_seq: 0 };
        self.0.insert(name.clone(), open);
    }

    pub fn session(&self, name: &SessionName) -> Option<Session> {
        Some(self.0.get(name)?.session.clone())
    }

    fn numbered(&mut self, session: i64) -> Option<&mut Open> {
        self.0.values_mut().find(|open| open.session.number == session)
    }

    /// The place of a number; the outer `None`: it is not known here.
    pub fn taken(&self, session: i64, seq: i64) -> Option<Option<Taken>> {
        let open = self.0.values().find(|open| open.session.number == session)?;
        match open.places.get(&seq) {
            Some(taken) => Some(Some(taken.clone())),
            None => (seq <= open.deleted_seq).then_some(None),
        }
    }

    /// Takes the next place of a session. Answers of how many bytes its outcome is; `None`: it has to be written at once.
    pub fn put(&mut self, session: i64, seq: i64, taken: &Taken) -> Option<usize> {
        let open = self.numbered(session)?;
        if seq != open.session.last_seq() + 1 {
            return None;
        }
        let first = open.session.rows.map_or(seq, |rows| rows.first);
        open.session.rows = Some(Rows { first, last: seq, is_last_acknowledged: false, last_ms: taken.at_ms });
        open.places.insert(seq, taken.clone());
        match &taken.state {
            TakenState::Executed(_, outcome) => Some(outcome.body.len()),
            _ => Some(0),
        }
    }

    /// Takes that the places up to a number are gone, but for the last; whether that is all there is to do.
    pub fn delete(&mut self, session: i64, up_to_seq: i64) -> bool {
        let Some(open) = self.numbered(session) else { return false };
        let Some(rows) = open.session.rows.as_mut().filter(|rows| up_to_seq < rows.last) else { return false };
        rows.first = rows.first.max(up_to_seq + 1);
        open.deleted_seq = open.deleted_seq.max(up_to_seq);
        open.places.retain(|seq, _| *seq > up_to_seq);
        true
    }

    /// Writes what has changed.
    pub fn write(self, sql: &dyn Sql) -> Result<(), SqlError> {
        for Open { session, stored_first, places, deleted_seq } in self.0.into_values() {
            if stored_first.is_some_and(|first| first <= deleted_seq) {
                rows::write_deleted(sql, session.number, deleted_seq)?;
            }
            // Those that ran in one commit differ in little.
            let mut alike: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for (seq, taken) in &places {
                match &taken.state {
                    TakenState::Executed(fingerprint, Outcome { status, headers, body }) => {
                        let common = (taken.epoch, taken.at_ms, *status, headers.to_lines());
                        let own: [Value; 3] = [(*seq).into(), fingerprint.as_bytes().into(), body.as_slice().into()];
                        alike.entry(common).or_default().push(own);
                    }
                    _ => rows::write_taken(sql, session.number, *seq, taken)?,
                }
            }
            for ((epoch, at_ms, status, headers), own) in alike {
                let common =
                    [session.number.into(), epoch.into(), at_ms.into(), i64::from(status).into(), headers.into()];
                insert(sql, (rows::INTO, SELECT), &common, &own)?;
            }
        }
        Ok(())
    }
}

/// In the order of [`rows::INTO`].
const SELECT: &str = "?1, column1, ?2, ?3, 1, column2, ?4, ?5, column3";
