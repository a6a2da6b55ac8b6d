//! The engine of one key, which answers one attempt at a time.
//!
//! - `execution`: an attempt from start to end; what it works on is in [`attempt`](super::attempt)
//! - [`remote`]: requests that are executed elsewhere; `settling`: the results of their calls
//! - [`opening`]: what an object that starts looks at; `known`: what it tells its host
//! - [`chores`]: what it does without a request; `report`: what it tells the registry; `sending`: what its handler sends to others
//! - `ahead`: what is read before anything runs
//!
//! Invariants:
//! - Only storage decides: what is kept in memory is rebuilt from it, and dropped after any error.
//! - The key's clock never goes back, not even over a restart. It is the latest of the wall clock and all clocks that
//!   were committed. It does not go back after an error of the storage either, committed or not, because answers have
//!   told it.

pub(super) mod ahead;
pub mod chores;
pub(super) mod execution;
mod known;
pub mod opening;
pub mod remote;
pub(super) mod report;
mod sending;
pub(super) mod settling;

use crate::header;
use crate::id::{Key, Principal, RequestId};
use crate::message::{Method, Request};
use crate::problem::Problem;
use crate::rules::{Rule, holds};
use crate::server::answer::Answer;
use crate::server::attempt::counters::Counters;
use crate::server::attempt::suspicion::Own;
use crate::server::attempt::turn::{Loaded, Purpose, Turn};
use crate::server::config::Config;
use crate::server::effects::Outbox;
use crate::server::handler::Handler;
use crate::server::storage::desk::{Desk, Kept};
use crate::server::storage::retention::{self, Sweep};
use crate::server::storage::schema::{self, Versions};
use crate::server::storage::sql::{Sql, SqlError, atomically};
use crate::server::storage::survey;
use crate::server::storage::totals;
use crate::server::storage::watched::Watched;
use crate::server::uncompared::Uncompared;
use ahead::Ahead;
use chores::Chores;
use opening::Opening;

pub use crate::server::attempt::turn::Arrival;

/// The engine of one key with its handler. A checker keeps and compares it as part of a state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Engine<H> {
    pub(super) handler: H,
    /// The settings of the deployment until the key is known; then those of the key.
    pub(super) config: Config,
    counters: Counters,
    pub(super) loaded: Option<Loaded>,
    /// How far an object has come that is still looking at its storage.
    opening: Option<Opening>,
    /// The clock at the last error of the storage, or at the last answer that was given without it, in Unix ms.
    told_ms: i64,
    /// The starts that were counted before the last error: the object has lived on.
    started: Own,
    /// The request that was given out to be sent and has not ended. The storage does not distinguish it from what an
    /// earlier object left in doubt.
    pub(super) under_way: Option<RequestId>,
    pub(super) chores: Chores,
    pub(super) outbox: Uncompared<Outbox>,
    /// What a desk has left to the next one.
    pub(super) kept: Uncompared<Kept>,
    /// Its key, once it is known.
    own: Uncompared<Option<Key>>,
}

impl<H: Handler> Engine<H> {
    /// An engine that has not looked at its storage yet.
    pub fn new(handler: H, config: Config) -> Self {
        Self {
            handler,
            config,
            counters: Counters::default(),
            loaded: None,
            opening: None,
            told_ms: 0,
            started: Own::default(),
            under_way: None,
            chores: Chores::default(),
            outbox: Uncompared::default(),
            kept: Uncompared::default(),
            own: Uncompared::default(),
        }
    }

    /// Takes the settings of its key. Until then, the fence stays where it is stored, and nothing leaves: see [`Engine::is_ruled`].
    pub fn know_key(&mut self, key: &Key) {
        if self.own.0.is_none() {
            self.own.0 = Some(key.clone());
        }
        if !self.config.is_of_key() {
            self.config = std::mem::take(&mut self.config).for_key(key);
            // What is due was computed with the deployment's retention.
            if let Some(loaded) = &mut self.loaded {
                loaded.sweep = Sweep::default();
                loaded.sessions.look_again();
            }
        }
    }

