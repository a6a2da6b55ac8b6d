//! What a key's object does without a request: it sweeps, and tells the registry of keys what it holds.
//!
//! The host has one alarm for a key. It asks [`Engine::wakes_at`] after each call, in the same turn, so that the alarm is in the
//! commit that makes it needed. Woken, it sweeps page by page, lets requests in between, reports, and asks again.
//!
//! Invariants:
//! - Registration is durable: from the first commit to the registry's answer, an alarm is set or the tables say that it is due.
//! - Of a key without tables nothing is told, and nothing wakes it. Nor does anything wake a key that has nothing to tell and
//!   nothing that may leave.
//! - Where it is not known what holds of the key, nothing leaves and nothing wakes it: the next request tells.
//! - A key is woken at most once in the setting for reports, but for its first registration.
//! - No answer rests on any of it: a report that is lost, late or twice changes what the registry shows, and nothing else.

use super::Engine;
use super::report::Report;
use crate::rules::{Rule, holds};
use crate::server::Answer;
use crate::server::attempt::aside::sweep;
use crate::server::attempt::turn::Loaded;
use crate::server::effects;
use crate::server::handler::Handler;
use crate::server::storage::record::Change;
use crate::server::storage::schema::{self, DELETED, Versions};
use crate::server::storage::sql::{Sql, SqlError, atomically};
use crate::server::storage::survey;
use crate::server::storage::totals::{self, Totals};
use crate::server::uncompared::Uncompared;

/// Of so many rows, each session counted as one, an object keeps what they come to, when it is woken. Fewer are sooner counted than that is written and taken away.
pub const TOTALS_ROWS_MIN: i64 = 10_000;
/// Nothing is due later than the longest retention, which is a hundred years, and some minutes for clocks that differ.
const AHEAD_MS_MAX: i64 = 101 * 366 * 86_400_000;

/// What an engine keeps for its chores. All of it is lost with the object, without harm.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(in crate::server) struct Chores(Uncompared<Kept>);

#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    /// How many commits changed what a report tells.
    changes: u64,
    /// As of which of them the registry was told.
    told: u64,
    /// When the object started, or was last woken, by the wall clock: alarms go by it, and the key's may be ahead.
    since_ms: Option<i64>,
    /// The wall clock as it was last seen.
    wall_ms: Option<i64>,
    /// What it last tried to tell: whether the key is to be listed.
    tried: Option<bool>,
}

impl Chores {
    /// The engine has loaded what is stored, or looks at its clock.
    pub fn started(&mut self, wall_ms: i64) {
        let kept = &mut self.0.0;
        kept.wall_ms = Some(wall_ms);
        // Where the clock was put back, nothing waits until it is there again.
        kept.since_ms = Some(kept.since_ms.map_or(wall_ms, |since_ms| since_ms.min(wall_ms)));
    }

    /// An attempt was answered.
    pub fn answered(&mut self, answer: &Answer) {
        self.0.0.changes += u64::from(answer.headers.get("semel-status") == Some("executed"));
    }

    /// Something that was sent was refused for good, or may have been: no attempt tells of it.
    pub fn parked(&mut self) {
        self.0.0.changes += 1;
    }

    /// Something was committed, or nothing.
    pub fn counted(&mut self, before: Change, after: Change) {
        self.0.0.changes += u64::from(before != after);
    }
}

/// Keeps what the rows come to, or takes away what was kept: of few there is no need.
fn keep_totals(sql: &dyn Sql, retention_s: i64, after: &mut Loaded) -> Result<(), SqlError> {
    let had_totals = after.has_totals;
    after.has_totals = is_many(after);
    if after.has_totals {
        let oldest_ms = after.sweep.oldest_ms();
        totals::keep(
            sql,
            &Totals {
                count: Change { tombstones: after.rows() - after.count.records, ..after.count },
                clock_ms: after.clock_ms,
                oldest_ms,
                oldest_fenced_ms: oldest_ms,
                lapses_ms: after.sweep.records_due_ms(),
                carried_until_ms: Some(after.packed.until_ms()),
                sessions: Some(after.sessions.totals(retention_s)),
            },
        )
    } else if had_totals {
        totals::take_away(sql)
    } else {
        Ok(())
    }
}

