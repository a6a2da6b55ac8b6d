//! Batches, and the frames of a socket: what they hold, and what comes back. They run in [`super::together`].
//!
//! Invariants:
//! - A batch is read whole before anything of it runs: of one that can't be read, nothing does.
//! - An element is a request like any other. What only the platform, the router or the layer may say is in none of its headers.
//! - What goes back has at most [`ANSWERS_BYTES_MAX`] bytes. An answer for which there is no room is `unavailable`: it is kept.

use super::answer::{Answer, is_token_byte, is_value_char};
use super::config::REQUEST_BODY_BYTES_MAX;
use super::control::{self, body_invalid, wire_outcome};
use super::record::Outcome;
use crate::header::{self, quoted};
use crate::id::Key;
use crate::message::{Headers, Method, Request};
use crate::path::Path;
use crate::problem::{Code, Problem};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value};

/// A batch, or a frame, has at most so many elements.
pub const ELEMENTS_MAX: usize = 256;
/// The answers to it have at most so many bytes.
pub const ANSWERS_BYTES_MAX: usize = 4 << 20;
/// Kept of these for each element, which may have to be told that its answer has no room.
const UNAVAILABLE_BYTES: usize = 640;
/// What a frame's number may be: JavaScript's largest integer.
const NUMBER_MAX: i64 = (1 << 53) - 1;

/// A request of a batch.
#[derive(Debug, Clone)]
pub struct Element {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub url: (String, String),
    /// Its headers, and those that its members stand for.
    pub headers: Headers,
    /// Its body.
    pub body: Vec<u8>,
}

/// What is asked in one commit.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Acknowledges what the client holds by now; `None`: nothing.
    pub acknowledgement: Option<Request>,
    /// In order.
    pub elements: Vec<Element>,
    /// The number of the frame, where it is one.
    pub frame: Option<i64>,
}

impl Batch {
    /// Reads the body of `POST batch`. `headers`: those of the request, which may acknowledge.
    pub fn parse(key: &Key, headers: &Headers, body: Option<&[u8]>) -> Result<Self, Problem> {
        let requests = json(body)?;
        // Else the whole of it would be done, and then refused.
        header::acks(headers)?;
        let mut headers = headers.clone();
        headers.retain(|name| name == "semel-ack");
        let is_acknowledging = headers.get("semel-ack").is_some();
        let acknowledgement = is_acknowledging.then(|| acknowledgement(key, headers, "[]")).transpose()?;
        Ok(Self { acknowledgement, elements: elements(requests)?, frame: None })
    }

    /// Reads a frame of a socket.
    pub fn parse_frame(key: &Key, text: Option<&[u8]>) -> Result<Self, Problem> {
        let (mut frame, mut requests, mut acks) = (None, None, None);
        for (name, value) in object(json(text)?)? {
            match name.as_str() {
                "frame" => frame = value.as_i64().filter(|frame| (0..=NUMBER_MAX).contains(frame)),
                "requests" => requests = Some(elements(value)?),
                "acks" => {
                    let request = acknowledgement(key, Headers::new(), &value.to_string())?;
                    control::acks(&request.body)?;
                    acks = Some(request);
                }
                _ => return Err(body_invalid("a frame has frame, requests and acks")),
            }
        }
        match (frame, requests) {
            (Some(_), Some(elements)) => Ok(Self { acknowledgement: acks, elements, frame }),
            _ => Err(body_invalid("a frame has a number from 0 to 2^53 - 1, and requests")),
        }
    }
}

/// Reads the first frame of a socket: the headers of who asks.
pub fn first_frame(text: &str) -> Result<Headers, Problem> {
    let mut headers = Headers::new();
    for member in object(json(Some(text.as_bytes()))?)? {
        match (member.0.as_str(), member.1) {
            ("authorization", Value::String(credentials)) => headers.append("authorization", credentials),
            ("principal", Value::String(principal)) => headers.append("semel-principal", quoted(&principal)),
            ("principal", Value::Null) => {}
            _ => return Err(body_invalid("the first frame has authorization and principal")),
        }
    }
    Ok(headers)
}

fn json(text: Option<&[u8]>) -> Result<Value, Problem> {
    let Some(text) = text.filter(|text| text.len() <= REQUEST_BODY_BYTES_MAX) else {
        let detail = format!("a batch or a frame has at most {REQUEST_BODY_BYTES_MAX} bytes");
        return Err(Problem::new(Code::TooLarge, detail));
    };
    serde_json::from_slice(text).map_err(|error| body_invalid(error.to_string()))
}

fn object(value: Value) -> Result<Map<String, Value>, Problem> {
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(body_invalid("not a JSON object")),
    }
}

fn acknowledgement(key: &Key, headers: Headers, ids: &str) -> Result<Request, Problem> {
    let pathname = format!("/semel/v1/keys/{}/acks", key.encoded().replace('/', "%2F"));
    let body = format!("{{\"ids\":{ids}}}").into_bytes();
    Ok(Request { method: Method::Post, path: Path::new(&pathname, "")?, headers, body })
}

