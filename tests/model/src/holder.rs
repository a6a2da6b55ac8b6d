//! A tab that holds or held a session, with what its host remembers: the real machine, rebuilt for each step from everything that
//! it was told ([`crate::history`]).
//!
//! Invariants:
//! - The store makes the machine's transactions in the order in which it asks for them, one a step; the report comes in the same
//!   step.
//! - The number of attempts is not compared as part of a state, because nothing is decided by it.

use crate::frames::{Frame, KEY};
use crate::history::{Digest, History};
use crate::session_judge::SESSION;
use crate::tab::{OWNER, TIMEOUT_MS};
use semel_core::client::session::row::{decode, encode};
use semel_core::client::session::{Action, Change, Changed, Place, Session, Settings};
use semel_core::client::{Answer, Draft, REQUESTS_MAX, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What became of a transaction, in a form that can be sent to other threads.
#[derive(Debug, Clone)]
pub enum Report {
    /// The store failed.
    Failed,
    /// Nothing was changed.
    Not,
    /// What the row is now, or was.
    Made(Vec<u8>),
}

impl Report {
    /// The report of a transaction that the store has made.
    pub fn of(changed: &Changed) -> Self {
        match changed {
            Changed::Not => Self::Not,
            Changed::Made(entry) => Self::Made(encode(entry)),
        }
    }

    fn changed(&self) -> Option<Changed> {
        match self {
            Self::Failed => None,
            Self::Not => Some(Changed::Not),
            Self::Made(row) => Some(Changed::Made(decode(row).expect("a row of this version"))),
        }
    }
}

/// Something that a machine is told.
#[derive(Debug, Clone)]
pub enum Told {
    /// Time has passed.
    Wakes,
    /// The rows that are stored, and which tabs live, if tabs can tell.
    Stored(Vec<(String, Vec<u8>)>, Option<BTreeSet<String>>),
    /// The application makes a request.
    Calls(&'static str),
    /// What became of a transaction.
    Changed(Ticket, Report),
    /// An answer came.
    Answered(u64, Answer),
    /// No answer will come.
    Lost(u64),
    /// The answer was taken.
    Delivered(Ticket),
    /// The application gives a request up.
    GivesUp(Ticket),
}

/// An attempt that may still be answered. Its number is not compared.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The number.
    pub number: u64,
    /// The frame that left.
    pub frame: Arc<Frame>,
}

impl PartialEq for Attempt {
    fn eq(&self, other: &Self) -> bool {
        self.frame == other.frame
    }
}

impl Eq for Attempt {}

impl Hash for Attempt {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.frame.hash(state);
    }
}

/// The machine, and the transactions that it has asked the store for and that are not made yet, oldest first.
pub struct Machine {
    /// The machine.
    pub session: Session,
    /// The transactions.
    pub asked: VecDeque<(Ticket, String, Change)>,
}

/// The tab.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Its name in rows.
    pub owner: String,
    give_up_after_ms: Option<i64>,
    ahead: usize,
    history: History<Told>,
    /// A digest of every field of the machine except the numbers of attempts, and of the transactions that it has asked for.
    digest: u64,
    /// The transaction that the store has to make next.
    pub next: Option<Arc<str>>,
    /// When the machine is to be woken.
    pub wakes_ms: Option<i64>,
    /// The attempts under way, in the order in which they left.
    pub under_way: Vec<Attempt>,
    /// The requests in hand that this tab has stored.
    pub tickets: BTreeMap<String, Ticket>,
    /// Whether it was told its epoch.
    pub has_taken: bool,
    /// Whether it has looked since then at what others have left. The application makes requests only afterwards.
    pub has_looked: bool,
    /// Whether it was told that it no longer holds the session.
    pub is_over: bool,
    /// The ids for which a caller waits in this tab.
    pub callers: BTreeSet<String>,
    /// The requests that must come before its next one, in order.
    pub before: Vec<String>,
}

impl Holder {
    /// A tab that was just opened.
    pub fn new(owner: String, give_up_after_ms: Option<i64>, ahead: usize) -> Self {
        Self {
            owner,
            give_up_after_ms,
            ahead,
            history: History::default(),
            digest: 0,
            next: None,
            wakes_ms: None,
            under_way: Vec::new(),
            tickets: BTreeMap::new(),
            has_taken: false,
            has_looked: false,
            is_over: false,
            callers: BTreeSet::new(),
            before: Vec::new(),
        }
    }

