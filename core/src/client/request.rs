//! How an attempt looks on the wire.
//!
//! Invariant: all attempts of a request have the same id, first-sent and fingerprint. They differ only in deadline,
//! acknowledgements and the host's own headers.

use super::action::Transmission;
use super::row::{Draft, Entry};
use super::verdict::Sent;
use crate::header::quoted;
use crate::message::Headers;
use crate::rules::{Rule, holds};
use crate::text::{cut, decimal, joined, replaced};
use std::rc::Rc;

/// What an attempt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// Execute the request, or return its outcome.
    Execute,
    /// Return the outcome, if there is one. The deadline is in the past, so nothing is executed.
    Probe,
    /// Never execute the request, or return its outcome.
    Cancel,
}

/// The id of the cancellation of an id. A cancellation is a request of its own, so its id is the same on every attempt.
pub fn cancellation_of(id: &str) -> String {
    joined(&["cancel-", id])
}

/// The path of a control request to a key.
pub fn control_target(key: &str, what: &str) -> String {
    // The key must be a single segment of the path.
    joined(&["/semel/v1/keys/", &replaced(key, b'/', "%2F"), "/", what])
}

/// The path of a target, without the query.
pub(super) fn path_of(target: &str) -> &str {
    cut(target, b'?').map_or(target, |(path, _)| path)
}

/// Makes an attempt, still without acknowledgements. Without a key, a cancellation becomes an attempt of the request
/// itself.
pub fn transmission(attempt: u64, id: &str, entry: &Entry, aim: Aim, key: Option<&str>, sent: Sent) -> Transmission {
    let mut headers = Headers::new();
    let (own_id, request) = match (aim, key) {
        (Aim::Cancel, Some(key)) => (cancellation_of(id), cancellation(id, key, sent)),
        _ => {
            if let Some(key) = &entry.draft.key {
                headers.append("semel-key", quoted(key));
            }
            (id.to_owned(), entry.draft.clone())
        }
    };
    headers.append("idempotency-key", quoted(&own_id));
    headers.append("semel-first-sent", joined(&["@", &decimal(sent.first_sent_s)]));
    headers.append("semel-deadline", decimal(sent.deadline_ms));
    Transmission { attempt, request, headers }
}

/// Names the principal under whom the request was made, since somebody else may be logged in when it is sent.
pub fn tell_principal(made: &mut Transmission, principal: &str) {
    if holds(Rule::PrincipalTold) {
        made.headers.append("semel-principal", quoted(principal));
    }
}

fn cancellation(id: &str, key: &str, sent: Sent) -> Rc<Draft> {
    let body = joined(&["{\"id\":", &quoted(id), ",\"firstSent\":", &decimal(sent.first_sent_s), "}"]);
    control(key, "cancel", body)
}

/// A control request with a JSON body.
pub fn control(key: &str, what: &str, body: String) -> Rc<Draft> {
    let mut headers = Headers::new();
    headers.append("content-type", "application/json");
    let target = control_target(key, what);
    Rc::new(Draft { method: "POST".to_owned(), target, key: None, headers, body: body.into_bytes() })
}

/// The request for the worker's clock.
pub fn health() -> Rc<Draft> {
    Rc::new(Draft { method: "GET".to_owned(), target: "/semel/v1/health".to_owned(), ..Draft::default() })
}
