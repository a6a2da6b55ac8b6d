//! The calls that JavaScript makes to the machine of a session, and the bytes of their inputs and outputs.
//!
//! The calls and bytes are those of [`super::host`], as far as a session has them. So one driver in JavaScript drives
//! both.

use super::host::{
    lines_of, read_answer, read_draft, rows, write_answered, write_failure, write_request, write_row,
    write_transmission,
};
use crate::kept::Kept;
use semel_core::client::Receiver;
use semel_core::client::bytes::{Reader, Writer};
use semel_core::client::numbered::Numbered;
use semel_core::client::session::left::are_readable;
use semel_core::client::session::{AHEAD, Action, Change, Changed, Session, Settings};
use semel_core::text::split;

/// A change that the store has yet to make.
#[derive(Debug)]
struct Changing {
    ticket: u64,
    change: Change,
    /// The result, which counts if the store's transaction commits.
    changed: Option<Changed>,
}

/// The machine of one session, and the changes that the host has yet to report.
#[derive(Debug, Default)]
pub struct Host {
    session: Option<Session>,
    /// The rows, if they are stored only here.
    kept: Option<Kept>,
    changes: Numbered<Changing>,
    last_change: u64,
}

impl Host {
    /// Makes a host without an open session.
    pub const fn new() -> Self {
        Self { session: None, kept: None, changes: Numbered::new(), last_change: 0 }
    }

    /// Makes the call that `input` describes. `None`: the input can't be read.
    pub fn call(&mut self, input: &[u8]) -> Option<Vec<u8>> {
        let mut input = Reader::new(input);
        let (what, now_ms) = (input.byte(), input.integer());
        let told = input.rest();
        let mut result = Writer::default();
        match what {
            // Opens the session, given the stored rows. The host calls this once. If a row can't be read, the session
            // is never taken over.
            0 => {
                let mut settings = Settings {
                    outbox: input.text(),
                    owner: input.text(),
                    principal: input.text(),
                    retry_interval_ms: input.integer(),
                    attempt_timeout_ms: input.integer(),
                    requests_max: input.integer() as usize,
                    is_framed: input.flag(),
                    ahead: 0,
                    is_shared: true,
                    key: input.text(),
                    name: input.text(),
                    take_over_id: input.text(),
                    after: input.optional(Reader::integer),
                };
                // A socket keeps the order of frames.
                if settings.is_framed {
                    settings.ahead = AHEAD;
                }
                let gives_up_after_ms = input.optional(Reader::integer);
                let is_kept = input.flag();
                settings.is_shared = !is_kept;
                let rows = rows(&mut input);
                input.end()?;
                are_readable(&rows).ok()?;
                self.kept = is_kept.then(Kept::default);
                self.session.get_or_insert_with(|| Session::new(settings)).give_up_after(gives_up_after_ms);
            }
            // The stored rows; the owners that live, one a line. Result: a text, as for an outbox, but empty, since no
            // session watches for owners.
            1 => {
                let rows = rows(&mut input);
                let lives = input.optional(Reader::text);
                input.end()?;
                let session = self.session.as_mut()?;
                let is_alive =
                    |owner: &str| lives.as_ref().is_some_and(|lives| split(lives, b'\n').any(|each| each == owner));
                let is_alive: Option<&dyn Fn(&str) -> bool> = if lives.is_some() { Some(&is_alive) } else { None };
                session.stored(now_ms, &rows, is_alive).ok()?;
                result.text("");
            }
            // The tickets whose receivers have their answers; then new requests, each in order after the one before it.
            // Result: the ticket of the last request. The tickets of the others are the numbers before it.
            2 => {
                let session = self.session.as_mut()?;
                let mut last = 0;
                // First read all of it, so that nothing is done if it can't be read.
                for is_readable in [false, true] {
                    let mut input = Reader::new(told);
                    for _ in 0..input.integer() {
                        let ticket = input.integer() as u64;
                        if is_readable {
                            session.delivered(now_ms, ticket);
                        } else if input.has_failed() {
                            break;
                        }
                    }
                    for _ in 0..input.integer() {
                        let (id, draft) = (input.text(), read_draft(&mut input));
                        if is_readable {
                            last = session.request(now_ms, id, draft);
                        } else if input.has_failed() {
                            break;
                        }
                    }
                    input.end()?;
                    session.hold();
                }
                result.integer(last as i64);
            }
            // The answer to an attempt. The body of a batch's answer holds the answers to its requests, each in this
            // form.
            3 => {
                let attempt = input.integer() as u64;
                let answer = read_answer(&mut input);
                input.end()?;
                let session = self.session.as_mut()?;
                if self.kept.is_some() {
                    session.hold();
                }
                session.answered(now_ms, attempt, answer);
            }
            // Inside the store's transaction: the number of a change, and the row as it is. Result: `0` to leave the
            // row, `1` and the row to write, or `2` to delete it.
            4 => {
                let (number, row) = (input.integer() as u64, input.optional(Reader::bytes));
                input.end()?;
                let changing = self.changes.get_mut(&number)?;
                let (write, changed) = changing.change.apply(row).ok()?;
                changing.changed = Some(changed);
                write_row(&mut result, write);
            }
            // The number of a change, and whether its transaction was committed. Result: the request, if the change
            // failed and the request has no answer.
            5 => {
                let (number, is_committed) = (input.integer() as u64, input.flag());
                input.end()?;
                let Changing { ticket, changed, .. } = *self.changes.remove(&number)?;
                let session = self.session.as_mut()?;
                session.changed(now_ms, ticket, changed.filter(|_| is_committed));
                if !is_committed && session.is_open(ticket) {
                    write_request(&mut result, ticket, session.describe(ticket));
                }
            }
            // The rows in the store. Result: each request of this session without an answer, one a line, with tabs
            // between its fields.
            6 => {
                let mut rows = rows(&mut input);
                input.end()?;
                if let Some(kept) = &self.kept {
                    kept.list(&mut rows);
                }
                result.text(&lines_of(self.session.as_ref()?.overview(&rows).ok()?));
            }
            _ => {
                let number = input.integer() as u64;
                input.end()?;
                let session = self.session.as_mut()?;
                match what {
                    // An attempt got no answer.
                    8 => session.lost(now_ms, number),
                    // The application gives a request up.
                    10 => session.give_up(now_ms, number),
                    // The application resumes the session.
                    12 => session.resume(now_ms),
                    // Time has passed.
                    13 => session.wake(now_ms),
                    // A clock has jumped. A session does not depend on it.
                    14 => {}
                    // 16: the network is gone. 17: it is back.
                    16 => session.set_offline(now_ms, true),
                    17 => session.set_offline(now_ms, false),
                    _ => return None,
                }
            }
        }
        Some(self.output(now_ms, &result.done()))
    }

