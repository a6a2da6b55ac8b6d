//! The calls that JavaScript makes to the machine of an outbox, and the bytes of their inputs and outputs.
//!
//! An input is a byte that names the call, the clock in ms, and the call's arguments ([`Host::call`]). An output is:
//! 1. when the host has to wake the machine, if ever
//! 2. how many requests have no answer, and how many of them are paused
//! 3. the result of the call
//! 4. the actions, one after the other, each with a byte that names it ([`write_action`])
//!
//! `sdk/js/machine.js` has the same bytes for the other side.

use semel_core::client::bytes::{Reader, Writer};
use semel_core::client::numbered::Numbered;
use semel_core::client::row::{Write, is_done};
use semel_core::client::{
    Action, Answer, Answered, Change, Changed, Client, Draft, Failure, Overview, Receiver, Row, Settings, Transmission,
    codec,
};
use semel_core::message::{Headers, Response};
use semel_core::text::{decimal, joined, split};

/// Rows, each with its id.
pub(crate) type Rows = Vec<(String, Vec<u8>)>;

/// A change that the store has yet to make.
#[derive(Debug)]
struct Changing {
    ticket: u64,
    /// The maker, from [`Client::maker_of`]. It is kept here because the request may no longer be in hand when the
    /// store makes the change.
    maker: String,
    change: Change,
    /// The result, which counts if the store's transaction commits.
    changed: Option<Changed>,
}

/// The machine of one outbox, and the changes that the host has yet to report.
#[derive(Debug, Default)]
pub struct Host {
    client: Option<Client>,
    changes: Numbered<Changing>,
    last_change: u64,
}

impl Host {
    /// Makes a host without an open outbox.
    pub const fn new() -> Self {
        Self { client: None, changes: Numbered::new(), last_change: 0 }
    }

