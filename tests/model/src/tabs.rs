//! The model of one client with its tabs on one store, and of the keys that it sends to.
//!
//! The client is the real machine ([`crate::tab`]). This module is its host, and the network between it and the keys.
//!
//! How it models them:
//! - A message stays on its way for good: it may arrive at any time, and again. So a late message may be that of a slow network,
//!   or of a tab that froze between the transaction before an attempt and the attempt.
//! - An answer arrives at once or never. A slow answer is modelled as the answer to a slow attempt.
//! - What a client asks for is done in the step in which it asks. What follows a transaction's report is either inside the
//!   client, or a message that may arrive at any time. A tab that crashes in between leaves the same behind as a tab whose
//!   message never arrived.
//! - A tab may be reloaded, or crash, between any two steps, and also between handing over an answer and reporting that. It loses
//!   everything but the store.
//! - A tab that is not woken in time is frozen.
//! - A proxy may answer in the server's place.

use crate::answers::{Proxy, client_answer, proxy_answer};
use crate::messages::Message;
use crate::oracle::{Aim, Oracle};
use crate::properties::{Never, Sometimes};
use crate::server::Server;
use crate::tab::{OWNER, Tab, Told, Wish, row_of};
use crate::tab_scopes::TabScope;
use crate::tab_state::{State, effects_at};
use semel_core::client::row::Write;
use semel_core::client::{Action, Answer, Change, Client, Receiver, Ticket, Transmission};
use semel_core::problem::{Executed, Retry};
use semel_core::rules::{self, Rule};
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The principal who is logged in later.
const OTHER: &str = "bob";

/// A scope, and a rule that is switched off, if any.
#[derive(Debug, Clone)]
pub struct Tabs {
    /// What the checker explores.
    pub scope: TabScope,
    /// The rule that is switched off.
    pub without: Option<Rule>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A tab opens, is reloaded, or crashes and is opened again: it takes over what is in the store. The flag says whether it was
    /// open.
    Opens(usize, bool),
    /// The application gives up a request in a tab.
    GivesUp(usize, Ticket),
    /// A message arrives, and its answer is lost.
    Arrives(Arc<Message>),
    /// A message arrives, and the tab gets the answer to its attempt.
    Answers(usize, u64, Arc<Message>),
    /// The same, but the message arrives with another principal's login.
    AnswersOther(usize, u64, Arc<Message>),
    /// A proxy answers a tab's attempt in the server's place.
    Proxy(usize, u64, Proxy),
    /// A tab gets no answer to an attempt.
    Loses(usize, u64, Arc<Message>),
    /// The caller has the answer that a tab handed over.
    Delivered(usize, Ticket),
    /// The application resumes a paused request.
    Resumes(usize, Ticket),
    /// A tab is woken.
    Wakes(usize),
    /// The servers' processes end and start again.
    Crashes,
    /// Time passes until this instant, in s.
    Passes(i64),
}

impl Tabs {
    fn now_ms(&self, state: &State) -> i64 {
        self.scope.instants_s[state.instant] * 1000
    }

    fn opens(&self, state: &mut State, tab: usize) {
        state.opened[tab] += 1;
        let owner = format!("tab {}, opened {} times", tab + 1, state.opened[tab]);
        state.tabs[tab] = Some(Tab::new(owner, self.scope.give_up_after_ms));
        let rows = state.rows.iter().map(|(id, row)| (id.clone(), row.clone())).collect();
        self.tell(state, tab, Told::Stored(rows));
    }

    fn wishes(&self, state: &mut State, tab: usize, wish: Wish) {
        if let Some(tab) = &mut state.tabs[tab] {
            tab.callers.push(wish.id.to_owned());
        }
        self.tell(state, tab, Told::Wish(wish));
    }

