//! What a key's object does without a request: it sweeps, and reports to the registry of keys.
//!
//! The host has one alarm for a key. After each call, in the same turn, it asks [`Engine::wakes_at`], so that the alarm
//! is part of the commit that makes it necessary. When the alarm wakes the object, it sweeps page by page with requests
//! in between, reports, and asks again.
//!
//! Invariants:
//! - Registration is durable: from the first commit until the registry's answer, an alarm is set, or the tables say that the report is due.
//! - A key without tables reports nothing, and nothing wakes it. The same holds for a key that has nothing to report and
//!   nothing that may leave.
//! - While the settings of the key are unknown, nothing leaves, and nothing wakes the key for it. The next request makes them known.
//! - Apart from its first registration, a key is woken at most once in `SEMEL_REPORT_SECONDS`.
//! - No answer to a client depends on any of this. A report that is lost, late or repeated changes only what the registry shows.

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

/// An object that is woken stores the totals over its rows if it has at least this many, each session counted as one.
/// Fewer rows are counted faster than totals are written and deleted.
pub const TOTALS_ROWS_MIN: i64 = 10_000;
/// The furthest instant at which anything is due, in ms from now: the longest retention, which is a hundred years, and
/// some time for clocks that differ.
const AHEAD_MS_MAX: i64 = 101 * 366 * 86_400_000;

/// What an engine keeps for its chores. It is lost with the object, without harm.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(in crate::server) struct Chores(Uncompared<Kept>);

#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    /// How many commits have changed what a report says.
    changes: u64,
    /// The number of changes that the registry's last report covered.
    told: u64,
    /// When the object started or was last woken, in Unix ms. It goes by the wall clock, as alarms do; the key's clock may be ahead.
    since_ms: Option<i64>,
    /// The wall clock as last seen, in Unix ms.
    wall_ms: Option<i64>,
    /// What the last report was to say: whether the key is to be listed.
    tried: Option<bool>,
}

impl Chores {
    /// Takes note that the engine has loaded what is stored, or looked at its clock.
    pub fn started(&mut self, wall_ms: i64) {
        let kept = &mut self.0.0;
        kept.wall_ms = Some(wall_ms);
        // If the clock went back, nothing waits until it has caught up.
        kept.since_ms = Some(kept.since_ms.map_or(wall_ms, |since_ms| since_ms.min(wall_ms)));
    }

    /// Takes note that an attempt was answered.
    pub fn answered(&mut self, answer: &Answer) {
        self.0.0.changes += u64::from(answer.headers.get("semel-status") == Some("executed"));
    }

    /// Takes note that an effect was refused for good, or may have been. No attempt shows this.
    pub fn parked(&mut self) {
        self.0.0.changes += 1;
    }

    /// Takes note of the numbers of records before and after a possible commit.
    pub fn counted(&mut self, before: Change, after: Change) {
        self.0.0.changes += u64::from(before != after);
    }
}