impl<H: Handler> Engine<H> {
    /// When the object has to be awake next, in Unix ms; `None`: a request will do. `has_registry`: whether there is one to tell.
    pub fn wakes_at(&self, has_registry: bool) -> Option<i64> {
        // After an error of the storage the next call looks again.
        let loaded = self.loaded.as_ref().filter(|loaded| loaded.versions.engine > 0)?;
        let Kept { changes, told, since_ms, wall_ms, tried } = self.chores.0.0;
        let earliest_ms = since_ms.unwrap_or(loaded.clock_ms).saturating_add(self.config.report_ms);
        let is_listed = is_listed(loaded);
        // Where nobody is to be told of its deletion, its name is to go all the same.
        let is_told = has_registry || loaded.versions.handler == DELETED;
        let report_ms = match (is_told && loaded.has_key, is_listed != loaded.is_registered) {
            (true, true) if tried != Some(is_listed) => wall_ms.or(Some(loaded.clock_ms)),
            (true, true) => Some(earliest_ms),
            (true, false) if loaded.is_registered && changes != told => Some(earliest_ms),
            _ => None,
        };
        // What is kept for ever is due at no instant that an alarm can have.
        let due_ms = [loaded.sweep.next_due_ms(), loaded.sessions.next_due_ms()].into_iter().flatten().min();
        let due_ms = due_ms.filter(|due_ms| due_ms - loaded.clock_ms <= AHEAD_MS_MAX && self.is_ruled(loaded));
        let sweep_ms = due_ms.map(|due_ms| due_ms.max(earliest_ms));
        report_ms.into_iter().chain(sweep_ms).min()
    }

    /// The object was woken. Until when it is to be let alone counts from here.
    ///
    /// An object that was started by its alarm doesn't know what the one before it had to tell: that it was woken is the mark.
    pub fn woken(&mut self, wall_ms: i64) {
        let kept = &mut self.chores.0.0;
        kept.since_ms = Some(wall_ms);
        kept.changes = kept.changes.max(1);
    }

    /// Sweeps a page; whether there is one more to sweep now. Each is a transaction of its own.
    pub fn sweep_page(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<bool, SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        let now_ms = loaded.clock_ms;
        let is_due = loaded.sweep.is_due(now_ms) || loaded.sessions.is_due(now_ms);
        let has_work = is_due || !loaded.has_totals && is_many(&loaded);
        if loaded.versions.engine == 0 || !self.is_ruled(&loaded) || !has_work {
            self.loaded = Some(loaded);
            return Ok(false);
        }
        let instant = loaded.instant(self.config.retention_s);
        let mut after = loaded.clone();
        after.swept_ms.0 = Some(now_ms);
        self.kept = Uncompared::default();
        let ended = atomically(sql, || {
            let is_fence_used = is_due && sweep(sql, instant, self.config.retention_s, &mut after)?;
            keep_totals(sql, self.config.retention_s, &mut after)?;
            if is_fence_used && holds(Rule::FenceDurable) {
                schema::put_fence(sql, instant.fence_s, now_ms)
            } else {
                Ok(())
            }
        });
        match ended {
            Ok(()) => {
                self.chores.counted(loaded.count, after.count);
                let goes_on = after.sweep.is_due(now_ms) || after.sessions.is_due(now_ms);
                self.loaded = Some(after);
                Ok(goes_on)
            }
            Err(error) => {
                self.loaded = Some(loaded);
                self.failed(now_ms);
                Err(error)
            }
        }
    }

