//! Untrue things that a key stores. The oracle must find each.
//!
//! Invariant: a change is made behind the engine's back, and before the oracle looks at what a message, a commit or an
//! end has left.

use crate::mutant::Mutant;
use semel_core::server::Sql;
use semel_support::Database;

/// When a change is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At each message for deposits.
    Deposit,
    /// At each message for sessions and batches.
    Session,
    /// At each commit of several requests together.
    Commit,
    /// When the object of such commits has ended.
    Ended,
    /// When all such objects are done.
    Together,
    /// When all effects are sent.
    Sent,
}

/// A change of what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub name: &'static str,
    when: When,
    statement: &'static str,
}

const fn stored(name: &'static str, when: When, statement: &'static str) -> Stored {
    Stored { name, when, statement }
}

/// All changes.
pub const STORED: &[Stored] = &[
    // An acknowledged record leaves no tombstone.
    stored("no-tombstone", When::Deposit, "DELETE FROM semel_records WHERE state = 5"),
    // An outcome without first-sent is dropped before its retention is over.
    stored(
        "expired-early",
        When::Deposit,
        "UPDATE semel_records SET state = 6, executed = 1, fingerprint = NULL, status = NULL, headers = NULL, body = NULL, \
         lapses_ms = at_ms + 600000 WHERE state = 1 AND first_sent_s IS NULL",
    ),
    stored("fence-goes-back", When::Deposit, "UPDATE semel_meta SET fence_s = fence_s - 1 WHERE fence_s > 0"),
    stored("record-ahead", When::Deposit, "UPDATE semel_records SET at_ms = at_ms + 86400000"),
    stored(
        "record-of-another",
        When::Deposit,
        "UPDATE semel_records SET principal = 'nobody' WHERE at_ms < (SELECT max(at_ms) FROM semel_records)",
    ),
    stored("acknowledges-itself", When::Deposit, "UPDATE semel_records SET state = 5, lapses_ms = at_ms + 86400000"),
    stored("effect-of-another", When::Deposit, "UPDATE effects SET principal = 'nobody'"),
    stored(
        "session-gone",
        When::Session,
        "DELETE FROM semel_sessions WHERE number IN (SELECT session FROM semel_places)",
    ),
    stored("session-of-another", When::Session, "UPDATE semel_sessions SET principal = 'nobody'"),
    stored("session-further", When::Session, "UPDATE semel_sessions SET closed_seq = closed_seq + 1"),
    stored("session-effect-of-another", When::Session, "UPDATE effects SET principal = 'nobody'"),
    stored("commit-loses-effect", When::Commit, "DELETE FROM effects WHERE rowid = (SELECT max(rowid) FROM effects)"),
    stored("commit-loses-record", When::Commit, "DELETE FROM semel_records WHERE state = 1"),
    stored("commit-loses-tombstone", When::Commit, "DELETE FROM semel_records WHERE state = 5"),
    stored(
        "commit-dated-back",
        When::Commit,
        "UPDATE effects SET at_ms = at_ms - 60000 WHERE rowid = (SELECT max(rowid) FROM effects)",
    ),
    stored("commit-fence-back", When::Commit, "UPDATE semel_meta SET fence_s = fence_s - 1 WHERE fence_s > 0"),
    stored("commit-fence-ahead", When::Commit, "UPDATE semel_meta SET fence_s = fence_s + 1000000000"),
    stored(
        "commit-of-nothing",
        When::Commit,
        "INSERT OR IGNORE INTO semel_records (id, principal, at_ms, state) SELECT 'w99', principal, at_ms, 1 FROM semel_records",
    ),
    stored(
        "commit-uncounted",
        When::Commit,
        "INSERT OR IGNORE INTO semel_records (id, principal, at_ms, state) SELECT 'cancel-99', principal, at_ms, 2 FROM semel_records",
    ),
    stored("ended-loses-record", When::Ended, "DELETE FROM semel_records WHERE state = 1"),
    stored("ended-leaves-effect", When::Ended, "INSERT INTO effects SELECT * FROM effects LIMIT 1"),
    stored("effect-lost", When::Together, "DELETE FROM effects WHERE rowid = 1"),
    stored("credit-of-nothing", When::Sent, "UPDATE got SET name = name || ' of nothing'"),
    stored("credit-lost", When::Sent, "DELETE FROM got"),
    stored("money-made", When::Sent, "UPDATE account SET balance = balance + 1"),
    stored("parked-in-other-words", When::Sent, "UPDATE semel_effects_parked SET executed = 'perhaps'"),
    stored("parked-too-soon", When::Sent, "UPDATE semel_effects_parked SET reason = 'answered 503'"),
    stored(
        "credit-given-up",
        When::Sent,
        "UPDATE semel_effects_parked SET reason = 'an administrator gave it up' WHERE target LIKE 'key %'",
    ),
    stored(
        "call-given-up",
        When::Sent,
        "UPDATE semel_effects_parked SET reason = 'an administrator gave it up' WHERE target NOT LIKE 'key %'",
    ),
    stored("call-of-nothing", When::Sent, "INSERT INTO calls (number) VALUES (1)"),
    stored(
        "effect-waits",
        When::Sent,
        "INSERT INTO semel_effects (lane, seq, at_ms, id, method, url, headers, body) VALUES (1, 1, 0, '', '', '', '', x'')",
    ),
];

/// Makes the mutant's change, if it is due now.
pub fn change(mutant: Option<Mutant>, now: When, database: &Database) {
    if let Some(Mutant::Stored(Stored { when, statement, .. })) = mutant
        && *when == now
    {
        // Before the tables exist, nothing is changed.
        drop(database.exec(statement, &[]));
    }
}
