//! An answer, as a test gets it.
//!
//! Invariant: every answer is checked for what every answer must have, whatever the test is about.

use semel_core::message::Headers;
use semel_core::server::{Answer, Cors};
use serde_json::Value;

/// An answer of the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply(Answer);

impl Reply {
    /// Takes an answer, and checks what holds for all answers.
    #[track_caller]
    pub fn checked(answer: Answer) -> Self {
        let mut answer = answer;
        assert!(answer.headers.iter().all(|(name, _)| !name.starts_with("access-control-allow-origin")));
        // As the edge does if every page may read answers.
        Cors::Any.stamp(&mut answer, &Headers::new());
        let reply = Self(answer);
        let status = reply.only("semel-status").to_owned();
        reply.now_ms();
        match status.as_str() {
            "executed" => assert_eq!(reply.only("idempotent-replayed"), "false"),
            "replayed" => assert_eq!(reply.only("idempotent-replayed"), "true"),
            _ => assert_eq!(reply.header("idempotent-replayed"), None),
        }
        if !matches!(status.as_str(), "executed" | "replayed" | "read") {
            reply.check_problem(&status);
        }
        let exposed = reply.only("access-control-expose-headers").to_ascii_lowercase();
        let exposed: Vec<&str> = exposed.split(", ").collect();
        for (name, _) in reply.0.headers.iter() {
            assert!(name.starts_with("access-control-") || exposed.contains(&name), "{name} is not exposed");
        }
        reply
    }

    /// The same answer with a lie in it, which is not checked.
    pub fn falsified(&self, status: u16, code: &str, body: &str) -> Self {
        let mut answer = Answer { status, body: body.as_bytes().to_vec(), ..self.0.clone() };
        answer.headers.retain(|name| name != "semel-status");
        answer.headers.append("semel-status", code);
        Self(answer)
    }

    #[track_caller]
    fn check_problem(&self, code: &str) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.header("semel-expires"), None, "only an outcome expires");
        assert_eq!(self.header("www-authenticate").is_some(), code == "unauthorized", "WWW-Authenticate of {code}");
        // An answer to a HEAD has no body.
        if !self.0.body.is_empty() {
            assert_eq!(self.field("code"), code);
            assert_eq!(self.json()["status"], self.status());
            assert!(matches!(self.field("executed").as_str(), "no" | "yes" | "unknown"));
            assert!(matches!(self.field("retry").as_str(), "same-id" | "after-fix" | "never"));
            for field in ["type", "title", "detail"] {
                assert_ne!(self.field(field), "", "{field}");
            }
        }
        let passes_by_itself = matches!(code, "in-flight" | "locked" | "rate-limited" | "capacity" | "unavailable");
        let seconds = self.header("retry-after").map(|seconds| seconds.parse::<u32>().expect("seconds"));
        assert_eq!(seconds.is_some(), passes_by_itself, "Retry-After of {code}");
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// All headers.
    pub fn headers(&self) -> &Headers {
        &self.0.headers
    }

    /// The first line of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.0.headers.get(name)
    }

    /// Every line of a header, in order.
    pub fn lines(&self, name: &str) -> Vec<&str> {
        self.0.headers.iter().filter(|(each, _)| *each == name).map(|(_, value)| value).collect()
    }

    /// The only line of a header.
    #[track_caller]
    pub fn only(&self, name: &str) -> &str {
        match self.lines(name).as_slice() {
            [only] => only,
            lines => panic!("{name} has {} lines: {:?}", lines.len(), self.0),
        }
    }

    /// The value of `Semel-Now`.
    #[track_caller]
    pub fn now_ms(&self) -> i64 {
        self.only("semel-now").parse().expect("Semel-Now is a number")
    }

    /// The value of `Semel-Expires`, in Unix seconds.
    #[track_caller]
    pub fn expires_s(&self) -> i64 {
        self.only("semel-expires")
            .strip_prefix('@')
            .and_then(|date| date.parse().ok())
            .expect("Semel-Expires is a date")
    }

    /// The headers that are recorded, without those that belong to this answer only.
    pub fn recorded_headers(&self) -> Vec<(&str, &str)> {
        let own = |name: &str| {
            name.starts_with("semel-") || name.starts_with("access-control-") || name == "idempotent-replayed"
        };
        self.0.headers.iter().filter(|(name, _)| !own(name)).collect()
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.0.body
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.0.body).expect("a body of text")
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.0.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.0))
    }

    /// The line for the log.
    pub fn log(&self) -> Option<&str> {
        self.0.log.as_deref()
    }

    /// A field of the body that is text.
    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        self.json()[name].as_str().unwrap_or_default().to_owned()
    }

    /// Asserts a row of the table of codes.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str, executed: &str, retry: &str) -> &Self {
        let found = (self.status(), self.only("semel-status"), self.field("executed"), self.field("retry"));
        assert_eq!(found, (status, code, executed.to_owned(), retry.to_owned()), "{}", self.field("detail"));
        self
    }

    /// Asserts that the request was executed just now, with this status.
    #[track_caller]
    pub fn is_executed(&self, status: u16) -> &Self {
        assert_eq!((self.only("semel-status"), self.status()), ("executed", status), "{:?}", self.0);
        self
    }

    /// Asserts that this is a recorded outcome, with this status.
    #[track_caller]
    pub fn is_replayed(&self, status: u16) -> &Self {
        assert_eq!((self.only("semel-status"), self.status()), ("replayed", status), "{:?}", self.0);
        self
    }

    /// Asserts that this is the recorded outcome of `first`, byte for byte.
    #[track_caller]
    pub fn replays(&self, first: &Self) -> &Self {
        assert_eq!(self.only("semel-status"), "replayed", "{:?}", self.0);
        assert_eq!(self.status(), first.status());
        assert_eq!(self.recorded_headers(), first.recorded_headers());
        assert_eq!(self.body(), first.body());
        self
    }

    /// Asserts that this is the answer to a read, with this status.
    #[track_caller]
    pub fn is_read(&self, status: u16) -> &Self {
        assert_eq!((self.only("semel-status"), self.status()), ("read", status), "{:?}", self.0);
        self
    }
}