    /// The machine, rebuilt from everything that it was told.
    pub fn machine(&self) -> Machine {
        let mut session = Session::new(Settings {
            outbox: "outbox".to_owned(),
            owner: self.owner.clone(),
            principal: OWNER.to_owned(),
            key: KEY.to_owned(),
            name: SESSION.to_owned(),
            after: None,
            take_over_id: format!("the take-over of {}", self.owner),
            // It sends again at once, because time steps from instant to instant.
            retry_interval_ms: 0,
            attempt_timeout_ms: 100 * TIMEOUT_MS,
            requests_max: REQUESTS_MAX,
            is_framed: self.ahead > 0,
            ahead: self.ahead,
            is_shared: true,
        });
        session.give_up_after(self.give_up_after_ms);
        let mut machine = Machine { session, asked: VecDeque::new() };
        for (now_ms, told) in self.history.iter() {
            machine.tell(*now_ms, told);
        }
        machine
    }

    /// Tells the machine something, and returns what it asks for, without its transactions.
    pub fn tell(&mut self, machine: &mut Machine, now_ms: i64, told: Told) -> Vec<Action> {
        let actions = machine.tell(now_ms, &told);
        self.history.push(now_ms, told);
        actions
    }

    /// To call when everything that the machine asked for is done, or asked of the store.
    pub fn settles(&mut self, machine: &Machine) {
        let Machine { session, asked } = machine;
        let mut digest = Digest::default();
        write!(digest, "{}{asked:?}", without_counts(&format!("{session:?}"))).expect("a digest takes everything");
        self.digest = digest.finish();
        self.next = asked.front().map(|(_, id, change)| name_of(id, change).into());
        self.wakes_ms = session.wakes_at();
        self.tickets.extend(asked.iter().map(|(ticket, id, _)| (id.clone(), *ticket)));
        self.tickets.retain(|_, ticket| session.describe(*ticket).is_some());
    }

    /// Whether nothing will happen in it until it is told something.
    pub fn is_quiet(&self) -> bool {
        self.next.is_none() && self.under_way.is_empty() && self.wakes_ms.is_none()
    }
}

impl Machine {
    fn tell(&mut self, now_ms: i64, told: &Told) -> Vec<Action> {
        let session = &mut self.session;
        match told {
            Told::Wakes => session.wake(now_ms),
            Told::Stored(rows, alive) => {
                let lives = alive.as_ref().map(|alive| |owner: &str| alive.contains(owner));
                let lives = lives.as_ref().map(|lives| lives as &dyn Fn(&str) -> bool);
                session.stored(now_ms, rows, lives).expect("rows of this version");
            }
            Told::Calls(id) => {
                let (method, target) = ("POST".to_owned(), "/k".to_owned());
                let draft = Draft { method, target, body: id.as_bytes().to_vec(), ..Draft::default() };
                session.request(now_ms, (*id).to_owned(), draft);
            }
            Told::Changed(ticket, report) => {
                self.asked.pop_front();
                session.changed(now_ms, *ticket, report.changed());
            }
            Told::Answered(attempt, answer) => session.answered(now_ms, *attempt, answer.clone()),
            Told::Lost(attempt) => session.lost(now_ms, *attempt),
            Told::Delivered(ticket) => session.delivered(now_ms, *ticket),
            Told::GivesUp(ticket) => session.give_up(now_ms, *ticket),
        }
        let mut actions = Vec::new();
        while let Some(action) = session.poll() {
            match action {
                Action::Change { ticket, id, change } => self.asked.push_back((ticket, id, change)),
                other => actions.push(other),
            }
        }
        actions
    }
}

/// What a tab does by a transaction.
fn name_of(id: &str, change: &Change) -> String {
    let at = |place: Option<Place>| match place {
        Some(Place { epoch, seq }) => format!("at {epoch}/{seq}"),
        None => "without a place".to_owned(),
    };
    match change {
        Change::Add(entry) => format!("stores {id} {}", at(entry.place)),
        Change::Adopt { .. } => format!("takes {id} over"),
        Change::Number { place, .. } => format!("stores {id} {}", at(Some(*place))),
        Change::Keep { .. } => format!("stores the answer to {id}"),
        Change::Cancel { .. } => format!("stores that {id} is given up"),
        Change::Leave { .. } => format!("leaves {id} to who holds the session"),
        Change::Take { .. } => format!("takes {id} back"),
        Change::Remove => format!("deletes {id}, which is answered"),
    }
}

/// What a machine shows of itself, without the numbers of attempts.
fn without_counts(shown: &str) -> String {
    let mut kept = String::with_capacity(shown.len());
    let mut rest = shown;
    while let Some(at) = rest.find("attempt") {
        let (before, found) = rest.split_at(at + "attempt".len());
        kept.push_str(before);
        rest = found.trim_start_matches(['s', ':', ' ']).trim_start_matches(|each: char| each.is_ascii_digit());
    }
    kept.push_str(rest);
    kept
}
