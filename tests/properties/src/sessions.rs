//! The client's sessions: their rows, the changes of rows, and the machine. Its host does what it is asked, while the server, the
//! store and other holders do anything.
//!
//! Invariants:
//! - Bytes that are read as a row are exactly the bytes of that row. What a change may do to a row is stated by [`step`], apart
//!   from the code that does it.
//! - Whatever leaves at a place has that place in its row, unless another holder took the row.
//! - No two rows of a holder have the same place.
//! - A caller is told once.

use crate::client::{answer, answered, keeps};
use crate::source::Source;
use semel_core::client::bytes::Writer;
use semel_core::client::row::{Unreadable, Write};
use semel_core::client::session::left::are_readable;
use semel_core::client::session::row::{decode, encode};
use semel_core::client::session::{Action, Change, Changed, Entry, Place, Session, Settings, TAKE_OVER};
use semel_core::client::{Answer, Draft, Receiver, Ticket, Transmission};
use semel_core::message::Headers;
use semel_core::session::NUMBER_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const STEPS_MAX: usize = 96;
const START_MS: i64 = 1_800_000_000_000;
const OWNERS: &[&str] = &["own", "b", "c"];
/// The first is the machine's own.
const SESSIONS: &[&str] = &["o\nk\ns", "o\nk\nother"];
const IDS: &[&str] = &["s0", "s1", "s2", "s3"];

/// Checks the input that the bytes stand for: a row, changes of one, or what a machine is told.
pub fn check(bytes: &[u8]) {
    check_row(bytes);
    let mut source = Source::new(bytes);
    match source.below(4) {
        0 => check_damaged(&mut source),
        1 => check_changes(&mut source),
        _ => check_machine(&mut source),
    }
}

/// Any bytes as a stored row.
fn check_row(bytes: &[u8]) {
    let read = decode(bytes);
    if let Ok(row) = &read {
        assert_eq!(encode(row), bytes, "{row:?}");
    }
    assert_eq!(are_readable(&[("id".to_owned(), bytes.to_vec())]).is_ok(), read.is_ok());
    for change in [Change::Remove, Change::Take { by: "own".into() }, Change::Leave { by: "own".into(), epoch: 1 }] {
        assert_eq!(change.apply(Some(bytes)).err(), read.is_err().then_some(Unreadable));
    }
}

/// A row with one byte changed or added, or cut off at a byte.
fn check_damaged(source: &mut Source<'_>) {
    let row = entry(source);
    let mut bytes = encode(&row);
    assert_eq!(decode(&bytes), Ok(row));
    let at = usize::from(u16::from_le_bytes([source.byte(), source.byte()])) % bytes.len();
    match source.below(3) {
        0 => bytes[at] ^= source.byte(),
        1 => bytes.truncate(at),
        _ => bytes.insert(at, source.byte()),
    }
    check_row(&bytes);
}

fn place(source: &mut Source<'_>) -> Place {
    let mut number = || source.integer().rem_euclid(NUMBER_MAX) + 1;
    Place { epoch: number(), seq: number() }
}

fn entry(source: &mut Source<'_>) -> Entry {
    let draft =
        Draft { method: source.text(), target: source.text(), body: source.bytes().to_vec(), ..Draft::default() };
    Entry {
        draft: Rc::new(draft),
        session: source.pick(SESSIONS).to_owned(),
        owner: source.pick(OWNERS).to_owned(),
        orphaned: source.optional(Source::integer).unwrap_or(0),
        place: source.optional(place),
        turn: source.integer(),
        is_cancelling: source.flag(),
        answered: source.optional(|source| Rc::new(answered(source))),
    }
}

fn change(source: &mut Source<'_>, by: &str) -> Change {
    let by = by.to_owned();
    match source.below(8) {
        0 => Change::Add(entry(source)),
        1 => Change::Adopt { by, from: source.pick(OWNERS).to_owned(), epoch: source.integer() },
        2 => Change::Number { by, place: place(source) },
        3 => Change::Keep { by, answered: Rc::new(answered(source)) },
        4 => Change::Cancel { by },
        5 => Change::Leave { by, epoch: source.integer() },
        6 => Change::Take { by },
        _ => Change::Remove,
    }
}

