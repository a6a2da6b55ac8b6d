//! What a desk knows of records from those before it.
//!
//! A change asks the tables for two rows before it runs: its own, which is not there, and that of the request which it acknowledges, which came a moment
//! ago. Both are known here for as long as only desks change the records of a key.
//!
//! Invariants:
//! - What is here is what the tables have. Whatever else changes them, or may have, has all of it forgotten.
//! - No effect rests on it alone. The row of a request that is taken for new is inserted, and the tables take no second one of an id; one that is
//!   written over another is counted as it is written. So what is wrong here ends in an error, which undoes all and has the tables asked. Of a request
//!   that is executed elsewhere, which can't be undone, they are asked at once.
//! - It is bounded.

use crate::id::RequestId;
use crate::server::storage::record::{Outcome, Record, State};
use crate::server::storage::rows;
use crate::server::storage::sql::{Sql, SqlError};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Of so many records something is known: a frame has 256 requests, and two are under way.
const RECENT_MAX: usize = 512;
/// So many ids are read to begin with.
const FIRST_MAX: usize = 64;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Recent {
    /// Ids that have a row, with the record without fingerprint and outcome; `None`: it is to be read.
    rows: BTreeMap<RequestId, Option<Box<Record>>>,
    /// Above this, no other id has a row; `None`: nobody knows.
    above: Option<String>,
    /// Whether a desk was here before, and nothing has changed since but what it wrote.
    is_warm: bool,
}

static NO_OUTCOME: LazyLock<Arc<Outcome>> = LazyLock::new(|| Arc::new(Outcome::default()));

impl Recent {
    /// Asks the tables once for what the last of the ids are, unless that is known, or nobody has been here before: then it may well be the only one.
    pub fn begin(&mut self, sql: &dyn Sql) -> Result<(), SqlError> {
        if self.above.is_some() || !std::mem::replace(&mut self.is_warm, true) {
            return Ok(());
        }
        let last = rows::last_ids(sql, FIRST_MAX)?;
        let is_all = last.len() < FIRST_MAX;
        self.above = last.last().filter(|_| !is_all).map(|id| id.as_str().to_owned()).or(Some(String::new()));
        for id in last {
            self.rows.entry(id).or_default();
        }
        Ok(())
    }

    /// Whether the tables have a row of an id; `None`: nobody knows.
    pub fn has(&self, id: &RequestId) -> Option<bool> {
        // Most that come are after all that came: one look instead of ten.
        let may_be_here = self.rows.last_key_value().is_some_and(|(last, _)| id <= last);
        if may_be_here && self.rows.contains_key(id) {
            return Some(true);
        }
        self.above.as_ref().filter(|above| id.as_str() > above.as_str()).map(|_| false)
    }

    /// The record of an id, without fingerprint and outcome; the outer `None`: it is to be read.
    pub fn bare(&self, id: &RequestId) -> Option<Option<&Record>> {
        match self.rows.get(id) {
            Some(record) => record.as_deref().map(Some),
            None => self.has(id).map(|_| None),
        }
    }

    /// Takes what was written of an id.
    pub fn wrote(&mut self, id: RequestId, record: Option<Record>) {
        let Some(mut record) = record else {
            self.rows.remove(&id);
            return;
        };
        // Of others a decision takes more than is left here.
        let known = match &mut record.state {
            State::Executed(_, outcome) => {
                *outcome = NO_OUTCOME.clone();
                Some(Box::new(record))
            }
            _ => None,
        };
        self.rows.insert(id, known);
    }

    /// Lets the lowest ids go, where there are too many.
    pub fn trim(&mut self) {
        let mut highest = None;
        while self.rows.len() > RECENT_MAX {
            highest = self.rows.pop_first();
        }
        // They have rows all the same.
        if let (Some((highest, _)), Some(above)) = (highest, &mut self.above)
            && highest.as_str() > above.as_str()
        {
            *above = highest.as_str().to_owned();
        }
    }
}
