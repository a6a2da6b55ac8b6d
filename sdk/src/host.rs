//! What JavaScript says to the machine, and what it is told.
//!
//! In: a byte that says what, the clock in ms, and what belongs to it ([`Host::call`]). Out: when the host is to wake the
//! machine, if ever; how many requests have no answer, and how many of them are paused; a result; then what is to be done, one after the other, each with a byte that says what
//! ([`write_action`]). The same bytes in the other half: `sdk/js/machine.js`.

use semel_core::client::bytes::{Reader, Writer};
use semel_core::client::numbered::Numbered;
use semel_core::client::row::{Write, is_done};
use semel_core::client::{
    Action, Answer, Answered, Change, Changed, Client, Draft, Failure, Overview, Receiver, Row, Settings, Transmission,
    codec,
};
use semel_core::message::{Headers, Response};
use semel_core::text::{decimal, joined, split};

/// All rows, by id.
pub(crate) type Rows = Vec<(String, Vec<u8>)>;

/// A change that is on its way to the store.
#[derive(Debug)]
struct Changing {
    ticket: u64,
    /// Who made the request, as [`Client::maker_of`] says: it may not be in hand any more by the time that the store does it.
    maker: String,
    change: Change,
    /// What it did, if the store's transaction commits.
    changed: Option<Changed>,
}

/// The machine of one outbox, and what the host has to report.
#[derive(Debug, Default)]
pub struct Host {
    client: Option<Client>,
    changes: Numbered<Changing>,
    last_change: u64,
}

impl Host {
    /// One that is not open yet.
    pub const fn new() -> Self {
        Self { client: None, changes: Numbered::new(), last_change: 0 }
    }

    /// Does what `input` says. `None`: it can't be read.
    pub fn call(&mut self, input: &[u8]) -> Option<Vec<u8>> {
        let mut input = Reader::new(input);
        let (what, now_ms) = (input.byte(), input.integer());
        let mut result = Writer::default();
        match what {
            // Which outbox it is: once and for all.
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
            // What is stored, and who lives, one a line. Back: who owns what is pending, one a line.
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
            // A request, and whether it waits for those before it. Back: its ticket, or 0 where its id is another request's.
            2 => {
                let id = input.text();
                let draft = read_draft(&mut input);
                let is_ordered = input.flag();
                input.end()?;
                let ticket = self.client.as_mut()?.request(now_ms, id, draft, is_ordered);
                result.integer(ticket.unwrap_or(0) as i64);
            }
            // The id of a request for whose answer somebody waits; one that may be in hand. Back: its ticket, 0 where there is none.
            20 | 21 => {
                let id = input.text();
                input.end()?;
                let client = self.client.as_mut()?;
                let ticket = if what == 20 { client.watch(id) } else { client.ticket_of(&id).unwrap_or(0) };
                result.integer(ticket as i64);
            }
            // The answer to an attempt. Its members: of a body that is a JSON object, those that are strings.
            3 => {
                let attempt = input.integer() as u64;
                let answer = read_answer(&mut input);
                input.end()?;
                self.client.as_mut()?.answered(now_ms, attempt, answer);
            }
            // In the store's transaction, with the row as it is. Back: `0` to leave it, `1` and the row to write, `2` to delete it.
            4 => {
                let (number, row) = (input.integer() as u64, input.optional(Reader::bytes));
                input.end()?;
                let changing = self.changes.get_mut(&number)?;
                let (write, changed) = changing.change.apply(&changing.maker, row).ok()?;
                changing.changed = Some(changed);
                write_row(&mut result, write);
            }
            // Whether that transaction was committed. Back: the request, where it waits until the store does it.
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
            // What is stored. Back: each request without an answer, one a line, with tabs between.
            6 => {
                let rows = rows(&mut input);
                input.end()?;
                result.text(&lines_of(self.client.as_ref()?.overview(&rows).ok()?));
            }
            // In the store's transaction, a row as it is. Back: whether it may be deleted.
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
                    // A request is to be sent again after a pause.
                    11 => client.resume(now_ms, number),
                    // So are all.
                    12 => client.resume_all(now_ms),
                    // Time has passed.
                    13 => client.wake(now_ms),
                    // A clock has jumped.
                    14 => client.doubt_clock(),
                    // The network is gone; it is there again.
                    16 => client.set_offline(now_ms, true),
                    17 => client.set_offline(now_ms, false),
                    // Nobody waits for an answer any more.
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

/// Writes what is to be done.
fn write_action(out: &mut Writer, client: &Client, action: Action, number: u64, changes: &mut Numbered<Changing>) {
    match action {
        // The number of a change, and the row's id. With `7`, nobody waits for it.
        Action::Change { ticket, id, change } => {
            out.byte(if matches!(change, Change::Settle { .. }) { 7 } else { 0 });
            let maker = client.maker_of(ticket).to_owned();
            changes.insert(number, Changing { ticket, maker, change, changed: None });
            out.integer(number as i64);
            out.text(&id);
        }
        // Ids, one a line.
        Action::Remove(ids) => {
            let mut lines = String::new();
            for id in &ids {
                push_line(&mut lines, &[id]);
            }
            out.byte(1);
            out.text(&lines);
        }
        // The attempt, method, target, header lines, body.
        Action::Transmit(made) => {
            out.byte(2);
            write_transmission(out, &made);
        }
        // The attempt.
        Action::Abort(attempt) => {
            out.byte(3);
            out.integer(attempt as i64);
        }
        // The ticket, the request, to whom, what.
        Action::Deliver { ticket, to, answered } => {
            out.byte(4);
            write_request(out, ticket, client.describe(ticket));
            write_answered(out, to, &answered);
        }
        // The id, why.
        Action::GiveUp { id, failure } => {
            out.byte(5);
            out.text(&id);
            write_failure(out, &failure);
        }
        // The ticket, the request, why.
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

/// Each request without an answer, one a line, with tabs between.
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

/// None of what is joined here holds a tab or a line feed.
fn push_line(lines: &mut String, texts: &[&str]) {
    let mut before = if lines.is_empty() { "" } else { "\n" };
    for text in texts {
        lines.push_str(before);
        lines.push_str(text);
        before = "\t";
    }
}
