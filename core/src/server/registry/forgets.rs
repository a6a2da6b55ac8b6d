//! Jobs that all keys have to do, in their own object: `POST admin/forget`, `GET admin/forget/{id}`.
//!
//! The requests go through an engine like those of any key, so a job is created once, however often it is asked for. The
//! shards count what is done of it; this object keeps what each of them last reported.
//!
//! Invariants:
//! - A job is durable before it is answered, and stays until each shard has reported that its part is done.
//! - The number of unfinished jobs is bounded: one more is refused.
//! - A job moves fences forward to one instant, which is not ahead of the clock. So it may be done twice, and in any order with other jobs.

use super::{Progress, SHARDS};
use crate::id::{Invalid, Key, Principal};
use crate::message::{Method, Request, Response};
use crate::path::Path;
use crate::problem::{Code, Problem};
use crate::server::engine::Arrival;
use crate::server::json::read::Members;
use crate::server::json::write::{self, Object, Written};
use crate::server::storage::sql::{Sql, SqlError, Value};
use crate::server::{Answer, Config, Context, Engine, Failure, Handler, KeyRule};
use std::cell::RefCell;
use std::rc::Rc;

/// The key that the answers of this object name. Keys of applications have objects of another class.
const KEY: &str = "semel:forgets";
/// How many finished jobs are kept.
const DONE_MAX: i64 = 100;
/// The most unfinished jobs. Each takes a row in a shard for every key there that did not answer.
const JOBS_MAX: i64 = 100;
/// How many of the keys that failed are named.
const FAILED_MAX: usize = 20;

const CREATE: [&str; 2] = [
    "CREATE TABLE forgets (id INTEGER PRIMARY KEY, before_s INTEGER NOT NULL) STRICT",
    "CREATE TABLE parts (id INTEGER NOT NULL, shard INTEGER NOT NULL, keys INTEGER NOT NULL, done INTEGER NOT NULL, \
     failed TEXT NOT NULL, is_done INTEGER NOT NULL, PRIMARY KEY (id, shard)) STRICT, WITHOUT ROWID",
];

/// An unfinished job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: i64,
    /// Requests that were first sent before this are to be forgotten, in Unix seconds.
    pub before_s: i64,
    /// The shards whose part is not done.
    pub shards: Vec<u8>,
}

/// The handler of the jobs. `keys`: how many keys each shard has, if that is known.
struct Forgets {
    keys: Rc<RefCell<Vec<i64>>>,
}

impl Handler for Forgets {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _: &Method, _: &Path) -> KeyRule {
        KeyRule::Unhandled
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        CREATE.iter().try_for_each(|statement| sql.exec(statement, &[]).map(drop))
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        if !context.principal.is_administrator() {
            let detail = "only the administrator has keys forget";
            return Err(Failure::Refused(Problem::new(Code::Forbidden, detail)));
        }
        match (&request.method, request.path.segments().as_slice()) {
            (Method::Post, ["semel", "v1", "admin", "forget"]) => {
                let before_s = before_s(&request.body, context.now_ms)?;
                let undone = "SELECT count(DISTINCT id) FROM parts WHERE is_done = 0";
                if number(context.sql, undone, &[])? >= JOBS_MAX {
                    let detail = format!("{JOBS_MAX} jobs are not done yet, as many as may be");
                    return Err(Failure::Refused(Problem::new(Code::Capacity, detail)));
                }
                let id = self.begin(context.sql, before_s)?;
                Ok(Response::json(202, described(context.sql, id, false)?.ok_or(Failure::NotFound)?))
            }
            (Method::Get | Method::Head, ["semel", "v1", "admin", "forget", id]) => {
                let id = id.parse().map_err(|_| Failure::NotFound)?;
                let mut response = Response::json(200, described(context.sql, id, true)?.ok_or(Failure::NotFound)?);
                response.headers.append("cache-control", "no-store");
                Ok(response)
            }
            _ => Err(Failure::NotFound),
        }
    }
}

fn before_s(body: &[u8], now_ms: i64) -> Result<i64, Failure> {
    let refused = |detail: String| Failure::Refused(Problem::new(Code::BodyInvalid, detail));
    let read = || {
        let mut members = Members::parse(body)?;
        let before = members.required("before")?;
        members.end().map(|()| before)
    };
    let before = read().map_err(refused)?;
    if (0..=now_ms.div_euclid(1000)).contains(&before) {
        return Ok(before);
    }
    Err(refused("before is in Unix seconds, and not later than now".to_owned()))
}

impl Forgets {
    fn begin(&self, sql: &dyn Sql, before_s: i64) -> Result<i64, SqlError> {
        let id = number(sql, "SELECT coalesce(max(id), 0) + 1 FROM forgets", &[])?;
        sql.exec("INSERT INTO forgets VALUES (?1, ?2)", &[id.into(), before_s.into()])?;
        let keys = self.keys.borrow();
        for shard in 0..SHARDS {
            let count = keys.get(usize::from(shard)).copied().unwrap_or(0);
            let row = [id.into(), i64::from(shard).into(), count.into()];
            sql.exec("INSERT INTO parts VALUES (?1, ?2, ?3, 0, '', 0)", &row)?;
        }
        let old = "NOT EXISTS (SELECT 1 FROM parts AS other WHERE other.id = forgets.id AND is_done = 0)";
        sql.exec(&format!("DELETE FROM forgets WHERE id <= ?1 AND {old}"), &[(id - DONE_MAX).into()])?;
        sql.exec("DELETE FROM parts WHERE id NOT IN (SELECT id FROM forgets)", &[])?;
        Ok(id)
    }
}

