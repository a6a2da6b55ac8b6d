//! One key behind the real router: the real engine, with its memory, on tables in memory.
//!
//! Invariants:
//! - The tables hold what is committed. A crash takes the engine's memory and nothing else.
//! - A new engine counts a handler's crash, as the object's host does it.
//! - A batch goes as in the host: in one commit, or one by one if that crashes or if one of its requests may have ended the
//!   process before.
//! - If starts are counted, this does the host's part: the start of a suspect is counted and durable before it runs, and it runs
//!   alone.

use crate::database::{Crash, Database, Fate, Undo};
use crate::ledger::Ledger;
use crate::tables::Tables;
use semel_core::id::{Key, Principal};
use semel_core::message::{Headers, Method, Request};
use semel_core::problem::Problem;
use semel_core::server::attempt::suspicion;
use semel_core::server::batch::together::Asked;
use semel_core::server::batch::{Batch, Element};
use semel_core::server::edge::router::{Route, route};
use semel_core::server::{Access, Answer, Config, Engine, Gate, SqlError, engine::Arrival};

/// The key's object, and what it has committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    config: Config,
    engine: Engine<Ledger>,
    /// When the process started, if starts are counted.
    started_ms: Option<i64>,
    /// What is committed.
    pub tables: Tables,
}

/// What became of an attempt.
#[derive(Debug)]
pub struct Arrived {
    /// The answer that the caller gets.
    pub answer: Answer,
    /// Whether the handler crashed on it in a way that must be counted: it panicked, or it ended the process and was a suspect
    /// before.
    pub is_crash: bool,
    /// Whether the process ended on it, so that nobody is answered.
    pub has_ended: bool,
}

impl Arrived {
    fn told(answer: Answer) -> Self {
        Self { answer, is_crash: false, has_ended: false }
    }

    /// What a caller gets if the process ended.
    pub fn ended(wall_ms: i64, is_crash: bool) -> Self {
        let answer = Answer::unavailable("the object did not answer").stamped(wall_ms, None);
        Self { answer, is_crash, has_ended: true }
    }
}

/// What became of a batch.
#[derive(Debug)]
pub struct Together {
    /// The result of each element, in order. If there are fewer than elements, the process ended.
    pub arrived: Vec<Arrived>,
    /// The problem that refuses the whole batch.
    pub refusal: Option<Problem>,
    /// Whether it was executed in one commit, and not one by one.
    pub in_one: bool,
    /// Whether the fault that was asked for came.
    pub is_fated: bool,
}

impl Server {
    /// A key that nobody has used.
    pub fn new(config: Config) -> Self {
        Self { engine: Engine::new(Ledger, config.clone()), config, started_ms: None, tables: Tables::default() }
    }

    /// The same key, with a host that counts starts.
    pub fn counting_starts(self, started_ms: i64) -> Self {
        Self { started_ms: Some(started_ms), ..self }
    }

    /// The process ends, and another starts. What was committed stays.
    pub fn crash(&mut self, wall_ms: i64) {
        self.forget_all();
        self.started_ms = self.started_ms.map(|_| wall_ms);
    }

    fn forget_all(&mut self) {
        self.engine = Engine::new(Ledger, self.config.clone());
    }

    /// The key whose object gets the request, and the principal; or the router's own answer.
    ///
    /// A request to an administrator's path reaches the object whoever sends it, to test that the object checks the principal
    /// too.
    pub fn object_of(config: &Config, request: &Request, wall_ms: i64) -> Result<(Key, Principal), Answer> {
        let path = request.path.with_query();
        if let ["semel", "v1", "admin", "keys", key, ..] = request.path.segments().as_slice() {
            let bearer = request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
            let principal = Principal::new(bearer.unwrap_or_default()).expect("a principal of a letter");
            return Ok((Key::new(*key).expect("a key of a letter"), principal));
        }
        let gate = &mut Gate::new(Access::open_or_closed(config.open));
        match route(&Ledger, config, gate, &request.method, (path, ""), &request.headers, wall_ms) {
            Route::Answer(answer) => Err(answer),
            Route::Object { key, principal, .. } => Ok((key, principal)),
            other => panic!("nobody asks for that here: {other:?}"),
        }
    }

