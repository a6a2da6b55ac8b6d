//! Records: what a key keeps of a request. This module does no I/O; the rows of records are in [`super::rows`].
//!
//! Invariants:
//! - A record answers only its principal.
//! - Outcome and fingerprint are dropped together. Whether the request ran is kept as long as the row.
//! - A tombstone outlives every attempt that may still arrive: it lapses 60 s after the latest deadline. If no deadline
//!   bounds them, it lapses no sooner than a retention after it was made.

use super::packed::{Bundle, Packed};
use crate::fingerprint::Fingerprint;
use crate::header::{AHEAD_MS_MAX, Attempt};
use crate::id::{Principal, RequestId};
use crate::message::Headers;
use crate::problem::Executed;
use crate::rules::{Rule, holds};
use std::sync::Arc;

/// How long a tombstone stays after the latest deadline that an attempt may carry, in ms.
pub const TOMBSTONE_GRACE_MS: i64 = 60_000;
/// Deadlines are stored rounded up to a multiple of this, in ms, so that a run of replays writes a row once in ten
/// seconds instead of each time.
pub const DEADLINE_GRAIN_MS: i64 = 10_000;

/// The recorded answer. The default value stands for an outcome that was not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The status.
    pub status: u16,
    /// The handler's headers, as recorded.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

/// The latest deadline of all attempts of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatestDeadline {
    /// Every attempt so far carried one; this is the latest, rounded up, in Unix ms.
    At(i64),
    /// At least one attempt carried none.
    None,
}

impl LatestDeadline {
    /// The value after a first attempt with this deadline.
    pub fn of(deadline_ms: Option<i64>) -> Self {
        match deadline_ms {
            Some(deadline_ms) => {
                Self::At(deadline_ms.saturating_add(DEADLINE_GRAIN_MS - 1) / DEADLINE_GRAIN_MS * DEADLINE_GRAIN_MS)
            }
            None => Self::None,
        }
    }

    /// The value for the attempts of both.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(one), Self::At(other)) => Self::At(one.max(other)),
            _ => Self::None,
        }
    }
}

/// Why an id has a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TombstoneKind {
    /// The client acknowledged the outcome.
    Acknowledged,
    /// The outcome was kept for the whole retention.
    Expired,
}

/// How a new attempt may find out what became of a dispatched request. This follows the policy that was valid when it was
/// sent, even if the policy of its route has changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finds {
    /// The request is sent again, or asked for, until this instant, in Unix ms. An attempt that is told that nobody can
    /// know the outcome ends this at once.
    Until(i64),
    /// The other side may be asked at any time, and the request is sent again only once it is proven that nothing is
    /// there. A 404 proves nothing before this instant, in Unix ms.
    Asked(i64),
}

/// Where a request is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It ran, and this is its outcome.
    Executed(Fingerprint, Arc<Outcome>),
    /// The handler crashed on it too often, so it never runs.
    Poisoned(Fingerprint),
    /// It was cancelled before it ran. `lapses_ms` is set only if it has no first-sent and is in its second retention.
    Cancelled {
        /// When the record may leave, in Unix ms.
        lapses_ms: Option<i64>,
    },
    /// The handler crashed on it, or may have. It may run again. See [`crate::server::attempt::suspicion`].
    Suspect {
        /// How often it crashed.
        crashes: i64,
        /// Whether it was started after the last counted crash, and has not ended.
        is_started: bool,
    },
    /// It was sent to where it is executed ([`crate::server::engine::remote`]), and is under way or in doubt.
    Dispatched {
        /// The fingerprint of the request.
        fingerprint: Fingerprint,
        /// How often it was sent.
        times: i64,
        /// The key's clock when it was first sent, in Unix ms.
        first_ms: i64,
        /// How a new attempt may find out what became of it, once none of it is under way.
        finds: Finds,
        /// The handler's number for where it was sent ([`Handler::whither`](crate::server::Handler::whither)); `None` if
        /// an older version sent it, which did not store that.
        whither: Option<i64>,
    },
    /// Its outcome is gone, and it must not run again.
    Tombstone {
        /// Why.
        kind: TombstoneKind,
        /// Whether it ran.
        executed: Executed,
        /// When the tombstone may leave, in Unix ms.
        lapses_ms: i64,
    },
}

/// What a key keeps of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The principal that it belongs to.
    pub principal: Principal,
    /// When the request was first sent, in Unix seconds.
    pub first_sent_s: Option<i64>,
    /// The key's clock at the last change of the state, in Unix ms. If the call of a dispatched request ended later than
    /// it was allowed to, this is the end of the call less the time that a call may take. If nothing was sent after a
    /// probe had proven that there is nothing, it is the time before which the last request must have left for that.
    pub at_ms: i64,
    /// The latest deadline of all its attempts.
    pub deadline: LatestDeadline,
    /// Where it is in its life.
    pub state: State,
    /// Packed tombstones of the same principal that are stored only in this row.
    pub carried: Bundle,
}

/// Numbers of records; as a change, those that came less those that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Change {
    /// Unacknowledged records.
    pub records: i64,
    /// Tombstones and cancelled ids.
    pub tombstones: i64,
    /// How many of the records were dispatched and have no outcome.
    pub dispatched: i64,
}

impl Change {
    /// Counts a record that came.
    pub fn came(&mut self, record: &Record) {
        *self.limit_of(record) += 1;
        self.dispatched += record.dispatched();
    }

    /// Counts a record that left.
    pub fn left(&mut self, record: &Record) {
        *self.limit_of(record) -= 1;
        self.dispatched -= record.dispatched();
    }

