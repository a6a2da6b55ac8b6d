//! One shard of the registry: a part of the keys, and its part of each job.
//!
//! Invariants:
//! - Nothing is kept in memory. Each call is one transaction.
//! - A report that comes late changes nothing, because a key's clock never goes back. But the key's object may be lost
//!   with a clock that it reported and never committed, and the machine's clock may have been put back. So the answer
//!   tells a key whether the list matches its report, and if not, the key reports again.
//! - A job counts each key once, even if it is visited again after a crash: a visit counts only if the walk is still where the visit began.
//! - A key that can't be visited delays no other key. It is tried again until it can be visited.

use super::listing::{Few, Listing, Order};
use super::{Report, SHARDS};
use crate::server::storage::sql::{Row, Sql, SqlError, Value, atomically};
use sha2::{Digest, Sha256};

const SCHEMA_VERSION: i64 = 1;
const CREATE: &str = include_str!("shard.sql");
/// What shards of earlier builds lack. It leaves the version unchanged, so that an earlier build still works after a rollback.
const ADDED: [&str; 6] = [
    // The keys that were taken out, as hashes: `at_ms` by the wall clock, `seen_ms` by the key's clock. Some earlier
    // builds have this table.
    "CREATE TABLE IF NOT EXISTS gone (hash BLOB PRIMARY KEY, at_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS gone_at ON gone (at_ms)",
    // How many keys there were when a job began. Otherwise each step would read all keys ahead to count them.
    "CREATE TABLE walks (id INTEGER PRIMARY KEY, keys INTEGER NOT NULL) STRICT",
    "INSERT INTO walks SELECT id, done + (SELECT count(*) FROM undone WHERE undone.id = jobs.id) \
     + (SELECT count(*) FROM keys WHERE key > place) FROM jobs WHERE is_walked = 0",
    // Earlier builds kept the place, which may be the name of a key that was deleted for privacy.
    "UPDATE jobs SET place = '' WHERE is_walked = 1",
    // Used by a deletion, which looks for its key in all jobs. It is made last: if it exists, all of this exists.
    "CREATE INDEX undone_key ON undone (key)",
];
/// What shards lack that have all of [`ADDED`].
const ADDED_SINCE: [&str; 2] = [
    // A separate table, because few keys have doubts, and the others need no row.
    "CREATE TABLE doubts (key TEXT PRIMARY KEY, in_doubt INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    // Deletes the row with its key, whichever build takes the key out, since the name may identify a person. It is made last.
    "CREATE TRIGGER doubts_gone AFTER DELETE ON keys BEGIN DELETE FROM doubts WHERE key = old.key; END",
];
/// What shards lack that have all of [`ADDED_SINCE`]: the same for effects that were refused for good.
const ADDED_LAST: [&str; 2] = [
    "CREATE TABLE refusals (key TEXT PRIMARY KEY, parked INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TRIGGER refusals_gone AFTER DELETE ON keys BEGIN DELETE FROM refusals WHERE key = old.key; END",
];
/// How long after a key was taken out an earlier report of it may still come, in ms.
const LATE_MS_MAX: i64 = 3_600_000;
/// How many keys one call visits. The progress of a job is updated after each call, however long a key takes.
const VISIT_KEYS: i64 = 8;
/// How many of the keys that failed are named.
const FAILED_MAX: i64 = 20;
/// How many finished jobs are kept, for callers that ask again about their progress.
const DONE_MAX: i64 = 100;

/// One shard, over its storage.
pub struct Shard<'a> {
    sql: &'a dyn Sql,
    number: u8,
}

/// Keys to visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// Where the walk is; `None` if these keys are tried again.
    pub place: Option<String>,
    /// The keys. If there are none, the job is done.
    pub keys: Vec<String>,
}

/// The result of visiting a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// The key has done all of it.
    Done,
    /// The fence is moved, and there is more to sweep.
    Left,
    /// The key did not answer, or it failed.
    Failed,
}

/// How far a shard is with a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// How many keys there are to visit, including those that are done.
    pub keys: i64,
    /// How many keys are done.
    pub done: i64,
    /// Some of the keys that failed and will be tried again.
    pub failed: Vec<String>,
    /// Whether all keys are done.
    pub is_done: bool,
}

