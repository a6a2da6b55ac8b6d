//! What the holder of a session sends: requests at places, alone or in a batch, and the take-over.
//!
//! Invariant: a frame is its bytes. Two equal frames are one, because any frame may arrive any number of times.

use crate::answers::client_answer;
use crate::database::Fate;
use crate::messages::Message;
use crate::server::{Server, Together};
use crate::session_judge::Numbers;
use crate::tab::OWNER;
use semel_core::client::bytes::{Reader, Writer};
use semel_core::client::session::BEYOND;
use semel_core::client::{self, Transmission};
use semel_core::id::{Key, Principal};
use semel_core::message::Headers;
use semel_core::server::batch::Batch;
use semel_core::server::edge::auth::{Asker, Grant};
use semel_core::server::{Answer, batch::together};
use serde_json::{Value, json};

/// The key of all sessions.
pub const KEY: &str = "k";

/// One request of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// The request's own name. For a take-over: its request id.
    pub id: String,
    /// Its place; `None` for a take-over.
    pub place: Option<Numbers>,
    /// Whether it closes the place.
    pub closes: bool,
}

impl Part {
    /// Whether its seq is certain to be refused, so that it is sent only for its acknowledgement.
    pub fn only_acknowledges(&self) -> bool {
        self.place.is_some_and(|place| place.seq > BEYOND)
    }

    fn name(&self) -> String {
        let Some(Numbers { epoch, seq, ack }) = self.place else { return self.id.clone() };
        let name = match self {
            part if part.only_acknowledges() => "nothing".to_owned(),
            Self { closes: true, id, .. } => format!("the closing of {id} at {epoch}/{seq}"),
            Self { id, .. } => format!("{id} at {epoch}/{seq}"),
        };
        if ack > 0 { format!("{name}, which acknowledges {ack}") } else { name }
    }
}

/// What one transmission carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    message: Message,
    /// The body of a batch, as the host writes it; `None` for a single request.
    batch: Option<String>,
    /// Its requests, in order.
    pub parts: Vec<Part>,
}

impl Frame {
    /// The frame that a session transmits.
    pub fn new(made: &Transmission) -> Self {
        let (target, body) = (made.request.target.as_str(), &made.request.body);
        let text = String::from_utf8_lossy(body).into_owned();
        let (parts, batch) = if target.ends_with("/batch") {
            let elements = elements(body);
            (elements.iter().map(part_of).collect(), Some(Value::Array(elements).to_string()))
        } else if target.ends_with("/sessions") {
            let id = made.headers.get("idempotency-key").unwrap_or_default().replace('"', "");
            (vec![Part { id, place: None, closes: false }], None)
        } else {
            let named = made.headers.get("semel-session").unwrap_or_default().replace(';', ",\"").replace('=', "\":");
            let session: Value = serde_json::from_str(&format!("{{\"name\":{named}}}")).unwrap_or_default();
            (
                vec![part_of(
                    &json!({ "session": session, "path": target, "body": text, "id": made.headers.get("idempotency-key") }),
                )],
                None,
            )
        };
        Self { message: Message::new(made), batch, parts }
    }

    /// Lets the frame arrive. Returns the answer to each of its requests, and the answer that its sender gets.
    pub fn arrives(&self, server: &mut Server, now_ms: i64) -> (Vec<Answer>, client::Answer) {
        let Some(batch) = &self.batch else {
            let answer = server.arrive(&self.message.request(OWNER), now_ms).answer;
            let told = client_answer(&answer);
            return (vec![answer], told);
        };
        let key = Key::new(KEY).expect("a key");
        let principal = Principal::new(OWNER).expect("a principal of this crate");
        let asker = Asker { principal, grant: Grant::default(), ends_ms: None };
        let asked = together::Asked { key: &key, asker: &asker, wall_ms: now_ms };
        let batch = Batch::parse(&key, &Headers::new(), Some(batch.as_bytes()));
        let Together { arrived, refusal, .. } = server.together(asked, batch, Fate::Fine);
        if let Some(problem) = refusal {
            return (Vec::new(), client_answer(&Answer::problem(&problem)));
        }
        let answers: Vec<Answer> = arrived.into_iter().map(|arrived| arrived.answer).collect();
        let mut out = Writer::default();
        for client::Answer { status, headers, body, members } in answers.iter().map(client_answer) {
            out.integer(status.into());
            out.text(&headers.to_lines());
            out.bytes(&body);
            out.text(&members.to_lines());
        }
        let headers = Headers::from_iter([("semel-status", "executed")]);
        (answers, client::Answer { status: 200, headers, body: out.done(), members: Headers::new() })
    }

    /// Its name in a trace.
    pub fn name(&self) -> String {
        self.parts.iter().map(Part::name).collect::<Vec<_>>().join(" and ")
    }
}

/// The elements of a batch, as the host writes them.
fn elements(body: &[u8]) -> Vec<Value> {
    let mut input = Reader::new(body);
    let count = input.integer();
    let element = |input: &mut Reader<'_>| {
        let mut element: Value = serde_json::from_str(&format!("{{{}}}", input.text())).expect("members as JSON");
        element["method"] = json!(input.text());
        element["path"] = json!(input.text());
        let headers = Headers::from_lines(&input.text());
        element["headers"] = headers.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        element["body"] = json!(String::from_utf8_lossy(input.bytes()));
        element
    };
    (0..count).map(|_| element(&mut input)).collect()
}

/// The request of an element. The body of an application request is its name.
fn part_of(element: &Value) -> Part {
    let text = |name: &str| element[name].as_str().unwrap_or_default();
    let closes = text("path").ends_with("/cancel");
    let body: Value = if closes { serde_json::from_str(text("body")).unwrap_or_default() } else { Value::Null };
    let session = if closes { &body["session"] } else { &element["session"] };
    let number = |name: &str| session[name].as_i64().unwrap_or(0);
    let closed = || text("id").trim_matches('"').trim_start_matches("cancel-").split(';').next().unwrap_or_default();
    let id = if closes { closed() } else { text("body") };
    let place = Numbers { epoch: number("epoch"), seq: number("seq"), ack: number("ack") };
    Part { id: id.to_owned(), place: Some(place), closes }
}
