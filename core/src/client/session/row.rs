//! What is stored of a request in a session, and how it may change.
//!
//! Invariants:
//! - Each change of a row is one transaction of the store, made by [`Change::apply`], whichever tab or process makes
//!   it.
//! - Only the row's owner gives it a place. So whoever takes the row over finds the place under which it may have left.
//! - The first byte is the version of the layout. A row of another version, or a damaged one, is unreadable, never
//!   misread.

use super::super::bytes::{Reader, Writer};
use super::super::row::{Answered, Draft, Unreadable, Write};
use crate::rules::{Rule, holds};
use std::rc::Rc;

const VERSION: u8 = 3;

/// A place in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The epoch of the holder that gave the place.
    pub epoch: i64,
    /// The number of the request in that epoch.
    pub seq: i64,
}

/// A request in a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The request.
    pub draft: Rc<Draft>,
    /// The session, its key, and the worker and the identity that it is for. A store may contain the rows of several.
    pub session: String,
    /// The tab or process that sends it.
    pub owner: String,
    /// The epoch in which its owner took it over, or left it. No caller waits for it there, so a later holder of the
    /// session takes it, whether or not its owner lives. 0 if the owner is still the one whose caller made the request.
    pub orphaned: i64,
    /// Its place, stored before it is first sent.
    pub place: Option<Place>,
    /// Its position in the order of all calls that were stored at the time.
    pub turn: i64,
    /// Whether the application gave it up, so that its place has to be closed.
    pub is_cancelling: bool,
    /// The answer, if no caller waited for it and nobody has taken it yet.
    pub answered: Option<Rc<Answered>>,
}

impl Entry {
    /// Whether the row has exactly this place. Only one holder gives places of an epoch, so the row is then of the
    /// request that got this place, even if somebody took it over before its owner was told.
    fn has_place(&self, given: Option<Place>) -> bool {
        given.is_some() && self.place == given
    }

    /// Whether it was left to any later holder of the session. Once it has its answer, its owner hands that over.
    pub(super) fn is_left_before(&self, epoch: i64) -> bool {
        (1..epoch).contains(&self.orphaned) && self.answered.is_none() && holds(Rule::LeftTaken)
    }
}

/// A change of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Stores a new request.
    Add(Entry),
    /// Takes a request over.
    Adopt {
        /// The new owner.
        by: String,
        /// The former owner, if it has gone.
        from: String,
        /// The epoch of the new owner.
        epoch: i64,
    },
    /// Gives the request a place.
    Number {
        /// The owner.
        by: String,
        /// The place.
        place: Place,
    },
    /// Keeps the answer in the row.
    Keep {
        /// The owner.
        by: String,
        /// The answer.
        answered: Rc<Answered>,
    },
    /// Says that the request was given up.
    Cancel {
        /// The owner.
        by: String,
    },
    /// Leaves the request to later holders of the session.
    Leave {
        /// The owner.
        by: String,
        /// The epoch of the owner.
        epoch: i64,
    },
    /// Takes the request back: nobody sends it from now on.
    Take {
        /// The owner.
        by: String,
    },
    /// Deletes the row: the caller has the answer.
    Remove,
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// The change was made. Holds what the row says now, or said before it was deleted.
    Made(Entry),
    /// The change was not made: there is no such row, or it has another owner by now.
    Not,
}

impl Change {
    /// Applies the change to a row. Call this inside the store's transaction.
    pub fn apply(&self, stored: Option<&[u8]>) -> Result<(Write, Changed), Unreadable> {
        let Some(row) = self.made(stored.map(decode).transpose()?) else { return Ok((Write::Nothing, Changed::Not)) };
        let write = if self.deletes() { Write::Delete } else { Write::Put(encode(&row)) };
        Ok((write, Changed::Made(row)))
    }

    /// The same as [`Change::apply`], for a decoded row. `None`: the change is not made. Otherwise what the row says
    /// after the change, or said before the change [`Change::deletes`] it.
    pub fn made(&self, row: Option<Entry>) -> Option<Entry> {
        match (self, row) {
            (Self::Add(entry), None) => Some(entry.clone()),
            // Only one call has this id. So a row of the same owner was stored by this very change, a moment ago.
            (Self::Add(entry), Some(row)) if row.owner == entry.owner || row.has_place(entry.place) => Some(row),
            (Self::Adopt { by, from, epoch }, Some(row)) if row.owner == *from || row.is_left_before(*epoch) => {
                let place = row.place.filter(|_| holds(Rule::PlaceKept));
                Some(Entry { owner: by.clone(), orphaned: *epoch, place, ..row })
            }
            (Self::Adopt { by, epoch, .. }, Some(row)) if row.owner == *by && row.orphaned == *epoch => Some(row),
            (Self::Number { by, place }, Some(row)) if row.owner == *by => Some(Entry { place: Some(*place), ..row }),
            (Self::Number { place, .. }, Some(row)) if row.has_place(Some(*place)) => Some(row),
            (Self::Keep { by, answered }, Some(row)) if row.owner == *by => {
                Some(Entry { answered: Some(answered.clone()), ..row })
            }
            (Self::Cancel { by }, Some(row)) if row.owner == *by => Some(Entry { is_cancelling: true, ..row }),
            (Self::Leave { by, epoch }, Some(row)) if row.owner == *by => Some(Entry { orphaned: *epoch, ..row }),
            (Self::Take { by }, Some(row)) if row.owner != *by => None,
            (Self::Take { .. } | Self::Remove, row) => row,
            _ => None,
        }
    }

