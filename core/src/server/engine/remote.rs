//! Requests that are executed elsewhere: by another Worker, or by an API that the layer stands in front of.
//!
//! The handler has no effect of its own. It says that the request is to be dispatched ([`Failure::Remote`]), and what to
//! do with it if it is in doubt. The host makes durable what was committed, sends the request, and reports the result.
//!
//! Invariants:
//! - A start is recorded before its call leaves the engine.
//! - A dispatched request may have had its effect. It is dispatched again only as the policy of its route allows, both
//!   the present policy and the one of the first dispatch. It never leaves by itself, and nobody is told that it did not
//!   run, unless the other side says so or nothing was sent.
//! - The host lets only one request of a key be under way at a time. So if an attempt finds a start, that start is in doubt.

use super::execution::not_granted;
use super::{Arrival, Engine};
use crate::fingerprint::Fingerprint;
use crate::header::Attempt;
use crate::id::RequestId;
use crate::message::Response;
use crate::problem::{Code, Problem};
use crate::rules::{Rule, holds};
use crate::server::answer::Answer;
use crate::server::attempt::aside::Aside;
use crate::server::attempt::decision::{Asked, Decision, decide};
use crate::server::attempt::doubt::{finds_out, in_flight, locked, outcome_unknown};
use crate::server::attempt::turn::{Identified, Loaded, Purpose, Turn};
use crate::server::handler::{Failure, Handler, Policy, Undone};
use crate::server::storage::packed::Bundle;
use crate::server::storage::record::{Finds, Record, State};
use crate::server::storage::retention::after_s;
use crate::server::storage::sql::{Sql, SqlError, atomically};

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The other side answered, with whatever status.
    Answered(Response),
    /// It can't be known what became of the request. The reason is for the log.
    Unknown(String),
    /// Certainly no byte was sent. The reason is for the log.
    Unreachable(String),
}

pub use super::settling::read;
pub use crate::server::attempt::doubt::Call;

impl<H: Handler> Engine<H> {
    /// The call to make before the last attempt has an answer. The host then has to discard the answer that
    /// [`Engine::handle`] gave. Each call is returned once.
    pub fn take_call(&mut self) -> Option<Call> {
        self.take_call_of().map(|(call, _)| call)
    }

    /// As [`Engine::take_call`], with the id of the request, since its client may have sent none.
    pub fn take_call_of(&mut self) -> Option<(Call, RequestId)> {
        let (call, id) = self.loaded.as_mut().and_then(|loaded| loaded.call.take())?;
        self.under_way = Some(id.clone());
        Some((call, id))
    }

    /// Says that a request was already under way when this engine was made.
    pub fn know_under_way(&mut self, id: RequestId) {
        self.under_way = Some(id);
    }

    /// Answers an attempt while another request of the key is under way: with what its record says, or with the problem
    /// that it has to wait.
    pub fn wait(&mut self, sql: &dyn Sql, arrival: Arrival<'_>) -> Answer {
        let answered = self.attempt_with(sql, (arrival, Purpose::Execute, true), |turn, loaded| turn.wait(loaded));
        self.told(&answered);
        answered
    }

    /// Answers an attempt whose call has ended. There may be one more call to make.
    pub fn settle(&mut self, sql: &dyn Sql, arrival: Arrival<'_>, call: &Call, ended: Ended) -> Answer {
        self.under_way = None;
        let answered =
            self.attempt_with(sql, (arrival, Purpose::Execute, true), |turn, loaded| turn.settle(loaded, call, ended));
        self.told(&answered);
        answered
    }
}

