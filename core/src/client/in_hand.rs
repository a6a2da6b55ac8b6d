//! A request in hand: one that this client sends, waits for, or hands the answer of to its caller.
//!
//! Invariant: a request is in one stage at a time, and each stage ends by a report of the host or at an instant.

use super::action::{Action, Receiver, Ticket};
use super::failure::{ClientCode, Failure};
use super::request::{Aim, path_of};
use super::row::{Answered, Change, Entry};
use crate::rules::{Rule, holds};
use std::rc::Rc;

/// The stage of a request.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its row is being stored for the first time.
    Adding,
    /// Another tab sends it. `due_ms`: when its row is looked at next; `None` while it is being looked at.
    Watching {
        due_ms: Option<i64>,
    },
    /// Its row is being taken over from its owner.
    Adopting {
        is_shared: bool,
    },
    /// The store failed to take it over. It is tried again at `due_ms`.
    Unadopted {
        due_ms: i64,
        is_shared: bool,
    },
    /// It waits for its turn, for `due_ms`, or for a free place among the attempts.
    Waiting {
        due_ms: i64,
    },
    /// The transaction before an attempt is under way.
    Raising {
        aim: Aim,
        deadline_ms: i64,
    },
    /// This attempt is under way.
    Sending(u64),
    /// It was given up, and its row is being taken back, since no attempt left.
    Withdrawing,
    Paused,
    /// The key gave a failure. The row is being looked at, in case another tab kept an outcome there.
    Looking(Failure),
    Delivering(Rc<Answered>),
    Settling(Rc<Answered>),
    /// The store failed to settle it. It is tried again at `due_ms`.
    Unsettled {
        due_ms: i64,
        answered: Rc<Answered>,
    },
}

/// A request in hand.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: String,
    pub(super) entry: Entry,
    pub(super) stage: Stage,
    /// Whether its row may still be pending and this tab's own. If so, it is settled once the answer is delivered.
    pub(super) is_stored: bool,
    pub(super) has_caller: bool,
    /// When the caller is told that it need not wait any longer.
    pub(super) gives_up_ms: Option<i64>,
    pub(super) attempts: u32,
    /// The key, or the best guess.
    pub(super) key: Option<String>,
    /// What the next attempt asks for once the request was given up. [`Aim::Cancel`] needs a certain key: one that the
    /// application named, or that answered this very request. A cancellation at a guessed key would prove nothing. If
    /// an answer to the cancellation settles nothing, the request itself is asked for next, by [`Aim::Probe`]. If this
    /// is [`Aim::Probe`] when the row is settled, nothing is acknowledged.
    pub(super) ends_by: Aim,
    /// Whether the application gave it up, so that its key is asked to cancel it.
    pub(super) is_cancelling: bool,
    /// The server asked for no attempt before this instant. For a request of another tab: until then it is left to that
    /// tab.
    pub(super) not_before_ms: i64,
}

/// Where a request goes, as far as is known, as two hashes. The first is of the key. The second is of what the request
/// itself says: the key that the application named, or else the path. Both are needed, since an answer tells the key to
/// one request and not to others of the same path. If the key is not known, both are of the path.
///
/// These are hashes because each lane is compared with many. If two happen to be equal, one request waits for another
/// without need, and nothing worse happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane(pub(super) u64, pub(super) u64);

impl Lane {
    /// Whether a request in the other lane may go to the same key.
    pub(super) fn meets(self, other: Self) -> bool {
        self.0 == other.0 || self.1 == other.1
    }
}

/// FNV-1a with the lowest bit set, so that it is never 0, which marks a free place.
#[inline(never)]
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)) | 1
}

/// A set of hashes, to find one in constant time. Written by hand, because the standard library's table would be as
/// large as all the code that uses this one.
#[derive(Debug)]
pub(super) struct Seen(Vec<u64>);

impl Seen {
    /// Makes room for `count` hashes. At least as many places stay free, so that each search ends soon.
    pub(super) fn new(count: usize) -> Self {
        Self(vec![0; (2 * count + 1).next_power_of_two()])
    }

    /// Adds a hash. Returns whether it was not there before.
    pub(super) fn is_new(&mut self, hash: u64) -> bool {
        let place = self.place(hash);
        self.0.get_mut(place).is_some_and(|found| std::mem::replace(found, hash) == 0)
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        self.0.get(self.place(hash)) == Some(&hash)
    }

