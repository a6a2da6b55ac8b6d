//! The streams of random numbers: the seed of each, made of the seed of the run.
//!
//! Invariant: what was added to the simulator later has a stream of its own, so that all other decisions stay as they
//! were.

/// The seed for ids that the application chooses: another stream of numbers, so that all other decisions stay as they
/// were.
pub(crate) fn of_sharing(seed: u64) -> u64 {
    seed ^ 0x5EED_0F1D_5000_0000
}

/// The seed for what an administrator does, likewise.
pub(crate) fn of_administering(seed: u64) -> u64 {
    seed ^ 0xAD31_2157_E200_0000
}

/// The seed for backups, likewise.
pub(crate) fn of_restoring(seed: u64) -> u64 {
    seed ^ 0x0BAC_4095_0000_0000
}

/// The seed for whether a deployment's keys keep everything for ever, likewise.
pub(super) fn of_keeping(seed: u64) -> u64 {
    seed ^ 0x0F0E_4E7E_2000_0000
}

/// The seed for the run of sessions and batches, likewise.
pub(crate) fn of_sessions(seed: u64) -> u64 {
    seed ^ 0x5E55_1045_BA7C_0000
}

/// The seed for sockets and deadlines in that run, likewise.
pub(crate) fn of_sockets(seed: u64) -> u64 {
    seed ^ 0x50C7_E750_F1A3_0000
}

/// The seed for retentions that change in that run, likewise.
pub(crate) fn of_idling(seed: u64) -> u64 {
    !of_sessions(seed) ^ 0x01D1_E000_0000_0000
}

/// The seed for backups in that run, likewise.
pub(crate) fn of_session_backups(seed: u64) -> u64 {
    !of_sessions(seed) ^ 0x0BAC_4095_0000_0000
}

/// The seed for impatient callers in that run, likewise.
pub(super) fn of_patience(seed: u64) -> u64 {
    seed ^ 0x09A7_1E4C_E500_0000
}

/// The seed for impatient callers of tabs, likewise.
pub(super) fn of_waiting(seed: u64) -> u64 {
    seed ^ 0x0A17_1265_7AB6_0000
}

/// The seed for the run of requests that are executed elsewhere, likewise.
pub(crate) fn of_remote(seed: u64) -> u64 {
    seed ^ 0x0E15_E74E_2E00_0000
}

/// The seed for what was added to that run later, for instance how much room the key has, likewise.
pub(crate) fn of_remote_room(seed: u64) -> u64 {
    !of_remote(seed) ^ 0x0F02_2005_E000_0000
}

/// The seed for clocks and backups in that run, likewise.
pub(crate) fn of_shifts(seed: u64) -> u64 {
    !of_remote(seed) ^ 0x0C10_C4B4_C4E0_0000
}

/// The seed for the methods of requests, likewise.
pub(super) fn of_methods(seed: u64) -> u64 {
    seed ^ 0x0E7B_0D50_0000_0000
}

/// The seed for the run of effects, likewise.
pub(crate) fn of_effects(seed: u64) -> u64 {
    seed ^ 0x0EFF_EC75_1EA5_0000
}

/// The seed for the administrator in that run, likewise.
pub(crate) fn of_mending(seed: u64) -> u64 {
    seed ^ 0x03E4_D146_0AD3_0000
}

/// The seed for who takes ids in that run, likewise.
pub(crate) fn of_taking(seed: u64) -> u64 {
    seed ^ 0x07A1_4E5D_1D50_0000
}

/// The seed for who has sessions forgotten in that run, likewise.
pub(crate) fn of_forgetting(seed: u64) -> u64 {
    seed ^ 0x01F0_6607_7E45_0000
}

/// The seed for which keys are deleted in that run, likewise.
pub(crate) fn of_deleting(seed: u64) -> u64 {
    !of_effects(seed) ^ 0x0DE1_E7ED_0000_0000
}

/// The seed for the run of requests that are committed together, likewise.
pub(crate) fn of_together(seed: u64) -> u64 {
    seed ^ 0x06E0_0C03_3170_0000
}

/// The seed for what was added to that run later, for instance deadlines, likewise.
pub(crate) fn of_deadlines(seed: u64) -> u64 {
    !of_together(seed) ^ 0x0DEA_D11E_0000_0000
}

/// The seed for how much room the key has in that run, likewise.
pub(crate) fn of_room(seed: u64) -> u64 {
    !of_together(seed) ^ 0x0F02_2005_E000_0000
}

/// The seed for batches and for what happens without a request in that run, likewise.
pub(crate) fn of_midst(seed: u64) -> u64 {
    !of_together(seed) ^ 0x0AD1_D570_0000_0000
}

/// The seed for when the key is deleted in that run, likewise.
pub(crate) fn of_together_deleting(seed: u64) -> u64 {
    !of_together(seed) ^ 0x0DE1_E7ED_0000_0000
}
