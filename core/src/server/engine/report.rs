//! What a key's object reports to the registry of keys.
//!
//! Invariant: earlier and later builds read a report, so a new member comes last.

use crate::server::storage::sql::{Row, Value};

/// A report of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The key, decoded.
    pub key: String,
    /// Its clock, in Unix ms.
    pub at: i64,
    /// The number of its unacknowledged records.
    pub records: i64,
    /// The number of its tombstones and cancelled ids.
    pub tombstones: i64,
    /// The size of its database, in bytes.
    pub bytes: i64,
    /// When its oldest row was last changed, in Unix ms.
    pub oldest: Option<i64>,
    /// How many of its records are in doubt.
    pub in_doubt: i64,
    /// How many of its effects were refused for good.
    pub parked: i64,
    /// Whether the key is to be listed; otherwise it is taken out of the list.
    pub is_listed: bool,
    /// The number of the last change that it covers, by which the key knows what it has reported.
    pub changes: u64,
}

impl Report {
    /// The row for the registry's object, which may be of another build.
    pub fn to_row(&self) -> Row {
        let Self { at, records, tombstones, bytes, oldest, in_doubt, parked, is_listed, changes, .. } = *self;
        let numbers = [at, records, tombstones, bytes, i64::from(is_listed), changes as i64, in_doubt, parked];
        [self.key.as_str().into(), oldest.into()].into_iter().chain(numbers.map(Value::from)).collect()
    }

    /// Reads the row of a key's object; `None` if it is no report. An earlier build leaves out the last member, and a
    /// later one may add some. If such a row were refused, the key would not be listed, and so not visited when all keys
    /// are told to forget.
    pub fn from_row(mut row: Row) -> Option<Self> {
        row.push(0.into());
        row.truncate(10);
        let [key, oldest, at, records, tombstones, bytes, is_listed, changes, in_doubt, parked] =
            <[Value; 10]>::try_from(row).ok()?;
        Some(Self {
            key: key.into_text()?,
            at: at.as_integer()?,
            records: records.as_integer()?,
            tombstones: tombstones.as_integer()?,
            bytes: bytes.as_integer()?,
            oldest: oldest.as_integer(),
            in_doubt: in_doubt.as_integer()?,
            parked: parked.as_integer()?,
            is_listed: is_listed.as_integer()? == 1,
            changes: u64::try_from(changes.as_integer()?).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_from_its_row_and_from_rows_of_older_and_newer_builds() {
        let key = "caf\u{e9}".to_owned();
        let report = Report {
            key,
            at: 1,
            records: 2,
            tombstones: 3,
            bytes: 4,
            oldest: None,
            in_doubt: 6,
            parked: 7,
            is_listed: true,
            changes: 5,
        };
        assert_eq!(Report::from_row(report.to_row()), Some(report.clone()));
        assert_eq!(Report::from_row(report.to_row().into_iter().skip(1).collect()), None);
        let later = report.to_row().into_iter().chain([8.into()]).collect();
        assert_eq!(Report::from_row(later), Some(report.clone()));
        let earlier = report.to_row().into_iter().take(9).collect();
        assert_eq!(Report::from_row(earlier), Some(Report { parked: 0, ..report }));
    }
}
