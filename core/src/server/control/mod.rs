//! Requests under `/semel/v1/keys/{key}/`: acknowledge, cancel, look up. The administrator's requests are in [`admin`],
//! with [`deletion`] and `resolve`; batches are in [`super::batch`].
//!
//! Invariants:
//! - A look-up runs nothing. It shows only to an id's principal that the id exists.
//! - A cancellation is judged as an attempt of the id would be. So the answer is never `cancelled` for a request that may still run.

pub mod admin;
pub mod deletion;
pub(super) mod resolve;

use crate::header::{Ack, Attempt, checked_first_sent, checked_instant};
use crate::id::{Invalid, Key, Principal, RequestId};
use crate::message::{Headers, Method, Response};
use crate::path::Path;
use crate::problem::{Code, Problem};
use crate::rules::{Rule, holds};
use crate::server::attempt::decision::{Asked, Decision, decide};
use crate::server::attempt::doubt;
use crate::server::attempt::turn::Work;
use crate::server::config::{CONTROL_IDS_MAX, OUTCOME_BODY_BYTES_MAX};
use crate::server::handler::Undone;
use crate::server::json::read::{Json, Members};
use crate::server::json::write::{Object, Value, Written};
use crate::server::storage::packed::Bundle;
use crate::server::storage::record::{LatestDeadline, Outcome, Record, State};
use crate::session::{Place, SessionName};
use admin::Admin;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The longest body of the answer to a cancellation, in bytes. If the cancellation came too late, the answer holds the
/// outcome, at worst in base64.
pub const CANCEL_BODY_BYTES_MAX: usize = OUTCOME_BODY_BYTES_MAX / 3 * 4 + (256 << 10);

/// A control request to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// `POST acks`
    Acknowledge,
    /// `POST cancel`
    Cancel,
    /// `GET outcomes/{id}`
    LookUp(RequestId),
    /// `POST batch`
    Batch,
    /// `GET socket`
    Socket,
    /// `POST sessions`
    TakeOver,
    /// A request of the administrator.
    Admin(Admin),
}

impl Control {
    /// Whether the request is recorded, and so needs an id.
    pub fn is_recorded(&self) -> bool {
        match self {
            Self::Cancel | Self::TakeOver => true,
            Self::Acknowledge | Self::LookUp(_) | Self::Batch | Self::Socket => false,
            Self::Admin(admin) => admin.changes(),
        }
    }
}

/// Reads method and path of a control request to a key; `None` if they are of no such request.
pub fn parse(method: &Method, path: &Path) -> Result<Option<(Key, Control)>, Problem> {
    if !path.is_control() {
        return Ok(None);
    }
    let segments = path.segments();
    if let ["semel", "v1", "admin", "keys", key, rest @ ..] = segments.as_slice() {
        let Some(admin) = admin::parse(method, rest, path)? else { return Ok(None) };
        return Ok(Some((Key::new(*key)?, Control::Admin(admin))));
    }
    let ["semel", "v1", "keys", key, rest @ ..] = segments.as_slice() else { return Ok(None) };
    let control = match (method, rest) {
        (Method::Post, ["acks"]) => Control::Acknowledge,
        (Method::Post, ["cancel"]) => Control::Cancel,
        (Method::Post, ["batch"]) => Control::Batch,
        (Method::Get, ["socket"]) => Control::Socket,
        (Method::Post, ["sessions"]) => Control::TakeOver,
        (Method::Get | Method::Head, ["outcomes", id]) => Control::LookUp(RequestId::new(*id)?),
        _ => return Ok(None),
    };
    Ok(Some((Key::new(*key)?, control)))
}

/// Whether a request may have a place in a session: only changes of the application may.
pub(super) fn may_be_numbered(method: &Method, path: &Path) -> bool {
    !path.is_control() && !method.reads()
}

/// The refusal of any other request that has one.
pub(super) fn unnumbered() -> Problem {
    Problem::new(Code::KeyInvalid, "Semel-Session: only a change of the application has a place in a session")
}

pub(super) fn body_invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::BodyInvalid, detail)
}

/// Reads the body of `POST acks`.
pub fn acks(body: &[u8]) -> Result<Vec<Ack>, Problem> {
    let ids = || {
        let mut members = Members::parse(body)?;
        let ids: Vec<Json> = members.required("ids")?;
        members.end()?;
        acked(ids)
    };
    ids().map_err(body_invalid)
}

/// Reads a list of acknowledgements.
pub(super) fn acked(ids: Vec<Json>) -> Result<Vec<Ack>, String> {
    if ids.len() > CONTROL_IDS_MAX {
        return Err(format!("more than {CONTROL_IDS_MAX} ids"));
    }
    ids.into_iter().map(ack).collect()
}

