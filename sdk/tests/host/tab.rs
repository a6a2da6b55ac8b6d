//! A host that a test drives by its bytes, and the actions that it asks for.

use semel_core::client::bytes::{Reader, Writer};
use semel_core::client::{ATTEMPTS_MAX, Entry, REQUESTS_MAX, Row, codec};
use semel_sdk::Host;

pub const OPEN: u8 = 0;
pub const STORED: u8 = 1;
pub const REQUEST: u8 = 2;
pub const ANSWERED: u8 = 3;
pub const CHANGE: u8 = 4;
pub const COMMITTED: u8 = 5;
pub const OVERVIEW: u8 = 6;
pub const LOST: u8 = 8;
pub const DELIVERED: u8 = 9;
pub const GIVE_UP: u8 = 10;
pub const RESUME: u8 = 11;
pub const RESUME_ALL: u8 = 12;
pub const WAKE: u8 = 13;
pub const DOUBT_CLOCK: u8 = 14;
pub const OFFLINE: u8 = 16;
pub const ONLINE: u8 = 17;
pub const LEAVE: u8 = 19;
pub const WATCH: u8 = 20;
pub const TICKET_OF: u8 = 21;
pub const IS_DONE: u8 = 22;

pub const SERVER_MS: i64 = 1_800_000_000_000;
pub const RETRY_INTERVAL_MS: i64 = 50;
pub const ATTEMPT_TIMEOUT_MS: i64 = 100;
pub const GIVE_UP_AFTER_MS: i64 = 5_000;

/// The description of a request: ticket, id, method and target.
pub type Described = (i64, String, String, String);
/// A failure: code, executed, retry, detail, problem.
pub type Why = (String, String, String, String, Vec<u8>);

/// An action that the host asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Change(i64, String),
    /// A change that nobody waits for.
    Patient(i64, String),
    Remove(String),
    Transmit {
        attempt: i64,
        method: String,
        target: String,
        lines: String,
        body: Vec<u8>,
    },
    Abort(i64),
    Outcome {
        request: Described,
        is_awaited: bool,
        status: i64,
        lines: String,
        body: Vec<u8>,
    },
    Failure {
        request: Described,
        is_awaited: bool,
        why: Why,
    },
    GiveUp(String, Why),
    Pause(Described, Why),
}

pub struct Told {
    pub wakes_at: Option<i64>,
    /// How many requests have no answer, and how many are paused.
    pub counts: (i64, i64),
    pub result: Vec<u8>,
    pub asked: Vec<Asked>,
}

pub fn described(input: &mut Reader<'_>) -> Described {
    (input.integer(), input.text(), input.text(), input.text())
}

pub fn why(input: &mut Reader<'_>) -> Why {
    (input.text(), input.text(), input.text(), input.text(), input.bytes().to_vec())
}

pub fn asked(input: &mut Reader<'_>) -> Option<Asked> {
    Some(match input.byte() {
        0 => Asked::Change(input.integer(), input.text()),
        1 => Asked::Remove(input.text()),
        2 => Asked::Transmit {
            attempt: input.integer(),
            method: input.text(),
            target: input.text(),
            lines: input.text(),
            body: input.bytes().to_vec(),
        },
        3 => Asked::Abort(input.integer()),
        4 => {
            let (request, is_awaited) = (described(input), input.flag());
            if input.flag() {
                let (status, lines, body) = (input.integer(), input.text(), input.bytes().to_vec());
                Asked::Outcome { request, is_awaited, status, lines, body }
            } else {
                Asked::Failure { request, is_awaited, why: why(input) }
            }
        }
        5 => Asked::GiveUp(input.text(), why(input)),
        6 => Asked::Pause(described(input), why(input)),
        7 => Asked::Patient(input.integer(), input.text()),
        _ => return None,
    })
}

/// Reads an output to its end.
pub fn told(output: &[u8]) -> Told {
    let mut input = Reader::new(output);
    let wakes_at = input.optional(Reader::integer);
    let counts = (input.integer(), input.integer());
    let (result, actions) = (input.bytes().to_vec(), input.bytes());
    input.end().expect("nothing else");
    let mut input = Reader::new(actions);
    let mut all = Vec::new();
    while input.end().is_none() {
        all.push(asked(&mut input).expect("an action"));
        assert!(!input.has_failed(), "{all:?}");
    }
    Told { wakes_at, counts, result, asked: all }
}

/// A host, and the actions that it asked for. Before each call, the same input is tried cut short at every length: that must change
/// nothing.
#[derive(Default)]
pub struct Tab {
    pub host: Host,
    pub now_ms: i64,
    pub asked: Vec<Asked>,
    pub wakes_at: Option<i64>,
    pub counts: (i64, i64),
}

impl Tab {
    pub fn call(&mut self, what: u8, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut input = Writer::default();
        input.byte(what);
        input.integer(self.now_ms);
        write(&mut input);
        let input = input.done();
        let before = format!("{:?}", self.host);
        for length in 0..input.len() {
            assert_eq!(self.host.call(&input[..length]), None, "{length} bytes of {input:?}");
            assert_eq!(format!("{:?}", self.host), before, "{length} bytes of {input:?} have changed something");
        }
        let told = told(&self.host.call(&input).expect("it can be read"));
        self.wakes_at = told.wakes_at;
        self.counts = told.counts;
        self.asked.extend(told.asked);
        told.result
    }

