//! What an administrator sees of effects, and can change.
//!
//! Invariants:
//! - A parked effect is either dropped, or sent again under a new number, behind all that waits for its target.
//! - Showing effects reads none of their bodies, since those of many effects do not fit into an isolate's memory.
//! - A change names an effect by its id. The first effect of a lane, or the one with some number, may be another by now.

use super::lane::Target;
use super::outbox::Outbox;
use super::store::{self, Parked, Told};
use super::{EFFECTS_PER_KEY_MAX, EFFECTS_PER_REQUEST_MAX};
use crate::message::Response;
use crate::problem::{Code, Executed, Problem};
use crate::server::json::write::{self, Object};
use crate::server::storage::sql::{Sql, SqlError};

/// The most lanes that are shown.
const LANES_MAX: usize = 50;
const GIVEN_UP: &str = "an administrator gave it up";

/// What an administrator wants with an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mending {
    /// Send a parked effect again, under a new number.
    Retry,
    /// Delete a parked effect.
    Drop,
    /// Give up the first effect of a lane: park it, after closing its place if the target is a key.
    Park,
}

/// Writes `{"count","max","maxPerRequest","lanes":[…],"parked":[…],"next"}`; without tables, only the first two.
pub fn tell(sql: &dyn Sql, outbox: &Outbox, after: i64, limit: i64) -> Result<Object, SqlError> {
    if !store::has_tables(sql)? {
        return Ok(Object::default().with("count", 0_i64).with("max", EFFECTS_PER_KEY_MAX));
    }
    let mut lanes = Vec::new();
    let mut lane = 0;
    while let Some((number, _)) = store::next_lane(sql, lane)?.filter(|_| lanes.len() < LANES_MAX) {
        lane = number;
        let Some((found, head)) = store::lane(sql, number)?.zip(store::head_told(sql, number)?) else { continue };
        let (seq, closing, of) = head;
        let (reason, attempts, again_ms) = outbox.told_of(number, seq);
        let told = Object::default()
            .with("to", found.target.text().as_str())
            .with("waiting", found.seq - seq + 1)
            .with("attempts", i64::from(attempts))
            .with("next", again_ms)
            .with("reason", Some(reason).filter(|reason| !reason.is_empty()))
            .with("closing", closing.as_deref());
        lanes.push(told_of(told, &of).end());
    }
    let mut parked = store::parked(sql, after, limit + 1)?;
    let is_more = parked.len() as i64 > limit;
    parked.truncate(usize::try_from(limit).unwrap_or_default());
    let next = parked.last().map(|parked| parked.number).filter(|_| is_more);
    let each = |Parked { number, target, told: of, parked_ms, executed, reason }: &Parked| {
        let told = Object::default()
            .with("number", *number)
            .with("to", target.as_str())
            .with("parked", *parked_ms)
            .with("executed", executed.as_str())
            .with("reason", reason.as_str());
        told_of(told, of).end()
    };
    Ok(Object::default()
        .with("count", store::count(sql, EFFECTS_PER_KEY_MAX)?)
        .with("max", EFFECTS_PER_KEY_MAX)
        .with("maxPerRequest", EFFECTS_PER_REQUEST_MAX as i64)
        .with("lanes", write::array(lanes))
        .with("parked", write::array(parked.iter().map(each)))
        .with("next", next))
}

fn told_of(told: Object, Told { at_ms, id, method, url, bytes }: &Told) -> Object {
    told.with("at", *at_ms)
        .with("id", id.as_str())
        .with("method", method.as_str())
        .with("url", url.as_str())
        .with("bytes", *bytes)
}

/// Changes an effect, in the transaction of the request that asks for it. The inner error is a problem for the caller.
pub fn mend(
    sql: &dyn Sql,
    outbox: &Outbox,
    now_ms: i64,
    (id, mending): (&str, Mending),
) -> Result<Result<Response, Problem>, SqlError> {
    let none = |detail: &str| Ok(Err(Problem::new(Code::NotSeen, detail)));
    let (not_parked, not_first) = ("none of that id is parked at this key", "none of that id is the first of its lane");
    if !store::has_tables(sql)? {
        return none("nothing was ever sent from this key");
    }
    if mending == Mending::Park {
        let Some(lane) = store::lane_with(sql, id)? else { return none(not_first) };
        let Some((lane, head)) = store::lane(sql, lane)?.zip(store::head(sql, lane)?) else { return none(not_first) };
        if head.stored.id != id {
            return none(not_first);
        }
        if let Target::Origin(_) = lane.target {
            // A call to an outside address that is under way can't be taken back.
            store::park(sql, &lane.target, &head.stored, now_ms, Executed::Unknown, GIVEN_UP)?;
            store::delete(sql, lane.number, head.seq)?;
            return done("parked");
        }
        store::close(sql, lane.number, head.seq, GIVEN_UP)?;
        outbox.may_wait();
        return done("closing");
    }
    let Some((number, target, stored)) = store::parked_with(sql, id)? else { return none(not_parked) };
    store::delete_parked(sql, number)?;
    if mending == Mending::Drop {
        return done("dropped");
    }
    let target = Target::of_text(&target).ok_or_else(|| SqlError("a target can't be read".to_owned()))?;
    let lane = store::lane_of(sql, &target, |number| outbox.is_open(number))?;
    store::put(sql, lane.number, lane.seq + 1, &stored)?;
    outbox.may_wait();
    done("waiting")
}

fn done(state: &str) -> Result<Result<Response, Problem>, SqlError> {
    Ok(Ok(Response::json(200, Object::default().with("state", state).end())))
}
