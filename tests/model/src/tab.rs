//! A tab: the real client, rebuilt for each step from everything that it was told.
//!
//! Invariant: after the client was told something, the host does at once what the client asks for, so no request of the client is
//! left over.

use crate::history::{Digest, History};
use crate::messages::Message;
use semel_core::client::{Action, Answer, Changed, Client, Draft, Row, Settings, Ticket, codec};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// How far ahead a deadline lies, in ms.
pub const TIMEOUT_MS: i64 = 100_000;
/// The principal of the tabs.
pub const OWNER: &str = "ann";

/// A request that the application makes, and the key that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wish {
    /// The id.
    pub id: &'static str,
    /// The method.
    pub method: &'static str,
    /// The path.
    pub path: &'static str,
    /// The key, which the client learns from answers.
    pub key: &'static str,
    /// Whether it waits for those before it at its key.
    pub is_ordered: bool,
}

impl Wish {
    fn draft(&self) -> Draft {
        let (method, target) = (self.method.to_owned(), self.path.to_owned());
        Draft { method, target, body: self.payload().into_bytes(), ..Draft::default() }
    }

    /// The body.
    pub fn payload(&self) -> String {
        format!("payload of {}", self.id)
    }
}

/// Something that a client is told.
#[derive(Debug, Clone)]
pub enum Told {
    /// The rows that are stored.
    Stored(Vec<(String, Vec<u8>)>),
    /// The application makes a request.
    Wish(Wish),
    /// What became of a row.
    Changed(Ticket, Option<Vec<u8>>),
    /// An answer came.
    Answered(u64, Answer),
    /// No answer will come.
    Lost(u64),
    /// The caller has its answer.
    Delivered(Ticket),
    /// The application gives a request up.
    GivesUp(Ticket),
    /// The application resumes a paused request.
    Resumes(Ticket),
    /// Time has passed.
    Wakes,
}

/// A tab, and what its host remembers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tab {
    owner: String,
    give_up_after_ms: Option<i64>,
    history: History<Told>,
    /// A digest of every field of the client.
    digest: u64,
    /// When the client is to be woken.
    pub wakes_ms: Option<i64>,
    /// The requests in hand.
    pub tickets: BTreeMap<String, Ticket>,
    /// The attempts that may still be answered.
    pub under_way: BTreeMap<u64, Arc<Message>>,
    /// The requests whose answers were handed over, which the client does not know yet.
    pub handed_over: Vec<Ticket>,
    /// The requests that are paused.
    pub paused: Vec<Ticket>,
    /// The ids for which a caller waits in this tab.
    pub callers: Vec<String>,
}

impl Tab {
    /// A tab that was just opened.
    pub fn new(owner: String, give_up_after_ms: Option<i64>) -> Self {
        Self {
            owner,
            give_up_after_ms,
            history: History::default(),
            digest: 0,
            wakes_ms: None,
            tickets: BTreeMap::new(),
            under_way: BTreeMap::new(),
            handed_over: Vec::new(),
            paused: Vec::new(),
            callers: Vec::new(),
        }
    }

    /// The client, rebuilt from everything that it was told.
    pub fn client(&self) -> Client {
        let mut client = Client::new(Settings {
            outbox: "outbox".to_owned(),
            owner: self.owner.clone(),
            principal: OWNER.to_owned(),
            // It sends again at once, because time steps from instant to instant.
            retry_interval_ms: 0,
            attempt_timeout_ms: TIMEOUT_MS,
            give_up_after_ms: self.give_up_after_ms,
            requests_max: semel_core::client::REQUESTS_MAX,
            attempts_max: semel_core::client::ATTEMPTS_MAX,
        });
        for (now_ms, told) in self.history.iter() {
            tell(&mut client, *now_ms, told);
            while client.poll().is_some() {}
        }
        client
    }

    /// Tells the client something, and returns what it asks for.
    pub fn tell(&mut self, client: &mut Client, now_ms: i64, told: Told) -> Vec<Action> {
        tell(client, now_ms, &told);
        self.history.push(now_ms, told);
        let mut digest = Digest::default();
        let actions = std::iter::from_fn(|| client.poll()).collect();
        write!(digest, "{client:?}").expect("a digest takes everything");
        self.digest = digest.finish();
        self.wakes_ms = client.wakes_at();
        self.tickets.retain(|_, ticket| client.describe(*ticket).is_some());
        actions
    }
}

fn tell(client: &mut Client, now_ms: i64, told: &Told) {
    match told {
        Told::Stored(rows) => client.stored(now_ms, rows, None).expect("rows of this version"),
        Told::Wish(wish) => drop(client.request(now_ms, wish.id.to_owned(), wish.draft(), wish.is_ordered)),
        Told::Changed(ticket, row) => client.changed(now_ms, *ticket, Some(changed(row.as_deref()))),
        Told::Answered(attempt, answer) => client.answered(now_ms, *attempt, answer.clone()),
        Told::Lost(attempt) => client.lost(now_ms, *attempt),
        Told::Delivered(ticket) => client.delivered(now_ms, *ticket),
        Told::GivesUp(ticket) => client.give_up(now_ms, *ticket),
        Told::Resumes(ticket) => client.resume(now_ms, *ticket),
        Told::Wakes => client.wake(now_ms),
    }
}

/// What became of a change, in bytes, which can be sent to other threads.
pub fn row_of(changed: Changed) -> Option<Vec<u8>> {
    let row = match changed {
        Changed::Pending(entry) => Row::Pending(entry),
        Changed::Settled(settled) => Row::Settled(settled),
        Changed::Gone => return None,
        Changed::Withdrawn => return Some(Vec::new()),
    };
    Some(codec::encode(&row))
}

fn changed(row: Option<&[u8]>) -> Changed {
    if row.is_some_and(<[u8]>::is_empty) {
        return Changed::Withdrawn;
    }
    match row.map(|row| codec::decode(row).expect("a row of this version")) {
        Some(Row::Pending(entry)) => Changed::Pending(entry),
        Some(Row::Settled(settled)) => Changed::Settled(settled),
        None => Changed::Gone,
    }
}