    /// Whether the settings of the key are known. If all of the key was deleted and its name is gone, only the deletion's
    /// own record is left. The deployment's settings are enough for that record, and the deletion has moved the fence
    /// past everything older.
    pub(super) fn is_ruled(&self, loaded: &Loaded) -> bool {
        self.config.is_of_key() || loaded.versions.handler == schema::DELETED
    }

    /// Gives a change the id that the handler makes for it, if its client sent none.
    pub fn name(&self, principal: &Principal, request: &mut Request) {
        let is_unnamed = |name| request.headers.get(name).is_none();
        let may_be_named = request.method.changes() && !request.path.is_control();
        if may_be_named
            && ["idempotency-key", "semel-session"].into_iter().all(is_unnamed)
            && let Some(id) = self.handler.id(principal, request)
        {
            request.headers.append("idempotency-key", header::quoted(&id));
        }
    }

    /// Answers an attempt.
    pub fn handle(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        self.answer(sql, arrival, Purpose::Execute)
    }

    /// Answers an attempt that follows another in one turn of the object, without a sweep.
    pub fn handle_next(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        let answered = self.attempt(sql, arrival, Purpose::Execute, false);
        self.told(&answered);
        answered
    }

    /// Answers an attempt whose execution crashed and was rolled back. Never runs the handler.
    pub fn crashed(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        self.answer(sql, arrival, Purpose::CountCrash)
    }

    /// Counts the start of a suspect ([`suspicion`](crate::server::attempt::suspicion)); after too many crashes, refuses the id for good.
    ///
    /// What it wrote must be durable before [`Engine::handle`] is called for the attempt, and nothing else may run in
    /// between. If the answer is `unavailable`, nothing was counted: give it to the caller, and do not call `handle`.
    /// Ignore any other answer.
    pub fn start(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        self.answer(sql, arrival, Purpose::CountStart)
    }

    /// Says again that [`Engine::start`] was called for this request and is durable. An engine that was made since does
    /// not know this, and would take it for a start of an object that died.
    pub fn started(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        self.answer(sql, arrival, Purpose::KnowStart)
    }

    /// Forgets what was first sent before an instant, in Unix seconds: moves the fence there, and leaves the rest to the
    /// sweep. A key without tables has nothing to forget. The caller's clock may be ahead of the key's: then what comes
    /// from now on is not forgotten.
    pub fn forget(&mut self, sql: &dyn Sql, wall_ms: i64, before_s: i64) -> Result<(), SqlError> {
        let mut loaded = self.load(sql, wall_ms)?;
        let forgotten_s = before_s.min(loaded.clock_ms.div_euclid(1000));
        // A repetition, or a forget that goes less far than an earlier one, changes nothing, and the sweep keeps its place.
        if loaded.versions.engine == 0 || loaded.forgets_s.max(loaded.forgotten_s) >= before_s {
            self.loaded = Some(loaded);
            return Ok(());
        }
        let ended = atomically(sql, || {
            totals::take_away(sql)?;
            schema::put_forgets(sql, before_s)?;
            schema::put_forgotten(sql, forgotten_s, before_s, loaded.clock_ms)
        });
        if ended.is_ok() {
            loaded.forgotten_s = loaded.forgotten_s.max(forgotten_s);
            loaded.forgets_s = before_s;
            loaded.fence_s = loaded.fence_s.max(before_s);
            loaded.sweep = Sweep::default();
            loaded.has_totals = false;
            loaded.sessions.look_again();
        }
        let clock_ms = loaded.clock_ms;
        self.loaded = Some(loaded);
        if ended.is_err() {
            self.failed(clock_ms);
        }
        ended
    }

    /// After an error of the storage: memory may differ from what is stored, so the next call loads it again.
    pub(super) fn failed(&mut self, clock_ms: i64) {
        if let Some(loaded) = self.loaded.take() {
            self.started = loaded.started;
        }
        self.opening = None;
        // A text may have lost its number, and written rows may be gone.
        self.kept = Uncompared::default();
        // If nothing could be loaded, this is the wall clock, which may have gone back.
        self.told_ms = self.told_ms.max(clock_ms);
    }

