//! What a seed decides about requests that are executed elsewhere.
//!
//! Invariant: the service is as its routes describe it. A request is under way no longer than a probe waits before it
//! proves something. An id is known for as long as it is sent again, plus the time for which it may be under way after
//! that.

use fastrand::Rng;

/// The longest that commits are held back, in ms.
pub const HOLD_MS_MAX: i64 = 3_000;

/// The options. Faults between callers and the key, and in the key's database, are as frequent as in the other runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The time over which things are begun, in ms. Faults last twice as long.
    pub busy_ms: i64,
    /// How many requests there are. In two of three seeds there are none, and no run.
    pub wishes: usize,
    /// How often something else is asked, or something again.
    pub again: usize,
    /// How often an administrator acts.
    pub administrations: usize,
    /// How often the object ends by itself.
    pub ends: usize,
    /// The share of steps before which the object ends, in percent.
    pub dies: u32,
    /// How often the service is gone for a while.
    pub outages: usize,
    /// The share of requests that never reach the service, in percent.
    pub lose: u32,
    /// The share of its answers that never reach the key, in percent.
    pub lose_answers: u32,
    /// The share of requests at which the service fails, before or after the effect, in percent.
    pub fail: u32,
    /// The share of requests that something in front of the service refuses, in percent.
    pub refuse: u32,
    /// The share of requests that surely do not leave, in percent.
    pub unreachable: u32,
    /// The share of requests that take long, on their way or at the service, in percent.
    pub slow: u32,
    /// How long the key waits for an answer, in ms.
    pub timeout_ms: i64,
    /// How long a request may be under way until it has its effect, in ms.
    pub transit_ms: i64,
    /// How long a request is sent again, in seconds.
    pub dedup_s: i64,
    /// The pause between two attempts, in ms.
    pub interval_ms: i64,
    /// The retention of the key, in seconds.
    pub retention_s: i64,
    /// How often it is deployed anew with other times.
    pub deployments: usize,
    /// The share of messages that carry what is to be acknowledged, in percent.
    pub along: u32,
    /// The retentions from which deployments choose, in seconds.
    pub retentions_s: [i64; 2],
    /// The most unacknowledged records of the key. If they are few, retentions are short, so that room comes.
    pub records_max: u64,
    /// The most tombstones of the key, likewise.
    pub tombstones_max: u64,
    /// How often the clock of its machine jumps by itself. If it does at all, it also does while calls are under way.
    pub jumps: usize,
    /// How often it is put back to a backup, if there is one by then.
    pub restores: usize,
}

/// A key that may have so many records or tombstones is never full.
const ROOMY: u64 = 100_000;
/// The longest first retention of a key that may be full, in seconds.
const SHORT_S: i64 = 20;

/// The two times for which a message may be under way, in ms.
const TRANSIT_MS_MIN: i64 = 2_000;
const TRANSIT_MS_MAX: i64 = 8_000;

/// What each deployment sets: how long the key waits for an answer, and how long a request may be under way until it
/// has its effect, both in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub timeout_ms: i64,
    pub transit_ms: i64,
}

impl Times {
    /// The times of the next deployment.
    pub fn others(self, rng: &mut Rng) -> Self {
        let transit_ms = if self.transit_ms == TRANSIT_MS_MAX { TRANSIT_MS_MIN } else { TRANSIT_MS_MAX };
        Self { timeout_ms: [1_000, 5_000][rng.usize(0..2)], transit_ms }
    }

    /// How long after it was sent a request has had its effect or never will, in seconds. A commit may be slow before
    /// it leaves.
    pub fn settle_s(self) -> i64 {
        (self.transit_ms + HOLD_MS_MAX).div_euclid(1000) + 1
    }
}

impl Options {
    /// The options of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(crate::plan::of_remote(seed));
        let mut some = |most: u32| if rng.u32(0..3) == 0 { 0 } else { rng.u32(0..=most) };
        let (lose, lose_answers, fail, slow) = (some(50), some(60), some(40), some(50));
        let (outages, administrations, ends) = (some(2) as usize, some(5) as usize, some(2) as usize);
        let mut seldom = |most: u32| if rng.u32(0..3) > 0 { 0 } else { rng.u32(1..=most) };
        let (refuse, unreachable, dies) = (seldom(30), seldom(30), seldom(15));
        let mut room = Rng::with_seed(crate::plan::of_remote_room(seed));
        // Most seeds have nothing of this.
        let has_more = u32::from(room.u32(0..4) == 0);
        let (along, longer) = (has_more * room.u32(0..2) * room.u32(20..=100), room.i64(1..=4));
        let (is_small, is_other) = (has_more > 0 && room.bool(), has_more > 0 && room.bool());
        let mut limit = || if is_small && room.bool() { room.u64(1..=4) } else { ROOMY };
        let (records_max, tombstones_max) = (limit(), limit());
        let mut shifts = Rng::with_seed(crate::plan::of_shifts(seed));
        // In one of eight seeds, so that the other runs are as they were.
        let mut few =
            |most: usize| if !seed.is_multiple_of(8) || shifts.u32(0..3) == 0 { 0 } else { shifts.usize(1..=most) };
        let (jumps, restores) = (few(4), few(3));
        let plan = Self {
            busy_ms: [10_000, 30_000, 60_000][rng.usize(0..3)],
            wishes: if rng.u32(0..3) > 0 { 0 } else { rng.usize(1..=6) },
            again: rng.usize(0..=10),
            administrations,
            ends,
            dies,
            outages,
            lose,
            lose_answers,
            fail,
            refuse,
            unreachable,
            slow,
            timeout_ms: [1_000, 5_000][rng.usize(0..2)],
            transit_ms: [TRANSIT_MS_MIN, TRANSIT_MS_MAX][rng.usize(0..2)],
            dedup_s: [5, 20, 60][rng.usize(0..3)],
            interval_ms: [1_000, 3_000][rng.usize(0..2)],
            retention_s: [5, 20, 86_400, 86_400][rng.usize(0..4)],
            deployments: if rng.u32(0..3) > 0 { 0 } else { rng.usize(1..=3) },
            along,
            retentions_s: [0; 2],
            records_max,
            tombstones_max,
            jumps,
            restores,
        };
        let retention_s = if plan.is_small() { plan.retention_s.min(SHORT_S) } else { plan.retention_s };
        let retentions_s = [retention_s, if is_other { retention_s * longer } else { retention_s }];
        let retentions_s = if plan.is_small() || has_more == 0 {
            retentions_s
        } else {
            crate::plan::for_ever_in_some(seed, retentions_s)
        };
        Self { retention_s: retentions_s[0], retentions_s, ..plan }
    }

    /// Whether the key may be full.
    pub fn is_small(&self) -> bool {
        self.records_max.min(self.tombstones_max) < ROOMY
    }

    /// The times until the first deployment.
    pub fn times(&self) -> Times {
        Times { timeout_ms: self.timeout_ms, transit_ms: self.transit_ms }
    }

    /// How long the service knows an id, in ms.
    pub fn knows_ms(&self) -> i64 {
        let transit_ms = if self.deployments > 0 { TRANSIT_MS_MAX } else { self.transit_ms };
        (self.dedup_s + Times { transit_ms, ..self.times() }.settle_s()) * 1000
    }
}
