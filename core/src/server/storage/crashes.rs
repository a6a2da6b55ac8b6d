//! How often a handler crashed on an id, or may have. Pure: who counts is in [`crate::server::attempt::suspicion`].
//!
//! Invariant: an id on which it crashed [`CRASHES_MAX`] times never runs again.

use crate::server::storage::record::{Record, State};

/// An id on which the handler crashed so often never runs again.
pub const CRASHES_MAX: i64 = 3;

/// What is counted of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How often the handler crashed on it.
    pub crashes: i64,
    /// Whether it was started since, and has not ended.
    pub is_started: bool,
}

impl Count {
    /// What a record says of its id.
    pub fn of(found: Option<&Record>) -> Self {
        match found {
            Some(Record { state: State::Suspect { crashes, is_started }, .. }) => {
                Self { crashes: *crashes, is_started: *is_started }
            }
            _ => Self::default(),
        }
    }

    /// At a start: one before that never ended was a crash; unless it is this very object's, which lives.
    pub fn started(self, is_own: bool) -> Self {
        Self { crashes: self.crashes + i64::from(self.is_started && !is_own), is_started: true }
    }

    /// After a crash.
    pub fn crashed(self) -> Self {
        Self { crashes: self.crashes + 1, is_started: false }
    }

    /// For the next holder of a session, whose next place has the same number. It may be the same request, so a client can't take over
    /// after each crash and begin anew; or another, so it is refused for no crash but its own. `is_own`: as at a start.
    pub fn handed_on(self, is_own: bool) -> Self {
        Self { crashes: self.started(is_own).crashes.min(CRASHES_MAX - 1), is_started: false }
    }

    /// Whether the id must not run again.
    pub fn is_poisoned(self) -> bool {
        self.crashes >= CRASHES_MAX
    }
}
