//! One attempt: what it arrives with, what is known, what it works on.
//!
//! Invariant: what is in memory changes only after the commit. [`Work`] holds what it will be until then.

use super::answer::Answer;
use super::config::Config;
use super::decision::Instant;
use super::handler::{Context, Failure, Handler};
use super::record::{Change, LatestDeadline, Record, State};
use super::retention::Sweep;
use super::rows;
use super::schema::{self, Versions};
use super::sql::{Sql, SqlError};
use crate::fingerprint::Fingerprint;
use crate::header::{Ack, Attempt};
use crate::id::{Key, Principal, RequestId};
use crate::message::Request;
use crate::problem::{Code, Problem};
use crate::rules::{Rule, holds};

/// One attempt, as it reaches the object of its key.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// The key.
    pub key: &'a Key,
    /// Who is authenticated.
    pub principal: &'a Principal,
    /// The request. Where its body was too large, it is empty.
    pub request: &'a Request,
    /// Whether the body was larger than allowed, and so was not read.
    pub body_too_large: bool,
    /// The wall clock, in Unix ms.
    pub wall_ms: i64,
}

/// What is known of the storage without asking it again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Loaded {
    pub versions: Versions,
    pub clock_ms: i64,
    pub fence_s: i64,
    pub forgotten_s: i64,
    pub count: Change,
    pub sweep: Sweep,
    /// What this engine has counted the start of, last. A start that is not here was a dead object's.
    pub started: Option<RequestId>,
}

impl Loaded {
    /// A suspect that was started here, and is answered without a crash.
    pub fn ended<'a>(&self, id: &'a RequestId, suspect: &'a Record) -> Option<(&'a RequestId, &'a Record)> {
        let is_own = self.started.as_ref() == Some(id) || !holds(Rule::OwnStart);
        (is_own && holds(Rule::StartEnded)).then_some((id, suspect))
    }
}

/// What the attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To be executed.
    Execute,
    /// It will be executed next; that is to be counted.
    CountStart,
    /// Its execution crashed; that is to be counted.
    CountCrash,
}

/// Why a transaction was undone.
pub(super) enum Undone {
    /// The layer refuses.
    Problem(Problem),
    /// The handler has no answer.
    Failed(Failure),
    /// The handler's answer can't be recorded.
    Rejected(String),
    /// Storage failed.
    Storage(SqlError),
}

impl From<SqlError> for Undone {
    fn from(error: SqlError) -> Self {
        Self::Storage(error)
    }
}

/// What is written to in a transaction, and what that comes to in memory once it is committed.
pub(super) struct Work<'a> {
    pub sql: &'a dyn Sql,
    pub principal: &'a Principal,
    pub instant: Instant,
    pub after: Loaded,
}

impl Work<'_> {
    /// Writes a record over the one that was found.
    pub fn put(&mut self, id: &RequestId, found: Option<&Record>, record: &Record) -> Result<(), SqlError> {
        rows::put(self.sql, id, record)?;
        if let Some(found) = found {
            self.after.count.left(found);
        }
        self.after.count.came(record);
        Ok(())
    }
}

/// An attempt with an id, as it was decided on.
pub(super) struct Identified<'a> {
    pub id: &'a RequestId,
    pub attempt: &'a Attempt,
    pub fingerprint: Fingerprint,
    pub found: Option<Record>,
}

pub(super) struct Turn<'a, H> {
    pub handler: &'a H,
    pub config: &'a Config,
    pub sql: &'a dyn Sql,
    pub arrival: Arrival<'a>,
    pub acks: Vec<Ack>,
    pub instant: Instant,
    pub purpose: Purpose,
}

impl<H: Handler> Turn<'_, H> {
    pub fn create(&self, work: &mut Work<'_>) -> Result<(), SqlError> {
        schema::create(self.sql, work.after.versions)?;
        work.after.versions.engine = schema::SCHEMA_VERSION;
        Ok(())
    }

    pub fn find(&self, loaded: &Loaded, id: &RequestId) -> Result<Option<Record>, SqlError> {
        if loaded.versions.engine == 0 { Ok(None) } else { rows::find(self.sql, id) }
    }

    pub fn work<'w>(&'w self, loaded: &Loaded) -> Work<'w> {
        Work { sql: self.sql, principal: self.arrival.principal, instant: self.instant, after: loaded.clone() }
    }

    pub fn record(&self, identified: &Identified<'_>, state: State) -> Record {
        let attempt = identified.attempt;
        let now = Record {
            principal: self.arrival.principal.clone(),
            first_sent_s: attempt.first_sent_s,
            at_ms: self.instant.now_ms,
            deadline: LatestDeadline::of(attempt.deadline_ms),
            state,
        };
        // What is found is a suspect, which has seen attempts before this one.
        now.over(identified.found.as_ref())
    }

    pub fn context(&self) -> Context<'_> {
        let Arrival { key, principal, .. } = self.arrival;
        Context { sql: self.sql, now_ms: self.instant.now_ms, key, principal }
    }
}

/// The reason goes to the log: it may hold what is no client's business.
pub(super) fn rolled_back(reason: &str) -> Answer {
    let problem = Problem::new(Code::RolledBack, "the handler failed; all that it did was undone");
    Answer::problem(&problem).with_log(format!("rolled back: {reason}"))
}
