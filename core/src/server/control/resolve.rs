//! An administrator's decision about a request in doubt. It is part of the transaction of the request that makes it.
//!
//! Invariants:
//! - Only a request in doubt is settled, and only once: whatever has an answer keeps it.
//! - A request that is settled as not executed never runs. So no request is settled that is known to be under way to
//!   where it is executed; [`crate::server::engine::execution`] refuses that.

use super::admin::{executed_of, state_of};
use super::{body_invalid, wire_body_bytes};
use crate::id::RequestId;
use crate::message::{Headers, Response};
use crate::problem::{Code, Problem};
use crate::server::answer::checked_outcome;
use crate::server::attempt::turn::Work;
use crate::server::config::OUTCOME_BODY_BYTES_MAX;
use crate::server::handler::Undone;
use crate::server::json::read::{Json, Members};
use crate::server::json::write::Object;
use crate::server::storage::record::{Outcome, Record, State};
use crate::server::storage::rows;
use std::sync::Arc;

/// What became of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) enum Resolution {
    /// It ran, and this is its outcome.
    Executed(Outcome),
    /// It did not run.
    NotExecuted,
}

/// Reads `{"executed":"yes","outcome":{"status","headers"?,"body"?}}` or `{"executed":"no"}`.
pub(in crate::server) fn parse(body: &[u8]) -> Result<Resolution, Problem> {
    let read = || {
        let mut members = Members::parse(body)?;
        let executed: String = members.required("executed")?;
        let outcome: Option<Members> = members.optional("outcome")?;
        members.end()?;
        match (executed.as_str(), outcome) {
            ("no", None) => Ok(Resolution::NotExecuted),
            ("yes", Some(outcome)) => read_outcome(outcome).map(Resolution::Executed),
            ("no", Some(_)) => Err("outcome: what did not run has none".to_owned()),
            ("yes", None) => Err("missing field `outcome`".to_owned()),
            _ => Err("executed must be \"yes\" or \"no\"".to_owned()),
        }
    };
    read().map_err(body_invalid)
}

fn read_outcome(mut members: Members) -> Result<Outcome, String> {
    let status: i64 = members.required("status")?;
    let status = u16::try_from(status).map_err(|_| "status must be one of HTTP")?;
    let mut headers = Headers::new();
    for (name, value) in members.optional("headers")?.into_iter().flat_map(Members::all) {
        let value = String::try_from(value).map_err(|expected| format!("a header must be {expected}"))?;
        headers.append(&name.to_ascii_lowercase(), value);
    }
    let body = members.any("body")?.map(|body: Json| wire_body_bytes(body)).transpose()?.unwrap_or_default();
    members.end()?;
    checked_outcome(Response { status, headers, body }, OUTCOME_BODY_BYTES_MAX)
}

/// Settles a request in doubt.
pub(in crate::server) fn resolve(
    work: &mut Work<'_>,
    id: &RequestId,
    resolution: &Resolution,
) -> Result<Response, Undone> {
    let found = rows::find(work.sql, id)?;
    let Some(found) = found else {
        return Err(Undone::Problem(Problem::new(Code::NotSeen, "this key has no record of this id")));
    };
    let State::Dispatched { fingerprint, .. } = found.state else {
        return Err(Undone::Problem(Problem::new(Code::BodyInvalid, "this id is not in doubt, and keeps what it has")));
    };
    let state = match resolution {
        Resolution::Executed(outcome) => State::Executed(fingerprint, Arc::new(outcome.clone())),
        Resolution::NotExecuted => State::Cancelled { lapses_ms: None },
    };
    let settled = Record { at_ms: work.instant.now_ms, state, ..found.clone() };
    work.put(id, Some(&found), &settled)?;
    let body = Object::default().with("state", state_of(&settled)).with("executed", executed_of(&settled).as_str());
    Ok(Response::json(200, body.end()))
}
