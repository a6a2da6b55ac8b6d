//! The client's rows, their changes, and what the client makes of answers.
//!
//! Invariants:
//! - Bytes that are read as a row are exactly the bytes of that row: a damaged row is never read as a similar one.
//! - What a sequence of changes may do is stated by [`step`], apart from the code that does it.

use crate::source::Source;
use semel_core::client::row::{Settled, Unreadable, Write};
use semel_core::client::verdict::{Sent, Verdict, judge};
use semel_core::client::{
    Answer, Answered, Change, Changed, Client, ClientCode, Draft, Entry, RETRY_AFTER_S_MAX, Row, Settings, codec,
};
use semel_core::header::{INSTANT_MAX, quoted};
use semel_core::message::{Headers, Response};
use semel_core::problem::{Code, Executed, Retry};
use std::rc::Rc;

const OWNERS: &[&str] = &["a", "b", "c"];
/// The first is the client's own.
const OUTBOXES: &[&str] = &["", "", "\u{e9}"];

/// Checks the input that the bytes stand for: a row, changes, or an answer.
pub fn check(bytes: &[u8]) {
    check_row(bytes);
    let mut source = Source::new(bytes);
    match source.below(3) {
        0 => check_damaged(&mut source),
        1 => check_changes(&mut source),
        _ => check_answer(&mut source),
    }
}

/// Any bytes as a stored row.
pub fn check_row(bytes: &[u8]) {
    let read = codec::decode(bytes);
    if let Ok(row) = &read {
        assert_eq!(codec::encode(row), bytes, "{row:?}");
    }
    let is_readable = read.is_ok();
    let mut client = Client::new(settings());
    let rows = [("id".to_owned(), bytes.to_vec())];
    assert_eq!(client.stored(0, &rows, None).is_ok(), is_readable);
    while let Some(action) = client.poll() {
        assert!(is_readable, "{action:?}");
    }
    for change in [Change::Look, Change::Acknowledged, raise(5, 7, true), settle("a", 9)] {
        assert_eq!(change.apply("", Some(bytes)).err(), (!is_readable).then_some(Unreadable));
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        outbox: String::new(),
        owner: "a".to_owned(),
        principal: String::new(),
        retry_interval_ms: 1_000,
        attempt_timeout_ms: 1_000,
        give_up_after_ms: None,
        requests_max: semel_core::client::REQUESTS_MAX,
        attempts_max: semel_core::client::ATTEMPTS_MAX,
    }
}

fn raise(first_sent_s: i64, until_ms: i64, is_cancelling: bool) -> Change {
    Change::Raise { first_sent_s, until_ms, is_cancelling }
}

fn settle(by: &str, at_s: i64) -> Change {
    let answered = Rc::new(Answered::Failure(ClientCode::GaveUp.into()));
    Change::Settle { by: by.to_owned(), key: Some("k".to_owned()), answered, at_s }
}

/// A row with one byte changed or added, or cut off at a byte.
fn check_damaged(source: &mut Source<'_>) {
    let row = row(source);
    let mut bytes = codec::encode(&row);
    assert_eq!(codec::decode(&bytes), Ok(row));
    let at = usize::from(u16::from_le_bytes([source.byte(), source.byte()])) % bytes.len();
    match source.below(3) {
        0 => bytes[at] ^= source.byte(),
        1 => bytes.truncate(at),
        _ => bytes.insert(at, source.byte()),
    }
    check_row(&bytes);
}

pub(crate) fn row(source: &mut Source<'_>) -> Row {
    if source.flag() { Row::Pending(entry(source)) } else { Row::Settled(settled(source)) }
}

fn headers(source: &mut Source<'_>) -> Headers {
    let count = source.below(3);
    (0..count).map(|_| (source.pick(&["x-a", "content-type", "x"]), source.header_text())).collect()
}

fn entry(source: &mut Source<'_>) -> Entry {
    let draft = Draft {
        method: source.text(),
        target: source.text(),
        key: source.optional(Source::text),
        headers: headers(source),
        body: source.bytes().to_vec(),
    };
    Entry {
        draft: Rc::new(draft),
        outbox: source.pick(OUTBOXES).to_owned(),
        maker: source.pick(OWNERS).to_owned(),
        owner: source.pick(OWNERS).to_owned(),
        is_shared: source.flag(),
        first_sent_s: source.optional(Source::integer),
        until_ms: source.optional(Source::integer),
        is_cancelling: source.flag(),
        place: source.optional(Source::integer),
    }
}

