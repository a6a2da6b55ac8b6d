//! One attempt: what it arrives with, what is known, and what it works on.
//!
//! Invariant: what is in memory changes only after the commit. Until then, [`Work`] holds its future value.

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
    /// The request. If its body was too large, the body here is empty.
    pub request: &'a Request,
    /// Whether the body was larger than allowed, and so was not read.
    pub body_too_large: bool,
    /// The wall clock, in Unix ms.
    pub wall_ms: i64,
}

/// What an object knows of its storage without a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::server) struct Loaded {
    pub versions: Versions,
    pub clock_ms: i64,
    pub fence_s: i64,
    pub forgotten_s: i64,
    /// Up to which first-sent the key was told to forget, in Unix seconds. It may be ahead of the key's clock.
    pub forgets_s: i64,
    pub count: Change,
    pub sweep: Sweep,
    /// Whether the key's name is stored.
    pub has_key: bool,
    /// Whether the registry of keys knows this key.
    pub is_registered: bool,
    pub packed: Index,
    /// Whether the totals over all rows are stored.
    pub has_totals: bool,
    /// How many new requests may come before the size of the database is asked for again.
    pub unasked: Uncompared<u64>,
    /// When the object last swept a page without a request.
    pub swept_ms: Uncompared<Option<i64>>,
    pub started: Own,
    pub sessions: Sessions,
    /// What the host has to send before the attempt has an answer.
    pub call: Option<(Call, RequestId)>,
    /// Whether a page may still be swept. One turn of the object sweeps at most one page, however many requests it has.
    pub may_sweep: Uncompared<bool>,
}

impl Loaded {
    /// The key's position in time.
    pub fn instant(&self, retention_s: i64) -> Instant {
        let Self { clock_ms: now_ms, fence_s, forgotten_s, .. } = *self;
        Instant { now_ms, fence_s, forgotten_s, aged_s: retention::fence_s(now_ms, retention_s) }
    }

    /// Takes over the packed tombstones that were committed, and drops those that have lapsed.
    pub fn settle(&mut self, now_ms: i64) {
        self.count.tombstones += self.packed.settle(now_ms);
    }

    /// How many rows there are, of records and of tombstones that are not packed.
    pub fn rows(&self) -> i64 {
        self.count.records + self.count.tombstones - self.packed.count()
    }

    /// How many requests are in doubt. The one that is under way does not count, since its answer may still come, unless
    /// it was given up meanwhile.
    pub fn in_doubt(&self, sql: &dyn Sql, under_way: Option<&RequestId>) -> Result<i64, SqlError> {
        let found = under_way.map(|id| rows::find_bare(sql, id)).transpose()?.flatten();
        let is_awaited = found.is_some_and(|record| matches!(record.state, State::Dispatched { .. }));
        Ok(self.count.dispatched - i64::from(is_awaited))
    }

    /// Whether this engine has counted the start of a request.
    pub fn has_started(&self, id: &RequestId) -> bool {
        self.started.has(&Started::Request(id.clone()))
    }

    /// The id and the record of a suspect that was started here and is answered without a crash; `None` otherwise.
    pub fn ended<'a>(&self, id: &'a RequestId, suspect: &'a Record) -> Option<(&'a RequestId, &'a Record)> {
        let is_own = self.has_started(id) || !holds(Rule::OwnStart);
        (is_own && holds(Rule::StartEnded)).then_some((id, suspect))
    }
}

/// What the engine does with the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Purpose {
    /// Executes it.
    Execute,
    /// Counts its start, since it will be executed next.
    CountStart,
    /// Remembers its start, since it will be executed next. This object has counted it, and may have forgotten that since.
    KnowStart,
    /// Counts a crash of its execution.
    CountCrash,
}

impl Purpose {
    /// Whether this comes ahead of the execution, so that the answer goes to nobody.
    pub fn is_ahead(self) -> bool {
        matches!(self, Self::CountStart | Self::KnowStart)
    }
}

/// What a transaction writes to, and what memory will be once it is committed.
pub(in crate::server) struct Work<'a> {
    pub sql: &'a dyn Sql,
    pub principal: &'a Principal,
    pub instant: Instant,
    pub retention_s: i64,
    pub after: Loaded,
    /// The hash of the principal, once a tombstone is packed, so that it is computed once for a whole frame.
    pub packs_for: Option<PrincipalHash>,
}

/// The record of an id, or what its packed tombstone shows to the asking principal. The tuple: that principal, the
/// attempt's first-sent, and now.
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

    /// Writes a record in place of `found`.
    pub fn put(&mut self, id: &RequestId, found: Option<&Record>, record: &Record) -> Result<(), SqlError> {
        rows::put(self.sql, id, record)?;
        // Only a row that did not exist counts as having come since the deletion.
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

    /// Deletes the stored totals, because rows change.
    pub fn count_anew(&mut self) -> Result<(), SqlError> {
        if std::mem::take(&mut self.after.has_totals) { totals::take_away(self.sql) } else { Ok(()) }
    }

    /// Deletes the row of a record whose tombstone is packed. Returns all packed tombstones that must now be written to another row.
    pub fn pack(&mut self, found: Record, packed: Packed) -> Result<Bundle, SqlError> {
        rows::delete(self.sql, &packed.id)?;
        self.after.count.left(&found);
        // Only its own principal acknowledges a record.
        let owner = *self.packs_for.get_or_insert_with(|| principal_hash(self.principal.as_str()));
        self.after.packed.add(owner, &packed);
        let mut bundle =
            if holds(Rule::CarriedOn) { found.carried.lasting(self.instant.now_ms) } else { Bundle::default() };
        bundle.push(&packed);
        Ok(bundle)
    }

    /// Writes packed tombstones that no record will carry.
    pub fn put_chunk(&mut self, packed: &Bundle) -> Result<(), SqlError> {
        if let Some(lapses_ms) = tombstones::put_chunk(self.sql, self.principal, packed, self.instant.now_ms)? {
            self.after.sweep.chunk_came(lapses_ms);
        }
        Ok(())
    }
}

