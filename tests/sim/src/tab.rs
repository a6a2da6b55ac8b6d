//! A browser, and a tab: a client, with what its host has to remember.

use crate::plan::Plan;
use crate::store::Store;
use crate::wire::Cut;
use semel_core::client::{Answer, Client, Settings};
use semel_support::Reply;
use std::collections::BTreeMap;

/// The users of the browsers.
pub const USERS: [&str; 2] = ["alice", "bob"];

/// A host notices if its clocks drift apart by more than this, in ms.
pub const DRIFT_MS_MAX: i64 = 5_000;

/// Whose token the tabs of a browser send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Login {
    /// Each tab sends its own user's.
    Own,
    /// All tabs send this user's, whoever opened them.
    As(usize),
    /// None is sent.
    Out,
}

/// A browser.
#[derive(Debug)]
pub struct Browser {
    /// The store that its tabs share.
    pub store: Store,
    /// Who is logged in.
    pub login: Login,
    /// Until when it is cut off from the network.
    pub cut: Cut,
    /// Until when its tabs are told that the network is gone.
    pub offline_until_ms: i64,
}

impl Browser {
    /// Makes a new browser.
    pub fn new() -> Self {
        Self { store: Store::default(), login: Login::Own, cut: Cut::default(), offline_until_ms: 0 }
    }
}

impl Default for Browser {
    fn default() -> Self {
        Self::new()
    }
}

/// A caller who waits in a tab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The payload of its request; `None` if it only asks for the answer.
    pub payload: Option<usize>,
    /// Whether it is the call that made the id.
    pub is_first: bool,
    /// Until when it waits, by the clock of the tab.
    pub until_ms: Option<i64>,
}

/// A tab.
#[derive(Debug)]
pub struct Tab {
    /// Its client.
    pub client: Client,
    /// Its name in the store.
    pub owner: String,
    /// The browser that it is in.
    pub browser: usize,
    /// Who opened it.
    pub user: usize,
    /// How far its clock is ahead of the run's, in ms.
    pub ahead_ms: i64,
    /// Until then nothing happens in it, because it is frozen.
    pub frozen_until_ms: i64,
    /// Whether its client was told that the network is gone.
    pub is_offline: bool,
    /// When the store has done all that it was asked for so far. It keeps the order.
    pub stored_ms: i64,
    /// When its clock stopped, if it has.
    pub sleeps_since_ms: Option<i64>,
    /// Whether it is open.
    pub is_open: bool,
    /// After how long its callers no longer wait, in ms.
    pub gives_up_after_ms: Option<i64>,
    /// The callers that wait in it, by the number of their request.
    pub callers: BTreeMap<usize, Vec<Caller>>,
    /// When it has to be woken, by the clock of the run.
    pub wakes_ms: Option<i64>,
    /// How often it sent each id.
    pub sent: BTreeMap<String, u32>,
}

impl Tab {
    /// Makes the `n`th tab of a run.
    pub fn new(n: usize, (browser, user): (usize, usize), plan: &Plan, ahead_ms: i64) -> Self {
        let owner = format!("tab-{n}");
        let settings = Settings {
            outbox: USERS[user].to_owned(),
            owner: owner.clone(),
            principal: USERS[user].to_owned(),
            retry_interval_ms: plan.retry_interval_ms,
            attempt_timeout_ms: plan.attempt_timeouts_ms[n % 2],
            give_up_after_ms: plan.gives_up_after_ms(n),
            requests_max: semel_core::client::REQUESTS_MAX,
            attempts_max: semel_core::client::ATTEMPTS_MAX,
        };
        Self {
            gives_up_after_ms: settings.give_up_after_ms,
            client: Client::new(settings),
            owner,
            browser,
            user,
            ahead_ms,
            frozen_until_ms: 0,
            is_offline: false,
            stored_ms: 0,
            sleeps_since_ms: None,
            is_open: true,
            callers: BTreeMap::new(),
            wakes_ms: None,
            sent: BTreeMap::new(),
        }
    }

    /// Lets a clock of its machine jump. Only the wall clock goes back, and the host notices that. A jump forward may
    /// include the host's own clock, and small ones are not noticed.
    pub fn jump(&mut self, jump_ms: i64) {
        self.ahead_ms += jump_ms.max(0);
        if jump_ms.abs() > DRIFT_MS_MAX {
            self.client.doubt_clock();
        }
    }

    /// Goes on after a freeze. If the clock stood still, the host has noticed that.
    pub fn thaw(&mut self) {
        if let Some(since_ms) = self.sleeps_since_ms.take() {
            self.ahead_ms -= self.frozen_until_ms - since_ms;
            self.client.doubt_clock();
        }
    }
}

/// An answer, as a host gives it to the client.
pub fn answer(reply: &Reply) -> Answer {
    let json = serde_json::from_slice::<serde_json::Map<_, _>>(reply.body()).unwrap_or_default();
    let text = |(name, value): (String, serde_json::Value)| Some((name, value.as_str()?.to_owned()));
    Answer {
        status: reply.status(),
        headers: reply.headers().clone(),
        body: reply.body().to_vec(),
        members: json.into_iter().filter_map(text).collect(),
    }
}

/// An answer that somebody in between makes up: a portal's page, or the refusal of a gateway that knows nothing of the
/// request.
pub fn made_up(is_portal: bool) -> Answer {
    let members = [("code", "overloaded"), ("executed", "no"), ("retry", "never"), ("detail", "try later")];
    if is_portal {
        return Answer { status: 200, body: b"<!doctype html>".to_vec(), ..Answer::default() };
    }
    Answer {
        status: 503,
        headers: [("semel-status", "overloaded")].into_iter().collect(),
        body: b"{}".to_vec(),
        members: members.into_iter().collect(),
    }
}
