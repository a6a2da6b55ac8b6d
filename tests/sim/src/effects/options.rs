//! What a seed decides about effects.

use fastrand::Rng;

/// The options.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The time over which things are begun, in ms. Faults last twice as long.
    pub busy_ms: i64,
    /// How many accounts there are, each a key.
    pub accounts: usize,
    /// How many requests there are that transfer money. In three of four seeds there are none, and no run.
    pub transfers: usize,
    /// The share of messages that are lost, in percent.
    pub lose: u32,
    /// The share of answers that are lost, in percent.
    pub lose_answers: u32,
    /// The share of messages that arrive twice, in percent.
    pub repeat: u32,
    /// The share of messages that are slow, in percent.
    pub slow: u32,
    /// The share of calls in which the object ends, in percent.
    pub crash: u32,
    /// The share of calls in which a statement fails, in percent.
    pub fail: u32,
    /// How often an object ends by itself.
    pub ends: usize,
    /// How often the module of an object is made anew under it.
    pub renewals: usize,
    /// How often a key does not know credits, for a while.
    pub refusals: usize,
    /// How often the first key is restored. Then nothing is sent to it, because the senders would not send again what
    /// it has forgotten.
    pub restores: usize,
    /// How often an administrator looks at a key. If a key is restored there is no administrator: what was mended would
    /// be undone, and nobody told.
    pub administrations: usize,
    /// The share of closings whose id somebody at the other key takes before they come, in percent.
    pub takes: u32,
    /// How often an administrator has a key forget its sessions, and everything else that is as old. Nobody mends
    /// anything then: whoever sends again what may have run does so at their own risk.
    pub forgets: usize,
    /// How often an administrator deletes a key. Nobody mends anything then, and no clock goes back.
    pub deletions: usize,
    /// How often the clock of a key's machine goes back.
    pub clock_backs: usize,
}

impl Options {
    /// The options of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(crate::plan::of_effects(seed));
        let mut mending = Rng::with_seed(crate::plan::of_mending(seed));
        let mut taking = Rng::with_seed(crate::plan::of_taking(seed));
        let mut forgetting = Rng::with_seed(crate::plan::of_forgetting(seed));
        let mut some = |most: u32| if rng.u32(0..3) == 0 { 0 } else { rng.u32(0..=most) };
        let (lose, lose_answers, repeat, slow) = (some(40), some(40), some(30), some(30));
        let (crash, fail) = (some(10), some(10));
        let (ends, renewals, refusals, restores) = (some(3), some(3), some(2), some(2));
        let administrations = if restores > 0 || mending.bool() { 0 } else { mending.usize(1..=20) };
        let takes = if taking.bool() { 0 } else { 50 };
        let clock_backs = if mending.bool() { 0 } else { mending.usize(1..=4) };
        let mut deleting = Rng::with_seed(crate::plan::of_deleting(seed));
        let deletions = if deleting.bool() { 0 } else { deleting.usize(1..=3) };
        let is_forgetful = restores == 0 && administrations == 0 && clock_backs == 0;
        Self {
            busy_ms: [5_000, 20_000][rng.usize(0..2)],
            accounts: rng.usize(2..=3),
            transfers: if rng.u32(0..4) > 0 { 0 } else { rng.usize(8..=20) },
            lose,
            lose_answers,
            repeat,
            slow,
            crash,
            fail,
            ends: ends as usize,
            renewals: renewals as usize,
            refusals: refusals as usize,
            restores: restores as usize,
            administrations,
            takes,
            forgets: if is_forgetful { forgetting.usize(0..=4) } else { 0 },
            deletions: if is_forgetful { deletions } else { 0 },
            clock_backs,
        }
    }
}
