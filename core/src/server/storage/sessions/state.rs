//! A session, as far as a key keeps it. Pure.
//!
//! Invariants:
//! - Epochs only grow. What an epoch took is every number after that of its predecessor's end, up to that of its own.
//! - Of the places that were taken, those have a row that are not acknowledged; and the last has one whatever is acknowledged,
//!   so that the last number needs no row of its own. Unless the session was idle: then no place has one.

use crate::fingerprint::Fingerprint;
use crate::id::Principal;
use crate::server::storage::crashes::Count;
use crate::server::storage::record::Outcome;
use std::sync::Arc;

/// The key knows what so many holders took, the current one among them.
pub const EPOCHS_MAX: usize = 64;
/// So many places may be unacknowledged.
pub const WINDOW: i64 = 64;

/// The holders of a session, the current one last.
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
    /// It is the current one, or was: it took the numbers after `after`, up to `last`.
    Held {
        /// The last number before its own.
        after: i64,
        /// The last that it took.
        last: i64,
    },
    /// It was not given to this session.
    Never,
    /// It is older than what is kept.
    TooOld,
    /// It is not there yet.
    Ahead,
}

impl Epochs {
    /// Of a session that begins.
    pub fn first(epoch: i64) -> Self {
        Self { older: Vec::new(), current: Held { epoch, after: 0 } }
    }

    /// The current epoch.
    pub fn current(&self) -> i64 {
        self.current.epoch
    }

    /// The same with a new holder, which goes on after a number.
    pub fn then(mut self, epoch: i64, after: i64) -> Self {
        self.older.push(self.current);
        let surplus = (self.older.len() + 1).saturating_sub(EPOCHS_MAX);
        self.older.drain(..surplus);
        Self { current: Held { epoch, after }, ..self }
    }

    /// What an epoch took, where `last_seq` is the last number of all.
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

    /// Of each, the oldest first, the epoch in eight bytes and the number before its own in eight.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.all().flat_map(|held| [held.epoch, held.after]).flat_map(i64::to_be_bytes).collect()
    }

    /// Reads what [`Epochs::to_bytes`] gave; `None` of what it never gives.
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

/// The rows of a session's places, all in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// The lowest number that has one.
    pub first: i64,
    /// The highest.
    pub last: i64,
    /// Whether that one is acknowledged. Then it is the only one.
    pub is_last_acknowledged: bool,
    /// The key's clock when the last was taken.
    pub last_ms: i64,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// What stands for its name in the rows of its places.
    pub number: i64,
    /// Whose it is.
    pub principal: Principal,
    /// Its holders.
    pub epochs: Epochs,
    /// The last number, and the last acknowledged one, when it was last idle.
    pub closed_seq: i64,
    /// See `closed_seq`.
    pub closed_ack: i64,
    /// What is counted of the next place.
    pub count: Count,
    /// When its holder last changed; of an idle one, when it was last used.
    pub at_ms: i64,
    /// Its places that have rows.
    pub rows: Option<Rows>,
}

impl Session {
    /// The last number that was taken; 0: none was.
    pub fn last_seq(&self) -> i64 {
        self.rows.map_or(self.closed_seq, |rows| rows.last)
    }

    /// Up to which number nothing is kept.
    pub fn freed_seq(&self) -> i64 {
        match self.rows {
            Some(Rows { first, is_last_acknowledged: false, .. }) => first - 1,
            _ => self.last_seq(),
        }
    }

    /// Up to which number nothing is to be kept, once an epoch has acknowledged. It never goes back.
    pub fn freed_with(&self, ack: i64) -> i64 {
        ack.min(self.last_seq()).max(self.freed_seq())
    }

    /// Whether the outcome of a place that was taken and has no row went because the session was idle.
    pub fn has_lapsed(&self, seq: i64) -> bool {
        self.closed_ack < seq && seq <= self.closed_seq
    }

    /// When it was last used.
    pub fn used_ms(&self) -> i64 {
        self.rows.map_or(self.at_ms, |rows| rows.last_ms.max(self.at_ms))
    }
}

/// A place that was taken and has a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Which epoch took it.
    pub epoch: i64,
    /// The key's clock when it was taken.
    pub at_ms: i64,
    /// What became of it.
    pub state: TakenState,
}

/// What became of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenState {
    /// It ran, and this is its outcome.
    Executed(Fingerprint, Arc<Outcome>),
    /// The handler crashed on it too often.
    Poisoned(Fingerprint),
    /// It was cancelled before it ran.
    Cancelled,
    /// It was acknowledged; it is the last of its session.
    Acknowledged,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_epoch_took_ends_where_its_successor_begins() {
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
    fn of_sixty_four_epochs_it_is_known_what_they_took() {
        let epochs = (2..=65).fold(Epochs::first(1), |epochs, epoch| epochs.then(epoch, epoch * 10));
        assert_eq!(epochs.known(1, 700), Known::TooOld);
        assert_eq!(epochs.known(2, 700), Known::Held { after: 20, last: 30 });
        assert_eq!(epochs.to_bytes().len(), 1024);
    }

    #[test]
    fn epochs_that_are_damaged_are_not_read() {
        let whole = Epochs::first(1).then(2, 3).to_bytes();
        let turned = [whole[16..].to_vec(), whole[..16].to_vec()].concat();
        for bad in [&[][..], &whole[1..], &whole[..24], &turned, &[0; 16], &[0xff; 16]] {
            assert_eq!(Epochs::from_bytes(bad), None, "{bad:?}");
        }
    }
}
