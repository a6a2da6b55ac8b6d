//! A request that a test sends as often as it likes. Each time is one attempt.
//!
//! Invariant: nothing is added that the test did not ask for: no id, no deadline, no first-sent.

use crate::world::KEY;
use semel_core::header::quoted;
use semel_core::id::Key;
use semel_core::message::{Headers, Method, Request};
use semel_core::path::Path;

/// A request with its principal.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    headers: Headers,
    acks: Vec<String>,
    body: Vec<u8>,
    pub(crate) principal: String,
    pub(crate) is_too_large: bool,
}

/// A `POST`.
pub fn post(path: &str) -> Call {
    Call::new("POST", path)
}

/// A `PUT`.
pub fn put(path: &str) -> Call {
    Call::new("PUT", path)
}

/// A `PATCH`.
pub fn patch(path: &str) -> Call {
    Call::new("PATCH", path)
}

/// A `DELETE`.
pub fn delete(path: &str) -> Call {
    Call::new("DELETE", path)
}

/// A `GET`.
pub fn get(path: &str) -> Call {
    Call::new("GET", path)
}

/// A `HEAD`.
pub fn head(path: &str) -> Call {
    Call::new("HEAD", path)
}

/// The cancellation `own` of the request `id`.
pub fn cancel(own: &str, id: &str) -> Call {
    post(&control("cancel")).id(own).body(format!("{{\"id\":{id:?}}}"))
}

/// An acknowledgement by a request of its own. `ids` is JSON.
pub fn acknowledge(ids: &str) -> Call {
    post(&control("acks")).body(format!("{{\"ids\":{ids}}}"))
}

/// A look-up of the outcome of an id.
pub fn look_up(id: &str) -> Call {
    get(&control(&format!("outcomes/{id}")))
}

/// The path of a control request to the key under test.
pub fn control(what: &str) -> String {
    let key = Key::new(KEY).expect("a key").encoded().replace('/', "%2F");
    format!("/semel/v1/keys/{key}/{what}")
}

impl Call {
    /// A request with any method.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: Method::new(method),
            path: path.to_owned(),
            headers: Headers::new(),
            acks: Vec::new(),
            body: Vec::new(),
            principal: "alice".to_owned(),
            is_too_large: false,
        }
    }

    /// The same with one more header line.
    pub fn header(mut self, name: &str, value: impl AsRef<str> + Into<String>) -> Self {
        self.headers.append(name, value);
        self
    }

    /// The same without the lines of a header.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|each| each != name);
        self
    }

    /// The same with a request id.
    pub fn id(self, id: &str) -> Self {
        self.header("idempotency-key", quoted(id))
    }

    /// The same with a first-sent.
    pub fn first_sent_s(self, first_sent_s: i64) -> Self {
        self.header("semel-first-sent", format!("@{first_sent_s}"))
    }

    /// The same with a deadline.
    pub fn deadline_ms(self, deadline_ms: i64) -> Self {
        self.header("semel-deadline", deadline_ms.to_string())
    }

    /// The same with an acknowledgement without a deadline.
    pub fn ack(mut self, id: &str) -> Self {
        self.acks.push(quoted(id));
        self
    }

    /// The same with an acknowledgement and the latest deadline that any attempt of the id may carry.
    pub fn ack_until(mut self, id: &str, until_ms: i64) -> Self {
        self.acks.push(format!("{};until={until_ms}", quoted(id)));
        self
    }

    /// The same with a body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The same by another principal than alice.
    pub fn by(mut self, principal: &str) -> Self {
        self.principal = principal.to_owned();
        self
    }

    /// The same with a body that was too large to be read.
    pub fn too_large(mut self) -> Self {
        self.is_too_large = true;
        self
    }

    /// The principal.
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The headers, including the acknowledgements.
    pub fn headers(&self) -> Headers {
        let mut headers = self.headers.clone();
        if !self.acks.is_empty() {
            headers.append("semel-ack", self.acks.join(", "));
        }
        headers
    }

    /// Path and query of the URL.
    pub fn url(&self) -> (&str, &str) {
        self.path.split_at(self.path.find('?').unwrap_or(self.path.len()))
    }

    /// The request as it reaches the object.
    pub fn request(&self) -> Request {
        let (pathname, search) = self.url();
        let path = Path::new(pathname, search).expect("a path that the router lets through");
        Request { method: self.method.clone(), path, headers: self.headers(), body: self.body.clone() }
    }
}
