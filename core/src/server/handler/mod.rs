//! What an application implements. `emitting`: what it may have sent to others.
//!
//! Invariant: a handler is synchronous by type. It can't await between its first write and its last, so its effect and
//! the record of the request are one commit.

mod emitting;

use crate::id::{Key, Principal, RequestId};
use crate::message::{Method, Request, Response};
use crate::path::Path;
use crate::problem::{Code, Problem};
use crate::server::effects::{self, Mending, Outbox};
use crate::server::json::write::Object;
use crate::server::storage::sql::{Sql, SqlError};
use crate::server::storage::state::State;
use emitting::Emitted;

pub use emitting::Outgoing;

/// What an administrator is told who asks for effects of an application that has none.
pub(super) const NO_EFFECTS: &str = "no effects leave this application";

/// What a handler has at hand.
pub struct Context<'a> {
    /// The key's database. Tables whose names begin with `semel_` are the engine's.
    pub sql: &'a dyn Sql,
    /// The key's clock, in Unix ms. It never goes back.
    pub now_ms: i64,
    /// The key.
    pub key: &'a Key,
    /// Who is authenticated.
    pub principal: &'a Principal,
    /// What it takes to have something sent, and the request that it is of; `None`: nothing is.
    pub(super) emitting: Option<(&'a dyn Served, &'a Outbox, &'a Request)>,
    emitted: Emitted,
}

impl<'a> Context<'a> {
    /// For who has no engine: what is to be sent is an error.
    pub fn new(sql: &'a dyn Sql, now_ms: i64, key: &'a Key, principal: &'a Principal) -> Self {
        Self { sql, now_ms, key, principal, emitting: None, emitted: Emitted::default() }
    }
}

impl Context<'_> {
    /// The state of that type, as it is by now.
    pub fn state<S: State>(&self) -> Result<S, SqlError> {
        self.sql.desk().map_or_else(|| S::load(self.sql), |desk| desk.state())
    }

    /// Has it stored with all else that the request does.
    pub fn put<S: State>(&self, state: S) -> Result<(), SqlError> {
        match self.sql.desk() {
            Some(desk) => desk.put(state),
            None => state.store(self.sql),
        }
    }

    /// Has what was put stored, but for what may wait for others of this transaction: what can't be is this handler's failure.
    fn store_own(&self) -> Result<(), SqlError> {
        self.sql.desk().map_or(Ok(()), |desk| desk.store_own())
    }
}

/// Why a handler has no answer. All that it wrote is undone, and the client may send again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It does not know this path and method.
    NotFound,
    /// A statement failed.
    Sql(SqlError),
    /// Anything else, in words for the log.
    Other(String),
    /// It is executed elsewhere, so the host is to send it; what it wrote is undone. What becomes of one that is in doubt.
    Remote(Policy),
    /// The layer refuses. For handlers of its own: to an application's clients its codes mean what the layer did.
    Refused(Problem),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

/// What becomes of a request that is in doubt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Policy {
    /// It stays so until an administrator resolves it.
    Report,
    /// It is sent again: the other side knows its id, for so long from the first time on.
    Resend {
        /// How long, in s: shorter than the other side knows an id, by as long as a request may be under way.
        dedup_s: i64,
    },
    /// The other side is asked whether it has what was to be made.
    Probe {
        /// Path and query to read. 200 is the outcome.
        path: String,
        /// So long its call may be under way, in s.
        timeout_s: i64,
        /// 404 proves that there is nothing, so long after the request was sent, in s: by then it has had its effect, or never will. So it
        /// is longer than its call may be under way, by what it may need to have its effect after that.
        settle_s: i64,
    },
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

/// What the application's key rule says of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRule {
    /// Nothing handles this method and path.
    Unhandled,
    /// It belongs to this key and no other.
    Key(String),
    /// It belongs to the key that `Semel-Key` names, else to one named as the path.
    Any,
    /// The rule itself failed, and has told the log why. Nothing was done.
    Failed,
}

/// A handler as the engine works with it: the engine is compiled once, whoever it serves.
pub(super) trait Served {
    /// [`Handler::schema_version`].
    fn tables_version(&self) -> i64;
    /// [`Handler::migrate`].
    fn bring_up(&self, sql: &dyn Sql, from: i64) -> Result<(), SqlError>;
    /// [`Handler::handle`].
    fn serve(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure>;
    /// [`Handler::is_remote`].
    fn sends(&self, method: &Method, path: &Path) -> bool;
    /// [`Handler::whither`].
    fn sends_to(&self, request: &Request) -> i64;
    /// [`Handler::makes_ids`].
    fn names(&self, method: &Method, path: &Path) -> bool;
    /// [`Handler::owns`].
    fn makes_such(&self, id: &RequestId) -> bool;
    /// Whether a change may have an id.
    fn grants(&self, id: &RequestId, principal: &Principal, request: &Request) -> bool;
    /// [`Handler::EMITS`].
    fn emits(&self) -> bool;
    /// [`Handler::STATES_ONLY`].
    fn has_states_only(&self) -> bool;
    /// [`Handler::key`].
    fn rule(&self, method: &Method, path: &Path) -> KeyRule;
    /// What waits to be sent, and what is parked.
    fn tell_effects(&self, sql: &dyn Sql, outbox: &Outbox, after: i64, limit: i64) -> Result<Option<Object>, SqlError>;
    /// Has an effect sent again, or not.
    fn mend_effect(
        &self,
        sql: &dyn Sql,
        outbox: &Outbox,
        now_ms: i64,
        mended: (&str, Mending),
    ) -> Result<Response, Undone>;
}

impl<H: Handler> Served for H {
    fn tables_version(&self) -> i64 {
        self.schema_version()
    }

