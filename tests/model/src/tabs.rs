//! The model of one client with two tabs on one store, and of the key that it asks.
//!
//! The row of the request, its transitions, the transmissions, the verdicts and the acknowledgements are the real ones. The
//! machine that strings them together holds what can't cross threads, so its steps are told here, each as one.
//!
//! What stands for what:
//! - A message stays on its way for good: it may arrive at any time, and again. So one that arrives late is a tab's that froze
//!   between the transaction before an attempt and the attempt, as well as a slow one.
//! - An answer arrives at once or never. A slow answer is that of an attempt that was slow.
//! - A caller gets the answer in the step that settles the row. A crash in between leaves what a lost answer leaves.
//! - A tab that is reloaded, or crashes between any two steps, loses all but the store.
//! - A proxy may answer in the server's place.

use crate::oracle::{Aim, Asked, Oracle};
use crate::properties::{Never, Sometimes, Watched};
use crate::server::Server;
use crate::tab::{Proxy, Tab, client_answer, proxy_answer};
use semel_core::client::row::{Answered, Change, Changed, Draft, Entry, Write};
use semel_core::client::verdict::{Sent, Verdict, judge};
use semel_core::client::{Answer, ClientCode, Failure, Row, Transmission, codec, request};
use semel_core::message::{Headers, Method, Request, Response};
use semel_core::path::Path;
use semel_core::problem::Executed;
use semel_core::rules::{self, Rule};
use semel_core::server::Config;
use stateright::{Model, Property};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// The wall clock, in ms. At the last, a tombstone has lapsed that knows the first attempt's deadline only, and what was sent at
/// the second may still be executed.
const INSTANTS_MS: [i64; 3] = [0, 90_000, 170_000];
/// How far a deadline lies ahead.
const TIMEOUT_MS: i64 = 100_000;
/// So many attempts leave after the first.
const RAISES: u8 = 1;
/// The only request.
const ID: &str = "a";
/// The only key.
const KEY: &str = "k";
/// Whose request it is.
const OWNER: &str = "ann";
/// Who is logged in later.
const OTHER: &str = "bob";
/// What must come about.
const SOMETIMES: [Sometimes; 4] = [Sometimes::Replay, Sometimes::Tombstone, Sometimes::Late, Sometimes::Forgotten];

/// The model, with a rule switched off or none.
#[derive(Debug, Clone)]
pub struct Tabs {
    /// The rule that does not hold.
    pub without: Option<Rule>,
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    tab: usize,
    is_acknowledgement: bool,
    first_sent_s: i64,
    deadline_ms: i64,
    target: String,
    headers: String,
    body: Vec<u8>,
}

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    instant: usize,
    raises: u8,
    row: Option<Vec<u8>>,
    tabs: [Tab; 2],
    messages: BTreeSet<Arc<Message>>,
    server: Server,
    oracle: Oracle,
}

impl Watched for State {
    fn oracle(&self) -> &Oracle {
        &self.oracle
    }
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A tab opens, or is reloaded: it takes over what is in the store.
    Opens(usize),
    /// A tab sends the request once more.
    Sends(usize),
    /// A tab acknowledges.
    Acknowledges(usize),
    /// A message arrives, and its answer too or not.
    Arrives(Arc<Message>, bool),
    /// A message arrives, sent when somebody else was logged in.
    ArrivesAsOther(Arc<Message>),
    /// A tab's message is answered by somebody else than the server.
    Proxy(usize, Proxy),
    /// A tab gives up waiting for the answer to its acknowledgement.
    LosesAcknowledgement(usize),
    /// The server's process ends and begins anew.
    Crashes,
    /// Time passes.
    Passes,
}

impl State {
    fn now_ms(&self) -> i64 {
        INSTANTS_MS[self.instant]
    }

