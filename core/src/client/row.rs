//! What is stored of a request, and the ways in which it may change.
//!
//! Invariants:
//! - A row changes in one transaction of the store, by [`Change::apply`], whatever tab or process does it.
//! - `until` only grows while the row is pending, and never afterwards: what is sent later finds no pending row.
//! - A row that was settled never becomes pending again.
//! - A change that is made twice in a row, since a store could not tell whether it was made, leaves what it leaves once, and tells the same; but of what it has deleted
//!   it tells that it is gone.
//! - Who made a row, and what that asks for, is said by it as long as it is there; to whoever has another request of that id in hand, it is gone.

use super::bytes::Writer;
use super::codec;
use super::failure::Failure;
use crate::message::{Headers, Response};
use crate::rules::{Rule, holds};
use crate::text::cut;
use std::rc::Rc;

/// A request as the application made it, fixed once.
#[derive(Debug, Clone, Eq, Default)]
pub struct Draft {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The key, percent-encoded, if the application names it.
    pub key: Option<String>,
    /// The headers that are stored: none with credentials.
    pub headers: Headers,
    /// The body, byte for byte as it is sent.
    pub body: Vec<u8>,
}

/// As they are laid out: that takes less of the module than to compare each part.
impl PartialEq for Draft {
    fn eq(&self, other: &Self) -> bool {
        self.laid_out() == other.laid_out()
    }
}

impl Draft {
    /// In bytes.
    #[inline(never)]
    pub(super) fn laid_out(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.draft(self);
        out.done()
    }
}

/// A request that has no definitive answer yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The request.
    pub draft: Rc<Draft>,
    /// The worker and the identity that it is for: a store may be shared with others.
    pub outbox: String,
    /// The tab or process that made it, and after a space the hash of what it asks for: an id that was taken back may be made anew there. A build before
    /// has no more than the tab.
    pub maker: String,
    /// The one that sees to it.
    pub owner: String,
    /// Whether somebody else may wait for it as well: it was adopted from an owner that may live.
    pub is_shared: bool,
    /// When it was first sent, in Unix s of the server's clock.
    pub first_sent_s: Option<i64>,
    /// The latest deadline that any attempt may carry, in Unix ms of the server's clock. None: none has left.
    pub until_ms: Option<i64>,
    /// Whether the application gave it up, so that the key is asked to cancel it.
    pub is_cancelling: bool,
    /// Its place among those of its maker, and after all that this one had taken over, if it is to wait for those before it at its
    /// key. None: it may overlap with them.
    pub place: Option<i64>,
}

impl Entry {
    /// Whether its maker may want it to wait for another.
    pub(super) fn comes_after(&self, other: &Self) -> bool {
        other.place.is_some() && self.place > other.place && self.maker.starts_with(other.tab())
    }

    /// The tab or process that made it: an id as those of requests, so that none is the beginning of another.
    fn tab(&self) -> &str {
        cut(&self.maker, b' ').map_or(&self.maker, |(tab, _)| tab)
    }
}

/// The definitive answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// The outcome.
    Outcome(Response),
    /// There is none.
    Failure(Failure),
}

/// A request whose answer is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The worker and the identity that it was for.
    pub outbox: String,
    /// Who had made it, as [`Entry::maker`] says.
    pub maker: String,
    /// The key at which it is to be acknowledged, percent-encoded; `None` where there is nothing to acknowledge.
    pub key: Option<String>,
    /// The latest deadline that any attempt carried.
    pub until_ms: i64,
    /// Whether its cancellation was sent, and is to be acknowledged too.
    pub was_cancelled: bool,
    /// The answer, for who waits in another tab.
    pub kept: Option<Rc<Answered>>,
    /// When, in Unix s of the server's clock.
    pub at_s: i64,
    /// Whether the key has taken the acknowledgement.
    pub is_acknowledged: bool,
}

/// A row of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// Without a definitive answer.
    Pending(Entry),
    /// With one.
    Settled(Settled),
}