/// Any changes in any order, as several holders make them.
fn check_changes(source: &mut Source<'_>) {
    let mut rows = BTreeMap::new();
    if source.flag() {
        rows.insert("id".to_owned(), encode(&entry(source)));
    }
    while !source.is_empty() {
        let by = source.pick(OWNERS);
        let change = change(source, by);
        apply(&mut rows, "id", &change);
    }
}

/// Makes one transaction of the store, and checks it.
fn apply(rows: &mut BTreeMap<String, Vec<u8>>, id: &str, change: &Change) -> Changed {
    let read = |rows: &BTreeMap<String, Vec<u8>>| rows.get(id).map(|bytes| decode(bytes).expect("readable"));
    let before = read(rows);
    let (write, changed) = change.apply(rows.get(id).map(Vec::as_slice)).expect("readable");
    match write {
        Write::Nothing => {}
        Write::Put(bytes) => drop(rows.insert(id.to_owned(), bytes)),
        Write::Delete => drop(rows.remove(id)),
    }
    let after = read(rows);
    match (&changed, &after) {
        (Changed::Made(told), Some(after)) => assert_eq!(told, after, "what is told is what is stored"),
        (Changed::Made(told), None) => assert_eq!(Some(told), before.as_ref(), "what is told is what was stored"),
        (Changed::Not, after) => assert_eq!(after, &before, "nothing was changed by {change:?}"),
    }
    step(before, change, after);
    check_again(change, rows.get(id).map(Vec::as_slice), &changed);
    changed
}

/// A store that can't tell whether it has made a change makes it again.
fn check_again(change: &Change, stored: Option<&[u8]>, changed: &Changed) {
    let (write, again) = change.apply(stored).expect("readable");
    assert!(keeps(&write, stored), "{change:?} made twice leaves something else");
    assert_eq!(
        &again,
        if stored.is_none() { &Changed::Not } else { changed },
        "{change:?} made twice tells something else"
    );
}

/// Asserts what a change may do to a row.
fn step(before: Option<Entry>, change: &Change, after: Option<Entry>) {
    let (before, after) = match (before, after) {
        (None, None) => return assert!(!matches!(change, Change::Add(_))),
        (None, Some(after)) => return assert_eq!(*change, Change::Add(after)),
        (Some(before), None) => {
            let is_taken = matches!(change, Change::Take { by } if *by == before.owner);
            return assert!(is_taken || *change == Change::Remove, "{change:?} lost a request");
        }
        (Some(before), Some(after)) => (before, after),
    };
    assert_eq!((&before.draft, &before.session, before.turn), (&after.draft, &after.session, after.turn), "fixed once");
    assert!(after.is_cancelling >= before.is_cancelling, "what is given up stays so");
    if before == after {
        return;
    }
    if let Change::Adopt { by, from, epoch } = change {
        assert!(after.owner == *by && after.orphaned == *epoch);
        let is_left = before.orphaned > 0 && before.orphaned < *epoch && before.answered.is_none();
        assert!(before.owner == *from || is_left, "{by} took a row that is somebody else's");
        return assert_eq!(Entry { owner: before.owner.clone(), orphaned: before.orphaned, ..after }, before);
    }
    let (Change::Number { by, .. } | Change::Keep { by, .. } | Change::Cancel { by } | Change::Leave { by, .. }) =
        change
    else {
        panic!("{change:?} changed a row")
    };
    assert_eq!((by, by), (&before.owner, &after.owner), "only its owner changes a row");
    assert!(before.place == after.place || matches!(change, Change::Number { .. }));
    assert!(before.answered == after.answered || matches!(change, Change::Keep { .. }));
}

struct Host {
    session: Session,
    now_ms: i64,
    rows: BTreeMap<String, Vec<u8>>,
    /// The changes that the store has not made yet, oldest first.
    changes: Vec<(Ticket, String, Change)>,
    attempts: Vec<Transmission>,
    /// The most frames that may be under way.
    frames_max: usize,
    handed: Vec<Ticket>,
    told: BTreeSet<(Ticket, bool)>,
    tickets: Vec<Ticket>,
    requests: usize,
    /// Whether no other holder has touched the rows.
    is_alone: bool,
}