impl Visit {
    /// The row for the host: the place, followed by the keys.
    pub fn to_row(&self) -> Row {
        let place = Value::from(self.place.clone());
        [place].into_iter().chain(self.keys.iter().map(|key| key.as_str().into())).collect()
    }

    /// Reads the row that the host gives back.
    pub fn from_row(row: Row) -> Option<Self> {
        let mut values = row.into_iter();
        let place = values.next()?.into_text();
        Some(Self { place, keys: values.map(Value::into_text).collect::<Option<_>>()? })
    }
}

impl Tried {
    /// Reads the host's word; an unknown word means that the visit failed.
    pub fn from_word(word: &str) -> Self {
        match word {
            "done" => Self::Done,
            "left" => Self::Left,
            _ => Self::Failed,
        }
    }
}

impl Progress {
    /// The row for the coordinator's object.
    pub fn to_row(&self) -> Row {
        let numbers = [self.keys, self.done, i64::from(self.is_done)].map(Value::from);
        numbers.into_iter().chain(self.failed.iter().map(|key| key.as_str().into())).collect()
    }

    /// Reads the row of a shard's object.
    pub fn from_row(row: Row) -> Option<Self> {
        let mut values = row.into_iter();
        let mut number = || values.next().as_ref().and_then(Value::as_integer);
        let (keys, done, is_done) = (number()?, number()?, number()? == 1);
        Some(Self { keys, done, failed: values.map(Value::into_text).collect::<Option<_>>()?, is_done })
    }
}

/// A job's row.
struct Place {
    place: String,
    is_walked: bool,
    done: i64,
    /// How many keys there were when the job began; 0 once all were visited.
    keys: i64,
}

impl<'a> Shard<'a> {
    /// The shard with that number.
    pub fn new(sql: &'a dyn Sql, number: u8) -> Self {
        Self { sql, number }
    }

    /// Takes a key's report. Returns the instant before which first-sent requests are to be forgotten, in Unix seconds.
    /// `None`: the list does not match the report, because the key has reported with a later clock before. `now_ms`: the
    /// wall clock.
    pub fn report(&self, report: &Report, now_ms: i64) -> Result<Option<i64>, SqlError> {
        let Report { at, records, tombstones, bytes, oldest, in_doubt, parked, .. } = *report;
        let key = Value::from(report.key.as_str());
        let hash = Value::Blob(Sha256::digest(&report.key).to_vec());
        atomically(self.sql, || {
            self.create()?;
            // A name can be found from its hash by trying, and may identify a person. So the hash stays no longer than necessary.
            self.sql.exec("DELETE FROM gone WHERE at_ms < ?1", &[(now_ms - LATE_MS_MAX).into()])?;
            if report.is_listed {
                let statement = "INSERT INTO keys SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 \
                     WHERE NOT EXISTS (SELECT 1 FROM gone WHERE hash = ?8 AND seen_ms > ?3) ON CONFLICT (key) DO UPDATE SET \
                     seen_ms = ?3, records = ?4, tombstones = ?5, bytes = ?6, oldest_ms = ?7 WHERE seen_ms <= ?3";
                let numbers = [now_ms, at, records, tombstones, bytes].map(Value::from);
                let arguments: Vec<Value> =
                    [key.clone()].into_iter().chain(numbers).chain([oldest.into(), hash]).collect();
                self.sql.exec(statement, &arguments)?;
                self.put(Few::InDoubt, &key, at, in_doubt)?;
                self.put(Few::Parked, &key, at, parked)?;
            } else {
                let statement = "INSERT INTO gone VALUES (?1, ?2, ?3) \
                     ON CONFLICT (hash) DO UPDATE SET at_ms = ?2, seen_ms = max(seen_ms, ?3)";
                self.sql.exec(statement, &[hash, now_ms.into(), at.into()])?;
                let statement = "DELETE FROM keys WHERE key = ?1 AND seen_ms <= ?2";
                self.sql.exec(statement, &[key.clone(), at.into()])?;
                // The deletion of the key has moved its fence, so a job that could not visit it has nothing left to do there.
                let gone = "undone.key = ?1 AND NOT EXISTS (SELECT 1 FROM keys WHERE keys.key = ?1)";
                let statement =
                    format!("UPDATE jobs SET done = done + 1 WHERE id IN (SELECT id FROM undone WHERE {gone})");
                self.sql.exec(&statement, std::slice::from_ref(&key))?;
                self.sql.exec(&format!("DELETE FROM undone WHERE {gone}"), std::slice::from_ref(&key))?;
            }
            let statement = "SELECT before_s FROM registry WHERE ?2 = EXISTS (SELECT 1 FROM keys WHERE key = ?1)";
            let rows = self.sql.exec(statement, &[key, i64::from(report.is_listed).into()])?;
            let before_s = |row: &Row| row.first().and_then(Value::as_integer).ok_or_else(unreadable);
            rows.first().map(before_s).transpose()
        })
    }

