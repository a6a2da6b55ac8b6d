//! The answers that a tab gets, from the server or from a proxy that answers in its place.

use semel_core::client::Answer;
use semel_core::message::Headers;
use semel_core::problem::{Code, Problem};
use semel_core::server;

/// A proxy that answers in the server's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proxy {
    /// A captive portal: 200, with its own page.
    Portal,
    /// The login has expired.
    Unauthorized,
    /// A gateway that makes a 503 look definitive.
    Definitive503,
}

impl Proxy {
    /// All proxies.
    pub const ALL: [Self; 3] = [Self::Portal, Self::Unauthorized, Self::Definitive503];
}

/// The answer of a proxy.
pub fn proxy_answer(proxy: Proxy) -> Answer {
    match proxy {
        Proxy::Portal => Answer { status: 200, body: b"log in here".to_vec(), ..Answer::default() },
        Proxy::Unauthorized => client_answer(&server::Answer::problem(&Problem::new(Code::Unauthorized, "log in"))),
        Proxy::Definitive503 => Answer {
            status: 503,
            headers: Headers::from_iter([("semel-status", Code::Capacity.as_str())]),
            members: Headers::from_iter([("executed", "no"), ("retry", "never")]),
            ..Answer::default()
        },
    }
}

/// A server's answer, as the client's host hands it over.
pub fn client_answer(answer: &server::Answer) -> Answer {
    let server::Answer { status, headers, body, .. } = answer.clone();
    let mut members = Headers::new();
    if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(&body) {
        for (name, value) in &object {
            match value {
                serde_json::Value::String(text) => members.append(name, text.clone()),
                serde_json::Value::Number(number) => members.append(name, number.to_string()),
                _ => {}
            }
        }
    }
    Answer { status, headers, body, members }
}