/// What is done to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Stores a new request.
    Add(Entry),
    /// Before an attempt: checks that it is still pending, and raises `until`.
    Raise {
        /// First-sent, if it was not sent before, in Unix s.
        first_sent_s: i64,
        /// The attempt's deadline, in Unix ms.
        until_ms: i64,
        /// Whether the attempt is a cancellation, now and from now on.
        is_cancelling: bool,
    },
    /// Looks whether another tab kept an answer.
    Look,
    /// Waits for the answer with its owner: it is to be kept.
    Join {
        /// The worker and the identity that it is asked for.
        outbox: String,
    },
    /// Takes a request over from an owner that is gone.
    Adopt {
        /// Who takes it.
        by: String,
        /// From whom.
        from: String,
        /// Whether the former owner may live, and wait.
        is_shared: bool,
    },
    /// Takes it back, unless an attempt may have left.
    Withdraw,
    /// The caller has the answer.
    Settle {
        /// Who says so.
        by: String,
        /// The key that answered, if it is to be acknowledged there.
        key: Option<String>,
        /// The answer.
        answered: Rc<Answered>,
        /// The instant, in Unix s of the server's clock.
        at_s: i64,
    },
    /// The key has taken the acknowledgement.
    Acknowledged,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// It is pending, and this is what it says now.
    Pending(Entry),
    /// It is settled.
    Settled(Settled),
    /// There is no such row.
    Gone,
    /// It was there, and no attempt of it had left: it is taken back.
    Withdrawn,
}

impl Changed {
    /// What an attempt leaves with, after the transaction before it; `None`: its row is settled or gone, so none leaves.
    /// `known` is what the row said before.
    pub fn leave(&self, known: &Entry) -> Option<Entry> {
        match self {
            Self::Pending(entry) => Some(entry.clone()),
            _ if !holds(Rule::RaiseChecked) => Some(known.clone()),
            _ => None,
        }
    }
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Nothing.
    Nothing,
    /// The row as it is now.
    Put(Vec<u8>),
    /// Delete it.
    Delete,
}

/// Whether a row may be deleted: its request has its answer. To be asked inside the store's transaction, for the id may be
/// another request's by then.
pub fn is_done(stored: &[u8]) -> bool {
    matches!(codec::decode(stored), Ok(Row::Settled(_)))
}

/// A row that can't be read: written by a newer version, or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

impl Change {
    /// Applies it to a row. To be called inside the store's transaction. `maker`: as [`super::Client::maker_of`] has it.
    pub fn apply(&self, maker: &str, stored: Option<&[u8]>) -> Result<(Write, Changed), Unreadable> {
        let mut row = stored.map(codec::decode).transpose()?;
        if row.as_ref().is_some_and(|row| !maker.is_empty() && row.maker() != maker) {
            return Ok((Write::Nothing, Changed::Gone));
        }
        let is_changed = self.change(&mut row);
        let write = match &row {
            _ if !is_changed => Write::Nothing,
            Some(row) => Write::Put(codec::encode(row)),
            None => Write::Delete,
        };
        let changed = match row {
            Some(Row::Pending(entry)) => Changed::Pending(entry),
            Some(Row::Settled(settled)) => Changed::Settled(settled),
            None if is_changed && matches!(self, Self::Withdraw) => Changed::Withdrawn,
            None => Changed::Gone,
        };
        Ok((write, changed))
    }

    /// Changes the row, and says whether there is anything to write.
    fn change(&self, row: &mut Option<Row>) -> bool {
        match (self, row.as_mut()) {
            (Self::Add(entry), None) => *row = Some(Row::Pending(entry.clone())),
            (Self::Raise { first_sent_s, until_ms, is_cancelling }, Some(Row::Pending(entry))) => {
                entry.first_sent_s.get_or_insert(*first_sent_s);
                let raised_ms = entry.until_ms.max(Some(*until_ms));
                entry.until_ms = if holds(Rule::UntilRaised) { raised_ms } else { entry.until_ms.or(raised_ms) };
                entry.is_cancelling |= is_cancelling;
            }
            (Self::Adopt { by, from, is_shared }, Some(Row::Pending(entry))) if entry.owner == *from => {
                entry.owner.clone_from(by);
                entry.is_shared |= is_shared;
            }
            (Self::Join { outbox }, Some(Row::Pending(entry))) if entry.outbox == *outbox && !entry.is_shared => {
                entry.is_shared = true;
            }
            (Self::Withdraw, Some(Row::Pending(entry)))
                if entry.until_ms.is_none() || !holds(Rule::UnsentWithdrawn) =>
            {
                *row = None;
            }
            (Self::Settle { by, key, answered, at_s }, Some(Row::Pending(entry))) => {
                let is_awaited_elsewhere = entry.is_shared || entry.owner != *by;
                let settled = Settled {
                    outbox: std::mem::take(&mut entry.outbox),
                    maker: std::mem::take(&mut entry.maker),
                    // What never left has nothing to acknowledge.
                    key: key.clone().filter(|_| entry.until_ms.is_some()),
                    until_ms: entry.until_ms.unwrap_or_default(),
                    was_cancelled: entry.is_cancelling,
                    kept: is_awaited_elsewhere.then(|| answered.clone()),
                    at_s: *at_s,
                    is_acknowledged: false,
                };
                *row = settled.row();
            }
            (Self::Acknowledged, Some(Row::Settled(settled))) => {
                settled.is_acknowledged = true;
                *row = settled.clone().row();
            }
            _ => return false,
        }
        true
    }
}