    /// Whether the change deletes the row.
    pub fn deletes(&self) -> bool {
        matches!(self, Self::Take { .. } | Self::Remove)
    }

    /// Whether the change gives a place.
    pub(super) fn gives_place(&self) -> bool {
        matches!(self, Self::Number { .. } | Self::Add(Entry { place: Some(_), .. }))
    }
}

/// Lays out a row in bytes.
pub fn encode(row: &Entry) -> Vec<u8> {
    let mut out = Writer::default();
    out.byte(VERSION);
    out.draft(&row.draft);
    out.text(&row.session);
    out.text(&row.owner);
    out.integer(row.orphaned);
    out.optional(row.place, |out, Place { epoch, seq }| {
        out.integer(epoch);
        out.integer(seq);
    });
    out.integer(row.turn);
    out.flag(row.is_cancelling);
    out.optional(row.answered.as_deref(), Writer::answered);
    out.done()
}

/// Reads a row from bytes.
pub fn decode(bytes: &[u8]) -> Result<Entry, Unreadable> {
    let mut input = Reader::new(bytes);
    if input.byte() != VERSION {
        return Err(Unreadable);
    }
    let row = Entry {
        draft: Rc::new(input.draft()),
        session: input.text(),
        owner: input.text(),
        orphaned: input.integer(),
        place: input.optional(|input| Place { epoch: number(input), seq: number(input) }),
        turn: input.integer(),
        is_cancelling: input.flag(),
        answered: input.optional(Reader::answered).map(Rc::new),
    };
    input.end().map(|()| row).ok_or(Unreadable)
}

