//! The module with a stub for its host, as `js/semel.js` is one: nothing is reported from within the module's call but what
//! is delivered to a caller, and what was aborted is reported no more.

use super::memory::Memory;
use super::rows::{OUTBOX, all_bytes};
use super::server::{Reply, Sent, Server};
use super::wait::{clock_ms, later, settled};
use js_sys::{Function, Object, Promise, Reflect, Uint8Array};
use semel_core::client::Answer;
use semel_core::message::Headers;
use semel_sdk::Outbox;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use wasm_bindgen::prelude::{Closure, wasm_bindgen};
use wasm_bindgen::{JsCast, JsValue};

#[wasm_bindgen]
extern "C" {
    /// The module's class, as JavaScript sees it.
    #[derive(Clone)]
    pub type Module;

    #[wasm_bindgen(method)]
    fn take_over(this: &Module) -> Promise;
    #[wasm_bindgen(method)]
    pub fn request(
        this: &Module,
        id: &str,
        method: &str,
        target: &str,
        key: Option<&str>,
        header_lines: &str,
        body: Uint8Array,
    ) -> Option<f64>;
    #[wasm_bindgen(method)]
    pub fn answered(this: &Module, attempt: f64, status: u16, header_lines: &str, body: Uint8Array, members: &str);
    #[wasm_bindgen(method)]
    fn tell(this: &Module, what: u8, number: f64);
    #[wasm_bindgen(method)]
    pub fn pending(this: &Module) -> Promise;
    #[wasm_bindgen(method)]
    pub fn close(this: &Module);
}

impl Module {
    pub fn lost(&self, attempt: f64) {
        self.tell(0, attempt);
    }

    pub fn delivered(&self, ticket: f64) {
        self.tell(1, ticket);
    }

    pub fn give_up(&self, ticket: f64) {
        self.tell(2, ticket);
    }

    pub fn resume(&self, ticket: f64) {
        self.tell(3, ticket);
    }

    pub fn resume_all(&self) {
        self.tell(4, 0.0);
    }
}

/// The options.
pub struct Setup {
    pub owner: &'static str,
    pub identity: &'static str,
    pub retry_interval_ms: f64,
    pub attempt_timeout_ms: f64,
    pub give_up_after_ms: Option<f64>,
    pub database: String,
    pub durability: &'static str,
    /// None: IndexedDB.
    pub store: Option<Memory>,
}

/// So far ahead lies the deadline of an attempt, if a test wants nothing else.
pub const ATTEMPT_TIMEOUT_MS: i64 = 60_000;
pub const RETRY_INTERVAL_MS: i64 = 10;

impl Setup {
    /// With a store in memory.
    pub fn with(store: &Memory) -> Self {
        Self {
            owner: "tab-a",
            identity: "alice",
            retry_interval_ms: RETRY_INTERVAL_MS as f64,
            attempt_timeout_ms: ATTEMPT_TIMEOUT_MS as f64,
            give_up_after_ms: None,
            database: OUTBOX.to_owned(),
            durability: "strict",
            store: Some(store.clone()),
        }
    }

    fn open(&self, host: JsValue) -> Promise {
        let options = Object::new();
        Reflect::set(&options, &"durability".into(), &self.durability.into()).expect("an object takes a member");
        Outbox::open(
            host.unchecked_into(),
            self.owner.to_owned(),
            self.identity.to_owned(),
            self.retry_interval_ms,
            self.attempt_timeout_ms,
            self.give_up_after_ms,
            self.store.as_ref().map_or(JsValue::UNDEFINED, Memory::to_js),
            self.database.clone(),
            options,
        )
    }
}

/// What a receiver got.
#[derive(Debug, Clone, PartialEq)]
pub enum Got {
    Outcome { status: u16, headers: Headers, body: Vec<u8> },
    Failure { code: String, executed: String, retry: String, detail: String, problem: String },
}

impl Got {
    fn failed(failure: &str, problem: &Uint8Array) -> Self {
        let mut parts = failure.splitn(4, '\t').map(str::to_owned);
        let mut part = || parts.next().expect("a failure has four parts");
        let problem = String::from_utf8(problem.to_vec()).expect("a problem is text");
        Self::Failure { code: part(), executed: part(), retry: part(), detail: part(), problem }
    }

    /// Code, executed and retry of a failure.
    pub fn failure(&self) -> Option<(&str, &str, &str)> {
        match self {
            Self::Failure { code, executed, retry, .. } => Some((code, executed, retry)),
            Self::Outcome { .. } => None,
        }
    }