    fn bring_up(&self, sql: &dyn Sql, from: i64) -> Result<(), SqlError> {
        self.migrate(sql, from)
    }

    fn serve(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let response = self.handle(context, request)?;
        if H::EMITS && context.emitted.is_broken {
            return Err(Failure::Other("the storage has refused what it had sent".to_owned()));
        }
        context.store_own()?;
        Ok(response)
    }

    fn sends(&self, method: &Method, path: &Path) -> bool {
        self.is_remote(method, path)
    }

    fn sends_to(&self, request: &Request) -> i64 {
        self.whither(request)
    }

    fn names(&self, method: &Method, path: &Path) -> bool {
        self.makes_ids(method, path)
    }

    fn makes_such(&self, id: &RequestId) -> bool {
        self.owns(id)
    }

    fn grants(&self, id: &RequestId, principal: &Principal, request: &Request) -> bool {
        let makes = || !request.path.is_control() && self.id(principal, request).as_deref() == Some(id.as_str());
        !self.owns(id) || makes()
    }

    fn emits(&self) -> bool {
        H::EMITS
    }

    fn has_states_only(&self) -> bool {
        H::STATES_ONLY
    }

    fn rule(&self, method: &Method, path: &Path) -> KeyRule {
        if H::EMITS { self.key(method, path) } else { KeyRule::Unhandled }
    }

    // Where a handler has none, all of it is left out by the compiler.
    fn tell_effects(&self, sql: &dyn Sql, outbox: &Outbox, after: i64, limit: i64) -> Result<Option<Object>, SqlError> {
        if H::EMITS { effects::tell(sql, outbox, after, limit).map(Some) } else { Ok(None) }
    }

    fn mend_effect(
        &self,
        sql: &dyn Sql,
        outbox: &Outbox,
        now_ms: i64,
        mended: (&str, Mending),
    ) -> Result<Response, Undone> {
        if H::EMITS {
            effects::mend(sql, outbox, now_ms, mended)?.map_err(Undone::Problem)
        } else {
            Err(Undone::Problem(Problem::new(Code::NotFound, NO_EFFECTS)))
        }
    }
}

/// An application: what a key does with a request.
pub trait Handler {
    /// The version of the handler's own tables.
    const SCHEMA_VERSION: i64;

    /// Whether it has requests sent, by [`Context::emit`] and [`Context::call`].
    const EMITS: bool = false;

    /// Whether all that [`Handler::handle`] writes are states that may be kept until the end of a commit ([`State::IS_KEPT`](super::State::IS_KEPT)), and
    /// it runs no statement and has nothing sent. Then nothing is written before it has ended, so there is nothing to be undone where it fails, and its
    /// commit has no savepoint, which takes one request by itself a twentieth of its time. One that says so and writes otherwise ends its object where it fails:
    /// its caller is told `unavailable`, and nothing is committed.
    const STATES_ONLY: bool = false;

    /// The same, for a handler that learns it only where it runs.
    fn schema_version(&self) -> i64 {
        Self::SCHEMA_VERSION
    }

    /// What is wrong with the settings that it was made with: then nobody is served.
    fn settings(&self) -> Result<(), String> {
        Ok(())
    }

    /// Maps a path to its key.
    fn key(&self, method: &Method, path: &Path) -> KeyRule;

    /// Brings the handler's tables from version `from` (0: none yet) to [`Handler::schema_version`]. Where that fails, so does the request.
    fn migrate(&self, sql: &dyn Sql, from: i64) -> Result<(), SqlError>;

    /// Whether it is executed elsewhere: [`Handler::handle`] says [`Failure::Remote`] then, and nothing else, and never otherwise.
    fn is_remote(&self, _method: &Method, _path: &Path) -> bool {
        false
    }

    /// What stands for where such a request is sent, and for what it is asked for by once it is in doubt: from 0 to 2^53, and another wherever who would be
    /// asked may know nothing of what was sent.
    fn whither(&self, _request: &Request) -> i64 {
        0
    }

    /// The id of a change whose client sent none; `None`: it needs one.
    fn id(&self, _principal: &Principal, _request: &Request) -> Option<String> {
        None
    }

    /// Whether [`Handler::id`] may make an id of such a change: the router, which reads no body, refuses none of these for want of one.
    fn makes_ids(&self, _method: &Method, _path: &Path) -> bool {
        false
    }

    /// Whether an id is as [`Handler::id`] makes them. No change has such a one but that of which it is made, and nobody but an administrator
    /// cancels one: it can be computed, so whoever may use the key could take it before the request comes.
    fn owns(&self, _id: &RequestId) -> bool {
        false
    }

    /// Executes a request. For `GET` and `HEAD`, whatever it writes is undone.
    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure>;
}
