//! All requests in hand, with lists for the questions that are asked about all of them again and again. So a call costs
//! the same however many requests wait.
//!
//! Invariants:
//! - A list holds exactly the requests that [`marks`] puts there. Every change of a request therefore goes through
//!   [`Hand::changing`], or takes the request out and puts it in again.
//! - The body of a request stays the same while it is in hand.

use super::super::numbered::Numbered;
use super::request::{Request, Stage};
use super::{Change, Ticket};
use crate::rules::{Rule, holds};

/// The lists, each with what it holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum List {
    /// Requests without an answer.
    Open,
    /// Requests that need a place of this epoch and have none.
    Lacking,
    /// Requests in [`Stage::New`].
    New,
    /// Requests in [`Stage::Placed`] that are not under way, by the epoch of their place. The oldest epoch is first,
    /// since its requests may be all that the others wait for.
    Ready,
    /// Requests that were given up, where the row does not say so yet.
    GivenUp,
    /// Requests whose row is being changed to say that they were given up.
    Cancelling,
    /// Requests whose change failed in the store, by the instant at which it is tried again.
    Failed,
    /// Requests whose callers will be told that they need not wait, by the instant of that.
    Waited,
    /// Requests whose place the acknowledgement must not pass, by the number of the place.
    Held,
    /// Requests with a place and without an answer, by the epoch of the place.
    Numbered,
}

const LISTS: usize = 10;

/// For each list, the number by which the request stands in it; `None` if it is not in the list.
type Marks = [Option<i64>; LISTS];

/// The requests in hand.
#[derive(Debug, Default)]
pub(super) struct Hand {
    requests: Numbered<Request>,
    /// The lists. Each is sorted by the number, then by the ticket.
    lists: [Vec<(i64, Ticket)>; LISTS],
    /// The bytes of all bodies.
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

    /// Changes a request, and updates the lists.
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

    /// All requests, in the order of their tickets.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Ticket, &Request)> {
        self.requests.iter()
    }

    /// The bytes of all bodies.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The entries of a list: the number it is sorted by, and the ticket.
    pub(super) fn listed(&self, list: List) -> &[(i64, Ticket)] {
        self.lists.get(list as usize).map_or(&[], Vec::as_slice)
    }

    /// The first entry of a list.
    pub(super) fn first(&self, list: List) -> Option<(i64, Ticket)> {
        self.listed(list).first().copied()
    }

    /// Whether the lists hold what they should, found by going through all requests.
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
