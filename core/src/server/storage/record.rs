//! Records: what a key keeps of a request. Pure: their rows are in [`super::rows`].
//!
//! Invariants:
//! - A record answers only its principal.
//! - Outcome and fingerprint leave together; whether the request ran stays as long as the row.
//! - A tombstone outlives every attempt that may still arrive: it lapses 60 s after the latest deadline.

use super::packed::Bundle;
use crate::fingerprint::Fingerprint;
use crate::header::{AHEAD_MS_MAX, Attempt};
use crate::id::Principal;
use crate::message::Headers;
use crate::problem::Executed;
use crate::rules::{Rule, holds};
use std::sync::Arc;

/// How long a tombstone stays after the latest deadline that an attempt may carry.
pub const TOMBSTONE_GRACE_MS: i64 = 60_000;
/// Deadlines are kept rounded up to this, so that a run of replays writes a row once in ten seconds, not each time.
pub const DEADLINE_GRAIN_MS: i64 = 10_000;

/// The recorded answer. By default it is none: it stands for one that was not read.
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
    /// Every attempt so far carried one; this is the latest, rounded up.
    At(i64),
    /// An attempt carried none.
    None,
}

impl LatestDeadline {
    /// The first attempt's.
    pub fn of(deadline_ms: Option<i64>) -> Self {
        match deadline_ms {
            Some(deadline_ms) => {
                Self::At(deadline_ms.saturating_add(DEADLINE_GRAIN_MS - 1) / DEADLINE_GRAIN_MS * DEADLINE_GRAIN_MS)
            }
            None => Self::None,
        }
    }

    /// With other attempts.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(one), Self::At(other)) => Self::At(one.max(other)),
            _ => Self::None,
        }
    }
}

/// Why a tombstone says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TombstoneKind {
    /// The client acknowledged the outcome.
    Acknowledged,
    /// The outcome was kept for the retention.
    Expired,
}

/// How an attempt finds out what became of what was sent: by the policy that it was sent under, whatever its route says since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finds {
    /// It is sent again, or asked for, until this instant, in Unix ms: no later than an attempt was told that nothing finds out.
    Until(i64),
    /// It is asked for at any time, and sent again only once it is proven that nothing is there. That nothing is found proves nothing before this
    /// instant, in Unix ms.
    Asked(i64),
}

/// Where a request is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It ran, and this is its outcome.
    Executed(Fingerprint, Arc<Outcome>),
    /// The handler crashed on it too often.
    Poisoned(Fingerprint),
    /// It was cancelled before it ran. `lapses_ms`: only for one without first-sent, in its second retention.
    Cancelled {
        /// When it may leave.
        lapses_ms: Option<i64>,
    },
    /// The handler crashed on it, or may have; it may run again. See [`crate::server::attempt::suspicion`].
    Suspect {
        /// How often it crashed.
        crashes: i64,
        /// Whether it was started since, and has not ended.
        is_started: bool,
    },
    /// It was sent to where it is executed ([`crate::server::engine::remote`]): it is under way, or in doubt.
    Dispatched {
        /// Of the request.
        fingerprint: Fingerprint,
        /// How often it was sent.
        times: i64,
        /// The key's clock when it was sent first, in Unix ms.
        first_ms: i64,
        /// What an attempt may do to find out what became of it, once nothing of it is under way.
        finds: Finds,
        /// What the handler said stands for where it was sent; `None`: versions before this have sent it, and did not keep that.
        whither: Option<i64>,
    },
    /// Its outcome is gone, and it must not run again.
    Tombstone {
        /// Why.
        kind: TombstoneKind,
        /// Whether it ran.
        executed: Executed,
        /// When it may leave.
        lapses_ms: i64,
    },
}

