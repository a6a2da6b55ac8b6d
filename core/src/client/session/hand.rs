//! The requests in hand, and what is asked of all of them again and again: in lists, so that what one costs is the same however many wait.
//!
//! Invariants:
//! - A list holds those of which [`marks`] says so, and no others: whatever changes a request goes by [`Hand::changing`], or takes it out and puts it in again.
//! - What a request has for a body stays the same while it is in hand.

use super::super::numbered::Numbered;
use super::request::{Request, Stage};
use super::{Change, Ticket};
use crate::rules::{Rule, holds};

/// Which ones a list holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum List {
    /// That have no answer.
    Open,
    /// That are to have a place of this epoch and have none.
    Lacking,
    /// In [`Stage::New`].
    New,
    /// In [`Stage::Placed`], and not under way, by the epoch of its place: what is left of older ones may be all that others wait for.
    Ready,
    /// That were given up, which is still to be stored.
    GivenUp,
    /// Of which is being stored that they were given up.
    Cancelling,
    /// Whose change the store failed at, by the instant at which it is asked again.
    Failed,
    /// Whose callers are told some day that they need not wait, by that instant.
    Waited,
    /// Whose place the acknowledgement must not pass, by its number.
    Held,
    /// That have a place and no answer, by its epoch.
    Numbered,
}

const LISTS: usize = 10;

/// In which lists it stands, and by what.
type Marks = [Option<i64>; LISTS];

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Hand {
    requests: Numbered<Request>,
    /// Each in order of what stands first, and then of tickets.
    lists: [Vec<(i64, Ticket)>; LISTS],
    bytes: usize,
}

fn marks(request: &Request) -> Marks {
    let is = |is: bool| is.then_some(0);
    let Request { stage, entry, answered, .. } = request;
    let is_placed = matches!(stage, Stage::Placed);
    let is_given_up = is_placed && request.leaves_as_cancellation() && !entry.is_cancelling;
    let again_ms = if let Stage::Changing { again_ms, .. } = stage { *again_ms } else { None };
    [
        is(answered.is_none()),
        is(request.lacks_place()),
        is(matches!(stage, Stage::New)),
        entry
            .place
            .filter(|_| is_placed && !(request.is_under_way && holds(Rule::UnderWayOnce)))
            .map(|place| place.epoch),
        is(is_given_up),
        is(matches!(stage, Stage::Changing { change: Change::Cancel { .. }, .. })),
        again_ms,
        request.gives_up_ms.filter(|_| request.may_give_up()),
        entry.place.filter(|_| request.holds_place()).map(|place| place.seq),
        entry.place.filter(|_| answered.is_none()).map(|place| place.epoch),
    ]
}

impl Hand {
    pub(super) fn insert(&mut self, ticket: Ticket, request: impl Into<Box<Request>>) {
        let request = request.into();
        self.bytes += request.entry.draft.body.len();
        self.list(ticket, Marks::default(), marks(&request));
        self.requests.insert(ticket, request);
    }

    pub(super) fn remove(&mut self, ticket: &Ticket) -> Option<Box<Request>> {
        let request = self.requests.remove(ticket)?;
        self.bytes -= request.entry.draft.body.len();
        self.list(*ticket, marks(&request), Marks::default());
        Some(request)
    }

    /// Changes one.
    pub(super) fn changing(&mut self, ticket: Ticket, change: impl FnOnce(&mut Request)) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        let before = marks(request);
        change(request);
        let after = marks(request);
        self.list(ticket, before, after);
    }

    fn list(&mut self, ticket: Ticket, before: Marks, after: Marks) {
        for ((list, before), after) in self.lists.iter_mut().zip(before).zip(after) {
            if before == after {
                continue;
            }
            if let Some(by) = before {
                let at = list.partition_point(|each| *each < (by, ticket));
                list.remove(at);
            }
            if let Some(by) = after {
                let at = list.partition_point(|each| *each < (by, ticket));
                list.insert(at, (by, ticket));
            }
        }
    }

    pub(super) fn get(&self, ticket: &Ticket) -> Option<&Request> {
        self.requests.get(ticket)
    }

    /// All, in order of their tickets.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Ticket, &Request)> {
        self.requests.iter()
    }

    /// How many bytes their bodies have.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Those that a list holds: what they are in order of, and their tickets.
    pub(super) fn listed(&self, list: List) -> &[(i64, Ticket)] {
        self.lists.get(list as usize).map_or(&[], Vec::as_slice)
    }

    /// The first of them.
    pub(super) fn first(&self, list: List) -> Option<(i64, Ticket)> {
        self.listed(list).first().copied()
    }

    /// Whether the lists hold what they are to hold, found by going through all.
    #[cfg(test)]
    pub(super) fn is_consistent(&self) -> bool {
        let mut lists = <[Vec<(i64, Ticket)>; LISTS]>::default();
        for (ticket, request) in self.iter() {
            for (list, by) in lists.iter_mut().zip(marks(request)) {
                list.extend(by.map(|by| (by, *ticket)));
            }
        }
        lists.iter_mut().for_each(|list| list.sort_unstable());
        let bytes: usize = self.iter().map(|(_, request)| request.entry.draft.body.len()).sum();
        lists == self.lists && bytes == self.bytes
    }
}
