//! Takes the results of calls to where requests are executed: records outcomes, and answers.
//!
//! Invariants:
//! - An outcome is recorded only over the very start whose call it came from.
//! - A result that does not prove that there is no effect leaves the request in doubt.
//! - Reasons go only to the log, because they may hold what no client should see.

use super::remote::{Call, Ended};
use crate::fingerprint::Fingerprint;
use crate::header::Attempt;
use crate::message::{Method, Response};
use crate::problem::{Code, Problem};
use crate::rules::{Rule, holds};
use crate::server::answer::{Answer, checked_outcome, checked_response};
use crate::server::attempt::aside::Aside;
use crate::server::attempt::decision::Decision;
use crate::server::attempt::doubt::{in_flight, outcome_unknown};
use crate::server::attempt::turn::{Identified, Loaded, Turn};
use crate::server::config::OUTCOME_BODY_BYTES_MAX;
use crate::server::handler::Policy;
use crate::server::storage::record::{Finds, Outcome, Record, State};
use crate::server::storage::retention::after_s;
use crate::server::storage::rows;
use crate::server::storage::schema;
use crate::server::storage::sql::{SqlError, atomically};
use std::sync::Arc;

impl Turn<'_> {
    /// Takes the result of a call.
    pub(super) fn settle(self, loaded: &mut Loaded, call: &Call, ended: Ended) -> Result<Answer, SqlError> {
        let attempt = match Attempt::parse(&self.arrival.request.headers, self.instant.now_ms) {
            Ok(attempt) => attempt,
            Err(error) => return self.refuse(loaded, &Problem::from(error), None, Aside::default()),
        };
        let (Call::Dispatch { times: called_times } | Call::Probe { times: called_times, .. }) = *call;
        let Some(id) = &attempt.id else {
            return self.refuse(loaded, &Problem::key_missing(), None, Aside::default());
        };
        let fingerprint = Fingerprint::of(self.arrival.request);
        let found = self.find(loaded, id, attempt.first_sent_s)?;
        let is_this = found.as_ref().is_some_and(|found| {
            let is_own = found.principal == *self.arrival.principal;
            is_own && matches!(&found.state, State::Dispatched { fingerprint: of, times, .. } if *of == fingerprint && *times == called_times)
        });
        let identified = Identified { id, attempt: &attempt, fingerprint, found };
        if !is_this && holds(Rule::OwnDispatch) {
            // The attempt was admitted by fence and deadline, even if these have moved since.
            return self.told(loaded, &identified, &Attempt::default(), |decision| match decision {
                // There is a later start, whose result another attempt will get.
                Decision::Doubt => in_flight(),
                _ => outcome_unknown(),
            });
        }
        match (call, ended) {
            (Call::Probe { .. }, Ended::Answered(response)) if response.status != 200 => {
                self.settle_probe(loaded, &identified, call, response.status)
            }
            (Call::Probe { .. }, Ended::Unknown(reason) | Ended::Unreachable(reason)) => {
                let answer = self.still_in_doubt(loaded, &identified, in_flight())?;
                Ok(answer.with_log(format!("a probe failed: {reason}")))
            }
            (Call::Dispatch { .. }, Ended::Answered(response))
                if called_times > 1 && may_be_from_before_it(&response) && !self.is_probed_for(loaded)? =>
            {
                self.settle_unknown(loaded, &identified, &format!("sent again, it was answered {}", response.status))
            }
            (_, Ended::Answered(response)) => match checked_outcome(response, OUTCOME_BODY_BYTES_MAX) {
                Ok(outcome) => self.record_outcome(loaded, &identified, outcome),
                Err(reason) => self.settle_unknown(loaded, &identified, &reason),
            },
            (_, Ended::Unreachable(reason)) if called_times == 1 => {
                self.settle_unreachable(loaded, &identified, &reason)
            }
            (_, Ended::Unreachable(reason)) => self.settle_unsent(loaded, &identified, &reason),
            (_, Ended::Unknown(reason)) => self.settle_unknown(loaded, &identified, &reason),
        }
    }

    /// Whether it was sent again only because a probe proved that nothing was there.
    fn is_probed_for(&self, loaded: &Loaded) -> Result<bool, SqlError> {
        Ok(matches!(self.policy(loaded)?, Policy::Probe { .. }))
    }

    /// Takes a probe's answer other than 200: the other side has nothing, or does not say.
    fn settle_probe(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        call: &Call,
        status: u16,
    ) -> Result<Answer, SqlError> {
        if status == 404 && matches!(call, Call::Probe { is_proof: true, .. }) && !self.is_late(identified.attempt) {
            let policy = self.policy(loaded)?;
            return self.dispatch(loaded, identified, &policy);
        }
        let answer = self.still_in_doubt(loaded, identified, in_flight())?;
        Ok(if status == 404 { answer } else { answer.with_log(format!("a probe was answered {status}")) })
    }

    fn record_outcome(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        outcome: Outcome,
    ) -> Result<Answer, SqlError> {
        let (mut work, outcome) = (self.work(loaded), Arc::new(outcome));
        atomically(self.sql, || {
            self.create(&mut work)?;
            let carried = self.acknowledge_carried(&mut work, identified.id)?;
            let record = self.record(identified, State::Executed(identified.fingerprint, outcome.clone()), carried);
            work.put(identified.id, identified.found.as_ref(), &record)?;
            self.write_rest(&mut work, &Aside::default())
        })?;
        *loaded = work.after;
        Ok(Answer::executed(&outcome, self.expires_s(self.instant.now_ms)))
    }

    /// The request may have had its effect, or may still have it.
    fn settle_unknown(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        reason: &str,
    ) -> Result<Answer, SqlError> {
        let policy = self.policy(loaded)?;
        let problem = match policy {
            Policy::Report => outcome_unknown(),
            Policy::Resend { .. } | Policy::Probe { .. } => no_outcome(),
        };
        // If the process stood still, the call may have lasted until now. So the time that the request may need after its
        // call begins only now.
        let sent_ms = match policy {
            Policy::Probe { timeout_s, .. } => after_s(self.instant.now_ms, -timeout_s),
            Policy::Report | Policy::Resend { .. } => i64::MIN,
        };
        let answer = self.still_in_doubt_since(loaded, identified, problem, sent_ms)?;
        Ok(answer.with_log(format!("in doubt: {reason}")))
    }

    /// It was to be sent again, and nothing was sent. If that was because a probe had proven that there is nothing, the
    /// proof still holds. So the request counts as one that was sent just long enough ago for a proof.
    fn settle_unsent(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        reason: &str,
    ) -> Result<Answer, SqlError> {
        let (mut seen, now_ms) = (identified.found.clone(), self.instant.now_ms);
        let (
            Policy::Probe { settle_s, .. },
            Some(Record { at_ms, state: State::Dispatched { finds: Finds::Asked(proves_ms), .. }, .. }),
        ) = (self.policy(loaded)?, &mut seen)
        else {
            return self.settle_unknown(loaded, identified, reason);
        };
        *at_ms = after_s(now_ms, -settle_s).min(*at_ms);
        *proves_ms = now_ms;
        // The record's former instant was what kept the clock durable: the fence does so now.
        let aside = Aside { seen: seen.map(|record| (identified.id, record)), fence: true, ..Aside::default() };
        let answer = self.refuse(loaded, &no_outcome(), Some(identified.id), aside)?;
        Ok(answer.with_log(format!("in doubt: {reason}")))
    }

    /// Nothing was sent, so the attempt counts as if it had never come.
    fn settle_unreachable(
        &self,
        loaded: &mut Loaded,
        identified: &Identified<'_>,
        reason: &str,
    ) -> Result<Answer, SqlError> {
        let mut work = self.work(loaded);
        atomically(self.sql, || {
            if let Some(found) = &identified.found {
                rows::delete(self.sql, identified.id)?;
                work.after.count.left(found);
                // The deleted row was what kept the clock durable.
                schema::put_fence(self.sql, self.instant.fence_s, self.instant.now_ms)?;
            }
            self.write_aside(&mut work, Some(identified.id), &Aside::default())
        })?;
        *loaded = work.after;
        Ok(unreached(reason))
    }
}

