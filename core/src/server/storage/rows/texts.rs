//! Texts that recur: rows store their number instead.
//!
//! Invariants:
//! - A text keeps its number until all rows of the key are deleted.
//! - At most `TEXTS_MAX` texts have a number, and each of them is at most `TEXT_BYTES_MAX` long.

use crate::server::storage::sql::{Row, Sql, SqlError, Value};

/// How many texts may have a number. Few are enough, because the requests of one key differ little. Any other text stays in its row.
const TEXTS_MAX: i64 = 128;
/// A longer text gets no number, so that all numbered texts take a few pages at most.
pub(in crate::server::storage) const TEXT_BYTES_MAX: usize = 256;

/// In SQL: the number of a text, or the text itself if it has none.
pub(super) fn number_of(argument: &str) -> String {
    format!("coalesce((SELECT number FROM semel_texts WHERE text = {argument}), {argument})")
}

/// In SQL: an argument that is a text or the number of one. The number is cast, because it comes from JavaScript as a float.
pub(in crate::server::storage) fn stands_for(argument: &str) -> String {
    format!("iif(typeof({argument}) = 'text', {argument}, CAST({argument} AS INTEGER))")
}

/// The number of a text. A text without a number gets one, for the rows to come; if all numbers are taken, this is `None`.
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
