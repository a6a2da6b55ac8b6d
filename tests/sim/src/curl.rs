//! A request made by hand: a client that keeps its promises, but works differently from the SDK.
//!
//! Invariants:
//! - Its first-sent is the same on every attempt, or always missing.
//! - It acknowledges only ids whose outcome it has, sends nothing under that id afterwards, and names `until` only if
//!   that holds for every attempt that was not answered.

use crate::letter::Message;
use crate::wire::Cut;
use fastrand::Rng;
use semel_core::header::quoted;
use semel_core::message::Headers;

/// Which attempts carry a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadlines {
    /// All do.
    Always,
    /// None does.
    Never,
    /// Some do.
    Sometimes,
}

/// Whether and how the outcome is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledges {
    /// Not at all.
    Never,
    /// With a request of its own.
    Posts,
    /// With a header, on a read or on another request.
    Rides,
}

/// What the client notes before each step, in case it crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notes {
    /// Nothing.
    Nothing,
    /// The id, when it was first sent, and whether it is given up or acknowledged.
    Id,
    /// Everything it knows.
    Everything,
}

/// A message to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// An attempt. Another follows after each interval until there is an answer.
    Attempt,
    /// An attempt although there is an answer.
    Again,
    /// The cancellation, whatever became of the request.
    Cancel,
    /// The same id with another body.
    OtherBody,
    /// A look-up of the outcome.
    LookUp,
    /// The acknowledgement.
    Acknowledge,
}

/// The request, with its client.
#[derive(Debug, Clone)]
pub struct Curl {
    /// The number of the request in the plan.
    pub number: usize,
    /// Its id.
    pub id: String,
    /// Its key, as the server names it.
    pub key: String,
    /// The number in the path.
    pub account: usize,
    /// The principal.
    pub principal: &'static str,
    /// Whether it carries a first-sent.
    pub has_first_sent: bool,
    /// Which attempts carry deadlines.
    pub deadlines: Deadlines,
    /// How it is acknowledged.
    pub acknowledges: Acknowledges,
    /// The pause between two attempts, in ms.
    pub interval_ms: i64,
    /// Whether it is given up, and has to be cancelled.
    pub is_cancelling: bool,
    /// Whether its cancellation names the first-sent of the request.
    pub cancels_exactly: bool,
    /// Whether each attempt acknowledges its own id, which must have no effect.
    pub acks_itself: bool,
    /// Whether there is a definitive answer.
    pub is_done: bool,
    /// Whether it was acknowledged. Then nothing more is sent.
    pub is_acked: bool,
    /// What the client still knows after a crash.
    pub notes: Notes,
    /// How often the client crashed. It does not hear answers to attempts from before.
    pub life: u32,
    /// Nothing is done before this instant.
    pub down_until_ms: i64,
    /// Until when it is cut off from the network.
    pub cut: Cut,
    first_sent_s: Option<i64>,
    until_ms: i64,
    /// Whether the deadlines of some attempts are forgotten.
    has_forgotten_deadlines: bool,
    /// The number of attempts without a deadline.
    unbounded: u32,
    /// The number of attempts.
    pub attempts: u32,
    /// Whether an attempt without a deadline got the outcome.
    pub is_unbounded_answered: bool,
    /// Whether it has the outcome.
    pub has_outcome: bool,
    /// Whether it will never run, because it crashed too often.
    pub is_poisoned: bool,
}

impl Curl {
    /// Makes a random request.
    pub fn any(rng: &mut Rng, number: usize, account: usize, principal: &'static str) -> Self {
        let interval_ms = [1_000, 4_000, 30_000][rng.usize(0..3)];
        Self {
            number,
            id: format!("{:08x}-{number}", rng.u32(..)),
            key: format!("keys/{account}"),
            account,
            principal,
            has_first_sent: rng.u32(0..3) > 0,
            deadlines: [Deadlines::Always, Deadlines::Never, Deadlines::Sometimes][rng.usize(0..3)],
            acknowledges: [Acknowledges::Never, Acknowledges::Posts, Acknowledges::Rides][rng.usize(0..3)],
            interval_ms,
            is_cancelling: false,
            cancels_exactly: rng.u32(0..3) > 0,
            acks_itself: rng.u32(0..4) == 0,
            is_done: false,
            is_acked: false,
            notes: [Notes::Nothing, Notes::Id, Notes::Everything][rng.usize(0..3)],
            life: 0,
            down_until_ms: 0,
            cut: Cut::default(),
            first_sent_s: None,
            until_ms: 0,
            has_forgotten_deadlines: false,
            unbounded: 0,
            attempts: 0,
            is_unbounded_answered: false,
            has_outcome: false,
            is_poisoned: false,
        }
    }

    /// Lets the client crash until `until_ms`. Returns whether it goes on then.
    pub fn crash(&mut self, until_ms: i64) -> bool {
        self.life += 1;
        self.down_until_ms = until_ms;
        match self.notes {
            // A new id would be a new request. So the client can do nothing more.
            Notes::Nothing => {
                self.is_done = true;
                self.is_acked = true;
            }
            Notes::Id => {
                self.has_forgotten_deadlines = true;
                self.has_outcome = false;
                self.is_unbounded_answered = false;
                self.is_done = self.is_acked;
            }
            Notes::Everything => {}
        }
        self.notes != Notes::Nothing
    }

