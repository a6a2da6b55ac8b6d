//! Messages on the wire, and what became of them.

use crate::snapshot::{Effect, Snapshot};
use semel_core::message::Headers;
use semel_support::Reply;
use std::borrow::Cow;
use std::rc::Rc;

/// A request as it is on the wire.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// All headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the body was too large to be read.
    pub is_too_large: bool,
}

impl Message {
    /// What a control request to a key asks for: `acks`, `cancel`, `outcomes/…`. `None` for a request of the
    /// application.
    pub fn control(&self) -> Option<&str> {
        self.target.strip_prefix("/semel/v1/keys/")?.split_once('/').map(|(_, control)| control)
    }

    /// Whether it is at an administrator's path.
    pub fn is_administration(&self) -> bool {
        self.target.starts_with("/semel/v1/admin/")
    }

    /// The id that an administrator's request is about.
    pub fn administered_id(&self) -> Option<String> {
        let json = || serde_json::from_slice::<serde_json::Value>(&self.body).unwrap_or_default();
        match self.target.strip_prefix("/semel/v1/admin/keys/")?.split_once('/')?.1 {
            "cancel" => json()["id"].as_str().map(str::to_owned),
            rest => rest.strip_prefix("records/").map(str::to_owned),
        }
    }

    /// Whether the application is asked to change something.
    pub fn is_deposit(&self) -> bool {
        matches!(self.method.as_str(), "POST" | "PUT") && !self.target.starts_with("/semel/")
    }

    /// The request id that the message carries.
    pub fn own_id(&self) -> Option<String> {
        self.headers.get("idempotency-key").map(|id| id.replace('"', ""))
    }

    /// The id that the answer is about, and the first-sent of its request.
    pub fn target_id(&self) -> (Option<String>, Option<i64>) {
        let json = || serde_json::from_slice::<serde_json::Value>(&self.body).unwrap_or_default();
        match self.control() {
            Some("cancel") => (json()["id"].as_str().map(str::to_owned), json()["firstSent"].as_i64()),
            Some(control) => (control.strip_prefix("outcomes/").map(str::to_owned), None),
            None => (self.own_id(), self.first_sent_s()),
        }
    }

    /// The value of `Semel-First-Sent`.
    pub fn first_sent_s(&self) -> Option<i64> {
        self.headers.get("semel-first-sent")?.strip_prefix('@')?.parse().ok()
    }

    /// The value of `Semel-Deadline`.
    pub fn deadline_ms(&self) -> Option<i64> {
        self.headers.get("semel-deadline")?.parse().ok()
    }

    /// The ids that the message acknowledges, each with its `until`.
    pub fn acks(&self) -> Vec<(String, Option<i64>)> {
        let mut all = Vec::new();
        for ack in self.headers.get("semel-ack").into_iter().flat_map(|acks| acks.split(", ")) {
            let (id, until) = ack.split_once(";until=").map_or((ack, None), |(id, until)| (id, until.parse().ok()));
            all.push((id.replace('"', ""), until));
        }
        if self.control() == Some("acks") {
            let json: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
            for ack in json["ids"].as_array().into_iter().flatten() {
                let id = ack["id"].as_str().or(ack.as_str()).unwrap_or_default();
                all.push((id.to_owned(), ack["until"].as_i64()));
            }
        }
        all
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The sender of a message, who waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The SDK in a tab.
    Tab {
        /// The tab.
        tab: usize,
        /// The tab's number for the attempt.
        attempt: u64,
    },
    /// A request made by hand.
    Curl {
        /// The number of the request.
        curl: usize,
        /// How often its client had crashed before.
        life: u32,
    },
    /// A reader, with the number of the read.
    Reader(usize),
    /// Somebody who does not wait.
    Nobody,
}

/// A message with its sender.
#[derive(Debug, Clone)]
pub struct Letter {
    /// The sender.
    pub from: Sender,
    /// The message.
    pub message: Message,
}

/// A message that an object or the router has handled.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The message.
    pub letter: Letter,
    /// The key; `None` if no object was asked.
    pub key: Option<String>,
    /// The retention of the key, in seconds.
    pub retention_s: i64,
    /// The authenticated principal.
    pub principal: String,
    /// The answer.
    pub reply: Reply,
    /// Whether the object died of the message.
    pub has_crashed: bool,
    /// Whether the handler panicked.
    pub has_panicked: bool,
    /// Whether the answer is sent.
    pub is_answered: bool,
    /// Whether it was a suspect whose start could not be counted.
    pub is_uncounted: bool,
    /// What was stored before the message.
    pub before: Rc<Snapshot>,
    /// What was stored after it.
    pub after: Rc<Snapshot>,
    /// The effects that it made.
    pub effects: Vec<Effect>,
    /// How often the handler began to make an effect.
    pub calls: u64,
}

impl Exchange {
    /// The same without packed tombstones that had lapsed by then.
    pub fn at(&self, now_ms: i64) -> Cow<'_, Self> {
        if !self.before.rows.values().any(|row| row.has_lapsed(now_ms)) {
            return Cow::Borrowed(self);
        }
        let mut before = Snapshot::clone(&self.before);
        before.rows.retain(|_, row| !row.has_lapsed(now_ms));
        Cow::Owned(Self { before: Rc::new(before), ..self.clone() })
    }

    /// A line for the trace.
    pub fn line(&self) -> String {
        let Message { method, target, headers, body, .. } = &self.letter.message;
        let mut line = format!("{:?}: {method} {target}", self.letter.from);
        for name in ["idempotency-key", "semel-first-sent", "semel-deadline", "semel-ack"] {
            if let Some(value) = headers.get(name) {
                line.push_str(&format!(" {name}: {value}"));
            }
        }
        let target = self.letter.message.target_id().0.unwrap_or_default();
        line.push_str(&format!(
            " {} by {:?} on {:?} -> {} {} at {}, fence {}, {} effects",
            String::from_utf8_lossy(body),
            self.principal,
            self.before.state_of(&target),
            self.reply.only("semel-status"),
            String::from_utf8_lossy(self.reply.body()).chars().take(60).collect::<String>(),
            self.reply.now_ms(),
            self.after.fence_s,
            self.effects.len(),
        ));
        if self.has_crashed {
            line.push_str(", and the object died");
        }
        line
    }
}
