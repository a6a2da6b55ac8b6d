//! One key behind the real router: the real engine, with its memory, on tables in memory.
//!
//! Invariants:
//! - The tables hold what is committed. A crash takes the engine's memory and nothing else.
//! - A handler that crashes is counted by a fresh engine, as the host of the object does it.

use crate::ledger::Ledger;
use crate::tables::{Database, Tables};
use semel_core::message::Request;
use semel_core::server::router::{Route, route};
use semel_core::server::schema;
use semel_core::server::{Answer, Config, Engine, SqlError, engine::Arrival};

/// The key's object and what it has committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    config: Config,
    engine: Engine<Ledger>,
    /// What is committed.
    pub tables: Tables,
}

/// What became of an attempt.
#[derive(Debug)]
pub struct Arrived {
    /// What the caller gets.
    pub answer: Answer,
    /// Whether the handler crashed on it.
    pub has_crashed: bool,
}

impl Server {
    /// A key that nobody has used.
    pub fn new(config: Config) -> Self {
        Self { engine: Engine::new(Ledger, config.clone()), config, tables: Tables::default() }
    }

    /// The process ends. What it had committed stays.
    pub fn crash(&mut self) {
        self.engine = Engine::new(Ledger, self.config.clone());
    }

    /// Answers an attempt.
    pub fn arrive(&mut self, request: &Request, wall_ms: i64) -> Arrived {
        let path = request.path.with_query();
        let (key, principal) =
            match route(&Ledger, &self.config, &request.method, (path, ""), &request.headers, wall_ms) {
                Route::Answer(answer) => return Arrived { answer, has_crashed: false },
                Route::Object { key, principal, .. } => (key, principal),
            };
        let arrival = Arrival { key: &key, principal: &principal, request, body_too_large: false, wall_ms };
        let database = Database::open(std::mem::take(&mut self.tables));
        let mut answer = self.engine.handle(&database, arrival);
        let has_crashed = database.has_crashed();
        if has_crashed {
            self.crash();
            answer = self.engine.crashed(&database, arrival);
        }
        self.tables = database.close();
        Arrived { answer, has_crashed }
    }

    /// An administrator forgets what was first sent before `fence_s`. There is no command for it yet, so the fence is written as
    /// that will have to do it, and the object starts anew.
    pub fn forget(&mut self, fence_s: i64, wall_ms: i64) -> Result<(), SqlError> {
        let database = Database::open(std::mem::take(&mut self.tables));
        let meta = schema::meta(&database)?;
        schema::create(&database, meta.versions)?;
        let moved = schema::put_fence(&database, fence_s, wall_ms);
        self.tables = database.close();
        self.crash();
        moved
    }

    /// What the engine is set to.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
