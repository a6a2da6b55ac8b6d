//! A tab: a client, and what its host has to remember.

use crate::plan::Plan;
use crate::server::PRINCIPAL;
use semel_core::client::{Answer, Client, Settings, Ticket};
use semel_support::Reply;
use std::collections::BTreeMap;

/// A tab.
#[derive(Debug)]
pub struct Tab {
    /// Its client.
    pub client: Client,
    /// Its name in the store.
    pub owner: String,
    /// Its clock, ahead of that of the run.
    pub ahead_ms: i64,
    /// Until then nothing happens in it.
    pub frozen_until_ms: i64,
    /// Whether it is there.
    pub is_open: bool,
    /// Who waits in it, and for what.
    pub callers: BTreeMap<Ticket, usize>,
    /// The instant for which it is to be woken, of the run.
    pub wakes_ms: Option<i64>,
    /// How often each id was sent from it.
    pub sent: BTreeMap<String, u32>,
}

impl Tab {
    /// The `n`th tab of a run.
    pub fn new(n: usize, plan: &Plan, ahead_ms: i64) -> Self {
        let owner = format!("tab-{n}");
        let settings = Settings {
            outbox: "outbox".into(),
            owner: owner.clone(),
            principal: PRINCIPAL.to_owned(),
            retry_interval_ms: plan.retry_interval_ms,
            attempt_timeout_ms: plan.attempt_timeouts_ms[n % 2],
            give_up_after_ms: None,
        };
        Self {
            client: Client::new(settings),
            owner,
            ahead_ms,
            frozen_until_ms: 0,
            is_open: true,
            callers: BTreeMap::new(),
            wakes_ms: None,
            sent: BTreeMap::new(),
        }
    }
}

/// An answer as a host hands it to the client.
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
