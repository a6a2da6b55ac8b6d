//! `POST keys/{key}/cancel` of a place: closes a number that will not be sent again.
//!
//! Invariant: it is judged as an attempt of the place would be. So nothing is closed that ran, or that belongs to another epoch.

use super::decision::{Asked, decide, open};
use crate::message::Response;
use crate::problem::Code;
use crate::server::attempt::decision::Decision;
use crate::server::attempt::turn::Work;
use crate::server::control::{cancelled, executed};
use crate::server::handler::Undone;
use crate::server::storage::sessions::rows;
use crate::server::storage::sessions::state::{Taken, TakenState};
use crate::session::Place;

/// Closes a place, in the transaction of the control request.
pub(in crate::server) fn close(
    work: &mut Work<'_>,
    place: &Place,
    by_administrator: bool,
    deadline_ms: Option<i64>,
) -> Result<Response, Undone> {
    let found = work.find_session(&place.session)?;
    let principal = Some(work.principal).filter(|_| !by_administrator);
    let session = open(found, principal).map_err(Undone::Problem)?;
    let taken = rows::find_taken(work.sql, &session, place.seq)?;
    let asked = Asked { epoch: place.epoch, seq: place.seq, fingerprint: None, deadline_ms };
    let freed_seq = session.freed_seq();
    match (decide(&session, taken.as_ref(), &asked, freed_seq, work.instant.now_ms), taken) {
        (Decision::Execute, _) => {
            work.take(&session, place, TakenState::Cancelled, freed_seq)?;
            Ok(cancelled())
        }
        (Decision::Replay, Some(Taken { state: TakenState::Executed(_, outcome), .. })) => Ok(executed(&outcome)),
        (Decision::Refuse(problem), _) if problem.code == Code::Cancelled => Ok(cancelled()),
        (Decision::Refuse(problem), _) => Err(Undone::Problem(problem)),
        (Decision::Replay | Decision::Doubt, _) => Err(Undone::Storage(rows::unreadable())),
    }
}
