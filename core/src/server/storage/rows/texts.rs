//! Texts that come again, which are a number in their rows.
//!
//! Invariants:
//! - A text has one number for ever, until all rows of the key go.
//! - There are few of them, and none is long.

use crate::server::storage::sql::{Row, Sql, SqlError, Value};

/// At most so many texts have a number: what a key is asked with differs little. The others stay in their rows.
const TEXTS_MAX: i64 = 128;
/// A longer text gets no number, so that all of them are a few pages at most.
pub(in crate::server::storage) const TEXT_BYTES_MAX: usize = 256;

/// The number of a text, else the text itself.
pub(super) fn number_of(argument: &str) -> String {
    format!("coalesce((SELECT number FROM semel_texts WHERE text = {argument}), {argument})")
}

/// In SQL, an argument that is a text or the number of one: what comes from JavaScript is a float.
pub(in crate::server::storage) fn stands_for(argument: &str) -> String {
    format!("iif(typeof({argument}) = 'text', {argument}, CAST({argument} AS INTEGER))")
}

/// The number of a text. It is given one, for the rows to come, if it has none and there is one to be given.
pub(in crate::server::storage) fn number(sql: &dyn Sql, text: &str) -> Result<Option<i64>, SqlError> {
    let number = |rows: Vec<Row>| rows.first().and_then(|row| row.first()).and_then(Value::as_integer);
    let known = number(sql.exec("SELECT number FROM semel_texts WHERE text = ?1", &[text.into()])?);
    if known.is_some() {
        return Ok(known);
    }
    let statement =
        "INSERT INTO semel_texts (text) SELECT ?1 WHERE (SELECT count(*) FROM semel_texts) < ?2 RETURNING number";
    sql.exec(statement, &[text.into(), TEXTS_MAX.into()]).map(number)
}
