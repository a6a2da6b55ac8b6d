//! A request in hand.
//!
//! Invariant: it is in one stage at a time, and every stage ends by a report of the host or by time.

use super::action::{Action, Receiver, Ticket};
use super::failure::{ClientCode, Failure};
use super::request::{Aim, path_of};
use super::row::{Answered, Change, Entry};
use crate::rules::{Rule, holds};
use std::rc::Rc;

/// Where a request stands.
#[derive(Debug)]
pub(super) enum Stage {
    Adding,
    /// Another tab sees to it. When its row is looked at next; `None`: now.
    Watching {
        due_ms: Option<i64>,
    },
    Adopting {
        is_shared: bool,
    },
    /// The store failed; it is adopted once more.
    Unadopted {
        due_ms: i64,
        is_shared: bool,
    },
    /// For its turn, its time, or a free place.
    Waiting {
        due_ms: i64,
    },
    Raising {
        aim: Aim,
        deadline_ms: i64,
    },
    /// By this attempt.
    Sending(u64),
    Withdrawing,
    Paused,
    /// Whether another tab kept an outcome, before a failure is delivered.
    Looking(Failure),
    Delivering(Rc<Answered>),
    Settling(Rc<Answered>),
    /// The store failed; it is settled once more.
    Unsettled {
        due_ms: i64,
        answered: Rc<Answered>,
    },
}

/// The request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) entry: Entry,
    pub(super) stage: Stage,
    /// Whether its row may still be pending and its own, so that it is settled once it is delivered.
    pub(super) is_stored: bool,
    pub(super) has_caller: bool,
    pub(super) gives_up_ms: Option<i64>,
    pub(super) attempts: u32,
    /// The key, as far as it can be guessed.
    pub(super) key: Option<String>,
    /// What is asked for next, to end what was given up. To cancel at a key that is a guess would prove nothing: it is none where the application
    /// named it, or where it answered this very request, and not its cancellation since.
    pub(super) ends_by: Aim,
    /// Whether the application gave it up, so that its key is asked to cancel it.
    pub(super) is_cancelling: bool,
    /// The server asked for no attempt before. What another tab sees to is left to that one until then.
    pub(super) not_before_ms: i64,
}

/// Where a request goes, as far as is known: the key, and the key as the application names it, or else the path, for an answer tells the key to one
/// request, and not to those like it. Hashes, for each is compared with many: two that happen to be the same make one request wait for another in
/// vain, and that is all. Where the key is not known, it is the path twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane(pub(super) u64, pub(super) u64);

impl Lane {
    /// Whether another may go to the same key.
    pub(super) fn meets(self, other: Self) -> bool {
        self.0 == other.0 || self.1 == other.1
    }
}

/// FNV-1a, and never 0, which stands for nothing.
#[inline(never)]
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)) | 1
}

/// Hashes that were seen: to find one takes as long however many there are. By hand: the standard library's table is as large as all that is done with it.
#[derive(Debug)]
pub(super) struct Seen(Vec<u64>);

impl Seen {
    /// With room for so many; the other half of its places stays free, so each search ends soon.
    pub(super) fn new(count: usize) -> Self {
        Self(vec![0; (2 * count + 1).next_power_of_two()])
    }

    /// Whether it was not seen before; now it was.
    pub(super) fn is_new(&mut self, hash: u64) -> bool {
        let place = self.place(hash);
        self.0.get_mut(place).is_some_and(|found| std::mem::replace(found, hash) == 0)
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        self.0.get(self.place(hash)) == Some(&hash)
    }

    /// Whether it was seen; now it was not.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        let place = self.place(hash);
        // Not 0, which would end the search for others.
        self.0.get_mut(place).is_some_and(|found| std::mem::replace(found, *found & !1) == hash)
    }

    /// Where it is, or would be.
    fn place(&self, hash: u64) -> usize {
        // The lowest bit is always set.
        let mut place = (hash >> 1) as usize;
        loop {
            place &= self.0.len() - 1;
            match self.0.get(place) {
                Some(found) if *found != 0 && *found != hash => place += 1,
                _ => return place,
            }
        }
    }
}

impl Request {
    pub(super) fn deliver(&mut self, actions: &mut Vec<Action>, ticket: Ticket, answered: Rc<Answered>) {
        let to = if self.has_caller { Receiver::Caller } else { Receiver::Recovered };
        actions.push(Action::Deliver { ticket, to, answered: answered.clone() });
        self.stage = Stage::Delivering(answered);
    }

    pub(super) fn fail(&mut self, actions: &mut Vec<Action>, ticket: Ticket, failure: Failure) {
        self.deliver(actions, ticket, Rc::new(Answered::Failure(failure)));
    }

    /// Tells its caller not to wait.
    pub(super) fn release(&self, actions: &mut Vec<Action>) {
        actions.push(Action::GiveUp { id: self.id.clone(), failure: ClientCode::GaveUp.into() });
    }