    /// Answers an attempt.
    pub fn arrive(&mut self, request: &Request, wall_ms: i64) -> Arrived {
        self.arrive_at(request, wall_ms, Database::open).0
    }

    /// Answers an attempt as one of several in an open transaction, in which its failure is rolled back as `undo` says. Returns
    /// also whether the fault came.
    pub fn arrive_within(&mut self, request: &Request, wall_ms: i64, undo: Undo, fate: Fate) -> (Arrived, bool) {
        let (arrived, left) =
            self.arrive_at(request, wall_ms, |tables| Database::open(tables).nested(undo).bound_to(fate));
        (arrived, left.is_none_or(|left| left == Fate::Fine))
    }

    /// Answers attempts that waited for the same commit together, within an open transaction, as the host does. `None`: nothing
    /// was done, and each has to be executed by itself. Returns also whether the fault came.
    pub fn arrive_together(
        &mut self,
        requests: &[Request],
        wall_ms: i64,
        undo: Undo,
        fate: Fate,
    ) -> (Option<Vec<Arrived>>, bool) {
        let asked: Result<Vec<_>, _> =
            requests.iter().map(|request| Self::object_of(&self.config, request, wall_ms)).collect();
        let asked = asked.expect("what its router refuses waits for no commit");
        let arrivals: Vec<_> = requests
            .iter()
            .zip(&asked)
            .map(|(request, (key, principal))| Arrival { key, principal, request, body_too_large: false, wall_ms })
            .collect();
        let database = Database::open(std::mem::take(&mut self.tables)).nested(undo).bound_to(fate);
        let answers = self.engine.group(&database, &arrivals);
        let (crash, left) = (database.crash(), database.fate());
        // If the process has ended, the caller throws these tables away.
        self.tables = database.close();
        let arrived = match crash {
            None => answers.map(|answers| answers.into_iter().map(Arrived::told).collect()),
            Some(Crash::Panic) => {
                self.forget_all();
                None
            }
            Some(Crash::End) => Some(vec![Arrived::ended(wall_ms, false)]),
        };
        (arrived, left == Fate::Fine)
    }

    /// Answers an attempt. Returns also the fault that has yet to come, if the request reached the object.
    fn arrive_at(
        &mut self,
        request: &Request,
        wall_ms: i64,
        open: impl FnOnce(Tables) -> Database,
    ) -> (Arrived, Option<Fate>) {
        let (key, principal) = match Self::object_of(&self.config, request, wall_ms) {
            Err(answer) => return (Arrived::told(answer), None),
            Ok(asked) => asked,
        };
        let arrival = Arrival { key: &key, principal: &principal, request, body_too_large: false, wall_ms };
        let (arrived, left) = self.attend(arrival, open);
        (arrived, Some(left))
    }

    /// Answers an attempt that has reached the object, on tables that `open` opens.
    fn attend(&mut self, arrival: Arrival<'_>, open: impl FnOnce(Tables) -> Database) -> (Arrived, Fate) {
        let Arrival { request, wall_ms, .. } = arrival;
        let is_suspect = self.is_suspect((&request.method, request.path.with_query()), &request.headers, wall_ms);
        if is_suspect {
            let database = Database::open(std::mem::take(&mut self.tables));
            self.engine.start(&database, arrival);
            self.tables = database.close();
        }
        let durable = self.tables.clone();
        let database = open(std::mem::take(&mut self.tables));
        let answer = self.engine.handle(&database, arrival);
        let fate = database.fate();
        let arrived = match database.crash() {
            None => {
                self.tables = database.close();
                Arrived::told(answer)
            }
            Some(Crash::Panic) => {
                self.forget_all();
                let answer = self.engine.crashed(&database, arrival);
                self.tables = database.close();
                Arrived { is_crash: true, ..Arrived::told(answer) }
            }
            Some(Crash::End) => {
                self.tables = durable;
                self.crash(wall_ms);
                Arrived::ended(wall_ms, is_suspect)
            }
        };
        (arrived, fate)
    }