    /// The body of an outcome.
    pub fn body(&self) -> Option<&[u8]> {
        match self {
            Self::Outcome { body, .. } => Some(body),
            Self::Failure { .. } => None,
        }
    }
}

/// What was asked of the host, but for attempts: the server remembers those.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    Abort(f64),
    Deliver { ticket: f64, is_awaited: bool, described: Vec<String>, got: Got },
    GaveUp { id: String, failure: Got },
    Pause { ticket: f64, described: Vec<String>, failure: Got },
}

/// What was delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    pub ticket: f64,
    pub is_awaited: bool,
    pub described: Vec<String>,
    pub got: Got,
}

struct State {
    owner: String,
    server: Server,
    store: Option<Memory>,
    asked: RefCell<Vec<Asked>>,
    aborted: RefCell<BTreeSet<u64>>,
    module: RefCell<Option<Module>>,
    takes_answers: Cell<bool>,
    lives: RefCell<JsValue>,
}

/// A tab with the SDK.
#[derive(Clone)]
pub struct Tab(Rc<State>);

impl Tab {
    /// Opens the outbox, and takes nothing over yet.
    pub async fn open(server: &Server, setup: &Setup) -> Result<Self, JsValue> {
        let tab = Self(Rc::new(State {
            owner: setup.owner.to_owned(),
            server: server.clone(),
            store: setup.store.clone(),
            asked: RefCell::default(),
            aborted: RefCell::default(),
            module: RefCell::new(None),
            takes_answers: Cell::new(true),
            lives: RefCell::new(JsValue::UNDEFINED),
        }));
        let module = settled("the outbox is open", setup.open(tab.host())).await?;
        tab.0.module.replace(Some(module.unchecked_into()));
        Ok(tab)
    }

    /// Opens the outbox on what must be good.
    pub async fn opened(server: &Server, setup: &Setup) -> Self {
        Self::open(server, setup).await.unwrap_or_else(|error| panic!("not opened: {error:?}"))
    }

    /// The module.
    pub fn module(&self) -> Module {
        self.0.module.borrow().clone().expect("the outbox is open")
    }

    /// Says, when it is asked, who certainly lives, one a line; undefined where that can't be told, or an error.
    pub fn finds_alive(&self, lives: impl Into<JsValue>) {
        self.0.lives.replace(lives.into());
    }

    /// Begins to take over what others left.
    pub fn begins_to_take_over(&self) -> Promise {
        self.module().take_over()
    }

    /// Takes over what others left that are not alive, and returns the owners of all that is pending.
    pub async fn takes_over(&self, alive: Option<&str>) -> Result<Vec<String>, JsValue> {
        self.finds_alive(alive.map_or(JsValue::UNDEFINED, JsValue::from_str));
        let owners = settled("what was left is taken over", self.begins_to_take_over()).await?;
        Ok(owners.as_string().expect("a text").lines().map(str::to_owned).collect())
    }

    /// Makes a request with a body of every byte, and returns its ticket.
    pub fn posts(&self, id: &str, target: &str, key: Option<&str>) -> f64 {
        let body = Uint8Array::from(all_bytes().as_slice());
        let lines = "content-type:application/octet-stream\nx-note:a:b\n";
        self.module().request(id, "POST", target, key, lines, body).expect("it is not closed")
    }

    /// Whether the receiver of an answer takes it, as it does unless it is told otherwise.
    pub fn takes_answers(&self, takes: bool) {
        self.0.takes_answers.set(takes);
    }

    /// What was asked of the host.
    pub fn asked(&self) -> Vec<Asked> {
        self.0.asked.borrow().clone()
    }

    /// What was delivered of a request.
    pub fn deliveries(&self, id: &str) -> Vec<Delivery> {
        let delivery = |asked| match asked {
            Asked::Deliver { ticket, is_awaited, described, got } if described.first().is_some_and(|own| own == id) => {
                Some(Delivery { ticket, is_awaited, described, got })
            }
            _ => None,
        };
        self.asked().into_iter().filter_map(delivery).collect()
    }

    /// Waits until a request is delivered, and returns what was.
    pub async fn delivery(&self, id: &str) -> Delivery {
        super::wait::eventually(&format!("the delivery of {id}"), || self.deliveries(id).pop()).await
    }

    /// Id, method, target, state and attempts of all that is pending, with spaces between.
    pub async fn overview(&self) -> Vec<String> {
        let all = settled("the overview", self.module().pending()).await.expect("the rows can be read");
        all.as_string().expect("a text").lines().map(|one| one.replace('\t', " ")).collect()
    }

