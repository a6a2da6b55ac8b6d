//! Does what the machine asks for, and tells it what became of it.
//!
//! Invariants:
//! - The machine is borrowed for one call of it, never across a call into JavaScript.
//! - Once it is closed, nothing is sent, nobody is called, and no timer runs.

use crate::clock::{self, now_ms};
use crate::store::{Rows, Store, unreadable};
use crate::{Done, callback};
use gloo_timers::callback::Timeout;
use js_sys::Uint8Array;
use semel_core::client::{Action, Answered, Client, Draft, Failure, Receiver, Row, Ticket, codec};
use semel_core::message::Response;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

/// The longest time for which a timer can be set; it is set again then.
const TIMER_MS_MAX: i64 = i32::MAX as i64;

#[wasm_bindgen]
extern "C" {
    /// What JavaScript does for the machine: see `#host` in `js/semel.js`.
    pub type Host;

    #[wasm_bindgen(method)]
    fn transmit(this: &Host, attempt: f64, method: &str, target: &str, lines: &str, body: Uint8Array);
    #[wasm_bindgen(method)]
    fn abort(this: &Host, attempt: f64);
    #[wasm_bindgen(method)]
    fn outcome(this: &Host, ticket: f64, is_awaited: bool, described: &str, status: u16, lines: &str, body: Uint8Array);
    #[wasm_bindgen(method)]
    fn failure(this: &Host, ticket: f64, is_awaited: bool, described: &str, failure: &str, problem: Uint8Array);
    #[wasm_bindgen(method, js_name = gaveUp)]
    fn gave_up(this: &Host, id: &str, failure: &str);
    #[wasm_bindgen(method)]
    fn alive(this: &Host, done: JsValue);
    #[wasm_bindgen(method)]
    fn pause(this: &Host, ticket: f64, described: &str, failure: &str, problem: Uint8Array);
}

/// The host of a machine.
pub struct Driver {
    client: RefCell<Client>,
    timer: RefCell<Option<Timeout>>,
    is_closed: Cell<bool>,
    /// Whether actions are being taken. What is told meanwhile adds to them: nesting would be as deep as there are requests, and
    /// a stack that overflows in wasm is no error but wrong memory.
    is_driving: Cell<bool>,
    /// How far the wall clock was ahead of the other when it was last looked at.
    asleep_ms: Cell<i64>,
    host: Host,
    /// Where rows are kept.
    pub store: Store,
}

impl Driver {
    /// A host with nothing to do yet.
    pub fn new(client: Client, store: Store, host: Host) -> Rc<Self> {
        let (client, timer) = (RefCell::new(client), RefCell::new(None));
        let (is_closed, is_driving) = (Cell::new(false), Cell::new(false));
        let asleep_ms = Cell::new(clock::wall_ahead_ms());
        Rc::new(Self { client, timer, is_closed, is_driving, asleep_ms, host, store })
    }

    /// Asks who certainly lives, one a line; `None` where that can't be told. To be asked after rows were read: an owner lives
    /// before it writes its first row, so whoever has a row and lives is among them.
    pub fn ask_who_lives(&self, done: Done<Result<Option<String>, JsValue>>) {
        let told = move |told: JsValue| match told.as_string() {
            None if !told.is_undefined() => done(Err(told)),
            lives => done(Ok(lives)),
        };
        self.host.alive(callback(Box::new(told)));
    }

    /// Takes the rows of owners that don't live, and returns the owners of what is pending, one a line.
    pub fn take(self: &Rc<Self>, rows: &Rows, alive: Option<&str>) -> Result<JsValue, JsValue> {
        let lives = |owner: &str| alive.unwrap_or_default().split('\n').any(|each| each == owner);
        let lives: Option<&dyn Fn(&str) -> bool> = if alive.is_some() { Some(&lives) } else { None };
        if let Some(Err(_)) = self.tell(|client, now_ms| client.stored(now_ms, rows, lives)) {
            return Err(unreadable());
        }
        let mut owners = String::new();
        for (_, row) in rows {
            if let Ok(Row::Pending(entry)) = codec::decode(row) {
                push_line(&mut owners, &[&entry.owner]);
            }
        }
        Ok(owners.into())
    }

    /// Tells the machine something, and does what it asks for then.
    pub fn tell<T>(self: &Rc<Self>, what: impl FnOnce(&mut Client, i64) -> T) -> Option<T> {
        if self.is_closed.get() {
            return None;
        }
        let told = {
            let mut client = self.client.borrow_mut();
            if clock::was_asleep(&self.asleep_ms) {
                client.doubt_clock();
            }
            what(&mut client, now_ms())
        };
        self.drive();
        Some(told)
    }

