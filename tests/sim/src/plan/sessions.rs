//! What the seed decides about the run of sessions and batches.

use super::for_ever_in_some;
use super::streams::{of_idling, of_patience, of_session_backups, of_sessions, of_sockets};
use fastrand::Rng;

/// The options of the run of sessions and batches. Its faults are as frequent as those of the main run.
#[derive(Debug, Clone, PartialEq)]
pub struct Sessions {
    /// The time over which things are begun, in ms. Faults last twice as long.
    pub busy_ms: i64,
    /// How many names of sessions there are at each key.
    pub names: usize,
    /// How many tabs hold a session from the start.
    pub holders: usize,
    /// How many more tabs take one over during the run.
    pub contentions: usize,
    /// How many requests the holders make.
    pub calls: usize,
    /// How many clients send batches of ordinary requests.
    pub batches: usize,
    /// How often something is sent to a session by hand.
    pub probes: usize,
    /// How often a client does something that takes many requests.
    pub hoards: usize,
    /// How often an administrator forgets, or deletes a key.
    pub administrations: usize,
    /// How often a key is put back to a backup.
    pub restores: usize,
    /// The share of requests on which the handler fails or crashes, in percent.
    pub troubles: u32,
    /// The share of callers that do not wait for long, in percent.
    pub impatient: u32,
    /// The retentions of which restarts choose, in seconds: for so long a session may be idle.
    pub retentions_s: [i64; 2],
    /// How many sessions a key has at most.
    pub sessions_max: u64,
    /// The share of holders and of clients with batches that send frames on a socket, in percent.
    pub sockets: u32,
    /// The share of clients with batches whose attempts have deadlines, in percent.
    pub deadlines: u32,
}

impl Sessions {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(of_sessions(seed));
        let is_short = rng.u32(0..3) == 0;
        let busy_ms = if is_short { 60_000 } else { [3_000, 20_000][rng.usize(0..2)] };
        let seldom = |rng: &mut Rng, most: usize| if rng.u32(0..4) > 0 { 0 } else { rng.usize(1..=most) };
        let mut apart = Rng::with_seed(of_sockets(seed));
        let mut keeping = Rng::with_seed(of_idling(seed));
        let (longer, is_cut) = (keeping.i64(1..=4), keeping.u32(0..6) == 0);
        let others_s = |retention_s: i64| match (is_short, is_cut) {
            (true, _) => for_ever_in_some(seed, [retention_s, retention_s * longer]),
            (false, true) => [retention_s, 10 * longer],
            (false, false) => [retention_s; 2],
        };
        Self {
            busy_ms,
            names: rng.usize(1..=2),
            holders: rng.usize(1..=3),
            contentions: rng.usize(0..=3),
            calls: rng.usize(1..=14),
            batches: rng.usize(0..=3),
            probes: rng.usize(0..=12),
            hoards: seldom(&mut rng, 1),
            administrations: seldom(&mut rng, 2),
            restores: restores_of(seed),
            troubles: if rng.bool() { 0 } else { rng.u32(5..=60) },
            impatient: impatient_of(seed),
            retentions_s: others_s(if is_short { [5, 15][rng.usize(0..2)] } else { 86_400 }),
            sessions_max: if rng.u32(0..3) == 0 { rng.u64(2..=6) } else { 100_000 },
            sockets: if apart.bool() { 0 } else { apart.u32(30..=100) },
            deadlines: if apart.bool() { 0 } else { apart.u32(30..=100) },
        }
    }
}

fn restores_of(seed: u64) -> usize {
    let mut rng = Rng::with_seed(of_session_backups(seed));
    if rng.u32(0..4) > 0 { 0 } else { rng.usize(1..=3) }
}

fn impatient_of(seed: u64) -> u32 {
    let mut rng = Rng::with_seed(of_patience(seed));
    if rng.u32(0..4) > 0 { 0 } else { rng.u32(20..=80) }
}