/// A job as JSON; `None` if there is none with that number.
fn described(sql: &dyn Sql, id: i64, with_failed: bool) -> Result<Option<Written>, SqlError> {
    let rows = sql.exec("SELECT before_s FROM forgets WHERE id = ?1", &[id.into()])?;
    let Some(before_s) = rows.first().and_then(|row| row.first()).and_then(Value::as_integer) else { return Ok(None) };
    let sum =
        |what: &str| number(sql, &format!("SELECT coalesce(sum({what}), 0) FROM parts WHERE id = ?1"), &[id.into()]);
    let state = if sum("1 - is_done")? == 0 { "done" } else { "running" };
    let mut job = Object::default()
        .with("id", id.to_string().as_str())
        .with("before", before_s)
        .with("state", state)
        .with("keys", sum("keys")?)
        .with("done", sum("done")?);
    if with_failed {
        let rows = sql.exec("SELECT failed FROM parts WHERE id = ?1", &[id.into()])?;
        let lines: Vec<String> = rows.into_iter().flatten().filter_map(Value::into_text).collect();
        let failed = lines.iter().flat_map(|lines| lines.lines()).take(FAILED_MAX);
        job = job.with("failed", write::array(failed));
    }
    Ok(Some(job.end()))
}

fn number(sql: &dyn Sql, statement: &str, arguments: &[Value]) -> Result<i64, SqlError> {
    let rows = sql.exec(statement, arguments)?;
    let number = rows.first().and_then(|row| row.first()).and_then(Value::as_integer);
    number.ok_or_else(|| SqlError("a row of the jobs is unreadable".to_owned()))
}

/// The object that takes jobs, over its storage.
pub struct Coordinator {
    engine: Engine<Forgets>,
    key: Option<Key>,
    keys: Rc<RefCell<Vec<i64>>>,
}

impl Coordinator {
    /// A coordinator that has not looked at its storage yet.
    pub fn new(config: Config) -> Self {
        // The operator's limits are for keys. If they applied here, a full coordinator could take no more jobs.
        let Config { open, report_ms, log_sample_ppm, .. } = config;
        let config = Config { open, report_ms, log_sample_ppm, ..Config::default() };
        let keys = Rc::new(RefCell::new(Vec::new()));
        Self { engine: Engine::new(Forgets { keys: keys.clone() }, config), key: Key::new(KEY).ok(), keys }
    }

    /// Answers an attempt. `keys`: how many keys each shard has, if that is known.
    pub fn handle(
        &mut self,
        sql: &dyn Sql,
        (request, body_too_large): (&Request, bool),
        principal: &Principal,
        keys: Vec<i64>,
        wall_ms: i64,
    ) -> Result<Answer, Invalid> {
        self.keys.replace(keys);
        let key = self.key.as_ref().ok_or_else(|| Invalid::new("the coordinator has no key"))?;
        Ok(self.engine.handle(sql, Arrival { key, principal, request, body_too_large, wall_ms }))
    }

    /// The unfinished jobs, in the order in which they came.
    pub fn jobs(&self, sql: &dyn Sql) -> Result<Vec<Job>, SqlError> {
        let tables = sql.exec("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'parts' LIMIT 1", &[])?;
        if tables.is_empty() {
            return Ok(Vec::new());
        }
        let statement =
            "SELECT id, before_s, shard FROM forgets JOIN parts USING (id) WHERE is_done = 0 ORDER BY id, shard";
        let mut jobs: Vec<Job> = Vec::new();
        for row in sql.exec(statement, &[])? {
            let numbers: Option<Vec<i64>> = row.iter().map(Value::as_integer).collect();
            let Some([id, before_s, shard]) = numbers.and_then(|numbers| <[i64; 3]>::try_from(numbers).ok()) else {
                return Err(SqlError("a row of the jobs is unreadable".to_owned()));
            };
            let shard = u8::try_from(shard).map_err(|_| SqlError("there is no such shard".to_owned()))?;
            match jobs.last_mut().filter(|job| job.id == id) {
                Some(job) => job.shards.push(shard),
                None => jobs.push(Job { id, before_s, shards: vec![shard] }),
            }
        }
        Ok(jobs)
    }

    /// Takes a shard's report on its part of a job.
    pub fn told(&self, sql: &dyn Sql, id: i64, shard: u8, progress: &Progress) -> Result<(), SqlError> {
        let statement = "UPDATE parts SET keys = ?3, done = ?4, failed = ?5, is_done = ?6 WHERE id = ?1 AND shard = ?2 AND is_done = 0";
        let Progress { keys, done, is_done, .. } = *progress;
        // No key has a line feed in it.
        let failed = progress.failed.join("\n");
        let row =
            [id.into(), i64::from(shard).into(), keys.into(), done.into(), failed.into(), i64::from(is_done).into()];
        sql.exec(statement, &row).map(drop)
    }
}
