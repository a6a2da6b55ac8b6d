//! What a desk knows of records from the desks before it.
//!
//! Before a change runs, the tables are asked for two rows: its own, which does not exist, and that of the request that
//! it acknowledges, which was written a moment ago. Both are known here, as long as only desks change the records of a
//! key.
//!
//! Invariants:
//! - What is known here is what the tables have. If anything but a desk changes the tables, or may have, all of it is dropped.
//! - No effect depends on it alone. The row of a request that counts as new is inserted, and the tables refuse a second
//!   row of an id; rows written over others are counted. So a mistake here ends in an error, which undoes everything, and
//!   the tables are asked again. A request that is executed elsewhere can't be undone, so for it the tables are always
//!   asked.
//! - It is bounded.

use super::by_id::ById;
use crate::id::RequestId;
use crate::server::storage::record::{Outcome, Record, State};
use crate::server::storage::rows;
use crate::server::storage::sql::{Sql, SqlError};
use std::sync::{Arc, LazyLock};

/// How many records are remembered: a frame has 256 requests, and two frames are under way.
const RECENT_MAX: usize = 512;
/// How many ids are read at the beginning.
const FIRST_MAX: usize = 64;

/// What is known of recent records; see the module.
#[derive(Debug, Clone, Default)]
pub struct Recent {
    /// What is known of the row of an id.
    rows: ById<Row>,
    /// Above this, only those of `rows` have rows; `None` if that is not known.
    above: Option<String>,
    /// Whether a desk was here before, and only desks have changed the records since.
    is_warm: bool,
}

#[derive(Debug, Clone)]
enum Row {
    /// There is one, and this is its record without fingerprint and outcome.
    Bare(Box<Record>),
    /// There is one, which has to be read.
    Unread,
    /// There is none any more. It is dropped when there are too many.
    Gone,
}

static NO_OUTCOME: LazyLock<Arc<Outcome>> = LazyLock::new(|| Arc::new(Outcome::default()));

impl Recent {
    /// Reads the highest ids of the tables once. Does nothing if they are known, or if no desk was here before: this may
    /// well be the only request.
    pub fn begin(&mut self, sql: &dyn Sql) -> Result<(), SqlError> {
        if self.above.is_some() || !std::mem::replace(&mut self.is_warm, true) {
            return Ok(());
        }
        let last = rows::last_ids(sql, FIRST_MAX)?;
        let is_all = last.len() < FIRST_MAX;
        self.above = last.last().filter(|_| !is_all).map(|id| id.as_str().to_owned()).or(Some(String::new()));
        for id in last {
            if !self.has_row(&id) {
                self.rows.put(&id, Row::Unread);
            }
        }
        Ok(())
    }

    fn has_row(&self, id: &RequestId) -> bool {
        matches!(self.rows.get(id), Some(Row::Bare(_) | Row::Unread))
    }

    /// Whether the tables have a row of an id; `None` if that is not known.
    pub fn has(&self, id: &RequestId) -> Option<bool> {
        if self.has_row(id) {
            return Some(true);
        }
        self.above.as_ref().filter(|above| id.as_str() > above.as_str()).map(|_| false)
    }

    /// The record of an id, without fingerprint and outcome. The outer `None` means that it has to be read.
    pub fn bare(&self, id: &RequestId) -> Option<Option<&Record>> {
        match self.rows.get(id) {
            Some(Row::Bare(record)) => Some(Some(record)),
            Some(Row::Unread) => None,
            Some(Row::Gone) | None => self.has(id).map(|_| None),
        }
    }

    /// Takes note of what was written for an id.
    pub fn wrote(&mut self, id: &RequestId, record: Option<Box<Record>>) {
        let row = match record {
            Some(mut record) => match &mut record.state {
                State::Executed(_, outcome) => {
                    *outcome = NO_OUTCOME.clone();
                    Row::Bare(record)
                }
                // For other states, a decision needs more of the record than is kept here.
                _ => Row::Unread,
            },
            None => return self.rows.replace(id, Row::Gone),
        };
        self.rows.put(id, row);
    }

    /// Drops the lowest ids if there are too many.
    pub fn trim(&mut self) {
        if self.rows.len() <= RECENT_MAX {
            return;
        }
        self.rows.retain(|row| !matches!(row, Row::Gone));
        let highest = self.rows.drop_lowest(RECENT_MAX);
        // The dropped ids still have rows, so nothing is known any more up to the highest of them.
        if let (Some(highest), Some(above)) = (highest, &mut self.above)
            && highest.as_str() > above.as_str()
        {
            *above = highest.as_str().to_owned();
        }
    }
}
