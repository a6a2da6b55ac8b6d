//! A tab that holds or held a session: the machine, with what its host has to remember.

use crate::plan::Plan;
use semel_core::client::Ticket;
use semel_core::client::row::Write;
use semel_core::client::session::row::{Entry, decode};
use semel_core::client::session::{Change, Changed, Session, Settings};
use std::collections::BTreeMap;

/// The rows that the tabs of one browser share, by id.
#[derive(Debug, Default)]
pub struct Rows(pub BTreeMap<String, Vec<u8>>);

impl Rows {
    /// Makes a change, as one transaction.
    pub fn change(&mut self, id: &str, change: &Change) -> Changed {
        let (write, changed) = change.apply(self.0.get(id).map(Vec::as_slice)).expect("a readable row");
        match write {
            Write::Nothing => {}
            Write::Put(row) => drop(self.0.insert(id.to_owned(), row)),
            Write::Delete => drop(self.0.remove(id)),
        }
        changed
    }

    /// All rows.
    pub fn load(&self) -> Vec<(String, Vec<u8>)> {
        self.0.iter().map(|(id, row)| (id.clone(), row.clone())).collect()
    }

    /// All rows, decoded.
    pub fn entries(&self) -> impl Iterator<Item = (&String, Entry)> {
        self.0.iter().map(|(id, row)| (id, decode(row).expect("a readable row")))
    }
}

/// Names a session: the browser, the user, the key and the name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Which {
    pub browser: usize,
    pub user: usize,
    pub account: usize,
    pub name: String,
}

impl Which {
    pub fn key(&self) -> String {
        format!("keys/{}", self.account)
    }
}

/// A tab with a session.
#[derive(Debug)]
pub struct Holder {
    pub machine: Session,
    pub owner: String,
    pub which: Which,
    pub is_open: bool,
    /// Whether it has or had the session.
    pub has_taken: bool,
    /// Whether it was told that it gets no more places.
    pub is_over: bool,
    /// Whether its take-over was refused for good.
    pub is_refused: bool,
    pub frozen_until_ms: i64,
    pub opened_ms: i64,
    /// When the store has done all that it was asked for so far. It keeps the order.
    pub stored_ms: i64,
    pub wakes_ms: Option<i64>,
    /// The callers that wait in it: the number of each request, by its id.
    pub callers: BTreeMap<String, usize>,
    /// The numbers of its requests, in order.
    pub asked: Vec<usize>,
    /// The paths in the batch of each attempt.
    pub paths: BTreeMap<u64, Option<Vec<String>>>,
    pub tickets: BTreeMap<usize, Ticket>,
}

impl Holder {
    /// Makes the `n`th tab of a run.
    pub fn new(n: usize, which: Which, plan: &Plan, after: Option<i64>, is_framed: bool) -> Self {
        let (owner, user) = (format!("holder-{n}"), crate::tab::USERS[which.user].to_owned());
        let settings = Settings {
            outbox: user.clone(),
            owner: owner.clone(),
            principal: user,
            key: which.key(),
            name: which.name.clone(),
            after,
            take_over_id: format!("take-over-{n}"),
            // A client without an answer is back within the five seconds in which it is suspected.
            retry_interval_ms: plan.retry_interval_ms.min(1_000),
            attempt_timeout_ms: plan.attempt_timeouts_ms[n % 2].min(20_000),
            requests_max: semel_core::client::REQUESTS_MAX,
            is_framed,
            // Two frames may be under way, even if the network changes their order.
            ahead: if is_framed { 1 + n % 2 } else { 0 },
            is_shared: true,
        };
        Self {
            machine: Session::new(settings),
            owner,
            which,
            is_open: true,
            has_taken: false,
            is_over: false,
            is_refused: false,
            frozen_until_ms: 0,
            opened_ms: 0,
            stored_ms: 0,
            wakes_ms: None,
            callers: BTreeMap::new(),
            asked: Vec::new(),
            paths: BTreeMap::new(),
            tickets: BTreeMap::new(),
        }
    }
}
