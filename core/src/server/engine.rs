//! The engine of one key: told of one attempt at a time, it answers.
//!
//! Invariants:
//! - Nothing but storage decides: what is kept in memory is rebuilt from it, and dropped after any error.
//! - The key's clock never goes back, not even over a restart: it is the latest of the wall clock and all that was
//!   committed. Nor does it over an error of the storage, committed or not: answers have told it.

use super::answer::Answer;
use super::chores::Chores;
use super::config::Config;
use super::counters::Counters;
use super::decision::Instant;
use super::handler::Handler;
use super::record::Change;
use super::retention::{self, Sweep};
use super::rows;
use super::schema;
use super::sessions::sweep::Sessions;
use super::sql::{Sql, SqlError, atomically};
use super::tombstones::Index;
use super::turn::{Loaded, Purpose, Turn};
use super::uncompared::Uncompared;
use crate::header;
use crate::id::Key;
use crate::message::Method;
use crate::problem::Problem;
use crate::rules::{Rule, holds};

pub use super::turn::Arrival;

/// The engine of one key with its handler. A checker keeps and compares it as part of a state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Engine<H> {
    pub(super) handler: H,
    /// Of the deployment, until the key is known; then of the key.
    pub(super) config: Config,
    counters: Counters,
    pub(super) loaded: Option<Loaded>,
    /// The clock at the last error of the storage.
    told_ms: i64,
    pub(super) chores: Chores,
}

impl<H: Handler> Engine<H> {
    /// An engine that has not looked at its storage yet.
    pub fn new(handler: H, config: Config) -> Self {
        Self { handler, config, counters: Counters::default(), loaded: None, told_ms: 0, chores: Chores::default() }
    }

    /// Takes the settings of its key. Until it does, the fence stays where it is stored.
    pub fn know_key(&mut self, key: &Key) {
        if !self.config.is_of_key() {
            self.config = std::mem::take(&mut self.config).for_key(key);
            // When something is due was judged by the deployment's retention.
            if let Some(loaded) = &mut self.loaded {
                loaded.sweep = Sweep::default();
                loaded.sessions.look_again();
            }
        }
    }

    /// How often each `Semel-Status` was answered since the object started.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Answers an attempt.
    pub fn handle(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        self.answer(sql, arrival, Purpose::Execute)
    }

    /// Answers an attempt whose execution crashed and was rolled back. Never runs the handler.
    pub fn crashed(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        self.answer(sql, arrival, Purpose::CountCrash)
    }

    /// Counts the start of a suspect ([`super::suspicion`]), and at the last one refuses the id for good. What it wrote must
    /// be durable before [`Engine::handle`] is asked, and nothing else may run in between.
    /// Where it fails, so will `handle`: the answer is of no interest to the caller.
    pub fn start(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        self.answer(sql, arrival, Purpose::CountStart)
    }