    /// Tells a tab's client something, and does what the client asks for until it asks for nothing more.
    fn tell(&self, state: &mut State, at: usize, told: Told) {
        let Some(mut tab) = state.tabs[at].take() else { return };
        let mut client = tab.client();
        let mut all_told = VecDeque::from([told]);
        while let Some(told) = all_told.pop_front() {
            for action in tab.tell(&mut client, self.now_ms(state), told) {
                all_told.extend(self.act(state, (&mut tab, &client), action));
            }
        }
        state.tabs[at] = Some(tab);
    }

    /// Does what a client asks for. Returns what the client is told about it at once.
    fn act(&self, state: &mut State, (tab, client): (&mut Tab, &Client), action: Action) -> Option<Told> {
        match action {
            Action::Change { ticket, id, change } => {
                tab.tickets.insert(id.clone(), ticket);
                let row = state.rows.get(&id).map(Vec::as_slice);
                let (write, changed) = change.apply(client.maker_of(ticket), row).expect("a row of this version");
                let is_taken_back = matches!((&change, &write), (Change::Withdraw, Write::Delete));
                state.oracle.seen.extend(is_taken_back.then_some(Sometimes::Withdrawn));
                match write {
                    Write::Nothing => {}
                    Write::Put(row) => drop(state.rows.insert(id, row)),
                    Write::Delete => state.forgets(&id),
                }
                Some(Told::Changed(ticket, row_of(changed)))
            }
            Action::Remove(ids) => {
                for id in &ids {
                    if state.may_go(id) {
                        state.forgets(id);
                    }
                }
                None
            }
            Action::Transmit(made) => self.transmits(state, tab, &made),
            Action::Abort(attempt) => {
                tab.under_way.remove(&attempt);
                None
            }
            Action::Deliver { ticket, to, answered } => {
                let id = id_of(tab, ticket);
                state.tells(&id, &answered, self.scope.key_of(&id));
                state.answered.extend(self.scope.is_ordered(&id).then(|| id.clone()));
                if to == Receiver::Caller {
                    state.ends_wait(tab, &id);
                }
                tab.handed_over.push(ticket);
                None
            }
            Action::GiveUp { id, failure } => {
                // A caller that is told "no" and goes away takes it as the last word, whatever `retry` says.
                let effects = effects_at(&state.servers, self.scope.key_of(&id));
                state.oracle.watch_claim(&id, failure.executed, Retry::Never, effects);
                state.oracle.seen.insert(Sometimes::GaveUp);
                state.ends_wait(tab, &id);
                None
            }
            Action::Pause { ticket, failure } => {
                let id = id_of(tab, ticket);
                let has_run = effects_at(&state.servers, self.scope.key_of(&id)).iter().any(|effect| effect.id == id);
                if failure.executed == Executed::No && has_run {
                    state.oracle.broken.insert(Never::NoOfEffect);
                }
                tab.paused.push(ticket);
                None
            }
        }
    }

    fn transmits(&self, state: &mut State, tab: &mut Tab, made: &Transmission) -> Option<Told> {
        let message = Message::new(made);
        if message.aim() == Aim::Read {
            // The client asks for the server's clock; the answer always comes in time.
            let answer = self.arrives(state, &message, OWNER);
            return Some(Told::Answered(made.attempt, answer));
        }
        state.sent += 1;
        let is_riding = message.aim() != Aim::Acknowledge && !message.acknowledges().is_empty();
        state.oracle.seen.extend(is_riding.then_some(Sometimes::Rides));
        state.oracle.seen.extend(message.is_probe().then_some(Sometimes::Probes));
        let had_turn = self.has_had_turn(state, &message.id());
        state.oracle.seen.extend(had_turn.then_some(Sometimes::Turn));
        let message = Arc::new(message);
        tab.under_way.insert(made.attempt, message.clone());
        state.messages.insert(message);
        None
    }

    /// Whether a request is sent for the first time, and those before it have taken effect.
    fn has_had_turn(&self, state: &State, id: &str) -> bool {
        let before = self.scope.before_in_order(id);
        let effects = effects_at(&state.servers, self.scope.key_of(id));
        let has_run = |each: &&str| effects.iter().any(|effect| effect.id == **each);
        let is_first = !state.messages.iter().any(|message| message.id() == id);
        is_first && !before.is_empty() && before.iter().all(has_run)
    }