fn no_outcome() -> Problem {
    let detail = "the upstream gave no outcome; send the same request again: it finds out, or executes it";
    Problem::new(Code::Unavailable, detail)
}

/// Whether an answer to a request that was sent again says nothing about the first time. A login or a limit in front of
/// the other side's memory of ids may have answered, or a proxy that does not find what is behind it. Or the first one is
/// still being executed. Or the answer is about what the first one has left: what is deleted is not found, and has no
/// version to match.
fn may_be_from_before_it(Response { status, headers, .. }: &Response) -> bool {
    // Some servers answer so, with a sign that this will pass, while the first one is still being executed.
    let passes = || headers.get("retry-after").is_some() || headers.get("transient-error") == Some("true");
    matches!(status, 401 | 403 | 404 | 405 | 407 | 408 | 409 | 410 | 412 | 421 | 423 | 424 | 425 | 429)
        || *status == 422 && passes()
}

/// The answer to a read of what is executed elsewhere. A read has no turn and no record, so no engine is asked. The
/// answer to a `HEAD` keeps the length of the body that it does not have.
pub fn read(ended: Ended, method: &Method) -> Answer {
    match ended {
        Ended::Answered(response) => {
            let length = response.headers.get("content-length").filter(|length| is_length(length)).map(str::to_owned);
            match checked_response(response) {
                Ok(mut response) if response.status < 500 => {
                    if let Some(length) = length.filter(|_| *method == Method::Head) {
                        response.headers.add("content-length", length);
                    }
                    Answer::read(response)
                }
                Ok(response) => unavailable(&format!("the other side answered {}", response.status)),
                Err(reason) => unavailable(&reason),
            }
        }
        Ended::Unknown(reason) => unavailable(&reason),
        Ended::Unreachable(reason) => unreached(&reason),
    }
}

fn is_length(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The reasons go only to the log, because they may hold what no client should see.
fn unavailable(reason: &str) -> Answer {
    Answer::unavailable("the upstream gave no answer that can be passed on").with_log(format!("no answer: {reason}"))
}

fn unreached(reason: &str) -> Answer {
    let problem = Problem::new(Code::UpstreamUnreachable, "the upstream could not be reached; nothing was sent");
    Answer::problem(&problem).with_log(format!("unreachable: {reason}"))
}