    /// Makes the call that `input` describes. `None`: the input can't be read.
    pub fn call(&mut self, input: &[u8]) -> Option<Vec<u8>> {
        let mut input = Reader::new(input);
        let (what, now_ms) = (input.byte(), input.integer());
        let mut result = Writer::default();
        match what {
            // Opens the outbox. Later calls change nothing.
            0 => {
                let settings = Settings {
                    outbox: input.text(),
                    owner: input.text(),
                    principal: input.text(),
                    retry_interval_ms: input.integer(),
                    attempt_timeout_ms: input.integer(),
                    give_up_after_ms: input.optional(Reader::integer),
                    requests_max: input.integer() as usize,
                    attempts_max: input.integer() as usize,
                };
                input.end()?;
                self.client.get_or_insert_with(|| Client::new(settings));
            }
            // The stored rows; the owners that live, one a line. Result: the owners of the pending rows, one a line.
            1 => {
                let rows = rows(&mut input);
                let lives = input.optional(Reader::text);
                input.end()?;
                let is_alive =
                    |owner: &str| lives.as_ref().is_some_and(|lives| split(lives, b'\n').any(|each| each == owner));
                let is_alive: Option<&dyn Fn(&str) -> bool> = if lives.is_some() { Some(&is_alive) } else { None };
                self.client.as_mut()?.stored(now_ms, &rows, is_alive).ok()?;
                result.text(&owners(&rows));
            }
            // A request; whether it waits for those before it. Result: its ticket, or 0 if its id is another request's.
            2 => {
                let id = input.text();
                let draft = read_draft(&mut input);
                let is_ordered = input.flag();
                input.end()?;
                let ticket = self.client.as_mut()?.request(now_ms, id, draft, is_ordered);
                result.integer(ticket.unwrap_or(0) as i64);
            }
            // 20: the id of a request for whose answer a caller waits. 21: an id that may be in hand. Result: the
            // ticket, or 0 if there is none.
            20 | 21 => {
                let id = input.text();
                input.end()?;
                let client = self.client.as_mut()?;
                let ticket = if what == 20 { client.watch(id) } else { client.ticket_of(&id).unwrap_or(0) };
                result.integer(ticket as i64);
            }
            // The answer to an attempt. Its members: those of a JSON object in the body that are strings.
            3 => {
                let attempt = input.integer() as u64;
                let answer = read_answer(&mut input);
                input.end()?;
                self.client.as_mut()?.answered(now_ms, attempt, answer);
            }
            // Inside the store's transaction: the number of a change, and the row as it is. Result: `0` to leave the
            // row, `1` and the row to write, or `2` to delete it.
            4 => {
                let (number, row) = (input.integer() as u64, input.optional(Reader::bytes));
                input.end()?;
                let changing = self.changes.get_mut(&number)?;
                let (write, changed) = changing.change.apply(&changing.maker, row).ok()?;
                changing.changed = Some(changed);
                write_row(&mut result, write);
            }
            // The number of a change, and whether its transaction was committed. Result: the request, if the change
            // failed and the request has no answer.
            5 => {
                let (number, is_committed) = (input.integer() as u64, input.flag());
                input.end()?;
                let Changing { ticket, changed, .. } = *self.changes.remove(&number)?;
                let changed = changed.filter(|_| is_committed);
                let client = self.client.as_mut()?;
                client.changed(now_ms, ticket, changed);
                if !is_committed && client.is_open(ticket) {
                    write_request(&mut result, ticket, client.describe(ticket));
                }
            }
            // The stored rows. Result: each request without an answer, one a line, with tabs between its fields.
            6 => {
                let rows = rows(&mut input);
                input.end()?;
                result.text(&lines_of(self.client.as_ref()?.overview(&rows).ok()?));
            }
            // Inside the store's transaction: a row as it is. Result: whether it may be deleted.
            22 => {
                let row = input.bytes();
                input.end()?;
                result.flag(is_done(row));
            }
            _ => {
                let number = input.integer() as u64;
                input.end()?;
                let client = self.client.as_mut()?;
                match what {
                    // An attempt got no answer.
                    8 => client.lost(now_ms, number),
                    // The receiver of an answer has it.
                    9 => client.delivered(now_ms, number),
                    // The application gives a request up.
                    10 => client.give_up(now_ms, number),
                    // The application resumes a paused request.
                    11 => client.resume(now_ms, number),
                    // The application resumes all paused requests.
                    12 => client.resume_all(now_ms),
                    // Time has passed.
                    13 => client.wake(now_ms),
                    // A clock has jumped.
                    14 => client.doubt_clock(),
                    // 16: the network is gone. 17: it is back.
                    16 => client.set_offline(now_ms, true),
                    17 => client.set_offline(now_ms, false),
                    // The caller no longer waits.
                    19 => client.leave(number),
                    _ => return None,
                }
            }
        }
        Some(self.output(&result.done()))
    }

    fn output(&mut self, result: &[u8]) -> Vec<u8> {
        let mut out = Writer::default();
        let mut actions = Writer::default();
        if let Some(client) = &mut self.client {
            while let Some(action) = client.poll() {
                self.last_change += 1;
                write_action(&mut actions, client, action, self.last_change, &mut self.changes);
            }
            out.optional(client.wakes_at(), Writer::integer);
        } else {
            out.flag(false);
        }
        let (open, paused) = self.client.as_ref().map_or((0, 0), Client::counts);
        out.integer(open as i64);
        out.integer(paused as i64);
        out.bytes(result);
        out.bytes(&actions.done());
        out.done()
    }
}

/// Writes an action.
fn write_action(out: &mut Writer, client: &Client, action: Action, number: u64, changes: &mut Numbered<Changing>) {
    match action {
        // The number of the change, and the row's id. With `7` instead of `0`, nobody waits for the change.
        Action::Change { ticket, id, change } => {
            out.byte(if matches!(change, Change::Settle { .. }) { 7 } else { 0 });
            let maker = client.maker_of(ticket).to_owned();
            changes.insert(number, Changing { ticket, maker, change, changed: None });
            out.integer(number as i64);
            out.text(&id);
        }
        // The ids, one a line.
        Action::Remove(ids) => {
            let mut lines = String::new();
            for id in &ids {
                push_line(&mut lines, &[id]);
            }
            out.byte(1);
            out.text(&lines);
        }
        // The attempt, method, target, header lines and body.
        Action::Transmit(made) => {
            out.byte(2);
            write_transmission(out, &made);
        }
        // The attempt.
        Action::Abort(attempt) => {
            out.byte(3);
            out.integer(attempt as i64);
        }
        // The ticket, the request, the receiver and the answer.
        Action::Deliver { ticket, to, answered } => {
            out.byte(4);
            write_request(out, ticket, client.describe(ticket));
            write_answered(out, to, &answered);
        }
        // The id and the failure.
        Action::GiveUp { id, failure } => {
            out.byte(5);
            out.text(&id);
            write_failure(out, &failure);
        }
        // The ticket, the request and the failure.
        Action::Pause { ticket, failure } => {
            out.byte(6);
            write_request(out, ticket, client.describe(ticket));
            write_failure(out, &failure);
        }
    }
}

