//! Counts how often a handler crashed on an id, or may have. This module does no I/O;
//! [`crate::server::attempt::suspicion`] decides when to count.
//!
//! Invariant: an id on which the handler crashed [`CRASHES_MAX`] times never runs again.

use crate::server::storage::record::{Record, State};

/// The number of crashes after which an id never runs again.
pub const CRASHES_MAX: i64 = 3;

/// What is counted for one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How often the handler crashed on it.
    pub crashes: i64,
    /// Whether it was started after the last counted crash, and has not ended.
    pub is_started: bool,
}

impl Count {
    /// The count in the record of an id.
    pub fn of(found: Option<&Record>) -> Self {
        match found {
            Some(Record { state: State::Suspect { crashes, is_started }, .. }) => {
                Self { crashes: *crashes, is_started: *is_started }
            }
            _ => Self::default(),
        }
    }

    /// The count at a start. An earlier start that never ended was a crash, unless this same object counted it
    /// (`is_own`), since that object lives.
    pub fn started(self, is_own: bool) -> Self {
        Self { crashes: self.crashes + i64::from(self.is_started && !is_own), is_started: true }
    }

    /// After a crash.
    pub fn crashed(self) -> Self {
        Self { crashes: self.crashes + 1, is_started: false }
    }

    /// The count for the next holder of a session, whose next place has the same number. That place may be the same
    /// request, so the count goes on: a client can't reset it by taking over after each crash. It may also be another
    /// request, so it gets at least one run before it is refused. `is_own`: as in [`Count::started`].
    pub fn handed_on(self, is_own: bool) -> Self {
        Self { crashes: self.started(is_own).crashes.min(CRASHES_MAX - 1), is_started: false }
    }

    /// Whether the id must not run again.
    pub fn is_poisoned(self) -> bool {
        self.crashes >= CRASHES_MAX
    }
}
