//! The machine: it takes what happened, and says what to do.
//!
//! Invariants, besides those of [`super`]:
//! - A server's answer that is not definitive never reaches the caller, unless the application gave the request up.
//! - A report about something that is no longer in hand changes nothing.

use super::acknowledgements::{Acknowledgements, REFUSED, mark};
use super::action::{Action, Answer, Receiver, Ticket};
use super::clock::ServerClock;
use super::failure::ClientCode;
use super::in_hand::{Request, Seen, Stage, hash};
use super::numbered::Numbered;
use super::request::Aim;
use super::row::{Change, Changed, Draft, Entry, Row, Unreadable};
use super::verdict::{self, Sent};
use super::{ACK_RIDE_MS, PENDING_BYTES_MAX, codec};
use crate::header;
use crate::text::{decimal, joined};
use std::rc::Rc;

/// How a client is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Names the worker and the identity. Of all rows of a store, this client touches only those with this name.
    pub outbox: String,
    /// Names this tab or process among those that share the store.
    pub owner: String,
    /// The principal under whom the requests are made; empty if none is named.
    pub principal: String,
    /// The pause between two attempts, in ms.
    pub retry_interval_ms: i64,
    /// How long an attempt may take, in ms, and how far ahead its deadline is.
    pub attempt_timeout_ms: i64,
    /// After how long a caller is told that it need not wait, in ms. `None`: never.
    pub give_up_after_ms: Option<i64>,
    /// Requests in hand at most. Beyond that, no more are taken.
    pub requests_max: usize,
    /// Attempts under way at once. Further requests that are due wait until an attempt ends.
    pub attempts_max: usize,
}

/// What an attempt is for.
#[derive(Debug)]
pub(super) enum Purpose {
    Request { ticket: Ticket, aim: Aim, sent: Sent },
    Health,
    Acknowledge,
}

/// An attempt under way.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) purpose: Purpose,
    pub(super) ends_ms: i64,
}

/// The client of one worker under one identity.
#[derive(Debug)]
pub struct Client {
    pub(super) settings: Settings,
    pub(super) clock: ServerClock,
    pub(super) requests: Numbered<Request>,
    pub(super) attempts: Numbered<InFlight>,
    pub(super) acks: Acknowledgements,
    pub(super) keys_of_paths: Vec<(String, String)>,
    pub(super) actions: Vec<Action>,
    /// The actions that [`Self::poll`] gives next. They are apart from `actions`, so that taking one moves no other.
    polled: std::vec::IntoIter<Action>,
    pub(super) last_ticket: Ticket,
    /// The highest place in the order of calls of all requests that were ever in hand.
    pub(super) last_place: i64,
    pub(super) last_attempt: u64,
    pub(super) is_offline: bool,
    pub(super) health_due_ms: i64,
    /// The ids of rows that only keep an answer, each with when it was settled, in Unix s.
    pub(super) kept: Vec<(String, i64)>,
}

