//! Converts values between the engine and SQLite.

use rusqlite::types::{Value as SqliteValue, ValueRef};
use semel_core::server::Value;
use semel_core::server::storage::sql::Row;

/// The value as SQLite takes it.
pub(super) fn to_sqlite(value: &Value) -> SqliteValue {
    match value.clone() {
        Value::Null => SqliteValue::Null,
        Value::Integer(integer) => SqliteValue::Integer(integer),
        Value::Real(real) => SqliteValue::Real(real),
        Value::Text(text) => SqliteValue::Text(text),
        Value::Blob(bytes) => SqliteValue::Blob(bytes),
    }
}

/// The value that SQLite returned.
pub(super) fn from_sqlite(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => Value::Integer(integer),
        ValueRef::Real(real) => Value::Real(real),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

/// The bytes of all texts and blobs in a row.
pub(super) fn bytes_in(row: &Row) -> usize {
    let bytes = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        Value::Null | Value::Integer(_) | Value::Real(_) => 0,
    };
    row.iter().map(bytes).sum()
}
