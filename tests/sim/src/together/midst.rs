//! Things that happen without a request, and so in the middle of a commit: the key is told to forget, sweeps, is
//! restored from a backup or deployed anew, and its clock jumps.
//!
//! Invariants:
//! - As in `chores.js`, none of this waits for a turn. What it writes is durable no sooner than what is under way
//!   before it, and nobody hears of it before.
//! - A deployment ends the object, and so does a restore. If an object ends during a commit, the commit may be durable
//!   although nobody was told.
//! - A backup contains what was durable when it was made, for the oracle too.

use super::asked::Event;
use super::oracle::Durable;
use super::run::Run;
use crate::mutant::Twin;
use crate::oracle::Violation;
use crate::snapshot::Snapshot;
use semel_support::{Database, START_MS};
use std::ops::RangeInclusive;

/// The most statements of forgetting, or of a page of the sweep. A fault happens at one of them.
const STATEMENTS_MAX: u64 = 8;
/// How far in the past the instant is before which the key has to forget, in ms; below 0, in the future.
const FORGOTTEN_MS: RangeInclusive<i64> = -3_000..=12_000;
/// How far a clock is ahead at most, in ms.
const AHEAD_MS_MAX: i64 = 40_000;
/// The longest time between two pages of the sweep, in ms.
const PAGE_MS_MAX: i64 = 20;
/// One in so many commits is followed by a backup.
const BACKUPS: u32 = 4;

/// Something that happens without a request.
#[derive(Debug)]
pub enum Midst {
    /// The key is told to forget.
    Forget,
    /// The object of this life sweeps a page.
    Page(u32),
    /// The clock of the key's machine jumps.
    Jump,
    /// The key is restored from a backup.
    Restore,
    /// The key is deployed anew, with another retention.
    Deploy,
}

/// A backup.
pub struct Backup {
    database: Database,
    durable: Durable,
}

impl Run {
    pub(super) fn set_up_midst(&mut self) {
        let options = &self.options;
        let all: [(usize, fn() -> Midst); 4] = [
            (options.forgets, || Midst::Forget),
            (options.jumps, || Midst::Jump),
            (options.restores, || Midst::Restore),
            (options.deployments, || Midst::Deploy),
        ];
        let busy_ms = options.busy_ms;
        for (often, of) in all {
            for _ in 0..often {
                let at_ms = self.midst.i64(0..busy_ms * 2);
                self.push(at_ms, Event::Midst(of()));
            }
        }
    }

    pub(super) fn come_about(&mut self, midst: Midst) -> Result<(), Violation> {
        match midst {
            Midst::Forget => self.forget(),
            Midst::Page(life) if life != self.object.life => Ok(()),
            Midst::Page(_) => self.sweep(),
            Midst::Jump => {
                self.ahead_ms = self.midst.i64(0..=AHEAD_MS_MAX);
                self.sees("the clock jumps");
                self.page();
                Ok(())
            }
            Midst::Restore => self.restore(),
            Midst::Deploy => self.deploy(),
        }
    }

    /// The clock of the key's machine, in Unix ms.
    pub(super) fn wall_ms(&self) -> i64 {
        START_MS + self.now_ms + self.ahead_ms
    }

    /// The latest clock that the key may have told, in Unix ms.
    pub(super) fn latest_ms(&self) -> i64 {
        self.oracle.latest_ms.max(self.wall_ms())
    }

    /// The object looks at its clock.
    pub(super) fn tell_time(&mut self) {
        let wall_ms = self.wall_ms();
        self.object.world.wall_ms = wall_ms;
        self.object_ms = self.object_ms.max(wall_ms);
        self.oracle.passes(wall_ms);
    }

    fn sees(&mut self, what: &str) {
        let is_committing = self.object.is_committing();
        self.see(&format!("{what}{}", if is_committing { " while a commit is under way" } else { "" }));
        self.note(|| what.to_owned());
    }