/// An id, or `{"id":...,"until":...}`.
fn ack(each: Json) -> Result<Ack, String> {
    let (id, until) = match each {
        Json::Text(id) => (id, None),
        Json::Object(mut members) => {
            let read = (members.required("id")?, members.optional("until")?);
            members.end()?;
            read
        }
        _ => return Err("an id must be a string or an object".to_owned()),
    };
    let ack = |id| Ok(Ack { id: RequestId::new(id)?, until_ms: until.map(checked_instant).transpose()? });
    ack(id).map_err(|Invalid(detail)| detail)
}

/// What a body asks to cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToCancel {
    /// A request with an id.
    Request(Cancellation),
    /// A request with a number in a session.
    Place(Place),
}

/// A request to cancel an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
    /// The id that must never run.
    pub id: RequestId,
    /// When the request of that id was first sent, in Unix seconds.
    pub first_sent_s: Option<i64>,
    /// Under which principal to cancel. `None`: the caller's. For an administrator, a record of the id keeps its
    /// principal, and this one is used if there is none.
    pub under: Option<Principal>,
}

struct CancelBody<'a> {
    id: Option<String>,
    session: Option<Members<'a>>,
    first_sent: Option<i64>,
    principal: Option<String>,
}

impl<'a> CancelBody<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, String> {
        let mut members = Members::parse(body)?;
        let body = Self {
            id: members.optional("id")?,
            session: members.optional("session")?,
            first_sent: members.optional("firstSent")?,
            principal: members.optional("principal")?,
        };
        members.end()?;
        Ok(body)
    }
}

fn place(mut members: Members) -> Result<Place, String> {
    let (name, epoch, seq) =
        (members.required::<String>("name")?, members.required("epoch")?, members.required("seq")?);
    members.end()?;
    SessionName::new(name).and_then(|session| Place::new(session, epoch, seq)).map_err(|Invalid(detail)| detail)
}

/// Reads the body of `POST cancel`. `own`: the id of the control request itself.
pub fn cancellation(body: &[u8], own: &RequestId, now_ms: i64, by_administrator: bool) -> Result<ToCancel, Problem> {
    let body = CancelBody::parse(body).map_err(body_invalid)?;
    let invalid = |Invalid(detail)| body_invalid(detail);
    let id = match body {
        CancelBody { id: None, session: Some(session), first_sent: None, principal: None } => {
            return Ok(ToCancel::Place(place(session).map_err(body_invalid)?));
        }
        CancelBody { session: Some(_), .. } => {
            return Err(body_invalid("session: a place has an owner and a number, and so no other member beside it"));
        }
        CancelBody { id: None, .. } => return Err(body_invalid("missing field `id` or `session`")),
        CancelBody { id: Some(ref id), .. } => RequestId::new(id.as_str()).map_err(invalid)?,
    };
    if id == *own {
        return Err(body_invalid("a cancellation needs an id of its own"));
    }
    let first_sent_s =
        body.first_sent.map(|first_sent_s| checked_first_sent(first_sent_s, now_ms)).transpose().map_err(invalid)?;
    let under = match (by_administrator, body.principal) {
        (true, None) => Some(Principal::administrator()),
        (true, Some(principal)) => Some(Principal::new(principal).map_err(invalid)?),
        (false, None) => None,
        (false, Some(_)) => return Err(body_invalid("principal: only an administrator cancels for others")),
    };
    Ok(ToCancel::Request(Cancellation { id, first_sent_s, under }))
}

