//! One attempt at one key, from start to end.
//!
//! Invariants:
//! - Effect, record, acknowledgements and fence of an attempt are one transaction, or nothing.
//! - Acknowledgements are applied with every answer that has a `Semel-Key`, refusals included, but never to the attempt's own id.
//! - If the handler makes ids from requests, the record under such an id is shown only to its principal and to callers
//!   that are granted the id.

use crate::fingerprint::Fingerprint;
use crate::header::{self, Ack, Attempt};
use crate::id::RequestId;
use crate::message::{Request, Response};
use crate::problem::{Code, Executed, Problem};
use crate::rules::{Rule, holds};
use crate::server::answer::{Answer, checked_outcome, checked_response};
use crate::server::attempt::aside::Aside;
use crate::server::attempt::decision::{Asked, Decision, decide};
use crate::server::attempt::doubt;
use crate::server::attempt::suspicion::Started;
use crate::server::attempt::turn::{Identified, Loaded, Purpose, Turn, Work, rolled_back};
use crate::server::config::{OUTCOME_BODY_BYTES_MAX, REQUEST_BODY_BYTES_MAX};
use crate::server::control::admin::Admin;
use crate::server::control::deletion;
use crate::server::control::resolve::{self, Resolution};
use crate::server::control::{self, Cancellation, Control, ToCancel};
use crate::server::effects::Mending;
use crate::server::handler::{Failure, Undone};
use crate::server::sessions;
use crate::server::sessions::takeover::{self, TakeOver};
use crate::server::storage::record::{Outcome, Record, State};
use crate::server::storage::schema::Versions;
use crate::server::storage::sql::{SqlError, atomically, transact};
use crate::session::Place;
use std::sync::Arc;

/// A change that the layer makes itself, without the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Command {
    /// Cancel an id.
    Cancel(Cancellation),
    /// Reduce a record to a tombstone.
    DeleteRecord(RequestId),
    /// Settle a request in doubt.
    Resolve(RequestId, Resolution),
    /// Delete all of the key.
    DeleteKey,
    /// Cancel a place in a session; `true` for an administrator.
    Close(Place, bool),
    /// Give a session a new holder.
    TakeOver(TakeOver),
    /// Send an effect again, drop it, or give it up.
    Mend(String, Mending),
}

impl Command {
    /// Whether the command makes room, or may do so later, instead of taking some.
    pub fn deletes(&self) -> bool {
        matches!(self, Self::DeleteRecord(_) | Self::DeleteKey | Self::Resolve(..) | Self::Mend(..))
    }
}

