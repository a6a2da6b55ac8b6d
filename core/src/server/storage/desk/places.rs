//! Places of sessions on a desk.
//!
//! Invariant: the rows of a session that is known here are those that the tables will have once all that waits is written.

use super::shape::{self, PRINT, Shape, number};
use crate::fingerprint::Fingerprint;
use crate::server::storage::record::Outcome;
use crate::server::storage::sessions::rows;
use crate::server::storage::sessions::state::{Rows, Session, Taken, TakenState};
use crate::server::storage::sql::{Sql, SqlError};
use crate::session::SessionName;
use std::sync::LazyLock;

#[derive(Debug)]
struct Open {
    name: SessionName,
    session: Session,
    /// The first and the last number that have a row in the tables.
    stored: Option<(i64, i64)>,
    /// Places to be written, with contiguous numbers.
    places: Vec<(i64, Taken)>,
    /// The places up to this number are to be deleted; 0 means none.
    deleted_seq: i64,
}

/// The sessions that a desk knows, with what waits of their places. Few sessions are used together.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Open>);

impl Places {
    pub fn open(&mut self, name: &SessionName, session: &Session) {
        let stored = session.rows.map(|rows| (rows.first, rows.last));
        let (name, session) = (name.clone(), session.clone());
        self.0.push(Open { name, session, stored, places: Vec::new(), deleted_seq: 0 });
    }

    pub fn session(&self, name: &SessionName) -> Option<Session> {
        Some(self.0.iter().find(|open| open.name == *name)?.session.clone())
    }

    fn numbered(&mut self, session: i64) -> Option<&mut Open> {
        self.0.iter_mut().find(|open| open.session.number == session)
    }

    /// The place of a number. The outer `None` means that it is not known here.
    pub fn taken(&self, session: i64, seq: i64) -> Option<Option<Taken>> {
        let open = self.0.iter().find(|open| open.session.number == session)?;
        match open.places.iter().find(|(number, _)| *number == seq) {
            Some((_, taken)) => Some(Some(taken.clone())),
            None => (seq <= open.deleted_seq).then_some(None),
        }
    }

    /// Takes the next place of a session, and returns the size of its outcome in bytes; `None` if it must be written at once instead.
    pub fn put(&mut self, session: i64, seq: i64, taken: &Taken) -> Option<usize> {
        let open = self.numbered(session)?;
        // Only under a checker that has switched a rule off is it any other number.
        if seq != open.session.last_seq() + 1 {
            return None;
        }
        let first = open.session.rows.map_or(seq, |rows| rows.first);
        open.session.rows = Some(Rows { first, last: seq, is_last_acknowledged: false, last_ms: taken.at_ms });
        open.places.push((seq, taken.clone()));
        match &taken.state {
            TakenState::Executed(_, outcome) => Some(outcome.body.len()),
            _ => Some(0),
        }
    }

    /// Takes note that the places up to a number are deleted, but never the last. Returns whether nothing else has to be done.
    pub fn delete(&mut self, session: i64, up_to_seq: i64) -> bool {
        let Some(open) = self.numbered(session) else { return false };
        let Some(rows) = open.session.rows.as_mut().filter(|rows| up_to_seq < rows.last) else { return false };
        rows.first = rows.first.max(up_to_seq + 1);
        open.deleted_seq = open.deleted_seq.max(up_to_seq);
        open.places.retain(|(seq, _)| *seq > up_to_seq);
        true
    }

    /// Writes all that waits.
    pub fn write(self, sql: &dyn Sql) -> Result<(), SqlError> {
        for Open { session, stored, places, deleted_seq, .. } in self.0 {
            let (first, last) = stored.unwrap_or((1, 0));
            let mut gone = first..=deleted_seq.min(last);
            let mut executed: Vec<(i64, &Taken, &Outcome, &Fingerprint)> = Vec::new();
            for (seq, taken) in &places {
                match &taken.state {
                    TakenState::Executed(fingerprint, outcome) => executed.push((*seq, taken, outcome, fingerprint)),
                    _ => rows::write_taken(sql, session.number, *seq, taken)?,
                }
            }
            // Outcomes of one commit differ in little: mostly, all of them are like the first.
            while let Some(&(_, first, outcome, _)) = executed.first() {
                let is_alike = |(_, taken, other, _): &(i64, &Taken, &Outcome, &Fingerprint)| {
                    (taken.epoch, taken.at_ms, other.status) == (first.epoch, first.at_ms, outcome.status)
                        && other.headers == outcome.headers
                };
                let (mut own, mut over) = (Vec::new(), Vec::new());
                for (seq, _, outcome, fingerprint) in executed.iter().filter(|each| is_alike(each)) {
                    let row = |gone| shape::row(fingerprint, &[*seq, gone], &[&outcome.body]);
                    match gone.next() {
                        Some(gone) => over.push(row(gone)),
                        None => own.push(row(0)),
                    }
                }
                executed.retain(|each| !is_alike(each));
                let (epoch, at_ms, status) = (first.epoch.into(), first.at_ms.into(), i64::from(outcome.status).into());
                let common = [session.number.into(), epoch, at_ms, status, outcome.headers.to_lines().into()];
                SHAPE.replace(sql, &common, over)?;
                SHAPE.insert(sql, &common, own)?;
            }
            if !gone.is_empty() {
                rows::write_deleted(sql, session.number, deleted_seq)?;
            }
        }
        Ok(())
    }
}

/// Common: session, epoch, clock, status and headers. Each row's bytes: its number, that of the place whose row it replaces, and the body.
static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
    let body = format!("substr(column1, {})", shape::at(2));
    let values = ["?1", &number(0), "?2", "?3", "1", PRINT, "?4", "?5", &body];
    let is_gone = format!("session = +?1 AND seq = {}", number(1));
    Shape::new("INSERT OR REPLACE", "semel_places", (rows::COLUMNS, &values), 5, &is_gone)
});
