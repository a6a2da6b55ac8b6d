//! A session as a key keeps it. This module does no I/O.
//!
//! Invariants:
//! - Epochs only grow. An epoch took every number after its predecessor's last one, up to its own last one.
//! - Every taken place that is not acknowledged has a row. The last taken place has a row even if it is acknowledged, so
//!   the last number needs no field of its own. A session that became idle has no rows of places.

use crate::fingerprint::Fingerprint;
use crate::id::Principal;
use crate::server::storage::crashes::Count;
use crate::server::storage::record::Outcome;
use std::sync::Arc;

/// How many holders a key remembers for a session, the current one included.
pub const EPOCHS_MAX: usize = 64;
/// How many places of a session may be unacknowledged.
pub const WINDOW: i64 = 64;

/// The remembered holders of a session, the current one last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epochs {
    older: Vec<Held>,
    current: Held,
}

/// A holder: its epoch, and the last number that was taken before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    epoch: i64,
    after: i64,
}

/// What is known of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It is the current one, or was. It took the numbers after `after`, up to `last`.
    Held {
        /// The last number before its own numbers.
        after: i64,
        /// The last number that it took.
        last: i64,
    },
    /// It was not given to this session.
    Never,
    /// It is older than the holders that are remembered.
    TooOld,
    /// It is higher than the current epoch.
    Ahead,
}

impl Epochs {
    /// The holders of a new session.
    pub fn first(epoch: i64) -> Self {
        Self { older: Vec::new(), current: Held { epoch, after: 0 } }
    }

    /// The current epoch.
    pub fn current(&self) -> i64 {
        self.current.epoch
    }

    /// The same holders followed by a new one, whose numbers begin after `after`.
    pub fn then(mut self, epoch: i64, after: i64) -> Self {
        self.older.push(self.current);
        let surplus = (self.older.len() + 1).saturating_sub(EPOCHS_MAX);
        self.older.drain(..surplus);
        Self { current: Held { epoch, after }, ..self }
    }

    /// What is known of an epoch. `last_seq` is the last number of the session.
    pub fn known(&self, epoch: i64, last_seq: i64) -> Known {
        if epoch > self.current.epoch {
            return Known::Ahead;
        }
        let mut last = last_seq;
        for held in self.all().rev() {
            if held.epoch == epoch {
                return Known::Held { after: held.after, last };
            }
            if held.epoch < epoch {
                return Known::Never;
            }
            last = held.after;
        }
        Known::TooOld
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = &Held> {
        self.older.iter().chain([&self.current])
    }

    /// For each holder, the oldest first: its epoch in eight bytes, and the number before its own numbers in eight.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.all().flat_map(|held| [held.epoch, held.after]).flat_map(i64::to_be_bytes).collect()
    }

    /// Reads what [`Epochs::to_bytes`] gave; `None` for anything that it never gives.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let (pairs, []) = numbers.as_chunks::<2>() else { return None };
        let mut older: Vec<Held> = pairs
            .iter()
            .map(|[epoch, after]| Held { epoch: i64::from_be_bytes(*epoch), after: i64::from_be_bytes(*after) })
            .collect();
        let grow = |one: &Held, next: &Held| one.epoch < next.epoch && one.after <= next.after;
        let is_whole = older.is_sorted_by(grow) && older.iter().all(|held| held.epoch > 0 && held.after >= 0);
        let current = older.pop()?;
        is_whole.then_some(Self { older, current })
    }
}

/// What the rows of a session's places span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// The lowest number with a row.
    pub first: i64,
    /// The highest number with a row.
    pub last: i64,
    /// Whether the highest is acknowledged. Then it is the only row.
    pub is_last_acknowledged: bool,
    /// The key's clock when the highest was taken, in Unix ms.
    pub last_ms: i64,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Stands for the session in the rows of its places.
    pub number: i64,
    /// The principal that it belongs to.
    pub principal: Principal,
    /// Its holders.
    pub epochs: Epochs,
    /// The last number when the session was last idle; 0 if it never was.
    pub closed_seq: i64,
    /// The last acknowledged number when the session was last idle.
    pub closed_ack: i64,
    /// The count of crashes of the next place.
    pub count: Count,
    /// When the holder last changed, in Unix ms; for an idle session, when it was last used.
    pub at_ms: i64,
    /// The rows of its places; `None` if there are none.
    pub rows: Option<Rows>,
}

