//! One attempt: what it arrives with, what is known, what it works on.
//!
//! Invariant: what is in memory changes only after the commit. [`Work`] holds what it will be until then.

use super::counters::Counters;
use super::doubt::Call;
use super::suspicion::{Own, Started};
use crate::fingerprint::Fingerprint;
use crate::header::{Ack, Attempt};
use crate::id::{Key, Principal, RequestId};
use crate::message::Request;
use crate::problem::{Code, Problem};
use crate::rules::{Rule, holds};
use crate::server::answer::Answer;
use crate::server::config::Config;
use crate::server::effects::Outbox;
use crate::server::handler::{Context, Failure, Served, Undone};
use crate::server::storage::packed::{Bundle, Packed};
use crate::server::storage::record::{Change, LatestDeadline, Outcome, Record, State};
use crate::server::storage::retention::{self, Instant, Sweep};
use crate::server::storage::rows;
use crate::server::storage::schema::{self, Versions};
use crate::server::storage::sessions::sweep::Sessions;
use crate::server::storage::sql::{Sql, SqlError};
use crate::server::storage::tombstones::{self, Index, PrincipalHash, principal_hash};
use crate::server::storage::totals;
use crate::server::uncompared::Uncompared;

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
pub(in crate::server) struct Loaded {
    pub versions: Versions,
    pub clock_ms: i64,
    pub fence_s: i64,
    pub forgotten_s: i64,
    /// How far it was told to forget, which may be ahead of its clock.
    pub forgets_s: i64,
    pub count: Change,
    pub sweep: Sweep,
    /// Whether the tables have the key's name.
    pub has_key: bool,
    /// Whether the registry of keys knows it.
    pub is_registered: bool,
    pub packed: Index,
    /// Whether the tables have what the rows come to.
    pub has_totals: bool,
    /// So many new requests may come before the size of the database is asked for.
    pub unasked: Uncompared<u8>,
    /// When the object has last swept a page without a request.
    pub swept_ms: Uncompared<Option<i64>>,
    pub started: Own,
    pub sessions: Sessions,
    /// What the host is to send before the attempt has an answer.
    pub call: Option<(Call, RequestId)>,
    /// Whether a page may be swept yet: one at most in a turn of the object, however many requests are in it.
    pub may_sweep: Uncompared<bool>,
}

impl Loaded {
    /// Where the key is in time.
    pub fn instant(&self, retention_s: i64) -> Instant {
        let Self { clock_ms: now_ms, fence_s, forgotten_s, .. } = *self;
        Instant { now_ms, fence_s, forgotten_s, aged_s: retention::fence_s(now_ms, retention_s) }
    }

    /// Takes over what was committed of packed tombstones, and lets go what has lapsed by now.
    pub fn settle(&mut self, now_ms: i64) {
        self.count.tombstones += self.packed.settle(now_ms);
    }

    /// How many rows there are: of records, and of tombstones that are not packed.
    pub fn rows(&self) -> i64 {
        self.count.records + self.count.tombstones - self.packed.count()
    }

    /// How many requests are in doubt: what is under way to where it is executed may still have its answer, unless it was given up
    /// meanwhile.
    pub fn in_doubt(&self, sql: &dyn Sql, under_way: Option<&RequestId>) -> Result<i64, SqlError> {
        let found = under_way.map(|id| rows::find_bare(sql, id)).transpose()?.flatten();
        let is_awaited = found.is_some_and(|record| matches!(record.state, State::Dispatched { .. }));
        Ok((self.count.dispatched - i64::from(is_awaited)).max(0))
    }

    /// Whether this engine has counted the start of a request.
    pub fn has_started(&self, id: &RequestId) -> bool {
        self.started.has(&Started::Request(id.clone()))
    }

    /// A suspect that was started here, and is answered without a crash.
    pub fn ended<'a>(&self, id: &'a RequestId, suspect: &'a Record) -> Option<(&'a RequestId, &'a Record)> {
        let is_own = self.has_started(id) || !holds(Rule::OwnStart);
        (is_own && holds(Rule::StartEnded)).then_some((id, suspect))
    }
}

/// What the attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Purpose {
    /// To be executed.
    Execute,
    /// It will be executed next; that is to be counted.
    CountStart,
    /// It will be executed next; this object has counted that, and may have forgotten it since.
    KnowStart,
    /// Its execution crashed; that is to be counted.
    CountCrash,
}

