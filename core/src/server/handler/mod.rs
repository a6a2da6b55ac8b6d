//! The interface that an application implements. `emitting`: the requests that it may send to others.
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

/// Tells an administrator that this application has no effects.
pub(super) const NO_EFFECTS: &str = "no effects leave this application";

/// What a handler works with.
pub struct Context<'a> {
    /// The key's database. Tables whose names begin with `semel_` belong to the engine.
    pub sql: &'a dyn Sql,
    /// The key's clock, in Unix ms. It never goes back.
    pub now_ms: i64,
    /// The key.
    pub key: &'a Key,
    /// Who is authenticated.
    pub principal: &'a Principal,
    /// What is needed to send something, with the request that is being handled; `None` if this handler can't send.
    pub(super) emitting: Option<(&'a dyn Served, &'a Outbox, &'a Request)>,
    emitted: Emitted,
}

impl<'a> Context<'a> {
    /// A context without an engine. Sending something from it fails.
    pub fn new(sql: &'a dyn Sql, now_ms: i64, key: &'a Key, principal: &'a Principal) -> Self {
        Self { sql, now_ms, key, principal, emitting: None, emitted: Emitted::default() }
    }
}

impl Context<'_> {
    /// The current state of that type, with the changes of this transaction.
    pub fn state<S: State>(&self) -> Result<S, SqlError> {
        self.sql.desk().map_or_else(|| S::load(self.sql), |desk| desk.state())
    }

    /// Stores a state, together with all else that the request does.
    pub fn put<S: State>(&self, state: S) -> Result<(), SqlError> {
        match self.sql.desk() {
            Some(desk) => desk.put(state),
            None => state.store(self.sql),
        }
    }

    /// Stores the states that were put, except those that may wait for other requests of this transaction. A failure
    /// counts as this handler's.
    fn store_own(&self) -> Result<(), SqlError> {
        self.sql.desk().map_or(Ok(()), |desk| desk.store_own())
    }
}

/// Why a handler has no answer. All that it wrote is undone, and the client may send the request again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The handler does not know this path and method.
    NotFound,
    /// A statement failed.
    Sql(SqlError),
    /// Anything else, in words for the log.
    Other(String),
    /// The request is executed elsewhere, so the host has to send it. The policy says what to do if it is in doubt.
    Remote(Policy),
    /// The layer refuses. Only for the layer's own handlers: an application's clients take the codes of a problem as the layer's.
    Refused(Problem),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

/// What to do with a request that is in doubt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Policy {
    /// It stays in doubt until an administrator resolves it.
    Report,
    /// Send it again: the other side knows its id, for some time after it was sent first.
    Resend {
        /// For how long, in seconds. This must be shorter than the other side remembers an id, by the time that a request may be under way.
        dedup_s: i64,
    },
    /// Ask the other side whether it has what the request was to make.
    Probe {
        /// Path and query to read. An answer of 200 is the outcome.
        path: String,
        /// How long the request's call may be under way, in seconds.
        timeout_s: i64,
        /// How long after the request was sent a 404 proves that there is nothing, in seconds. By then the request must
        /// have had its effect, or never have it. So this is longer than `timeout_s`, by the time that the effect may
        /// need after the call.
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

/// Which key a path belongs to, by the application's key rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRule {
    /// No key handles this method and path.
    Unhandled,
    /// It belongs to this key only.
    Key(String),
    /// It belongs to the key that `Semel-Key` names, or else to the key that is named like the path.
    Any,
    /// The rule itself failed, and has written the reason to the log. Nothing was done.
    Failed,
}

/// A handler as the engine uses it. It is a trait object, so the engine is compiled only once for all handlers.
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
    /// Whether a change may use an id.
    fn grants(&self, id: &RequestId, principal: &Principal, request: &Request) -> bool;
    /// [`Handler::EMITS`].
    fn emits(&self) -> bool;
    /// [`Handler::STATES_ONLY`].
    fn has_states_only(&self) -> bool;
    /// [`Handler::key`].
    fn rule(&self, method: &Method, path: &Path) -> KeyRule;
    /// What an administrator sees of the effects that wait or are parked; `None` if this handler has no effects.
    fn tell_effects(&self, sql: &dyn Sql, outbox: &Outbox, after: i64, limit: i64) -> Result<Option<Object>, SqlError>;
    /// Sends an effect again, drops it or gives it up, for an administrator.
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

    // If a handler emits nothing, the compiler leaves all of this out.
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

    /// Whether the handler sends requests, by [`Context::emit`] and [`Context::call`].
    const EMITS: bool = false;

    /// Whether all that [`Handler::handle`] writes are states that may stay in memory until the end of a commit
    /// ([`State::IS_KEPT`](super::State::IS_KEPT)), and it runs no statement and sends nothing.
    ///
    /// Then nothing is written before the handler has ended, so nothing has to be undone if it fails, and its commit
    /// needs no savepoint. That saves a request by itself a twentieth of its time. If a handler sets this, writes
    /// otherwise and then fails, its object ends: the caller is told `unavailable`, and nothing is committed.
    const STATES_ONLY: bool = false;

    /// As [`Handler::SCHEMA_VERSION`], for a handler that knows it only at run time.
    fn schema_version(&self) -> i64 {
        Self::SCHEMA_VERSION
    }

    /// Checks the settings that the handler was made with. After an error, no request is served.
    fn settings(&self) -> Result<(), String> {
        Ok(())
    }

    /// Maps a path to its key, for the same method and path always to the same. It is not asked again for an element of a
    /// batch that is like the one before it.
    fn key(&self, method: &Method, path: &Path) -> KeyRule;

    /// Brings the handler's tables from version `from` (0: none yet) to [`Handler::schema_version`]. If this fails, so does the request.
    fn migrate(&self, sql: &dyn Sql, from: i64) -> Result<(), SqlError>;

    /// Whether a request is executed elsewhere. Then [`Handler::handle`] must always return [`Failure::Remote`]; for
    /// other requests it must never do so.
    fn is_remote(&self, _method: &Method, _path: &Path) -> bool {
        false
    }

    /// A number from 0 to 2^53 that stands for where such a request is sent, and for how the other side is asked about
    /// one in doubt. It must change whenever the side that would be asked may know nothing of what was sent before.
    fn whither(&self, _request: &Request) -> i64 {
        0
    }

    /// Makes the id of a change whose client sent none; `None` if the client has to send one.
    fn id(&self, _principal: &Principal, _request: &Request) -> Option<String> {
        None
    }

    /// Whether [`Handler::id`] may make an id for such a change. The router reads no body, so it lets these changes pass without an id.
    fn makes_ids(&self, _method: &Method, _path: &Path) -> bool {
        false
    }

    /// Whether an id has the form that [`Handler::id`] makes. Only the change from which such an id is made may use it,
    /// and only an administrator may cancel it. Otherwise whoever may use the key could compute the id and take it before
    /// the request comes.
    fn owns(&self, _id: &RequestId) -> bool {
        false
    }

    /// Executes a request. Whatever it writes for `GET` and `HEAD` is undone.
    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure>;
}
