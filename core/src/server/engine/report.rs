//! What a key's object tells the registry of keys.
//!
//! Invariant: it is read by builds before and after: what is new comes last.

use crate::server::storage::sql::{Row, Value};

/// What a key tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The key, decoded.
    pub key: String,
    /// Its clock, in Unix ms.
    pub at: i64,
    /// Its unacknowledged records.
    pub records: i64,
    /// Its tombstones and cancelled ids.
    pub tombstones: i64,
    /// The size of its database.
    pub bytes: i64,
    /// When its oldest row was last changed, in Unix ms.
    pub oldest: Option<i64>,
    /// Of its records, those in doubt.
    pub in_doubt: i64,
    /// Of what it has sent, what was refused for good.
    pub parked: i64,
    /// Whether it is to be listed; else it is taken out.
    pub is_listed: bool,
    /// As of which change of the key: for itself, to know what it has told.
    pub changes: u64,
}

impl Report {
    /// What goes to the registry's object, which may be of another build: what is new comes last.
    pub fn to_row(&self) -> Row {
        let Self { at, records, tombstones, bytes, oldest, in_doubt, parked, is_listed, changes, .. } = *self;
        let numbers = [at, records, tombstones, bytes, i64::from(is_listed), changes as i64, in_doubt, parked];
        [self.key.as_str().into(), oldest.into()].into_iter().chain(numbers.map(Value::from)).collect()
    }

    /// Reads what came from a key's object: of an earlier build, which did not tell the last, or of a later one, which tells more. A key that could not tell
    /// would not be visited where all are told to forget. `None`: it is none.
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
    fn a_report_is_read_as_it_was_told_by_builds_before_and_after_as_well() {
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
