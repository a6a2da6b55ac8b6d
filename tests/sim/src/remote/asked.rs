//! What is asked of the key, and what it stores of it.
//!
//! Invariant: nothing here goes through the code under test but the connection.

use semel_core::message::Response;
use semel_core::server::engine::remote::{Call as Sent, Ended};
use semel_support::{Call, Database, Reply};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The outcome that an administrator gives.
pub const BY_HAND: &str = "by hand";

/// How all begins that the service says of what it made.
pub const MADE: &str = "made ";

const ROWS: &str = "SELECT id, state, crashes, status, body FROM semel_records";

/// What becomes of a request that is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Report,
    Resend,
    Probe,
}

impl Route {
    pub const ALL: [Self; 3] = [Self::Report, Self::Resend, Self::Probe];

    /// Its part in a path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Resend => "resend",
            Self::Probe => "probe",
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// An attempt of a request.
    Request,
    /// The same id by somebody else, or with another body.
    Strange,
    LookUp,
    Cancel,
    Acknowledge,
    Read,
    /// That it ran, or that it did not.
    Resolve(bool),
    DeleteRecord,
    DeleteKey,
    /// The key forgets what came before.
    Forget,
}

impl Errand {
    /// Whether only one at a time is followed.
    pub fn takes_turns(self) -> bool {
        matches!(self, Self::Request | Self::Strange)
    }
}

/// One thing that is asked, once.
#[derive(Debug, Clone)]
pub struct Asked {
    pub number: usize,
    pub wish: usize,
    pub errand: Errand,
    pub call: Call,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub state: State,
    /// How often it was sent.
    pub times: i64,
    pub outcome: (u16, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    None,
    Executed,
    Cancelled,
    InDoubt,
    /// Acknowledged, or expired.
    Gone,
    Other,
}

/// The rows of requests, by the number of what is wanted.
#[derive(Debug, Clone, Default)]
pub struct View(pub BTreeMap<usize, Row>);

impl View {
    /// What the object sees.
    pub fn of(database: &Database) -> Self {
        let mut all = BTreeMap::new();
        for row in database.peek(ROWS) {
            let [id, state, times, status, body] = <[_; 5]>::try_from(row).expect("five columns");
            let Some(wish) = number_of(&id.into_text().unwrap_or_default()) else { continue };
            let state = match state.as_integer() {
                Some(1) => State::Executed,
                Some(3) => State::Cancelled,
                Some(5 | 6) => State::Gone,
                Some(7) => State::InDoubt,
                _ => State::Other,
            };
            let status = status.as_integer().and_then(|status| u16::try_from(status).ok()).unwrap_or(0);
            let body = String::from_utf8(body.into_blob().unwrap_or_default()).unwrap_or_default();
            all.insert(wish, Row { state, times: times.as_integer().unwrap_or(0), outcome: (status, body) });
        }
        Self(all)
    }

    pub fn state_of(&self, wish: usize) -> State {
        self.0.get(&wish).map_or(State::None, |row| row.state)
    }
}

/// The id of what is wanted.
pub fn id_of(wish: usize) -> String {
    format!("w{wish}")
}

fn number_of(id: &str) -> Option<usize> {
    id.strip_prefix('w')?.parse().ok()
}

/// What was asked of the engine, and what that has changed.
#[derive(Debug, Clone)]
pub struct Dealt {
    pub asked: Rc<Asked>,
    /// What had been sent for it, what came of that, and when the engine had said that it is to be sent.
    pub settles: Option<(Sent, Ended, i64)>,
    /// What it answered. `None`: the object ended before, or nobody asked.
    pub reply: Option<Reply>,
    /// Whether a statement was made to fail meanwhile.
    pub is_troubled: bool,
    /// Whether a request that had left for it was under way yet.
    pub is_under_way: bool,
    pub before: Rc<View>,
    pub after: Rc<View>,
    pub now_ms: i64,
}

impl Dealt {
    /// When a probe was decided on that has found nothing.
    pub fn absent_ms(&self) -> Option<i64> {
        match &self.settles {
            Some((Sent::Probe { .. }, Ended::Answered(Response { status: 404, .. }), decided_ms)) => Some(*decided_ms),
            _ => None,
        }
    }

    /// Whether what came of it is the outcome, without any doubt: the service says so itself, and not who stands in front of it.
    pub fn is_clear(&self) -> bool {
        match &self.settles {
            Some((Sent::Dispatch { times: 1 }, Ended::Answered(response), _)) => {
                matches!(response.status, 200..=299 | 400..=499)
            }
            Some((Sent::Dispatch { .. }, Ended::Answered(response), _)) => {
                response.body.starts_with(MADE.as_bytes()) && matches!(response.status, 200..=299 | 400..=499)
            }
            Some((Sent::Probe { .. }, Ended::Answered(response), _)) => response.status == 200,
            _ => false,
        }
    }

    /// Whether what came of it belongs to the start that is recorded.
    pub fn is_of_start(&self) -> bool {
        let times = match &self.settles {
            Some((Sent::Dispatch { times } | Sent::Probe { times, .. }, ..)) => *times,
            None => return false,
        };
        let row = self.before.0.get(&self.asked.wish);
        row.is_some_and(|row| row.state == State::InDoubt && row.times == times)
    }

    /// Whether what was to be sent, the first time, surely has not left.
    pub fn has_surely_not_left(&self) -> bool {
        matches!(&self.settles, Some((Sent::Dispatch { times: 1 }, Ended::Unreachable(_), _)))
    }
}
