//! What a seed decides about requests that are committed together.

use fastrand::Rng;

/// The options.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The time over which things are begun, in ms. Faults last twice as long.
    pub busy_ms: i64,
    /// How many wishes there are. In two of three seeds there are none, and no run.
    pub wishes: usize,
    /// How often somebody reads.
    pub reads: usize,
    /// The longest that a commit takes while there are faults, in ms.
    pub commit_ms_max: i64,
    /// The most requests in one commit.
    pub group_max: usize,
    /// The pause between the first two attempts, in ms.
    pub interval_ms: i64,
    /// The share of wishes that are given up, in percent.
    pub give_up: u32,
    /// The share of answers that are lost, in percent.
    pub lose_answers: u32,
    /// The share of messages that arrive twice, in percent.
    pub repeat: u32,
    /// The share of messages that go to the key together with others that come to its Worker in the same moment, in
    /// percent.
    pub gather: u32,
    /// The share of wishes whose attempts have a deadline, in percent.
    pub deadlines: u32,
    /// How often somebody uses an id once more, with another payload or as another principal.
    pub others: usize,
    /// The share of wishes for which something goes wrong in the handler, in percent.
    pub troubles: u32,
    /// The share of calls in which the object ends, in percent.
    pub crash: u32,
    /// The share of calls in which a statement fails, in percent.
    pub fail: u32,
    /// The share of calls in which the disk is full, in percent. That rolls back everything that is not committed, and
    /// the object ends.
    pub full: u32,
    /// The share of commits that fail, in percent.
    pub fail_commits: u32,
    /// How often the object ends by itself.
    pub ends: usize,
    /// The share of messages that go to the key in one batch with others, in percent.
    pub batches: u32,
    /// How often the key is told to forget.
    pub forgets: usize,
    /// How often the clock of its machine jumps.
    pub jumps: usize,
    /// How often the key is restored from a backup.
    pub restores: usize,
    /// How often the key is deployed anew.
    pub deployments: usize,
    /// How often an administrator deletes the key. Never if it is restored, or may be full.
    pub deletions: usize,
    /// The retentions from which deployments choose, in seconds.
    pub retentions_s: [i64; 2],
    /// The share of commits that are durable although the object ended during them, in percent.
    pub survives: u32,
    /// The most unacknowledged records of the key. If they are few, retentions are short, so that room comes.
    pub records_max: u64,
    /// The most tombstones of the key, likewise.
    pub tombstones_max: u64,
}

/// No run takes so long that a retention of this many seconds would end.
const LONG_S: i64 = 3_600;
/// A key that may have so many records or tombstones is never full.
const ROOMY: u64 = 100_000;
/// How much longer than a retention what is left of a record may stay, in ms.
const TOMBSTONE_MS_MAX: i64 = 120_000;

impl Options {
    /// Whether requests without first-sent may be forgotten.
    pub fn is_forgetful(&self) -> bool {
        self.forgets > 0 || self.deletions > 0 || self.retentions_s[0].min(self.retentions_s[1]) < LONG_S
    }

    /// Whether the key may be full.
    pub fn is_small(&self) -> bool {
        self.records_max.min(self.tombstones_max) < ROOMY
    }

    /// The longest that all requests wait for room, one after the other, in ms. A record that nobody acknowledges stays
    /// for a retention. So does what is left of it, or for as long as an attempt may arrive.
    pub fn room_ms_max(&self) -> i64 {
        let retention_ms = self.retentions_s[0].max(self.retentions_s[1]).saturating_mul(1000);
        if self.is_small() { (self.wishes as i64 * 2 + 1) * (retention_ms * 2 + TOMBSTONE_MS_MAX) } else { 0 }
    }

    /// The options of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(crate::plan::of_together(seed));
        let mut some = |most: u32| if rng.u32(0..2) == 0 { 0 } else { rng.u32(1..=most) };
        let (lose_answers, repeat, troubles, ends, give_up) = (some(40), some(40), some(60), some(3), some(40));
        let (crash, fail, full, fail_commits) = (some(4), some(30), some(3), some(15));
        let gather = Rng::with_seed(crate::plan::of_together(!seed)).u32(0..2) * 70;
        let mut more = Rng::with_seed(crate::plan::of_deadlines(seed));
        let (deadlines, others) = (more.u32(0..3) * 40, more.usize(0..6));
        let mut midst = Rng::with_seed(crate::plan::of_midst(seed));
        let mut seldom = |most: u32| if midst.u32(0..3) > 0 { 0 } else { midst.u32(1..=most) };
        let (forgets, jumps, restores, deployments) = (seldom(4), seldom(6), seldom(3), seldom(4));
        let (batches, survives) = (midst.u32(0..2) * midst.u32(20..=90), midst.u32(0..2) * 50);
        let retention_s = [86_400, 86_400, 5, 20][midst.usize(0..4)];
        let retentions_s = crate::plan::for_ever_in_some(seed, [retention_s, retention_s * midst.i64(1..=3)]);
        let mut room = Rng::with_seed(crate::plan::of_room(seed));
        let is_short = retentions_s.iter().all(|retention_s| *retention_s < LONG_S);
        let is_small = is_short && room.u32(0..3) == 0;
        let mut limit = || if is_small && room.bool() { room.u64(1..=6) } else { ROOMY };
        let (records_max, tombstones_max) = (limit(), limit());
        let mut deleting = Rng::with_seed(crate::plan::of_together_deleting(seed));
        let may_be_deleted = restores == 0 && records_max.min(tombstones_max) == ROOMY;
        let deletions = if may_be_deleted && deleting.u32(0..3) == 0 { deleting.usize(1..=3) } else { 0 };
        Self {
            busy_ms: [300, 1_000, 6_000, 15_000][rng.usize(0..4)],
            wishes: if rng.u32(0..3) > 0 { 0 } else { rng.usize(4..=20) },
            reads: rng.usize(0..=6),
            commit_ms_max: [100, 400, 3_000][rng.usize(0..3)],
            group_max: [2, 4, 256, 256][rng.usize(0..4)],
            interval_ms: [200, 1_000][rng.usize(0..2)],
            give_up,
            lose_answers,
            repeat,
            gather,
            deadlines,
            others,
            troubles,
            crash,
            fail,
            full,
            fail_commits,
            ends: ends as usize,
            batches,
            forgets: forgets as usize,
            jumps: jumps as usize,
            restores: restores as usize,
            deployments: deployments as usize,
            deletions,
            retentions_s,
            survives,
            records_max,
            tombstones_max,
        }
    }
}