    /// Removes a hash. Returns whether it was there.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        let place = self.place(hash);
        // The place must not become 0, which would end the search for other hashes.
        self.0.get_mut(place).is_some_and(|found| std::mem::replace(found, *found & !1) == hash)
    }

    /// The place where the hash is, or would be.
    fn place(&self, hash: u64) -> usize {
        // The lowest bit is the same for all hashes.
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

    /// Tells the caller that it need not wait any longer.
    pub(super) fn release(&self, actions: &mut Vec<Action>) {
        actions.push(Action::GiveUp { id: self.id.clone(), failure: ClientCode::GaveUp.into() });
    }

    /// Marks the row as shared and looks at it, since the row's owner sends the request.
    pub(super) fn watch(&mut self, actions: &mut Vec<Action>, ticket: Ticket, outbox: &str) {
        self.stage = Stage::Watching { due_ms: None };
        self.is_stored = false;
        actions.push(Action::Change {
            ticket,
            id: self.id.clone(),
            change: Change::Join { outbox: outbox.to_owned() },
        });
    }

    /// Whether the request was given up before any attempt left, as far as this tab knows. Then no key need be asked.
    pub(super) fn may_withdraw(&self) -> bool {
        self.is_cancelling && (self.entry.until_ms.is_none() || !holds(Rule::UnsentWithdrawn))
    }

    pub(super) fn withdraw(&mut self, actions: &mut Vec<Action>, ticket: Ticket) {
        self.stage = Stage::Withdrawing;
        actions.push(Action::Change { ticket, id: self.id.clone(), change: Change::Withdraw });
    }

    /// Continues the request if it pauses.
    pub(super) fn resume(&mut self, now_ms: i64) {
        if matches!(self.stage, Stage::Paused) {
            self.stage = Stage::Waiting { due_ms: self.not_before_ms.max(now_ms) };
        }
    }

    /// Whether another tab sends it.
    pub(super) fn is_watched(&self) -> bool {
        matches!(self.stage, Stage::Watching { .. })
    }

    /// Whether a caller waits here for a request of another tab, which has sent it but makes no attempt any more. That
    /// tab may be frozen, or it has the answer and nobody there takes it. A request that has left once need not wait
    /// for its turn.
    pub(super) fn is_neglected(&self, now_ms: i64) -> bool {
        self.has_caller && self.entry.until_ms.is_some() && self.not_before_ms <= now_ms
    }

    /// Whether the payload is known. It is not for a request of another tab whose row was not looked at yet.
    pub(super) fn is_known(&self) -> bool {
        !self.is_watched() || !self.entry.owner.is_empty()
    }

    /// Whether this row may be the row of this request, and not of another request that was made anew under the same
    /// id.
    pub(super) fn may_be(&self, entry: &Entry) -> bool {
        self.entry.owner.is_empty() || self.entry.draft == entry.draft
    }

    /// Takes the request over from the owner that its row names.
    pub(super) fn adopt(&mut self, actions: &mut Vec<Action>, ticket: Ticket, by: &str, is_shared: bool) {
        let change = Change::Adopt { by: by.to_owned(), from: self.entry.owner.clone(), is_shared };
        actions.push(Action::Change { ticket, id: self.id.clone(), change });
        self.stage = Stage::Adopting { is_shared };
        self.is_stored = true;
    }

    /// Whether this tab sends it, and it has no answer yet.
    #[inline(never)]
    pub(super) fn is_open(&self) -> bool {
        !self.is_watched() && !self.has_answer()
    }

    pub(super) fn has_answer(&self) -> bool {
        matches!(self.stage, Stage::Delivering(_) | Stage::Settling(_) | Stage::Unsettled { .. })
    }

    /// When its row is looked at again, or when the step that the store failed to do is tried again.
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

    /// The lane of the request. Only requests in a lane that meets it can have to come before it.
    pub(super) fn lane(&self) -> Lane {
        let draft = &self.entry.draft;
        let asked = hash(draft.key.as_deref().unwrap_or_else(|| path_of(&draft.target)).as_bytes());
        Lane(self.key.as_ref().map_or(asked, |key| hash(key.as_bytes())), asked)
    }

    /// Whether it waits for earlier requests in its lane. A request that was given up waits for none.
    pub(super) fn is_waiting_for_turn(&self) -> bool {
        self.is_waited_for() && !self.is_cancelling && holds(Rule::Ordered)
    }

    /// Whether later requests in its lane wait for it. They do until it has its answer, since it may run until then.
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

/// A pending request, for the application to show.
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