/// Reads a number of a place. A number below 1 is a failure, since the machine would calculate with it.
fn number(input: &mut Reader<'_>) -> i64 {
    let number = input.integer();
    if number < 1 {
        input.fail();
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Response;

    const PLACE: Place = Place { epoch: 2, seq: 7 };

    fn row() -> Entry {
        let draft = Draft { method: "POST".into(), target: "/a".into(), body: vec![0, 255], ..Draft::default() };
        Entry { draft: Rc::new(draft), session: "s".into(), owner: "a".into(), turn: 3, ..Entry::default() }
    }

    fn answered() -> Rc<Answered> {
        Rc::new(Answered::Outcome(Response::json(200, "{}")))
    }

    fn apply(change: &Change, row: Option<&Entry>) -> (Write, Changed) {
        change.apply(row.map(encode).as_deref()).expect("readable")
    }

    #[test]
    fn a_row_decodes_to_what_was_encoded_and_damaged_bytes_do_not_decode() {
        for row in [
            row(),
            Entry { is_cancelling: true, ..row() },
            Entry { orphaned: 4, ..row() },
            Entry { place: Some(PLACE), ..row() },
            Entry { answered: Some(answered()), ..row() },
        ] {
            let bytes = encode(&row);
            assert_eq!(decode(&bytes), Ok(row));
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]), Err(Unreadable), "{length}");
            }
            assert_eq!(decode(&[bytes.as_slice(), &[0]].concat()), Err(Unreadable));
            assert_eq!(decode(&[&[VERSION + 1], &bytes[1..]].concat()), Err(Unreadable));
        }
    }

    #[test]
    fn a_place_with_an_epoch_or_seq_below_1_is_unreadable() {
        for number in [i64::MIN, -1, 0] {
            for place in [Place { epoch: number, ..PLACE }, Place { seq: number, ..PLACE }] {
                assert_eq!(decode(&encode(&Entry { place: Some(place), ..row() })), Err(Unreadable), "{place:?}");
            }
        }
    }

    #[test]
    fn a_row_is_taken_over_by_only_one_tab() {
        let adopt = |by: &str| Change::Adopt { by: by.into(), from: "a".into(), epoch: 5 };
        let (_, Changed::Made(adopted)) = apply(&adopt("b"), Some(&row())) else { panic!("it is not taken over") };
        assert_eq!(adopted, Entry { owner: "b".into(), orphaned: 5, ..row() });
        assert_eq!(apply(&adopt("c"), Some(&adopted)), (Write::Nothing, Changed::Not));
    }

    #[test]
    fn a_row_that_its_owner_leaves_is_adopted_only_by_later_epochs_and_only_without_an_answer() {
        let adopted_by = |epoch, row: &Entry| {
            let adopt = Change::Adopt { by: "c".into(), from: "another".into(), epoch };
            matches!(apply(&adopt, Some(row)).1, Changed::Made(_))
        };
        let (_, Changed::Made(left)) = apply(&Change::Leave { by: "a".into(), epoch: 5 }, Some(&row())) else {
            panic!("it is not left")
        };
        assert_eq!(left, Entry { orphaned: 5, ..row() });
        assert_eq!([4, 5, 6].map(|epoch| adopted_by(epoch, &left)), [false, false, true]);
        assert!(!adopted_by(6, &row()));
        assert!(!adopted_by(6, &Entry { answered: Some(answered()), ..left }));
    }

    #[test]
    fn only_the_owner_can_number_keep_cancel_leave_or_take_back_a_row() {
        let changes = |by: &str| {
            let by = by.to_owned();
            [
                Change::Number { by: by.clone(), place: PLACE },
                Change::Keep { by: by.clone(), answered: answered() },
                Change::Cancel { by: by.clone() },
                Change::Leave { by: by.clone(), epoch: 5 },
                Change::Take { by },
            ]
        };
        for change in changes("b") {
            assert_eq!(apply(&change, Some(&row())), (Write::Nothing, Changed::Not), "{change:?}");
        }
        for change in changes("a") {
            assert!(matches!(apply(&change, Some(&row())).1, Changed::Made(_)), "{change:?}");
            assert_eq!(apply(&change, None), (Write::Nothing, Changed::Not), "{change:?}");
        }
        assert_eq!(apply(&Change::Take { by: "a".into() }, Some(&row())).0, Write::Delete);
    }

    #[test]
    fn a_row_is_removed_whoever_owns_it() {
        assert_eq!(apply(&Change::Remove, Some(&Entry { owner: "b".into(), ..row() })).0, Write::Delete);
        assert_eq!(apply(&Change::Remove, None).0, Write::Nothing);
    }

    #[test]
    fn a_row_is_not_added_over_one_with_the_same_id() {
        assert_eq!(apply(&Change::Add(row()), Some(&Entry { owner: "b".into(), ..row() })).1, Changed::Not);
    }

    /// A store may be unable to tell whether it has made a change.
    #[test]
    fn a_change_that_is_made_twice_leaves_and_reports_the_same_as_once() {
        let by = || "a".to_owned();
        for change in [
            Change::Add(row()),
            Change::Adopt { by: "b".into(), from: by(), epoch: 5 },
            Change::Number { by: by(), place: PLACE },
            Change::Keep { by: by(), answered: answered() },
            Change::Cancel { by: by() },
            Change::Leave { by: by(), epoch: 5 },
        ] {
            let before = if matches!(change, Change::Add(_)) { None } else { Some(row()) };
            let (_, Changed::Made(left)) = apply(&change, before.as_ref()) else { panic!("{change:?} is not made") };
            assert_eq!(apply(&change, Some(&left)).1, Changed::Made(left), "{change:?}");
        }
    }

    #[test]
    fn a_repeated_number_or_add_counts_as_made_after_a_take_over_only_if_the_row_has_its_place() {
        let placed = Entry { place: Some(PLACE), ..row() };
        let taken_over = Entry { owner: "b".into(), orphaned: 1, ..placed.clone() };
        let other = Some(Place { seq: 8, ..PLACE });
        for change in [Change::Number { by: "a".into(), place: PLACE }, Change::Add(placed)] {
            assert_eq!(apply(&change, Some(&taken_over)).1, Changed::Made(taken_over.clone()), "{change:?}");
            for place in [None, other] {
                let another = Entry { place, ..taken_over.clone() };
                assert_eq!(apply(&change, Some(&another)), (Write::Nothing, Changed::Not), "{change:?}");
            }
        }
    }

    #[test]
    fn a_repeated_add_or_adopt_counts_as_made_and_changes_nothing_and_an_older_adopt_fails() {
        let here = Entry { turn: 9, orphaned: 5, ..row() };
        assert_eq!(apply(&Change::Add(row()), Some(&here)).1, Changed::Made(here.clone()));
        let adopt = |epoch| Change::Adopt { by: "a".into(), from: "b".into(), epoch };
        assert_eq!(apply(&adopt(5), Some(&here)).1, Changed::Made(here.clone()));
        assert_eq!(apply(&adopt(4), Some(&here)).1, Changed::Not);
    }
}