    /// How many records and tombstones the key keeps, as of the last commit. Writes nothing.
    pub fn count(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<Change, SqlError> {
        let loaded = self.load(sql, wall_ms)?;
        Ok(self.loaded.insert(loaded).count)
    }

    /// Forgets what was first sent before an instant: moves the fence there, and the sweep takes it from there. A key without
    /// tables has nothing to forget.
    pub fn forget(&mut self, sql: &dyn Sql, wall_ms: i64, before_s: i64) -> Result<(), SqlError> {
        let mut loaded = self.load(sql, wall_ms)?;
        // Again it changes nothing, and the sweep keeps its place.
        if loaded.versions.engine > 0 && loaded.forgotten_s >= before_s {
            self.loaded = Some(loaded);
            return Ok(());
        }
        let ended = if loaded.versions.engine == 0 {
            Ok(())
        } else {
            atomically(sql, || {
                rows::drop_totals(sql)?;
                schema::put_forgotten(sql, before_s, before_s, loaded.clock_ms)
            })
        };
        match ended {
            Ok(()) if loaded.versions.engine > 0 => {
                loaded.forgotten_s = loaded.forgotten_s.max(before_s);
                loaded.fence_s = loaded.fence_s.max(before_s);
                loaded.sweep = Sweep::default();
                loaded.has_totals = false;
                loaded.sessions.look_again();
            }
            Ok(()) => {}
            Err(_) => self.failed(loaded.clock_ms),
        }
        self.loaded = ended.is_ok().then_some(loaded);
        ended
    }

    /// After an error of the storage: what is in memory may no longer be what is stored, so the next call looks again.
    pub(super) fn failed(&mut self, clock_ms: i64) {
        self.loaded = None;
        self.told_ms = clock_ms;
    }

    fn answer(&mut self, sql: &dyn Sql, arrival: Arrival<'_>, purpose: Purpose) -> Answer {
        let answered = self.attempt(sql, arrival, purpose);
        // What counts a start is no answer to anybody.
        if purpose != Purpose::CountStart {
            self.told(&answered);
        }
        answered
    }

    /// An answer goes out.
    pub(super) fn told(&mut self, answer: &Answer) {
        self.counters.count(answer.headers.get("semel-status").unwrap_or_default());
    }

    /// Answers an attempt; after a failure of the storage, nothing is loaded.
    pub(super) fn attempt(&mut self, sql: &dyn Sql, arrival: Arrival<'_>, purpose: Purpose) -> Answer {
        self.know_key(arrival.key);
        let mut answered = match self.load(sql, arrival.wall_ms) {
            Ok(loaded) => self.answer_loaded(sql, arrival, purpose, loaded),
            Err(error) => unavailable(&error).stamped(arrival.wall_ms, None),
        };
        if arrival.request.method == Method::Head {
            answered.body.clear();
        }
        self.chores.answered(&answered);
        answered
    }

    fn answer_loaded(&mut self, sql: &dyn Sql, arrival: Arrival<'_>, purpose: Purpose, mut loaded: Loaded) -> Answer {
        let now_ms = loaded.clock_ms;
        let acks = match header::acks(&arrival.request.headers) {
            Ok(acks) => acks,
            Err(error) => {
                self.loaded = Some(loaded);
                return Answer::problem(&Problem::from(error)).stamped(now_ms, None);
            }
        };
        let instant = Instant { now_ms, fence_s: loaded.fence_s, forgotten_s: loaded.forgotten_s };
        let (handler, config, counters) = (&self.handler, &self.config, &self.counters);
        let turn = Turn { handler, config, counters, sql, arrival, acks, instant, purpose };
        let count = loaded.count;
        match turn.run(&mut loaded) {
            Ok(answer) => {
                loaded.settle(now_ms);
                self.chores.counted(count, loaded.count);
                self.loaded = Some(loaded);
                answer.stamped(now_ms, Some(arrival.key))
            }
            Err(error) => {
                self.failed(now_ms);
                unavailable(&error).stamped(now_ms, None)
            }
        }
    }

    /// Takes what is known of the storage, with clock and fence moved on to now.
    pub(super) fn load(&mut self, sql: &dyn Sql, wall_ms: i64) -> Result<Loaded, SqlError> {
        let mut loaded = match self.loaded.take() {
            Some(loaded) => loaded,
            None => {
                let meta = schema::meta(sql)?;
                schema::check(&self.handler, meta.versions)?;
                let versions = schema::upgrade(sql, meta.versions)?;
                if !self.config.is_of_key()
                    && meta.has_key
                    && let Some(key) = schema::key(sql)?
                {
                    self.know_key(&key);
                }
                let mut loaded = Loaded {
                    versions,
                    clock_ms: meta.clock_ms.max(self.told_ms),
                    fence_s: meta.fence_s,
                    forgotten_s: meta.forgotten_s,
                    count: Change::default(),
                    sweep: Sweep::default(),
                    has_key: meta.has_key,
                    is_registered: meta.is_registered,
                    packed: Index::default(),
                    has_totals: false,
                    unasked: Uncompared::default(),
                    started: None,
                    sessions: Sessions::default(),
                };
                if versions.engine > 0 {
                    let totals = rows::totals(sql)?;
                    loaded.clock_ms = loaded.clock_ms.max(totals.clock_ms);
                    loaded.has_totals = totals.carried_until_ms.is_some();
                    let now_ms = loaded.clock_ms.max(wall_ms);
                    let has_carried = totals.carried_until_ms.is_none_or(|until_ms| until_ms > now_ms);
                    let packed = Index::load(sql, now_ms, has_carried)?;
                    loaded.clock_ms = loaded.clock_ms.max(packed.clock_ms);
                    loaded.count = totals.count;
                    let retention_s = self.config.retention_s;
                    loaded.sweep = Sweep::starting(&totals, packed.chunks_due_ms, meta.forgotten_s, retention_s);
                    loaded.packed = packed.index;
                    let found = Sessions::load(sql, meta.epoch, meta.forgotten_s, retention_s)?;
                    loaded.clock_ms = loaded.clock_ms.max(found.clock_ms);
                    loaded.sessions = found.sessions;
                    loaded.settle(loaded.clock_ms);
                }
                loaded
            }
        };
        let forward = |rule, reached: i64, now: i64| if holds(rule) { reached.max(now) } else { now };
        loaded.clock_ms = forward(Rule::ClockForward, loaded.clock_ms, wall_ms);
        if self.config.is_of_key() {
            let fence_s = retention::fence_s(loaded.clock_ms, self.config.retention_s);
            loaded.fence_s = forward(Rule::FenceForward, loaded.fence_s, fence_s);
        }
        self.chores.started(loaded.clock_ms);
        let count = loaded.count;
        loaded.settle(loaded.clock_ms);
        self.chores.counted(count, loaded.count);
        Ok(loaded)
    }
}

fn unavailable(error: &SqlError) -> Answer {
    Answer::unavailable("the key's storage failed").with_log(format!("storage failed: {error}"))
}