    /// Whether this request is a suspect: it may have ended the process before.
    pub fn suspects(&self, request: &Request, wall_ms: i64) -> bool {
        self.is_suspect((&request.method, request.path.with_query()), &request.headers, wall_ms)
    }

    fn is_suspect(&self, (method, path): (&Method, &str), headers: &Headers, wall_ms: i64) -> bool {
        self.started_ms.is_some_and(|started_ms| suspicion::is_suspect(method, path, headers, started_ms, wall_ms))
            && !self.engine.has_outcome(&Database::open(self.tables.clone()), headers)
    }

    /// Answers a batch, with a fault in its commit.
    pub fn together(&mut self, asked: Asked<'_>, batch: Result<Batch, Problem>, fate: Fate) -> Together {
        let nothing = |refusal| Together { arrived: Vec::new(), refusal, in_one: true, is_fated: true };
        let batch = match batch {
            Ok(batch) => batch,
            Err(problem) => return Together { is_fated: fate == Fate::Fine, ..nothing(Some(problem)) },
        };
        let wall_ms = asked.wall_ms;
        let is_suspect =
            |element: &Element| self.is_suspect((&element.method, &element.url.0), &element.headers, wall_ms);
        if batch.elements.iter().any(is_suspect) {
            return Together { is_fated: fate == Fate::Fine, ..self.one_by_one(asked, batch, Fate::Fine) };
        }
        let durable = self.tables.clone();
        let database = Database::open(std::mem::take(&mut self.tables)).bound_to(fate);
        let (_, answers) = self.engine.batch(&database, asked, batch.clone());
        let fate = database.fate();
        let is_fated = fate == Fate::Fine;
        match database.crash() {
            None => {
                self.tables = database.close();
                let (answers, refusal) = match answers {
                    Ok(Some(answers)) => (answers, None),
                    Ok(None) => return self.one_by_one(asked, batch, fate),
                    Err(problem) => (Vec::new(), Some(problem)),
                };
                let arrived = answers.into_iter().map(Arrived::told).collect();
                Together { arrived, is_fated, ..nothing(refusal) }
            }
            Some(Crash::End) => {
                self.tables = database.close();
                self.crash(wall_ms);
                Together { is_fated, ..nothing(None) }
            }
            Some(Crash::Panic) => {
                self.tables = durable;
                self.forget_all();
                self.one_by_one(asked, batch, fate)
            }
        }
    }

    /// Executes the elements one by one. A fault that hasn't come yet meets the commit of the batch's acknowledgements.
    fn one_by_one(&mut self, asked: Asked<'_>, batch: Batch, fate: Fate) -> Together {
        let Asked { key, asker, wall_ms } = asked;
        let mut shell = batch.clone();
        shell.elements.clear();
        let database = Database::open(std::mem::take(&mut self.tables)).bound_to(fate);
        let (_, answered) = self.engine.batch(&database, asked, shell);
        let is_fated = database.fate() == Fate::Fine;
        self.tables = database.close();
        let mut arrived: Vec<Arrived> = Vec::new();
        for element in batch.elements.into_iter().filter(|_| answered.is_ok()) {
            let one = match self.engine.judged(asked, element, wall_ms) {
                Err(refusal) => Arrived::told(refusal),
                Ok(request) => {
                    let principal = &asker.principal;
                    let arrival = Arrival { key, principal, request: &request, body_too_large: false, wall_ms };
                    self.attend(arrival, Database::open).0
                }
            };
            arrived.push(one);
            if arrived.iter().any(|one| one.has_ended) {
                break;
            }
        }
        Together { arrived, refusal: answered.err(), in_one: false, is_fated }
    }

    /// An administrator has the key forget requests first sent before an instant. Returns whether the key has been used: a key
    /// that hasn't takes every id as new.
    pub fn forget(&mut self, before_s: i64, wall_ms: i64) -> Result<bool, SqlError> {
        let database = Database::open(std::mem::take(&mut self.tables));
        let forgotten = self.engine.forget(&database, wall_ms, before_s);
        self.tables = database.close();
        forgotten.map(|()| self.tables.is_used())
    }

    /// The engine's settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
