//! Requests that end the process, or may have.
//!
//! A panic is counted where it happened, after its rollback. A handler that never returns, or takes all memory, ends the
//! object before anything can be counted. So a new object counts the start of each request that may have ended the object
//! before it, ahead of running the request.
//!
//! Invariants:
//! - An id on which the handler crashed [`CRASHES_MAX`] times never runs again, and the client is told so.
//! - A start of an object that died was a crash, whenever its id comes back.
//! - A start is counted only for an id that runs alone in its commit, so no request is blamed for another.
//! - No start is counted for a request that has its outcome, since no handler will run.
//! - In an object that has lived for a while, and for new requests, nothing is counted and nothing is written. So a
//!   client that comes back only after [`YOUNG_MS`], or without first-sent after five seconds, can end several objects
//!   without being counted.
//! - Age goes by the machine's clock. A key's clock may be ahead of it, and so may a client's. So a request does not
//!   count as new because its first-sent is in the future, and deadlines are ignored here.
//! - These limits of time do not apply to a session. What ended the object before is the first request of its session
//!   that the new object executes, whenever it comes and whether or not it has a first-sent. A new holder takes over what
//!   was counted for the number.

use super::aside::Aside;
use super::decision::poisoned;
use super::turn::{Identified, Loaded, Turn, Work, rolled_back};
use crate::header::{Attempt, quoted};
use crate::id::RequestId;
use crate::message::{Headers, Method};
use crate::path::Path;
use crate::rules::{Rule, holds};
use crate::server::answer::Answer;
use crate::server::storage::crashes::{CRASHES_MAX, Count};
use crate::server::storage::packed::Bundle;
use crate::server::storage::record::{Record, State};
use crate::server::storage::rows;
use crate::server::storage::schema;
use crate::server::storage::sql::{SqlError, atomically};
use crate::session::Numbered;
use std::sync::Arc;

/// For how many sessions an object remembers that they have gone on.
const GONE_ON_MAX: usize = 4_096;
/// For how many counted starts an object remembers that they are its own.
const OWN_MAX: usize = 64;
/// How long after its start an object is young, in ms.
pub const YOUNG_MS: i64 = 60_000;
/// How long before the object's start a request must have been first sent to be suspected of ending the object before, in
/// ms. A request without first-sent is suspected for as long after the start: by then, a client that got no answer is
/// back. Clocks usually differ by less.
const EARLIER_MS: i64 = 5_000;

/// Whether an attempt that arrives at `now_ms` may have ended the object before this one, which started at `started_ms`.
/// [`Suspects`] knows more about a place in a session.
pub fn is_suspect(method: &Method, pathname: &str, headers: &Headers, started_ms: i64, now_ms: i64) -> bool {
    let is_young = |young_ms: i64| now_ms < started_ms.saturating_add(young_ms);
    let may_be = is_young(YOUNG_MS) || headers.get("semel-session").is_some();
    // A control request runs no handler.
    if !may_be || !method.changes() || Path::begins_control(pathname) {
        return false;
    }
    // This decides about most attempts, and is cheaper; what follows would come to the same.
    let mut sent = headers.iter().filter(|(name, _)| *name == "semel-first-sent").map(|(_, value)| value);
    if says_new((sent.next(), sent.next()), started_ms, now_ms) {
        return false;
    }
    // Whether its times are too far ahead is decided by the key's clock, not here.
    let Ok(attempt) = Attempt::parse(headers, i64::MAX) else { return false };
    let was_sent_before = attempt.first_sent_s.map(|first_sent_s| may_be_before(first_sent_s, started_ms, now_ms));
    match attempt {
        Attempt { session: Some(_), .. } => was_sent_before.unwrap_or(true),
        Attempt { id: Some(_), .. } => was_sent_before.unwrap_or_else(|| is_young(EARLIER_MS)),
        Attempt { .. } => false,
    }
}

/// Whether an attempt says in its header lines that it was first sent too late to be a suspect. [`is_suspect`] would find
/// the same after parsing all of them.
pub fn is_new(lines: &str, started_ms: i64, now_ms: i64) -> bool {
    let mut sent = lines.lines().filter_map(|line| line.strip_prefix("semel-first-sent:"));
    says_new((sent.next(), sent.next()), started_ms, now_ms)
}

