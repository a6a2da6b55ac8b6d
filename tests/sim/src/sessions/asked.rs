//! Requests, alone or in a batch, and their results.
//!
//! Invariant: the elements of a batch are in their order in the batch.

use super::view::View;
use crate::letter::Message;
use crate::snapshot::Effect;
use semel_support::Reply;
use serde_json::Value;
use std::rc::Rc;

/// A place in a session, and the acknowledgement that goes with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub name: String,
    pub epoch: i64,
    pub seq: i64,
    pub ack: i64,
}

impl Place {
    /// The place as effects name it.
    pub fn named(&self) -> String {
        format!("{};epoch={};seq={}", self.name, self.epoch, self.seq)
    }

    /// Reads the value of `Semel-Session`.
    pub fn of_header(value: &str) -> Option<Self> {
        let mut parts = value.split(';');
        let name = parts.next()?.replace('"', "");
        let mut place = Self { name, epoch: 0, seq: 0, ack: 0 };
        for part in parts {
            let (which, number) = part.split_once('=')?;
            let number = number.parse().ok()?;
            match which {
                "epoch" => place.epoch = number,
                "seq" => place.seq = number,
                _ => place.ack = number,
            }
        }
        Some(place)
    }

    fn of_json(json: &Value) -> Option<Self> {
        let number = |name: &str| json[name].as_i64();
        let name = json["name"].as_str()?.to_owned();
        Some(Self { name, epoch: number("epoch")?, seq: number("seq")?, ack: number("ack").unwrap_or(0) })
    }
}

impl Aim {
    /// The kind of the aim, without its details.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::AtPlace(_) => "AtPlace",
            Self::ById(_) => "ById",
            Self::Close(_) => "Close",
            Self::TakeOver(..) => "TakeOver",
            Self::Other => "Other",
        }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aim {
    /// A deposit at a place.
    AtPlace(Place),
    /// A deposit under an id.
    ById(String),
    /// The closing of a place.
    Close(Place),
    /// A session, and the epoch that is expected to be current.
    TakeOver(String, Option<i64>),
    /// Anything else.
    Other,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Asked {
    pub aim: Aim,
    /// The number to be deposited.
    pub number: String,
    /// The id that it carries.
    pub own: String,
    /// Path and query.
    pub target: String,
    /// Whether it has a header that is not allowed in a batch.
    pub is_reserved: bool,
}

impl Asked {
    /// Reads a request that was sent by itself.
    pub fn of_message(message: &Message) -> Self {
        let own = message.own_id().unwrap_or_default();
        let place = message.headers.get("semel-session").and_then(Place::of_header);
        Self::of((&message.method, &message.target), place, own, message.text(), false)
    }

    /// Reads a request of a batch.
    pub fn of_element(element: &Value) -> Self {
        let text = |name: &str| element[name].as_str().unwrap_or_default().to_owned();
        let is_reserved = element["headers"]["semel-ack"].is_string();
        Self::of(
            (&text("method"), &text("path")),
            Place::of_json(&element["session"]),
            text("id"),
            text("body"),
            is_reserved,
        )
    }

    fn of((method, target): (&str, &str), place: Option<Place>, own: String, body: String, is_reserved: bool) -> Self {
        let json = || serde_json::from_str::<Value>(&body).unwrap_or_default();
        let control = target.strip_prefix("/semel/v1/keys/").and_then(|rest| rest.split_once('/'));
        let aim = match (control.map(|(_, what)| what), place) {
            (Some("cancel"), _) => Place::of_json(&json()["session"]).map_or(Aim::Other, Aim::Close),
            (Some("sessions"), _) => {
                Aim::TakeOver(json()["name"].as_str().unwrap_or_default().to_owned(), json()["after"].as_i64())
            }
            (None, _) if method == "GET" || target.starts_with("/semel/") => Aim::Other,
            (None, Some(place)) => Aim::AtPlace(place),
            (None, None) => Aim::ById(own.clone()),
            _ => Aim::Other,
        };
        Self { aim, number: body, own, target: target.to_owned(), is_reserved }
    }

    /// The name of the request in its effect.
    pub fn name(&self) -> String {
        match &self.aim {
            Aim::AtPlace(place) => place.named(),
            _ => self.own.clone(),
        }
    }
}

/// The result of a message.
#[derive(Debug, Clone)]
pub struct Dealt {
    pub key: String,
    pub principal: String,
    pub asked: Vec<Asked>,
    /// The answers in order; empty if the object died, or refused the whole message.
    pub replies: Vec<Reply>,
    /// The refusal of the whole message.
    pub refusal: Option<Reply>,
    /// The ids that are acknowledged along with a batch.
    pub acks: Vec<String>,
    pub is_batch: bool,
    /// Whether each request ran by itself.
    pub was_alone: bool,
    pub has_crashed: bool,
    /// Whether its commit is held back. Nobody hears of it until the commit is durable, and never if the object dies
    /// before.
    pub is_held: bool,
    /// Whether what was held back before is durable now.
    pub has_released: bool,
    /// Whether it came on a socket that is closed because of it.
    pub is_closing: bool,
    /// Whether it came on a socket whose token has ended.
    pub is_past_token: bool,
    /// Whether it was a suspect whose start could not be counted.
    pub is_uncounted: bool,
    /// The numbers on which the handler panicked.
    pub panicked: Vec<String>,
    pub effects: Vec<Effect>,
    pub before: Rc<View>,
    pub after: Rc<View>,
    /// The key's clock, as far as it may have come, in Unix ms.
    pub now_ms: i64,
    /// The retention of the key, in seconds.
    pub retention_s: i64,
    /// Whether it was an administrator's request, and is done.
    pub is_administered: bool,
}

impl Dealt {
    /// A line for the trace.
    pub fn line(&self) -> String {
        let mut line = format!("{} by {}:", self.key, self.principal);
        for (n, asked) in self.asked.iter().enumerate() {
            let code = self.replies.get(n).map_or("-", |reply| reply.only("semel-status"));
            let what = match &asked.aim {
                Aim::AtPlace(Place { name, epoch, seq, ack }) => {
                    format!("{} at {name} {epoch}/{seq}, ack {ack}", asked.number)
                }
                Aim::ById(id) => format!("{} as {id}", asked.number),
                other => format!("{other:?}"),
            };
            line.push_str(&format!(" [{what} -> {code}]"));
        }
        if let Some(reply) = &self.refusal {
            line.push_str(&format!(" all of it: {}", reply.only("semel-status")));
        }
        if self.was_alone {
            line.push_str(", one by one");
        }
        if self.has_crashed {
            line.push_str(", and the object died");
        }
        for (name, row) in &self.after.sessions {
            line.push_str(&format!("; {name} is at {}/{}", row.current(), row.last()));
        }
        line
    }
}