    fn host(&self) -> JsValue {
        let object = Object::new();
        let own = self.clone();
        let transmit: Closure<dyn Fn(f64, String, String, String, Uint8Array)> =
            Closure::new(move |attempt, method, target, lines: String, body: Uint8Array| {
                own.transmit(attempt, method, target, Headers::from_lines(&lines), body.to_vec());
            });
        let own = self.clone();
        let abort: Closure<dyn Fn(f64)> = Closure::new(move |attempt: f64| {
            own.0.aborted.borrow_mut().insert(attempt as u64);
            own.0.asked.borrow_mut().push(Asked::Abort(attempt));
        });
        let own = self.clone();
        let outcome: Closure<dyn Fn(f64, bool, String, u16, String, Uint8Array)> =
            Closure::new(move |ticket, is_awaited, described: String, status, lines: String, body: Uint8Array| {
                let got = Got::Outcome { status, headers: Headers::from_lines(&lines), body: body.to_vec() };
                own.deliver(ticket, is_awaited, &described, got);
            });
        let own = self.clone();
        let failure: Closure<dyn Fn(f64, bool, String, String, Uint8Array)> =
            Closure::new(move |ticket, is_awaited, described: String, failure: String, problem: Uint8Array| {
                own.deliver(ticket, is_awaited, &described, Got::failed(&failure, &problem));
            });
        let own = self.clone();
        let gave_up: Closure<dyn Fn(String, String)> = Closure::new(move |id, failure: String| {
            let failure = Got::failed(&failure, &Uint8Array::new_with_length(0));
            own.0.asked.borrow_mut().push(Asked::GaveUp { id, failure });
        });
        let own = self.clone();
        let pause: Closure<dyn Fn(f64, String, String, Uint8Array)> =
            Closure::new(move |ticket, described: String, failure: String, problem: Uint8Array| {
                let (described, failure) = (texts(&described), Got::failed(&failure, &problem));
                own.0.asked.borrow_mut().push(Asked::Pause { ticket, described, failure });
            });
        let own = self.clone();
        let alive: Closure<dyn Fn(Function)> = Closure::new(move |done: Function| {
            let lives = own.0.lives.borrow().clone();
            later(move || drop(done.call1(&JsValue::UNDEFINED, &lives).expect("a callback does not throw")));
        });
        for (name, method) in [
            ("alive", alive.into_js_value()),
            ("transmit", transmit.into_js_value()),
            ("abort", abort.into_js_value()),
            ("outcome", outcome.into_js_value()),
            ("failure", failure.into_js_value()),
            ("gaveUp", gave_up.into_js_value()),
            ("pause", pause.into_js_value()),
        ] {
            Reflect::set(&object, &name.into(), &method).expect("an object takes a method");
        }
        object.into()
    }

    fn deliver(&self, ticket: f64, is_awaited: bool, described: &str, got: Got) {
        self.0.asked.borrow_mut().push(Asked::Deliver { ticket, is_awaited, described: texts(described), got });
        let module = self.module();
        if !self.0.takes_answers.get() {
            return;
        }
        if is_awaited {
            // A caller has it at once: this is from within the module's call.
            module.delivered(ticket);
        } else {
            later(move || module.delivered(ticket));
        }
    }

    fn transmit(&self, attempt: f64, method: String, target: String, headers: Headers, body: Vec<u8>) {
        let id = headers.get("idempotency-key").unwrap_or_default().trim_matches('"').to_owned();
        // A cancellation is covered by the row of what it cancels.
        let row = self.0.store.as_ref().and_then(|store| store.durable(id.strip_prefix("cancel-").unwrap_or(&id)));
        let (owner, at_ms, server_ms) = (self.0.owner.clone(), clock_ms(), self.0.server.now_ms());
        let sent = Sent { owner, attempt, method, target, headers, body, at_ms, server_ms, row };
        let reply = self.0.server.receive(sent);
        let own = self.clone();
        later(move || own.reply(attempt, reply));
    }

    fn reply(&self, attempt: f64, reply: Reply) {
        if !self.0.aborted.borrow().contains(&(attempt as u64)) {
            self.hears(attempt, reply);
        }
    }

    /// Reports to the module what became of an attempt, whatever was reported before.
    pub fn hears(&self, attempt: f64, reply: Reply) {
        match reply {
            Reply::Lost => self.module().lost(attempt),
            Reply::Silence | Reply::Jump(_) => {}
            Reply::Answer(Answer { status, headers, body, members }) => {
                let body = Uint8Array::from(body.as_slice());
                self.module().answered(attempt, status, &headers.to_lines(), body, &members.to_lines());
            }
        }
    }
}

fn texts(described: &str) -> Vec<String> {
    described.split('\t').map(str::to_owned).collect()
}