/// As [`is_new`], with the first and the second line of that name.
fn says_new(sent: (Option<&str>, Option<&str>), started_ms: i64, now_ms: i64) -> bool {
    let (Some(only), None) = sent else { return false };
    let digits =
        only.strip_prefix('@').filter(|digits| digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit()));
    let first_sent_s = digits.and_then(|digits| digits.parse::<i64>().ok());
    first_sent_s.is_some_and(|first_sent_s| !may_be_before(first_sent_s, started_ms, now_ms))
}

/// Whether this first-sent may be before the object's start. It has at most 15 digits, so the product does not overflow.
fn may_be_before(first_sent_s: i64, started_ms: i64, now_ms: i64) -> bool {
    let first_sent_ms = first_sent_s * 1000;
    first_sent_ms < started_ms.saturating_sub(EARLIER_MS) || first_sent_ms > now_ms.saturating_add(EARLIER_MS)
}

/// Which attempts may have ended the object before this one. A crash of the module loses this memory, and so do too many
/// sessions; then more starts are counted than necessary.
#[derive(Debug, Default)]
pub struct Suspects {
    /// Sessions of which this object has executed a place. A request that ended the object before was the next of its
    /// session, so it would have come first. The names are sorted, and written as in headers: they are looked up for each
    /// request of a session, and parsing its place takes longer.
    gone_on: Vec<String>,
}

impl Suspects {
    /// Whether an attempt may have ended the object before this one; as [`is_suspect`].
    pub fn has(&self, method: &Method, pathname: &str, headers: &Headers, started_ms: i64, now_ms: i64) -> bool {
        // The first of these only saves time: the last finds the same.
        !self.has_gone_on(headers)
            && is_suspect(method, pathname, headers, started_ms, now_ms)
            && session_of(headers).is_none_or(|session| self.gone_on.binary_search(&session).is_err())
    }

    /// Takes note that an attempt was answered.
    pub fn answered(&mut self, headers: &Headers, answer: &Answer) {
        // The second of these only saves time: the last finds the same.
        if answer.headers.get("semel-status") == Some("executed")
            && !self.has_gone_on(headers)
            && let Some(session) = session_of(headers)
            && let Err(place) = self.gone_on.binary_search(&session)
        {
            // This loses the memory, as a crash of the module does.
            if self.gone_on.len() >= GONE_ON_MAX {
                self.gone_on.clear();
            }
            self.gone_on.insert(place.min(self.gone_on.len()), session);
        }
    }

    /// Whether the header shows that its session has gone on. This is cheaper than parsing the place, which would come to the same.
    fn has_gone_on(&self, headers: &Headers) -> bool {
        // A name with `";` in it is not found here, and is parsed afterwards.
        let name = headers.get("semel-session").and_then(|value| value.get(..value.find("\";")? + 1));
        name.is_some_and(|name| self.gone_on.binary_search_by(|known| known.as_str().cmp(name)).is_ok())
    }
}

/// The name of the attempt's session, as written in headers.
fn session_of(headers: &Headers) -> Option<String> {
    let numbered = Numbered::parse(&headers.combined("semel-session")?).ok()?;
    Some(quoted(numbered.place.session.as_str()))
}

/// Something whose start an engine has counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Started {
    /// A request with an id.
    Request(RequestId),
    /// A place in a session.
    Place {
        /// The number of the session.
        session: i64,
        /// The epoch of the holder.
        epoch: i64,
        /// The number of the place.
        seq: i64,
    },
}

/// The starts that this object has counted. A counted start that is not here belongs to an object that died: this
/// object's own starts have ended, since it lives, even if that could not be written. A crash of the module loses this
/// memory, and so do too many starts; then more is counted than necessary. It is behind an `Arc`, because each request
/// clones what is known of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Own(Arc<Vec<Started>>);

impl Own {
    /// Whether this object has counted a start. Not inlined: it is rarely called, so one copy in the bundle is enough.
    #[inline(never)]
    pub fn has(&self, started: &Started) -> bool {
        self.0.contains(started)
    }

