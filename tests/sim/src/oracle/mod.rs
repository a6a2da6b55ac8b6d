//! The oracle: checks from the outside what must hold.
//!
//! - [`Oracle`]: what it remembers of ids and wishes, and what it is told
//! - `exchange`: what must hold for a message and its answer
//! - `rows`: what must hold for what a key keeps
//! - `administration`: what must hold for what an administrator does
//! - `ending`: what must hold for a run that has ended
//! - `order`: what must hold for requests that a tab wants one after the other
//! - `sharing`: what must hold for an id that several calls use or wait for
//! - `waiting`: what must hold for callers who wait only for a limited time
//! - `past`: what a key contains that is put back to a backup
//! - `history`: whether each account behaved as if it did one thing at a time
//!
//! Invariants:
//! - Its judgement depends on committed effects and tables, on what was on the wire, and on what callers got. It never
//!   asks the code under test.
//! - It knows the limits that the protocol states: nothing is promised of an id without first-sent after its
//!   retentions, nor of a browser that lost its storage.

mod administration;
mod ending;
mod exchange;
pub(crate) mod history;
mod order;
mod past;
mod rows;
mod sharing;
mod waiting;

use crate::plan::Plan;
use history::History;
pub use past::Past;
pub use rows::AHEAD_MS;
use semel_core::client::Answered;
use semel_core::problem::Executed;
use std::collections::{BTreeMap, BTreeSet};

/// The payload of another request under the id of a wish is this plus the number of the wish.
pub const OTHER_PAYLOAD: usize = 2_000_000;

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The kind of the violation.
    pub kind: &'static str,
    /// What happened.
    pub what: String,
}

/// Makes a violation.
pub fn violation<T>(kind: &'static str, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { kind, what: what.into() })
}

/// What the oracle remembers of an id at a key.
#[derive(Debug, Clone, Default)]
struct IdStory {
    /// The key's clock when the id first arrived.
    first_seen_ms: Option<i64>,
    first_sent_s: Option<i64>,
    /// When the SDK says that it was first sent, or that it does not say so.
    said_sent_s: Option<Option<i64>>,
    /// The instants of its effects.
    effects_ms: Vec<i64>,
    /// The status and body of each time that it ran.
    outcomes: Vec<(u16, Vec<u8>)>,
    /// When its key said that it never ran and never will.
    never_ran_ms: Option<i64>,
    /// The definitive codes that its key answered.
    told: BTreeSet<String>,
    /// How often the handler panicked on it and an answer was made.
    panics: u32,
    /// Whether an administrator forgot, deleted or cancelled it.
    is_administered: bool,
    /// From when on nothing protects it without first-sent, because of an administrator.
    free_ms: Option<i64>,
    /// Until when it is kept at least after its acknowledgement.
    kept_ms: Option<i64>,
    /// The number of its effects when it was last acknowledged.
    acked: usize,
    /// The number of its effects that belong to earlier requests with the same id.
    former: usize,
    /// Whether its key has dropped it, in due time. If the id is used again, it is another request.
    has_left: bool,
    /// The latest deadline that the SDK has sent, whether or not the attempt arrived.
    sent_ms: i64,
    /// Until when attempts may arrive, as far as was said.
    until_ms: i64,
    /// Whether attempts may arrive later than was said.
    is_unbounded: bool,
    /// Whether something was done or said of it that is void, because its key was put back.
    is_void: bool,
    /// The outcomes that it had before.
    undone: Vec<(u16, Vec<u8>)>,
}

impl IdStory {
    /// The effects of the request that has the id now.
    fn effects(&self) -> &[i64] {
        &self.effects_ms[self.former..]
    }

    /// From now on the id belongs to another request. What was said and promised of the former one does not apply to
    /// it.
    fn begin_anew(&mut self) {
        self.former = self.effects_ms.len();
        (self.first_seen_ms, self.first_sent_s, self.never_ran_ms) = (None, None, None);
        (self.kept_ms, self.free_ms) = (None, None);
        (self.until_ms, self.is_unbounded, self.panics, self.has_left) = (0, false, 0, false);
    }
}

/// What a caller got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// The outcome.
    Outcome(u16, Vec<u8>),
    /// There is no outcome: the code, and whether it ran.
    Failure(String, Executed),
}

impl From<&Answered> for Got {
    fn from(answered: &Answered) -> Self {
        match answered {
            Answered::Outcome(response) => Self::Outcome(response.status, response.body.clone()),
            Answered::Failure(failure) => Self::Failure(failure.code.clone(), failure.executed),
        }
    }
}

impl Got {
    /// A short text for it.
    pub fn line(&self) -> String {
        match self {
            Self::Outcome(status, body) => format!("{status} {}", String::from_utf8_lossy(body)),
            Self::Failure(code, executed) => format!("{code}, executed: {}", executed.as_str()),
        }
    }
}

