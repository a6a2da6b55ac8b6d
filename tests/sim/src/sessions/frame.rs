//! Transmissions of the machine as the SDK puts them on the wire, and answers as the machine reads them.
//!
//! Invariant: the path, headers and body of a request are the same byte for byte, alone and in a batch.

use crate::letter::Message;
use semel_core::client::bytes::{Reader, Writer};
use semel_core::client::{Answer, Transmission};
use semel_core::message::Headers;
use semel_support::Reply;
use serde_json::{Value, json};

/// The message on the wire, and the paths of its requests if it is a batch.
pub fn message(made: &Transmission, credentials: &str) -> (Message, Option<Vec<String>>) {
    let request = &made.request;
    let mut headers: Headers = request.headers.iter().chain(made.headers.iter()).collect();
    headers.append("authorization", credentials);
    let (mut body, mut paths) = (request.body.clone(), None);
    if request.target.ends_with("/batch") {
        let elements = elements(&request.body);
        paths = Some(elements.iter().map(|each| each["path"].as_str().unwrap_or_default().to_owned()).collect());
        body = Value::Array(elements).to_string().into_bytes();
    }
    let message =
        Message { method: request.method.clone(), target: request.target.clone(), headers, body, is_too_large: false };
    (message, paths)
}

/// The text of a socket's frame, for requests that go together, with the acknowledgements.
pub fn text(number: i64, elements: &[Value], acks: &[(String, Option<i64>)]) -> String {
    let mut frame = json!({ "frame": number, "requests": elements });
    if !acks.is_empty() {
        frame["acks"] = acks.iter().map(|(id, until_ms)| json!({ "id": id, "until": until_ms })).collect();
    }
    frame.to_string()
}

fn elements(body: &[u8]) -> Vec<Value> {
    let mut input = Reader::new(body);
    let count = input.integer();
    let element = |input: &mut Reader<'_>| {
        let mut element: Value = serde_json::from_str(&format!("{{{}}}", input.text())).expect("JSON");
        element["method"] = json!(input.text());
        element["path"] = json!(input.text());
        let headers: Vec<(String, Value)> =
            Headers::from_lines(&input.text()).iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        element["headers"] = Value::Object(headers.into_iter().collect());
        element["body"] = json!(String::from_utf8_lossy(input.bytes()));
        element
    };
    (0..count).map(|_| element(&mut input)).collect()
}

/// The answer to a request that was sent by itself.
pub fn answer(target: &str, reply: &Reply) -> Answer {
    let members = members(target, reply.header("content-type"), reply.body());
    Answer { status: reply.status(), headers: reply.headers().clone(), body: reply.body().to_vec(), members }
}

/// The answer to a batch that was not refused: the answers to its paths. `is_cut`: the last one is missing.
pub fn answers(paths: &[String], replies: &[Reply], is_cut: bool) -> Answer {
    let mut out = Writer::default();
    let all = replies.len() - usize::from(is_cut);
    for (path, reply) in paths.iter().zip(replies).take(all) {
        let Answer { status, headers, body, members } = answer(path, reply);
        out.integer(status.into());
        out.text(&headers.to_lines());
        out.bytes(&body);
        out.text(&members.to_lines());
    }
    let headers = Headers::from_iter([("semel-status", "executed")]);
    Answer { status: 200, headers, body: out.done(), members: Headers::new() }
}

/// The members of a problem, or of an answer of the layer itself, that are no objects.
fn members(target: &str, content_type: Option<&str>, body: &[u8]) -> Headers {
    let is_problem = content_type.is_some_and(|value| value.starts_with("application/problem+json"));
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let is_read = is_problem || target.starts_with("/semel/");
    let mut members = Headers::new();
    for (name, value) in json.as_object().into_iter().flatten().filter(|_| is_read) {
        match value {
            Value::String(text) => members.append(name, text.clone()),
            Value::Number(number) => members.append(name, number.to_string()),
            _ => {}
        }
    }
    members
}