    /// Stores a number from a key's report, if that is its latest report.
    fn put(&self, few: Few, key: &Value, at: i64, count: i64) -> Result<(), SqlError> {
        let (table, column) = few.stored();
        if count > 0 {
            let statement = format!(
                "INSERT INTO {table} SELECT key, ?3 FROM keys WHERE key = ?1 AND seen_ms = ?2 \
                 ON CONFLICT (key) DO UPDATE SET {column} = ?3 WHERE {column} <> ?3"
            );
            self.sql.exec(&statement, &[key.clone(), at.into(), count.into()]).map(drop)
        } else {
            let statement = format!(
                "DELETE FROM {table} WHERE key = ?1 AND EXISTS (SELECT 1 FROM keys WHERE keys.key = ?1 AND seen_ms = ?2)"
            );
            self.sql.exec(&statement, &[key.clone(), at.into()]).map(drop)
        }
    }

    /// How many keys there are with that prefix; and the keys that are asked for, with one more.
    pub fn list(&self, listing: &Listing) -> Result<(i64, Vec<Row>), SqlError> {
        if !self.check()? {
            return Ok((0, Vec::new()));
        }
        let (number, key) = match &listing.after {
            Some((number, key)) => (*number, key.as_str()),
            None => (i64::MAX >> 11, ""),
        };
        // A shard of an earlier build lacks tables that are read here.
        atomically(self.sql, || self.create())?;
        let column = match listing.order {
            Order::Newest => "created_ms",
            Order::Heaviest => "bytes",
            Order::Name => "0",
        };
        // If only keys with something rare are asked for, they are read from their own small table, and then sorted.
        let of = listing.few.map_or("keys", |few| few.stored().0);
        let from = if listing.few.is_some() { format!("{of} CROSS JOIN keys USING (key)") } else { of.to_owned() };
        // The first condition is one that an index can seek by.
        let (after, order) = match listing.order {
            Order::Name => ("key > ?2 AND ?1 = ?1".to_owned(), "key".to_owned()),
            _ => (format!("{column} <= ?1 AND ({column} < ?1 OR key > ?2)"), format!("{column} DESC, key")),
        };
        let end = end_of(&listing.prefix);
        let within = if end.is_some() { "key >= ?3 AND key < ?4" } else { "key >= ?3 AND ?4 IS NULL" };
        let statement = format!(
            "SELECT key, created_ms, seen_ms, records, tombstones, bytes, oldest_ms, \
             coalesce((SELECT in_doubt FROM doubts WHERE doubts.key = keys.key), 0), \
             coalesce((SELECT parked FROM refusals WHERE refusals.key = keys.key), 0) FROM {from} WHERE {after} AND {within} ORDER BY {order} LIMIT +?5"
        );
        let prefix = [Value::from(listing.prefix.as_str()), end.clone().into()];
        let arguments =
            [&[number.into(), key.into()], prefix.as_slice(), &[(listing.limit as i64 + 1).into()]].concat();
        let keys = self.sql.exec(&statement, &arguments)?;
        let within = if end.is_some() { "key >= ?1 AND key < ?2" } else { "key >= ?1 AND ?2 IS NULL" };
        let total = self.number_of(&format!("SELECT count(*) FROM {of} WHERE {within}"), &prefix)?;
        Ok((total, keys))
    }

    /// How many keys there are.
    pub fn count(&self) -> Result<i64, SqlError> {
        if self.check()? { self.number_of("SELECT count(*) FROM keys", &[]) } else { Ok(0) }
    }

