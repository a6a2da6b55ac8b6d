//! The plan of a run: what its seed decides.
//!
//! - [`Plan`]: the main run
//! - `sessions`: the run of sessions and batches
//! - `streams`: the streams of random numbers
//!
//! Invariants:
//! - A plan depends only on its seed.
//! - If the limits of a key are small, its retention is short. Then records that nobody acknowledges leave soon, and
//!   everything can settle.

mod sessions;
mod streams;

pub use sessions::Sessions;
pub(crate) use streams::{
    of_administering, of_deadlines, of_deleting, of_effects, of_forgetting, of_idling, of_mending, of_midst, of_remote,
    of_remote_room, of_restoring, of_room, of_session_backups, of_sessions, of_sharing, of_shifts, of_sockets,
    of_taking, of_together, of_together_deleting,
};

use crate::{effects, remote, together};
use fastrand::Rng;
use semel_core::server::config::FOREVER_S;
use streams::{of_keeping, of_methods, of_patience, of_waiting};

/// The longest that an impatient caller waits, in ms.
const PATIENCE_MS_MAX: i64 = 3_000;

/// The options of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The seed that made it.
    pub seed: u64,
    /// How many requests the application makes through the SDK.
    pub requests: usize,
    /// The time over which they are made, in ms. Faults last twice as long.
    pub busy_ms: i64,
    /// How many keys there are.
    pub keys: usize,
    /// How many browsers, each with a store and tabs.
    pub browsers: usize,
    /// The share of requests that never reach the server, in percent.
    pub lose_requests: u32,
    /// The share of answers that never reach the client, in percent.
    pub lose_answers: u32,
    /// The share of messages that arrive twice, in percent.
    pub repeat: u32,
    /// The longest that a message is under way, in ms.
    pub delay_ms_max: i64,
    /// How often a client is cut off.
    pub partitions: usize,
    /// The share of answers that somebody in between makes up, in percent.
    pub gateway: u32,
    /// The share of calls in which the server crashes, in percent.
    pub crash_server: u32,
    /// The share of calls in which a statement or a commit fails, in percent.
    pub fail_statements: u32,
    /// The share of calls in which the disk is full, in percent.
    pub full_disk: u32,
    /// The share of calls after which commits are slow, in percent.
    pub slow_commits: u32,
    /// How often a key is restarted, perhaps with another clock and retention.
    pub restarts: usize,
    /// How far a clock jumps, at most, in ms.
    pub jump_ms_max: i64,
    /// How far the clocks of the keys are ahead of the worker's, in ms.
    pub keys_ahead_ms: i64,
    /// How often a clock jumps during the run, as far as that.
    pub jumps: usize,
    /// The retentions from which restarts choose, in seconds.
    pub retentions_s: [i64; 2],
    /// The most unacknowledged records of a key.
    pub records_max: u64,
    /// The most tombstones of a key.
    pub tombstones_max: u64,
    /// The share of requests on which the handler fails or crashes, in percent.
    pub troubles: u32,
    /// How often a tab is closed and opened again.
    pub reloads: usize,
    /// How often a tab freezes.
    pub freezes: usize,
    /// The longest freeze, in ms.
    pub freeze_ms_max: i64,
    /// How many more tabs are opened during the run.
    pub more_tabs: usize,
    /// Whether a tab can tell which others live.
    pub has_locks: bool,
    /// How often a browser loses its storage.
    pub storage_losses: usize,
    /// The share of transactions of the store that fail, in percent.
    pub fail_store: u32,
    /// How often a browser's user logs in as somebody else, or out.
    pub logins: usize,
    /// The pause between two attempts, in ms.
    pub retry_interval_ms: i64,
    /// The time-outs of attempts, in ms. Tabs take them in turn.
    pub attempt_timeouts_ms: [i64; 2],
    /// The share of requests that wait for those before them at their key, in percent.
    pub ordered: u32,
    /// The share of a tab's requests whose key depends on the method as well as the path, in percent.
    pub elsewhere: u32,
    /// The share of requests whose id the application chose, and that is used again and asked for, in percent.
    pub share: u32,
    /// How often an administrator acts, or somebody who pretends to be one.
    pub administrations: usize,
    /// How often a browser is told that the network is gone, and later that it is back.
    pub offlines: usize,
    /// How often the user looks at a tab again.
    pub hurries: usize,
    /// The share of requests that the application gives up, in percent.
    pub give_up: u32,
    /// The share of tabs whose callers wait only for a limited time, in percent.
    pub impatient: u32,
    /// How many requests are made by hand.
    pub curls: usize,
    /// How often a client of such requests crashes.
    pub curl_crashes: usize,
    /// How often a key is put back to a backup, if there is one by then.
    pub restores: usize,
    /// How often somebody asks for what belongs to another principal.
    pub strangers: usize,
    /// How many requests are malformed, or ask for something that does not exist.
    pub malformed: usize,
    /// How many reads there are.
    pub reads: usize,
    /// What happens in sessions and batches.
    pub sessions: Sessions,
    /// What happens to requests that are executed elsewhere.
    pub remote: remote::Options,
    /// What happens to effects.
    pub effects: effects::Options,
    /// What happens to requests that are committed together.
    pub together: together::Options,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Self::any(seed, &mut rng);
        let plan = match rng.u32(0..8) {
            0 | 7 => plan.crowded(),
            1 | 2 => plan.short_lived(&mut rng),
            3 => plan.lossy(&mut rng),
            _ => plan,
        };
        // Another stream of numbers, so that all other decisions stay as they were.
        let mut rng = Rng::with_seed(of_methods(seed));
        let plan = if rng.u32(0..6) == 0 { plan.elsewhere(&mut rng) } else { plan };
        Self { restores: plan.restores_of(), ..plan }
    }

    fn any(seed: u64, rng: &mut Rng) -> Self {
        // Most seeds have only some of the faults: all at once would hide what each does alone.
        let mut some = |most: u32| if rng.u32(0..3) == 0 { 0 } else { rng.u32(0..=most) };
        let (lose_requests, lose_answers, repeat, crash_server) = (some(60), some(60), some(40), some(20));
        let (reloads, freezes, more_tabs, partitions) = (some(3), some(3), some(2), some(2));
        let (give_up, curls, strangers, reads) = (some(30), some(5), some(4), some(4));
        let mut seldom = |most: u32| if rng.u32(0..3) > 0 { 0 } else { rng.u32(1..=most) };
        let (fail_statements, full_disk, slow_commits, gateway) = (seldom(15), seldom(15), seldom(15), seldom(10));
        let (troubles, logins, fail_store, malformed) = (seldom(40), seldom(2), seldom(10), seldom(6));
        let (offlines, hurries) = (seldom(3), seldom(4));
        let (restarts, storage_losses, jumps, curl_crashes) = (seldom(3), seldom(2), seldom(4), seldom(4));
        Self {
            seed,
            requests: rng.usize(1..=10),
            busy_ms: [1_000, 20_000, 200_000][rng.usize(0..3)],
            keys: rng.usize(1..=2),
            browsers: rng.usize(1..=2),
            lose_requests,
            lose_answers,
            repeat,
            delay_ms_max: [5, 2_000, 30_000, 150_000, 7_200_000][rng.usize(0..5)],
            partitions: partitions as usize,
            gateway,
            crash_server,
            fail_statements,
            full_disk,
            slow_commits,
            restarts: restarts as usize,
            jump_ms_max: [0, 60_000, 86_400_000][rng.usize(0..3)],
            jumps: jumps as usize,
            keys_ahead_ms: [0, -60_000, 90_000, 43_200_000, 86_400_000][rng.usize(0..5)],
            retentions_s: [86_400; 2],
            records_max: 100_000,
            tombstones_max: 1_000_000,
            troubles,
            reloads: reloads as usize,
            freezes: freezes as usize,
            freeze_ms_max: [1_000, 30_000, 300_000][rng.usize(0..3)],
            more_tabs: more_tabs as usize,
            has_locks: rng.bool(),
            storage_losses: storage_losses as usize / 2,
            fail_store,
            logins: logins as usize,
            retry_interval_ms: [50, 1_000, 5_000][rng.usize(0..3)],
            attempt_timeouts_ms: [rng.i64(100..=100_000), rng.i64(100..=20_000)],
            ordered: [0, 50, 100][rng.usize(0..3)],
            elsewhere: 0,
            share: share_of(seed),
            administrations: administrations_of(seed),
            offlines: offlines as usize,
            hurries: hurries as usize,
            give_up,
            impatient: waiting_of(seed),
            curls: curls as usize,
            curl_crashes: curl_crashes as usize,
            restores: 0,
            strangers: strangers as usize,
            malformed: malformed as usize,
            reads: reads as usize,
            sessions: Sessions::of(seed),
            remote: remote::Options::of(seed),
            effects: effects::Options::of(seed),
            together: together::Options::of(seed),
        }
    }

    /// Two tabs that do not know of each other, one patient and one not, on a slow network. The patient one's attempts
    /// are still under way long after the other has acknowledged.
    fn crowded(self) -> Self {
        Self {
            requests: 12,
            busy_ms: 200_000,
            keys: 1,
            browsers: 1,
            delay_ms_max: 150_000,
            more_tabs: 2,
            reads: 8,
            logins: 0,
            troubles: 0,
            has_locks: false,
            attempt_timeouts_ms: [100_000, 1_000],
            storage_losses: 0,
            jump_ms_max: 0,
            retentions_s: [86_400; 2],
            ..self
        }
    }

    /// Retentions that end during the run, and sometimes limits that are reached.
    fn short_lived(self, rng: &mut Rng) -> Self {
        let retention_s = [5, 20, 60, 300][rng.usize(0..4)];
        let is_small = rng.bool();
        let busy_ms = [20_000, 200_000][rng.usize(0..2)].max(retention_s * 2_000);
        let retentions_s = [retention_s, retention_s * rng.i64(1..=4)];
        Self {
            busy_ms,
            retentions_s: if is_small { retentions_s } else { for_ever_in_some(self.seed, retentions_s) },
            records_max: if is_small { rng.u64(1..=6) } else { self.records_max },
            tombstones_max: if is_small { rng.u64(1..=6) } else { self.tombstones_max },
            curls: rng.usize(3..=7),
            curl_crashes: rng.usize(0..=3),
            troubles: if rng.u32(0..3) == 0 { rng.u32(20..=80) } else { self.troubles },
            give_up: rng.u32(0..=60),
            restarts: rng.usize(0..=3),
            retry_interval_ms: self.retry_interval_ms.max(1_000),
            ..self
        }
    }

    /// Almost nothing arrives in one direction or in both.
    fn lossy(self, rng: &mut Rng) -> Self {
        Self {
            lose_requests: if rng.bool() { 0 } else { rng.u32(60..=90) },
            lose_answers: rng.u32(60..=90),
            retry_interval_ms: self.retry_interval_ms.max(1_000),
            ..self
        }
    }

    /// Requests to one path go to two keys, depending on the method, and many are given up. None is ordered, since
    /// there is no order before an answer has named the key.
    fn elsewhere(self, rng: &mut Rng) -> Self {
        let keys = 2;
        Self { keys, elsewhere: rng.u32(20..=80), give_up: rng.u32(30..=80), ordered: 0, ..self }
    }

    /// How often a key is put back. It is not if that would free an id for another payload, or fill the key with what
    /// was acknowledged since.
    fn restores_of(&self) -> usize {
        let mut rng = Rng::with_seed(of_restoring(self.seed));
        let often = if rng.u32(0..4) > 0 { 0 } else { rng.usize(1..=3) };
        let is_small = self.records_max.min(self.tombstones_max) < 100_000;
        if self.share > 0 || self.administrations > 0 || is_small { 0 } else { often }
    }

    /// Whether a request goes to a key that depends on the method as well as the path.
    pub fn is_elsewhere(&self, number: usize) -> bool {
        self.elsewhere > 0 && Rng::with_seed(!of_methods(self.seed) ^ number as u64).u32(0..100) < self.elsewhere
    }

    /// After how long a tab's callers stop waiting, in ms; `None` if they wait for the answer.
    pub fn gives_up_after_ms(&self, tab: usize) -> Option<i64> {
        let mut rng = Rng::with_seed(!of_waiting(self.seed) ^ tab as u64);
        (rng.u32(0..100) < self.impatient).then(|| rng.i64(0..=self.busy_ms))
    }

    /// After how long the caller of a holder's request stops waiting, in ms; `None` if it waits for the answer.
    pub fn patience_ms(&self, number: usize) -> Option<i64> {
        let mut rng = Rng::with_seed(!of_patience(self.seed) ^ number as u64);
        (rng.u32(0..100) < self.sessions.impatient).then(|| rng.i64(0..=PATIENCE_MS_MAX))
    }

    /// The longest that clients of requests made by hand may have to wait for a place in a full key, one after the
    /// other, in ms. An outcome that nobody acknowledges takes a place for two retentions.
    pub fn places_ms_max(&self) -> i64 {
        let unacknowledged = self.curls + self.administrations;
        let is_full = self.tombstones_max.min(self.records_max) <= unacknowledged as u64;
        let all = if is_full { unacknowledged as i64 } else { 0 };
        all * 2 * 1000 * self.retentions_s[0].max(self.retentions_s[1])
    }

    /// The shortest retention that is ever set, in seconds.
    pub fn retention_s_min(&self) -> i64 {
        self.retentions_s[0].min(self.retentions_s[1])
    }
}

/// The retentions from which deployments choose. In some runs one of them is for ever.
pub(crate) fn for_ever_in_some(seed: u64, [one, other]: [i64; 2]) -> [i64; 2] {
    match Rng::with_seed(of_keeping(seed)).u32(0..8) {
        0 => [one, FOREVER_S],
        1 => [FOREVER_S, other],
        _ => [one, other],
    }
}

fn administrations_of(seed: u64) -> usize {
    let mut rng = Rng::with_seed(!of_administering(seed));
    if rng.u32(0..4) > 0 { 0 } else { rng.usize(1..=6) }
}

fn waiting_of(seed: u64) -> u32 {
    let mut rng = Rng::with_seed(of_waiting(seed));
    if rng.u32(0..4) > 0 { 0 } else { rng.u32(30..=100) }
}

fn share_of(seed: u64) -> u32 {
    let mut rng = Rng::with_seed(!of_sharing(seed));
    if rng.u32(0..3) > 0 { 0 } else { rng.u32(20..=100) }
}
