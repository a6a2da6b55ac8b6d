//! The messages of a tab, while they are on their way.
//!
//! Invariant: a message is its bytes. Two equal messages are one, because any message may arrive any number of times.

use crate::oracle::{Aim, Asked};
use crate::tab::OWNER;
use semel_core::client::Transmission;
use semel_core::header;
use semel_core::message::{Headers, Method, Request};
use semel_core::path::Path;
use semel_core::server::control;

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    method: String,
    target: String,
    headers: String,
    body: Vec<u8>,
}

impl Message {
    /// The message that a client transmits.
    pub fn new(made: &Transmission) -> Self {
        Self {
            method: made.request.method.clone(),
            target: made.request.target.clone(),
            headers: [made.request.headers.to_lines(), made.headers.to_lines()].concat(),
            body: made.request.body.clone(),
        }
    }

    fn headers(&self) -> Headers {
        Headers::from_lines(&self.headers)
    }

    /// The request, as it arrives with somebody's login.
    pub fn request(&self, login: &str) -> Request {
        let mut headers = self.headers();
        headers.append("authorization", format!("Bearer {login}"));
        let path = Path::new(&self.target, "").expect("a path of the client");
        Request { method: Method::new(&self.method), path, headers, body: self.body.clone() }
    }

    /// What it asks for.
    pub fn aim(&self) -> Aim {
        match self.target.rsplit('/').next() {
            Some("acks") => Aim::Acknowledge,
            Some("cancel") => Aim::Cancel,
            Some("health") => Aim::Read,
            _ => Aim::Execute,
        }
    }

    /// The id that it is about.
    pub fn id(&self) -> String {
        let id = self.headers().get("idempotency-key").unwrap_or_default().replace('"', "");
        id.strip_prefix("cancel-").map(str::to_owned).unwrap_or(id)
    }

    fn deadline_s(&self) -> Option<i64> {
        self.headers()
            .get("semel-deadline")
            .and_then(|text| text.parse::<i64>().ok())
            .map(|deadline_ms| deadline_ms / 1000)
    }

    /// Whether it is a probe: its deadline is past, so it can't be executed and only asks for the key and the outcome.
    pub fn is_probe(&self) -> bool {
        self.aim() == Aim::Execute && self.deadline_s() == Some(0)
    }

    /// The ids that it acknowledges, without those of cancellations.
    pub fn acknowledges(&self) -> Vec<String> {
        let riding = header::acks(&self.headers()).expect("acknowledgements of the client");
        let posted = match self.aim() {
            Aim::Acknowledge => control::acks(&self.body).expect("acknowledgements of the client"),
            _ => Vec::new(),
        };
        let ids = riding.into_iter().chain(posted).map(|ack| ack.id.as_str().to_owned());
        ids.filter(|id| !id.starts_with("cancel-")).collect()
    }

    /// The message as the judge sees it.
    pub fn asked(&self) -> Asked {
        let first_sent = self.headers().get("semel-first-sent").map(|text| text.trim_start_matches('@').parse::<i64>());
        let id = self.id();
        Asked {
            aim: self.aim(),
            by: OWNER.to_owned(),
            payload: String::from_utf8_lossy(&self.body).into_owned(),
            first_sent_s: first_sent.and_then(Result::ok),
            place: None,
            acknowledges: self.acknowledges().into_iter().filter(|each| *each != id).collect(),
            id,
        }
    }

    /// Its name in a trace.
    pub fn name(&self) -> String {
        let acknowledged = self.acknowledges().join(" and ");
        let riding =
            if acknowledged.is_empty() { String::new() } else { format!(", which acknowledges {acknowledged}") };
        let until = self.deadline_s().map_or(String::new(), |deadline_s| format!(" (deadline {deadline_s} s)"));
        let id = self.id();
        match (self.aim(), self.deadline_s()) {
            (Aim::Acknowledge, _) => format!("the acknowledgement of {acknowledged}"),
            (Aim::Cancel, _) => format!("the cancellation of {id}{until} at {}{riding}", self.target),
            _ if self.is_probe() => format!("a probe of {id}{riding}"),
            _ => format!("an attempt of {id}{until}{riding}"),
        }
    }
}
