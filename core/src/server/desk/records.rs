//! Records on a desk.
//!
//! Invariant: of an id that is here, what is known is what the tables have, or are to have.

use super::insert;
use crate::id::RequestId;
use crate::rules::{Rule, holds};
use crate::server::record::{Outcome, Record, State};
use crate::server::rows;
use crate::server::sql::{Sql, SqlError, Value};

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

/// See the module. In the order of ids: of so few, a map takes no less time, and far more code.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<(RequestId, Box<Known>)>);

impl Records {
    fn at(&self, id: &RequestId) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(id))
    }

    fn get(&self, id: &RequestId) -> Option<&Known> {
        self.at(id).ok().and_then(|at| self.0.get(at)).map(|(_, known)| &**known)
    }

    fn put(&mut self, id: &RequestId, known: Known) {
        match self.at(id) {
            Ok(at) => {
                if let Some((_, there)) = self.0.get_mut(at) {
                    **there = known;
                }
            }
            Err(at) => self.0.insert(at, (id.clone(), Box::new(known))),
        }
    }

    /// Takes what was found of ids.
    pub fn know(&mut self, ids: &[RequestId], found: Vec<(RequestId, Record)>, is_bare: bool) {
        for id in ids {
            self.put(id, Known { record: None, is_bare, is_stored: false, is_changed: false });
        }
        for (id, record) in found {
            self.put(&id, Known { record: Some(record), is_bare, is_stored: true, is_changed: false });
        }
    }

    /// The record of an id; the outer `None`: it is not known here.
    pub fn find(&self, id: &RequestId, is_bare: bool) -> Option<Option<Record>> {
        let known = self.get(id)?;
        (is_bare || !known.is_bare || known.record.is_none()).then(|| known.record.clone())
    }

    /// Takes what becomes of a record. Answers of how many bytes its outcome is.
    pub fn change(&mut self, id: &RequestId, record: Option<&Record>) -> usize {
        // Of a row that nobody has asked for, nothing is known.
        let is_stored = self.get(id).is_none_or(|known| known.is_stored);
        if holds(Rule::DeskSeen) || self.get(id).is_none() {
            self.put(id, Known { record: record.cloned(), is_bare: false, is_stored, is_changed: true });
        }
        record.and_then(outcome).map_or(0, |outcome| outcome.body.len())
    }

    /// Writes what has changed.
    pub fn write(self, sql: &dyn Sql, texts: &mut Texts) -> Result<(), SqlError> {
        let changed = || self.0.iter().filter(|(_, known)| known.is_changed);
        let gone = changed().filter(|(_, known)| known.record.is_none() && known.is_stored).map(|(id, _)| id);
        rows::delete_all(sql, gone)?;
        let mut executed: Vec<(&RequestId, &Record, &Outcome)> = Vec::new();
        for (id, record) in changed().filter_map(|(id, known)| Some((id, known.record.as_ref()?))) {
            match outcome(record) {
                Some(outcome) => executed.push((id, record, outcome)),
                None => rows::write(sql, id, record)?,
            }
        }
        // Those that ran in one commit differ in little: mostly, the first is like all.
        while let Some(&(_, first, outcome)) = executed.first() {
            let is_alike = |(_, record, other): &(&RequestId, &Record, &Outcome)| {
                (&record.principal, record.at_ms, other.status) == (&first.principal, first.at_ms, outcome.status)
                    && other.headers == outcome.headers
            };
            let own: Vec<_> =
                executed.iter().filter(|each| is_alike(each)).map(|(id, record, _)| own(id, record)).collect();
            executed.retain(|each| !is_alike(each));
            let (principal, headers) = (first.principal.as_str(), outcome.headers.to_lines());
            texts.number(sql, principal)?;
            texts.number(sql, &headers)?;
            let common = [principal.into(), first.at_ms.into(), i64::from(outcome.status).into(), headers.into()];
            insert(sql, (&rows::into(), &select()), &common, (&own.concat(), 6))?;
        }
        Ok(())
    }
}

fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Executed(_, outcome) => Some(outcome),
        _ => None,
    }
}

/// Texts that have had a number. Where one has it no longer, it is written itself.
#[derive(Debug, Clone, Default)]
pub struct Texts(Vec<String>);

impl Texts {
    /// Gives a text a number, unless it has one, or there is none to be given.
    fn number(&mut self, sql: &dyn Sql, text: &str) -> Result<(), SqlError> {
        if self.0.iter().any(|known| known == text) || self.0.len() >= TEXTS_MAX {
            return Ok(());
        }
        rows::number_short(sql, text)?;
        self.0.push(text.to_owned());
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