    /// One transaction of the store.
    fn change(&mut self, change: &Change) -> Changed {
        let (write, changed) = change.apply(self.row.as_deref()).expect("a row of this version");
        match write {
            Write::Nothing => {}
            Write::Put(row) => self.row = Some(row),
            Write::Delete => self.row = None,
        }
        changed
    }

    fn send(&mut self, tab: usize, made: Transmission, sent: Option<Sent>) {
        let mut made = made;
        request::tell_principal(&mut made, OWNER);
        let lines = [made.request.headers.to_lines(), made.headers.to_lines()].concat();
        self.messages.insert(Arc::new(Message {
            tab,
            is_acknowledgement: sent.is_none(),
            first_sent_s: sent.map_or(0, |sent| sent.first_sent_s),
            deadline_ms: sent.map_or(0, |sent| sent.deadline_ms),
            target: made.request.target.clone(),
            headers: lines,
            body: made.request.body.clone(),
        }));
    }

    fn opens(&mut self, tab: usize) {
        self.tabs[tab] = Tab { is_open: true, was_reloaded: self.tabs[tab].is_open, ..Tab::default() };
        match self.row.as_deref().map(codec::decode) {
            Some(Ok(Row::Pending(entry))) => {
                let adopt = Change::Adopt { by: Tab::owner(tab), from: entry.owner, is_shared: true };
                self.change(&adopt);
                self.tabs[tab].in_hand = self.row.clone();
            }
            Some(Ok(Row::Settled(settled))) => self.tabs[tab].acks.add(ID, &settled, 0),
            _ => {}
        }
    }

    fn sends(&mut self, tab: usize) {
        let Some(Ok(Row::Pending(known))) = self.tabs[tab].in_hand.as_deref().map(codec::decode) else { return };
        let deadline_ms = self.now_ms() + TIMEOUT_MS;
        let raise = Change::Raise { first_sent_s: self.now_ms() / 1000, until_ms: deadline_ms, is_cancelling: false };
        let changed = self.change(&raise);
        self.raises -= 1;
        match changed.leave(&known) {
            Some(entry) => {
                let sent = Sent { first_sent_s: entry.first_sent_s.unwrap_or_default(), deadline_ms };
                let made = request::transmission(1, ID, &entry, request::Aim::Execute, Some(KEY), sent);
                self.send(tab, made, Some(sent));
            }
            None => self.settled_elsewhere(tab, changed, &ClientCode::OutcomeLost.into()),
        }
    }

    fn acknowledges(&mut self, tab: usize) {
        let Some((key, body)) = self.tabs[tab].acks.post(1, i64::MAX) else { return };
        let made = Transmission { attempt: 1, request: request::control(&key, "acks", body), headers: Headers::new() };
        self.send(tab, made, None);
    }

    fn arrives(&mut self, message: &Message, login: &str) -> Answer {
        let mut headers = Headers::from_lines(&message.headers);
        headers.append("authorization", format!("Bearer {login}"));
        let path = Path::new(&message.target, "").expect("a path of the client");
        let request = Request { method: Method::Post, path, headers, body: message.body.clone() };
        let known = self.server.tables.effects.len();
        let arrived = self.server.arrive(&request, self.now_ms());
        let asked = Asked {
            aim: if message.is_acknowledgement { Aim::Acknowledge } else { Aim::Execute },
            id: ID.to_owned(),
            by: OWNER.to_owned(),
            payload: String::from_utf8_lossy(&message.body).into_owned(),
            first_sent_s: Some(message.first_sent_s),
            acknowledges: if message.is_acknowledgement { vec![ID.to_owned()] } else { Vec::new() },
        };
        self.oracle.watch(&asked, known, &self.server, &arrived, self.now_ms());
        client_answer(&arrived.answer)
    }

