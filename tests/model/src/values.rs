//! The rows that a statement writes, and the ids that it names.
//!
//! Invariant: an unknown expression is an error with the rest of the statement, and is never guessed.

use crate::tables::text;
use semel_core::server::storage::sql::Row;
use semel_core::server::{SqlError, Value};

/// The text around the number of an argument. No text has a number here, so an expression that looks one up is the argument
/// itself.
const ARGUMENTS: &[&[&str]] = &[
    &["coalesce((SELECT number FROM semel_texts WHERE text = ?", "), ?", ")"],
    &["iif(typeof(?", ") = 'text', ?", ", CAST(?", " AS INTEGER))"],
    &["?", ""],
];

/// The rows that a statement inserts: those behind its `VALUES`, or those that its `SELECT` makes of them.
pub fn rows(statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
    let unknown = || SqlError(format!("unknown here: {statement}"));
    let (before, listed) = statement.split_once("VALUES ").ok_or_else(unknown)?;
    let (rows, rest) = listed_rows(listed, arguments).ok_or_else(unknown)?;
    let Some(select) = before.strip_suffix(" FROM (").and_then(|before| before.split_once(") SELECT ")) else {
        return if rest.is_empty() || rest.starts_with(" RETURNING ") { Ok(rows) } else { Err(unknown()) };
    };
    let selected = |row: &Row| match values(select.1, arguments, row) {
        Some((selected, "")) if rest == ")" => Ok(selected),
        _ => Err(unknown()),
    };
    rows.iter().map(selected).collect()
}

/// The rows that are written in place of others, each with the value that identifies the row it replaces. `columns`: those that
/// are set, in order. `is_gone`: the condition that identifies the replaced row; the value stands at its `?`.
pub fn replaced(
    statement: &str,
    (columns, is_gone): (&str, &str),
    arguments: &[Value],
) -> Result<Vec<(Row, Value)>, SqlError> {
    let unknown = || SqlError(format!("unknown here: {statement}"));
    let (before, condition, rows) = match statement.split_once(" FROM (VALUES ") {
        Some((before, listed)) => {
            let (rows, rest) = listed_rows(listed, arguments).ok_or_else(unknown)?;
            (before, rest.strip_prefix(") WHERE ").ok_or_else(unknown)?, rows)
        }
        None => {
            // The subquery that looks for a number has a `WHERE` of its own, so the last one counts.
            let (before, condition) = statement.rsplit_once(" WHERE ").ok_or_else(unknown)?;
            (before, condition, vec![Row::new()])
        }
    };
    let (first, rest) = is_gone.rsplit_once('?').ok_or_else(unknown)?;
    let asked = condition.strip_prefix(first).and_then(|asked| asked.strip_suffix(rest)).ok_or_else(unknown)?;
    let mut set = before.split_once(" SET ").ok_or_else(unknown)?.1;
    let gone = |row: &Row| value(asked, arguments, row).filter(|(_, left)| left.is_empty()).map(|(gone, _)| gone);
    let mut made = Vec::new();
    for row in &rows {
        made.push((Row::new(), gone(row).ok_or_else(unknown)?));
    }
    for column in columns.split(", ") {
        set = set.strip_prefix(&format!("{column} = ")).ok_or_else(unknown)?;
        let mut left = set;
        for ((new, _), row) in made.iter_mut().zip(&rows) {
            let (value, rest) = value(set, arguments, row).ok_or_else(unknown)?;
            new.push(value);
            left = rest;
        }
        set = left.strip_prefix(", ").unwrap_or(left);
    }
    if set.is_empty() { Ok(made) } else { Err(unknown()) }
}

/// The ids in a condition: one, two, or a list in JSON.
pub fn ids_of(condition: &str, arguments: &[Value]) -> Option<Vec<String>> {
    let (first, second) = condition.split_once(" UNION ALL SELECT ").unwrap_or((condition, ""));
    match first {
        "= ?1" if second.is_empty() || second.ends_with(" FROM semel_records WHERE id = ?2") => {
            arguments.iter().map(|id| id.clone().into_text()).collect()
        }
        "IN (SELECT value FROM json_each(?1))" => ids(arguments).ok(),
        _ => None,
    }
}

/// The ids in the first argument, which is a list in JSON.
pub fn ids(arguments: &[Value]) -> Result<Vec<String>, SqlError> {
    serde_json::from_str(&text(arguments, 0)?).map_err(|error| SqlError(format!("no ids: {error}")))
}