    fn arrives(&self, state: &mut State, message: &Message, login: &str) -> Answer {
        let request = message.request(login);
        let now_ms = self.now_ms(state);
        let arrived = match Server::object_of(&self.scope.config, &request, now_ms) {
            Err(answer) => answer,
            Ok((key, _)) => {
                let server = state.servers.entry(key.as_str().to_owned());
                let server = server.or_insert_with(|| Server::new(self.scope.config.clone()));
                let known = server.tables.effects.len();
                let arrived = server.arrive(&request, now_ms);
                state.oracle.watch(&message.asked(), known, server, &arrived, now_ms);
                let effects = server.tables.effects.clone();
                for (number, effect) in effects.iter().enumerate().skip(known) {
                    state.takes_effect(&self.scope.before_in_order(&effect.id), &effects[..number]);
                }
                arrived.answer
            }
        };
        client_answer(&arrived)
    }

    fn hears(&self, state: &mut State, tab: usize, attempt: u64, answer: Answer) {
        if let Some(tab) = &mut state.tabs[tab] {
            tab.under_way.remove(&attempt);
        }
        self.tell(state, tab, Told::Answered(attempt, answer));
    }

    fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Opens(tab, _) => self.opens(state, tab),
            Step::GivesUp(tab, ticket) => {
                state.has_given_up = true;
                self.tell(state, tab, Told::GivesUp(ticket));
            }
            Step::Arrives(message) => drop(self.arrives(state, &message, OWNER)),
            Step::Answers(tab, attempt, message) => {
                let answer = self.arrives(state, &message, OWNER);
                self.hears(state, tab, attempt, answer);
            }
            Step::AnswersOther(tab, attempt, message) => {
                let answer = self.arrives(state, &message, OTHER);
                self.hears(state, tab, attempt, answer);
            }
            Step::Proxy(tab, attempt, proxy) => self.hears(state, tab, attempt, proxy_answer(proxy)),
            Step::Loses(tab, attempt, _) => {
                if let Some(tab) = &mut state.tabs[tab] {
                    tab.under_way.remove(&attempt);
                }
                self.tell(state, tab, Told::Lost(attempt));
            }
            Step::Delivered(tab, ticket) => {
                if let Some(tab) = &mut state.tabs[tab] {
                    tab.handed_over.retain(|each| *each != ticket);
                }
                self.tell(state, tab, Told::Delivered(ticket));
            }
            Step::Resumes(tab, ticket) => {
                if let Some(tab) = &mut state.tabs[tab] {
                    tab.paused.retain(|each| *each != ticket);
                }
                self.tell(state, tab, Told::Resumes(ticket));
            }
            Step::Wakes(tab) => self.tell(state, tab, Told::Wakes),
            Step::Crashes => {
                let now_ms = self.now_ms(state);
                state.servers.values_mut().for_each(|server| server.crash(now_ms));
            }
            Step::Passes(_) => state.instant += 1,
        }
    }

    fn tab_actions(&self, state: &State, at: usize, tab: &Tab, steps: &mut Vec<Step>) {
        for (&attempt, message) in &tab.under_way {
            steps.push(Step::Answers(at, attempt, message.clone()));
            steps.push(Step::Loses(at, attempt, message.clone()));
            if self.scope.has_proxies && message.aim() == Aim::Execute {
                steps.extend(Proxy::ALL.map(|proxy| Step::Proxy(at, attempt, proxy)));
                steps.push(Step::AnswersOther(at, attempt, message.clone()));
            }
        }
        steps.extend(tab.handed_over.iter().map(|ticket| Step::Delivered(at, *ticket)));
        steps.extend(tab.paused.iter().map(|ticket| Step::Resumes(at, *ticket)));
        if tab.wakes_ms.is_some_and(|wakes_ms| wakes_ms <= self.now_ms(state)) {
            steps.push(Step::Wakes(at));
        }
        if self.scope.gives_up && !state.has_given_up {
            let pending = tab.tickets.values().filter(|ticket| !tab.handed_over.contains(ticket));
            steps.extend(pending.map(|ticket| Step::GivesUp(at, *ticket)));
        }
    }
}