    fn hears(&mut self, tab: usize, sent: Sent, answer: Answer) {
        if self.tabs[tab].in_hand.is_none() {
            return;
        }
        match judge(&answer, sent) {
            Verdict::Outcome => {
                let Answer { status, headers, body, .. } = answer;
                self.settles(tab, &Answered::Outcome(Response { status, headers, body }));
            }
            Verdict::Never(failure) => match self.change(&Change::Look) {
                Changed::Pending(_) => self.settles(tab, &Answered::Failure(failure)),
                changed => self.settled_elsewhere(tab, changed, &failure),
            },
            Verdict::Again { .. } => {}
            Verdict::Pause(failure) => {
                if failure.executed == Executed::No && !self.server.tables.effects.is_empty() {
                    self.oracle.broken.insert(Never::NoOfEffect);
                }
            }
        }
    }

    /// The caller gets the answer, and then the row is settled.
    fn settles(&mut self, tab: usize, answered: &Answered) {
        self.tells(answered);
        let settle = Change::Settle {
            by: Tab::owner(tab),
            key: Some(KEY.to_owned()),
            answered: Rc::new(answered.clone()),
            at_s: self.now_ms() / 1000,
        };
        if let Changed::Settled(settled) = self.change(&settle) {
            self.tabs[tab].acks.add(ID, &settled, 0);
        }
        self.tabs[tab].in_hand = None;
    }

    fn settled_elsewhere(&mut self, tab: usize, changed: Changed, failure: &Failure) {
        let kept = match changed {
            Changed::Settled(settled) => settled.kept,
            _ => None,
        };
        self.tells(&kept.map_or_else(|| Answered::Failure(failure.clone()), |kept| (*kept).clone()));
        self.tabs[tab].in_hand = None;
    }

    fn tells(&mut self, answered: &Answered) {
        let effects = &self.server.tables.effects;
        match answered {
            Answered::Outcome(response) => {
                self.oracle.watch_outcome(ID, crate::ledger::effect_in(&response.body), effects);
            }
            Answered::Failure(failure) => self.oracle.watch_claim(ID, failure.executed, failure.retry, effects),
        }
    }

    fn acknowledgement_ended(&mut self, tab: usize, key: Option<&str>) {
        if !self.tabs[tab].acks.ended(1, key, 0).is_empty() {
            self.change(&Change::Acknowledged);
        }
        if self.row.is_none() {
            self.oracle.seen.insert(Sometimes::Forgotten);
            if self.server.tables.keeps_outcome(ID) {
                self.oracle.broken.insert(Never::Unacknowledged);
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Opens(tab) => self.opens(tab),
            Step::Sends(tab) => self.sends(tab),
            Step::Acknowledges(tab) => self.acknowledges(tab),
            Step::Arrives(message, is_heard) => {
                let answer = self.arrives(&message, OWNER);
                let key = answer.headers.get("semel-key").and_then(semel_core::header::unquoted);
                let Message { tab, is_acknowledgement, first_sent_s, deadline_ms, .. } = *message;
                match (is_heard, is_acknowledgement) {
                    (true, true) => self.acknowledgement_ended(tab, key.as_deref()),
                    (true, false) => self.hears(tab, Sent { first_sent_s, deadline_ms }, answer),
                    (false, _) => {}
                }
            }
            Step::ArrivesAsOther(message) => {
                let answer = self.arrives(&message, OTHER);
                let Message { tab, first_sent_s, deadline_ms, .. } = *message;
                self.hears(tab, Sent { first_sent_s, deadline_ms }, answer);
            }
            Step::Proxy(tab, proxy) => {
                self.hears(tab, Sent { first_sent_s: 0, deadline_ms: TIMEOUT_MS }, proxy_answer(proxy));
            }
            Step::LosesAcknowledgement(tab) => self.acknowledgement_ended(tab, None),
            Step::Crashes => self.server.crash(),
            Step::Passes => self.instant += 1,
        }
    }
}

impl Model for Tabs {
    type State = State;
    type Action = Step;