impl Turn<'_> {
    /// Records the start of a request, and has it sent.
    pub(super) fn dispatch(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        policy: &Policy,
    ) -> Result<Answer, SqlError> {
        let now_ms = self.instant.now_ms;
        let (times, first_ms, known_until_ms) = match identified.found.as_ref().map(|found| &found.state) {
            Some(State::Dispatched { times, first_ms, finds, .. }) => {
                let until_ms = if let Finds::Until(until_ms) = finds { *until_ms } else { i64::MAX };
                (*times, *first_ms, until_ms)
            }
            _ => (0, now_ms, i64::MAX),
        };
        let times = times.saturating_add(1);
        let finds = match policy {
            Policy::Report => Finds::Until(now_ms),
            // A longer time in the present policy may hold only for what is sent under it, so the earlier end stays.
            Policy::Resend { dedup_s } => Finds::Until(after_s(first_ms, *dedup_s).min(known_until_ms)),
            Policy::Probe { settle_s, .. } => Finds::Asked(after_s(now_ms, *settle_s)),
        };
        let (fingerprint, whither) = (identified.fingerprint, Some(self.handler.sends_to(self.arrival.request)));
        let state = State::Dispatched { fingerprint, times, first_ms, finds, whither };
        let mut work = self.work(loaded);
        if holds(Rule::DispatchRecorded) {
            atomically(self.sql, || {
                self.create(&mut work)?;
                // It carries no tombstones, so none of other requests are lost with it.
                work.put(identified.id, identified.found.as_ref(), &self.record(identified, state, Bundle::default()))?;
                self.write_aside(&mut work, Some(identified.id), &Aside::default())
            })?;
            *loaded = work.after;
        }
        loaded.call = Some((Call::Dispatch { times }, identified.id.clone()));
        Ok(Answer::problem(&in_flight()))
    }

    /// Answers an attempt of a request that is in doubt.
    pub(super) fn doubt(&self, loaded: &mut Loaded, identified: &Identified<'_>) -> Result<Answer, SqlError> {
        let Some(Record { at_ms, state, .. }) = &identified.found else { return Err(undispatched()) };
        let State::Dispatched { times, first_ms, finds, whither, .. } = *state else { return Err(undispatched()) };
        let now_ms = self.instant.now_ms;
        if self.purpose != Purpose::Execute {
            // What crashed the engine is not tried again at once. The handler is not asked either, since it may be what crashed.
            return self.still_in_doubt(loaded, identified, in_flight());
        }
        // What was to be reported, or is past its time to be sent again, stays in doubt, whatever the policy says now.
        // The other side may have been another one then, and callers who were told may have gone on.
        if !finds_out(state, now_ms) && holds(Rule::ResendEnds) {
            return self.still_in_doubt(loaded, identified, outcome_unknown());
        }
        let policy = self.policy(loaded)?;
        // The other side knows of the request only where it was sent, and only if it is asked in the same way.
        let is_there = whither.is_none_or(|whither| whither == self.handler.sends_to(self.arrival.request));
        match policy {
            // If it was sent to be probed for, nobody knows whether that side remembers ids.
            Policy::Resend { dedup_s }
                if matches!(finds, Finds::Until(_)) && is_there && now_ms < after_s(first_ms, dedup_s)
                    || !holds(Rule::ResendEnds) =>
            {
                // This attempt may not start any more, but an earlier one may have.
                if self.is_late(identified.attempt) {
                    self.still_in_doubt(loaded, identified, in_flight())
                } else {
                    self.dispatch(loaded, identified, &policy)
                }
            }
            // A request that was to be sent again may be probed for too. Finding it settles it; not finding it proves nothing.
            Policy::Probe { path, settle_s, .. } if is_there || matches!(finds, Finds::Until(_)) => {
                let answer = self.still_in_doubt(loaded, identified, in_flight())?;
                // The record of a request that was to be sent again does not say how long it may have been under way, so
                // a 404 is no proof for it.
                let is_past = |proves_ms: i64| now_ms >= after_s(*at_ms, settle_s).max(proves_ms);
                let is_proof =
                    matches!(finds, Finds::Asked(proves_ms) if is_past(proves_ms)) || !holds(Rule::ProbeSettles);
                loaded.call = Some((Call::Probe { path, times, is_proof }, identified.id.clone()));
                Ok(answer)
            }
            _ => self.still_in_doubt(loaded, identified, outcome_unknown()),
        }
    }

    /// Answers an attempt of a request that stays in doubt. The record changes only by what the attempt adds, and if the
    /// answer is `outcome-unknown`: then all later attempts are told the same.
    pub(super) fn still_in_doubt(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        problem: Problem,
    ) -> Result<Answer, SqlError> {
        self.still_in_doubt_since(loaded, identified, problem, i64::MIN)
    }

    /// As [`Self::still_in_doubt`]. Treats the call as one that was sent at `sent_ms`, if the record has an earlier time.
    pub(super) fn still_in_doubt_since(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        problem: Problem,
        sent_ms: i64,
    ) -> Result<Answer, SqlError> {
        let (found, now_ms) = (identified.found.as_ref(), self.instant.now_ms);
        let mut seen = found.and_then(|found| found.seen_again(identified.attempt, now_ms, self.config.retention_s));
        if problem.code == Code::OutcomeUnknown
            && let Some(found) = found.filter(|found| finds_out(&found.state, now_ms))
            && let State::Dispatched { finds, .. } = &mut seen.get_or_insert_with(|| found.clone()).state
        {
            *finds = Finds::Until(now_ms);
        }
        if let Some(found) = found.filter(|found| found.at_ms < sent_ms) {
            let seen = seen.get_or_insert_with(|| found.clone());
            seen.at_ms = sent_ms;
            if let State::Dispatched { finds: Finds::Asked(proves_ms), .. } = &mut seen.state {
                *proves_ms = proves_ms.saturating_add(sent_ms.saturating_sub(found.at_ms));
            }
        }
        let aside = Aside { seen: seen.map(|record| (identified.id, record)), ..Aside::default() };
        self.refuse(loaded, &problem, Some(identified.id), aside)
    }

    /// Whether the handler says that the request is executed elsewhere.
    pub(super) fn sends(&self) -> bool {
        self.handler.sends(&self.arrival.request.method, &self.arrival.request.path)
    }

    pub(super) fn is_late(&self, attempt: &Attempt) -> bool {
        holds(Rule::Deadline) && attempt.deadline_ms.is_some_and(|deadline_ms| deadline_ms < self.instant.now_ms)
    }

    /// The present policy of the request's route. If the route no longer executes elsewhere, nothing is sent again.
    pub(super) fn policy(&self, loaded: &Loaded) -> Result<Policy, SqlError> {
        let mut policy = Policy::Report;
        if !self.sends() {
            return Ok(policy);
        }
        let ended: Result<(), Undone> = atomically(self.sql, || {
            self.migrate(loaded.versions)?;
            if let Err(Failure::Remote(found)) = self.handler.serve(&mut self.context(), self.arrival.request) {
                policy = found;
            }
            // Undoes whatever the handler wrote.
            Err(Undone::Rejected(String::new()))
        });
        match ended {
            // If the handler's tables are not of its version, its policy is not known.
            Err(Undone::Storage(error) | Undone::Failed(Failure::Sql(error))) => Err(error),
            _ => Ok(policy),
        }
    }

    /// Answers an attempt while another request of the key is under way.
    fn wait(self, loaded: &mut Loaded) -> Result<Answer, SqlError> {
        let attempt = match Attempt::parse(&self.arrival.request.headers, self.instant.now_ms) {
            Ok(attempt) => attempt,
            Err(error) => return self.refuse_unread(loaded, &Problem::from(error)),
        };
        // A malformed attempt is refused now, as at any time.
        if self.arrival.body_too_large || attempt.session.is_some() && self.sends() {
            return self.run(loaded);
        }
        let Some(id) = &attempt.id else {
            return self.refuse(loaded, &self.nameless(), None, Aside::default());
        };
        let found = self.find(loaded, id, attempt.first_sent_s)?;
        let fingerprint = Fingerprint::of(self.arrival.request);
        let identified = Identified { id, attempt: &attempt, fingerprint, found };
        self.told(loaded, &identified, &attempt, |decision| match decision {
            Decision::Doubt => in_flight(),
            // It is refused when it gets its turn, whatever has happened by then.
            Decision::Execute if identified.found.is_none() && !self.is_granted(id) => not_granted(),
            // The key was deleted meanwhile, but the request is under way nevertheless.
            Decision::Execute if self.is_under_way(id) => in_flight(),
            _ => locked(),
        })
    }

    /// Answers with what is recorded of a request, and runs nothing: another request is under way, or an administrator
    /// has settled or deleted this one meanwhile. `judged`: the first-sent and the deadline to judge it by.
    pub(super) fn told(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        judged: &Attempt,
        open: impl Fn(&Decision) -> Problem,
    ) -> Result<Answer, SqlError> {
        let asked = Asked {
            principal: self.arrival.principal,
            fingerprint: Some(&identified.fingerprint),
            first_sent_s: judged.first_sent_s,
            deadline_ms: judged.deadline_ms,
        };
        let decision = decide(identified.found.as_ref(), &asked, self.instant);
        let seen = self.seen(identified.found.as_ref(), identified.attempt, &decision);
        let aside = Aside { seen: seen.map(|record| (identified.id, record)), ..Aside::default() };
        match (decision, &identified.found) {
            (Decision::Replay, Some(Record { at_ms, state: State::Executed(_, outcome), .. })) => {
                self.set_aside(loaded, Some(identified.id), aside)?;
                Ok(self.replayed(outcome, *at_ms))
            }
            (Decision::Refuse(problem), _) => {
                let fence = problem.code == Code::OutsideWindow;
                self.refuse(loaded, &problem, Some(identified.id), Aside { fence, ..aside })
            }
            (decision, _) => self.refuse(loaded, &open(&decision), Some(identified.id), aside),
        }
    }
}

fn undispatched() -> SqlError {
    SqlError("a decision to doubt what was not dispatched".to_owned())
}