/// What a key keeps of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose it is.
    pub principal: Principal,
    /// When it was first sent, in Unix s.
    pub first_sent_s: Option<i64>,
    /// The key's clock at the last change of its state, in Unix ms. Of what was sent, and whose call has ended later than it may: so long before that end.
    pub at_ms: i64,
    /// The latest deadline seen.
    pub deadline: LatestDeadline,
    /// Where it is in its life.
    pub state: State,
    /// Tombstones of its principal that have no row but this one.
    pub carried: Bundle,
}

/// How many records came, less those that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Change {
    /// Unacknowledged records.
    pub records: i64,
    /// Tombstones and cancelled ids.
    pub tombstones: i64,
    /// Of the records, those that were sent to where they are executed, and have no outcome.
    pub dispatched: i64,
}

impl Change {
    /// A record came.
    pub fn came(&mut self, record: &Record) {
        *self.limit_of(record) += 1;
        self.dispatched += record.dispatched();
    }

    /// A record left.
    pub fn left(&mut self, record: &Record) {
        *self.limit_of(record) -= 1;
        self.dispatched -= record.dispatched();
    }

    /// Which limit a record counts against.
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

    /// Whether it answers a principal: its own. What an administrator cancelled before anybody asked for it is cancelled for all.
    // Once, and not in each place that asks.
    #[inline(never)]
    pub fn answers(&self, principal: &Principal) -> bool {
        let is_for_all = || matches!(self.state, State::Cancelled { .. }) && self.principal.is_administrator();
        self.principal == *principal || is_for_all()
    }

    /// The record, protected from the attempts that another record of the id has seen as well.
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

    /// The record after one more attempt; `None` if that changes nothing.
    ///
    /// What protects an id must hold for every attempt of it: the latest deadline and the latest first-sent count, and one
    /// attempt without stands for all.
    pub fn seen_again(&self, attempt: &Attempt, now_ms: i64, retention_s: i64) -> Option<Self> {
        let mut record = Self {
            first_sent_s: latest_first_sent(self.first_sent_s, attempt.first_sent_s),
            deadline: self.deadline.and(LatestDeadline::of(attempt.deadline_ms)),
            ..self.clone()
        };
        if let State::Tombstone { lapses_ms, .. } = &mut record.state {
            // An attempt past what the client announced: the tombstone must outlive it too.
            let needed_ms = match LatestDeadline::of(attempt.deadline_ms) {
                LatestDeadline::At(deadline_ms) => deadline_ms + TOMBSTONE_GRACE_MS,
                LatestDeadline::None if self.deadline == LatestDeadline::None => *lapses_ms,
                LatestDeadline::None => now_ms + retention_s * 1000,
            };
            *lapses_ms = needed_ms.max(*lapses_ms);
        }
        (record != *self && holds(Rule::SeenDeadlines)).then_some(record)
    }

    /// The tombstone that an acknowledgement makes of it; `None` if it is not to be acknowledged.
    ///
    /// A cancelled id has no outcome to free, and leaves by the fence alone.
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
        // No attempt has a deadline before its first-sent: this speaks of an earlier request under the id, whose tombstone has left.
        if until_ms.zip(self.first_sent_s).is_some_and(|(until_ms, sent_s)| until_ms.div_euclid(1000) < sent_s) {
            return None;
        }
        // No attempt carries a deadline so far ahead, and past two retentions nothing is promised: a client's mistake must
        // not leave a tombstone for good.
        let until_ms = until_ms.map(|until_ms| until_ms.min(now_ms + 2 * retention_s * 1000 + AHEAD_MS_MAX));
        let until_ms = until_ms.map(|until_ms| if holds(Rule::Until) { until_ms } else { 0 });
        let (deadline, lapses_ms) = match (self.deadline, until_ms) {
            (LatestDeadline::At(seen_ms), Some(until_ms)) => {
                (self.deadline, seen_ms.max(until_ms) + TOMBSTONE_GRACE_MS)
            }
            // No deadline bounds what may still arrive, so the fence has to: see `retention::fate`.
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

/// The first-sent that holds for both: the later, or none if one has none.
fn latest_first_sent(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.zip(other).map(|(one, other)| one.max(other))
}
