//! Many rows of one shape in one statement, and the bytes in which a row reaches it.
//!
//! Invariant: a new row is never lost. If it takes the place of an old row, and that is gone, the write fails.

use crate::fingerprint::Fingerprint;
use crate::server::storage::sql::{Sql, SqlError, Value};

/// How many arguments a statement may have in an object's SQLite.
const ARGUMENTS_MAX: usize = 100;

/// Writes rows that have some values in common, as many in one statement as its arguments allow. The statements are made once.
///
/// What a row does not share is passed as one value, bytes that SQL takes apart: each value costs the runtime a third of
/// a µs, and as long again to be made.
pub struct Shape {
    table: &'static str,
    /// How many values the rows have in common.
    common: usize,
    /// The statements that insert new rows.
    insert: Statements,
    /// The statements that write new rows over old ones.
    replace: Statements,
}

/// How many rows each statement writes, with its text. There are few, because each has to be compiled and kept.
type Statements = [(usize, String); 7];

impl Shape {
    /// `insert` is how to insert. `columns` are all columns of the table, with commas between, and `values` is what each
    /// is made of: `?1` and so on are the common values, and `column1` is the bytes of the row. `is_gone` is the
    /// condition for the old row that the new one replaces.
    pub fn new(
        insert: &str,
        table: &'static str,
        (columns, values): (&str, &[&str]),
        common: usize,
        is_gone: &str,
    ) -> Self {
        let into = [insert, " INTO ", table, " (", columns, ")"].concat();
        let set = columns.split(", ").zip(values).map(|(column, value)| [column, " = ", value].concat());
        let set = ["UPDATE ", table, " SET ", &set.collect::<Vec<_>>().join(", ")].concat();
        let values = values.join(", ");
        let statements = |alone: String, before: &str, after: &str| {
            [64, 32, 16, 8, 4, 2, 1].map(|length| match length {
                // For a single row, a list to select from would take as long as the row itself.
                1 => (1, alone.replace("column1", &format!("?{}", common + 1))),
                _ => (length, [before, &choices(common, length), after].concat()),
            })
        };
        let insert = [&into, " VALUES (", &values, ")"].concat();
        let replace = [&set, " WHERE ", is_gone].concat();
        let (into, set) = ([&into, " SELECT ", &values, " FROM (VALUES "].concat(), [&set, " FROM (VALUES "].concat());
        let replaced = [") WHERE ", is_gone].concat();
        let (insert, replace) = (statements(insert, &into, ")"), statements(replace, &set, &replaced));
        Self { table, common, insert, replace }
    }

    /// Writes new rows.
    pub fn insert(&self, sql: &dyn Sql, common: &[Value], rows: Vec<Value>) -> Result<(), SqlError> {
        self.write(sql, &self.insert, common, rows)
    }

    /// Writes new rows over old ones. The platform counts one row written for the two.
    pub fn replace(&self, sql: &dyn Sql, common: &[Value], rows: Vec<Value>) -> Result<(), SqlError> {
        self.write(sql, &self.replace, common, rows)
    }

    /// That the old rows exist is known only from memory. If one does not, this fails, because the new row would be lost.
    fn write(
        &self,
        sql: &dyn Sql,
        statements: &Statements,
        common: &[Value],
        rows: Vec<Value>,
    ) -> Result<(), SqlError> {
        let mut rest = rows.into_iter();
        for (length, statement) in statements {
            while rest.len() >= *length && self.common + length <= ARGUMENTS_MAX {
                let arguments: Vec<Value> = common.iter().cloned().chain(rest.by_ref().take(*length)).collect();
                if sql.run(statement, &arguments)? < *length as u64 {
                    return Err(SqlError(["a row of ", self.table, " is not where it was"].concat()));
                }
            }
        }
        Ok(())
    }
}

/// A list of arguments, one for the bytes of each row.
fn choices(common: usize, length: usize) -> String {
    let arguments: Vec<String> = (1..=length).map(|n| format!("(?{})", common + n)).collect();
    arguments.join(", ")
}

/// The bytes of a row: the fingerprint, then numbers of a fixed width, then the parts.
pub fn row(print: &Fingerprint, numbers: &[i64], parts: &[&[u8]]) -> Value {
    let length = parts.iter().fold(at(numbers.len()), |length, part| length + part.len());
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(print.as_bytes());
    for number in numbers {
        let mut digits = [b' '; DIGITS];
        let mut buffer = itoa::Buffer::new();
        let written = buffer.format(*number).as_bytes();
        digits.iter_mut().zip(written).for_each(|(to, from)| *to = *from);
        bytes.extend_from_slice(&digits);
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Value::Blob(bytes)
}

/// SQL for the fingerprint in such bytes.
pub const PRINT: &str = "substr(column1, 1, 32)";
const DIGITS: usize = 20;

/// The position of the `n`th number (from 0), or of what follows `n` numbers. Positions count from 1, as in SQLite.
pub const fn at(n: usize) -> usize {
    32 + n * DIGITS + 1
}

/// SQL for the `n`th number.
pub fn number(n: usize) -> String {
    format!("CAST(substr(column1, {}, {DIGITS}) AS INTEGER)", at(n))
}
