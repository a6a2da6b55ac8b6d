//! What is stored of a request, and how it may change.
//!
//! Invariants:
//! - Each change of a row is one transaction of the store, made by [`Change::apply`], whichever tab or process makes
//!   it.
//! - `until` only grows while the row is pending, and never changes afterwards: a later attempt finds no pending row.
//! - A settled row never becomes pending again.
//! - A store that can't tell whether a change was made makes it again. Made twice in a row, a change leaves what it
//!   leaves once, and returns the same. Only a change that has deleted the row returns [`Changed::Gone`] the second
//!   time.
//! - A row names its maker, and a hash of what the maker's request asks for, as long as the row exists. If a tab has
//!   another request of that id in hand, the row is gone to that request.

use super::bytes::Writer;
use super::codec;
use super::failure::Failure;
use crate::message::{Headers, Response};
use crate::rules::{Rule, holds};
use crate::text::cut;
use std::rc::Rc;

/// A request as the application made it. It never changes.
#[derive(Debug, Clone, Eq, Default)]
pub struct Draft {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The key, percent-encoded, if the application names it.
    pub key: Option<String>,
    /// The headers that are stored. They contain no credentials.
    pub headers: Headers,
    /// The body, byte for byte as it is sent.
    pub body: Vec<u8>,
}

/// Compares the bytes that they are laid out in, which takes less code in the module than comparing each field.
impl PartialEq for Draft {
    fn eq(&self, other: &Self) -> bool {
        self.laid_out() == other.laid_out()
    }
}

impl Draft {
    /// The bytes that it is laid out in.
    #[inline(never)]
    pub(super) fn laid_out(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.draft(self);
        out.done()
    }
}

/// A request without a definitive answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The request.
    pub draft: Rc<Draft>,
    /// The worker and the identity that it is for. A store may contain the rows of several.
    pub outbox: String,
    /// The tab or process that made it, then a space and the hash of what it asks for: the same tab may take an id back
    /// and make it anew. Rows of older builds have only the tab.
    pub maker: String,
    /// The tab or process that sends it.
    pub owner: String,
    /// Whether somebody else may wait for the answer too: another tab asked for it, or the row was adopted from an
    /// owner that may live.
    pub is_shared: bool,
    /// When it was first sent, in Unix seconds of the server's clock.
    pub first_sent_s: Option<i64>,
    /// The latest deadline that any attempt may carry, in Unix ms of the server's clock. `None`: no attempt has left.
    pub until_ms: Option<i64>,
    /// Whether the application gave it up, so that the key is asked to cancel it.
    pub is_cancelling: bool,
    /// Its place in the order of its maker's calls, if it waits for the requests before it at its key. It is after the
    /// places of all that the maker had taken over. `None`: it may overlap with other requests.
    pub place: Option<i64>,
}

impl Entry {
    /// Whether this request may have to wait for the other, in the order of the maker that both have.
    pub(super) fn comes_after(&self, other: &Self) -> bool {
        other.place.is_some() && self.place > other.place && self.maker.starts_with(other.tab())
    }

    /// The tab or process that made it. These names have the form of request ids, so none is the beginning of another.
    fn tab(&self) -> &str {
        cut(&self.maker, b' ').map_or(&self.maker, |(tab, _)| tab)
    }
}

/// A definitive answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// The outcome.
    Outcome(Response),
    /// There is no outcome.
    Failure(Failure),
}

/// A request whose answer was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The worker and the identity that it was for.
    pub outbox: String,
    /// The maker, as in [`Entry::maker`].
    pub maker: String,
    /// The key at which it is to be acknowledged, percent-encoded; `None` if there is nothing to acknowledge.
    pub key: Option<String>,
    /// The latest deadline that any attempt may have carried, in Unix ms of the server's clock.
    pub until_ms: i64,
    /// Whether it was given up. Then its cancellation is acknowledged too.
    pub was_cancelled: bool,
    /// The answer, if a caller in another tab may wait for it.
    pub kept: Option<Rc<Answered>>,
    /// When it was settled, in Unix seconds of the server's clock.
    pub at_s: i64,
    /// Whether the key has taken the acknowledgement.
    pub is_acknowledged: bool,
}