impl Row {
    /// The latest deadline that an attempt may carry; of what has nothing to acknowledge, none.
    pub(super) fn until_ms(&self) -> i64 {
        match self {
            Self::Pending(entry) => entry.until_ms.unwrap_or_default(),
            Self::Settled(settled) if settled.is_to_acknowledge() => settled.until_ms,
            Self::Settled(_) => 0,
        }
    }

    fn maker(&self) -> &str {
        match self {
            Self::Pending(entry) => &entry.maker,
            Self::Settled(settled) => &settled.maker,
        }
    }
}

impl Settled {
    /// Whether the key has still to be told.
    pub fn is_to_acknowledge(&self) -> bool {
        self.key.is_some() && !self.is_acknowledged
    }

    /// The row, if there is anything left to do with it.
    fn row(self) -> Option<Row> {
        (self.is_to_acknowledge() || self.kept.is_some()).then_some(Row::Settled(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { owner: "a".into(), ..Entry::default() }
    }

    fn stored(row: &Row) -> Vec<u8> {
        codec::encode(row)
    }

    fn raise(until_ms: i64) -> Change {
        Change::Raise { first_sent_s: 5, until_ms, is_cancelling: false }
    }

    fn settle(by: &str) -> Change {
        let answered = Rc::new(Answered::Failure(super::super::ClientCode::GaveUp.into()));
        Change::Settle { by: by.into(), key: Some("k".into()), answered, at_s: 7 }
    }

    fn apply(change: &Change, row: Option<&Row>) -> (Write, Changed) {
        change.apply("", row.map(stored).as_deref()).expect("readable")
    }

    fn sent() -> Entry {
        Entry { first_sent_s: Some(5), until_ms: Some(100), ..entry() }
    }

    #[test]
    fn a_raise_fails_once_the_entry_is_gone_or_settled() {
        assert_eq!(apply(&raise(9), None), (Write::Nothing, Changed::Gone));
        let (write, _) = apply(&settle("a"), Some(&Row::Pending(sent())));
        let Write::Put(settled) = write else { panic!("{write:?}") };
        let (write, changed) = raise(900).apply("", Some(&settled)).expect("readable");
        assert_eq!(write, Write::Nothing);
        assert!(matches!(changed, Changed::Settled(Settled { until_ms: 100, .. })), "{changed:?}");
    }

    #[test]
    fn what_is_made_twice_leaves_what_it_leaves_once() {
        let settled = Settled {
            outbox: String::new(),
            maker: String::new(),
            key: Some("k".into()),
            until_ms: 100,
            was_cancelled: false,
            kept: None,
            at_s: 7,
            is_acknowledged: false,
        };
        let adopt = |is_shared| Change::Adopt { by: "b".into(), from: "a".into(), is_shared };
        let join = Change::Join { outbox: String::new() };
        let changes = [
            Change::Add(entry()),
            raise(900),
            adopt(false),
            adopt(true),
            join,
            Change::Withdraw,
            settle("a"),
            settle("b"),
            Change::Acknowledged,
            Change::Look,
        ];
        let rows = [None, Some(Row::Pending(entry())), Some(Row::Pending(sent())), Some(Row::Settled(settled))];
        let mut checked = 0;
        for (change, row) in changes.iter().flat_map(|change| rows.iter().map(move |row| (change, row))) {
            let (write, changed) = apply(change, row.as_ref());
            let left = match write {
                Write::Nothing => row.as_ref().map(stored),
                Write::Put(row) => Some(row),
                Write::Delete => None,
            };
            let (write, again) = change.apply("", left.as_deref()).expect("readable");
            let left_again = match write {
                Write::Nothing => left.clone(),
                Write::Put(row) => Some(row),
                Write::Delete => None,
            };
            assert_eq!(left_again, left, "{change:?} of {row:?}");
            assert_eq!(again, if left.is_none() { Changed::Gone } else { changed }, "{change:?} of {row:?}");
            checked += 1;
        }
        assert_eq!(checked, 40);
    }

    #[test]
    fn until_only_grows_and_first_sent_stays() {
        let (_, changed) = apply(&raise(50), Some(&Row::Pending(sent())));
        assert_eq!(changed, Changed::Pending(sent()));
        let (_, changed) = apply(&raise(150), Some(&Row::Pending(sent())));
        assert_eq!(changed, Changed::Pending(Entry { until_ms: Some(150), ..sent() }));
    }

    #[test]
    fn a_row_is_adopted_by_one_only() {
        let adopt = |by: &str| Change::Adopt { by: by.into(), from: "a".into(), is_shared: false };
        let (write, _) = apply(&adopt("b"), Some(&Row::Pending(entry())));
        let Write::Put(adopted) = write else { panic!("{write:?}") };
        let (write, changed) = adopt("c").apply("", Some(&adopted)).expect("readable");
        assert_eq!(write, Write::Nothing);
        assert_eq!(changed, Changed::Pending(Entry { owner: "b".into(), ..entry() }));
    }

    #[test]
    fn an_answer_is_kept_where_another_may_wait_for_it() {
        let kept = |row: Entry, by: &str| match apply(&settle(by), Some(&Row::Pending(row))).1 {
            Changed::Settled(settled) => settled.kept.is_some(),
            changed => panic!("{changed:?}"),
        };
        assert!(!kept(sent(), "a"));
        assert!(kept(sent(), "b"), "the owner waits");
        assert!(kept(Entry { is_shared: true, ..sent() }, "a"), "the former owner may wait");
    }

    #[test]
    fn an_acknowledged_row_leaves_unless_an_answer_is_kept() {
        let settled = |by: &str| match apply(&settle(by), Some(&Row::Pending(sent()))).1 {
            Changed::Settled(settled) => Row::Settled(settled),
            changed => panic!("{changed:?}"),
        };
        assert_eq!(apply(&Change::Acknowledged, Some(&settled("a"))).0, Write::Delete);
        let (_, changed) = apply(&Change::Acknowledged, Some(&settled("b")));
        assert!(matches!(changed, Changed::Settled(Settled { is_acknowledged: true, kept: Some(_), .. })));
    }

    #[test]
    fn what_never_left_leaves_no_acknowledgement() {
        assert_eq!(apply(&settle("a"), Some(&Row::Pending(entry()))), (Write::Delete, Changed::Gone));
    }

    #[test]
    fn an_id_that_is_there_is_not_added_again() {
        let other = Entry { owner: "b".into(), ..entry() };
        assert_eq!(apply(&Change::Add(other), Some(&Row::Pending(entry()))).0, Write::Nothing);
    }

    #[test]
    fn who_joins_has_the_answer_kept_and_is_no_owner() {
        let join = Change::Join { outbox: String::new() };
        let (_, changed) = apply(&join, Some(&Row::Pending(sent())));
        assert_eq!(changed, Changed::Pending(Entry { is_shared: true, ..sent() }));
        let joined = Row::Pending(Entry { is_shared: true, ..sent() });
        assert_eq!(apply(&join, Some(&joined)).0, Write::Nothing, "once");
        assert_eq!(apply(&join, None), (Write::Nothing, Changed::Gone));
        let stranger = Row::Pending(Entry { outbox: "another".into(), ..sent() });
        assert_eq!(apply(&join, Some(&stranger)).0, Write::Nothing);
    }

    #[test]
    fn what_was_given_up_stays_given_up_and_what_is_shared_stays_shared() {
        let given_up = Entry { is_cancelling: true, is_shared: true, ..sent() };
        let (_, changed) = apply(&raise(150), Some(&Row::Pending(given_up.clone())));
        assert!(
            matches!(changed, Changed::Pending(Entry { is_cancelling: true, .. })),
            "another tab goes on: {changed:?}"
        );
        let adopt = Change::Adopt { by: "b".into(), from: "a".into(), is_shared: false };
        let (_, changed) = apply(&adopt, Some(&Row::Pending(given_up)));
        assert!(matches!(changed, Changed::Pending(Entry { is_shared: true, .. })), "{changed:?}");
    }
}
