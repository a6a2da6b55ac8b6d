//! Takes the requests that a handler sends to others, and checks them so that whatever is stored can be sent.
//!
//! Invariants:
//! - A refused request is not stored and counts against no limit. The handler gets an error with the reason, which it can pass on or catch.
//! - If the storage fails, the request that is being handled fails, even if the handler catches the error: an effect may
//!   be stored in part, or its number may be given out without it.

use super::{Context, Failure, KeyRule};
use crate::id::Key;
use crate::message::{Headers, Method};
use crate::path::Path;
use crate::problem::{Code, Problem};
use crate::server::answer::{is_token, is_value};
use crate::server::effects::Target;
use crate::server::effects::store::{self, Stored};
use crate::server::effects::{EFFECT_ID_DIGITS, EFFECTS_BYTES_MAX, EFFECTS_PER_KEY_MAX, EFFECTS_PER_REQUEST_MAX};
use crate::server::head;
use sha2::{Digest, Sha256};

/// A request to be sent, without its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// A method that changes.
    pub method: Method,
    /// Its headers. It can't have headers of the protocol, which the layer sets.
    pub headers: Headers,
    /// Its body.
    pub body: Vec<u8>,
}

impl Outgoing {
    /// A `POST` with a body of JSON.
    pub fn json(body: impl Into<Vec<u8>>) -> Self {
        let headers = Headers::from_iter([("content-type", "application/json")]);
        Self { method: Method::Post, headers, body: body.into() }
    }
}

/// What the handler has emitted so far for one request, including what it has undone itself since.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Emitted {
    count: usize,
    bytes: usize,
    /// How many effects wait at the key, those of this request included; `None` until that was asked.
    waiting: Option<i64>,
    /// Whether the storage has failed to store one.
    pub is_broken: bool,
}

impl Context<'_> {
    /// Sends a request to another key exactly once, if what the handler does is committed. `path` may have a query. The
    /// other key sees the principal `semel:emit`, and this key in `Semel-From`.
    pub fn emit(&mut self, key: &str, path: &str, outgoing: Outgoing) -> Result<(), Failure> {
        let key = Key::new(key).map_err(|invalid| wrong(&invalid.0))?;
        let (pathname, search) = path.split_at(path.find('?').unwrap_or(path.len()));
        let checked = Path::new(pathname, search).map_err(|invalid| wrong(&invalid.0))?;
        if checked.is_control() || !is_plain(path) || path.len() > head::URL_BYTES_MAX {
            return Err(wrong("a path is one of the application's, as it is in a URL"));
        }
        let Some((handler, ..)) = self.emitting else { return Err(nowhere()) };
        match handler.rule(&outgoing.method, &checked) {
            KeyRule::Any => {}
            KeyRule::Key(ruled) if ruled == key.as_str() => {}
            KeyRule::Key(ruled) => return Err(wrong(&format!("the key of {path} is {ruled}, not {}", key.as_str()))),
            KeyRule::Unhandled | KeyRule::Failed => return Err(wrong(&format!("no key handles {path}"))),
        }
        self.store(&Target::Key(key), path, outgoing)
    }

    /// Sends a request to an address outside at least once, if what the handler does is committed. Each try has the same `Idempotency-Key`.
    pub fn call(&mut self, url: &str, outgoing: Outgoing) -> Result<(), Failure> {
        let target = Target::of_url(url).filter(|_| is_plain(url) && url.len() <= head::URL_BYTES_MAX);
        let target = target.ok_or_else(|| {
            wrong("a URL begins with https:// or http://, has a host, no credentials and no fragment, and is escaped")
        })?;
        self.store(&target, url, outgoing)
    }

    fn store(&mut self, target: &Target, url: &str, outgoing: Outgoing) -> Result<(), Failure> {
        let stored = self.try_to_store(target, url, outgoing);
        self.emitted.is_broken |= matches!(stored, Err(Failure::Sql(_)));
        stored
    }

    fn try_to_store(&mut self, target: &Target, url: &str, outgoing: Outgoing) -> Result<(), Failure> {
        let Some((_, outbox, request)) = self.emitting else { return Err(nowhere()) };
        let Outgoing { method, headers, body } = outgoing;
        if !method.changes() {
            return Err(wrong("an emitted request must be a POST, PUT, PATCH or DELETE"));
        }
        for (name, value) in headers.iter() {
            check_header(name, value)?;
        }
        let headers = headers.to_lines();
        let count = self.emitted.count + 1;
        let bytes = self.emitted.bytes + url.len() + headers.len() + body.len();
        if count > EFFECTS_PER_REQUEST_MAX || bytes > EFFECTS_BYTES_MAX {
            let detail = format!(
                "the handler emits more than {EFFECTS_PER_REQUEST_MAX} requests, or more than {EFFECTS_BYTES_MAX} bytes"
            );
            return Err(Failure::Refused(Problem::new(Code::TooLarge, detail)));
        }
        // If this is undone, the only cost is one look in vain.
        outbox.may_wait();
        // Each time, because a handler may itself have undone what it sent first, and the tables with it.
        store::create(self.sql)?;
        let waiting = match self.emitted.waiting {
            Some(waiting) => waiting,
            None => *self.emitted.waiting.insert(store::count(self.sql, EFFECTS_PER_KEY_MAX)?),
        };
        if waiting >= EFFECTS_PER_KEY_MAX {
            let detail = format!("{EFFECTS_PER_KEY_MAX} requests to others wait at this key, or are parked");
            return Err(Failure::Refused(Problem::new(Code::Capacity, detail)));
        }
        let lane = store::lane_of(self.sql, target, |number| outbox.is_open(number))?;
        let seq = lane.seq + 1;
        let by = ["idempotency-key", "semel-session"].into_iter().find_map(|name| request.headers.get(name));
        let texts = [by.unwrap_or_default(), &target.text(), &seq.to_string(), method.as_str(), url];
        let id = id_of(self.key, self.now_ms, &texts, &body);
        let method = method.as_str().to_owned();
        let stored = Stored { at_ms: self.now_ms, id, method, url: url.to_owned(), headers, body };
        store::put(self.sql, lane.number, seq, &stored)?;
        self.emitted = Emitted { count, bytes, waiting: Some(waiting + 1), ..self.emitted };
        Ok(())
    }
}

/// An id that no other effect has. The clock distinguishes what a restored key does once more. The emitting request
/// distinguishes what is emitted while the clock stands still, on a lane that was made anew.
fn id_of(key: &Key, now_ms: i64, texts: &[&str], body: &[u8]) -> String {
    let mut hash = Sha256::new();
    let now = now_ms.to_string();
    for part in [key.as_str(), now.as_str()].iter().chain(texts).map(|text| text.as_bytes()).chain([body]) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(EFFECT_ID_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'#' && byte != b'\\')
}

/// Refuses a header that the runtime can't send, or that only the layer may set.
fn check_header(name: &str, value: &str) -> Result<(), Failure> {
    let is_own = name.starts_with("semel-") || OWN.contains(&name);
    if is_token(name) && !is_own && is_value(value) {
        Ok(())
    } else {
        Err(wrong(&format!("the header {name} can't be sent")))
    }
}

const OWN: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];

fn wrong(reason: &str) -> Failure {
    Failure::Other(format!("this can't be emitted: {reason}"))
}

fn nowhere() -> Failure {
    wrong("the handler emits, but does not declare it (EMITS)")
}
