//! Where requests are executed that the key only sends on: another service, and the network on the way to it.
//!
//! Invariants:
//! - A request that was sent may reach the service at any time until it has been under way as long as the scope allows, or never.
//! - Only some services know ids. Such a service has one effect for an id, as long as it remembers the id.

use crate::ledger::{effect_in, outcome};
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::handler::Policy;
use semel_core::server::storage::sql::SqlError;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql};
use std::collections::BTreeMap;

/// The handler of a key whose requests are executed elsewhere, with the policy for requests that are in doubt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Forwarder(pub Policy);

impl Handler for Forwarder {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _method: &Method, _path: &Path) -> KeyRule {
        KeyRule::Any
    }

    fn migrate(&self, _sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        Ok(())
    }

    fn is_remote(&self, _method: &Method, _path: &Path) -> bool {
        true
    }

    fn handle(&self, _context: &mut Context<'_>, _request: &Request) -> Result<Response, Failure> {
        Err(Failure::Remote(self.0.clone()))
    }
}

/// How the service deals with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum There {
    /// It succeeds.
    Works,
    /// It fails before its effect.
    FailsBefore,
    /// It fails after its effect.
    FailsAfter,
    /// A gateway in front of the service has no room for the request, and does nothing.
    Refuses,
}

impl There {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Works, Self::FailsBefore, Self::FailsAfter, Self::Refuses];

    /// The words for a trace.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Works => "is answered",
            Self::FailsBefore => "fails before its effect",
            Self::FailsAfter => "fails after its effect",
            Self::Refuses => "is refused in front",
        }
    }
}

/// The service, and what is on its way to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Elsewhere {
    /// The requests that have not arrived: the number of each, and when it left, in s.
    under_way: BTreeMap<u8, i64>,
    /// The effects of the one id that is sent: by which request, and when, in s.
    effects: Vec<(u8, i64)>,
}

impl Elsewhere {
    /// A request leaves.
    pub fn leaves(&mut self, number: u8, now_s: i64) {
        self.under_way.insert(number, now_s);
    }

    /// Time has passed: requests that have been under way for `transit_s` no longer arrive.
    pub fn passes(&mut self, now_s: i64, transit_s: i64) {
        self.under_way.retain(|_, left_s| now_s < left_s.saturating_add(transit_s));
    }

    /// The requests that may arrive.
    pub fn under_way(&self) -> impl Iterator<Item = u8> {
        self.under_way.keys().copied()
    }

    /// The requests that had an effect, in order.
    pub fn effects(&self) -> impl DoubleEndedIterator<Item = u8> {
        self.effects.iter().map(|(number, _)| *number)
    }

    /// A request arrives, and is answered. `knows_s`: how long the service remembers an id.
    pub fn takes(&mut self, number: u8, there: There, now_s: i64, knows_s: Option<i64>) -> Response {
        self.under_way.remove(&number);
        if matches!(there, There::FailsBefore | There::Refuses) {
            return failed(there);
        }
        let remembers = |(_, at_s): &&(u8, i64)| knows_s.is_some_and(|knows_s| now_s < at_s + knows_s);
        let known = self.effects.iter().rfind(remembers).map(|(number, _)| *number);
        if known.is_none() {
            self.effects.push((number, now_s));
        }
        match there {
            There::FailsAfter => failed(there),
            _ => response(201, outcome(usize::from(known.unwrap_or(number)))),
        }
    }

    /// The service is asked for what the request was to make.
    pub fn reads(&self, there: There) -> Response {
        match (there, self.effects.first()) {
            (There::FailsBefore | There::FailsAfter | There::Refuses, _) => failed(there),
            (There::Works, Some((number, _))) => response(200, outcome(usize::from(*number))),
            (There::Works, None) => response(404, String::new()),
        }
    }
}

fn failed(there: There) -> Response {
    response(if there == There::Refuses { 429 } else { 500 }, String::new())
}

fn response(status: u16, body: String) -> Response {
    Response { status, headers: Headers::new(), body: body.into_bytes() }
}

/// The request whose effect an outcome names.
pub fn number_in(body: &[u8]) -> Option<u8> {
    effect_in(body).and_then(|number| u8::try_from(number).ok())
}
