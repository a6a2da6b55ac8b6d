//! Batches and the frames of a socket: parses them, and writes their answers. They run in [`together`], in one commit.
//!
//! Invariants:
//! - A batch is parsed as a whole before anything of it runs. If it is malformed, nothing of it runs.
//! - An element is a request like any other. Its headers can't contain what only the platform, the router or the layer may say.
//! - Frames of a socket are read only until the token ends with which the socket began: nothing later checks the token again.
//! - The answers have at most [`ANSWERS_BYTES_MAX`] bytes in total. An answer for which there is no room is replaced by
//!   `unavailable`; its outcome is kept.

pub mod together;

use super::answer::{Answer, is_token, is_value};
use super::config::{ANSWERS_BYTES_MAX, ELEMENTS_MAX, REQUEST_BODY_BYTES_MAX};
use super::control::{self, body_invalid, wire_answer, wire_headers};
use super::json::read::{Json, Members};
use super::json::write::Written;
use crate::header::{self, AHEAD_MS_MAX, Ack, Attempt, date, quoted};
use crate::id::Key;
use crate::message::{Headers, Method, Request};
use crate::path::Path;
use crate::problem::{Code, Problem};
use crate::rules::{Rule, holds};
use crate::server::attempt::decision::check_deadline;
use crate::server::edge::auth::{Asker, TOKEN_BYTES_MAX};
use crate::server::head::HEADERS_MAX;
use std::borrow::Cow;

/// Reserved for each element, in bytes, in case it has to be told that its answer has no room.
const UNAVAILABLE_BYTES: usize = 640;
/// The longest first frame of a socket, in bytes: it has a token and a name. Parsing a megabyte costs ten times as much,
/// and it is not known yet whether the sender may ask for anything.
const FIRST_FRAME_BYTES_MAX: usize = 2 * TOKEN_BYTES_MAX;
/// The highest number of a frame: JavaScript's largest safe integer.
const NUMBER_MAX: i64 = (1 << 53) - 1;

/// A request of a batch.
#[derive(Debug, Clone)]
pub struct Element {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub url: (String, String),
    /// Its headers, including those that its other members stand for.
    pub headers: Headers,
    /// Its body.
    pub body: Vec<u8>,
}

impl Element {
    /// Reads a request of a batch that is to run by itself. `deadline_ms`: the batch's deadline, in Unix ms, after which
    /// the request must not begin either.
    pub fn read(text: &str, deadline_ms: Option<i64>, now_ms: i64) -> Result<Self, Problem> {
        let within = |own_ms: Option<i64>| match own_ms {
            // An own deadline that is too far ahead is kept, so that the request is refused for it.
            Some(own_ms) if own_ms > now_ms.saturating_add(AHEAD_MS_MAX) => Some(own_ms),
            _ => own_ms.into_iter().chain(deadline_ms).min(),
        };
        element(json(Some(text.as_bytes()))?, &within).map_err(body_invalid)
    }
}

/// Requests to be committed together.
#[derive(Debug, Clone)]
pub struct Batch {
    /// What the batch acknowledges; `None` if it says nothing about it.
    pub acknowledgement: Option<Acknowledgement>,
    /// The requests, in order.
    pub elements: Vec<Element>,
    /// The number of the frame; `None` for a batch.
    pub frame: Option<i64>,
    /// The headers of the batch's own request; a frame has none.
    headers: Headers,
}

/// What comes along with a batch to be acknowledged, with the request that stands for it.
#[derive(Debug, Clone)]
pub struct Acknowledgement {
    /// The request as the router judges it.
    pub request: Request,
    /// Used instead of the request's body.
    pub acks: Vec<Ack>,
}

impl Batch {
    /// Checks by the batch's own headers whether it may begin.
    pub fn check(&self, now_ms: i64) -> Result<(), Problem> {
        let attempt = Attempt::parse(&self.headers, now_ms)?;
        if attempt.session.is_some() {
            let detail = "Semel-Session: a request of a batch has a place in a session, a batch has none";
            return Err(Problem::new(Code::KeyInvalid, detail));
        }
        check_deadline(attempt.deadline_ms, now_ms)
    }

    /// Reads the body of `POST batch`; `None` if it was too large. `headers`: those of the request, which may acknowledge.
    pub fn parse(key: &Key, headers: &Headers, body: Option<&[u8]>) -> Result<Self, Problem> {
        let Json::Array(requests) = json(body)? else { return Err(body_invalid("not an array of requests")) };
        // Parsed here, because otherwise the whole batch would run before it is refused.
        let acks = header::acks(headers)?;
        let acknowledgement = headers.get("semel-ack").map(|_| acknowledgement(key, acks)).transpose()?;
        Ok(Self { acknowledgement, elements: elements(requests)?, frame: None, headers: headers.clone() })
    }

