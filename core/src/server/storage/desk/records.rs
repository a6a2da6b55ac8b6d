//! Records on a desk.
//!
//! Invariant: what is known here of an id is what the tables have, or will have.

use super::by_id::ById;
use super::recent::Recent;
use super::shape::{self, PRINT, Shape, number};
use crate::fingerprint::Fingerprint;
use crate::id::RequestId;
use crate::rules::{Rule, holds};
use crate::server::storage::record::{LatestDeadline, Outcome, Record, State};
use crate::server::storage::rows::{self, Found};
use crate::server::storage::sql::{Sql, SqlError, Value};
use std::sync::LazyLock;

#[derive(Debug)]
struct Known {
    /// `None`: the id has no record.
    record: Option<Box<Record>>,
    /// Whether fingerprint and outcome are left out.
    is_bare: bool,
    /// Whether the tables have a row of the id, in whatever state; `None` if nobody has looked.
    is_stored: Option<bool>,
    /// Whether the tables still have to be written.
    is_changed: bool,
}

/// The records that a desk knows.
#[derive(Debug, Default)]
pub(super) struct Records(ById<Known>);

impl Records {
    /// Takes the rows found for ids that were read without fingerprint and outcome (`bare`), and for ids that were to be
    /// read whole. Returns the ids of which the rest still has to be read.
    pub fn know(&mut self, bare: &[&RequestId], ids: &[RequestId], found: Vec<Found>) -> Vec<RequestId> {
        for (id, is_bare) in bare.iter().map(|id| (*id, true)).chain(ids.iter().map(|id| (id, false))) {
            self.0.put(id, Known { record: None, is_bare, is_stored: Some(false), is_changed: false });
        }
        let mut more = Vec::new();
        for Found { id, record, is_bare } in found {
            match (self.0.get(&id), record) {
                (Some(known), _) if is_bare && !known.is_bare => more.push(id),
                (Some(_), Some(record)) => {
                    let record = Some(Box::new(record));
                    self.0.put(&id, Known { record, is_bare, is_stored: Some(true), is_changed: false });
                }
                // It is read when it is asked for.
                (Some(_), None) => self.0.remove(&id),
                (None, _) => {}
            }
        }
        more
    }

    /// The record of an id. The outer `None` means that it is not known here.
    pub fn find(&self, id: &RequestId, is_bare: bool) -> Option<Option<Record>> {
        let known = self.0.get(id)?;
        (is_bare || !known.is_bare || known.record.is_none()).then(|| known.record.as_deref().cloned())
    }

    /// Sets what becomes of a record. If it is not known here, `recent` says whether the tables have a row. Returns the
    /// size of its outcome in bytes.
    pub fn change(&mut self, id: &RequestId, record: Option<&Record>, recent: &Recent) -> usize {
        let known = self.0.get(id);
        let is_stored = known.map_or_else(|| recent.has(id), |known| known.is_stored);
        if holds(Rule::DeskSeen) || known.is_none() {
            let record = record.cloned().map(Box::new);
            self.0.put(id, Known { record, is_bare: false, is_stored, is_changed: true });
        }
        record.and_then(outcome).map_or(0, |outcome| outcome.body.len())
    }

    /// Takes out the changed records, and forgets them.
    pub fn take_changed(&mut self) -> Self {
        Self(self.0.extract(|known| known.is_changed))
    }

    /// Writes the records, and tells `recent` of them.
    pub fn write(self, sql: &dyn Sql, texts: &mut Texts, recent: &mut Recent) -> Result<(), SqlError> {
        self.write_rows(sql, texts)?;
        self.0.into_iter().for_each(|(id, known)| recent.wrote(&id, known.record));
        recent.trim();
        Ok(())
    }