impl Client {
    /// Makes a client with nothing in hand.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            clock: ServerClock::default(),
            requests: Numbered::new(),
            attempts: Numbered::new(),
            acks: Acknowledgements::default(),
            keys_of_paths: Vec::new(),
            actions: Vec::new(),
            polled: Default::default(),
            last_ticket: 0,
            last_place: 0,
            last_attempt: 0,
            is_offline: false,
            health_due_ms: i64::MIN,
            kept: Vec::new(),
        }
    }

    /// The next action, if there is one.
    pub fn poll(&mut self) -> Option<Action> {
        if self.polled.as_slice().is_empty() {
            self.polled = std::mem::take(&mut self.actions).into_iter();
        }
        self.polled.next()
    }

    /// Takes over what is stored. The host calls this at the start, and when an owner has gone. `lives`: whether an
    /// owner certainly lives; `None` if nobody can tell.
    pub fn stored(
        &mut self,
        now_ms: i64,
        rows: &[(String, Vec<u8>)],
        lives: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<(), Unreadable> {
        // All or nothing: if a row can't be read, no request is sent, since that row may hold an earlier one.
        let mut marks = Seen::new(rows.len());
        for (id, bytes) in rows {
            marks.is_new(mark(id, codec::decode(bytes)?.until_ms()));
        }
        self.kept.clear();
        self.acks.keep(&mut marks);
        // The pending rows to take over, by their place.
        let mut left = Numbered::<(&String, Entry)>::new();
        for (id, bytes) in rows {
            match codec::decode(bytes)? {
                Row::Pending(entry) if entry.outbox == self.settings.outbox => {
                    let place = entry.place.unwrap_or_default();
                    self.last_place = self.last_place.max(place);
                    if self.in_hand(id).is_none_or(|(_, own)| own.is_watched()) {
                        left.insert(place as u64, (id, entry));
                    }
                }
                Row::Settled(settled) if settled.outbox != self.settings.outbox => {}
                Row::Settled(settled) if !settled.is_to_acknowledge() => self.kept.push((id.clone(), settled.at_s)),
                // If two acknowledgements happen to have the same mark, the second is added at a later call.
                Row::Settled(settled) if marks.take(mark(id, settled.until_ms)) => self.acks.add(id, settled, now_ms),
                _ => {}
            }
        }
        // From the last to the first, so that the requests before one that is taken over are taken over too: it has to
        // wait for them.
        let mut taken = Vec::<(&String, &Entry, bool)>::new();
        for (_, (id, entry)) in left.iter().rev() {
            // A row of this tab's own that is not in hand is one that the store called lost but has after all. No other
            // tab sends it as long as this one lives.
            let is_lost = entry.owner == self.settings.owner;
            let has_owner = !is_lost && lives.is_some_and(|lives| lives(&entry.owner));
            if !has_owner || taken.iter().any(|(_, later, _)| later.comes_after(entry)) {
                taken.push((id, entry, lives.is_none() || has_owner));
            }
        }
        while let Some((id, entry, is_shared)) = taken.pop() {
            self.adopt(now_ms, id, entry.clone(), is_shared);
        }
        self.advance(now_ms);
        Ok(())
    }

    /// Takes a request in hand, and asks for its row to be stored. `is_ordered`: whether it waits for the requests
    /// before it at its key. If the id is in hand already with the same payload, the caller joins those who wait.
    /// `None` if the id is another request's.
    pub fn request(&mut self, now_ms: i64, id: String, draft: Draft, is_ordered: bool) -> Option<Ticket> {
        let gives_up_ms = self.settings.give_up_after_ms.map(|after_ms| now_ms.saturating_add(after_ms));
        if let Some((ticket, request)) = self.in_hand(&id) {
            // For a request of another tab, the payload is known once its row was looked at.
            if request.is_known() {
                if *request.entry.draft != draft {
                    return None;
                }
                self.with(ticket, |request, _| request.gives_up_ms = request.gives_up_ms.or(gives_up_ms));
                return Some(self.join(ticket));
            }
            self.requests.remove(&ticket);
        }
        let bytes: usize = self.requests.values().map(|request| request.entry.draft.body.len()).sum();
        let is_full =
            self.requests.len() >= self.settings.requests_max || bytes > PENDING_BYTES_MAX || self.acks.is_full();
        let key = draft.key.clone().or_else(|| self.guessed_key(&draft.target));
        let (outbox, owner) = (self.settings.outbox.clone(), self.settings.owner.clone());
        let maker = joined(&[&owner, " ", &decimal(hash(&draft.laid_out()) as i64)]);
        let entry = Entry { draft: Rc::new(draft), outbox, maker, owner, ..Entry::default() };
        let ticket = self.insert(id, entry, Stage::Adding);
        // A place is this high only in a damaged row.
        self.last_place = self.last_place.saturating_add(1);
        let place = is_ordered.then_some(self.last_place);
        self.with(ticket, |request, _| {
            request.entry.place = place;
            request.has_caller = true;
            request.gives_up_ms = gives_up_ms;
            request.key = key;
        });
        let leaves_ms = self.requests.get(&ticket).filter(|request| self.may_leave(ticket, request));
        let leaves_ms = leaves_ms.and_then(|request| self.clock.at(request.key.as_deref(), now_ms));
        let attempt_timeout_ms = self.settings.attempt_timeout_ms;
        self.with(ticket, |request, actions| {
            if let Some(at_ms) = leaves_ms {
                // The first attempt follows at once, so the same transaction stores its `until`.
                request.entry.first_sent_s = Some(at_ms.div_euclid(1000));
                request.entry.until_ms = Some(at_ms + attempt_timeout_ms);
            }
            if is_full {
                request.is_stored = false;
                request.fail(actions, ticket, ClientCode::OutboxFull.into());
            } else {
                let change = Change::Add(request.entry.clone());
                actions.push(Action::Change { ticket, id: request.id.clone(), change });
            }
        });
        Some(ticket)
    }

    /// Asks for the answer to a request that was made before, here or in another tab.
    pub fn watch(&mut self, id: String) -> Ticket {
        if let Some((ticket, _)) = self.in_hand(&id) {
            return self.join(ticket);
        }
        let ticket = self.insert(id, Entry::default(), Stage::Watching { due_ms: None });
        self.with(ticket, |request, _| request.has_caller = true);
        self.ask_to_watch(ticket);
        ticket
    }

    /// The request in hand with this id.
    pub fn ticket_of(&self, id: &str) -> Option<Ticket> {
        self.in_hand(id).map(|(ticket, _)| ticket)
    }

    /// The maker whose row an [`Action::Change`] of this request may change; a row of another maker is left alone.
    /// Empty if any maker's row will do: the maker is not known yet, or the change adds the row.
    pub fn maker_of(&self, ticket: Ticket) -> &str {
        let request = self.requests.get(&ticket).filter(|request| !matches!(request.stage, Stage::Adding));
        request.map_or("", |request| &request.entry.maker)
    }

    /// The caller no longer waits. The request goes on.
    pub fn leave(&mut self, ticket: Ticket) {
        self.with(ticket, |request, _| request.has_caller = false);
    }

    /// Reports the answer to an [`Action::Transmit`].
    pub fn answered(&mut self, now_ms: i64, attempt: u64, answer: Answer) {
        // The key is percent-encoded, so its quoted form contains no escapes.
        let key = answer.headers.get("semel-key").and_then(header::plain).map(str::to_owned);
        let after_ms = ACK_RIDE_MS.max(verdict::retry_after_ms(&answer));
        // Sent by themselves, acknowledgements wait for whoever mends it, as a paused request does. Otherwise it was the
        // request that was refused, and nothing is known of those that rode on it.
        let is_posted = matches!(self.attempts.get(&attempt), Some(InFlight { purpose: Purpose::Acknowledge, .. }));
        let is_refused = is_posted && answer.member("retry") == Some("after-fix");
        let again_ms = if is_refused { REFUSED } else { now_ms + after_ms };
        if key.is_some() {
            self.acks.resume(now_ms + ACK_RIDE_MS);
        }
        let Some(InFlight { purpose, .. }) = self.end(attempt, key.as_deref(), again_ms) else { return };
        match purpose {
            Purpose::Request { ticket, aim, sent } => {
                if let Some(mut request) = self.requests.remove(&ticket) {
                    self.judge(now_ms, ticket, &mut request, aim, sent, key, answer);
                    self.requests.insert(ticket, request);
                }
            }
            // An answer without `Semel-Status` is not the worker's.
            Purpose::Health => match answer.headers.get("semel-status").and_then(|_| verdict::clock_ms(&answer)) {
                Some(clock_ms) => self.clock.learn(None, clock_ms, now_ms),
                None => self.health_due_ms = now_ms + self.settings.retry_interval_ms,
            },
            Purpose::Acknowledge => {}
        }
        self.advance(now_ms);
    }

    /// Reports that an [`Action::Transmit`] got no answer.
    pub fn lost(&mut self, now_ms: i64, attempt: u64) {
        let again_ms = now_ms + self.settings.retry_interval_ms;
        match self.end(attempt, None, now_ms + ACK_RIDE_MS).map(|ended| ended.purpose) {
            Some(Purpose::Request { ticket, .. }) => {
                self.with(ticket, |request, _| request.stage = Stage::Waiting { due_ms: again_ms });
            }
            Some(Purpose::Health) => self.health_due_ms = again_ms,
            Some(Purpose::Acknowledge) | None => {}
        }
        self.advance(now_ms);
    }

    /// Ends an attempt before its answer arrived.
    pub(super) fn abort(&mut self, now_ms: i64, attempt: u64) {
        self.actions.push(Action::Abort(attempt));
        self.lost(now_ms, attempt);
    }

    /// Reports that the receiver of an [`Action::Deliver`] has the answer.
    pub fn delivered(&mut self, now_ms: i64, ticket: Ticket) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        if !request.is_stored {
            self.requests.remove(&ticket);
        } else if let Stage::Delivering(answered) = &request.stage {
            let answered = answered.clone();
            self.settle(now_ms, ticket, answered);
        }
        self.advance(now_ms);
    }

    /// Continues a paused request.
    pub fn resume(&mut self, now_ms: i64, ticket: Ticket) {
        self.with(ticket, |request, _| request.resume(now_ms));
        self.advance(now_ms);
    }

    /// Continues all paused requests.
    pub fn resume_all(&mut self, now_ms: i64) {
        self.requests.iter_mut().for_each(|(_, request)| request.resume(now_ms));
        self.acks.resume(now_ms);
        self.advance(now_ms);
    }

    /// The application gives a request up. This is stored, and the key is asked to cancel the request without waiting
    /// for the attempt under way. The caller gets the outcome if the request had run. A request of another tab goes on
    /// there.
    pub fn give_up(&mut self, now_ms: i64, ticket: Ticket) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        if request.is_watched() {
            request.fail(&mut self.actions, ticket, ClientCode::GaveUp.into());
        } else {
            request.is_cancelling = true;
            if let &Stage::Sending(attempt) = &request.stage {
                self.abort(now_ms, attempt);
            }
            self.raise(now_ms, ticket);
        }
        self.advance(now_ms);
    }

    pub(super) fn in_hand(&self, id: &str) -> Option<(Ticket, &Request)> {
        self.requests.iter().find(|(_, request)| request.id == id).map(|(ticket, request)| (*ticket, request))
    }

    /// Lets one more caller wait for the answer.
    fn join(&mut self, ticket: Ticket) -> Ticket {
        self.with(ticket, |request, actions| {
            request.has_caller = true;
            let (Stage::Delivering(answered) | Stage::Settling(answered) | Stage::Unsettled { answered, .. }) =
                &request.stage
            else {
                return;
            };
            actions.push(Action::Deliver { ticket, to: Receiver::Caller, answered: answered.clone() });
        });
        ticket
    }

    fn insert(&mut self, id: String, entry: Entry, stage: Stage) -> Ticket {
        self.last_ticket += 1;
        let request = Request {
            id,
            stage,
            is_stored: true,
            has_caller: false,
            gives_up_ms: None,
            attempts: 0,
            key: entry.draft.key.clone(),
            ends_by: if entry.draft.key.is_some() { Aim::Cancel } else { Aim::Probe },
            is_cancelling: entry.is_cancelling,
            not_before_ms: i64::MIN,
            entry,
        };
        self.requests.insert(self.last_ticket, request);
        self.last_ticket
    }

    pub(super) fn with(&mut self, ticket: Ticket, work: impl FnOnce(&mut Request, &mut Vec<Action>)) {
        if let Some(request) = self.requests.get_mut(&ticket) {
            work(request, &mut self.actions);
        }
    }

    #[inline(never)]
    fn adopt(&mut self, now_ms: i64, id: &str, entry: Entry, is_shared: bool) {
        let mut watched = self.in_hand(id).map(|(ticket, own)| (ticket, own.may_be(&entry)));
        // The row was made anew since this tab looked at it, so the request that is waited for is gone.
        if let Some((other, false)) = watched {
            self.changed(now_ms, other, Some(Changed::Gone));
            watched = None;
        }
        let ticket = self.insert(id.to_owned(), entry, Stage::Paused);
        // Keep what is known of the caller, who has waited since before. The request may also have been given up while
        // its row was being marked.
        if let Some(watched) = watched.and_then(|(watched, _)| self.requests.remove(&watched)) {
            self.with(ticket, |request, _| {
                (request.has_caller, request.gives_up_ms) = (watched.has_caller, watched.gives_up_ms);
                request.is_cancelling |= watched.is_cancelling;
            });
        }
        self.ask_to_adopt(ticket, is_shared);
    }

    /// Ends an attempt, and deals with the acknowledgements that rode on it. `again_ms`: when those that were not taken
    /// are sent by themselves.
    fn end(&mut self, attempt: u64, key: Option<&str>, again_ms: i64) -> Option<InFlight> {
        let ended = self.attempts.remove(&attempt)?;
        let mut done = Vec::new();
        self.acks.ended(attempt, key, again_ms, |row, is_kept| {
            if is_kept {
                // Ticket 0 is no request's, so the report is ignored. If the store fails, the id is acknowledged once
                // more after the next start.
                self.actions.push(Action::Change { ticket: 0, id: row, change: Change::Acknowledged });
            } else {
                done.push(row);
            }
        });
        if !done.is_empty() {
            self.actions.push(Action::Remove(done));
        }
        Some(*ended)
    }
}
