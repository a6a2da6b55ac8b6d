//! What must hold of a key that may be full.
//!
//! Invariants:
//! - A full key takes no new request. It never keeps more records than it may.
//! - A key says that it is full only where it is, counting what ran before in the same commit.

use super::asked::Errand;
use super::options::Options;
use super::oracle::{Dealt, Oracle};
use super::run::id_of;
use crate::mutant::{Mutant, Twin};
use crate::oracle::{Violation, violation};
use crate::snapshot::{Row, Snapshot};
use semel_core::server::Config;
use std::collections::BTreeSet;

/// What the key keeps, and how much it may.
#[derive(Debug, Clone, Default)]
pub(super) struct Room {
    records: BTreeSet<String>,
    /// Without those that have lapsed.
    tombstones: BTreeSet<String>,
    /// How many tombstones there are, if those that have lapsed are counted.
    tombstones_at_most: u64,
}

/// The settings of the key, with the mutant's mistake in them.
pub(super) fn config_of(options: &Options, mutant: Option<Mutant>) -> Config {
    let is = |twin| u64::from(mutant == Some(Mutant::Twin(twin)));
    let Options { records_max, tombstones_max, .. } = *options;
    Config {
        open: true,
        retention_s: options.retentions_s[0],
        records_max: records_max.saturating_sub(is(Twin::RoomTooSmall)).max(1) + is(Twin::RoomTooLarge),
        tombstones_max: tombstones_max + is(Twin::TombstonesTooMany),
        ..Config::default()
    }
}

impl Room {
    pub fn of(stored: &Snapshot, now_ms: i64) -> Self {
        let ids = |is_wanted: &dyn Fn(&Row) -> bool| {
            let rows = stored.rows.iter().filter(|(_, row)| is_wanted(row));
            rows.map(|(id, _)| id.clone()).collect()
        };
        Self {
            records: ids(&Row::is_record),
            tombstones: ids(&|row| !row.is_record() && !row.has_lapsed(now_ms)),
            tombstones_at_most: stored.count(false, i64::MIN),
        }
    }

    fn knows(&self, id: &str) -> bool {
        self.records.contains(id) || self.tombstones.contains(id)
    }
}

impl Oracle {
    /// Checks what a commit says of the key's room, and what it takes. `dealt`: its requests, in the order in which they
    /// were worked.
    pub(super) fn check_room(&mut self, dealt: &[Dealt], stored: &Snapshot) -> Result<(), Violation> {
        self.check_taken(dealt, &Room::of(stored, self.latest_ms.max(stored.latest_ms())))?;
        let room = &self.durable.room;
        let (mut came, mut cancelled) = (0, 0);
        for dealt in dealt {
            match dealt.reply.only("semel-status") {
                "executed" => {
                    came += 1;
                    cancelled += u64::from(dealt.asked.errand == Errand::Cancel);
                }
                "capacity" => {
                    self.seen.insert(format!(
                        "together: full for a {:?}, in a commit with {} before",
                        dealt.asked.errand,
                        if came > 0 { "others" } else { "none" }
                    ));
                    let records = room.records.len() as u64 + came;
                    // Each acknowledgement makes a record a tombstone.
                    let tombstones = room.tombstones_at_most + records + cancelled;
                    if records < self.records_max && tombstones < self.tombstones_max {
                        let line = dealt.asked.line();
                        return violation(
                            "capacity",
                            format!("{line} was told so after {came}, and there is {room:?}"),
                        );
                    }
                }
                // A crash may have been counted.
                "poisoned" | "rolled-back" => came += 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that a key without room took nothing new.
    fn check_taken(&self, dealt: &[Dealt], next: &Room) -> Result<(), Violation> {
        let room = &self.durable.room;
        if next.records.len() as u64 > self.records_max {
            return violation("capacity", format!("there are more than {} records: {next:?}", self.records_max));
        }
        // Those that were there before and afterwards were there all the time.
        let stayed = room.tombstones.intersection(&next.tombstones).count() as u64;
        let ids = dealt.iter().filter(|dealt| dealt.reply.only("semel-status") == "executed");
        let mut ids = ids.map(|dealt| match dealt.asked.errand {
            Errand::Cancel => format!("cancel-{}", dealt.asked.number),
            _ => id_of(dealt.asked.number),
        });
        match ids.find(|id| !room.knows(id)) {
            Some(id) if stayed >= self.tombstones_max => {
                violation("capacity", format!("{id} was taken, though {stayed} tombstones stayed: {room:?}"))
            }
            _ => Ok(()),
        }
    }
}
