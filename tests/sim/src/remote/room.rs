//! What must hold of a key that may be full: it takes no new request, and says that it is full only where it is.

use super::asked::{Counts, Dealt, Errand, State, View};
use super::oracle::Oracle;
use crate::oracle::{Violation, violation};

impl Oracle {
    pub(super) fn check_room(&mut self, dealt: &Dealt) -> Result<(), Violation> {
        let Dealt { asked, before, after, reply: Some(reply), .. } = dealt else { return Ok(()) };
        let View(_, counts @ Counts { records, tombstones }) = **before;
        let code = reply.only("semel-status");
        let what = || format!("{:?} of {} was told {code}, and there are {counts:?}", asked.errand, asked.wish);
        if code == "capacity" {
            self.see(format!("elsewhere: full for a {:?}", asked.errand));
            let is_full = records >= self.records_max || tombstones >= self.tombstones_max;
            return if is_full { Ok(()) } else { violation("capacity", what()) };
        }
        let is_new = match asked.errand {
            Errand::Request => {
                before.state_of(asked.wish) == State::None && after.state_of(asked.wish) == State::InDoubt
            }
            Errand::Cancel => code == "executed",
            _ => false,
        };
        // Some may have lapsed since, and what was acknowledged along may have taken their places.
        let stayed = tombstones.min(after.1.tombstones.saturating_sub(asked.along.len() as u64));
        if is_new && (records >= self.records_max || stayed >= self.tombstones_max) {
            return violation("capacity", what());
        }
        Ok(())
    }
}