impl Turn<'_> {
    /// Answers the attempt. An error means that the storage has failed, so nothing is known of what it holds.
    pub fn run(mut self, loaded: &mut Loaded) -> Result<Answer, SqlError> {
        let request = self.arrival.request;
        let control = match control::parse(&request.method, &request.path) {
            Ok(control) => control.map(|(_, control)| control),
            Err(problem) => return self.refuse_unread(loaded, &problem),
        };
        let is_allowed = self.arrival.principal.is_administrator() || !holds(Rule::AdministratorOnly);
        if matches!(control, Some(Control::Admin(_))) && !is_allowed {
            let problem = Problem::new(Code::Forbidden, "this takes the administration token");
            return self.refuse_unread(loaded, &problem);
        }
        let attempt = match Attempt::parse(&request.headers, self.instant.now_ms) {
            Ok(attempt) => attempt,
            Err(error) => return self.refuse_malformed(loaded, &Problem::from(error)),
        };
        let may_be_numbered = self.may_be_numbered();
        if self.arrival.body_too_large {
            let detail = format!("the body has more than {REQUEST_BODY_BYTES_MAX} bytes");
            let problem = Problem::new(Code::TooLarge, detail);
            return match attempt.session.as_ref().filter(|_| may_be_numbered) {
                Some(numbered) => self.refuse_in_session(loaded, &problem, numbered),
                None => self.refuse_unread(loaded, &problem),
            };
        }
        if attempt.session.is_some() && !may_be_numbered {
            return self.refuse_unread(loaded, &control::unnumbered());
        }
        if attempt.session.is_some() && self.sends() {
            let detail = "Semel-Session: requests to an upstream can't be in a session yet";
            return self.refuse_unread(loaded, &Problem::new(Code::KeyInvalid, detail));
        }
        match control {
            Some(Control::Acknowledge) => self.acknowledge(loaded),
            Some(Control::LookUp(id)) => self.look_up(loaded, &id),
            Some(Control::Cancel) => self.cancel(loaded, &attempt, false),
            Some(Control::Batch | Control::Socket) => {
                self.refuse_unread(loaded, &Problem::new(Code::NotFound, "this path takes no single request"))
            }
            Some(Control::TakeOver) => match takeover::parse(&request.body) {
                Ok(take_over) => self.change(loaded, &attempt, Some(Command::TakeOver(take_over))),
                Err(problem) => self.refuse(loaded, &problem, attempt.id.as_ref(), Aside::default()),
            },
            Some(Control::Admin(admin)) => self.administer(loaded, &attempt, &admin),
            None if request.method.reads() => self.read(loaded),
            None => match &attempt.session {
                Some(numbered) => self.change_in_session(loaded, &attempt, numbered),
                None => self.change(loaded, &attempt, None),
            },
        }
    }

    /// Refuses an attempt whose headers can't be read. If its place can be read, its acknowledgement is applied. So a
    /// client with a wrong clock, for example, still frees its outcomes.
    fn refuse_malformed(&self, loaded: &mut Loaded, problem: &Problem) -> Result<Answer, SqlError> {
        let place = header::own_place(&self.arrival.request.headers);
        match place.ok().flatten().filter(|_| self.may_be_numbered()) {
            Some(numbered) => self.refuse_in_session(loaded, problem, &numbered),
            None => self.refuse_unread(loaded, problem),
        }
    }

    fn may_be_numbered(&self) -> bool {
        control::may_be_numbered(&self.arrival.request.method, &self.arrival.request.path)
    }

    fn acknowledge(&mut self, loaded: &mut Loaded) -> Result<Answer, SqlError> {
        match control::acks(&self.arrival.request.body) {
            Ok(acks) => self.acknowledge_all(loaded, acks),
            Err(problem) => self.refuse(loaded, &problem, None, Aside::default()),
        }
    }

    /// Acknowledges the ids of a body that was read.
    pub(in crate::server) fn acknowledge_all(
        &mut self,
        loaded: &mut Loaded,
        acks: Vec<Ack>,
    ) -> Result<Answer, SqlError> {
        self.acks.extend(acks);
        self.set_aside(loaded, None, Aside::default())?;
        Ok(Answer::changed())
    }

    fn look_up(&mut self, loaded: &mut Loaded, id: &RequestId) -> Result<Answer, SqlError> {
        let found = self.find(loaded, id, None)?;
        let found = found.filter(|record| record.answers(self.arrival.principal) || !holds(Rule::Principal));
        let asked =
            Asked { principal: self.arrival.principal, fingerprint: None, first_sent_s: None, deadline_ms: None };
        let answer = match (decide(found.as_ref(), &asked, self.instant), found) {
            // It was cancelled without first-sent. It won't run, but an earlier record of it may have left.
            (Decision::Refuse(problem), Some(Record { state: State::Cancelled { .. }, first_sent_s: None, .. })) => {
                Answer::problem(&problem.with_executed(Executed::Unknown))
            }
            (Decision::Refuse(problem), _) => Answer::problem(&problem),
            (Decision::Replay, Some(Record { at_ms, state: State::Executed(_, outcome), .. })) => {
                self.replayed(&outcome, at_ms)
            }
            (Decision::Doubt, Some(Record { state, .. })) => {
                Answer::problem(&doubt::unsettled(&state, self.is_under_way(id), self.instant.now_ms))
            }
            _ => Answer::problem(&Problem::new(Code::NotSeen, "this key has no outcome under this id")),
        };
        self.set_aside(loaded, Some(id), Aside::default())?;
        Ok(answer)
    }

    fn read(&self, loaded: &mut Loaded) -> Result<Answer, SqlError> {
        let mut answer = None;
        // All writes are undone, even the making of tables at an untouched key.
        let ended: Result<(), Undone> = atomically(self.sql, || {
            if self.purpose == Purpose::Execute {
                self.migrate(loaded.versions)?;
                let response = self.handler.serve(&mut self.context(), self.arrival.request).map_err(Undone::Failed)?;
                answer = Some(checked_response(response).map_err(Undone::Rejected)?);
            }
            if holds(Rule::ReadUndone) { Err(Undone::Rejected("the handler crashed".to_owned())) } else { Ok(()) }
        });
        let answer = match (answer, ended) {
            (Some(response), _) if response.status < 500 => Answer::read(response),
            (Some(response), _) => rolled_back(&format!("the handler answered {}", response.status)),
            (None, Err(Undone::Failed(Failure::Remote(_)))) if self.sends() => {
                // The Worker sends this read elsewhere, and asks here only to apply what comes along: see
                // `Route::Elsewhere`. Another caller must not take this answer for the result of the read.
                Answer::unavailable("the Worker sends reads to the upstream, and this object does not")
            }
            (None, Err(undone)) => self.undone(undone)?,
            (None, Ok(())) => rolled_back("the read did not end"),
        };
        self.set_aside(loaded, None, Aside::default())?;
        Ok(answer)
    }

    fn administer(&self, loaded: &mut Loaded, attempt: &Attempt, admin: &Admin) -> Result<Answer, SqlError> {
        let command = match admin {
            Admin::Cancel => return self.cancel(loaded, attempt, true),
            Admin::DeleteKey => Command::DeleteKey,
            Admin::DeleteRecord(id) => Command::DeleteRecord(id.clone()),
            Admin::Resolve(id) => match resolve::parse(&self.arrival.request.body) {
                Ok(resolution) => Command::Resolve(id.clone(), resolution),
                Err(problem) => return self.refuse(loaded, &problem, attempt.id.as_ref(), Aside::default()),
            },
            Admin::Mend(id, mending) => Command::Mend(id.clone(), *mending),
            Admin::Show | Admin::Effects { .. } | Admin::Records { .. } | Admin::Times { .. } | Admin::Record(_) => {
                let answer = self.tell(loaded, admin)?;
                if !self.acks.is_empty() {
                    self.set_aside(loaded, None, Aside::default())?;
                }
                return Ok(answer);
            }
        };
        if loaded.versions.engine == 0 {
            let problem = Problem::new(Code::NotFound, "nobody has used this key");
            return self.refuse(loaded, &problem, attempt.id.as_ref(), Aside::default());
        }
        self.change(loaded, attempt, Some(command))
    }

    /// Cancels. The body is parsed before any record is looked at.
    fn cancel(&self, loaded: &mut Loaded, attempt: &Attempt, by_administrator: bool) -> Result<Answer, SqlError> {
        let body = &self.arrival.request.body;
        let parsed =
            attempt.id.as_ref().map(|id| control::cancellation(body, id, self.instant.now_ms, by_administrator));
        match parsed.transpose() {
            Ok(asked) => {
                let command = asked.map(|asked| match asked {
                    ToCancel::Request(cancellation) => Command::Cancel(cancellation),
                    ToCancel::Place(place) => Command::Close(place, by_administrator),
                });
                self.change(loaded, attempt, command)
            }
            Err(problem) => self.refuse(loaded, &problem, attempt.id.as_ref(), Aside::default()),
        }
    }

    /// The problem of a change without an id.
    pub(super) fn nameless(&self) -> Problem {
        let Request { method, path, .. } = self.arrival.request;
        if path.is_control() || !self.handler.names(method, path) {
            return Problem::key_missing();
        }
        let detail = "a change needs an Idempotency-Key; this request has none, and lacks a part that the route's `idFrom` makes an id of";
        Problem::new(Code::KeyMissing, detail)
    }

    /// A request that is executed exactly once: a change of the application, or a command to the layer.
    fn change(&self, loaded: &mut Loaded, attempt: &Attempt, command: Option<Command>) -> Result<Answer, SqlError> {
        let Some(id) = &attempt.id else {
            return self.refuse(loaded, &self.nameless(), None, Aside::default());
        };
        let fingerprint = Fingerprint::of(self.arrival.request);
        let found = self.find(loaded, id, attempt.first_sent_s)?;
        // The attempt that crashed was admitted by fence and deadline, even if these have moved since.
        let judged = if self.purpose == Purpose::CountCrash { &Attempt::default() } else { attempt };
        let asked = Asked {
            principal: self.arrival.principal,
            fingerprint: Some(&fingerprint),
            first_sent_s: judged.first_sent_s,
            deadline_ms: judged.deadline_ms,
        };
        let decision = decide(found.as_ref(), &asked, self.instant);
        // A request with a record was granted its id when it got the record, so it is answered from that.
        if decision == Decision::Execute && found.is_none() && !self.is_granted(id) {
            return self.refuse(loaded, &not_granted(), Some(id), Aside::default());
        }
        if decision == Decision::Execute {
            let mut identified = Identified { id, attempt, fingerprint, found };
            if (self.purpose, &command) == (Purpose::Execute, &None)
                && let Some(answer) = self.count_dead_start(loaded, &mut identified)?
            {
                return Ok(answer);
            }
            return match self.purpose {
                Purpose::Execute => self.execute(loaded, &identified, command.as_ref()),
                Purpose::CountStart => self.count_start(loaded, &identified),
                Purpose::KnowStart => Ok(self.know_start(loaded, Started::Request(id.clone()))),
                Purpose::CountCrash => self.count_crash(loaded, &identified),
            };
        }
        if self.purpose.is_ahead() {
            return Ok(Answer::changed());
        }
        if decision == Decision::Doubt {
            return self.doubt(loaded, &Identified { id, attempt, fingerprint, found });
        }
        let ended = match &found {
            Some(suspect @ Record { state: State::Suspect { .. }, .. }) if !decision.is_mismatch() => {
                loaded.ended(id, suspect)
            }
            _ => None,
        };
        let seen = self.seen(found.as_ref(), attempt, &decision).map(|record| (id, record));
        let aside = Aside { ended, seen, ..Aside::default() };
        match (decision, &found) {
            (Decision::Refuse(problem), _) => {
                let fence = problem.code == Code::OutsideWindow;
                self.refuse(loaded, &problem, Some(id), Aside { fence, ..aside })
            }
            (_, Some(Record { at_ms, state: State::Executed(_, outcome), .. })) => {
                self.set_aside(loaded, Some(id), aside)?;
                Ok(self.replayed(outcome, *at_ms))
            }
            _ => Err(SqlError("a decision to replay without an outcome".to_owned())),
        }
    }

    /// The record after an attempt that runs nothing; `None` if it stays as it is. Whatever the attempt is told, what
    /// remains of its request has to outlast it. The record of a suspect never changes here: it protects no id, so that
    /// would be a write for nothing.
    pub(super) fn seen(&self, found: Option<&Record>, attempt: &Attempt, decision: &Decision) -> Option<Record> {
        let found = found.filter(|found| !decision.is_mismatch() && !matches!(found.state, State::Suspect { .. }))?;
        found.seen_again(attempt, self.instant.now_ms, self.config.retention_s)
    }

    /// Runs the handler or a command, and records its answer, with all that goes along, in one transaction.
    fn execute(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        command: Option<&Command>,
    ) -> Result<Answer, SqlError> {
        // A suspect already has its row, and a command that deletes makes room.
        let needs_room = identified.found.is_none() && !command.is_some_and(Command::deletes);
        if needs_room && let Some(want) = self.want_of_room(loaded)? {
            let problem = Problem::new(Code::Capacity, want);
            return self.refuse(loaded, &problem, Some(identified.id), Aside { sweep: true, ..Aside::default() });
        }
        // A command may have written something before it is refused.
        let is_light = command.is_none() && self.writes_last(loaded);
        let mut work = self.work(loaded);
        let ended: Result<Arc<Outcome>, Undone> = transact(self.sql, is_light, || {
            let outcome = match command {
                None => {
                    self.migrate(loaded.versions)?;
                    work.after.versions = Versions::current(self.handler.tables_version());
                    let response = self.handler.serve(&mut self.context(), self.arrival.request);
                    checked_outcome(response.map_err(Undone::Failed)?, OUTCOME_BODY_BYTES_MAX)
                }
                Some(command) => {
                    self.create(&mut work)?;
                    checked_outcome(self.obey(&mut work, command, identified.attempt)?, control::CANCEL_BODY_BYTES_MAX)
                }
            };
            let outcome = Arc::new(outcome.map_err(Undone::Rejected)?);
            let carried = self.acknowledge_carried(&mut work, identified.id)?;
            let record = self.record(identified, State::Executed(identified.fingerprint, outcome.clone()), carried);
            // The deletion of the key also deleted what was found for the id.
            let found = identified.found.as_ref().filter(|_| command != Some(&Command::DeleteKey));
            work.put(identified.id, found, &record)?;
            if command == Some(&Command::DeleteKey) {
                deletion::mark(&mut work)?;
            }
            self.write_rest(&mut work, &Aside::default())?;
            Ok(outcome)
        });
        match ended {
            Ok(outcome) => {
                *loaded = work.after;
                Ok(Answer::executed(&outcome, self.expires_s(self.instant.now_ms)))
            }
            Err(Undone::Failed(Failure::Remote(policy))) if self.sends() => self.dispatch(loaded, identified, &policy),
            Err(undone) => {
                let fence = matches!(&undone, Undone::Problem(problem) if problem.code == Code::OutsideWindow);
                let answer = self.undone(undone)?;
                let ended = identified.found.as_ref().and_then(|found| loaded.ended(identified.id, found));
                self.set_aside(loaded, Some(identified.id), Aside { fence, ended, ..Aside::default() })?;
                Ok(answer)
            }
        }
    }

    fn obey(&self, work: &mut Work<'_>, command: &Command, attempt: &Attempt) -> Result<Response, Undone> {
        match command {
            Command::Cancel(cancellation) => {
                let is_granted = cancellation.under.is_some() || !self.handler.makes_such(&cancellation.id);
                let refusal = (!is_granted).then(not_granted);
                control::cancel(work, cancellation, attempt.deadline_ms, (self.is_under_way(&cancellation.id), refusal))
            }
            Command::DeleteRecord(id) => deletion::delete_record(work, id, self.config.retention_s),
            Command::Resolve(id, _) if self.is_under_way(id) => Err(Undone::Problem(doubt::locked())),
            Command::Resolve(id, resolution) => resolve::resolve(work, id, resolution),
            Command::DeleteKey => deletion::delete_key(work),
            Command::Close(place, by_administrator) => {
                sessions::close(work, place, *by_administrator, attempt.deadline_ms)
            }
            Command::TakeOver(take_over) => takeover::take_over(work, take_over),
            Command::Mend(id, mending) => {
                self.handler.mend_effect(self.sql, self.outbox, self.instant.now_ms, (id, *mending))
            }
        }
    }

    /// Refuses an attempt without reading it further. It still can't acknowledge its own id.
    pub(super) fn refuse_unread(&self, loaded: &mut Loaded, problem: &Problem) -> Result<Answer, SqlError> {
        let own = header::own_id(&self.arrival.request.headers).unwrap_or_default();
        self.refuse(loaded, problem, own.as_ref(), Aside::default())
    }
}

/// The problem of an id that only the request from which it is made may use.
pub(super) fn not_granted() -> Problem {
    Problem::new(
        Code::KeyInvalid,
        "the server makes ids with this prefix from a request's content, and this id is not that of a request of yours",
    )
}