impl Session {
    /// The last number that was taken; 0 if none was.
    pub fn last_seq(&self) -> i64 {
        self.rows.map_or(self.closed_seq, |rows| rows.last)
    }

    /// The number up to which no outcome is kept.
    pub fn freed_seq(&self) -> i64 {
        match self.rows {
            Some(Rows { first, is_last_acknowledged: false, .. }) => first - 1,
            _ => self.last_seq(),
        }
    }

    /// The number up to which no outcome is to be kept after an acknowledgement of `ack`. It never goes back.
    pub fn freed_with(&self, ack: i64) -> i64 {
        ack.min(self.last_seq()).max(self.freed_seq())
    }

    /// Whether a taken place without a row lost its outcome because the session was idle.
    pub fn has_lapsed(&self, seq: i64) -> bool {
        self.closed_ack < seq && seq <= self.closed_seq
    }

    /// When the session was last used, in Unix ms.
    pub fn used_ms(&self) -> i64 {
        self.rows.map_or(self.at_ms, |rows| rows.last_ms.max(self.at_ms))
    }
}

/// A place that was taken and has a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The epoch that took it.
    pub epoch: i64,
    /// The key's clock when it was taken, in Unix ms.
    pub at_ms: i64,
    /// What became of it.
    pub state: TakenState,
}

/// What became of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenState {
    /// It ran, and this is its outcome.
    Executed(Fingerprint, Arc<Outcome>),
    /// The handler crashed on it too often, so it never runs.
    Poisoned(Fingerprint),
    /// It was cancelled before it ran.
    Cancelled,
    /// It was acknowledged, and is the last place of its session.
    Acknowledged,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_an_epoch_end_where_the_next_epoch_begins() {
        let epochs = Epochs::first(2).then(5, 3).then(6, 3).then(9, 7);
        let held = |after, last| Known::Held { after, last };
        for (epoch, known) in [
            (1, Known::TooOld),
            (2, held(0, 3)),
            (3, Known::Never),
            (5, held(3, 3)),
            (6, held(3, 7)),
            (8, Known::Never),
            (9, held(7, 8)),
            (10, Known::Ahead),
        ] {
            assert_eq!(epochs.known(epoch, 8), known, "{epoch}");
        }
        assert_eq!(Epochs::from_bytes(&epochs.to_bytes()), Some(epochs));
    }

    #[test]
    fn the_numbers_of_only_the_last_64_epochs_are_kept() {
        let epochs = (2..=65).fold(Epochs::first(1), |epochs, epoch| epochs.then(epoch, epoch * 10));
        assert_eq!(epochs.known(1, 700), Known::TooOld);
        assert_eq!(epochs.known(2, 700), Known::Held { after: 20, last: 30 });
        assert_eq!(epochs.to_bytes().len(), 1024);
    }

    #[test]
    fn damaged_epochs_are_not_read() {
        let whole = Epochs::first(1).then(2, 3).to_bytes();
        let turned = [whole[16..].to_vec(), whole[..16].to_vec()].concat();
        for bad in [&[][..], &whole[1..], &whole[..24], &turned, &[0; 16], &[0xff; 16]] {
            assert_eq!(Epochs::from_bytes(bad), None, "{bad:?}");
        }
        let bytes_of = |numbers: &[i64]| numbers.iter().copied().flat_map(i64::to_be_bytes).collect::<Vec<u8>>();
        for bad in [&[1, 0, 1, 3][..], &[1, 5, 2, 3], &[1, -1], &[0, 0], &[0, 0, 1, 0], &[1, -1, 2, 0]] {
            assert_eq!(Epochs::from_bytes(&bytes_of(bad)), None, "{bad:?}");
        }
    }
}