    /// What the registry is to be told now; `None`: nothing. `bytes`: the size of the database.
    pub fn report(&mut self, sql: &dyn Sql, wall_ms: i64, bytes: i64) -> Result<Option<Report>, SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        let loaded = &*self.loaded.insert(loaded);
        let kept = &mut self.chores.0.0;
        let is_listed = is_listed(loaded);
        let is_due = is_listed != loaded.is_registered || is_listed && kept.changes != kept.told;
        if loaded.versions.engine == 0 || !is_due {
            return Ok(None);
        }
        kept.tried = Some(is_listed);
        let Some(key) = schema::key(sql)? else { return Ok(None) };
        let oldest = survey::oldest_ms(sql, loaded.rows(), &loaded.sweep)?;
        let changes = kept.changes;
        // It may come to be in doubt without a commit, and be it that this object dies: what is told now is not the last word.
        kept.changes += u64::from(self.under_way.is_some());
        Ok(Some(Report {
            key: key.as_str().to_owned(),
            at: loaded.clock_ms,
            records: loaded.count.records,
            tombstones: loaded.count.tombstones,
            bytes,
            oldest,
            in_doubt: loaded.in_doubt(sql, self.under_way.as_ref())?,
            parked: if H::EMITS { effects::count_parked(sql)? } else { 0 },
            is_listed,
            changes,
        }))
    }

    /// The registry answers a report with what is to be forgotten: what was first sent before this, in Unix s. `None`: its list is not
    /// as it was told, for the key has told by a later clock, which was put back since. It tells again until its clock is there.
    pub fn reported(
        &mut self,
        sql: &dyn Sql,
        wall_ms: i64,
        report: &Report,
        before_s: Option<i64>,
    ) -> Result<(), SqlError> {
        let Some(before_s) = before_s else { return Ok(()) };
        // First: a crash before the registration is written leaves it due, and it is told again.
        self.forget(sql, wall_ms, before_s)?;
        self.chores.0.0.told = report.changes;
        self.put_listed(sql, wall_ms, report.is_listed)
    }

    /// Where there is no registry to tell, the name of a key that was deleted goes at once.
    pub fn drop_name(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<(), SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        if self.loaded.insert(loaded).versions.handler != DELETED {
            return Ok(());
        }
        // Should it fail, it is tried again no sooner than a report is.
        self.chores.0.0.tried = Some(false);
        self.put_listed(sql, wall_ms, false)?;
        self.chores.0.0.tried = None;
        Ok(())
    }

    /// Writes whether the registry lists the key.
    fn put_listed(&mut self, sql: &dyn Sql, wall_ms: i64, is_registered: bool) -> Result<(), SqlError> {
        let mut loaded = self.load(sql, wall_ms)?;
        if loaded.versions.engine == 0 || loaded.is_registered == is_registered {
            self.loaded = Some(loaded);
        } else {
            // Used again since it was told that it is gone, it keeps its name, and registers anew.
            let is_gone = !is_registered && !is_listed(&loaded);
            let written = if is_gone { schema::drop_key(sql) } else { schema::put_registered(sql, is_registered) };
            if let Err(error) = written {
                let clock_ms = loaded.clock_ms;
                self.loaded = Some(loaded);
                self.failed(clock_ms);
                return Err(error);
            }
            loaded.is_registered = is_registered;
            loaded.has_key &= !is_gone;
            self.loaded = Some(loaded);
        }
        Ok(())
    }
}

/// Whether what there is takes long to count.
fn is_many(loaded: &Loaded) -> bool {
    loaded.rows() + loaded.sessions.count >= TOTALS_ROWS_MIN
}

/// Whether the registry should list the key: it has something that can be forgotten or deleted. Once it has, it stays there until it is
/// deleted, whatever leaves by itself.
fn is_listed(loaded: &Loaded) -> bool {
    let Versions { handler, .. } = loaded.versions;
    let has_rows = loaded.count != Change::default() || loaded.sessions.count > 0;
    handler != DELETED && (handler > 0 || has_rows || loaded.is_registered)
}