    /// The next keys to visit for a job. The first call begins the job.
    pub fn visit(&self, id: i64, before_s: i64) -> Result<Visit, SqlError> {
        atomically(self.sql, || {
            self.create()?;
            let job = match self.job(id)? {
                Some(job) => job,
                None => self.begin(id, before_s)?,
            };
            if !job.is_walked {
                let statement = "SELECT key FROM keys WHERE key > ?1 ORDER BY key LIMIT +?2";
                let keys = self.texts(statement, &[job.place.as_str().into(), VISIT_KEYS.into()])?;
                if !keys.is_empty() {
                    return Ok(Visit { place: Some(job.place), keys });
                }
                // Clears the place, which may be the name of a key that is deleted for privacy. Other walked jobs may
                // still have one, from an earlier build that ran again for a while.
                let statement =
                    "UPDATE jobs SET is_walked = 1, place = '' WHERE id = ?1 OR (is_walked = 1 AND place <> '')";
                self.sql.exec(statement, &[id.into()])?;
            }
            let statement = "SELECT key FROM undone WHERE id = +?1 ORDER BY tries, key LIMIT +?2";
            Ok(Visit { place: None, keys: self.texts(statement, &[id.into(), VISIT_KEYS.into()])? })
        })
    }

    /// Counts the results of a visit. A visit counts for nothing if the walk is no longer where the visit began.
    pub fn visited(&self, id: i64, visit: &Visit, tried: &[Tried]) -> Result<Progress, SqlError> {
        atomically(self.sql, || {
            let Some(job) = self.job(id)? else { return Err(SqlError("no such job".to_owned())) };
            let is_walk = visit.place.is_some();
            if is_walk && (job.is_walked || visit.place.as_ref() != Some(&job.place)) {
                return self.progress(id);
            }
            let mut done = job.done;
            for (key, tried) in visit.keys.iter().zip(tried) {
                let row = [id.into(), key.as_str().into(), i64::from(*tried == Tried::Failed).into()];
                match (is_walk, tried) {
                    (true, Tried::Done) => done += 1,
                    (true, _) => drop(self.sql.exec("INSERT INTO undone VALUES (?1, ?2, 0, ?3)", &row)?),
                    (false, Tried::Done) => {
                        let statement = "DELETE FROM undone WHERE id = +?1 AND key = ?2 RETURNING 1";
                        done += self.sql.exec(statement, row.get(..2).unwrap_or_default())?.len() as i64;
                    }
                    (false, _) => {
                        let statement =
                            "UPDATE undone SET tries = tries + 1, has_failed = ?3 WHERE id = ?1 AND key = ?2";
                        drop(self.sql.exec(statement, &row)?);
                    }
                }
            }
            let place = visit.keys.last().filter(|_| is_walk).unwrap_or(&job.place);
            let statement = "UPDATE jobs SET place = ?2, done = ?3 WHERE id = ?1";
            self.sql.exec(statement, &[id.into(), place.as_str().into(), done.into()])?;
            self.progress(id)
        })
    }

    fn begin(&self, id: i64, before_s: i64) -> Result<Place, SqlError> {
        // From here on, each key that registers is told.
        self.sql.exec("UPDATE registry SET before_s = max(before_s, ?1)", &[before_s.into()])?;
        self.sql.exec("INSERT INTO jobs VALUES (?1, ?2, '', 0, 0)", &[id.into(), before_s.into()])?;
        let statement = "DELETE FROM jobs WHERE id <= ?1 AND is_walked = 1 \
             AND NOT EXISTS (SELECT 1 FROM undone WHERE undone.id = jobs.id)";
        self.sql.exec(statement, &[(id - DONE_MAX).into()])?;
        self.sql.exec("DELETE FROM walks WHERE id NOT IN (SELECT id FROM jobs)", &[])?;
        let keys = self.number_of("SELECT count(*) FROM keys", &[])?;
        self.sql.exec("INSERT OR REPLACE INTO walks VALUES (?1, ?2)", &[id.into(), keys.into()])?;
        Ok(Place { place: String::new(), is_walked: false, done: 0, keys })
    }

