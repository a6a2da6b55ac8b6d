//! What must hold of a run that has ended.
//!
//! Invariant: it rests on what the application saw and on committed effects, nothing else.

use crate::server::{Message, Server};
use crate::store::Store;
use crate::tab::Tab;
use semel_core::client::Answered;
use semel_support::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// One thing that the application wanted.
#[derive(Debug, Default)]
struct Wish {
    is_stored: bool,
    got: Vec<Answered>,
    /// What the server said whenever it gave the outcome.
    outcomes: BTreeSet<Vec<u8>>,
}

/// What happened, as the application and a reader of the wire saw it.
#[derive(Debug, Default)]
pub struct Story {
    wishes: BTreeMap<usize, Wish>,
    ids: BTreeMap<String, usize>,
    complaints: Vec<String>,
    /// What came about at least once: a run in which nothing happens proves nothing.
    pub seen: BTreeSet<String>,
    /// What the application gave up.
    pub given_up: BTreeSet<usize>,
}

impl Story {
    /// The application wants something.
    pub fn wish(&mut self, number: usize, id: String) {
        self.wishes.insert(number, Wish::default());
        self.ids.insert(id, number);
    }

    /// It is in the store.
    pub fn stored(&mut self, id: &str) {
        let number = self.number_of(id);
        self.of(number).is_stored = true;
    }

    /// What an id stands for.
    pub fn number_of(&self, id: &str) -> usize {
        *self.ids.get(id).expect("an id that the application made")
    }

    /// The server has answered.
    pub fn replied(&mut self, message: &Message, reply: &Reply) {
        let kind = match message.target.strip_prefix("/semel/v1/keys/").and_then(|rest| rest.split_once('/')) {
            Some((_, control)) => control,
            None => "request",
        };
        self.seen.insert(format!("{kind}: {}", reply.only("semel-status")));
        if message.headers.get("semel-ack").is_some() {
            self.seen.insert("ack: ridden".to_owned());
        }
        let is_outcome = matches!(reply.only("semel-status"), "executed" | "replayed");
        if is_outcome && !message.target.starts_with("/semel/") {
            let number = String::from_utf8_lossy(&message.body).parse().expect("a number");
            self.of(number).outcomes.insert(reply.body().to_vec());
        }
    }

    /// The application has got an answer.
    pub fn deliver(&mut self, number: usize, answered: Answered) {
        self.of(number).got.push(answered);
    }

    /// Something came about.
    pub fn see(&mut self, what: &str) {
        self.seen.insert(what.to_owned());
    }

    /// Something happened that must not.
    pub fn complain(&mut self, what: String) {
        self.complaints.push(what);
    }

    fn of(&mut self, number: usize) -> &mut Wish {
        self.wishes.get_mut(&number).expect("a wish of the application")
    }

    /// Checks all of it.
    pub fn check(&self, server: &Server, store: &Store, tabs: &[Tab]) -> Result<(), String> {
        if let Some(complaint) = self.complaints.first() {
            return Err(complaint.clone());
        }
        for (&number, wish) in &self.wishes {
            self.check_wish(number, wish, server.effects_of(number))?;
        }
        for tab in tabs.iter().filter(|tab| tab.is_open) {
            if let Some(number) = tab.callers.values().next() {
                return Err(format!("the caller of {number} in {} still waits", tab.owner));
            }
        }
        match store.unfinished().first() {
            Some(row) => Err(format!("a row is left: {row:?}")),
            None if server.unacknowledged() > 0 => {
                Err(format!("{} outcomes are left unacknowledged", server.unacknowledged()))
            }
            None => Ok(()),
        }
    }

    fn check_wish(&self, number: usize, wish: &Wish, effects: i64) -> Result<(), String> {
        let is_cancelled = |answered: &Answered| matches!(answered, Answered::Failure(f) if f.code == "cancelled");
        if wish.got.iter().any(is_cancelled) {
            let is_honest = effects == 0 && wish.got.iter().all(is_cancelled) && self.given_up.contains(&number);
            return is_honest.then_some(()).ok_or_else(|| format!("{number} ran {effects} times: {:?}", wish.got));
        }
        if !wish.is_stored && wish.got.is_empty() {
            // Its tab closed before it was in the store.
            return (effects == 0).then_some(()).ok_or_else(|| format!("{number} ran {effects} times, never stored"));
        }
        if effects != 1 {
            return Err(format!("{number} ran {effects} times: {:?}", wish.got));
        }
        if wish.outcomes.len() > 1 {
            return Err(format!("{number} had several outcomes: {:?}", wish.outcomes));
        }
        if wish.got.is_empty() {
            return Err(format!("nobody got the answer to {number}"));
        }
        for answered in &wish.got {
            match answered {
                Answered::Outcome(response) if response.status == 201 && wish.outcomes.contains(&response.body) => {}
                answered => return Err(format!("{number} was answered {answered:?}, not {:?}", wish.outcomes)),
            }
        }
        Ok(())
    }
}