    /// Makes the next message. `clock_ms`: the key's clock.
    pub fn message(&mut self, rng: &mut Rng, errand: Errand, clock_ms: i64) -> Message {
        match errand {
            Errand::LookUp => return self.control("GET", &format!("outcomes/{}", self.id), String::new()),
            Errand::Acknowledge => return self.acknowledgement(),
            Errand::Attempt | Errand::Again | Errand::Cancel | Errand::OtherBody => {}
        }
        if self.has_first_sent {
            self.first_sent_s.get_or_insert(clock_ms / 1000 - rng.i64(0..=3));
        }
        // A cancelled request may also be sent again itself.
        let is_late = errand == Errand::Cancel;
        let is_cancelling = is_late || (self.is_cancelling && (errand == Errand::Attempt || rng.bool()));
        let mut message = if is_cancelling {
            let told = self.first_sent_s.filter(|_| self.cancels_exactly);
            let first_sent = told.map_or(String::new(), |first_sent_s| format!(",\"firstSent\":{first_sent_s}"));
            self.control("POST", "cancel", format!("{{\"id\":{}{first_sent}}}", quoted(&self.id)))
        } else {
            let body = if errand == Errand::OtherBody { self.number + 1_000_000 } else { self.number };
            Message { body: body.to_string().into_bytes(), ..self.deposit() }
        };
        let own = match (is_cancelling, is_late) {
            (true, true) => format!("cancel-late-{}", self.id),
            (true, false) => format!("cancel-{}", self.id),
            (false, _) => self.id.clone(),
        };
        if self.acks_itself {
            message.headers.append("semel-ack", quoted(&own));
        }
        message.headers.append("idempotency-key", if rng.bool() { quoted(&own) } else { own });
        // A cancellation need not carry the first-sent of the request as its own.
        if let Some(first_sent_s) = self.first_sent_s.filter(|_| !is_cancelling || rng.bool()) {
            message.headers.append("semel-first-sent", format!("@{first_sent_s}"));
        }
        let is_bounded = match self.deadlines {
            Deadlines::Always => true,
            Deadlines::Never => false,
            Deadlines::Sometimes => rng.bool(),
        };
        if is_bounded {
            let deadline_ms = clock_ms + rng.i64(1..=110_000);
            self.until_ms = self.until_ms.max(deadline_ms);
            message.headers.append("semel-deadline", deadline_ms.to_string());
        } else {
            self.unbounded += 1;
        }
        message
    }

    /// The client may name `until` even after one attempt without a deadline, if that one got the outcome: then the key
    /// has seen it.
    fn acknowledgement(&mut self) -> Message {
        self.is_acked = true;
        let is_bounded = self.unbounded == 0 || (self.unbounded == 1 && self.is_unbounded_answered);
        let may_say = is_bounded && !self.has_forgotten_deadlines;
        let (id, until_ms) = (quoted(&self.id), self.until_ms);
        if self.acknowledges == Acknowledges::Posts {
            let until = if may_say { format!(",\"until\":{until_ms}") } else { String::new() };
            return self.control("POST", "acks", format!("{{\"ids\":[{{\"id\":{id}{until}}}]}}"));
        }
        let mut message = Message { method: "GET".to_owned(), ..self.deposit() };
        message.headers.append("semel-ack", if may_say { format!("{id};until={until_ms}") } else { id });
        message
    }

    fn deposit(&self) -> Message {
        Message {
            method: "POST".to_owned(),
            target: format!("/keys/{}/deposits", self.account),
            headers: bearer(self.principal),
            ..Message::default()
        }
    }

    fn control(&self, method: &str, what: &str, body: String) -> Message {
        Message {
            method: method.to_owned(),
            target: format!("/semel/v1/keys/{}/{what}", self.key.replace('/', "%2F")),
            headers: bearer(self.principal),
            body: body.into_bytes(),
            is_too_large: false,
        }
    }
}

/// The credentials of a principal.
pub fn bearer(principal: &str) -> Headers {
    [("authorization", format!("Bearer {principal}"))].into_iter().collect()
}

/// A request that is malformed or asks for something that does not exist. Its answer must say so, and nothing may
/// change.
pub fn malformed(rng: &mut Rng, account: usize, id: &str) -> Message {
    let key = format!("/semel/v1/keys/keys%2F{account}");
    let path = format!("/keys/{account}/deposits");
    let post = |target: &str, body: &str, header: Option<(&str, &str)>| {
        let mut headers = bearer("alice");
        if let Some((name, value)) = header {
            headers.append(name, value);
        }
        Message {
            method: "POST".to_owned(),
            target: target.to_owned(),
            headers,
            body: body.as_bytes().to_vec(),
            is_too_large: false,
        }
    };
    let own = Some(("idempotency-key", id));
    match rng.u32(0..12) {
        0 => post(&path, "0", None),
        1 => post(&path, "0", Some(("idempotency-key", "\"open"))),
        2 => post(&path, "0", Some(("semel-deadline", "soon"))),
        3 => post(&format!("{key}/acks"), "[]", None),
        4 => post(&format!("{key}/cancel"), "{}", own),
        5 => {
            let mut message = post(&path, "0", own);
            message.headers.append("semel-key", "\"elsewhere\"");
            message
        }
        6 => Message { headers: [("authorization", "Basic eA==")].into_iter().collect(), ..post(&path, "0", own) },
        7 => post("/nowhere", "0", own),
        8 => post(&format!("/keys/{account}/nothing"), "0", own),
        9 => Message { is_too_large: true, ..post(&path, "0", own) },
        10 => post(&path, "0", Some(("semel-principal", "\"bob\""))),
        _ => Message { method: "GET".to_owned(), ..post(&format!("{key}/outcomes/{id}"), "", None) },
    }
}