    fn progress(&self, id: i64) -> Result<Progress, SqlError> {
        let Some(job) = self.job(id)? else { return Err(SqlError("no such job".to_owned())) };
        let undone = self.number_of("SELECT count(*) FROM undone WHERE id = +?1", &[id.into()])?;
        let statement = "SELECT key FROM undone WHERE id = +?1 AND has_failed = 1 ORDER BY key LIMIT +?2";
        let failed = self.texts(statement, &[id.into(), FAILED_MAX.into()])?;
        // More keys may have been visited than there were at the beginning: some have registered since.
        let keys = job.keys.max(job.done + undone);
        Ok(Progress { keys, done: job.done, failed, is_done: job.is_walked && undone == 0 })
    }

    fn job(&self, id: i64) -> Result<Option<Place>, SqlError> {
        // Once the walk has ended, there were no other keys than those that were visited.
        let statement = "SELECT place, is_walked, done, \
             coalesce((SELECT keys FROM walks WHERE walks.id = jobs.id AND is_walked = 0), 0) FROM jobs WHERE id = ?1";
        let rows = self.sql.exec(statement, &[id.into()])?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let [place, is_walked, done, keys] = <[Value; 4]>::try_from(row).map_err(|_| unreadable())?;
        match (place.into_text(), is_walked.as_integer(), done.as_integer(), keys.as_integer()) {
            (Some(place), Some(is_walked), Some(done), Some(keys)) => {
                Ok(Some(Place { place, is_walked: is_walked == 1, done, keys }))
            }
            _ => Err(unreadable()),
        }
    }

    /// Whether there are tables. Fails if they belong to another shard, or have another number of shards.
    fn check(&self) -> Result<bool, SqlError> {
        if !self.has("registry")? {
            return Ok(false);
        }
        let rows = self.sql.exec("SELECT version, shards, shard FROM registry LIMIT 1", &[])?;
        let found: Vec<Option<i64>> = rows.iter().flatten().map(Value::as_integer).collect();
        let expected = [SCHEMA_VERSION, i64::from(SHARDS), i64::from(self.number)];
        if found == expected.map(Some) {
            return Ok(true);
        }
        Err(SqlError(format!("this shard of the registry is (version, shards, number) {found:?}, not {expected:?}")))
    }

    fn create(&self) -> Result<(), SqlError> {
        let run = |statement: &str| self.sql.exec(statement, &[]).map(drop);
        if !self.check()? {
            CREATE.split(";\n\n").try_for_each(run)?;
            let row = [SCHEMA_VERSION.into(), i64::from(SHARDS).into(), i64::from(self.number).into()];
            self.sql.exec("INSERT INTO registry VALUES (1, ?1, ?2, ?3, 0)", &row)?;
        }
        if !self.has("undone_key")? {
            ADDED.into_iter().try_for_each(run)?;
        }
        if !self.has("doubts_gone")? {
            ADDED_SINCE.into_iter().try_for_each(run)?;
        }
        if self.has("refusals_gone")? { Ok(()) } else { ADDED_LAST.into_iter().try_for_each(run) }
    }

    /// Whether there is a table, an index or a trigger with that name.
    fn has(&self, name: &str) -> Result<bool, SqlError> {
        let found = self.sql.exec("SELECT 1 FROM sqlite_master WHERE name = ?1 LIMIT 1", &[name.into()])?;
        Ok(!found.is_empty())
    }

    fn number_of(&self, statement: &str, arguments: &[Value]) -> Result<i64, SqlError> {
        let rows = self.sql.exec(statement, arguments)?;
        rows.first().and_then(|row| row.first()).and_then(Value::as_integer).ok_or_else(unreadable)
    }

    fn texts(&self, statement: &str, arguments: &[Value]) -> Result<Vec<String>, SqlError> {
        let rows = self.sql.exec(statement, arguments)?;
        rows.into_iter().map(|mut row| row.pop().and_then(Value::into_text).ok_or_else(unreadable)).collect()
    }
}

fn unreadable() -> SqlError {
    SqlError("a row of the registry is unreadable".to_owned())
}

/// The first text after all texts that begin with `prefix`; `None` if there is none. SQLite compares in the order of characters.
fn end_of(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}
