//! What a seed asks for.
//!
//! Invariant: a plan is a function of its seed and of nothing else.

use fastrand::Rng;

/// One mistake on purpose. A run with it must be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Nothing is wrong.
    Nothing,
    /// An acknowledged record leaves no tombstone.
    NoTombstone,
    /// An acknowledgement says nothing of the attempts that may still be under way.
    TombstoneWithoutUntil,
    /// The store says that a row is written before it is.
    SendBeforePersisting,
    /// The effect is committed by itself, before the record.
    EffectApart,
    /// A request is forgotten before its caller has the answer.
    ForgetBeforeDelivery,
    /// Each attempt after the first has an id of its own.
    NewIdPerAttempt,
}

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What made it.
    pub seed: u64,
    /// What is wrong on purpose.
    pub wrong: Wrong,
    /// How many requests the application makes.
    pub requests: usize,
    /// Over what time, in ms.
    pub busy_ms: i64,
    /// How many keys there are.
    pub keys: usize,
    /// The share of requests that never reach the server, in percent.
    pub lose_requests: u32,
    /// The share of answers that never reach the client, in percent.
    pub lose_answers: u32,
    /// The share of messages that arrive twice, in percent.
    pub repeat: u32,
    /// The longest way of a message, in ms.
    pub delay_ms_max: i64,
    /// The share of calls in which the server crashes, in percent.
    pub crash_server: u32,
    /// How often a tab is closed and opened again.
    pub reloads: usize,
    /// How often a tab freezes, and for how long at most.
    pub freezes: usize,
    /// The longest freeze, in ms.
    pub freeze_ms_max: i64,
    /// How many more tabs are opened on the way.
    pub more_tabs: usize,
    /// Whether a tab can tell which others live.
    pub has_locks: bool,
    /// The pause between two attempts.
    pub retry_interval_ms: i64,
    /// The timeouts of attempts, one for each tab in turn.
    pub attempt_timeouts_ms: [i64; 2],
    /// The share of requests that the application gives up, in percent.
    pub give_up: u32,
    /// How far the clocks of the keys are ahead of the worker's, in ms.
    pub keys_ahead_ms: i64,
    /// The retention, in s.
    pub retention_s: i64,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        Self::wrong(seed, Wrong::Nothing)
    }

    /// The plan of a seed with a mistake.
    pub fn wrong(seed: u64, wrong: Wrong) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Most seeds have some faults and lack others: all at once would hide what each does alone.
        let mut some = |most: u32| if rng.u32(0..3) == 0 { 0 } else { rng.u32(0..=most) };
        let (lose_requests, lose_answers, repeat, crash_server) = (some(60), some(60), some(40), some(20));
        let (reloads, freezes, more_tabs) = (some(3), some(3), some(2));
        let give_up = some(30);
        let plan = Self {
            seed,
            wrong,
            requests: rng.usize(1..=12),
            busy_ms: [1_000, 20_000, 200_000][rng.usize(0..3)],
            keys: rng.usize(1..=2),
            lose_requests,
            lose_answers,
            repeat,
            delay_ms_max: [5, 2_000, 30_000, 150_000][rng.usize(0..4)],
            crash_server,
            reloads: reloads as usize,
            freezes: freezes as usize,
            freeze_ms_max: [1_000, 30_000, 300_000][rng.usize(0..3)],
            more_tabs: more_tabs as usize,
            has_locks: rng.bool(),
            retry_interval_ms: [50, 1_000, 5_000][rng.usize(0..3)],
            attempt_timeouts_ms: [rng.i64(100..=100_000), rng.i64(100..=20_000)],
            give_up,
            keys_ahead_ms: [0, -60_000, 90_000, 43_200_000][rng.usize(0..4)],
            retention_s: 86_400,
        };
        if rng.u32(0..5) == 0 { plan.crowded() } else { plan }
    }

    /// Two tabs that know nothing of each other, one patient and one not, on a slow network: the one's attempts are under
    /// way long after the other has acknowledged.
    fn crowded(self) -> Self {
        Self {
            requests: 12,
            busy_ms: 200_000,
            keys: 1,
            delay_ms_max: 150_000,
            more_tabs: 2,
            has_locks: false,
            attempt_timeouts_ms: [100_000, 1_000],
            ..self
        }
    }
}
