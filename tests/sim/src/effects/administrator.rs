//! An administrator who looks at the effects of a key, waits for a while, and then has one of those given up, sent
//! again or dropped. Another administrator has a key forget its sessions.
//!
//! Invariants:
//! - The decisions come from another stream of random numbers, so a run without them is as if this module did not
//!   exist.
//! - Messages that are under way to a key while it forgets are lost. Otherwise a take-over that arrived afterwards
//!   would begin a session, and a request that has run and arrived once more would be answered as if it had never been
//!   heard of.
//! - A request without an answer is sent again until there is one, so that in the end it is known what was mended.

use super::bank::key_of;
use super::run::{Event, Run};
use crate::mutant::{Mutant, Twin};
use semel_core::server::Value;
use semel_core::server::effects::{Heard, Sending};
use semel_support::{START_MS, post};
use std::collections::BTreeSet;

/// The longest time between a look and the request that follows from it, in ms.
const THINKS_MS_MAX: i64 = 5_000;

/// The first effect of each lane.
const FIRSTS: &str = "SELECT lane, id, coalesce(json_extract(CAST(body AS TEXT), '$.name'), id) FROM semel_effects AS one \
                      WHERE seq = (SELECT min(seq) FROM semel_effects WHERE lane = one.lane) ORDER BY lane";
const PARKED: &str = "SELECT number, id, coalesce(json_extract(CAST(body AS TEXT), '$.name'), id) FROM semel_effects_parked ORDER BY number";

/// What to do with an effect.
#[derive(Debug, Clone)]
pub struct Mending {
    account: usize,
    what: &'static str,
    /// The number of the lane, or of the parked effect.
    place: i64,
    id: String,
    name: String,
}

/// The names of the effects that were mended; for calls, which have no name, the ids.
#[derive(Debug, Default)]
pub struct Mended {
    pub given_up: BTreeSet<String>,
    pub again: BTreeSet<String>,
    pub dropped: BTreeSet<String>,
    /// The calls that were dropped, each with its key.
    pub dropped_calls: Vec<(usize, String)>,
}

impl Run {
    pub(super) fn set_up_administrator(&mut self) {
        for _ in 0..self.options.administrations {
            let at_ms = self.mending.i64(0..self.options.busy_ms * 3);
            self.push(at_ms, Event::Administer);
        }
        for _ in 0..self.options.forgets {
            let at_ms = self.forgetting.i64(0..self.options.busy_ms * 2);
            let account = self.forgetting.usize(0..self.options.accounts);
            self.push(at_ms, Event::Forget(account));
        }
    }

    /// Loses what is on its way to a key, except for what comes again and nobody waits for.
    pub(super) fn lose_on_their_way_to(&mut self, account: usize) {
        let on_its_way: Vec<(i64, u64)> = {
            let is_to = |sending: &Sending| {
                sending.key.as_ref().is_some_and(|key| key.as_str() == key_of(&account.to_string()))
            };
            // A credit that arrives again, and whose answer nobody waits for, may still arrive.
            let is_lost =
                |from: &Option<(usize, u32)>, sending: &Sending| from.is_some() || sending.url.ends_with("/sessions");
            let is_chosen = |event: &Event| matches!(event, Event::Arrival(from, sending) if is_to(sending) && is_lost(from, sending));
            self.queue.iter().filter(|(_, event)| is_chosen(event)).map(|(at, _)| *at).collect()
        };
        for at in on_its_way {
            if let Some(Event::Arrival(Some((from, life)), sending)) = self.queue.remove(&at) {
                self.lose(from, life, sending);
            }
        }
    }

    /// Lets a key forget what was last used before this second.
    pub(super) fn forget(&mut self, account: usize) {
        self.lose_on_their_way_to(account);
        let before_s = (START_MS + self.now_ms) / 1000;
        self.world(account).forget(before_s).expect("storage that does not fail");
        self.has_forgotten = true;
        self.see("an administrator has a key forget");
        self.note(|| format!("{account}: an administrator has it forget"));
    }

    /// Looks at a key.
    pub(super) fn administer(&mut self) {
        let account = self.mending.usize(0..self.options.accounts);
        let what = ["park", "park", "retry", "retry", "drop"][self.mending.usize(0..5)];
        let seen = self.places(account, what);
        if seen.is_empty() {
            return;
        }
        let (place, id, name) = seen[self.mending.usize(0..seen.len())].clone();
        self.note(|| format!("{account}: an administrator sees {name}, to {what} it"));
        self.mendings.push(Mending { account, what, place, id, name });
        let after_ms = self.mending.i64(0..=THINKS_MS_MAX);
        self.push(self.now_ms + after_ms, Event::Mend(self.mendings.len() - 1, true));
    }

    /// The effects that can be given up or mended: the place, id and name of each.
    fn places(&self, account: usize, what: &str) -> Vec<(i64, String, String)> {
        let rows = self.keys[account].world.database.query(if what == "park" { FIRSTS } else { PARKED });
        let text = |value: &Value| value.clone().into_text().unwrap_or_default();
        rows.iter().map(|row| (row[0].as_integer().unwrap_or(0), text(&row[1]), text(&row[2]))).collect()
    }

    /// Makes the request.
    pub(super) fn mend(&mut self, number: usize, is_first: bool) {
        let Mending { account, what, place, id, name } = self.mendings[number].clone();
        if is_first && self.mutant == Some(Mutant::Twin(Twin::MendedByPlace)) {
            let there = self.places(account, what).into_iter().find(|(at, ..)| *at == place);
            self.mendings[number].id = there.map_or(id.clone(), |(_, id, _)| id);
        }
        let seen_id = id;
        let id = &self.mendings[number].id;
        let path = format!("/semel/v1/admin/keys/accounts%2F{account}/effects/{id}/{what}");
        let call = post(&path).id(&format!("m{number}")).by("semel:admin");
        let heard = self.ask(account, &call);
        self.note(|| format!("{account}: an administrator has {name} {what}: {heard:?}"));
        match heard {
            Some(Heard::Answered { status: 200, .. }) => {
                let (names, seen) = match what {
                    "park" => (&mut self.mended.given_up, "is given up"),
                    "retry" => (&mut self.mended.again, "is sent again"),
                    _ => (&mut self.mended.dropped, "is dropped"),
                };
                names.insert(name.clone());
                if what == "drop" && name == seen_id {
                    self.mended.dropped_calls.push((account, name));
                }
                self.see(seen);
            }
            Some(Heard::Answered { status: 404, .. }) => self.see("what is to be mended is not there any more"),
            _ => self.push(self.now_ms + super::run::AGAIN_MS, Event::Mend(number, false)),
        }
    }
}