    /// The row is stored, and the first attempt has left.
    fn init_states(&self) -> Vec<State> {
        let sent = Sent { first_sent_s: 0, deadline_ms: TIMEOUT_MS };
        let entry = Entry {
            draft: Rc::new(Draft {
                method: "POST".to_owned(),
                target: "/k".to_owned(),
                body: b"1".to_vec(),
                ..Draft::default()
            }),
            owner: Tab::owner(0),
            first_sent_s: Some(sent.first_sent_s),
            until_ms: Some(sent.deadline_ms),
            ..Entry::default()
        };
        let mut state = State {
            instant: 0,
            raises: RAISES,
            row: None,
            tabs: Default::default(),
            messages: BTreeSet::new(),
            server: Server::new(Config { open: true, ..Config::default() }),
            oracle: Oracle::default(),
        };
        state.change(&Change::Add(entry.clone()));
        state.tabs[0] = Tab { is_open: true, in_hand: state.row.clone(), ..Tab::default() };
        let made = request::transmission(1, ID, &entry, request::Aim::Execute, Some(KEY), sent);
        rules::without(self.without, || state.send(0, made, Some(sent)));
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.oracle.broken.is_empty() {
            return;
        }
        for (at, tab) in state.tabs.iter().enumerate() {
            // A second tab that is reloaded does what a first one does.
            if !tab.is_open || (at == 0 && !tab.was_reloaded) {
                steps.push(Step::Opens(at));
            }
            if tab.in_hand.is_some() {
                if state.raises > 0 {
                    steps.push(Step::Sends(at));
                }
                steps.extend(Proxy::ALL.map(|proxy| Step::Proxy(at, proxy)));
            }
            if tab.acks.due_ms().is_some() {
                steps.push(Step::Acknowledges(at));
            } else if tab.acks != Default::default() {
                steps.push(Step::LosesAcknowledgement(at));
            }
        }
        for message in &state.messages {
            let tab = &state.tabs[message.tab];
            steps.push(Step::Arrives(message.clone(), false));
            if tab.in_hand.is_some() || message.is_acknowledgement {
                steps.push(Step::Arrives(message.clone(), true));
            }
            // Once it has run, another principal is what the scope of principals explores.
            if !message.is_acknowledgement && state.server.tables.effects.is_empty() {
                steps.push(Step::ArrivesAsOther(message.clone()));
            }
        }
        steps.push(Step::Crashes);
        if state.instant + 1 < INSTANTS_MS.len() {
            steps.push(Step::Passes);
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        rules::without(self.without, || state.step(step));
        Some(state)
    }

    fn format_action(&self, step: &Step) -> String {
        let named = |message: &Message| {
            let tab = message.tab + 1;
            match message.is_acknowledgement {
                true => format!("tab {tab}'s acknowledgement"),
                false => format!("tab {tab}'s attempt (deadline {} s)", message.deadline_ms / 1000),
            }
        };
        match step {
            Step::Opens(tab) => format!("tab {} opens", tab + 1),
            Step::Sends(tab) => format!("tab {} sends", tab + 1),
            Step::Acknowledges(tab) => format!("tab {} acknowledges", tab + 1),
            Step::Arrives(message, true) => format!("{} arrives, and its answer too", named(message)),
            Step::Arrives(message, false) => format!("{} arrives, its answer is lost", named(message)),
            Step::ArrivesAsOther(message) => format!("{} arrives, with {OTHER} logged in", named(message)),
            Step::Proxy(tab, proxy) => format!("tab {} hears from a proxy: {proxy:?}", tab + 1),
            Step::LosesAcknowledgement(tab) => format!("tab {} gets no answer to its acknowledgement", tab + 1),
            Step::Crashes => "the server crashes".to_owned(),
            Step::Passes => "time passes".to_owned(),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let never = Never::ALL.iter().map(|property| property.property());
        never.chain(SOMETIMES.iter().map(|property| property.property())).collect()
    }
}
