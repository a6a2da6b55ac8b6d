//! The state of the tabs and of everything around them, and the judge of what the clients tell.
//!
//! Invariant: what a client tells is compared with the effects at the key of the request, never with what the client knows.

use crate::ledger::effect_in;
use crate::messages::Message;
use crate::oracle::Oracle;
use crate::properties::{Never, Sometimes, Watched};
use crate::server::Server;
use crate::tab::Tab;
use crate::tables::Effect;
use semel_core::client::Answered;
use semel_core::client::row::is_done;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) instant: usize,
    /// How many messages the tabs have sent.
    pub(crate) sent: u8,
    /// How often each tab was opened.
    pub(crate) opened: Vec<u8>,
    pub(crate) has_given_up: bool,
    pub(crate) rows: BTreeMap<String, Vec<u8>>,
    pub(crate) tabs: Vec<Option<Tab>>,
    pub(crate) messages: BTreeSet<Arc<Message>>,
    pub(crate) servers: BTreeMap<String, Server>,
    /// The ordered requests whose answers were delivered.
    pub(crate) answered: BTreeSet<String>,
    pub(crate) oracle: Oracle,
}

impl Watched for State {
    fn oracle(&self) -> &Oracle {
        &self.oracle
    }
}

impl State {
    /// Whether no row is pending under this id.
    pub(crate) fn may_go(&self, id: &str) -> bool {
        self.rows.get(id).is_none_or(|row| is_done(row))
    }

    /// A row is removed: its key has taken the acknowledgement, or there was never one to take.
    pub(crate) fn forgets(&mut self, id: &str) {
        self.rows.remove(id);
        self.oracle.seen.insert(Sometimes::Forgotten);
        let keeps = |id: &str| self.servers.values().any(|server| server.tables.keeps_outcome(id));
        if keeps(id) || keeps(&format!("cancel-{id}")) {
            self.oracle.broken.insert(Never::Unacknowledged);
        }
    }

    /// A caller, or the receiver of answers that nobody waits for, is told an answer.
    pub(crate) fn tells(&mut self, id: &str, answered: &Answered, key: &str) {
        let effects = effects_at(&self.servers, key);
        match answered {
            Answered::Outcome(response) => {
                self.oracle.watch_outcome(id, effect_in(&response.body), effects);
            }
            Answered::Failure(failure) => self.oracle.watch_claim(id, failure.executed, failure.retry, effects),
        }
    }

    /// A request took effect: those before it must have their effects or their answers.
    pub(crate) fn takes_effect(&mut self, before: &[&str], earlier: &[Effect]) {
        let is_over = |each: &&str| self.answered.contains(*each) || earlier.iter().any(|effect| effect.id == **each);
        if !before.iter().all(is_over) {
            self.oracle.broken.insert(Never::OutOfOrder);
        }
    }

    /// A caller waits no longer. It must have waited.
    pub(crate) fn ends_wait(&mut self, tab: &mut Tab, id: &str) {
        let waited = tab.callers.len();
        tab.callers.retain(|each| each != id);
        if tab.callers.len() == waited {
            self.oracle.broken.insert(Never::ToldTwice);
        }
    }
}

/// The effects at a key.
pub(crate) fn effects_at<'a>(servers: &'a BTreeMap<String, Server>, key: &str) -> &'a [Effect] {
    servers.get(key).map_or(&[], |server| &server.tables.effects)
}
