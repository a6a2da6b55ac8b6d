//! `POST keys/{key}/sessions`: gives a session a new holder. It is recorded like any change, so a repetition gets the
//! same epoch again, and no new one.
//!
//! Invariants:
//! - A new epoch is higher than any epoch that the key ever gave to any session.
//! - A caller that names the epoch that it expects does not take over from a newer one. So a take-over that was under way
//!   for long fences nobody. It also begins no session that it expects to exist: the caller is told that the session is
//!   forgotten.

use super::decision::{fenced, open};
use crate::id::Invalid;
use crate::message::Response;
use crate::problem::{Code, Position, Problem};
use crate::rules::{Rule, holds};
use crate::server::attempt::suspicion::Started;
use crate::server::attempt::turn::Work;
use crate::server::control::body_invalid;
use crate::server::handler::Undone;
use crate::server::json::read::Members;
use crate::server::json::write::Object;
use crate::server::storage::schema;
use crate::server::storage::sessions::rows;
use crate::server::storage::sessions::state::Epochs;
use crate::session::{NUMBER_MAX, SessionName};

/// The body of a take-over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOver {
    /// The session.
    pub name: SessionName,
    /// The epoch that the caller expects to be the current one; 0: the session does not exist yet. `None`: any.
    pub after: Option<i64>,
}

/// Reads the body.
pub fn parse(body: &[u8]) -> Result<TakeOver, Problem> {
    let (name, after) = members(body).map_err(body_invalid)?;
    let name = SessionName::new(name).map_err(|Invalid(detail)| body_invalid(detail))?;
    if after.is_some_and(|after| !(0..=NUMBER_MAX).contains(&after)) {
        return Err(body_invalid(format!("after: not an integer from 0 to {NUMBER_MAX}")));
    }
    Ok(TakeOver { name, after })
}

fn members(body: &[u8]) -> Result<(String, Option<i64>), String> {
    let mut members = Members::parse(body)?;
    let taken = (members.required("name")?, members.optional("after")?);
    members.end()?;
    Ok(taken)
}

/// Takes over a session, in the transaction of the control request.
pub(in crate::server) fn take_over(
    work: &mut Work<'_>,
    TakeOver { name, after }: &TakeOver,
) -> Result<Response, Undone> {
    let (sql, now_ms) = (work.sql, work.instant.now_ms);
    if name.is_reserved() && !work.principal.is_reserved() {
        return Err(Undone::Problem(Problem::new(Code::Forbidden, "names that begin with semel: are reserved")));
    }
    let mut found = rows::find(sql, name)?;
    // A forgotten session does not exist any more, even if the sweep has not reached it yet.
    if let Some(forgotten) = found.take_if(|session| work.instant.forgets(session.used_ms())) {
        rows::delete(sql, forgotten.number)?;
        work.after.sessions.count -= 1;
    }
    let found = found.map(|session| open(Some(session), Some(work.principal))).transpose().map_err(Undone::Problem)?;
    let current = found.as_ref().map_or(0, |session| session.epochs.current());
    match after {
        Some(after) if *after < current && holds(Rule::TakeOverExpected) => {
            return Err(Undone::Problem(fenced(current)));
        }
        Some(after) if *after > current => {
            let ahead = body_invalid(format!("after: the session is at epoch {current}"));
            return Err(Undone::Problem(ahead.with_position(Position::CurrentEpoch(current))));
        }
        _ => {}
    }
    let highest = if holds(Rule::EpochForward) { work.after.sessions.epoch } else { current };
    let epoch = highest + 1;
    if epoch > NUMBER_MAX {
        return Err(Undone::Problem(body_invalid("the key has used up all epochs")));
    }
    let last_seq = match found {
        Some(session) => {
            let last_seq = session.last_seq();
            let next = Started::Place { session: session.number, epoch: current, seq: last_seq + 1 };
            let count = session.count.handed_on(work.after.started.has(&next));
            rows::put_epochs(sql, session.number, &session.epochs.then(epoch, last_seq), count, now_ms)?;
            last_seq
        }
        None if work.after.sessions.is_full() && holds(Rule::SessionsBounded) => {
            let detail = format!("the key has {} sessions, as many as it may", work.after.sessions.max.0);
            return Err(Undone::Problem(Problem::new(Code::Capacity, detail)));
        }
        None => {
            rows::insert(sql, name, work.principal, &Epochs::first(epoch), now_ms)?;
            work.after.sessions.count += 1;
            0
        }
    };
    schema::put_epoch(sql, epoch)?;
    work.after.sessions.epoch = epoch;
    let body = Object::default().with("name", name.as_str()).with("epoch", epoch).with("lastSeq", last_seq);
    Ok(Response::json(200, body.end()))
}
