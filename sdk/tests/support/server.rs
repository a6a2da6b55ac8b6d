//! What answers: a stub that goes by its script, and remembers what was sent.

use super::wait::clock_ms;
use semel_core::client::{Answer, Entry, Row};
use semel_core::header::quoted;
use semel_core::message::Headers;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The key that answers, as it is on the wire.
pub const KEY: &str = "accounts/1";
pub const HEALTH: &str = "/semel/v1/health";
pub const CANCEL: &str = "/semel/v1/keys/accounts%2F1/cancel";

/// What becomes of an attempt.
#[derive(Debug, Clone)]
pub enum Reply {
    /// No answer.
    Lost,
    /// Neither an answer nor an error.
    Silence,
    /// An answer. One with `Semel-Status` gets `Semel-Now` as well.
    Answer(Answer),
    /// Its clock is set forward, by so many ms, and so the attempt came too late.
    Jump(i64),
}

/// An attempt that arrived.
#[derive(Debug)]
pub struct Sent {
    /// The tab that sent it.
    pub owner: String,
    pub attempt: f64,
    pub method: String,
    pub target: String,
    pub headers: Headers,
    pub body: Vec<u8>,
    /// When it arrived, by the clock of the client.
    pub at_ms: f64,
    /// When it arrived, by the clock of the server.
    pub server_ms: i64,
    /// What was durable then in the row of its id.
    pub row: Option<Row>,
}

impl Sent {
    /// A header that must be there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name} on {self:?}"))
    }

    /// The request id, without its quotes.
    pub fn id(&self) -> String {
        self.header("idempotency-key").trim_matches('"').to_owned()
    }

    /// The deadline, in Unix ms.
    pub fn deadline_ms(&self) -> i64 {
        self.header("semel-deadline").parse().expect("a deadline is an integer")
    }

    /// The pending row that was durable before it left.
    pub fn pending(&self) -> Option<Entry> {
        match &self.row {
            Some(Row::Pending(entry)) => Some(entry.clone()),
            _ => None,
        }
    }

    /// The latest deadline that was durable before it left.
    pub fn stored_until_ms(&self) -> Option<i64> {
        self.pending()?.until_ms
    }
}

struct State {
    script: RefCell<BTreeMap<String, VecDeque<Reply>>>,
    sent: RefCell<Vec<Rc<Sent>>>,
    ahead_ms: Cell<i64>,
}

/// The server.
#[derive(Clone)]
pub struct Server(Rc<State>);

impl Server {
    /// A server whose clock is years from that of this machine.
    pub fn new() -> Self {
        let ahead_ms = Cell::new(2_000_000_000_000);
        Self(Rc::new(State { script: RefCell::default(), sent: RefCell::default(), ahead_ms }))
    }

    /// What the next attempts at a target get, in order; those after get what a good server says.
    pub fn replies(&self, target: &str, replies: impl IntoIterator<Item = Reply>) {
        self.0.script.borrow_mut().insert(target.to_owned(), replies.into_iter().collect());
    }

    /// What every further attempt at a target gets.
    pub fn always_replies(&self, target: &str, reply: Reply) {
        self.replies(target, std::iter::repeat_n(reply, 100_000));
    }

    /// Its clock, in Unix ms.
    pub fn now_ms(&self) -> i64 {
        clock_ms().floor() as i64 + self.0.ahead_ms.get()
    }

    /// Takes an attempt, and returns what becomes of it.
    pub fn receive(&self, sent: Sent) -> Reply {
        let scripted = self.0.script.borrow_mut().get_mut(&sent.target).and_then(VecDeque::pop_front);
        let reply = scripted.unwrap_or_else(|| match sent.target.as_str() {
            HEALTH => read(),
            CANCEL => control("cancelled"),
            _ => executed("done"),
        });
        self.0.sent.borrow_mut().push(Rc::new(sent));
        let reply = match reply {
            Reply::Jump(by_ms) => {
                self.0.ahead_ms.set(self.0.ahead_ms.get() + by_ms);
                problem(408, "attempt-expired", "no", "same-id", Some(KEY))
            }
            other => other,
        };
        match reply {
            Reply::Answer(mut answer) if answer.headers.get("semel-status").is_some() => {
                answer.headers.append("semel-now", self.now_ms().to_string());
                Reply::Answer(answer)
            }
            other => other,
        }
    }

    /// What was sent to a target.
    pub fn sent(&self, target: &str) -> Vec<Rc<Sent>> {
        self.0.sent.borrow().iter().filter(|sent| sent.target == target).cloned().collect()
    }

    /// What was sent at all, but for health.
    pub fn all_sent(&self) -> Vec<Rc<Sent>> {
        self.0.sent.borrow().iter().filter(|sent| sent.target != HEALTH).cloned().collect()
    }
}

fn answer(status: u16, headers: &[(&str, &str)], body: &[u8], members: &[(&str, &str)]) -> Reply {
    Reply::Answer(Answer {
        status,
        headers: headers.iter().copied().collect(),
        body: body.to_vec(),
        members: members.iter().copied().collect(),
    })
}

/// An outcome.
pub fn executed(body: &str) -> Reply {
    executed_with(201, body.as_bytes())
}

/// An outcome.
pub fn executed_with(status: u16, body: &[u8]) -> Reply {
    let key = quoted(KEY);
    answer(status, &[("semel-status", "executed"), ("semel-key", &key), ("x-receipt", "7:8")], body, &[])
}

/// The answer to a read.
pub fn read() -> Reply {
    answer(200, &[("semel-status", "read")], b"{}", &[])
}

/// The answer to a cancellation.
pub fn control(state: &str) -> Reply {
    let key = quoted(KEY);
    let body = format!("{{\"state\":\"{state}\"}}");
    answer(200, &[("semel-status", "executed"), ("semel-key", &key)], body.as_bytes(), &[("state", state)])
}

/// What is between client and server answers, and not the server.
pub fn portal() -> Reply {
    answer(200, &[("content-type", "text/html")], b"<p>Please log in", &[])
}

/// The body of [`problem`].
pub fn problem_body(code: &str) -> String {
    format!("{{\"code\":\"{code}\"}}")
}

/// A problem, from the key if it is known.
pub fn problem(status: u16, code: &str, executed: &str, retry: &str, key: Option<&str>) -> Reply {
    let key = key.map(quoted);
    let mut headers = vec![("semel-status", code), ("content-type", "application/problem+json")];
    headers.extend(key.as_deref().map(|key| ("semel-key", key)));
    let members = [("code", code), ("executed", executed), ("retry", retry), ("detail", "as it is")];
    answer(status, &headers, problem_body(code).as_bytes(), &members)
}