/// A row of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// A request without a definitive answer.
    Pending(Entry),
    /// A request with one.
    Settled(Settled),
}

/// A change of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Stores a new request.
    Add(Entry),
    /// Before an attempt: checks that the row is still pending, and raises `until`.
    Raise {
        /// When the request is first sent, in Unix seconds. Ignored if the row has such an instant.
        first_sent_s: i64,
        /// The attempt's deadline, in Unix ms.
        until_ms: i64,
        /// Whether the request was given up. It then stays given up.
        is_cancelling: bool,
    },
    /// Changes nothing, and returns the row: another tab may have kept an answer there.
    Look,
    /// Asks for the answer to a request of another tab: marks the row, so that the answer is kept in it.
    Join {
        /// The worker and the identity that the answer is asked for.
        outbox: String,
    },
    /// Takes a request over from its owner.
    Adopt {
        /// The new owner.
        by: String,
        /// The former owner. If another is in the row, nothing changes.
        from: String,
        /// Whether the former owner may live, and wait for the answer.
        is_shared: bool,
    },
    /// Deletes the row. If an attempt may have left, the row stays, and says that the request was given up.
    Withdraw,
    /// The caller has the answer.
    Settle {
        /// The tab that delivered it.
        by: String,
        /// The key that answered, if it is to be acknowledged there.
        key: Option<String>,
        /// The answer.
        answered: Rc<Answered>,
        /// The instant, in Unix seconds of the server's clock.
        at_s: i64,
    },
    /// The key has taken the acknowledgement.
    Acknowledged,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The row is pending, and now holds this.
    Pending(Entry),
    /// The row is settled.
    Settled(Settled),
    /// There is no row of this request.
    Gone,
    /// The row was there, and no attempt had left. It is deleted.
    Withdrawn,
}

impl Changed {
    /// The entry that an attempt leaves with, after the transaction before it. `None` if the row is settled or gone:
    /// then no attempt leaves. `known`: what the row said before.
    pub fn leave(&self, known: &Entry) -> Option<Entry> {
        match self {
            Self::Pending(entry) => Some(entry.clone()),
            _ if !holds(Rule::RaiseChecked) => Some(known.clone()),
            _ => None,
        }
    }
}

/// What the store has to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Nothing.
    Nothing,
    /// Put this in the place of the row.
    Put(Vec<u8>),
    /// Delete the row.
    Delete,
}

/// Whether a row may be deleted because its request has its answer. Ask this inside the store's transaction, since the
/// id may be another request's by then.
pub fn is_done(stored: &[u8]) -> bool {
    matches!(codec::decode(stored), Ok(Row::Settled(_)))
}

/// The error that a row can't be read: a newer version wrote it, or it is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

impl Change {
    /// Applies the change to a row. Call this inside the store's transaction. `maker`: what [`super::Client::maker_of`]
    /// returned.
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