    /// Reads a frame of the socket of `asker` that came at `wall_ms`; `None` if it was too large.
    pub fn parse_frame(key: &Key, asker: &Asker, wall_ms: i64, text: Option<&[u8]>) -> Result<Self, Problem> {
        if asker.has_ended(wall_ms) && holds(Rule::FrameOfToken) {
            return Err(Problem::new(Code::Unauthorized, "the token has expired"));
        }
        let Json::Object(mut members) = json(text)? else { return Err(body_invalid("not a JSON object")) };
        let mut read = || {
            let acks: Option<Vec<Json>> = members.optional("acks")?;
            Ok::<_, String>((
                members.required("frame")?,
                members.required("requests")?,
                acks.map(control::acked).transpose()?,
            ))
        };
        let (frame, requests, acks): (i64, Vec<Json>, _) = read().map_err(body_invalid)?;
        members.end().map_err(body_invalid)?;
        if !(0..=NUMBER_MAX).contains(&frame) {
            return Err(body_invalid("frame must be a number from 0 to 2^53 - 1"));
        }
        let acknowledgement = acks.map(|acks| acknowledgement(key, acks)).transpose()?;
        Ok(Self { acknowledgement, elements: elements(requests)?, frame: Some(frame), headers: Headers::new() })
    }
}

/// Reads the first frame of a socket, as the headers by which the caller is authenticated.
pub fn first_frame(text: &str) -> Result<Headers, Problem> {
    if text.len() > FIRST_FRAME_BYTES_MAX {
        let detail = format!("the first frame of a socket has at most {FIRST_FRAME_BYTES_MAX} bytes");
        return Err(Problem::new(Code::TooLarge, detail));
    }
    let Json::Object(mut members) = json(Some(text.as_bytes()))? else { return Err(body_invalid("not a JSON object")) };
    let mut read = || Ok::<_, String>((members.optional("authorization")?, members.optional("principal")?));
    let (credentials, principal): (Option<String>, Option<String>) = read().map_err(body_invalid)?;
    members.end().map_err(body_invalid)?;
    let credentials = credentials.map(|credentials| ("authorization", credentials));
    let principal = principal.map(|principal| ("semel-principal", quoted(&principal)));
    Ok(credentials.into_iter().chain(principal).collect())
}

fn json(text: Option<&[u8]>) -> Result<Json<'_>, Problem> {
    let Some(text) = text.filter(|text| text.len() <= REQUEST_BODY_BYTES_MAX) else {
        let detail = format!("a batch or a frame has at most {REQUEST_BODY_BYTES_MAX} bytes");
        return Err(Problem::new(Code::TooLarge, detail));
    };
    Json::parse(text).map_err(body_invalid)
}

fn acknowledgement(key: &Key, acks: Vec<Ack>) -> Result<Acknowledgement, Problem> {
    let pathname = format!("/semel/v1/keys/{}/acks", key.encoded().replace('/', "%2F"));
    let path = Path::new(&pathname, "")?;
    Ok(Acknowledgement {
        request: Request { method: Method::Post, path, headers: Headers::new(), body: Vec::new() },
        acks,
    })
}

fn elements(requests: Vec<Json>) -> Result<Vec<Element>, Problem> {
    if requests.len() > ELEMENTS_MAX {
        return Err(Problem::new(Code::TooLarge, format!("more than {ELEMENTS_MAX} requests")));
    }
    let numbered = requests.into_iter().enumerate();
    numbered
        .map(|(n, request)| {
            element(request, &|own_ms| own_ms).map_err(|reason| body_invalid(format!("request {n}: {reason}")))
        })
        .collect()
}

/// The longest name of a method, in bytes. It is bounded because it is logged.
const METHOD_BYTES_MAX: usize = 32;

fn is_method(method: &str) -> bool {
    method.len() <= METHOD_BYTES_MAX && is_token(method)
}

