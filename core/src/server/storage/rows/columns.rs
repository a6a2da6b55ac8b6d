//! Converts a record to the columns of its row, and back.
//!
//! Invariants:
//! - A principal or header lines that recur are stored as a number. Whoever reads the record sees no difference.
//! - A row is read completely, or not at all.

use super::state::{Values, optional};
use super::texts::{self, TEXT_BYTES_MAX, number_of};
use crate::id::{Principal, RequestId};
use crate::server::storage::packed::Bundle;
use crate::server::storage::record::{LatestDeadline, Record};
use crate::server::storage::sql::{Row, Sql, SqlError, Value};

/// All columns, in the order in which [`write`] passes their values.
pub(in crate::server::storage) const COLUMNS: &str = "id, principal, first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, carried, \
     fingerprint, status, headers, body";

/// In SQL: the principal of a row as text.
pub(in crate::server::storage) const PRINCIPAL: &str = "CASE typeof(principal) WHEN 'integer' \
     THEN (SELECT text FROM semel_texts WHERE number = principal) ELSE principal END";
const HEADERS: &str = "CASE typeof(headers) WHEN 'integer' \
     THEN (SELECT text FROM semel_texts WHERE number = headers) ELSE headers END";
/// The columns between principal and fingerprint. With the principal, they are enough to decide what becomes of a record.
const BARE: &str = "first_sent_s, at_ms, deadline_ms, state, lapses_ms, crashes, is_started, executed, carried";

/// The columns of a record, as [`from_row`] expects them.
pub(super) fn columns() -> String {
    format!("{}, body", columns_before_body())
}

/// The same columns without the body, which is the last.
pub(super) fn columns_before_body() -> String {
    format!("{PRINCIPAL}, {BARE}, fingerprint, status, {HEADERS}")
}

/// The columns of a record without fingerprint and outcome, as [`from_bare_row`] expects them.
pub(in crate::server::storage) fn bare_columns() -> String {
    format!("{PRINCIPAL}, {BARE}")
}

/// Writes the record of an id into the tables.
pub(in crate::server::storage) fn write(sql: &dyn Sql, id: &RequestId, record: &Record) -> Result<(), SqlError> {
    let Values { state, lapses_ms, crashes, is_started, executed, fingerprint, status, headers, body } =
        Values::of(&record.state);
    let texts = [record.principal.as_str().into(), headers.clone()];
    let arguments = [
        id.as_str().into(),
        record.principal.as_str().into(),
        record.first_sent_s.into(),
        record.at_ms.into(),
        deadline_value(record.deadline),
        state.into(),
        lapses_ms,
        crashes,
        is_started,
        executed,
        carried_value(&record.carried),
        fingerprint,
        status,
        headers,
        body,
    ];
    let statement = format!(
        "INSERT OR REPLACE INTO semel_records ({COLUMNS}) VALUES (?1, {}, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, \
         {}, ?15) RETURNING typeof(principal) = 'text', typeof(headers) = 'text'",
        number_of("?2"),
        number_of("?14"),
    );
    let written = sql.exec(&statement, &arguments)?.into_iter().next().unwrap_or_default();
    for (text, is_text) in texts.iter().zip(&written) {
        if let Value::Text(text) = text
            && is_text.as_integer() == Some(1)
            && text.len() <= TEXT_BYTES_MAX
        {
            texts::number(sql, text)?;
        }
    }
    Ok(())
}

/// Reads a record from a row of [`columns`].
pub(super) fn from_row(row: Row) -> Option<Record> {
    read_row(row, false)
}

/// Reads a record from a row of [`bare_columns`]. Its fingerprint and its outcome, which may be large, are empty.
pub(in crate::server::storage) fn from_bare_row(mut row: Row) -> Option<Record> {
    row.extend([const { Value::Null }; 4]);
    read_row(row, true)
}

fn read_row(row: Row, is_bare: bool) -> Option<Record> {
    let [
        principal,
        first_sent_s,
        at_ms,
        deadline_ms,
        state,
        lapses_ms,
        crashes,
        is_started,
        executed,
        carried,
        fingerprint,
        status,
        headers,
        body,
    ] = <[Value; 14]>::try_from(row).ok()?;
    let state = state.as_integer()?;
    let mut values = Values { state, lapses_ms, crashes, is_started, executed, fingerprint, status, headers, body };
    let state = values.take_state(is_bare)?;
    let carried = carried_of(carried)?;
    let deadline = optional(&deadline_ms)?.map_or(LatestDeadline::None, LatestDeadline::At);
    Some(Record {
        principal: Principal::new(principal.into_text()?).ok()?,
        first_sent_s: optional(&first_sent_s)?,
        at_ms: at_ms.as_integer()?,
        deadline,
        state,
        carried,
    })
}

/// The packed tombstones that a record carries, as they are stored: `NULL` if there are none.
fn carried_value(carried: &Bundle) -> Value {
    Some(carried.as_bytes()).filter(|carried| !carried.is_empty()).into()
}

fn carried_of(value: Value) -> Option<Bundle> {
    match value {
        Value::Null => Some(Bundle::default()),
        value => Bundle::from_bytes(value.into_blob()?),
    }
}

pub(super) fn deadline_value(deadline: LatestDeadline) -> Value {
    match deadline {
        LatestDeadline::At(deadline_ms) => deadline_ms.into(),
        LatestDeadline::None => Value::Null,
    }
}