/// An attempt with an id, with what was found for it.
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
    /// The request that is under way to the upstream.
    pub under_way: Option<&'a RequestId>,
    pub sql: &'a dyn Sql,
    pub arrival: Arrival<'a>,
    pub acks: Vec<Ack>,
    pub instant: Instant,
    pub purpose: Purpose,
}

impl Turn<'_> {
    /// Brings all tables up to date, the handler's too, inside the transaction of the request that needs them. If the
    /// handler's migration fails, it is undone like any other write of the handler, and the request has not run.
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

    /// Whether a request of the application writes nothing before its handler has ended and its answer is checked. Tables
    /// are made before that.
    pub fn writes_last(&self, loaded: &Loaded) -> bool {
        let has_tables = loaded.versions == Versions::current(self.handler.tables_version());
        has_tables && self.handler.has_states_only()
    }

    pub fn create(&self, work: &mut Work<'_>) -> Result<(), SqlError> {
        schema::create(self.sql, work.after.versions)?;
        work.after.versions.engine = schema::SCHEMA_VERSION;
        Ok(())
    }

    /// The record or packed tombstone of an id. A caller that is not granted the id does not see another principal's
    /// record: the id can be computed, and a mismatch would show anybody that the request was made.
    pub fn find(&self, loaded: &Loaded, id: &RequestId, first_sent_s: Option<i64>) -> Result<Option<Record>, SqlError> {
        if loaded.versions.engine == 0 {
            return Ok(None);
        }
        let found = find(self.sql, &loaded.packed, id, (self.arrival.principal, first_sent_s, self.instant.now_ms))?;
        Ok(found.filter(|record| record.answers(self.arrival.principal) || self.is_granted(id)))
    }

    /// Whether the request may use that id.
    pub fn is_granted(&self, id: &RequestId) -> bool {
        self.handler.grants(id, self.arrival.principal, self.arrival.request)
    }

    pub fn work<'w>(&'w self, loaded: &Loaded) -> Work<'w> {
        let Self { sql, instant, .. } = *self;
        let retention_s = self.config.retention_s;
        Work { sql, principal: self.arrival.principal, instant, retention_s, after: loaded.clone(), packs_for: None }
    }

    /// Whether a request is under way to the upstream.
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
        // What was found is a suspect, which has seen earlier attempts.
        now.over(identified.found.as_ref())
    }

    pub fn context(&self) -> Context<'_> {
        let Arrival { key, principal, request, .. } = self.arrival;
        let emitting = self.handler.emits().then_some((self.handler, self.outbox, request));
        let mut context = Context::new(self.sql, self.instant.now_ms, key, principal);
        context.emitting = emitting;
        context
    }

    /// The replay of an outcome that was recorded at that instant.
    pub fn replayed(&self, outcome: &Outcome, at_ms: i64) -> Answer {
        Answer::replayed(outcome, self.expires_s(at_ms))
    }

    /// Until when an outcome that was recorded at `at_ms` can be replayed, in Unix seconds; `None` if for ever.
    pub fn expires_s(&self, at_ms: i64) -> Option<i64> {
        self.config.retention().map(|retention_s| at_ms.div_euclid(1000) + retention_s)
    }

    /// The answer after a transaction was undone. Fails if the storage has failed.
    pub fn undone(&self, undone: Undone) -> Result<Answer, SqlError> {
        Ok(match undone {
            Undone::Problem(problem) | Undone::Failed(Failure::Refused(problem)) => Answer::problem(&problem),
            Undone::Failed(Failure::NotFound) => {
                Answer::problem(&Problem::new(Code::NotFound, "the handler knows no such path and method"))
            }
            Undone::Failed(Failure::Remote(_)) => {
                rolled_back("the handler emits a request, but does not declare that it emits")
            }
            Undone::Failed(Failure::Sql(SqlError(reason)) | Failure::Other(reason)) => {
                rolled_back(&format!("the handler failed: {reason}"))
            }
            Undone::Rejected(reason) => rolled_back(&reason),
            Undone::Storage(error) => return Err(error),
        })
    }
}

/// The reason goes only to the log, because it may hold what no client should see.
pub(in crate::server) fn rolled_back(reason: &str) -> Answer {
    let problem = Problem::new(
        Code::RolledBack,
        "the handler failed, and all that it did was undone; the log of the Worker says why",
    );
    Answer::problem(&problem).with_log(format!("rolled back: {reason}"))
}