fn elements(requests: Value) -> Result<Vec<Element>, Problem> {
    let Value::Array(requests) = requests else { return Err(body_invalid("not an array of requests")) };
    if requests.len() > ELEMENTS_MAX {
        return Err(Problem::new(Code::TooLarge, format!("more than {ELEMENTS_MAX} requests")));
    }
    let numbered = requests.into_iter().enumerate();
    numbered
        .map(|(n, request)| element(request).map_err(|reason| body_invalid(format!("request {n}: {reason}"))))
        .collect()
}

fn element(request: Value) -> Result<Element, &'static str> {
    let (mut method, mut path, mut headers, mut body) = (None, None, Headers::new(), Vec::new());
    let Value::Object(members) = request else { return Err("not a JSON object") };
    for (name, value) in members {
        match (name.as_str(), value) {
            ("method", Value::String(text)) => method = Some(Method::new(&text)),
            ("path", Value::String(text)) => path = Some(text),
            // What these may be is for their headers to say.
            ("id", Value::String(id)) => headers.append("idempotency-key", quoted(&id)),
            ("firstSent", Value::Number(seconds)) => headers.append("semel-first-sent", format!("@{seconds}")),
            ("deadline", Value::Number(ms)) => headers.append("semel-deadline", ms.to_string()),
            ("session", Value::Object(place)) => headers.append("semel-session", session(place)?),
            ("headers", Value::Object(lines)) => {
                for (name, value) in lines {
                    let value = value.as_str().ok_or("a header is not text")?;
                    check_header(&name, value)?;
                    headers.append(&name, value);
                }
            }
            ("body", Value::String(text)) => body = text.into_bytes(),
            ("body", Value::Object(bytes)) if bytes.len() == 1 => {
                let base64 = bytes.get("base64").and_then(Value::as_str).ok_or("its body is not base64")?;
                body = BASE64.decode(base64).map_err(|_| "its body is not base64")?;
            }
            ("id" | "firstSent" | "deadline" | "session" | "headers" | "body", Value::Null) => {}
            _ => return Err("a member is not one of a request, or not of its type"),
        }
    }
    let path = path.ok_or("it has no path")?;
    let (pathname, search) = path.split_at(path.find('?').unwrap_or(path.len()));
    // As a URL has it: a `?` alone is no query.
    let url = (pathname.to_owned(), if search == "?" { "" } else { search }.to_owned());
    Ok(Element { method: method.ok_or("it has no method")?, url, headers, body })
}

/// `Semel-Session` of an element.
fn session(place: Map<String, Value>) -> Result<String, &'static str> {
    let (mut text, mut parameters) = (None, String::new());
    for (name, value) in place {
        match (name.as_str(), value) {
            ("name", Value::String(name)) => text = Some(quoted(&name)),
            ("epoch" | "seq" | "ack", Value::Number(number)) => parameters.push_str(&format!(";{name}={number}")),
            ("ack", Value::Null) => {}
            _ => return Err("a member of its session is not one, or not of its type"),
        }
    }
    text.map(|name| name + &parameters).ok_or("its session has no name")
}

fn check_header(name: &str, value: &str) -> Result<(), &'static str> {
    let is_name = !name.is_empty() && name.bytes().all(|byte| is_token_byte(byte) && !byte.is_ascii_uppercase());
    let is_reserved = ["semel-", "cf-"].iter().any(|prefix| name.starts_with(prefix))
        || ["idempotency-key", "authorization"].contains(&name);
    if !is_name || is_reserved {
        return Err("a header's name is not lower-case, or not for a request of a batch");
    }
    if value.trim_matches([' ', '\t']) != value || !value.chars().all(is_value_char) {
        return Err("a header's value is malformed");
    }
    Ok(())
}

/// The answer to all of a batch, or the frame that answers one. `answers`: of [`answer_text`].
pub fn text(frame: Option<i64>, now_ms: i64, answers: &[String]) -> String {
    let answers = answers.join(",");
    match frame {
        Some(frame) => format!("{{\"frame\":{frame},\"now\":{now_ms},\"answers\":[{answers}]}}"),
        None => format!("[{answers}]"),
    }
}

/// An answer of a batch, in JSON. `room`: what is left for it, and for those that follow.
pub fn answer_text(answer: Answer, now_ms: i64, room: &mut usize) -> String {
    let text = text_of(answer);
    if let Some(left) = room.checked_sub(text.len() + 1) {
        *room = left;
        return text;
    }
    text_of(Answer::unavailable("the answers of this batch have no room for it").stamped(now_ms, None))
}

/// The room for all answers of a batch.
pub const ROOM: usize = ANSWERS_BYTES_MAX - ELEMENTS_MAX * UNAVAILABLE_BYTES;

fn text_of(Answer { status, headers, body, .. }: Answer) -> String {
    wire_outcome(&Outcome { status, headers, body }).to_string()
}