/// `within`: gives the deadline to use for the element's own one.
fn element(request: Json, within: &dyn Fn(Option<i64>) -> Option<i64>) -> Result<Element, String> {
    let Json::Object(mut members) = request else { return Err("not a JSON object".to_owned()) };
    let (method, path): (Cow<'_, str>, Cow<'_, str>) = (members.required("method")?, members.required("path")?);
    if !is_method(&method) {
        return Err(format!("`method` is no name of a method of at most {METHOD_BYTES_MAX} bytes"));
    }
    // Room for what its members and the layer add.
    let mut headers = Headers::new().with_room(8);
    // Each name is compared with those before it. If there are more than a request may have, `head` refuses it.
    for (name, value) in members.optional("headers")?.into_iter().flat_map(Members::all).take(HEADERS_MAX + 1) {
        let value = String::try_from(value).map_err(|expected| format!("a header must be {expected}"))?;
        // Names are case-insensitive, as on the wire.
        let name = name.to_ascii_lowercase();
        check_header(&name, &value)?;
        // Another reader of these headers might use the other one.
        if headers.get(&name).is_some() {
            return Err(format!("header {name} is there twice"));
        }
        headers.append(&name, value);
    }
    let mut say = |name: &'static str, value: Option<String>| {
        if let Some(value) = value {
            headers.add(name, value);
        }
    };
    // The values are checked when these headers are parsed.
    say("idempotency-key", members.optional("id")?.map(|id: Cow<'_, str>| quoted(&id)));
    say("semel-first-sent", members.optional("firstSent")?.map(date));
    say("semel-deadline", within(members.optional("deadline")?).map(|ms| ms.to_string()));
    say("semel-session", members.optional("session")?.map(session).transpose()?);
    let body = members.any("body")?.map(control::wire_body_bytes).transpose()?.unwrap_or_default();
    members.end()?;
    let (pathname, search) = path.split_at(path.find('?').unwrap_or(path.len()));
    // In a URL, a `?` without anything after it is no query.
    let url = (pathname.to_owned(), if search == "?" { "" } else { search }.to_owned());
    Ok(Element { method: Method::new(&method), url, headers, body })
}

/// `Semel-Session` of an element.
fn session(mut place: Members) -> Result<String, String> {
    let (name, epoch, seq): (String, i64, i64) =
        (place.required("name")?, place.required("epoch")?, place.required("seq")?);
    let ack = place.optional("ack")?.map(|ack: i64| format!(";ack={ack}")).unwrap_or_default();
    place.end()?;
    Ok(format!("{};epoch={epoch};seq={seq}{ack}", quoted(&name)))
}

fn check_header(name: &str, value: &str) -> Result<(), &'static str> {
    let is_reserved = ["semel-", "cf-"].iter().any(|prefix| name.starts_with(prefix))
        || ["idempotency-key", "authorization"].contains(&name);
    if !is_token(name) || (is_reserved && holds(Rule::BatchHeaders)) {
        return Err("a header has a malformed name, or one that no request of a batch may have");
    }
    if value.trim_matches([' ', '\t']) != value || !is_value(value) {
        return Err("a header's value is malformed");
    }
    Ok(())
}

/// The answers to a batch, as JSON. Answers of one commit differ in little, so headers that equal those of the answer
/// before are not written anew.
#[derive(Debug)]
pub struct Answers {
    texts: String,
    /// How many bytes are left for the answers that follow.
    room: usize,
    headers: Headers,
    /// The JSON of `headers`.
    written: Written,
}

impl Default for Answers {
    fn default() -> Self {
        Self::with_room(ROOM)
    }
}

impl Answers {
    /// No answers yet, and room for this many bytes.
    pub fn with_room(room: usize) -> Self {
        let headers = Headers::new();
        Self { texts: String::new(), room, written: wire_headers(&headers), headers }
    }

    /// How many bytes are left.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Adds an answer, or, if there is no room for it, the problem that says so.
    pub fn add(&mut self, answer: Answer, now_ms: i64) {
        let text = self.text_of(answer).into_text();
        let (text, room) = match self.room.checked_sub(text.len() + 1) {
            Some(left) => (text, left),
            None => (self.text_of(without_room(now_ms)).into_text(), self.room),
        };
        if !self.texts.is_empty() {
            self.texts.push(',');
        }
        self.texts.push_str(&text);
        self.room = room;
    }

    fn text_of(&mut self, Answer { status, headers, body, .. }: Answer) -> Written {
        if headers != self.headers {
            self.written = wire_headers(&headers);
            self.headers = headers;
        }
        wire_answer(status, &self.written, &body)
    }

    /// The answers as they are in the body of a batch, without the brackets.
    pub fn into_text(self) -> String {
        self.texts
    }

    /// The complete body of the answer to a batch, or the complete frame that answers a frame.
    pub fn whole(self, frame: Option<i64>, now_ms: i64) -> String {
        let texts = &*self.texts;
        match frame {
            Some(frame) => format!("{{\"frame\":{frame},\"now\":{now_ms},\"answers\":[{texts}]}}"),
            None => ["[", texts, "]"].concat(),
        }
    }
}

/// Stands for an answer for which there is no room.
pub(super) fn without_room(now_ms: i64) -> Answer {
    Answer::unavailable("the answers of this batch have no room for it").stamped(now_ms, None)
}

/// The room for all answers of a batch, in bytes.
pub const ROOM: usize = ANSWERS_BYTES_MAX - ELEMENTS_MAX * UNAVAILABLE_BYTES;
