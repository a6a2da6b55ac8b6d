//! The oracle of sessions and batches: checks from the outside what must hold.
//!
//! - [`Oracle`]: what it remembers, and what happens with a message
//! - `tables`: what must hold for what a key keeps of its sessions
//! - `starts`: what must hold for the counts of started suspects
//! - `answers`: whether what is said is true
//! - `past`: what a key contains that is put back to a backup
//! - `ending`: what must hold for a run that has ended
//!
//! Invariants:
//! - Its judgement depends on committed effects and tables, on what was on the wire, and on what callers got. It never
//!   asks the code under test.
//! - The elements of a batch are checked in order, each as if those before it had happened.

mod answers;
mod ending;
mod past;
mod starts;
mod tables;

use super::asked::{Aim, Asked, Dealt, Place};
use super::holder::Which;
use super::view::View;
use crate::deposits::outcome;
use crate::oracle::{Got, Violation, violation};
use crate::plan::Plan;
use crate::snapshot::Effect;
use past::OfKey;
pub use past::Past;
use std::collections::{BTreeMap, BTreeSet};

/// What became of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// It ran, with this number.
    Ran(String),
    Cancelled,
    Poisoned,
}

#[derive(Debug, Clone)]
struct Taken {
    epoch: i64,
    what: What,
}

/// A session at a key.
#[derive(Debug, Clone, Default)]
struct Story {
    principal: String,
    current: i64,
    /// The last number that was taken.
    last: i64,
    /// The number up to which holders have acknowledged, each while it was the current one.
    acked: i64,
    /// The places that were taken and are not freed.
    places: BTreeMap<i64, Taken>,
}

/// The number of the request with this id.
fn number_of(id: &str) -> Option<usize> {
    id.trim_start_matches('n').parse().ok()
}

/// A request that a holder makes.
#[derive(Debug, Clone, Default)]
struct Wish {
    key: String,
    /// The session; `None` if nobody asked for it.
    which: Option<Which>,
    tab: usize,
    /// Its position among all calls.
    turn: usize,
    is_stored: bool,
    /// Whether its row went with the storage of its browser.
    is_row_lost: bool,
    is_given_up: bool,
    /// Whether its caller does not wait for long.
    is_impatient: bool,
    got: Vec<Got>,
}

/// The oracle.
pub struct Oracle {
    plan: Plan,
    stories: BTreeMap<(String, String), Story>,
    /// The number that ran under each id, by key and id.
    ids: BTreeMap<(String, String), String>,
    /// The highest epoch that each key ever gave.
    highest: BTreeMap<String, i64>,
    /// The epoch and last number that each take-over gave, by key and id.
    given: BTreeMap<(String, String), (i64, i64)>,
    /// Where and under which name each number ran.
    happened: BTreeMap<String, (String, String)>,
    /// The handler's answer to each number.
    outcomes: BTreeMap<String, (u16, Vec<u8>)>,
    /// The handler's answers to each number whose effect is gone since its key was put back, by key and number.
    undone: OfKey<Vec<(u16, Vec<u8>)>>,
    /// What was said to never run before its key was put back, which may make it void, by key and name.
    never_undone: BTreeSet<(String, String)>,
    /// Whether the handler may have crashed on something of which its key does not know any more.
    has_undone_crashes: bool,
    /// What ran, by key and name.
    ran: BTreeSet<(String, String)>,
    /// What never ran, as was said, by key and name.
    never: BTreeSet<(String, String)>,
    /// How often the handler may have crashed on a request at most, by key and name.
    crashes: BTreeMap<(String, String), u32>,
    /// What was started in an object that died, by key and name, with how often it had crashed before.
    dead: BTreeSet<(String, String, i64)>,
    /// The ids that were acknowledged, by key and id.
    acked: BTreeSet<(String, String)>,
    /// When each key was last put back.
    put_back: BTreeMap<String, i64>,
    wishes: BTreeMap<usize, Wish>,
    has_lost_storage: bool,
    /// What happened at least once.
    pub seen: BTreeSet<String>,
}

