//! How a row is laid out in bytes.
//!
//! Invariants:
//! - The first byte is the version of the layout. A row of another version is unreadable, never misread.
//! - What was encoded decodes to the same row. Anything else decodes to [`Unreadable`], never to a guess.

use super::bytes::{Reader, Writer};
use super::failure::Failure;
use super::row::{Answered, Draft, Entry, Row, Settled, Unreadable};
use crate::message::Response;
use crate::problem::{Executed, Retry};
use std::rc::Rc;

const VERSION: u8 = 3;

/// Lays out a row in bytes.
pub fn encode(row: &Row) -> Vec<u8> {
    let mut out = Writer::default();
    out.byte(VERSION);
    match row {
        Row::Pending(entry) => {
            out.flag(false);
            out.entry(entry);
        }
        Row::Settled(settled) => {
            out.flag(true);
            out.settled(settled);
        }
    }
    out.done()
}

/// Reads a row from bytes.
pub fn decode(bytes: &[u8]) -> Result<Row, Unreadable> {
    let mut input = Reader::new(bytes);
    if input.byte() != VERSION {
        return Err(Unreadable);
    }
    let row = if input.flag() { Row::Settled(input.settled()) } else { Row::Pending(input.entry()) };
    input.end().map(|()| row).ok_or(Unreadable)
}

impl Writer {
    /// Writes a request.
    pub(super) fn draft(&mut self, draft: &Draft) {
        self.text(&draft.method);
        self.text(&draft.target);
        self.optional(draft.key.as_deref(), Self::text);
        self.text(&draft.headers.to_lines());
        self.bytes(&draft.body);
    }

    fn entry(&mut self, entry: &Entry) {
        self.draft(&entry.draft);
        self.text(&entry.outbox);
        self.text(&entry.maker);
        self.text(&entry.owner);
        self.flag(entry.is_shared);
        self.optional(entry.first_sent_s, Self::integer);
        self.optional(entry.until_ms, Self::integer);
        self.flag(entry.is_cancelling);
        self.optional(entry.place, Self::integer);
    }

    fn settled(&mut self, settled: &Settled) {
        self.text(&settled.outbox);
        self.text(&settled.maker);
        self.optional(settled.key.as_deref(), Self::text);
        self.integer(settled.until_ms);
        self.flag(settled.was_cancelled);
        self.optional(settled.kept.as_deref(), Self::answered);
        self.integer(settled.at_s);
        self.flag(settled.is_acknowledged);
    }

    /// Writes an answer.
    pub(super) fn answered(&mut self, answered: &Answered) {
        match answered {
            Answered::Outcome(response) => {
                self.flag(false);
                self.integer(response.status.into());
                self.text(&response.headers.to_lines());
                self.bytes(&response.body);
            }
            Answered::Failure(failure) => {
                self.flag(true);
                self.text(&failure.code);
                self.text(failure.executed.as_str());
                self.text(failure.retry.as_str());
                self.text(&failure.detail);
                self.bytes(&failure.problem);
            }
        }
    }
}