/// Reads rows in brackets. Returns also the rest of the text.
fn listed_rows<'s>(mut rest: &'s str, arguments: &[Value]) -> Option<(Vec<Row>, &'s str)> {
    let mut rows = Vec::new();
    loop {
        let (row, left) = values(rest.strip_prefix('(')?, arguments, &Row::new())?;
        rows.push(row);
        rest = left.strip_prefix(')')?;
        match rest.strip_prefix(", ") {
            Some(left) => rest = left,
            None => return Some((rows, rest)),
        }
    }
}

/// Reads the values of a row. `columns`: the row that it is made of. Returns also the rest of the text.
fn values<'s>(mut rest: &'s str, arguments: &[Value], columns: &Row) -> Option<(Row, &'s str)> {
    let mut row = Row::new();
    loop {
        let (value, left) = value(rest, arguments, columns)?;
        row.push(value);
        match left.strip_prefix(", ") {
            Some(left) => rest = left,
            None => return Some((row, left)),
        }
    }
}

/// Reads a value, or a sum or difference of values. Returns also the rest of the text.
fn value<'s>(rest: &'s str, arguments: &[Value], columns: &Row) -> Option<(Value, &'s str)> {
    let (mut value, mut left) = term(rest, arguments, columns)?;
    let sign = |left: &'s str| {
        [(" - ", -1), (" + ", 1)].into_iter().find_map(|(sign, by)| Some((left.strip_prefix(sign)?, by)))
    };
    while let Some((rest, by)) = sign(left) {
        let (more, after) = term(rest, arguments, columns)?;
        value = (value.as_integer()? + by * more.as_integer()?).into();
        left = after;
    }
    Some((value, left))
}

fn term<'s>(rest: &'s str, arguments: &[Value], columns: &Row) -> Option<(Value, &'s str)> {
    for (text, value) in [("NULL", Value::Null), ("-1", Value::Integer(-1)), ("x''", Value::Blob(Vec::new()))] {
        if let Some(left) = rest.strip_prefix(text) {
            return Some((value, left));
        }
    }
    if let Some((number, left)) = number(rest) {
        return Some((number.into(), left));
    }
    if let Some((number, left)) = rest.strip_prefix("column").and_then(number) {
        return Some((numbered(columns, number)?, left));
    }
    if let Some(of) = rest.strip_prefix("substr(") {
        let (given, left) = values(of, arguments, columns)?;
        return Some((part(&given)?, left.strip_prefix(')')?));
    }
    if let Some(of) = rest.strip_prefix("nullif(") {
        let (given, left) = values(of, arguments, columns)?;
        let [value, none] = <[Value; 2]>::try_from(given).ok()?;
        return Some((if value == none { Value::Null } else { value }, left.strip_prefix(')')?));
    }
    if let Some(of) = rest.strip_prefix("CAST(") {
        let (bytes, left) = value(of, arguments, columns)?;
        let text = String::from_utf8(bytes.into_blob()?).ok()?;
        return match left.strip_prefix(" AS INTEGER)") {
            Some(left) => Some((text.trim().parse::<i64>().ok()?.into(), left)),
            None => Some((text.into(), left.strip_prefix(" AS TEXT)")?)),
        };
    }
    let argument = |around: &&[&str]| {
        let (first, between) = around.split_first()?;
        let (asked, mut left) = number(rest.strip_prefix(first)?)?;
        for (n, each) in between.iter().enumerate() {
            left = left.strip_prefix(each)?;
            if n + 1 < between.len() {
                let (again, after) = number(left)?;
                left = (again == asked).then_some(after)?;
            }
        }
        Some((numbered(arguments, asked)?, left))
    };
    ARGUMENTS.iter().find_map(argument)
}

/// `substr` of bytes: from a position, which SQLite counts from 1, for a number of bytes or to the end.
fn part(given: &[Value]) -> Option<Value> {
    let (bytes, places) = given.split_first()?;
    let bytes = bytes.clone().into_blob()?;
    let place = |n: usize| places.get(n).map(|place| usize::try_from(place.as_integer()?).ok());
    let from = place(0)??.checked_sub(1)?;
    let length = place(1).unwrap_or(Some(bytes.len().checked_sub(from)?))?;
    Some(bytes.get(from..from + length)?.into())
}

fn numbered(values: &[Value], number: i64) -> Option<Value> {
    values.get(usize::try_from(number).ok()?.checked_sub(1)?).cloned()
}

fn number(text: &str) -> Option<(i64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}