    /// All that is pending, one a line: id, method, target, state and attempts, with tabs between.
    pub fn overview(&self, rows: &Rows) -> Result<JsValue, JsValue> {
        let all = self.client.borrow().overview(rows).map_err(|_| unreadable())?;
        let mut lines = String::new();
        for one in all {
            push_line(&mut lines, &[&one.id, &one.method, &one.target, one.state, &one.attempts.to_string()]);
        }
        Ok(lines.into())
    }

    /// Ends it. Who waits is told so.
    pub fn close(self: &Rc<Self>) {
        self.tell(|client, _| client.close());
        self.is_closed.set(true);
        self.timer.take();
        self.store.close();
    }

    fn drive(self: &Rc<Self>) {
        if self.is_driving.replace(true) {
            return;
        }
        loop {
            let action = self.client.borrow_mut().poll();
            match action {
                Some(action) => self.act(action),
                None => break,
            }
        }
        self.is_driving.set(false);
        self.set_timer();
    }

    fn set_timer(self: &Rc<Self>) {
        // The one that was set before is cleared.
        self.timer.take();
        let wakes_ms = self.client.borrow().wakes_at();
        if let Some(wakes_ms) = wakes_ms
            && !self.is_closed.get()
        {
            let after_ms = wakes_ms.saturating_sub(now_ms()).clamp(0, TIMER_MS_MAX) as u32;
            let own = self.clone();
            let wake = move || {
                own.tell(Client::wake);
            };
            self.timer.replace(Some(Timeout::new(after_ms, wake)));
        }
    }

    fn act(self: &Rc<Self>, action: Action) {
        match action {
            Action::Change { ticket, id, change } => {
                let own = self.clone();
                let done = move |changed| {
                    own.tell(|client, now_ms| client.changed(now_ms, ticket, changed));
                };
                self.store.change(&id, change, Box::new(done));
            }
            Action::Remove(ids) => self.store.remove(&ids),
            Action::Transmit(made) => {
                let Draft { method, target, headers, body, .. } = &*made.request;
                let mut lines = headers.to_lines();
                lines.push_str(&made.headers.to_lines());
                self.host.transmit(made.attempt as f64, method, target, &lines, array(body));
            }
            Action::Abort(attempt) => self.host.abort(attempt as f64),
            Action::Deliver { ticket, to, answered } => self.deliver(ticket, to == Receiver::Caller, &answered),
            Action::GiveUp { id, failure } => self.host.gave_up(&id, &lines_of(&failure)),
            Action::Pause { ticket, failure } => {
                let (lines, problem) = (lines_of(&failure), array(&failure.problem));
                self.host.pause(ticket as f64, &self.describe(ticket), &lines, problem);
            }
        }
    }

    fn deliver(&self, ticket: Ticket, is_awaited: bool, answered: &Answered) {
        let described = self.describe(ticket);
        match answered {
            Answered::Outcome(Response { status, headers, body }) => {
                self.host.outcome(ticket as f64, is_awaited, &described, *status, &headers.to_lines(), array(body));
            }
            Answered::Failure(failure) => {
                let (lines, problem) = (lines_of(failure), array(&failure.problem));
                self.host.failure(ticket as f64, is_awaited, &described, &lines, problem);
            }
        }
    }

    /// Id, method and target, with tabs between.
    fn describe(&self, ticket: Ticket) -> String {
        let client = self.client.borrow();
        let (id, method, target) = client.describe(ticket).unwrap_or_default();
        let mut described = String::new();
        push_line(&mut described, &[id, method, target]);
        described
    }
}

/// Code, executed, retry and detail, with tabs between.
fn lines_of(failure: &Failure) -> String {
    let mut lines = String::new();
    push_line(&mut lines, &[&failure.code, failure.executed.as_str(), failure.retry.as_str(), &failure.detail]);
    lines
}

/// None of what is joined here holds a tab or a line feed but a detail, which comes last.
fn push_line(lines: &mut String, texts: &[&str]) {
    if !lines.is_empty() {
        lines.push('\n');
    }
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            lines.push('\t');
        }
        lines.push_str(text);
    }
}

fn array(bytes: &[u8]) -> Uint8Array {
    Uint8Array::from(bytes)
}
