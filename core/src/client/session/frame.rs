//! How frames look on the wire.
//!
//! Invariant: a request has the same place and fingerprint in each of its attempts. Only `ack` differs.
//!
//! A frame of one request is that request itself, except on a socket. A frame of several is a batch. The host writes
//! the JSON of a batch and takes the answers out of JSON, because JavaScript can do both without further code.

use super::super::action::{Answer, Transmission};
use super::super::bytes::{Reader, Writer};
use super::super::request::{control, tell_principal};
use super::super::row::Draft;
use super::row::{Entry, Place};
use super::{BEYOND, Settings};
use crate::header::quoted;
use crate::message::Headers;
use crate::text::{decimal, joined};
use std::rc::Rc;

/// What is sent for one place.
#[derive(Debug)]
pub(super) struct Element {
    request: Rc<Draft>,
    headers: Headers,
    /// The members of the batch element that identify it, as JSON.
    named: String,
}

impl Element {
    /// Makes the request, or, if it `is_cancelled`, the cancellation that closes its place.
    pub(super) fn new(
        settings: &Settings,
        id: &str,
        entry: &Entry,
        place: Place,
        ack: Option<i64>,
        is_cancelled: bool,
    ) -> Self {
        let (name, epoch, seq) = (quoted(&settings.name), decimal(place.epoch), decimal(place.seq));
        let mut headers = Headers::new();
        if is_cancelled {
            // The cancellation has an id of its own, the same on every attempt. Each place has another: where nobody can
            // tell who lives, several holders may each close a place that they gave to the same request.
            let id = quoted(&joined(&["cancel-", id, ";epoch=", &epoch, ";seq=", &seq]));
            let body = joined(&["{\"session\":{\"name\":", &name, ",\"epoch\":", &epoch, ",\"seq\":", &seq, "}}"]);
            let named = joined(&["\"id\":", &id]);
            headers.append("idempotency-key", id);
            return Self { request: control(&settings.key, "cancel", body), headers, named };
        }
        let ack = ack.map(decimal);
        let (header_ack, json_ack) = match &ack {
            Some(ack) => (joined(&[";ack=", ack]), joined(&[",\"ack\":", ack])),
            None => Default::default(),
        };
        headers.append("semel-session", joined(&[&name, ";epoch=", &epoch, ";seq=", &seq, &header_ack]));
        let json = ["\"session\":{\"name\":", &name, ",\"epoch\":", &epoch, ",\"seq\":", &seq, &json_ack, "}"];
        Self { request: entry.draft.clone(), headers, named: joined(&json) }
    }

    /// An acknowledgement alone, to go in front of the cancellation of the `next` place. A cancellation can carry none,
    /// since its body must be the same in each attempt. So this is an attempt of a place so far beyond that it is
    /// refused for sure; a refused attempt acknowledges too.
    pub(super) fn acknowledging(settings: &Settings, id: &str, entry: &Entry, next: Place, ack: i64) -> Self {
        // Without the headers and the body: a request that no batch takes may have headers that no batch takes.
        let draft = Draft { body: Vec::new(), headers: Headers::new(), ..(*entry.draft).clone() };
        let entry = Entry { draft: Rc::new(draft), ..Entry::default() };
        Self::new(settings, id, &entry, Place { seq: next.seq + BEYOND, ..next }, Some(ack), false)
    }

    /// The most bytes that it can take in a batch. A body goes as base64 if that is shorter.
    pub(super) fn bytes(&self) -> usize {
        let Draft { target, headers, body, .. } = &*self.request;
        body.len().div_ceil(3) * 4 + 2 * (target.len() + headers.to_lines().len()) + self.named.len() + 256
    }
}

/// Whether a batch takes this request. Headers of the platform (`cf-`) belong to the request that carries the batch,
/// and no element may have them.
pub(super) fn takes(request: &Draft) -> bool {
    !request.headers.iter().any(|(name, _)| name.starts_with("cf-"))
}

/// Asks for the next epoch.
pub(super) fn take_over(attempt: u64, settings: &Settings) -> Transmission {
    let after = settings.after.map(decimal);
    let (before, after) = after.as_deref().map_or(("", ""), |after| (",\"after\":", after));
    let body = joined(&["{\"name\":", &quoted(&settings.name), before, after, "}"]);
    let mut headers = Headers::new();
    headers.append("idempotency-key", quoted(&settings.take_over_id));
    made(attempt, settings, control(&settings.key, "sessions", body), headers)
}

/// Sends elements, in order. The body of a batch is the number of elements, then for each its identifying members,
/// method, target, header lines and body.
pub(super) fn frame(attempt: u64, settings: &Settings, elements: Vec<Element>, is_batch: bool) -> Transmission {
    if is_batch {
        let mut body = Writer::default();
        body.integer(elements.len() as i64);
        for Element { request, named, .. } in &elements {
            body.text(named);
            body.text(&request.method);
            body.text(&request.target);
            body.text(&request.headers.to_lines());
            body.bytes(&request.body);
        }
        let batch = Draft { body: body.done(), ..(*control(&settings.key, "batch", String::new())).clone() };
        return made(attempt, settings, Rc::new(batch), Headers::new());
    }
    let mut headers = Headers::new();
    let mut request = Rc::default();
    for element in elements {
        (request, headers) = (element.request, element.headers);
        if request.key.is_some() {
            headers.append("semel-key", quoted(&settings.key));
        }
    }
    made(attempt, settings, request, headers)
}

fn made(attempt: u64, settings: &Settings, request: Rc<Draft>, headers: Headers) -> Transmission {
    let mut made = Transmission { attempt, request, headers };
    tell_principal(&mut made, &settings.principal);
    made
}

/// The answers to `count` elements, as the host wrote them: for each a status, header lines, a body and member lines.
/// `None` if the body is anything else.
pub(super) fn answers(body: &[u8], count: usize) -> Option<Vec<Answer>> {
    let mut input = Reader::new(body);
    let mut answers = Vec::new();
    for _ in 0..count {
        answers.push(Answer {
            status: input.status(),
            headers: Headers::from_lines(&input.text()),
            body: input.bytes().to_vec(),
            members: Headers::from_lines(&input.text()),
        });
    }
    input.end().map(|()| answers)
}
