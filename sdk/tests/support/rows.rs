//! Rows as they are stored.

use semel_core::client::row::Write;
use semel_core::client::{Answered, Change, Draft, Entry, Row, codec};
use semel_core::message::{Headers, Response};

/// Worker and identity, if a test wants no others.
pub const OUTBOX: &str = "semel https://test alice";

/// Every byte there is.
pub fn all_bytes() -> Vec<u8> {
    (0..=255).collect()
}

/// A request that was not sent yet.
pub fn entry(owner: &str, target: &str) -> Entry {
    let draft = Draft {
        method: "POST".into(),
        target: target.into(),
        key: Some("accounts/1".into()),
        headers: Headers::from_iter([("content-type", "application/octet-stream"), ("x-note", "a:b")]),
        body: all_bytes(),
    };
    Entry { draft: draft.into(), outbox: OUTBOX.into(), owner: owner.into(), ..Entry::default() }
}

/// A pending row.
pub fn encoded(entry: Entry) -> Vec<u8> {
    codec::encode(&Row::Pending(entry))
}

/// A row of which nothing is left but its acknowledgement.
pub fn settled_entry(key: &str, until_ms: i64) -> Vec<u8> {
    let answered = Answered::Outcome(Response::json(201, "{}")).into();
    let settle = Change::Settle { by: "gone".into(), key: Some(key.into()), answered, at_s: 6 };
    let sent = Entry { first_sent_s: Some(5), until_ms: Some(until_ms), ..entry("gone", "/left") };
    match settle.apply(Some(&encoded(sent))) {
        Ok((Write::Put(row), _)) => row,
        other => panic!("{other:?}"),
    }
}

/// Raises `until`.
pub fn raise(until_ms: i64) -> Change {
    Change::Raise { first_sent_s: 5, until_ms, is_cancelling: false }
}