impl Purpose {
    /// Whether it is said ahead of the execution, and so is no answer to anybody.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::CountStart | Self::KnowStart)
    }
}

/// What is written to in a transaction, and what that comes to in memory once it is committed.
pub(in crate::server) struct Work<'a> {
    pub sql: &'a dyn Sql,
    pub principal: &'a Principal,
    pub instant: Instant,
    pub retention_s: i64,
    pub after: Loaded,
    /// Whose tombstones were packed last, and what stands for them in memory: of a frame's, it is told once.
    pub packs_for: Option<(Principal, PrincipalHash)>,
}

/// The record of an id, or what its packed tombstone says to who asks: the principal, the first-sent of the attempt, and now.
fn find(
    sql: &dyn Sql,
    packed: &Index,
    id: &RequestId,
    (asks, first_sent_s, now_ms): (&Principal, Option<i64>, i64),
) -> Result<Option<Record>, SqlError> {
    let found = rows::find(sql, id)?;
    Ok(found.or_else(|| packed.find(id, asks, first_sent_s, now_ms)))
}

impl Work<'_> {
    pub fn find(&self, id: &RequestId, first_sent_s: Option<i64>) -> Result<Option<Record>, SqlError> {
        find(self.sql, &self.after.packed, id, (self.principal, first_sent_s, self.instant.now_ms))
    }

    /// Writes a record over the one that was found.
    pub fn put(&mut self, id: &RequestId, found: Option<&Record>, record: &Record) -> Result<(), SqlError> {
        rows::put(self.sql, id, record)?;
        // A row that changes is none that came since.
        if found.is_none() && self.after.versions.handler == schema::DELETED {
            self.after.versions.handler = 0;
            schema::put_handler_version(self.sql, 0)?;
        }
        if let Some(found) = found {
            self.after.count.left(found);
        }
        self.after.count.came(record);
        self.after.sweep.came(record, self.retention_s);
        Ok(())
    }

    /// Says that rows change.
    pub fn count_anew(&mut self) -> Result<(), SqlError> {
        if std::mem::take(&mut self.after.has_totals) { totals::take_away(self.sql) } else { Ok(()) }
    }

    /// Takes the row of a record whose tombstone is packed. Answers all that is to be written in another row instead.
    pub fn pack(&mut self, found: Record, packed: Packed) -> Result<Bundle, SqlError> {
        rows::delete(self.sql, &packed.id)?;
        self.after.count.left(&found);
        let (_, owner) = match self.packs_for.take() {
            Some(known) if known.0 == found.principal => self.packs_for.insert(known),
            _ => self.packs_for.insert((found.principal.clone(), principal_hash(found.principal.as_str()))),
        };
        self.after.packed.add(*owner, &packed);
        let mut bundle =
            if holds(Rule::CarriedOn) { found.carried.lasting(self.instant.now_ms) } else { Bundle::default() };
        bundle.push(&packed);
        Ok(bundle)
    }

    /// Writes packed tombstones that no record is to carry.
    pub fn put_chunk(&mut self, packed: &Bundle) -> Result<(), SqlError> {
        if let Some(lapses_ms) = tombstones::put_chunk(self.sql, self.principal, packed, self.instant.now_ms)? {
            self.after.sweep.chunk_came(lapses_ms);
        }
        Ok(())
    }
}

/// An attempt with an id, as it was decided on.
pub(in crate::server) struct Identified<'a> {
    pub id: &'a RequestId,
    pub attempt: &'a Attempt,
    pub fingerprint: Fingerprint,
    pub found: Option<Record>,
}

pub(in crate::server) struct Turn<'a> {
    pub handler: &'a dyn Served,
    pub config: &'a Config,
    pub counters: &'a Counters,
    pub outbox: &'a Outbox,
    /// The request that is under way to where it is executed.
    pub under_way: Option<&'a RequestId>,
    pub sql: &'a dyn Sql,
    pub arrival: Arrival<'a>,
    pub acks: Vec<Ack>,
    pub instant: Instant,
    pub purpose: Purpose,
}

