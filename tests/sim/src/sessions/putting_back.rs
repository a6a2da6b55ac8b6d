//! A key is put back to a backup, while its clients go on.
//!
//! Invariants:
//! - The decisions come from another stream of random numbers, so a run without them is as if this module did not
//!   exist.
//! - A backup contains what was durable when it was made, for the oracle too. What is on its way stays so.
//! - If the key has given epochs since the backup, its sessions go on under new names, as an operator has to see to
//!   (`docs/operations.md`). Sometimes the key also forgets what was used before.

use super::holder::{Holder, Which};
use super::oracle::Past;
use super::run::{Event, Run};
use super::server::Copy;
use crate::mutant::Twin;
use crate::oracle::Violation;

/// A backup of a key.
pub struct Backup {
    key: String,
    copy: Copy,
    past: Past,
}

impl Run {
    pub(super) fn set_up_backups(&mut self) {
        for _ in 0..self.plan.sessions.restores {
            for event in [Event::BackUp, Event::PutBack] {
                let at_ms = self.restoring.i64(0..self.plan.sessions.busy_ms * 2);
                self.push(at_ms, event);
            }
        }
    }

    pub(super) fn back_up(&mut self) -> Result<(), Violation> {
        let key = format!("keys/{}", self.restoring.usize(0..self.plan.keys));
        self.release(&key)?;
        if let Some(copy) = self.server.copy(&key) {
            self.note(|| format!("{key} is backed up"));
            self.backup = Some(Backup { past: self.oracle.past(&key), key, copy });
        }
        Ok(())
    }

    pub(super) fn put_back(&mut self) -> Result<(), Violation> {
        let Some(backup) = self.backup.take() else { return Ok(()) };
        let Backup { key, copy, past } = &backup;
        self.release(key)?;
        self.note(|| format!("{key} is put back"));
        self.server.put_back(key, copy, self.now_ms);
        let seen = self.server.seen(key).cloned().unwrap_or_default();
        if self.oracle.put_back(key, past.clone(), (&seen, self.now_ms)) && !self.server.is_twin(Twin::NamesKept) {
            if self.restoring.bool() {
                let before_s = self.server.clock_ms(key, self.now_ms).div_euclid(1000);
                self.forget(key, before_s)?;
            }
            self.rename(key);
        }
        self.backup = Some(backup);
        Ok(())
    }

    /// Has the clients of a key take over under new names, since epochs that it has given will be given again.
    fn rename(&mut self, key: &str) {
        self.oracle.see("session: names are given up");
        let generation = self.generations.entry(key.to_owned()).or_default();
        *generation += 1;
        let is_its = |tab: &Holder| tab.is_open && tab.which.key() == key;
        for tab in (0..self.tabs.len()).filter(|tab| is_its(&self.tabs[*tab])).collect::<Vec<_>>() {
            let which = self.tabs[tab].which.clone();
            self.close(tab);
            let name = self.name_at(key, which.name.split('.').next().unwrap_or_default());
            self.open(Which { name, ..which }, false);
        }
    }

    /// The name by which the session `base` of a key goes by now.
    pub(super) fn name_at(&self, key: &str, base: &str) -> String {
        match self.generations.get(key) {
            None => base.to_owned(),
            Some(generation) => format!("{base}.{generation}"),
        }
    }

    /// Whether a session goes by another name by now. Nobody opens it any more, and what is stored for it is left there.
    pub(super) fn is_given_up(&self, key: &str, name: &str) -> bool {
        self.name_at(key, name.split('.').next().unwrap_or_default()) != name
    }
}