/// Cancels an id, in the transaction of the control request. `is_under_way`: whether its request is under way to where it
/// is executed. `refusal`: why the caller can't cancel the id without having a record of it, if so.
pub(super) fn cancel(
    work: &mut Work<'_>,
    cancellation: &Cancellation,
    deadline_ms: Option<i64>,
    (is_under_way, refusal): (bool, Option<Problem>),
) -> Result<Response, Undone> {
    let found = work.find(&cancellation.id, cancellation.first_sent_s)?;
    // Such an id can be computed, so nobody is told that another principal has a record of it.
    let found = found.filter(|record| refusal.is_none() || record.answers(work.principal));
    let principal = match &cancellation.under {
        Some(under) => found.as_ref().map_or(under, |record| &record.principal).clone(),
        None => work.principal.clone(),
    };
    let first_sent_s = cancellation.first_sent_s;
    let asked = Asked { principal: &principal, fingerprint: None, first_sent_s, deadline_ms };
    let asked =
        if holds(Rule::CancellationJudged) { asked } else { Asked { first_sent_s: None, deadline_ms: None, ..asked } };
    let decision = decide(found.as_ref(), &asked, work.instant);
    // An administrator may not know when the client first sent the request, and must not take the fence from it.
    let known_s = found.as_ref().filter(|_| cancellation.under.is_some()).and_then(|record| record.first_sent_s);
    let first_sent_s = first_sent_s.or(known_s);
    match (decision, &found) {
        (Decision::Replay, Some(record @ Record { state: State::Executed(_, outcome), .. })) => {
            // Attempts of the request that the cancellation names may still arrive, and must find this record.
            let attempt = Attempt { first_sent_s, deadline_ms, ..Attempt::default() };
            if let Some(seen) = record.seen_again(&attempt, work.instant.now_ms, work.retention_s) {
                work.put(&cancellation.id, Some(record), &seen)?;
            }
            Ok(executed(outcome))
        }
        // A repeated cancellation is recorded again: the earlier record might leave before the request that this
        // cancellation names arrives.
        (Decision::Refuse(problem), _) if problem.code != Code::Cancelled => Err(Undone::Problem(problem)),
        (Decision::Doubt, Some(Record { state, .. })) => {
            Err(Undone::Problem(doubt::unsettled(state, is_under_way, work.instant.now_ms)))
        }
        // This comes before the check of what is under way, which may be another principal's request.
        (Decision::Execute, None) if let Some(refusal) = refusal => Err(Undone::Problem(refusal)),
        // The key was deleted meanwhile, but the request is under way nevertheless.
        (Decision::Execute, _) if is_under_way => Err(Undone::Problem(doubt::in_flight())),
        _ => {
            let record = Record {
                // An id that an administrator has cancelled for all stays cancelled for all.
                principal: found.as_ref().map_or(&principal, |record| &record.principal).clone(),
                first_sent_s,
                at_ms: work.instant.now_ms,
                deadline: LatestDeadline::of(deadline_ms),
                state: State::Cancelled { lapses_ms: None },
                carried: Bundle::default(),
            }
            .over(found.as_ref());
            if holds(Rule::CancellationRecorded) {
                work.put(&cancellation.id, found.as_ref(), &record)?;
            }
            Ok(cancelled())
        }
    }
}

pub(super) fn cancelled() -> Response {
    Response::json(200, Object::default().with("state", "cancelled").end())
}

pub(super) fn executed(outcome: &Outcome) -> Response {
    Response::json(200, Object::default().with("state", "executed").with("outcome", wire_outcome(outcome)).end())
}

/// An outcome as JSON.
pub(super) fn wire_outcome(outcome: &Outcome) -> Written {
    wire_answer(outcome.status, &wire_headers(&outcome.headers), &outcome.body)
}

/// An outcome as JSON, with its headers already written.
pub(super) fn wire_answer(status: u16, headers: &Written, body: &[u8]) -> Written {
    // The names of the members, a status, and some escapes in the body.
    let bytes = 64 + headers.bytes() + body.len() / 8 * 9;
    Object::with_room(bytes).with("status", status).with("headers", headers).with("body", wire_body(body)).end()
}

/// Headers as JSON, by name.
pub(super) fn wire_headers(headers: &Headers) -> Written {
    let mut object = Object::default();
    let mut last = "";
    // There are few headers, and sorting them takes more code.
    while let Some(name) = headers.iter().map(|(name, _)| name).filter(|name| *name > last).min() {
        // As in a browser's `Headers.get`, lines of one name are one value.
        object = object.with(name, headers.combined(name).as_deref());
        last = name;
    }
    object.end()
}

/// Reads a body from JSON: a string, or an object with base64.
pub(super) fn wire_body_bytes(body: Json) -> Result<Vec<u8>, String> {
    match body {
        Json::Text(text) => Ok(text.into_owned().into_bytes()),
        Json::Object(mut bytes) => {
            let base64: String = bytes.required("base64")?;
            bytes.end()?;
            Ok(BASE64.decode(base64).map_err(|_| "its body is not base64")?)
        }
        _ => Err("body must be a string, or an object with base64".to_owned()),
    }
}

/// A body as JSON: a text as it is, unless its escapes would make it longer than base64 of the bytes.
fn wire_body(body: &[u8]) -> Value<'_> {
    let base64_bytes = body.len() / 3 * 4 + 20;
    let text = std::str::from_utf8(body).ok().filter(|text| {
        let escaped: usize = text
            .bytes()
            .map(|byte| {
                if byte < 0x20 {
                    6
                } else if byte == b'"' || byte == b'\\' {
                    2
                } else {
                    1
                }
            })
            .sum();
        escaped <= base64_bytes
    });
    match text {
        Some(text) => text.into(),
        None => Object::default().with("base64", BASE64.encode(body).as_str()).end().into(),
    }
}
