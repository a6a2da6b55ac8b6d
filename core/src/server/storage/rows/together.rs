//! The rows of many records at once. Each of these functions runs one statement, however many ids it gets.

use super::columns::{PRINCIPAL, columns_before_body, from_bare_row, from_row};
use super::{number, with_id};
use crate::id::RequestId;
use crate::server::json::write::array;
use crate::server::storage::record::Record;
use crate::server::storage::sql::{Row, Sql, SqlError, Value};

/// A record that was read together with others.
pub(in crate::server::storage) struct Found {
    pub id: RequestId,
    /// `None`: the row exists, but has to be read by itself.
    pub record: Option<Record>,
    /// Whether fingerprint and outcome are left out.
    pub is_bare: bool,
}

/// An outcome with a longer body is not read together with others, because those are all in memory at the same time.
const TOGETHER_BYTES_MAX: i64 = 16 << 10;

/// Reads the records of ids from the tables, in one statement. A record with a long body is left to be read by itself.
pub(in crate::server::storage) fn read_whole(sql: &dyn Sql, ids: &[RequestId]) -> Result<Vec<Found>, SqlError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    // The body of such a record comes as `NULL`, so `from_row` can't read the outcome and returns `None`.
    let columns = format!("{}, iif(length(body) <= {TOGETHER_BYTES_MAX}, body, NULL)", columns_before_body());
    let (statement, arguments) = of_ids(&columns, &ids.iter().collect::<Vec<_>>());
    let found = |row| with_id(row, |row| Some(from_row(row))).map(|(id, record)| Found { id, record, is_bare: false });
    sql.exec(&statement, &arguments)?.into_iter().map(found).collect()
}

/// Reads from the tables, in one statement, which of these ids have a row. For those that were executed, it reads the record without
/// fingerprint and outcome. A tombstone needs no more, and half as many values come through JavaScript.
pub(in crate::server::storage) fn read_executed(sql: &dyn Sql, ids: &[&RequestId]) -> Result<Vec<Found>, SqlError> {
    let columns = [PRINCIPAL, ", first_sent_s, at_ms, deadline_ms, carried, state"].concat();
    let (statement, arguments) = of_ids(&columns, ids);
    let record = |row: Row| {
        let [principal, first_sent_s, at_ms, deadline_ms, carried, state] = <[Value; 6]>::try_from(row).ok()?;
        if state.as_integer()? != number::EXECUTED {
            return Some(None);
        }
        let [lapses_ms, crashes, is_started, executed] = [const { Value::Null }; 4];
        let times = [first_sent_s, at_ms, deadline_ms, state];
        let rest = [lapses_ms, crashes, is_started, executed, carried];
        from_bare_row([principal].into_iter().chain(times).chain(rest).collect()).map(Some)
    };
    let found = |row| with_id(row, record).map(|(id, record)| Found { id, record, is_bare: true });
    sql.exec(&statement, &arguments)?.into_iter().map(found).collect()
}

/// The statement, with its arguments, that reads these columns and the id of each of these ids.
fn of_ids(columns: &str, ids: &[&RequestId]) -> (String, Vec<Value>) {
    let select = ["SELECT ", columns, ", id FROM semel_records WHERE id "].concat();
    let text = |id: &RequestId| id.as_str().into();
    // Most calls have one request and the one that it acknowledges. For a list, SQLite makes a table, which takes as long as reading a row.
    match *ids {
        [one] => (select + "= ?1", vec![text(one)]),
        [one, other] if one != other => {
            ([&select, "= ?1 UNION ALL ", &select, "= ?2"].concat(), vec![text(one), text(other)])
        }
        _ => (select + "IN (SELECT value FROM json_each(?1))", vec![list(ids.iter().copied()).into()]),
    }
}

/// Ids as an array in JSON.
fn list<'a>(ids: impl IntoIterator<Item = &'a RequestId>) -> String {
    array(ids.into_iter().map(RequestId::as_str)).into_text()
}

/// Deletes the records of ids from the tables.
pub(in crate::server::storage) fn delete_all<'a>(
    sql: &dyn Sql,
    ids: impl Iterator<Item = &'a RequestId>,
) -> Result<(), SqlError> {
    let mut ids = ids.peekable();
    if ids.peek().is_none() {
        return Ok(());
    }
    sql.run("DELETE FROM semel_records WHERE id IN (SELECT value FROM json_each(?1))", &[list(ids).into()]).map(|_| ())
}
