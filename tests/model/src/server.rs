//! One key behind the real router: the real engine, with its memory, on tables in memory.
//!
//! Invariants:
//! - The tables hold what is committed. A crash takes the engine's memory and nothing else.
//! - A handler that crashes is counted by a fresh engine, as the host of the object does it.
//! - Where starts are counted, it is the host's part that is told here: of what may have ended the process before, the start is
//!   counted and durable before it runs, and it runs alone.

use crate::ledger::Ledger;
use crate::tables::{Crash, Database, Tables};
use semel_core::id::{Key, Principal};
use semel_core::message::Request;
use semel_core::server::router::{Route, route};
use semel_core::server::{Answer, Config, Engine, SqlError, engine::Arrival};
use semel_core::server::{schema, suspicion};

/// The key's object and what it has committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    config: Config,
    engine: Engine<Ledger>,
    /// When the process started, where starts are counted.
    started_ms: Option<i64>,
    /// What is committed.
    pub tables: Tables,
}

/// What became of an attempt.
#[derive(Debug)]
pub struct Arrived {
    /// What the caller gets.
    pub answer: Answer,
    /// Whether the handler crashed on it in a way that must be counted: it panicked, or it ended the process and was suspected of
    /// it before.
    pub is_crash: bool,
}

impl Server {
    /// A key that nobody has used.
    pub fn new(config: Config) -> Self {
        Self { engine: Engine::new(Ledger, config.clone()), config, started_ms: None, tables: Tables::default() }
    }

    /// The same with a host that counts starts.
    pub fn counting_starts(self, started_ms: i64) -> Self {
        Self { started_ms: Some(started_ms), ..self }
    }

    /// The process ends, and another begins. What it had committed stays.
    pub fn crash(&mut self, wall_ms: i64) {
        self.forget_all();
        self.started_ms = self.started_ms.map(|_| wall_ms);
    }

    fn forget_all(&mut self) {
        self.engine = Engine::new(Ledger, self.config.clone());
    }

    /// The key whose object is asked, and who asks it; or the router's own answer.
    pub fn object_of(config: &Config, request: &Request, wall_ms: i64) -> Result<(Key, Principal), Answer> {
        let path = request.path.with_query();
        match route(&Ledger, config, &request.method, (path, ""), &request.headers, wall_ms) {
            Route::Answer(answer) => Err(answer),
            Route::Object { key, principal, .. } => Ok((key, principal)),
            other @ Route::Registry { .. } => panic!("there is no administrator: {other:?}"),
        }
    }

    /// Answers an attempt.
    pub fn arrive(&mut self, request: &Request, wall_ms: i64) -> Arrived {
        let (key, principal) = match Self::object_of(&self.config, request, wall_ms) {
            Err(answer) => return Arrived { answer, is_crash: false },
            Ok(asked) => asked,
        };
        let path = request.path.with_query();
        let arrival = Arrival { key: &key, principal: &principal, request, body_too_large: false, wall_ms };
        let is_suspect = self.started_ms.is_some_and(|started_ms| {
            suspicion::is_suspect(&request.method, path, &request.headers, started_ms, wall_ms)
        });
        if is_suspect {
            let database = Database::open(std::mem::take(&mut self.tables));
            self.engine.start(&database, arrival);
            self.tables = database.close();
        }
        let durable = self.tables.clone();
        let database = Database::open(std::mem::take(&mut self.tables));
        let answer = self.engine.handle(&database, arrival);
        match database.crash() {
            None => {
                self.tables = database.close();
                Arrived { answer, is_crash: false }
            }
            Some(Crash::Panic) => {
                self.forget_all();
                let answer = self.engine.crashed(&database, arrival);
                self.tables = database.close();
                Arrived { answer, is_crash: true }
            }
            Some(Crash::End) => {
                self.tables = durable;
                self.crash(wall_ms);
                let answer = Answer::unavailable("the object did not answer").stamped(wall_ms, None);
                Arrived { answer, is_crash: is_suspect }
            }
        }
    }

    /// An administrator forgets what was first sent before `fence_s`. There is no command for it yet, so the fence is written as
    /// that will have to do it, and the object starts anew.
    pub fn forget(&mut self, fence_s: i64, wall_ms: i64) -> Result<(), SqlError> {
        let database = Database::open(std::mem::take(&mut self.tables));
        let meta = schema::meta(&database)?;
        schema::create(&database, meta.versions)?;
        let moved = schema::put_fence(&database, fence_s, wall_ms);
        self.tables = database.close();
        self.crash(wall_ms);
        moved
    }

    /// What the engine is set to.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
