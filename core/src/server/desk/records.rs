//! Records on a desk.
//!
//! Invariant: of an id that is here, what is known is what the tables have, or are to have.

use super::insert;
use crate::id::RequestId;
use crate::rules::{Rule, holds};
use crate::server::record::{Record, State};
use crate::server::rows;
use crate::server::sql::{Sql, SqlError, Value};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct Known {
    /// `None`: there is none.
    record: Option<Record>,
    /// Whether fingerprint and outcome are left out.
    is_bare: bool,
    /// Whether the tables have a row of the id, whatever it says.
    is_stored: bool,
    /// Whether the tables have yet to be told.
    is_changed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Records(BTreeMap<RequestId, Known>);

impl Records {
    /// Takes what was found of ids.
    pub fn know(&mut self, ids: &BTreeSet<RequestId>, mut found: BTreeMap<RequestId, Record>, is_bare: bool) {
        for id in ids {
            let record = found.remove(id);
            let is_stored = record.is_some();
            self.0.insert(id.clone(), Known { record, is_bare, is_stored, is_changed: false });
        }
    }

    /// The record of an id; the outer `None`: it is not known here.
    pub fn find(&self, id: &RequestId, is_bare: bool) -> Option<Option<Record>> {
        let known = self.0.get(id)?;
        (is_bare || !known.is_bare || known.record.is_none()).then(|| known.record.clone())
    }

    /// Takes what becomes of a record. Answers of how many bytes its outcome is.
    pub fn change(&mut self, id: &RequestId, record: Option<&Record>) -> usize {
        let bytes = match record.map(|record| &record.state) {
            Some(State::Executed(_, outcome)) => outcome.body.len(),
            _ => 0,
        };
        // Of a row that nobody has asked for, nothing is known.
        let is_stored = self.0.get(id).is_none_or(|known| known.is_stored);
        let known = Known { record: record.cloned(), is_bare: false, is_stored, is_changed: true };
        if holds(Rule::DeskSeen) || !self.0.contains_key(id) {
            self.0.insert(id.clone(), known);
        }
        bytes
    }

    /// Writes what has changed.
    pub fn write(self, sql: &dyn Sql, texts: &mut Texts) -> Result<(), SqlError> {
        let changed = || self.0.iter().filter(|(_, known)| known.is_changed);
        let gone = changed().filter(|(_, known)| known.record.is_none() && known.is_stored).map(|(id, _)| id);
        rows::delete_all(sql, gone)?;
        // Those that ran in one commit differ in little.
        let mut alike: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, record) in changed().filter_map(|(id, known)| Some((id, known.record.as_ref()?))) {
            match &record.state {
                State::Executed(_, outcome) => {
                    let common = (record.principal.as_str(), record.at_ms, outcome.status, outcome.headers.to_lines());
                    alike.entry(common).or_default().push((id, record));
                }
                _ => rows::write(sql, id, record)?,
            }
        }
        for ((principal, at_ms, status, headers), records) in alike {
            texts.number(sql, principal)?;
            texts.number(sql, &headers)?;
            let common = [principal.into(), at_ms.into(), i64::from(status).into(), headers.into()];
            let own: Vec<_> = records.into_iter().map(|(id, record)| own(id, record)).collect();
            insert(sql, (&rows::into(), &select()), &common, &own)?;
        }
        Ok(())
    }
}

/// Texts that have had a number. Where one has it no longer, it is written itself.
#[derive(Debug, Clone, Default)]
pub struct Texts(BTreeSet<String>);

impl Texts {
    /// Gives a text a number, unless it has one, or there is none to be given.
    fn number(&mut self, sql: &dyn Sql, text: &str) -> Result<(), SqlError> {
        if self.0.contains(text) || self.0.len() >= TEXTS_MAX {
            return Ok(());
        }
        rows::number_short(sql, text)?;
        self.0.insert(text.to_owned());
        Ok(())
    }
}

/// So many texts are known: no more have a number.
const TEXTS_MAX: usize = 128;

/// In the order of [`rows::into`].
fn select() -> String {
    let [principal, headers] = ["?1", "?4"].map(rows::number_of);
    format!(
        "column1, {principal}, column2, ?2, column3, 1, NULL, NULL, NULL, NULL, column4, column5, ?3, {headers}, column6"
    )
}

fn own(id: &RequestId, record: &Record) -> [Value; 6] {
    let (fingerprint, body) = match &record.state {
        State::Executed(fingerprint, outcome) => (fingerprint.as_bytes().into(), outcome.body.as_slice().into()),
        _ => (Value::Null, Value::Null),
    };
    let deadline = rows::deadline_value(record.deadline);
    [id.as_str().into(), record.first_sent_s.into(), deadline, rows::carried_value(&record.carried), fingerprint, body]
}
