//! What is stored of a request in a session, and the ways in which it may change.
//!
//! Invariants:
//! - A row changes in one transaction of the store, by [`Change::apply`], whatever tab or process does it.
//! - A place is given by the row's owner alone. So who has taken a row over finds the place under which it may have left.
//! - The first byte is the version of the layout. What is of another version, or damaged, is unreadable, never misread.

use super::super::bytes::{Reader, Writer};
use super::super::row::{Answered, Draft, Unreadable, Write};
use crate::rules::{Rule, holds};
use std::rc::Rc;

const VERSION: u8 = 3;

/// A place in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The number of its holder.
    pub epoch: i64,
    /// The number of the request.
    pub seq: i64,
}

/// A request in a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The request.
    pub draft: Rc<Draft>,
    /// The session, its key, and the worker and the identity that it is for: a store may be shared with others.
    pub session: String,
    /// The tab or process that sees to it.
    pub owner: String,
    /// As the holder of which number its owner took it over, or left it: nobody waits for it there, so who holds the session later takes it,
    /// whether or not its owner lives. 0 where it is still the one who called.
    pub orphaned: i64,
    /// Its place, from before it is first sent.
    pub place: Option<Place>,
    /// Its place among the calls that were stored at the time.
    pub turn: i64,
    /// Whether the application gave it up, so that its place is to be closed.
    pub is_cancelling: bool,
    /// The answer, where nobody waited for it and nobody has taken it yet.
    pub answered: Option<Rc<Answered>>,
}

impl Entry {
    /// Whether this very place was given before: nobody else gives one of that epoch. So it is this request's, and no other's, though somebody may have
    /// taken the row over before that could be told.
    fn has_place(&self, given: Option<Place>) -> bool {
        given.is_some() && self.place == given
    }

    /// Whether it was left to whoever holds the session after that one. What has its answer, its owner tells.
    pub(super) fn is_left_before(&self, epoch: i64) -> bool {
        (1..epoch).contains(&self.orphaned) && self.answered.is_none() && holds(Rule::LeftTaken)
    }
}

/// What is done to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Stores a new request.
    Add(Entry),
    /// Takes it over.
    Adopt {
        /// Who takes it.
        by: String,
        /// From whom, if that one has gone.
        from: String,
        /// As the holder of which number.
        epoch: i64,
    },
    /// Gives it a place.
    Number {
        /// Its owner.
        by: String,
        /// The place.
        place: Place,
    },
    /// Keeps its answer.
    Keep {
        /// Its owner.
        by: String,
        /// The answer.
        answered: Rc<Answered>,
    },
    /// Says that it is given up.
    Cancel {
        /// Its owner.
        by: String,
    },
    /// Leaves it to who holds the session.
    Leave {
        /// Its owner.
        by: String,
        /// As the holder of which number.
        epoch: i64,
    },
    /// Takes it back: from now on nobody sends it.
    Take {
        /// Its owner.
        by: String,
    },
    /// Deletes it: its answer has reached the one who called.
    Remove,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// It was made. What the row says now, or said before it was deleted.
    Made(Entry),
    /// There is no such row, or it is not its owner's any more.
    Not,
}

impl Change {
    /// Applies it to a row. To be called inside the store's transaction.
    pub fn apply(&self, stored: Option<&[u8]>) -> Result<(Write, Changed), Unreadable> {
        let Some(row) = self.made(stored.map(decode).transpose()?) else { return Ok((Write::Nothing, Changed::Not)) };
        let write = if self.deletes() { Write::Delete } else { Write::Put(encode(&row)) };
        Ok((write, Changed::Made(row)))
    }

    /// The same of what a row says. `None`: it is not made. Otherwise what the row says then, or said before it [`Change::deletes`] it.
    pub fn made(&self, row: Option<Entry>) -> Option<Entry> {
        match (self, row) {
            (Self::Add(entry), None) => Some(entry.clone()),
            // An id is one call's alone: there by its owner, it was added a moment ago.
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

    /// Whether it deletes the row.
    pub fn deletes(&self) -> bool {
        matches!(self, Self::Take { .. } | Self::Remove)
    }

    /// Whether it gives a place.
    pub(super) fn gives_place(&self) -> bool {
        matches!(self, Self::Number { .. } | Self::Add(Entry { place: Some(_), .. }))
    }
}

/// Lays a row out.
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

/// Reads a row.
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

/// A number of a place. What is none would be reckoned with.
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
    fn a_row_decodes_to_what_was_encoded_and_nothing_else_decodes() {
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
    fn a_place_that_can_not_be_is_damaged() {
        for number in [i64::MIN, -1, 0] {
            for place in [Place { epoch: number, ..PLACE }, Place { seq: number, ..PLACE }] {
                assert_eq!(decode(&encode(&Entry { place: Some(place), ..row() })), Err(Unreadable), "{place:?}");
            }
        }
    }

    #[test]
    fn a_row_is_taken_over_by_one_only() {
        let adopt = |by: &str| Change::Adopt { by: by.into(), from: "a".into(), epoch: 5 };
        let (_, Changed::Made(adopted)) = apply(&adopt("b"), Some(&row())) else { panic!("it is not taken over") };
        assert_eq!(adopted, Entry { owner: "b".into(), orphaned: 5, ..row() });
        assert_eq!(apply(&adopt("c"), Some(&adopted)), (Write::Nothing, Changed::Not));
    }

    #[test]
    fn what_its_caller_does_not_wait_for_goes_on_with_later_holders_alone_until_it_has_its_answer() {
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
    fn only_the_owner_gives_a_place_keeps_an_answer_or_takes_a_row_back() {
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
    fn what_has_reached_its_caller_is_deleted_whoever_owns_it() {
        assert_eq!(apply(&Change::Remove, Some(&Entry { owner: "b".into(), ..row() })).0, Write::Delete);
        assert_eq!(apply(&Change::Remove, None).0, Write::Nothing);
    }

    #[test]
    fn an_id_that_is_there_is_not_added_again() {
        assert_eq!(apply(&Change::Add(row()), Some(&Entry { owner: "b".into(), ..row() })).1, Changed::Not);
    }

    /// A store may not be able to tell whether it has made a change.
    #[test]
    fn what_is_made_twice_leaves_what_it_leaves_once_and_says_so() {
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
    fn a_place_that_was_given_before_somebody_took_the_row_over_is_given() {
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
    fn what_is_taken_for_made_before_changes_nothing() {
        let here = Entry { turn: 9, orphaned: 5, ..row() };
        assert_eq!(apply(&Change::Add(row()), Some(&here)).1, Changed::Made(here.clone()));
        let adopt = |epoch| Change::Adopt { by: "a".into(), from: "b".into(), epoch };
        assert_eq!(apply(&adopt(5), Some(&here)).1, Changed::Made(here.clone()));
        assert_eq!(apply(&adopt(4), Some(&here)).1, Changed::Not);
    }
}