    /// Remembers that this object has counted a start.
    #[inline(never)]
    pub fn add(&mut self, started: Started) {
        if self.has(&started) {
            return;
        }
        let own = Arc::make_mut(&mut self.0);
        if own.len() >= OWN_MAX {
            own.clear();
        }
        own.push(started);
    }
}

impl Turn<'_> {
    /// Counts that the handler is about to run. After too many crashes, records that the id never runs again.
    pub(in crate::server) fn count_start(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
    ) -> Result<Answer, SqlError> {
        // A suspect already has its row.
        let has_place = identified.found.is_some() || self.want_of_room(loaded)?.is_none();
        if has_place && holds(Rule::StartCounted) {
            let count = Count::of(identified.found.as_ref()).started(loaded.has_started(identified.id));
            self.put_count(loaded, identified, count)?;
            loaded.started.add(Started::Request(identified.id.clone()));
        }
        Ok(Answer::changed())
    }

    /// Remembers that this object has counted the start of a request.
    pub(in crate::server) fn know_start(&self, loaded: &mut Loaded, started: Started) -> Answer {
        loaded.started.add(started);
        Answer::changed()
    }

    /// Counts a start of an object that died, if nothing was counted ahead of this attempt because its client came back
    /// late. Returns the refusal if that was one crash too many.
    pub(in crate::server) fn count_dead_start(
        &self,
        loaded: &mut Loaded,
        identified: &mut Identified<'_>,
    ) -> Result<Option<Answer>, SqlError> {
        let count = Count::of(identified.found.as_ref());
        if !count.is_started || loaded.has_started(identified.id) {
            return Ok(None);
        }
        let count = count.crashed();
        self.put_count(loaded, identified, count)?;
        identified.found = self.find(loaded, identified.id, identified.attempt.first_sent_s)?;
        Ok(count.is_poisoned().then(|| Answer::problem(&poisoned())))
    }

    /// Counts a crash of the handler. After the last allowed one, records that the id never runs again.
    pub(in crate::server) fn count_crash(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
    ) -> Result<Answer, SqlError> {
        let count = Count::of(identified.found.as_ref()).crashed();
        self.put_count(loaded, identified, count)?;
        let id = identified.id.as_str();
        let log = format!("the handler crashed on {id:?}, {} of {CRASHES_MAX} times", count.crashes);
        Ok(if count.is_poisoned() { Answer::problem(&poisoned()).with_log(log) } else { rolled_back(&log) })
    }

    fn put_count(&self, loaded: &mut Loaded, identified: &Identified<'_>, count: Count) -> Result<(), SqlError> {
        let Count { crashes, is_started } = count;
        let state = if count.is_poisoned() {
            State::Poisoned(identified.fingerprint)
        } else {
            State::Suspect { crashes, is_started }
        };
        if !holds(Rule::CrashCounted) {
            return Ok(());
        }
        let mut work = self.work(loaded);
        atomically(self.sql, || {
            // The handler's tables are not made here: making them may be what crashes.
            self.create(&mut work)?;
            work.put(identified.id, identified.found.as_ref(), &self.record(identified, state, Bundle::default()))?;
            self.write_aside(&mut work, Some(identified.id), &Aside::default())
        })?;
        *loaded = work.after;
        Ok(())
    }

    /// Takes back the count of a start that ended, even if only with a failure.
    pub(in crate::server) fn end_start(
        &self,
        work: &mut Work<'_>,
        id: &RequestId,
        found: &Record,
    ) -> Result<(), SqlError> {
        match found.state {
            State::Suspect { crashes: 0, .. } => {
                rows::delete(self.sql, id)?;
                work.after.count.left(found);
                // The deleted row was what kept the clock durable.
                schema::put_fence(self.sql, self.instant.fence_s, self.instant.now_ms)
            }
            // A row whose start has ended need not be written again.
            State::Suspect { crashes, is_started: true } => {
                let state = State::Suspect { crashes, is_started: false };
                work.put(id, Some(found), &Record { state, ..found.clone() })
            }
            _ => Ok(()),
        }
    }
}
