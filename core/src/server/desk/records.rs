//! Records on a desk.
//!
//! Invariant: of an id that is here, what is known is what the tables have, or are to have.

use super::Shape;
use crate::fingerprint::Fingerprint;
use crate::id::RequestId;
use crate::rules::{Rule, holds};
use crate::server::record::{Outcome, Record, State};
use crate::server::rows::{self, Found};
use crate::server::sql::{Sql, SqlError, Value};
use std::sync::LazyLock;

#[derive(Debug)]
struct Known {
    /// `None`: there is none.
    record: Option<Record>,
    /// Whether fingerprint and outcome are left out.
    is_bare: bool,
    /// Whether the tables have a row of the id, whatever it says; `None`: nobody has asked.
    is_stored: Option<bool>,
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

    /// Takes what was found of ids, and of others without fingerprint and outcome. Answers of which ids there is more to read.
    pub fn know(&mut self, ids: &[RequestId], bare: &[RequestId], found: Vec<Found>) -> Vec<RequestId> {
        for (ids, is_bare) in [(bare, true), (ids, false)] {
            for id in ids {
                self.put(id, Known { record: None, is_bare, is_stored: Some(false), is_changed: false });
            }
        }
        let mut more = Vec::new();
        for Found { id, record, is_bare } in found {
            let Ok(at) = self.at(&id) else { continue };
            match (self.0.get_mut(at), record) {
                (Some((_, known)), _) if is_bare && !known.is_bare => more.push(id),
                (Some((_, known)), Some(record)) => {
                    **known = Known { record: Some(record), is_bare, is_stored: Some(true), is_changed: false };
                }
                // It is read once it is asked for.
                _ => drop(self.0.remove(at)),
            }
        }
        more
    }

    /// The record of an id; the outer `None`: it is not known here.
    pub fn find(&self, id: &RequestId, is_bare: bool) -> Option<Option<Record>> {
        let known = self.get(id)?;
        (is_bare || !known.is_bare || known.record.is_none()).then(|| known.record.clone())
    }

    /// Takes what becomes of a record. Answers of how many bytes its outcome is.
    pub fn change(&mut self, id: &RequestId, record: Option<&Record>) -> usize {
        let is_stored = self.get(id).and_then(|known| known.is_stored);
        if holds(Rule::DeskSeen) || self.get(id).is_none() {
            self.put(id, Known { record: record.cloned(), is_bare: false, is_stored, is_changed: true });
        }
        record.and_then(outcome).map_or(0, |outcome| outcome.body.len())
    }

    /// What has changed, of which nothing is known any more.
    pub fn take_changed(&mut self) -> Self {
        Self(self.0.extract_if(.., |(_, known)| known.is_changed).collect())
    }

    /// Writes what has changed.
    pub fn write(self, sql: &dyn Sql, texts: &mut Texts) -> Result<(), SqlError> {
        let changed = || self.0.iter().filter(|(_, known)| known.is_changed);
        let gone = || changed().filter(|(_, known)| known.record.is_none());
        rows::delete_all(sql, gone().filter(|(_, known)| known.is_stored.is_none()).map(|(id, _)| id))?;
        let mut gone: Vec<_> = gone().filter(|(_, known)| known.is_stored == Some(true)).map(|(id, _)| id).collect();
        let mut executed: Vec<(Executed<'_>, bool)> = Vec::new();
        for (id, record, is_stored) in
            changed().filter_map(|(id, known)| Some((id, known.record.as_ref()?, known.is_stored)))
        {
            match &record.state {
                State::Executed(fingerprint, outcome) => {
                    executed.push((Executed { id, record, fingerprint, outcome }, is_stored == Some(false)));
                }
                _ => rows::write(sql, id, record)?,
            }
        }
        // Those that ran in one commit differ in little: mostly, the first is like all.
        while let Some(&(Executed { record: first, outcome, .. }, _)) = executed.first() {
            let is_alike = |(Executed { record, outcome: other, .. }, _): &(Executed<'_>, bool)| {
                (&record.principal, record.at_ms, other.status) == (&first.principal, first.at_ms, outcome.status)
                    && other.headers == outcome.headers
            };
            let (mut own, mut over) = (Vec::new(), Vec::new());
            for (executed, is_new) in executed.iter().filter(|each| is_alike(each)) {
                match gone.pop_if(|_| *is_new) {
                    Some(gone) => over.extend(executed.columns().into_iter().chain([gone.as_str().into()])),
                    None => own.extend(executed.columns()),
                }
            }
            executed.retain(|each| !is_alike(each));
            let (principal, headers) = (first.principal.as_str(), outcome.headers.to_lines());
            texts.number(sql, principal)?;
            texts.number(sql, &headers)?;
            let common = [principal.into(), first.at_ms.into(), i64::from(outcome.status).into(), headers.into()];
            SHAPE.replace(sql, &common, over)?;
            SHAPE.insert(sql, &common, own)?;
        }
        rows::delete_all(sql, gone.into_iter())
    }
}

#[derive(Clone, Copy)]
struct Executed<'a> {
    id: &'a RequestId,
    record: &'a Record,
    fingerprint: &'a Fingerprint,
    outcome: &'a Outcome,
}

impl Executed<'_> {
    /// What it alone has. To hand over bytes takes long, so fingerprint and body are handed over as one.
    fn columns(&self) -> [Value; 5] {
        let Self { id, record, fingerprint, outcome } = self;
        let bytes = [fingerprint.as_bytes(), outcome.body.as_slice()].concat();
        let deadline = rows::deadline_value(record.deadline);
        [
            id.as_str().into(),
            record.first_sent_s.into(),
            deadline,
            rows::carried_value(&record.carried),
            Value::Blob(bytes),
        ]
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
        // Long ones are not known either: so many of them would be megabytes, and keep short ones from their numbers.
        let has_none = text.len() > rows::TEXT_BYTES_MAX || self.0.len() >= TEXTS_MAX;
        if has_none || self.0.iter().any(|known| known == text) {
            return Ok(());
        }
        rows::number(sql, &text.into())?;
        self.0.push(text.to_owned());
        Ok(())
    }
}

/// So many texts are known: no more have a number.
const TEXTS_MAX: usize = 128;

/// In common: principal, clock, status and headers; of its own, [`Executed::columns`].
static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
    let [principal, headers] = ["?1", "?4"].map(rows::number_of);
    let null = "NULL";
    let [print, body] = ["substr(column5, 1, 32)", "substr(column5, 33)"];
    let values = [
        "column1", &principal, "column2", "?2", "column3", "1", null, null, null, null, "column4", print, "?3",
        &headers, body,
    ];
    Shape::new("semel_records", (rows::COLUMNS, &values), (4, 5), ("id = column6", false))
});
