//! An administrator deletes a key, with all that it has and has yet to send. It begins anew with its next request.
//!
//! Invariants:
//! - The decisions come from another stream of random numbers, so a run without them is as if this module did not
//!   exist.
//! - As when a key forgets, messages that are under way to it are lost.
//! - What a deleted key contained is kept for the oracle, which judges it together with what comes after.

use super::oracle::Account;
use super::run::{AGAIN_MS, Event, Run};
use crate::mutant::{Mutant, Twin};
use semel_core::server::effects::Heard;
use semel_support::{Database, delete};

/// The tables that a mutant keeps.
const KEPT: [&str; 3] = ["semel_effect_lanes", "semel_effects", "semel_effects_parked"];

impl Run {
    pub(super) fn set_up_deletions(&mut self) {
        for number in 0..self.options.deletions {
            let at_ms = self.deleting.i64(0..self.options.busy_ms * 2);
            let account = self.deleting.usize(0..self.options.accounts);
            self.push(at_ms, Event::Delete(account, number));
        }
    }

    pub(super) fn delete(&mut self, account: usize, number: usize) {
        self.lose_on_their_way_to(account);
        let database = &self.keys[account].world.database;
        let before = Account::of(database);
        let was_used = is_used(database);
        let keeps = self.mutant == Some(Mutant::Twin(Twin::DeletedStillSends)) && was_used;
        if keeps {
            keep(database);
        }
        let path = format!("/semel/v1/admin/keys/accounts%2F{account}");
        let call = delete(&path).id(&format!("d{number}")).by("semel:admin");
        let heard = self.ask(account, &call);
        self.note(|| format!("{account}: an administrator deletes it: {heard:?}"));
        let database = &self.keys[account].world.database;
        if was_used && !is_used(database) {
            if keeps {
                bring_back(database);
                self.keys[account].world.restart();
            }
            self.keys[account].former.push(before);
            self.see("a key is deleted");
        }
        if !matches!(heard, Some(Heard::Answered { status: 200, .. })) {
            self.push(self.now_ms + AGAIN_MS, Event::Delete(account, number));
        }
    }
}

fn is_used(database: &Database) -> bool {
    database.number("SELECT count(*) FROM account") > 0
}

/// Copies what waits to where a deletion does not find it.
fn keep(database: &Database) {
    for table in KEPT.iter().filter(|table| database.tables().iter().any(|each| each == *table)) {
        database.fill(&format!("DROP TABLE IF EXISTS _cf_{table}; CREATE TABLE _cf_{table} AS SELECT * FROM {table}"));
    }
}

fn bring_back(database: &Database) {
    for table in KEPT.iter().filter(|table| database.tables().contains(&format!("_cf_{table}"))) {
        database.fill(&format!("CREATE TABLE {table} AS SELECT * FROM _cf_{table}"));
    }
}
