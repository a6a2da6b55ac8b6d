//! A tab that holds a session, or did: the real machine, made anew for each step from all that it was told ([`crate::history`]), and what its
//! host remembers.
//!
//! Invariants:
//! - The store does what it is asked for in that order, one transaction a step; what became of it is told with it.
//! - How often something was tried is no part of a state: nothing is decided by the number of an attempt.

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

/// What became of a transaction, as what crosses threads.
#[derive(Debug, Clone)]
pub enum Report {
    /// The store failed.
    Failed,
    /// Nothing was changed.
    Not,
    /// What the row says now, or said.
    Made(Vec<u8>),
}

impl Report {
    /// Of a transaction that the store made.
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

/// What a machine is told.
#[derive(Debug, Clone)]
pub enum Told {
    /// Time has passed.
    Wakes,
    /// What is stored, and who lives, where that can be told.
    Stored(Vec<(String, Vec<u8>)>, Option<BTreeSet<String>>),
    /// The application wants something.
    Calls(&'static str),
    /// What became of a transaction.
    Changed(Ticket, Report),
    /// An answer came.
    Answered(u64, Answer),
    /// None comes.
    Lost(u64),
    /// The answer was taken.
    Delivered(Ticket),
    /// The application gives a request up.
    GivesUp(Ticket),
}

/// An attempt that may still be answered. Its number is no part of a state.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The number.
    pub number: u64,
    /// What left.
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

/// The machine, and what it has asked of the store that is not done yet, oldest first.
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
    /// Of every field of the machine but how often something was tried, and of what it has asked of the store.
    digest: u64,
    /// The transaction that the store has to make next.
    pub next: Option<Arc<str>>,
    /// When the machine is to be woken.
    pub wakes_ms: Option<i64>,
    /// What is under way, in the order in which it left.
    pub under_way: Vec<Attempt>,
    /// The requests in hand that were stored from here.
    pub tickets: BTreeMap<String, Ticket>,
    /// Whether it was told its epoch.
    pub has_taken: bool,
    /// Whether it has seen since what others have left: only then it is asked for anything.
    pub has_looked: bool,
    /// Whether it was told that it holds the session no more.
    pub is_over: bool,
    /// Who waits here.
    pub callers: BTreeSet<String>,
    /// What has to come before its next call, in order.
    pub before: Vec<String>,
}

impl Holder {
    /// A tab that was opened.
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

    /// The machine as all that it was told has made it.
    pub fn machine(&self) -> Machine {
        let mut session = Session::new(Settings {
            outbox: "outbox".to_owned(),
            owner: self.owner.clone(),
            principal: OWNER.to_owned(),
            key: KEY.to_owned(),
            name: SESSION.to_owned(),
            after: None,
            take_over_id: format!("the take-over of {}", self.owner),
            // It sends again at once: time steps from instant to instant.
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

    /// Tells the machine something, and gives what it asks for, but of the store.
    pub fn tell(&mut self, machine: &mut Machine, now_ms: i64, told: Told) -> Vec<Action> {
        let actions = machine.tell(now_ms, &told);
        self.history.push(now_ms, told);
        actions
    }

    /// All that it asked for is done, or asked of the store.
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

    /// Whether nothing comes of it any more, unless it is told something.
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