impl Reader<'_> {
    /// Reads a request.
    pub(super) fn draft(&mut self) -> Draft {
        Draft {
            method: self.text(),
            target: self.text(),
            key: self.optional(Self::text),
            headers: self.headers(),
            body: self.bytes().to_vec(),
        }
    }

    fn entry(&mut self) -> Entry {
        Entry {
            draft: Rc::new(self.draft()),
            outbox: self.text(),
            maker: self.text(),
            owner: self.text(),
            is_shared: self.flag(),
            first_sent_s: self.optional(Self::integer),
            until_ms: self.optional(Self::integer),
            is_cancelling: self.flag(),
            place: self.optional(Self::integer),
        }
    }

    fn settled(&mut self) -> Settled {
        Settled {
            outbox: self.text(),
            maker: self.text(),
            key: self.optional(Self::text),
            until_ms: self.integer(),
            was_cancelled: self.flag(),
            kept: self.optional(Self::answered).map(Rc::new),
            at_s: self.integer(),
            is_acknowledged: self.flag(),
        }
    }

    /// Reads an answer.
    pub(super) fn answered(&mut self) -> Answered {
        if self.flag() {
            return Answered::Failure(Failure {
                code: self.text(),
                executed: self.word(Executed::from_wire, Executed::Unknown),
                retry: self.word(Retry::from_wire, Retry::Never),
                detail: self.text(),
                problem: self.bytes().to_vec(),
            });
        }
        Answered::Outcome(Response { status: self.status(), headers: self.headers(), body: self.bytes().to_vec() })
    }

    /// Reads a word. If `from_wire` does not know it, this is a failure, and the value is `otherwise`.
    fn word<T>(&mut self, from_wire: fn(&str) -> Option<T>, otherwise: T) -> T {
        let word = from_wire(&self.text());
        if word.is_none() {
            self.fail();
        }
        word.unwrap_or(otherwise)
    }

    /// Reads an HTTP status.
    pub fn status(&mut self) -> u16 {
        let status = u16::try_from(self.integer());
        if status.is_err() {
            self.fail();
        }
        status.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let draft = Draft {
            method: "POST".into(),
            target: "/h\u{e9}?a=b".into(),
            key: Some("a%20b".into()),
            headers: [("x-a", "1"), ("x-a", "")].into_iter().collect(),
            body: vec![0, 255, 10],
        };
        let entry = Entry {
            draft: Rc::new(draft),
            maker: "tab".into(),
            owner: "tab".into(),
            first_sent_s: Some(-1),
            until_ms: Some(i64::MAX),
            ..Entry::default()
        };
        let failure = Failure {
            code: "cancelled".into(),
            executed: Executed::No,
            retry: Retry::Never,
            detail: "d".into(),
            problem: b"{}".to_vec(),
        };
        let settled = |kept| Settled {
            outbox: "o".into(),
            maker: "tab".into(),
            key: Some("k".into()),
            until_ms: 5,
            was_cancelled: true,
            kept,
            at_s: 6,
            is_acknowledged: false,
        };
        vec![
            Row::Pending(entry.clone()),
            Row::Pending(Entry { is_shared: true, is_cancelling: true, ..Entry::default() }),
            Row::Settled(settled(None)),
            Row::Settled(settled(Some(Rc::new(Answered::Failure(failure))))),
            Row::Settled(settled(Some(Rc::new(Answered::Outcome(Response::json(200, "{}")))))),
        ]
    }

    #[test]
    fn a_row_decodes_to_what_was_encoded() {
        for row in rows() {
            assert_eq!(decode(&encode(&row)), Ok(row));
        }
    }

    #[test]
    fn a_row_that_is_cut_short_or_too_long_or_of_another_version_is_unreadable() {
        for row in rows() {
            let bytes = encode(&row);
            for length in 0..bytes.len() {
                assert_eq!(decode(&bytes[..length]), Err(Unreadable), "{length} of {row:?}");
            }
            assert_eq!(decode(&[bytes.as_slice(), &[0]].concat()), Err(Unreadable));
            assert_eq!(decode(&[&[VERSION + 1], &bytes[1..]].concat()), Err(Unreadable));
        }
    }

    #[test]
    fn a_row_whose_headers_are_damaged_is_unreadable() {
        let lines = b"x-a:1\n";
        for row in rows() {
            let mut bytes = encode(&row);
            let Some(at) = bytes.windows(lines.len()).position(|window| window == lines) else { continue };
            for (offset, byte) in [(0, b'X'), (3, b'-')] {
                let before = std::mem::replace(&mut bytes[at + offset], byte);
                assert_eq!(decode(&bytes), Err(Unreadable), "{offset}");
                bytes[at + offset] = before;
            }
        }
    }
}