/// Stores the totals over the rows, or deletes them if there are few rows.
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
    /// When the object has to be awake next, in Unix ms; `None` if it only has to wait for a request. `has_registry`:
    /// whether there is a registry to report to.
    pub fn wakes_at(&self, has_registry: bool) -> Option<i64> {
        // After an error of the storage, nothing is known until the next call loads it.
        let loaded = self.loaded.as_ref().filter(|loaded| loaded.versions.engine > 0)?;
        let Kept { changes, told, since_ms, wall_ms, tried } = self.chores.0.0;
        let earliest_ms = since_ms.unwrap_or(loaded.clock_ms).saturating_add(self.config.report_ms);
        let is_listed = is_listed(loaded);
        // Even without a registry to report to, the name of a deleted key has to be removed.
        let is_told = has_registry || loaded.versions.handler == DELETED;
        let report_ms = match (is_told && loaded.has_key, is_listed != loaded.is_registered) {
            (true, true) if tried != Some(is_listed) => wall_ms.or(Some(loaded.clock_ms)),
            (true, true) => Some(earliest_ms),
            (true, false) if loaded.is_registered && changes != told => Some(earliest_ms),
            _ => None,
        };
        // What is kept for ever is due at an instant that no alarm can have.
        let due_ms = [loaded.sweep.next_due_ms(), loaded.sessions.next_due_ms()].into_iter().flatten().min();
        let due_ms = due_ms.filter(|due_ms| due_ms - loaded.clock_ms <= AHEAD_MS_MAX && self.is_ruled(loaded));
        let sweep_ms = due_ms.map(|due_ms| due_ms.max(earliest_ms));
        report_ms.into_iter().chain(sweep_ms).min()
    }

    /// Takes note that the object was woken. The time until it may be woken again counts from here.
    ///
    /// An object that was started by its alarm does not know what the object before it had to report. That it was woken
    /// shows that there is something.
    pub fn woken(&mut self, wall_ms: i64) {
        let kept = &mut self.chores.0.0;
        kept.since_ms = Some(wall_ms);
        kept.changes = kept.changes.max(1);
    }

    /// Sweeps a page in its own transaction, and returns whether another page is due now.
    pub fn sweep_page(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<bool, SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        let now_ms = loaded.clock_ms;
        let is_due = loaded.sweep.is_due(now_ms) || loaded.sessions.is_due(now_ms);
        // Without this, nothing would change but for what a transaction and its statements cost. The same holds of the
        // conditions in the transaction.
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

    /// What to report to the registry now; `None` if nothing. `bytes`: the size of the database.
    pub fn report(&mut self, sql: &dyn Sql, wall_ms: i64, bytes: i64) -> Result<Option<Report>, SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        let loaded = &*self.loaded.insert(loaded);
        let kept = &mut self.chores.0.0;
        let is_listed = is_listed(loaded);
        let is_due = is_listed != loaded.is_registered || is_listed && kept.changes != kept.told;
        if !is_due {
            return Ok(None);
        }
        kept.tried = Some(is_listed);
        let Some(key) = schema::key(sql)? else { return Ok(None) };
        let oldest = survey::oldest_ms(sql, loaded.rows(), &loaded.sweep)?;
        let changes = kept.changes;
        // The request under way may come to be in doubt without a commit, for example if this object dies. So another
        // report has to follow this one.
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

    /// Takes the registry's answer to a report: the instant before which first-sent requests are to be forgotten, in Unix
    /// seconds. `None`: the registry's list does not match the report, because the key has reported with a later clock,
    /// which was put back since. The key reports again until its clock has caught up.
    pub fn reported(
        &mut self,
        sql: &dyn Sql,
        wall_ms: i64,
        report: &Report,
        before_s: Option<i64>,
    ) -> Result<(), SqlError> {
        let Some(before_s) = before_s else { return Ok(()) };
        // This comes first. After a crash before the registration is written, the report is still due, and is repeated.
        self.forget(sql, wall_ms, before_s)?;
        self.chores.0.0.told = report.changes;
        self.put_listed(sql, wall_ms, report.is_listed)
    }

    /// Removes the name of a deleted key at once, if there is no registry to report to.
    pub fn drop_name(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<(), SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        if self.loaded.insert(loaded).versions.handler != DELETED {
            return Ok(());
        }
        // If this fails, it is tried again no sooner than a report.
        self.chores.0.0.tried = Some(false);
        self.put_listed(sql, wall_ms, false)?;
        self.chores.0.0.tried = None;
        Ok(())
    }

    /// Stores whether the registry lists the key.
    fn put_listed(&mut self, sql: &dyn Sql, wall_ms: i64, is_registered: bool) -> Result<(), SqlError> {
        let mut loaded = self.load(sql, wall_ms)?;
        if loaded.versions.engine == 0 || loaded.is_registered == is_registered {
            self.loaded = Some(loaded);
        } else {
            // A key that was used again after its deletion was reported keeps its name, and registers anew.
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

/// Whether counting the rows takes long.
fn is_many(loaded: &Loaded) -> bool {
    loaded.rows() + loaded.sessions.count >= TOTALS_ROWS_MIN
}

/// Whether the registry should list the key. A key is listed once it has something to forget or to delete, and then until
/// it is deleted, whatever leaves by itself.
fn is_listed(loaded: &Loaded) -> bool {
    let Versions { handler, .. } = loaded.versions;
    let has_rows = loaded.count != Change::default() || loaded.sessions.count > 0;
    handler != DELETED && (handler > 0 || has_rows || loaded.is_registered)
}