    pub fn number(&mut self, what: u8, number: i64) {
        assert!(self.call(what, |input| input.integer(number)).is_empty());
    }

    pub fn open(&mut self) {
        let result = self.call(OPEN, |input| {
            for text in ["semel https://test alice", "tab", "alice"] {
                input.text(text);
            }
            input.integer(RETRY_INTERVAL_MS);
            input.integer(ATTEMPT_TIMEOUT_MS);
            input.optional(Some(GIVE_UP_AFTER_MS), Writer::integer);
            input.integer(REQUESTS_MAX as i64);
            input.integer(ATTEMPTS_MAX as i64);
        });
        assert!(result.is_empty());
    }

    pub fn request(&mut self, id: &str, key: Option<&str>) -> i64 {
        let ticket = self.call(REQUEST, |input| {
            for text in [id, "POST", "/deposit?a=b"] {
                input.text(text);
            }
            input.optional(key, Writer::text);
            input.text("x-note:a:b\n");
            input.bytes(&[0, 255, 10]);
            input.flag(false);
        });
        integer(&ticket)
    }

    pub fn answered(&mut self, attempt: i64, status: i64, lines: &str, members: &str) {
        let result = self.call(ANSWERED, |input| {
            input.integer(attempt);
            input.integer(status);
            input.text(lines);
            input.bytes(b"{}");
            input.text(members);
        });
        assert!(result.is_empty());
    }

    /// Takes the next action, which must be the only one.
    #[track_caller]
    pub fn next(&mut self) -> Asked {
        assert_eq!(self.asked.len(), 1, "{:?}", self.asked);
        self.asked.remove(0)
    }

    /// Makes the change that the next action asks for, on the stored `row`, and reports it as committed. Returns what the host has
    /// done with the row (0 leaves it, 1 writes it, 2 deletes it), and the row that it wrote.
    #[track_caller]
    pub fn change(&mut self, id: &str, row: Option<&[u8]>) -> (u8, Vec<u8>) {
        let Asked::Change(number, changed) = self.next() else { panic!("no change") };
        assert_eq!(changed, id);
        self.made(number, row)
    }

    /// The same for a change that nobody waits for.
    #[track_caller]
    pub fn settle(&mut self, id: &str, row: Option<&[u8]>) -> (u8, Vec<u8>) {
        let Asked::Patient(number, changed) = self.next() else { panic!("none that nobody waits for") };
        assert_eq!(changed, id);
        self.made(number, row)
    }

    fn made(&mut self, number: i64, row: Option<&[u8]>) -> (u8, Vec<u8>) {
        let written = self.call(CHANGE, |input| {
            input.integer(number);
            input.optional(row, Writer::bytes);
        });
        self.committed(number, true);
        let mut written = Reader::new(&written);
        let kind = written.byte();
        let row = if kind == 1 { written.bytes().to_vec() } else { Vec::new() };
        written.end().expect("nothing else");
        (kind, row)
    }

    pub fn committed(&mut self, number: i64, is_committed: bool) {
        self.call(COMMITTED, |input| {
            input.integer(number);
            input.flag(is_committed);
        });
    }

    /// The next action, which must be an attempt: its number, target and header lines.
    #[track_caller]
    pub fn attempt(&mut self) -> (i64, String, String) {
        match self.next() {
            Asked::Transmit { attempt, target, lines, .. } => (attempt, target, lines),
            other => panic!("{other:?}"),
        }
    }

    /// Lets time pass until the host wants to be woken, and wakes it.
    pub fn wake(&mut self) {
        self.now_ms = self.wakes_at.expect("it is to be woken");
        self.number(WAKE, 0);
    }

    /// Makes a request, and lets its first attempt leave. Returns the request's ticket, its row and the attempt.
    pub fn sent(&mut self, id: &str, key: Option<&str>) -> (i64, Vec<u8>, i64) {
        let ticket = self.request(id, key);
        let (_, row) = self.change(id, None);
        let (attempt, target, _) = self.attempt();
        assert_eq!(target, "/deposit?a=b");
        (ticket, row, attempt)
    }

    /// An open host that knows the server's clock and has no requests.
    pub fn ready() -> Self {
        let mut tab = Self::default();
        tab.open();
        let ticket = tab.request("first", None);
        tab.change("first", None);
        let (health, ..) = tab.attempt();
        tab.answered(health, 200, &format!("semel-status:read\nsemel-now:{SERVER_MS}\n"), "");
        // The row counts as gone now, so the request fails and is not sent.
        tab.change("first", None);
        assert!(matches!(tab.next(), Asked::Failure { .. }));
        tab.number(DELIVERED, ticket);
        assert_eq!(tab.asked, []);
        tab
    }
}

/// The text that is the whole result.
pub fn text(result: &[u8]) -> String {
    let mut input = Reader::new(result);
    let text = input.text();
    input.end().expect("a text, and nothing else");
    text
}

/// The integer that is the whole result.
pub fn integer(result: &[u8]) -> i64 {
    let mut input = Reader::new(result);
    let integer = input.integer();
    input.end().expect("an integer, and nothing else");
    integer
}

pub fn pending(row: &[u8]) -> Entry {
    match codec::decode(row) {
        Ok(Row::Pending(entry)) => entry,
        other => panic!("{other:?}"),
    }
}

pub fn rows(input: &mut Writer, rows: &[(&str, &[u8])]) {
    input.integer(rows.len() as i64);
    for (id, row) in rows {
        input.text(id);
        input.bytes(row);
    }
}
