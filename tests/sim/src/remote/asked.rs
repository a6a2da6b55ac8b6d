//! Requests to the key, and what it stores of them.
//!
//! Invariant: of the code under test, this uses only the connection.

use crate::snapshot::Snapshot;
use semel_core::message::Response;
use semel_core::server::engine::remote::{Call as Sent, Ended};
use semel_support::{Call, Database, Reply, START_MS};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The outcome that an administrator gives.
pub const BY_HAND: &str = "by hand";

/// The beginning of everything that the service says of what it made.
pub const MADE: &str = "made ";

const ROWS: &str = "SELECT id, state, crashes, at_ms, status, body FROM semel_records";

/// What happens to a request that is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Report,
    Resend,
    Probe,
}

impl Route {
    pub const ALL: [Self; 3] = [Self::Report, Self::Resend, Self::Probe];

    /// Its name in a path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Resend => "resend",
            Self::Probe => "probe",
        }
    }
}

/// What somebody asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// An attempt of a request.
    Request,
    /// The same id by another principal, or with another body.
    Strange,
    LookUp,
    Cancel,
    Acknowledge,
    Read,
    /// An administrator says that it ran (`true`), or that it did not.
    Resolve(bool),
    DeleteRecord,
    DeleteKey,
    /// The key forgets what was first sent before.
    Forget,
}

impl Errand {
    /// Whether acknowledgements go along with such messages.
    pub fn carries(self) -> bool {
        matches!(self, Self::Request | Self::LookUp | Self::Cancel | Self::Read)
    }

    /// Whether these requests take turns, one at a time.
    pub fn takes_turns(self) -> bool {
        matches!(self, Self::Request | Self::Strange)
    }
}

/// A request that arrives once.
#[derive(Debug, Clone)]
pub struct Asked {
    pub number: usize,
    pub wish: usize,
    pub errand: Errand,
    pub call: Call,
    /// The wishes that it acknowledges along the way.
    pub along: Vec<usize>,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub state: State,
    /// How often it was sent.
    pub times: i64,
    /// When its state last changed, by the key's clock.
    pub at_ms: i64,
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

/// The rows of requests, by the number of the wish.
#[derive(Debug, Clone, Default)]
pub struct View(pub BTreeMap<usize, Row>, pub Counts);

/// How many records and tombstones there are of all requests, including those of an administrator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub records: u64,
    pub tombstones: u64,
}

impl View {
    /// The rows as the object sees them.
    pub fn of(database: &Database, wall_ms: i64) -> Self {
        let mut all = BTreeMap::new();
        for row in database.peek(ROWS) {
            let [id, state, times, at_ms, status, body] = <[_; 6]>::try_from(row).expect("six columns");
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
            let (times, at_ms) = (times.as_integer().unwrap_or(0), at_ms.as_integer().unwrap_or(0) - START_MS);
            all.insert(wish, Row { state, times, at_ms, outcome: (status, body) });
        }
        let stored = Snapshot::of(database, None);
        let now_ms = wall_ms.max(stored.latest_ms());
        for (id, _) in stored.rows.iter().filter(|(_, row)| row.is_packed && !row.has_lapsed(now_ms)) {
            let gone = Row { state: State::Gone, times: 0, at_ms: 0, outcome: (0, String::new()) };
            number_of(id).map(|wish| all.insert(wish, gone));
        }
        Self(all, Counts { records: stored.count(true, now_ms), tombstones: stored.count(false, now_ms) })
    }

    pub fn state_of(&self, wish: usize) -> State {
        self.0.get(&wish).map_or(State::None, |row| row.state)
    }
}

/// The id of a wish.
pub fn id_of(wish: usize) -> String {
    format!("w{wish}")
}

fn number_of(id: &str) -> Option<usize> {
    id.strip_prefix('w')?.parse().ok()
}

/// A call that has ended, what became of it, and when the engine had decided on it: by the key's clock, and in ms of the
/// run.
pub type Settles = (Sent, Ended, (i64, i64));

/// A question to the engine, and what it changed.
#[derive(Debug, Clone)]
pub struct Dealt {
    pub asked: Rc<Asked>,
    /// The call that had been sent for the request, and what became of it.
    pub settles: Option<Settles>,
    /// The answer. `None`: the object ended before, or nobody asked.
    pub reply: Option<Reply>,
    /// Whether a statement was made to fail meanwhile.
    pub is_troubled: bool,
    /// Whether a call for the same wish is still under way.
    pub is_under_way: bool,
    pub before: Rc<View>,
    pub after: Rc<View>,
    /// The key's clock.
    pub now_ms: i64,
    /// The key was told to forget what was first sent before, in Unix seconds.
    pub forgotten_s: Option<i64>,
}

impl Dealt {
    /// If this is a probe that found nothing, when it was decided on.
    pub fn absent_ms(&self) -> Option<(i64, i64)> {
        match &self.settles {
            Some((Sent::Probe { .. }, Ended::Answered(Response { status: 404, .. }), decided)) => Some(*decided),
            _ => None,
        }
    }

    /// Whether the result of the call is the outcome without any doubt: the service itself says so, and not something
    /// in front of it.
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

    /// Whether the result of the call belongs to the start that is recorded.
    pub fn is_of_start(&self) -> bool {
        let times = match &self.settles {
            Some((Sent::Dispatch { times } | Sent::Probe { times, .. }, ..)) => *times,
            None => return false,
        };
        let row = self.before.0.get(&self.asked.wish);
        row.is_some_and(|row| row.state == State::InDoubt && row.times == times)
    }

    /// Whether this was the first call for the request and surely did not leave.
    pub fn has_surely_not_left(&self) -> bool {
        matches!(&self.settles, Some((Sent::Dispatch { times: 1 }, Ended::Unreachable(_), _)))
    }
}