impl Turn<'_> {
    /// Brings all tables up to date, the handler's too, inside the transaction of the request that needs them. A step of the handler's that fails
    /// is undone as what else it does: the request has not run.
    pub fn migrate(&self, found: Versions) -> Result<(), Undone> {
        schema::create(self.sql, found)?;
        let (from, version) = (found.handler.max(0), self.handler.tables_version());
        if from < version {
            self.handler.bring_up(self.sql, from).map_err(|error| Undone::Failed(Failure::Sql(error)))?;
        }
        if found.handler < version {
            schema::put_handler_version(self.sql, version)?;
        }
        Ok(())
    }

    pub fn create(&self, work: &mut Work<'_>) -> Result<(), SqlError> {
        schema::create(self.sql, work.after.versions)?;
        work.after.versions.engine = schema::SCHEMA_VERSION;
        Ok(())
    }

    /// What there is under an id. To who is not granted it, another's record is as none: such an id can be computed, and a mismatch would tell
    /// anybody that the request was made.
    pub fn find(&self, loaded: &Loaded, id: &RequestId, first_sent_s: Option<i64>) -> Result<Option<Record>, SqlError> {
        if loaded.versions.engine == 0 {
            return Ok(None);
        }
        let found = find(self.sql, &loaded.packed, id, (self.arrival.principal, first_sent_s, self.instant.now_ms))?;
        Ok(found.filter(|record| record.answers(self.arrival.principal) || self.is_granted(id)))
    }

    /// Whether the request may have that id.
    pub fn is_granted(&self, id: &RequestId) -> bool {
        self.handler.grants(id, self.arrival.principal, self.arrival.request)
    }

    pub fn work<'w>(&'w self, loaded: &Loaded) -> Work<'w> {
        let Self { sql, instant, .. } = *self;
        let retention_s = self.config.retention_s;
        Work { sql, principal: self.arrival.principal, instant, retention_s, after: loaded.clone(), packs_for: None }
    }

    /// Whether a request is under way to where it is executed.
    pub fn is_under_way(&self, id: &RequestId) -> bool {
        self.under_way == Some(id) && holds(Rule::UnderWayKnown)
    }

    pub fn record(&self, identified: &Identified<'_>, state: State, carried: Bundle) -> Record {
        let attempt = identified.attempt;
        let now = Record {
            principal: self.arrival.principal.clone(),
            first_sent_s: attempt.first_sent_s,
            at_ms: self.instant.now_ms,
            deadline: LatestDeadline::of(attempt.deadline_ms),
            state,
            carried,
        };
        // What is found is a suspect, which has seen attempts before this one.
        now.over(identified.found.as_ref())
    }

    pub fn context(&self) -> Context<'_> {
        let Arrival { key, principal, request, .. } = self.arrival;
        let emitting = self.handler.emits().then_some((self.handler, self.outbox, request));
        let mut context = Context::new(self.sql, self.instant.now_ms, key, principal);
        context.emitting = emitting;
        context
    }

    /// The answer of an outcome that was recorded at that instant.
    pub fn replayed(&self, outcome: &Outcome, at_ms: i64) -> Answer {
        Answer::replayed(outcome, self.expires_s(at_ms))
    }

    /// Until when an outcome of that instant can be replayed, in Unix s, if that ends.
    pub fn expires_s(&self, at_ms: i64) -> Option<i64> {
        self.config.retention().map(|retention_s| at_ms.div_euclid(1000) + retention_s)
    }

    /// The answer where a transaction was undone.
    pub fn undone(&self, undone: Undone) -> Result<Answer, SqlError> {
        Ok(match undone {
            Undone::Problem(problem) | Undone::Failed(Failure::Refused(problem)) => Answer::problem(&problem),
            Undone::Failed(Failure::NotFound) => {
                Answer::problem(&Problem::new(Code::NotFound, "the handler knows no such path and method"))
            }
            Undone::Failed(Failure::Remote(_)) => {
                rolled_back("the handler has a request sent that it had not said it would")
            }
            Undone::Failed(Failure::Sql(SqlError(reason)) | Failure::Other(reason)) => {
                rolled_back(&format!("the handler failed: {reason}"))
            }
            Undone::Rejected(reason) => rolled_back(&reason),
            Undone::Storage(error) => return Err(error),
        })
    }
}

/// The reason goes to the log: it may hold what is no client's business.
pub(in crate::server) fn rolled_back(reason: &str) -> Answer {
    let problem = Problem::new(Code::RolledBack, "the handler failed; all that it did was undone");
    Answer::problem(&problem).with_log(format!("rolled back: {reason}"))
}