/// Tells a machine what the bytes stand for.
fn check_machine(source: &mut Source<'_>) {
    let settings = Settings {
        outbox: "o".into(),
        owner: "own".into(),
        principal: String::new(),
        key: "k".into(),
        name: "s".into(),
        after: source.optional(Source::integer),
        take_over_id: "take-over".into(),
        retry_interval_ms: 1_000,
        attempt_timeout_ms: 10_000,
        requests_max: 1 + source.below(12),
        is_framed: source.flag(),
        ahead: source.below(4),
        is_shared: true,
    };
    let frames_max = if settings.ahead > 0 { 2 } else { 1 };
    let mut session = Session::new(settings);
    session.give_up_after(source.optional(|_| 5_000));
    let mut host = Host {
        session,
        now_ms: START_MS,
        rows: BTreeMap::new(),
        changes: Vec::new(),
        attempts: Vec::new(),
        frames_max,
        handed: Vec::new(),
        told: BTreeSet::new(),
        tickets: Vec::new(),
        requests: 0,
        is_alone: true,
    };
    let stored = source.below(IDS.len() + 1).saturating_sub(2);
    for id in &IDS[..stored] {
        host.rows.insert((*id).to_owned(), encode(&Entry { session: SESSIONS[0].to_owned(), ..entry(source) }));
        host.is_alone = false;
    }
    host.session.wake(host.now_ms);
    host.act();
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        host.step(source);
        host.act();
    }
}

impl Host {
    fn step(&mut self, source: &mut Source<'_>) {
        match source.below(16) {
            0..=3 => self.store(source),
            4..=6 => {
                if let Some(made) = self.attempts.pop() {
                    let answer = usual(source, &made);
                    self.session.answered(self.now_ms, made.attempt, answer);
                }
            }
            7 => {
                if let Some(made) = self.attempts.pop() {
                    self.session.answered(self.now_ms, made.attempt, answer(source));
                }
            }
            8 => {
                if let Some(made) = self.attempts.pop() {
                    self.session.lost(self.now_ms, made.attempt);
                }
            }
            9 => {
                if !self.handed.is_empty() {
                    let ticket = self.handed.remove(source.below(self.handed.len()));
                    self.session.delivered(self.now_ms, ticket);
                }
            }
            10 | 11 => {
                self.requests += 1;
                let draft = Draft {
                    method: "POST".into(),
                    target: "/a".into(),
                    body: source.bytes().to_vec(),
                    ..Draft::default()
                };
                let ticket = self.session.request(self.now_ms, format!("r{}", self.requests), draft);
                self.tickets.push(ticket);
            }
            12 => self.tell(source),
            13 => self.others(source),
            // The answer to an attempt that is no longer in hand changes nothing.
            14 => self.session.answered(self.now_ms, u64::from(source.byte()) + 1_000, answer(source)),
            _ => {
                self.now_ms += source.pick(&[0, 1, 1_000, 10_000, 100_000]);
                self.session.wake(self.now_ms);
                let wakes_ms = self.session.wakes_at();
                assert!(
                    wakes_ms.is_none_or(|wakes_ms| wakes_ms > self.now_ms) || !self.attempts.is_empty(),
                    "it turns in a circle"
                );
            }
        }
    }

    /// The store makes the oldest change; or it fails to; or it makes the change and reports a failure; or it makes it twice and
    /// reports the second time.
    fn store(&mut self, source: &mut Source<'_>) {
        if self.changes.is_empty() {
            return;
        }
        let (ticket, id, change) = self.changes.remove(0);
        let fault = source.below(6);
        if fault == 3 || fault == 4 {
            apply(&mut self.rows, &id, &change);
        }
        let changed = (fault != 3 && fault != 5).then(|| apply(&mut self.rows, &id, &change));
        if self.is_alone {
            let mut places = BTreeSet::new();
            for place in self.rows.values().filter_map(|row| decode(row).expect("readable").place) {
                assert!(places.insert(place), "{place:?} is given twice");
            }
        }
        self.session.changed(self.now_ms, ticket, changed);
    }