fn settled(source: &mut Source<'_>) -> Settled {
    Settled {
        outbox: source.pick(OUTBOXES).to_owned(),
        maker: source.pick(OWNERS).to_owned(),
        key: source.optional(Source::text),
        until_ms: source.integer(),
        was_cancelled: source.flag(),
        kept: source.optional(|source| Rc::new(answered(source))),
        at_s: source.integer(),
        is_acknowledged: source.flag(),
    }
}

pub(crate) fn answered(source: &mut Source<'_>) -> Answered {
    if source.flag() {
        let status = u16::from_le_bytes([source.byte(), source.byte()]);
        return Answered::Outcome(Response { status, headers: headers(source), body: source.bytes().to_vec() });
    }
    let mut failure = semel_core::client::Failure::from(source.pick(ClientCode::ALL));
    failure.executed = source.pick(&[Executed::No, Executed::Yes, Executed::Unknown]);
    failure.retry = source.pick(&[Retry::SameId, Retry::AfterFix, Retry::Never]);
    failure.problem = source.bytes().to_vec();
    Answered::Failure(failure)
}

pub(crate) fn change(source: &mut Source<'_>) -> Change {
    match source.below(8) {
        0 => Change::Add(entry(source)),
        1 => raise(source.integer(), source.integer(), source.flag()),
        2 => Change::Look,
        3 => Change::Adopt {
            by: source.pick(OWNERS).to_owned(),
            from: source.pick(OWNERS).to_owned(),
            is_shared: source.flag(),
        },
        4 => settle(source.pick(OWNERS), source.integer()),
        5 => Change::Withdraw,
        6 => Change::Join { outbox: source.pick(OUTBOXES).to_owned() },
        _ => Change::Acknowledged,
    }
}

/// Any changes in any order, as several tabs make them.
fn check_changes(source: &mut Source<'_>) {
    let mut stored = source.optional(|source| codec::encode(&row(source)));
    while !source.is_empty() {
        let before = stored.as_deref().map(|bytes| codec::decode(bytes).expect("readable"));
        let change = change(source);
        let maker = source.pick(OWNERS);
        // Usually without a maker, so that the change applies to any row.
        let maker = if source.below(4) == 0 { maker } else { "" };
        let (write, changed) = change.apply(maker, stored.as_deref()).expect("readable");
        if before.as_ref().is_some_and(|row| !maker.is_empty() && made_by(row) != maker) {
            assert_eq!((write, changed), (Write::Nothing, Changed::Gone), "{change:?} by {maker} of {before:?}");
            continue;
        }
        match &write {
            Write::Nothing => {}
            Write::Put(bytes) => stored = Some(bytes.clone()),
            Write::Delete => stored = None,
        }
        let after = stored.as_deref().map(|bytes| codec::decode(bytes).expect("readable"));
        check_again(&change, maker, stored.as_deref(), &changed);
        let told = match changed {
            Changed::Pending(entry) => Some(Row::Pending(entry)),
            Changed::Settled(settled) => Some(Row::Settled(settled)),
            Changed::Gone | Changed::Withdrawn => None,
        };
        assert_eq!(told, after, "what is told is what is stored, after {change:?}");
        step(before, &change, after);
    }
}

/// Whether a write leaves what is stored as it is.
pub(crate) fn keeps(write: &Write, stored: Option<&[u8]>) -> bool {
    match write {
        Write::Nothing => true,
        Write::Put(bytes) => stored == Some(bytes),
        Write::Delete => stored.is_none(),
    }
}

/// A store that can't tell whether it has made a change makes it again.
fn check_again(change: &Change, maker: &str, stored: Option<&[u8]>, changed: &Changed) {
    // `Change::Add` doesn't ask who made the row.
    let maker = if matches!(change, Change::Add(_)) { "" } else { maker };
    let (write, again) = change.apply(maker, stored).expect("readable");
    assert!(keeps(&write, stored), "{change:?} made twice leaves something else");
    assert_eq!(
        &again,
        if stored.is_none() { &Changed::Gone } else { changed },
        "{change:?} made twice tells something else"
    );
}

fn made_by(row: &Row) -> &str {
    match row {
        Row::Pending(entry) => &entry.maker,
        Row::Settled(settled) => &settled.maker,
    }
}

