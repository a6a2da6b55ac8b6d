//! The handler: each change is one effect, and the outcome says which.
//!
//! Invariant: what it does depends on the request alone, so that a step of the model has one successor.

use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql};

/// The header that tells the handler how to go wrong. It is not part of the fingerprint.
pub const MOOD: &str = "mood";

/// How an execution goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mood {
    /// It succeeds.
    Works,
    /// It writes, and then answers 500.
    Answers500,
    /// It writes, and then panics.
    Crashes,
    /// It writes, and then ends its process: it never returns, or takes all memory.
    Ends,
}

impl Mood {
    /// The value of the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Answers500 => "answers 500",
            Self::Crashes => "crashes",
            Self::Ends => "ends the process",
        }
    }
}

/// The handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ledger;

/// The outcome of an effect. It contains the effect's number, so no two outcomes are equal.
pub fn outcome(number: usize) -> String {
    format!("effect-{number}.")
}

/// The number of the effect whose outcome a body holds. The outcome may stand inside JSON.
pub fn effect_in(body: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("effect-")?;
    rest.split_once('.')?.0.parse().ok()
}

impl Handler for Ledger {
    const SCHEMA_VERSION: i64 = 1;

    /// The same path has two keys, depending on the method: a client that guesses the key from the path may be wrong.
    fn key(&self, method: &Method, _path: &Path) -> KeyRule {
        match method {
            Method::Put => KeyRule::Key("elsewhere".to_owned()),
            _ => KeyRule::Any,
        }
    }

    fn migrate(&self, _sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        let header = |name: &str| request.headers.get(name).unwrap_or_default();
        let instant = |name: &str| header(name).trim_start_matches('@').parse::<i64>().ok();
        // For a request of a session, its place without the acknowledgement stands for the id.
        let named = request.headers.get("idempotency-key").or(request.headers.get("semel-session")).unwrap_or_default();
        let id = named.split(";ack=").next().unwrap_or_default().replace('"', "");
        let arguments = [
            id.into(),
            context.principal.as_str().into(),
            String::from_utf8_lossy(&request.body).into_owned().into(),
            instant("semel-deadline").into(),
            instant("semel-first-sent").into(),
            context.now_ms.into(),
        ];
        let rows = context.sql.exec("INSERT INTO effects", &arguments)?;
        let number = rows.first().and_then(|row| row.first()).and_then(|value| value.as_integer()).unwrap_or(0);
        let response = |status| Response {
            status,
            headers: Headers::new(),
            body: outcome(usize::try_from(number).unwrap_or(0)).into_bytes(),
        };
        let mood = header(MOOD);
        if [Mood::Crashes, Mood::Ends].iter().any(|crash| crash.as_str() == mood) {
            context.sql.exec(&format!("the handler {mood}"), &[])?;
        }
        Ok(response(if mood == Mood::Answers500.as_str() { 500 } else { 201 }))
    }
}