    /// Joins who waits for it at its owner.
    pub(super) fn watch(&mut self, actions: &mut Vec<Action>, ticket: Ticket, outbox: &str) {
        self.stage = Stage::Watching { due_ms: None };
        self.is_stored = false;
        actions.push(Action::Change {
            ticket,
            id: self.id.clone(),
            change: Change::Join { outbox: outbox.to_owned() },
        });
    }

    /// Whether it was given up before an attempt left, as far as is known: then nobody need be asked.
    pub(super) fn may_withdraw(&self) -> bool {
        self.is_cancelling && (self.entry.until_ms.is_none() || !holds(Rule::UnsentWithdrawn))
    }

    pub(super) fn withdraw(&mut self, actions: &mut Vec<Action>, ticket: Ticket) {
        self.stage = Stage::Withdrawing;
        actions.push(Action::Change { ticket, id: self.id.clone(), change: Change::Withdraw });
    }

    /// Goes on if it pauses.
    pub(super) fn resume(&mut self, now_ms: i64) {
        if matches!(self.stage, Stage::Paused) {
            self.stage = Stage::Waiting { due_ms: self.not_before_ms.max(now_ms) };
        }
    }

    /// Whether another tab sees to it.
    pub(super) fn is_watched(&self) -> bool {
        matches!(self.stage, Stage::Watching { .. })
    }

    /// Whether somebody waits here for what another tab has sent, and sends no more: it is frozen, say, or has the answer, and nobody there takes
    /// it. What has left once waits for no turn.
    pub(super) fn is_neglected(&self, now_ms: i64) -> bool {
        self.has_caller && self.entry.until_ms.is_some() && self.not_before_ms <= now_ms
    }

    /// Whether it is known what it is: all but that of another tab whose row was not looked at yet.
    pub(super) fn is_known(&self) -> bool {
        !self.is_watched() || !self.entry.owner.is_empty()
    }

    /// Whether a row may be that of what is waited for, and not of what was made anew under its id.
    pub(super) fn may_be(&self, entry: &Entry) -> bool {
        self.entry.owner.is_empty() || self.entry.draft == entry.draft
    }

    /// Takes it over from its owner, as its row names it.
    pub(super) fn adopt(&mut self, actions: &mut Vec<Action>, ticket: Ticket, by: &str, is_shared: bool) {
        let change = Change::Adopt { by: by.to_owned(), from: self.entry.owner.clone(), is_shared };
        actions.push(Action::Change { ticket, id: self.id.clone(), change });
        self.stage = Stage::Adopting { is_shared };
        self.is_stored = true;
    }

    /// Whether it is seen to here, and has no answer yet.
    #[inline(never)]
    pub(super) fn is_open(&self) -> bool {
        !self.is_watched() && !self.has_answer()
    }

    pub(super) fn has_answer(&self) -> bool {
        matches!(self.stage, Stage::Delivering(_) | Stage::Settling(_) | Stage::Unsettled { .. })
    }

    /// When its row is looked at once more, or what the store failed to do is done again.
    pub(super) fn again_ms(&self) -> Option<i64> {
        match self.stage {
            Stage::Unsettled { due_ms, .. } | Stage::Unadopted { due_ms, .. } => Some(due_ms),
            Stage::Watching { due_ms } => due_ms,
            _ => None,
        }
    }

    /// Whether a caller still waits for an answer that isn't there yet.
    pub(super) fn may_give_up(&self) -> bool {
        self.has_caller && !self.has_answer()
    }

    /// Those that must come before it are of the same lane.
    pub(super) fn lane(&self) -> Lane {
        let draft = &self.entry.draft;
        let asked = hash(draft.key.as_deref().unwrap_or_else(|| path_of(&draft.target)).as_bytes());
        Lane(self.key.as_ref().map_or(asked, |key| hash(key.as_bytes())), asked)
    }

    /// Whether it waits for those before it in its lane. One that is given up waits for none.
    pub(super) fn is_waiting_for_turn(&self) -> bool {
        self.is_waited_for() && !self.is_cancelling && holds(Rule::Ordered)
    }

    /// Whether those after it wait for it: until it has its answer, for it may run until then.
    pub(super) fn is_waited_for(&self) -> bool {
        self.entry.place.is_some() && self.is_open()
    }

    pub(super) fn state(&self) -> &'static str {
        match self.stage {
            Stage::Watching { .. } => "elsewhere",
            Stage::Paused => "paused",
            _ if self.has_answer() => "answered",
            _ => "sending",
        }
    }
}

/// A pending request, for who asks what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// The id.
    pub id: String,
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// How often this client has sent it.
    pub attempts: u32,
    /// `sending`, `paused`, `answered` or `elsewhere`.
    pub state: &'static str,
}