#[inline(always)]
pub(crate) fn read_draft(input: &mut Reader<'_>) -> Draft {
    Draft {
        method: input.text(),
        target: input.text(),
        key: input.optional(Reader::text),
        headers: Headers::from_lines(&input.text()),
        body: input.bytes().to_vec(),
    }
}

#[inline(always)]
pub(crate) fn read_answer(input: &mut Reader<'_>) -> Answer {
    Answer {
        status: input.status(),
        headers: Headers::from_lines(&input.text()),
        body: input.bytes().to_vec(),
        members: Headers::from_lines(&input.text()),
    }
}

#[inline(always)]
pub(crate) fn write_row(out: &mut Writer, write: Write) {
    match write {
        Write::Nothing => out.byte(0),
        Write::Put(row) => {
            out.byte(1);
            out.bytes(&row);
        }
        Write::Delete => out.byte(2),
    }
}

/// The requests without an answer, one a line, with tabs between their fields.
#[inline(always)]
pub(crate) fn lines_of(all: Vec<Overview>) -> String {
    let mut lines = String::new();
    for Overview { id, method, target, attempts, state } in all {
        push_line(&mut lines, &[&id, &method, &target, state, &decimal(attempts.into())]);
    }
    lines
}

pub(crate) fn write_transmission(out: &mut Writer, made: &Transmission) {
    let Draft { method, target, headers, body, .. } = &*made.request;
    out.integer(made.attempt as i64);
    out.text(method);
    out.text(target);
    out.text(&joined(&[&headers.to_lines(), &made.headers.to_lines()]));
    out.bytes(body);
}

pub(crate) fn write_answered(out: &mut Writer, to: Receiver, answered: &Answered) {
    out.flag(to == Receiver::Caller);
    match answered {
        Answered::Outcome(Response { status, headers, body }) => {
            out.flag(true);
            out.integer((*status).into());
            out.text(&headers.to_lines());
            out.bytes(body);
        }
        Answered::Failure(failure) => {
            out.flag(false);
            write_failure(out, failure);
        }
    }
}

pub(crate) fn write_request(out: &mut Writer, ticket: u64, described: Option<(&str, &str, &str)>) {
    let (id, method, target) = described.unwrap_or_default();
    out.integer(ticket as i64);
    out.text(id);
    out.text(method);
    out.text(target);
}

pub(crate) fn write_failure(out: &mut Writer, failure: &Failure) {
    out.text(&failure.code);
    out.text(failure.executed.as_str());
    out.text(failure.retry.as_str());
    out.text(&failure.detail);
    out.bytes(&failure.problem);
}

pub(crate) fn rows(input: &mut Reader<'_>) -> Rows {
    let mut rows = Vec::new();
    for _ in 0..input.integer() {
        if input.has_failed() {
            break;
        }
        rows.push((input.text(), input.bytes().to_vec()));
    }
    rows
}

fn owners(rows: &Rows) -> String {
    let mut owners = String::new();
    for (_, row) in rows {
        if let Ok(Row::Pending(entry)) = codec::decode(row) {
            push_line(&mut owners, &[&entry.owner]);
        }
    }
    owners
}

/// Adds a line with tabs between the texts. None of the texts contains a tab or a line feed.
fn push_line(lines: &mut String, texts: &[&str]) {
    let mut before = if lines.is_empty() { "" } else { "\n" };
    for text in texts {
        lines.push_str(before);
        lines.push_str(text);
        before = "\t";
    }
}