    fn write_rows(&self, sql: &dyn Sql, texts: &mut Texts) -> Result<(), SqlError> {
        // In the order of ids, rows are added at the end of the tables, where the ids of the SDK belong.
        let changed = || self.0.iter();
        let gone = || changed().filter(|(_, known)| known.record.is_none());
        rows::delete_all(sql, gone().filter(|(_, known)| known.is_stored.is_none()).map(|(id, _)| id))?;
        let mut gone: Vec<_> = gone().filter(|(_, known)| known.is_stored == Some(true)).map(|(id, _)| id).collect();
        let mut executed: Vec<Executed<'_>> = Vec::new();
        for (id, record, is_stored) in
            changed().filter_map(|(id, known)| Some((id, known.record.as_deref()?, known.is_stored)))
        {
            match &record.state {
                // A record that counts as new is inserted and can't replace another: see `recent`.
                State::Executed(fingerprint, outcome) if is_stored == Some(false) => {
                    executed.push(Executed { id, record, fingerprint, outcome });
                }
                _ => rows::write(sql, id, record)?,
            }
        }
        // Outcomes of one commit differ in little: mostly, all of them are like the first.
        while let Some(&Executed { id, record: first, outcome, .. }) = executed.first() {
            let id_bytes = id.as_str().len();
            let is_alike = |Executed { id, record, outcome: other, .. }: &Executed<'_>| {
                (&record.principal, record.at_ms, other.status) == (&first.principal, first.at_ms, outcome.status)
                    && id.as_str().len() == id_bytes
                    && other.headers == outcome.headers
            };
            let (alike, others): (Vec<_>, Vec<_>) = executed.into_iter().partition(is_alike);
            let (mut own, mut over) = (Vec::new(), Vec::new());
            for executed in alike {
                match gone.pop_if(|gone| gone.as_str().len() == id_bytes) {
                    Some(gone) => over.push(executed.row(gone.as_str())),
                    None => own.push(executed.row("")),
                }
            }
            executed = others;
            let principal = texts.stands_for(sql, first.principal.as_str())?;
            let headers = texts.stands_for(sql, &outcome.headers.to_lines())?;
            let status = i64::from(outcome.status);
            let common = [principal, first.at_ms.into(), status.into(), headers, (id_bytes as i64).into()];
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

/// Stands for a missing instant: no instant is below 0.
const NONE: i64 = -1;
/// The position of the id among the bytes of a row. The id of the row that it replaces follows, if there is one.
const AT_ID: usize = shape::at(4);

impl Executed<'_> {
    /// What the row does not share: first-sent, deadline, and the positions of the last two parts; then the id, `gone`
    /// (the id of the row that it replaces), the carried tombstones, and the body.
    fn row(&self, gone: &str) -> Value {
        let Self { id, record, fingerprint, outcome } = self;
        let (id, carried) = (id.as_str(), record.carried.as_bytes());
        let deadline_ms = match record.deadline {
            LatestDeadline::At(deadline_ms) => deadline_ms,
            LatestDeadline::None => NONE,
        };
        let at_carried = AT_ID + id.len() + gone.len();
        let at_body = at_carried + carried.len();
        let numbers = [record.first_sent_s.unwrap_or(NONE), deadline_ms, at_carried as i64, at_body as i64];
        shape::row(fingerprint, &numbers, &[id.as_bytes(), gone.as_bytes(), carried, &outcome.body])
    }
}

fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Executed(_, outcome) => Some(outcome),
        _ => None,
    }
}

/// Texts with their numbers; `None` if a text could not get one.
#[derive(Debug, Clone, Default)]
pub struct Texts(Vec<(String, Option<i64>)>);

impl Texts {
    /// What stands for a text in a row: its number, which it may get now, or else the text itself.
    fn stands_for(&mut self, sql: &dyn Sql, text: &str) -> Result<Value, SqlError> {
        // Long texts are not kept: many of them would take megabytes, and keep short ones from getting numbers.
        if text.len() > rows::TEXT_BYTES_MAX {
            return Ok(text.into());
        }
        let known = self.0.iter().find(|(known, _)| known == text).map(|(_, number)| *number);
        let number = match known {
            Some(number) => number,
            None if self.0.len() >= TEXTS_MAX => None,
            None => {
                let number = rows::number_of_text(sql, text)?;
                self.0.push((text.to_owned(), number));
                number
            }
        };
        Ok(number.map_or_else(|| text.into(), Value::from))
    }
}

/// How many texts are known. Further texts get no number.
const TEXTS_MAX: usize = 128;

/// Common: what stands for the principal, the clock, the status, what stands for the headers, and the length of ids. For
/// the bytes of each row see [`Executed::row`].
static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
    let [principal, headers] = ["?1", "?4"].map(rows::stands_for);
    let [first_sent, deadline] = [0, 1].map(|n| format!("nullif({}, {NONE})", number(n)));
    let [at_carried, at_body] = [2, 3].map(number);
    let id = format!("CAST(substr(column1, {AT_ID}, ?5) AS TEXT)");
    let is_gone = format!("id = CAST(substr(column1, {AT_ID} + ?5, ?5) AS TEXT)");
    let carried = format!("nullif(substr(column1, {at_carried}, {at_body} - {at_carried}), x'')");
    let body = format!("substr(column1, {at_body})");
    let null = "NULL";
    let values = [
        &id,
        &principal,
        &first_sent,
        "?2",
        &deadline,
        "1",
        null,
        null,
        null,
        null,
        &carried,
        PRINT,
        "?3",
        &headers,
        &body,
    ];
    Shape::new("INSERT", "semel_records", (rows::COLUMNS, &values), 5, &is_gone)
});