    fn answer(&mut self, sql: &dyn Sql, arrival: Arrival<'_>, purpose: Purpose) -> Answer {
        let answered = self.attempt(sql, arrival, purpose, true);
        if !purpose.is_ahead() {
            self.told(&answered);
        }
        answered
    }

    /// Counts an answer that goes out, unless something has to be sent first.
    pub(super) fn told(&mut self, answer: &Answer) {
        if self.loaded.as_ref().is_some_and(|loaded| loaded.call.is_some()) {
            return;
        }
        self.counters.count(answer.headers.get("semel-status").unwrap_or_default());
    }

    /// Answers an attempt. After a failure of the storage, nothing is loaded. `may_sweep`: no page was swept in this turn of the object.
    pub(super) fn attempt(&mut self, sql: &dyn Sql, arrival: Arrival<'_>, purpose: Purpose, may_sweep: bool) -> Answer {
        self.attempt_with(sql, (arrival, purpose, may_sweep), |turn, loaded| turn.run(loaded))
    }

    /// As [`Engine::attempt`], with whatever the turn has to do.
    pub(super) fn attempt_with(
        &mut self,
        sql: &dyn Sql,
        (arrival, purpose, may_sweep): (Arrival<'_>, Purpose, bool),
        run: impl FnOnce(Turn<'_>, &mut Loaded) -> Result<Answer, SqlError>,
    ) -> Answer {
        self.know_key(arrival.key);
        let mut answered = match self.load(sql, arrival.wall_ms) {
            Ok(loaded) => {
                let loaded = Loaded { may_sweep: Uncompared(may_sweep), ..loaded };
                self.answer_loaded(sql, (arrival, purpose), loaded, run)
            }
            Err(error) => unavailable(&error).stamped(self.tell_ms(arrival.wall_ms), None),
        };
        if arrival.request.method == Method::Head {
            answered.body.clear();
        }
        self.chores.answered(&answered);
        answered
    }

    fn answer_loaded(
        &mut self,
        sql: &dyn Sql,
        (arrival, purpose): (Arrival<'_>, Purpose),
        mut loaded: Loaded,
        run: impl FnOnce(Turn<'_>, &mut Loaded) -> Result<Answer, SqlError>,
    ) -> Answer {
        loaded.call = None;
        let now_ms = loaded.clock_ms;
        let acks = match header::acks(&arrival.request.headers) {
            Ok(acks) => acks,
            Err(error) => {
                self.loaded = Some(loaded);
                return Answer::problem(&Problem::from(error)).stamped(now_ms, None);
            }
        };
        let instant = loaded.instant(self.config.retention_s);
        let (handler, config, counters) = (&self.handler, &self.config, &self.counters);
        // If others share a desk, it is used.
        let has_desk = sql.desk().is_none() && has_row(&loaded, arrival, purpose);
        // What is sent to where it is executed can't be undone, so the tables have to say whether it is new.
        if self.handler.is_remote(&arrival.request.method, &arrival.request.path) {
            self.kept = Uncompared::default();
        }
        let desk = has_desk.then(|| Desk::of_one(sql, std::mem::take(&mut self.kept.0)));
        let read = desk.as_ref().map_or(Ok(()), |desk| {
            let ahead = Ahead::of(std::iter::once(arrival.request), &acks);
            desk.read_ahead(&ahead.acknowledged, &ahead.ids)
        });
        let watched = Watched::new(sql);
        let sql = match &desk {
            Some(desk) => desk,
            None if sql.desk().is_some() => sql,
            None => &watched,
        };
        let (outbox, under_way) = (&self.outbox.0, self.under_way.as_ref());
        let turn = Turn { handler, config, counters, outbox, under_way, sql, arrival, acks, instant, purpose };
        let count = loaded.count;
        let answered = read.and_then(|()| run(turn, &mut loaded));
        if let Some(desk) = desk {
            self.kept.0 = desk.into_kept();
        }
        if watched.has_written() {
            self.kept = Uncompared::default();
        }
        // A deleted key has no numbered texts, and its new lanes get the numbers of the earlier ones.
        if loaded.versions.handler == schema::DELETED {
            self.kept = Uncompared::default();
            if H::EMITS {
                self.outbox.0.forget();
            }
        }
        match answered {
            Ok(answer) => {
                loaded.settle(now_ms);
                self.chores.counted(count, loaded.count);
                self.loaded = Some(loaded);
                answer.stamped(now_ms, Some(arrival.key))
            }
            Err(error) => {
                self.loaded = Some(loaded);
                self.failed(now_ms);
                unavailable(&error).stamped(now_ms, None)
            }
        }
    }

    /// Loads one page of what is stored. Returns whether there is more to load before anything can be answered. Any other
    /// call loads all the rest in one turn.
    pub fn open(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<bool, SqlError> {
        if self.loaded.is_some() {
            return Ok(false);
        }
        let mut opening = self.opening(sql, wall_ms)?;
        let goes_on = opening.page(sql)?;
        if goes_on {
            self.opening = Some(opening);
        } else {
            self.loaded = Some(Loaded {
                started: self.started.clone(),
                ..opening.end(sql, self.told_ms, self.config.retention_s)?
            });
        }
        Ok(goes_on)
    }

    /// Takes how far the object has come, or begins.
    fn opening(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<Opening, SqlError> {
        if let Some(opening) = self.opening.take() {
            return Ok(opening);
        }
        let meta = schema::meta(sql)?;
        schema::check(meta.versions, Versions::current(self.handler.schema_version()))?;
        let versions = schema::upgrade(sql, meta.versions)?;
        if !self.config.is_of_key()
            && meta.has_key
            && let Some(key) = schema::key(sql)?
        {
            self.know_key(&key);
        }
        Opening::new(sql, schema::Meta { versions, ..meta }, wall_ms)
    }

    /// Takes what is known of the storage, with clock and fence moved on to now. `self.loaded` is empty afterwards.
    pub(super) fn load(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<Loaded, SqlError> {
        let mut loaded = match self.loaded.take() {
            Some(loaded) => loaded,
            None => {
                let mut opening = self.opening(sql, wall_ms)?;
                while opening.page(sql)? {}
                Loaded { started: self.started.clone(), ..opening.end(sql, self.told_ms, self.config.retention_s)? }
            }
        };
        let forward = |rule, reached: i64, now: i64| if holds(rule) { reached.max(now) } else { now };
        loaded.clock_ms = forward(Rule::ClockForward, loaded.clock_ms, wall_ms);
        if self.is_ruled(&loaded) {
            let aged_s = retention::fence_s(loaded.clock_ms, self.config.retention_s);
            // The rule of a deleted key may say longer than the deployment. The fence need not pass more than the deletion's
            // own record, so that it leaves, and is refused if it is sent again.
            let fence_s = if self.config.is_of_key() {
                aged_s
            } else {
                let own_s = survey::latest_first_sent_s(sql)?.unwrap_or(0).max(loaded.forgotten_s);
                aged_s.min(own_s + 1)
            };
            loaded.fence_s = forward(Rule::FenceForward, loaded.fence_s, fence_s);
        }
        loaded.sessions.max.0 = self.config.sessions_max;
        self.chores.started(wall_ms);
        let count = loaded.count;
        loaded.settle(loaded.clock_ms);
        self.chores.counted(count, loaded.count);
        Ok(loaded)
    }
}

/// Whether an attempt is a change of the application with an id or a place, so that it has a row, or will have one.
fn has_row(loaded: &Loaded, Arrival { request, .. }: Arrival<'_>, purpose: Purpose) -> bool {
    let is_change = !request.method.reads() && !request.path.is_control();
    let is_named = || ["idempotency-key", "semel-session"].iter().any(|name| request.headers.get(name).is_some());
    purpose == Purpose::Execute && loaded.versions.engine > 0 && is_change && is_named()
}

fn unavailable(error: &SqlError) -> Answer {
    Answer::unavailable("the key's storage failed").with_log(format!("storage failed: {error}"))
}