/// A wish: something that the application, or somebody by hand, wants once.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// The key.
    pub key: String,
    /// The id.
    pub id: String,
    /// The principal.
    pub principal: String,
    /// The browser, if the SDK sends it.
    pub browser: Option<usize>,
    /// The tab in which it has to follow the earlier wishes at the same key.
    pub in_order_of: Option<usize>,
    /// Whether it had to wait, because an earlier one had no answer when it was made.
    pub has_waited: bool,
    /// Whether an attempt has left.
    pub is_sent: bool,
    /// Whether a client has its answer.
    pub is_answered: bool,
    /// Whether its row is in the store, or was until the request was done.
    pub is_stored: bool,
    /// Whether its browser lost it.
    pub is_lost: bool,
    /// Whether the application gave it up.
    pub is_given_up: bool,
    /// Whether its caller was told that it need not wait any longer.
    pub is_released: bool,
    /// Whether the application chose its id, and uses it in several calls.
    pub is_shared: bool,
    /// Whether another payload was tried under its id.
    pub is_disputed: bool,
    /// How often a row was made for it.
    pub rows: u32,
    /// Whether its answer was kept for another tab, and is gone because a day has passed by the worker's clock.
    pub is_dropped: bool,
    /// The tabs that found it pending in another tab, and wait.
    pub joined: BTreeSet<usize>,
    /// The tabs that looked for it when it was not stored: not yet, or not any more, because it was taken back.
    pub missed: BTreeSet<usize>,
    /// What its caller got.
    pub got: Vec<Got>,
    /// What others got who used its id or asked for it.
    pub told: Vec<Got>,
}

/// The oracle.
pub struct Oracle {
    plan: Plan,
    ids: BTreeMap<(String, String), IdStory>,
    wishes: BTreeMap<usize, Wish>,
    numbers: BTreeMap<String, usize>,
    /// What each tab wanted in order at a key.
    in_order: BTreeMap<(usize, String), Vec<usize>>,
    /// The number of effects of each key that it was told of.
    effects: BTreeMap<String, i64>,
    /// The id under which each number had its effect.
    happened: BTreeMap<String, String>,
    /// The fence of each key is at least this, as the key said.
    fences_s: BTreeMap<String, i64>,
    /// The keys that were put back.
    put_back: BTreeSet<String>,
    /// How far the worker's clock was ahead at least and at most, in ms.
    worker_ahead_ms: (i64, i64),
    /// The history of all accounts.
    pub history: History,
    /// What happened at least once. A run in which nothing happens proves nothing.
    pub seen: BTreeSet<String>,
}

impl Oracle {
    /// Makes an oracle for a plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            ids: BTreeMap::new(),
            wishes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            in_order: BTreeMap::new(),
            effects: BTreeMap::new(),
            happened: BTreeMap::new(),
            fences_s: BTreeMap::new(),
            put_back: BTreeSet::new(),
            worker_ahead_ms: (0, 0),
            history: History::default(),
            seen: BTreeSet::new(),
        }
    }

    /// Takes note of a wish.
    pub fn wish(&mut self, number: usize, wish: Wish) {
        self.history.deposits(number, &wish.key);
        self.numbers.insert(wish.id.clone(), number);
        if let Some(tab) = wish.in_order_of {
            self.in_order.entry((tab, wish.key.clone())).or_default().push(number);
        }
        self.wishes.insert(number, wish);
        self.of(number).has_waited = self.has_to_wait(number);
    }

    /// A wish.
    pub fn of(&mut self, number: usize) -> &mut Wish {
        self.wishes.get_mut(&number).expect("a wish that somebody has")
    }

    /// The number of the wish with this id.
    pub fn number_of(&self, id: &str) -> usize {
        *self.numbers.get(id).expect("an id that somebody made")
    }

    /// Takes note that a browser has lost its storage.
    pub fn lose(&mut self, browser: usize) {
        for wish in self.wishes.values_mut().filter(|wish| wish.browser == Some(browser)) {
            wish.is_lost = true;
        }
    }

    /// Takes note that a caller has got an answer.
    pub fn deliver(&mut self, number: usize, got: Got) {
        if let Got::Outcome(_, body) = &got {
            self.history.returned(number, body);
        }
        self.of(number).got.push(got);
    }

    /// Takes note that the SDK has sent an attempt with a deadline.
    pub fn sent(&mut self, number: usize, deadline_ms: i64) {
        let wish = self.of(number);
        let (key, id, has_waited) = (wish.key.clone(), wish.id.clone(), wish.has_waited && !wish.is_sent);
        wish.is_sent = true;
        if has_waited && !self.has_to_wait(number) {
            self.see("order: a request had its turn");
        }
        let story = self.id(&key, &id);
        story.sent_ms = story.sent_ms.max(deadline_ms);
    }

    /// Checks what is said of a request that pauses.
    pub fn paused(&mut self, number: usize, executed: Executed) -> Result<(), Violation> {
        if executed == Executed::No && self.happened.contains_key(&number.to_string()) {
            return violation("lie", format!("of {number} it was said that it did not run, and it did"));
        }
        Ok(())
    }

    /// Takes note that something happened.
    pub fn see(&mut self, what: impl Into<String>) {
        self.seen.insert(what.into());
    }

    fn id(&mut self, key: &str, id: &str) -> &mut IdStory {
        self.ids.entry((key.to_owned(), id.to_owned())).or_default()
    }

    fn retention_ms_min(&self) -> i64 {
        self.plan.retention_s_min() * 1000
    }
}