fn id_of(tab: &Tab, ticket: Ticket) -> String {
    tab.tickets.iter().find(|(_, each)| **each == ticket).map(|(id, _)| id.clone()).expect("an id in hand")
}

impl Model for Tabs {
    type State = State;
    type Action = Step;

    /// The first tab is open, `before` is done, and the requests of `wishes` are made.
    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            instant: 0,
            sent: 0,
            opened: vec![0; self.scope.tabs],
            has_given_up: false,
            rows: BTreeMap::new(),
            tabs: vec![None; self.scope.tabs],
            messages: BTreeSet::new(),
            servers: BTreeMap::new(),
            answered: BTreeSet::new(),
            oracle: Oracle::default(),
        };
        rules::without(self.without, || {
            self.opens(&mut state, 0);
            for wish in &self.scope.before {
                self.wishes(&mut state, 0, *wish);
                let under_way = state.tabs[0].iter().flat_map(|tab| tab.under_way.clone()).collect::<Vec<_>>();
                for (attempt, message) in under_way {
                    self.step(&mut state, Step::Answers(0, attempt, message));
                }
                let handed_over = state.tabs[0].iter().flat_map(|tab| tab.handed_over.clone()).collect::<Vec<_>>();
                for ticket in handed_over {
                    self.step(&mut state, Step::Delivered(0, ticket));
                }
            }
            for wish in &self.scope.wishes {
                self.wishes(&mut state, 0, *wish);
            }
        });
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.oracle.broken.is_empty() {
            return;
        }
        for (at, tab) in state.tabs.iter().enumerate() {
            if state.opened[at] < self.scope.opens_max[at] {
                steps.push(Step::Opens(at, tab.is_some()));
            }
            if let Some(tab) = tab {
                self.tab_actions(state, at, tab, steps);
            }
        }
        steps.extend(state.messages.iter().cloned().map(Step::Arrives));
        steps.push(Step::Crashes);
        steps.extend(self.scope.instants_s.get(state.instant + 1).map(|instant_s| Step::Passes(*instant_s)));
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        rules::without(self.without, || self.step(&mut state, step));
        (state.sent <= self.scope.messages_max).then_some(state)
    }

    fn format_action(&self, step: &Step) -> String {
        match step {
            Step::Opens(tab, false) => format!("tab {} opens", tab + 1),
            Step::Opens(tab, true) => format!("tab {} is reloaded", tab + 1),
            Step::GivesUp(tab, _) => format!("the application gives it up in tab {}", tab + 1),
            Step::Arrives(message) => format!("{} arrives, its answer is lost", message.name()),
            Step::Answers(tab, _, message) => {
                format!("{} of tab {} arrives, and its answer too", message.name(), tab + 1)
            }
            Step::AnswersOther(tab, _, message) => {
                format!("{} of tab {} arrives with {OTHER} logged in, and its answer too", message.name(), tab + 1)
            }
            Step::Proxy(tab, _, proxy) => format!("tab {} hears from a proxy: {proxy:?}", tab + 1),
            Step::Loses(tab, _, message) => format!("tab {} gets no answer to {}", tab + 1, message.name()),
            Step::Delivered(tab, _) => format!("the caller in tab {} has the answer", tab + 1),
            Step::Resumes(tab, _) => format!("the application resumes in tab {}", tab + 1),
            Step::Wakes(tab) => format!("tab {} is woken", tab + 1),
            Step::Crashes => "the server crashes".to_owned(),
            Step::Passes(instant_s) => format!("time passes, until {instant_s} s"),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let never = Never::ALL.iter().map(|property| property.property());
        never.chain(self.scope.sometimes.iter().map(|property| property.property())).collect()
    }
}