    fn tell(&mut self, source: &mut Source<'_>) {
        match source.below(5) {
            0 => self.session.resume(self.now_ms),
            1 => self.session.set_offline(self.now_ms, source.flag()),
            2 => {
                let rows: Vec<_> = self.rows.clone().into_iter().collect();
                let lives = |owner: &str| owner == "b";
                let lives: Option<&dyn Fn(&str) -> bool> = if source.flag() { Some(&lives) } else { None };
                self.session.stored(self.now_ms, &rows, lives).expect("readable");
                self.session.overview(&rows).expect("readable");
            }
            _ => {
                if !self.tickets.is_empty() {
                    let ticket = self.tickets[source.below(self.tickets.len())];
                    self.session.give_up(self.now_ms, ticket);
                }
            }
        }
    }

    /// Another holder changes a row.
    fn others(&mut self, source: &mut Source<'_>) {
        let ids: Vec<String> = self.rows.keys().cloned().chain([IDS[0].to_owned()]).collect();
        let id = ids[source.below(ids.len())].clone();
        let change = change(source, "b");
        // An id belongs to one request: no other holder adds a request under it.
        if matches!(change, Change::Add(_)) && id != IDS[0] {
            return;
        }
        self.is_alone = false;
        apply(&mut self.rows, &id, &change);
    }

    fn act(&mut self) {
        while let Some(action) = self.session.poll() {
            match action {
                Action::Change { ticket, id, change } => self.changes.push((ticket, id, change)),
                Action::Transmit(made) => {
                    assert!(
                        self.attempts.len() < self.frames_max,
                        "{} frames are under way at a time",
                        self.frames_max
                    );
                    if self.is_alone {
                        self.check_stored(&made);
                    }
                    self.attempts.push(made);
                }
                Action::Abort(attempt) => self.attempts.retain(|made| made.attempt != attempt),
                Action::Deliver { ticket: TAKE_OVER, .. } => {}
                Action::Deliver { ticket, to, .. } => {
                    assert!(self.told.insert((ticket, to == Receiver::Caller)), "{ticket} is told {to:?} twice");
                    self.handed.push(ticket);
                }
                Action::Pause { .. } => {}
            }
        }
    }

    /// A request that leaves alone at a place must have that place in its row.
    fn check_stored(&self, made: &Transmission) {
        let Some(named) = made.headers.get("semel-session") else { return };
        let number = |name: &str| {
            let rest = named.split_once(&format!(";{name}=")).expect("it is there").1;
            rest.split(';').next().unwrap_or_default().parse::<i64>().expect("a number")
        };
        let place = Place { epoch: number("epoch"), seq: number("seq") };
        let mut places = self.rows.values().filter_map(|row| decode(row).expect("readable").place);
        assert!(places.any(|each| each == place), "{named} left, and is not stored");
    }
}

/// Usually the answer that a key gives: a take-over is granted, and each request of a batch has its own answer.
fn usual(source: &mut Source<'_>, made: &Transmission) -> Answer {
    let done = |body: Vec<u8>| Answer {
        status: 200,
        headers: [("semel-status", "executed")].into_iter().collect(),
        body,
        members: Headers::new(),
    };
    if made.request.target.ends_with("/sessions") {
        let (epoch, last_seq) = (i64::from(source.byte()), i64::from(source.byte()));
        let members = [("epoch", epoch.to_string()), ("lastseq", last_seq.to_string())].into_iter().collect();
        return Answer { members, ..done(Vec::new()) };
    }
    if !made.request.target.ends_with("/batch") {
        return one(source, done);
    }
    let mut body = Writer::default();
    // Sometimes an answer is missing, or there is one too many.
    for _ in 0..source.below(8) {
        let Answer { status, headers, body: own, members } = one(source, done);
        body.integer(i64::from(status));
        body.text(&headers.to_lines());
        body.bytes(&own);
        body.text(&members.to_lines());
    }
    done(body.done())
}

fn one(source: &mut Source<'_>, done: impl Fn(Vec<u8>) -> Answer) -> Answer {
    if source.flag() { done(b"{}".to_vec()) } else { answer(source) }
}
