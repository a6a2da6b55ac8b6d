//! What happens to the key besides requests and faults: the clock of its machine jumps, by seconds or by days, and it is
//! put back to a backup. Afterwards it is often told to forget what was first sent before, as operators are advised.
//!
//! Invariants:
//! - The decisions come from another stream of random numbers, so a run without them is as if this module did not
//!   exist.
//! - A backup contains what was durable when it was made, for the oracle too. What is on its way stays so.
//! - If clocks jump, callers tell the time by the last answer, as the SDK does. Once the faults have ended, no clock is
//!   behind where any has been.

use super::asked::Errand;
use super::oracle::Past;
use super::run::{Event, Run};
use crate::mutant::Twin;
use crate::oracle::{Violation, violation};
use semel_support::{Database, Reply, START_MS, START_S, admin};

/// The longest time after a call has left at which the clock may jump because of it, in ms.
const AMID_MS_MAX: i64 = 1_000;
/// How far a clock jumps at most, in ms.
const JUMPS_MS: [i64; 3] = [5_000, 60_000, 3 * 86_400_000];

/// A backup of the key.
pub(super) struct Backup {
    database: Database,
    past: Past,
}

impl Run {
    pub(super) fn set_up_shifts(&mut self) {
        let options = self.plan.remote.clone();
        let all = [(options.restores, (|| Event::BackUp) as fn() -> Event), (options.restores, || Event::PutBack)];
        for _ in 0..options.jumps {
            let at_ms = self.shifts.i64(0..options.busy_ms * 2);
            let most_ms = JUMPS_MS[self.shifts.usize(0..JUMPS_MS.len())];
            let jump_ms = self.shifts.i64(-most_ms..=most_ms);
            self.push(at_ms, Event::Jump(jump_ms));
        }
        for (count, event) in all {
            for _ in 0..count {
                let at_ms = self.shifts.i64(0..options.busy_ms * 2);
                self.push(at_ms, event());
            }
        }
    }

    /// The clock of the key's machine, in Unix ms.
    pub(super) fn wall_ms(&self) -> i64 {
        START_MS + self.now_ms + self.ahead_ms
    }

    /// The clock of the key, in ms since the start: as it says, or else as far as it may be.
    pub(super) fn key_ms(&mut self, reply: Option<&Reply>) -> i64 {
        let said_ms = reply.filter(|reply| reply.header("semel-key").is_some()).map(Reply::now_ms);
        if let Some(said_ms) = said_ms {
            self.object.clock_ms = self.object.clock_ms.max(said_ms);
        }
        self.wall_ms().max(self.object.clock_ms) - START_MS
    }

    /// The object looks at its machine's clock.
    pub(super) fn tell_time(&mut self) {
        let wall_ms = self.wall_ms();
        self.object.world.wall_ms = wall_ms;
        self.object.reaches_ms = self.object.reaches_ms.max(wall_ms);
    }

    /// Checks that the key's clock has not gone back while its object lives, nor to before what is stored, and is no
    /// further than its machine's has been meanwhile.
    pub(super) fn check_clock(&self, reply: &Reply) -> Result<(), Violation> {
        let (now_ms, before_ms) = (reply.now_ms(), self.object.clock_ms);
        if reply.header("semel-key").is_some() && now_ms < before_ms {
            return violation("clock", format!("the key's clock goes back from {before_ms} to {now_ms}"));
        }
        let reaches_ms = self.object.reaches_ms;
        if reply.header("semel-key").is_some() && now_ms > reaches_ms {
            return violation("clock", format!("the key's clock is at {now_ms}, and may be at {reaches_ms}"));
        }
        Ok(())
    }

    /// The time of callers, in ms since the start.
    pub(super) fn caller_ms(&self) -> i64 {
        self.now_ms + self.heard_ahead_ms
    }

    /// A caller learns the time from an answer.
    pub(super) fn hears(&mut self, reply: &Reply) {
        if self.plan.remote.jumps > 0 {
            self.heard_ahead_ms = reply.now_ms() - START_MS - self.now_ms;
        }
    }

    /// Has the clock jump ahead soon, while a call is under way.
    pub(super) fn may_jump_amid(&mut self) {
        if self.plan.remote.jumps > 0 && !self.is_calm && self.shifts.bool() {
            let at_ms = self.now_ms + self.shifts.i64(0..=AMID_MS_MAX);
            let most_ms = JUMPS_MS[self.shifts.usize(1..JUMPS_MS.len())];
            let jump_ms = self.shifts.i64(0..=most_ms);
            self.push(at_ms, Event::Jump(jump_ms));
        }
    }

    pub(super) fn jump(&mut self, jump_ms: i64) {
        if self.is_calm {
            return;
        }
        self.set_ahead(self.ahead_ms + jump_ms);
        let way = if jump_ms < 0 { "back" } else { "forward" };
        let is_amid = !self.object.flights.is_empty();
        self.oracle.see(format!(
            "elsewhere: the clock jumps {way}{}",
            if is_amid { " while a call is under way" } else { "" }
        ));
        self.note(|| format!("the clock of the key's machine jumps by {jump_ms} ms"));
    }

    /// Lets the key's clock be as far as it has ever been.
    pub(super) fn calm_clock(&mut self) {
        self.set_ahead(self.ahead_ms_max);
    }

    fn set_ahead(&mut self, ahead_ms: i64) {
        if ahead_ms > self.ahead_ms {
            self.undate();
        }
        self.ahead_ms = ahead_ms;
        self.ahead_ms_max = self.ahead_ms_max.max(ahead_ms);
    }

    pub(super) fn back_up(&mut self) {
        if self.is_calm || self.object.is_holding() {
            return;
        }
        self.backup = Some(Backup { database: self.object.copy(), past: self.oracle.past() });
        self.note(|| "the key is backed up".to_owned());
    }

    pub(super) fn put_back(&mut self) -> Result<(), Violation> {
        if self.is_calm {
            return Ok(());
        }
        let Some(Backup { database, past }) = &self.backup else { return Ok(()) };
        let (database, past) = (database.copy(), past.clone());
        if self.is_twin(Twin::ElsewherePutBackBare) {
            database.query("DELETE FROM semel_records WHERE state = 1");
        }
        self.oracle.see("elsewhere: the key is put back to a backup");
        self.note(|| "the key is put back to a backup".to_owned());
        self.end_object();
        let wall_ms = self.wall_ms();
        self.object.replace(database, wall_ms);
        self.oracle.put_back(past);
        if self.shifts.bool() {
            return Ok(());
        }
        // Nothing that was first sent until now is to run once more. A key is not told to forget what is to come: that
        // would leave as soon as it has an outcome.
        let before_s = START_S + self.key_ms(None).div_euclid(1000);
        let asked = self.made_of(0, Errand::Forget, admin::ask(""));
        self.oracle.see("elsewhere: what was sent before the key was put back is refused");
        self.note(|| format!("the key forgets what was first sent before {before_s}"));
        if self.is_twin(Twin::ElsewhereUnrefused) {
            self.oracle.forgotten(before_s);
            return Ok(());
        }
        self.forget(&asked, before_s)
    }

    /// When a wish is first sent, in Unix seconds, if its caller says so.
    pub(super) fn first_sent(&mut self, wish: usize) {
        let now_s = START_S + self.caller_ms().div_euclid(1000);
        if self.plan.remote.jumps > 0 && self.wishes[wish].first_sent_s.is_some() {
            self.wishes[wish].first_sent_s = Some(now_s);
        }
        self.oracle.first_sent(wish, self.wishes[wish].first_sent_s);
    }
}