    fn output(&mut self, now_ms: i64, result: &[u8]) -> Vec<u8> {
        let mut out = Writer::default();
        let mut actions = Writer::default();
        let (mut open, mut paused) = (0, 0);
        if let Some(session) = &mut self.session {
            while let Some(action) = session.poll().or_else(|| session.release(now_ms)) {
                if let (Some(kept), Action::Change { ticket, id, change }) = (&mut self.kept, &action) {
                    session.changed(now_ms, *ticket, Some(kept.change(*ticket, id, change)));
                    continue;
                }
                // The host hands the answer to the caller before it sends what follows, and there is no row in a store
                // that could still be lost. So the next frame need not wait for the host's report, and leaves while the
                // callers go on.
                let given =
                    if let (Some(_), Action::Deliver { ticket, to: Receiver::Caller, .. }) = (&self.kept, &action) {
                        Some(*ticket)
                    } else {
                        None
                    };
                self.last_change += 1;
                write_action(&mut actions, session, action, self.last_change, &mut self.changes);
                given.into_iter().for_each(|ticket| session.delivered(now_ms, ticket));
            }
            out.optional(session.wakes_at(), Writer::integer);
            (open, paused) = session.counts();
        } else {
            out.flag(false);
        }
        out.integer(open as i64);
        out.integer(paused as i64);
        out.bytes(result);
        out.bytes(&actions.done());
        out.done()
    }
}

/// Writes an action, with the bytes of `write_action` in [`super::host`].
fn write_action(out: &mut Writer, session: &Session, action: Action, number: u64, changes: &mut Numbered<Changing>) {
    match action {
        Action::Change { ticket, id, change } => {
            changes.insert(number, Changing { ticket, change, changed: None });
            out.byte(0);
            out.integer(number as i64);
            out.text(&id);
        }
        Action::Transmit(made) => {
            out.byte(2);
            write_transmission(out, &made);
        }
        Action::Abort(attempt) => {
            out.byte(3);
            out.integer(attempt as i64);
        }
        Action::Deliver { ticket, to, answered } => {
            out.byte(4);
            // A caller knows what it asked for.
            let describe =
                |(id, method, target)| if to == Receiver::Caller { (id, "", "") } else { (id, method, target) };
            write_request(out, ticket, session.describe(ticket).map(describe));
            write_answered(out, to, &answered);
        }
        Action::Pause { ticket, failure } => {
            out.byte(6);
            write_request(out, ticket, session.describe(ticket));
            write_failure(out, &failure);
        }
    }
}