    fn forget(&mut self) -> Result<(), Violation> {
        self.tell_time();
        let wall_ms = self.wall_ms();
        self.object.started_ms.get_or_insert(wall_ms);
        let before_s = (wall_ms - self.midst.i64(FORGOTTEN_MS)).div_euclid(1000);
        self.oracle.asked_to_forget(before_s);
        self.sees("the key is told to forget");
        self.break_database(STATEMENTS_MAX);
        let forgot = self.object.world.forget(before_s);
        if self.object.world.database.has_crashed() {
            return self.end_object("as it forgets");
        }
        self.object.world.database.calm();
        self.page();
        if self.object.is_committing() && forgot.is_ok() && !self.is_twin(Twin::ForgetEarlyAnswer) {
            self.object.forgotten.push(before_s);
            return Ok(());
        }
        self.look()?;
        if forgot.is_ok() { self.oracle.forgotten(before_s) } else { Ok(()) }
    }

    fn page(&mut self) {
        let life = self.object.life;
        let delay_ms = self.midst.i64(1..=PAGE_MS_MAX);
        self.push(self.now_ms + delay_ms, Event::Midst(Midst::Page(life)));
    }

    fn sweep(&mut self) -> Result<(), Violation> {
        if self.object.started_ms.is_none() {
            return Ok(());
        }
        self.tell_time();
        self.sees("the key sweeps");
        self.break_database(STATEMENTS_MAX);
        let goes_on = self.object.world.sweep_page();
        if self.object.world.database.has_crashed() {
            return self.end_object("as it sweeps");
        }
        self.object.world.database.calm();
        if goes_on == Ok(true) {
            self.page();
        }
        self.look()
    }

    /// Looks at what is durable, unless a commit is under way.
    pub(super) fn look(&mut self) -> Result<(), Violation> {
        if self.object.is_committing() {
            return Ok(());
        }
        // Counting loads what is stored. Half of the time, only the next request does that.
        let counted = if self.counts.bool() { self.object.world.count().ok() } else { None };
        let stored = Snapshot::of(&self.object.world.database, None);
        let now_ms = self.object_ms.max(stored.latest_ms());
        self.oracle.look(&stored, counted.map(|counted| (counted, now_ms)))?;
        if self.options.restores > 0 && self.midst.u32(0..BACKUPS) == 0 {
            self.backup = Some(Backup { database: self.object.world.database.copy(), durable: self.oracle.backup() });
        }
        Ok(())
    }

    /// The object is about to end. The commit that is under way may be durable all the same.
    pub(super) fn survive(&mut self) -> Result<(), Violation> {
        if !self.object.is_committing() || !self.happens_rarely(self.options.survives) {
            return Ok(());
        }
        self.see("a commit is durable, and nobody hears of it");
        self.commit().map(drop)
    }

    fn happens_rarely(&mut self, percent: u32) -> bool {
        percent > 0 && self.midst.u32(0..100) < percent
    }

    fn restore(&mut self) -> Result<(), Violation> {
        let Some(Backup { database, durable }) = self.backup.take() else { return Ok(()) };
        self.sees("the key is put back to a backup");
        self.end_object_with("to be put back", self.is_twin(Twin::RestoreKept))?;
        self.object.world.database = database.copy();
        self.oracle.put_back(durable.clone());
        self.backup = Some(Backup { database, durable });
        Ok(())
    }

    fn deploy(&mut self) -> Result<(), Violation> {
        self.sees("the key is deployed anew");
        self.survive()?;
        self.end_object("to be deployed anew")?;
        let [one, other] = self.options.retentions_s;
        let retention_s = if self.midst.bool() { one } else { other };
        self.object.world.restart_with(|config| config.retention_s = retention_s);
        self.oracle.is_deployed(retention_s);
        Ok(())
    }

    /// Takes note of the panics since the last call.
    pub(super) fn blame_panics(&mut self) {
        let panicked = std::mem::take(&mut *self.object.world.handler.panicked.borrow_mut());
        panicked.iter().filter_map(|number| number.parse().ok()).for_each(|number| self.oracle.crashes(number));
    }
}