    /// Changes the row. Returns whether there is anything to write.
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
            (Self::Withdraw, Some(Row::Pending(entry))) => {
                if entry.until_ms.is_some() && holds(Rule::UnsentWithdrawn) {
                    entry.is_cancelling = true;
                } else {
                    *row = None;
                }
            }
            (Self::Settle { by, key, answered, at_s }, Some(Row::Pending(entry))) => {
                let is_awaited_elsewhere = entry.is_shared || entry.owner != *by;
                let settled = Settled {
                    outbox: std::mem::take(&mut entry.outbox),
                    maker: std::mem::take(&mut entry.maker),
                    // A request that never left has nothing to acknowledge.
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
    /// The latest deadline that an attempt may carry; 0 if the row is settled and has nothing to acknowledge.
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
    /// Whether the key has yet to take the acknowledgement.
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
    fn a_raise_changes_nothing_once_the_row_is_gone_or_settled() {
        assert_eq!(apply(&raise(9), None), (Write::Nothing, Changed::Gone));
        let (write, _) = apply(&settle("a"), Some(&Row::Pending(sent())));
        let Write::Put(settled) = write else { panic!("{write:?}") };
        let (write, changed) = raise(900).apply("", Some(&settled)).expect("readable");
        assert_eq!(write, Write::Nothing);
        assert!(matches!(changed, Changed::Settled(Settled { until_ms: 100, .. })), "{changed:?}");
    }

    #[test]
    fn a_change_that_is_made_twice_leaves_the_same_row_and_result_as_once() {
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
    fn a_raise_only_moves_until_forward_and_keeps_first_sent() {
        let (_, changed) = apply(&raise(50), Some(&Row::Pending(sent())));
        assert_eq!(changed, Changed::Pending(sent()));
        let (_, changed) = apply(&raise(150), Some(&Row::Pending(sent())));
        assert_eq!(changed, Changed::Pending(Entry { until_ms: Some(150), ..sent() }));
    }

    #[test]
    fn a_request_comes_after_those_of_its_own_maker_that_were_called_before_it() {
        let made = |maker: &str, place| Entry { maker: maker.into(), place, ..entry() };
        let own = made("tab 7", Some(2));
        assert!(own.comes_after(&made("tab 5", Some(1))));
        for other in [made("tab 5", None), made("tab 5", Some(2)), made("tab 5", Some(3)), made("other 5", Some(1))] {
            assert!(!own.comes_after(&other), "{other:?}");
        }
    }

    #[test]
    fn only_a_settled_row_may_be_deleted_because_it_is_done() {
        let Write::Put(settled) = apply(&settle("b"), Some(&Row::Pending(sent()))).0 else { panic!("settled") };
        assert!(is_done(&settled));
        // The id is another request's by now, or a newer version wrote the row.
        assert!(!is_done(&stored(&Row::Pending(sent()))));
        assert!(!is_done(&[]));
    }

    #[test]
    fn a_row_is_adopted_by_only_one_tab() {
        let adopt = |by: &str| Change::Adopt { by: by.into(), from: "a".into(), is_shared: false };
        let (write, _) = apply(&adopt("b"), Some(&Row::Pending(entry())));
        let Write::Put(adopted) = write else { panic!("{write:?}") };
        let (write, changed) = adopt("c").apply("", Some(&adopted)).expect("readable");
        assert_eq!(write, Write::Nothing);
        assert_eq!(changed, Changed::Pending(Entry { owner: "b".into(), ..entry() }));
    }

    #[test]
    fn an_answer_is_kept_if_another_tab_may_wait_for_it() {
        let kept = |row: Entry, by: &str| match apply(&settle(by), Some(&Row::Pending(row))).1 {
            Changed::Settled(settled) => settled.kept.is_some(),
            changed => panic!("{changed:?}"),
        };
        assert!(!kept(sent(), "a"));
        assert!(kept(sent(), "b"), "the owner waits");
        assert!(kept(Entry { is_shared: true, ..sent() }, "a"), "the former owner may wait");
    }

    #[test]
    fn an_acknowledged_row_is_deleted_unless_its_answer_is_kept() {
        let settled = |by: &str| match apply(&settle(by), Some(&Row::Pending(sent()))).1 {
            Changed::Settled(settled) => Row::Settled(settled),
            changed => panic!("{changed:?}"),
        };
        assert_eq!(apply(&Change::Acknowledged, Some(&settled("a"))).0, Write::Delete);
        let (_, changed) = apply(&Change::Acknowledged, Some(&settled("b")));
        assert!(matches!(changed, Changed::Settled(Settled { is_acknowledged: true, kept: Some(_), .. })));
    }

    #[test]
    fn settling_a_row_that_was_never_sent_deletes_it() {
        assert_eq!(apply(&settle("a"), Some(&Row::Pending(entry()))), (Write::Delete, Changed::Gone));
    }

    #[test]
    fn a_row_is_not_added_over_one_with_the_same_id() {
        let other = Entry { owner: "b".into(), ..entry() };
        assert_eq!(apply(&Change::Add(other), Some(&Row::Pending(entry()))).0, Write::Nothing);
    }

    #[test]
    fn joining_a_row_shares_it_without_owning_it_and_leaves_rows_of_other_outboxes() {
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
    fn a_raise_keeps_a_row_given_up_and_an_adoption_keeps_a_row_shared() {
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