/// Asserts what a change may do to a row.
fn step(before: Option<Row>, change: &Change, after: Option<Row>) {
    match (before, after) {
        (None, None) => assert!(!matches!(change, Change::Add(_))),
        (None, Some(after)) => assert_eq!(*change, Change::Add(pending(after))),
        (Some(Row::Pending(before)), Some(Row::Pending(after))) => {
            assert_eq!((&before.draft, &before.outbox), (&after.draft, &after.outbox), "a request is fixed once");
            assert_eq!((&before.maker, before.place), (&after.maker, after.place), "and so is its place");
            assert!(after.until_ms >= before.until_ms, "until only grows");
            assert!(before.first_sent_s.is_none() || before.first_sent_s == after.first_sent_s);
            assert!(after.is_cancelling >= before.is_cancelling && after.is_shared >= before.is_shared);
            if let Change::Raise { until_ms, .. } = change {
                assert!(after.until_ms >= Some(*until_ms), "an attempt has no deadline past until");
            }
            assert!(!matches!(change, Change::Settle { .. }));
        }
        (Some(Row::Pending(before)), Some(Row::Settled(after))) => {
            let Change::Settle { by, answered, .. } = change else { panic!("{change:?} settled a row") };
            assert_eq!((&after.outbox, &after.maker), (&before.outbox, &before.maker), "it stays whose it was");
            assert_eq!(after.until_ms, before.until_ms.unwrap_or_default());
            assert_eq!(after.was_cancelled, before.is_cancelling);
            assert_eq!(after.key.is_some(), before.until_ms.is_some(), "what left is to be acknowledged");
            let is_awaited = before.is_shared || before.owner != *by;
            assert_eq!(after.kept.as_ref(), is_awaited.then_some(answered));
        }
        (Some(Row::Pending(before)), None) => {
            let may_leave = matches!(change, Change::Settle { .. } | Change::Withdraw);
            assert!(may_leave && before.until_ms.is_none(), "{change:?} lost a request");
        }
        (Some(Row::Settled(before)), Some(Row::Settled(after))) => {
            let is_acknowledged = before.is_acknowledged || *change == Change::Acknowledged;
            assert_eq!(Settled { is_acknowledged, ..before }, after);
        }
        (Some(Row::Settled(before)), None) => {
            assert!(*change == Change::Acknowledged && before.kept.is_none(), "{change:?} lost an answer");
        }
        (Some(Row::Settled(_)), Some(Row::Pending(_))) => panic!("a settled row is pending again"),
    }
}

fn pending(row: Row) -> Entry {
    match row {
        Row::Pending(entry) => entry,
        Row::Settled(settled) => panic!("{settled:?} out of nothing"),
    }
}

/// Any answer to an attempt.
pub(crate) fn answer(source: &mut Source<'_>) -> Answer {
    let mut headers = Headers::new();
    if source.flag() {
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        let status = match source.below(4) {
            0 => source.pick(&["executed", "replayed", "read"]).to_owned(),
            1 => source.header_text(),
            _ => source.pick(&codes).to_owned(),
        };
        headers.append("semel-status", status);
    }
    for name in ["semel-now", "retry-after"] {
        if let Some(text) = source.optional(|source| source.integer().to_string()) {
            headers.append(name, text);
        }
    }
    let mut members = Headers::new();
    for (name, words) in [("retry", ["never", "after-fix", "same-id"]), ("executed", ["no", "yes", "unknown"])] {
        if source.flag() {
            members.append(name, source.pick(&words));
        }
    }
    if source.flag() {
        members.append("state", source.pick(&["cancelled", "executed"]));
    }
    if source.flag() {
        headers.append("semel-key", quoted(source.pick(&["k", "l"])));
    }
    let status = source.pick(&[0, 200, 204, 302, 400, 404, 409, 410, 500, 503, 599, u16::MAX]);
    Answer { status, headers, body: source.bytes().to_vec(), members }
}

fn check_answer(source: &mut Source<'_>) {
    let answer = answer(source);
    let sent = Sent { first_sent_s: source.integer(), deadline_ms: source.integer() };
    check_verdict(&answer, &judge(&answer, sent));
}

fn check_verdict(answer: &Answer, verdict: &Verdict) {
    let semel_status = answer.headers.get("semel-status");
    let claims_outcome = matches!(semel_status, Some("executed" | "replayed"));
    let is_outcome = claims_outcome && matches!(answer.status, 200..=299 | 400..=499);
    assert_eq!(*verdict == Verdict::Outcome, is_outcome, "{answer:?}");
    match verdict {
        Verdict::Outcome => {}
        Verdict::Never(failure) => {
            assert!(answer.status < 500 && semel_status.is_some(), "{answer:?}");
            assert_eq!(failure.retry, Retry::Never);
            assert_eq!(failure.problem, answer.body);
        }
        Verdict::Pause(failure) => {
            assert!(answer.status < 500 && semel_status.is_some(), "{answer:?}");
            assert_eq!((failure.retry, failure.executed), (Retry::AfterFix, Executed::Unknown));
        }
        Verdict::Again { after_ms, clock_ms } => {
            assert!((0..=RETRY_AFTER_S_MAX * 1000).contains(after_ms));
            assert!(clock_ms.is_none_or(|clock_ms| (0..=INSTANT_MAX).contains(&clock_ms)));
        }
    }
}