impl Oracle {
    /// Makes an oracle for a plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            stories: BTreeMap::new(),
            ids: BTreeMap::new(),
            highest: BTreeMap::new(),
            given: BTreeMap::new(),
            happened: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            undone: BTreeMap::new(),
            never_undone: BTreeSet::new(),
            has_undone_crashes: false,
            ran: BTreeSet::new(),
            never: BTreeSet::new(),
            crashes: BTreeMap::new(),
            dead: BTreeSet::new(),
            acked: BTreeSet::new(),
            put_back: BTreeMap::new(),
            wishes: BTreeMap::new(),
            has_lost_storage: false,
            seen: BTreeSet::new(),
        }
    }

    pub fn see(&mut self, what: impl Into<String>) {
        self.seen.insert(what.into());
    }

    /// Takes note that a browser has lost its storage, with the rows of these ids.
    pub fn lose_storage<'a>(&mut self, ids: impl Iterator<Item = &'a String>) {
        self.has_lost_storage = true;
        for id in ids {
            if let Some(wish) = number_of(id).and_then(|number| self.wishes.get_mut(&number)) {
                wish.is_row_lost = true;
            }
        }
        self.see("session: a store is lost");
    }

    /// Takes note of a request that a holder makes.
    pub fn wish(&mut self, number: usize, which: &Which, tab: usize, is_impatient: bool) {
        let turn = self.wishes.len();
        self.wishes.insert(
            number,
            Wish { key: which.key(), which: Some(which.clone()), tab, turn, is_impatient, ..Wish::default() },
        );
    }

    pub fn given_up(&mut self, number: usize) {
        self.wishes.entry(number).or_default().is_given_up = true;
    }

    /// Takes note that a row was made.
    pub fn stored(&mut self, id: &str) {
        if let Some(wish) = number_of(id).and_then(|number| self.wishes.get_mut(&number)) {
            wish.is_stored = true;
        }
    }

    /// Takes note of the sessions that an administrator had forgotten.
    pub fn forgot(&mut self, key: &str, before: &View, after: &View) {
        for name in before.sessions.keys().filter(|name| !after.sessions.contains_key(*name)) {
            self.see("session: one is forgotten");
            self.stories.remove(&(key.to_owned(), name.clone()));
        }
    }

    fn story(&mut self, key: &str, name: &str) -> Option<&mut Story> {
        self.stories.get_mut(&(key.to_owned(), name.to_owned()))
    }

    /// Checks a message that was handled.
    pub fn dealt(&mut self, dealt: &Dealt) -> Result<(), Violation> {
        self.mark(dealt);
        self.check_departures(dealt)?;
        self.check_starts(dealt)?;
        self.count_crashes(dealt);
        // The acknowledgements of a batch come before its requests.
        self.acked.extend(dealt.acks.iter().map(|id| (dealt.key.clone(), id.clone())));
        let is_unanswered = dealt.replies.is_empty() && dealt.refusal.is_none();
        let mut effects: Vec<&Effect> = dealt.effects.iter().collect();
        for (n, asked) in dealt.asked.iter().enumerate() {
            let code = dealt.replies.get(n).map(|reply| reply.only("semel-status").to_owned());
            self.acknowledge(dealt, asked);
            // A request that is there twice may have run the second time.
            let mut others = dealt.asked.iter().zip(&dealt.replies).skip(n + 1);
            let runs_later =
                others.any(|(other, reply)| other.name() == asked.name() && reply.only("semel-status") == "executed");
            let is_unknown = code.as_deref() == Some("unavailable") && !runs_later;
            let may_run = is_unanswered || is_unknown || code.as_deref() == Some("executed");
            let is_its = |effect: &&Effect| effect.number == asked.number && effect.id == asked.name();
            let its = effects.first().is_some_and(is_its);
            let is_deposit = matches!(asked.aim, Aim::AtPlace(_) | Aim::ById(_));
            let ran = (its && may_run && is_deposit).then(|| effects.remove(0));
            match (ran, code.as_deref()) {
                (Some(effect), _) => {
                    let before = dealt.effects.len() - effects.len();
                    self.took_effect(dealt, asked, effect, dealt.before.ids.effects + before as i64)?;
                }
                (None, Some("executed")) if is_deposit => {
                    let what =
                        format!("{} was told to have run as {}, and it is not there", asked.number, asked.name());
                    return violation("effects", what);
                }
                _ => self.adopt_place(dealt, asked, code.as_deref())?,
            }
            if let Some(reply) = dealt.replies.get(n) {
                self.said(dealt, asked, reply)?;
            }
        }
        if let Some(effect) = effects.first() {
            return violation("order", format!("{effect:?} comes of nothing, or not in its turn"));
        }
        // The sweep comes after the request.
        for name in dealt.before.sessions.keys().filter(|name| !dealt.after.sessions.contains_key(*name)) {
            self.stories.remove(&(dealt.key.clone(), name.clone()));
        }
        self.check_batch(dealt)?;
        self.check_tables(dealt)
    }

    fn mark(&mut self, dealt: &Dealt) {
        if dealt.is_batch {
            let how = if dealt.was_alone { "one by one" } else { "in one commit" };
            self.see(format!("batch: {how}"));
            if dealt.has_crashed {
                self.see(format!("batch: the object dies, {how}"));
            }
            if let Some(refusal) = &dealt.refusal {
                self.see(format!("batch: {}", refusal.only("semel-status")));
            }
        }
        for (asked, reply) in dealt.asked.iter().zip(&dealt.replies) {
            let code = reply.only("semel-status");
            let how = if dealt.is_batch { "of a batch" } else { "alone" };
            match &asked.aim {
                Aim::AtPlace(_) => {
                    let code =
                        if code == "fenced" { format!("fenced, {}", reply.field("executed")) } else { code.into() };
                    self.see(format!("place, {how}: {code}"));
                }
                Aim::Close(_) => {
                    let state = reply.json()["state"].as_str().unwrap_or_default().to_owned();
                    self.see(format!("close: {code} {state}"));
                }
                Aim::TakeOver(..) => self.see(format!("take-over: {code}")),
                Aim::ById(_) => self.see(format!("id, {how}: {code}")),
                Aim::Other => {}
            }
        }
    }

    /// Takes note of an acknowledgement by the current holder.
    fn acknowledge(&mut self, dealt: &Dealt, asked: &Asked) {
        let Aim::AtPlace(place) = &asked.aim else { return };
        if let Some(story) = self.story(&dealt.key, &place.name)
            && story.principal == dealt.principal
            && story.current == place.epoch
        {
            story.acked = story.acked.max(place.ack.min(story.last));
        }
    }

    /// Checks the effect of a request. `count`: the number of the key's effects including it.
    fn took_effect(&mut self, dealt: &Dealt, asked: &Asked, effect: &Effect, count: i64) -> Result<(), Violation> {
        let (number, name) = (&asked.number, asked.name());
        if effect.principal != dealt.principal {
            return violation("principal", format!("{number} ran as {}", effect.principal));
        }
        if !asked.target.starts_with(&format!("/{}/", dealt.key)) {
            return violation("key", format!("{} ran at {}", asked.target, dealt.key));
        }
        let is_by_id = matches!(asked.aim, Aim::ById(_));
        let named = (dealt.key.clone(), name.clone());
        if self.never.contains(&named) {
            return violation("never", format!("{name} ran, of which it was said that it never will"));
        }
        if !self.ran.insert(named.clone()) {
            return violation("twice", format!("{name} ran again"));
        }
        if let Some(before) = self.happened.insert(number.clone(), named.clone()) {
            return violation("twice", format!("{number} ran as {before:?} and as {named:?}"));
        }
        if is_by_id {
            self.ids.insert(named, number.clone());
        }
        self.outcomes.insert(number.clone(), outcome(number, count));
        self.check_order(number)?;
        match &asked.aim {
            Aim::AtPlace(place) => self.took_place(dealt, place, What::Ran(number.clone())),
            _ => Ok(()),
        }
    }

    /// Checks that a place is the current holder's and the next one, and takes it.
    fn took_place(&mut self, dealt: &Dealt, place: &Place, what: What) -> Result<(), Violation> {
        let Place { name, epoch, seq, .. } = place;
        let Some(story) = self.story(&dealt.key, name) else {
            return violation("epoch", format!("{name} is taken at {epoch}/{seq}, and is no session"));
        };
        if story.principal != dealt.principal {
            return violation("stranger", format!("{} takes {epoch}/{seq} of {name}", dealt.principal));
        }
        if *epoch != story.current {
            let kind = if *epoch < story.current { "fenced" } else { "epoch" };
            return violation(kind, format!("{name} is at epoch {}, and {epoch}/{seq} is taken", story.current));
        }
        if *seq != story.last + 1 {
            let kind = if *seq <= story.last { "number" } else { "gap" };
            return violation(kind, format!("{name} is at {}, and {epoch}/{seq} is taken", story.last));
        }
        story.last = *seq;
        let runs_never = !matches!(what, What::Ran(_));
        story.places.insert(*seq, Taken { epoch: *epoch, what });
        if runs_never {
            self.never.insert((dealt.key.clone(), place.named()));
        }
        Ok(())
    }

    /// Checks that no request of a tab runs after one that it made later.
    fn check_order(&mut self, number: &str) -> Result<(), Violation> {
        if !self.plan.has_locks || self.has_lost_storage {
            return Ok(());
        }
        let wish = number.parse::<usize>().ok().and_then(|number| self.wishes.get(&number));
        let Some(Wish { tab, turn, .. }) = wish else { return Ok(()) };
        let later = self.wishes.iter().filter(|(_, wish)| wish.tab == *tab && wish.turn > *turn);
        let mut ran = later.filter(|(number, _)| self.happened.contains_key(&number.to_string()));
        match ran.next() {
            Some((later, _)) => violation("order", format!("{number} ran after {later}, which was asked for later")),
            None => Ok(()),
        }
    }

    /// Checks what must hold for a batch as a whole.
    fn check_batch(&mut self, dealt: &Dealt) -> Result<(), Violation> {
        if !dealt.is_batch {
            return Ok(());
        }
        if let (true, Some(effect)) = (dealt.is_past_token, dealt.effects.first()) {
            return violation("token", format!("{effect:?} came of a frame whose token had ended"));
        }
        if dealt.has_crashed && !dealt.was_alone && !dealt.effects.is_empty() {
            return violation("batch", format!("the object died, and {} effects are there", dealt.effects.len()));
        }
        let is_reserved = dealt.asked.iter().any(|asked| asked.is_reserved);
        if is_reserved && dealt.refusal.is_none() && !dealt.has_crashed {
            return violation("reserved", "a request of a batch had a header that is not for it");
        }
        let is_answered = dealt.refusal.is_none() && !dealt.has_crashed;
        // Only what has ended is acknowledged, and what runs along with the acknowledgement has not.
        let is_recorded = |id: &&String| {
            dealt.before.ids.rows.get(*id).is_some_and(|row| matches!(row.state, "executed" | "poisoned"))
        };
        for id in dealt.acks.iter().filter(is_recorded) {
            let row = dealt.after.ids.rows.get(id).filter(|row| row.principal == dealt.principal && row.is_record());
            if let Some(row) = row.filter(|_| is_answered) {
                return violation("unacknowledged", format!("{id} was acknowledged along with a batch: {row:?}"));
            }
        }
        Ok(())
    }
}