    /// The limit that a record counts against.
    fn limit_of(&mut self, record: &Record) -> &mut i64 {
        match record.state {
            State::Executed(..) | State::Poisoned(_) | State::Suspect { .. } | State::Dispatched { .. } => {
                &mut self.records
            }
            State::Cancelled { .. } | State::Tombstone { .. } => &mut self.tombstones,
        }
    }
}

impl Record {
    fn dispatched(&self) -> i64 {
        i64::from(matches!(self.state, State::Dispatched { .. }))
    }

    /// Whether the record may answer a principal: only its own. An id that an administrator cancelled before anybody used
    /// it is cancelled for all.
    // Not inlined, to keep one copy of the code instead of one for each caller.
    #[inline(never)]
    pub fn answers(&self, principal: &Principal) -> bool {
        let is_for_all = || matches!(self.state, State::Cancelled { .. }) && self.principal.is_administrator();
        self.principal == *principal || is_for_all()
    }

    /// This tombstone of an id, packed; `None` if it needs its own row.
    pub fn packed(&self, id: &RequestId, now_ms: i64) -> Option<Packed> {
        let LatestDeadline::At(_) = self.deadline else { return None };
        match self.state {
            State::Tombstone { kind: TombstoneKind::Acknowledged, executed: Executed::Yes, lapses_ms } => {
                Packed::new(id, lapses_ms, now_ms)
            }
            _ => None,
        }
    }

    /// This record in place of `found`, a record of the same id. It takes over the first-sent and the deadline that
    /// `found` knows, so that it protects the id from those attempts too.
    pub fn over(self, found: Option<&Self>) -> Self {
        match found {
            Some(found) => Self {
                first_sent_s: latest_first_sent(found.first_sent_s, self.first_sent_s),
                deadline: found.deadline.and(self.deadline),
                ..self
            },
            None => self,
        }
    }

    /// The record after one more attempt; `None` if the attempt changes nothing.
    ///
    /// What protects an id must hold for every attempt of it. So the latest deadline and the latest first-sent count, and
    /// a single attempt without one makes the record count as without.
    pub fn seen_again(&self, attempt: &Attempt, now_ms: i64, retention_s: i64) -> Option<Self> {
        let mut record = Self {
            first_sent_s: latest_first_sent(self.first_sent_s, attempt.first_sent_s),
            deadline: self.deadline.and(LatestDeadline::of(attempt.deadline_ms)),
            ..self.clone()
        };
        if let State::Tombstone { lapses_ms, .. } = &mut record.state {
            // The attempt may carry a later deadline than the client announced: the tombstone must outlive this one too.
            let needed_ms = match LatestDeadline::of(attempt.deadline_ms) {
                LatestDeadline::At(deadline_ms) => deadline_ms + TOMBSTONE_GRACE_MS,
                LatestDeadline::None if self.deadline == LatestDeadline::None => *lapses_ms,
                LatestDeadline::None => now_ms + retention_s * 1000,
            };
            *lapses_ms = needed_ms.max(*lapses_ms);
        }
        (record != *self && holds(Rule::SeenDeadlines)).then_some(record)
    }

    /// The tombstone that an acknowledgement turns the record into; `None` if the record is not to be acknowledged.
    ///
    /// A cancelled id has no outcome to free, and leaves only by the fence.
    pub fn acknowledged(&self, by: &Principal, until_ms: Option<i64>, now_ms: i64, retention_s: i64) -> Option<Self> {
        let executed = match self.state {
            State::Executed(..) => Executed::Yes,
            State::Poisoned(_) => Executed::No,
            State::Cancelled { .. } | State::Suspect { .. } | State::Dispatched { .. } | State::Tombstone { .. } => {
                return None;
            }
        };
        if *by != self.principal && holds(Rule::AcknowledgedByOwner) {
            return None;
        }
        // An earlier request with the same id may have had this `until`, if its tombstone has left since. The first-sent
        // alone does not show this, because it may be ahead of the key's clock, by which deadlines and `at_ms` go.
        let is_earlier = |until_ms: i64, sent_s: i64| until_ms.div_euclid(1000) < sent_s && until_ms < self.at_ms;
        if until_ms.zip(self.first_sent_s).is_some_and(|(until_ms, sent_s)| is_earlier(until_ms, sent_s)) {
            return None;
        }
        // No attempt carries a deadline so far ahead, and nothing is promised for longer than two retentions. The bound
        // keeps a client's mistake from leaving a tombstone for good.
        let until_ms = until_ms.map(|until_ms| until_ms.min(now_ms + 2 * retention_s * 1000 + AHEAD_MS_MAX));
        let until_ms = until_ms.map(|until_ms| if holds(Rule::Until) { until_ms } else { 0 });
        let (deadline, lapses_ms) = match (self.deadline, until_ms) {
            (LatestDeadline::At(seen_ms), Some(until_ms)) => {
                (self.deadline, seen_ms.max(until_ms) + TOMBSTONE_GRACE_MS)
            }
            // No deadline bounds the attempts that may still arrive, so the fence has to: see `retention::fate`.
            (LatestDeadline::At(seen_ms), None) => {
                (LatestDeadline::None, (now_ms + retention_s * 1000).max(seen_ms + TOMBSTONE_GRACE_MS))
            }
            (LatestDeadline::None, _) => {
                (LatestDeadline::None, (now_ms + retention_s * 1000).max(until_ms.unwrap_or(0) + TOMBSTONE_GRACE_MS))
            }
        };
        let state = State::Tombstone { kind: TombstoneKind::Acknowledged, executed, lapses_ms };
        let (principal, carried) = (self.principal.clone(), self.carried.clone());
        Some(Self { principal, first_sent_s: self.first_sent_s, at_ms: now_ms, deadline, state, carried })
    }
}

/// The first-sent that holds for both: the later one, or `None` if either has none.
fn latest_first_sent(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.zip(other).map(|(one, other)| one.max(other))
}
