//! The model of effects that leave: a key emits credits to another, each with its real engine. The network between them loses,
//! doubles and reorders requests, while the sender's object ends and starts again, and is put back.
//!
//! How it models them:
//! - A request that has left may arrive at any later time, as often as it likes.
//! - An object that ends forgets the answers that it waits for. Such an answer may still come if only the object's module was
//!   loaded anew. If it doesn't come, the whole object has ended.
//! - An administrator has sessions forgotten that were last used some time ago. So a take-over that left before arrives before
//!   that instant or never, and a request that has run does not arrive again with an answer that is heard, unless it is sent
//!   again.
//! - Time stands still, except that each start of an object is at a later instant. An answer is reported one resend interval
//!   earlier than the next request is sent, so the interval is always over.
//! - The id of a take-over is its number, and the id of a closing is what it closes, because the real ids differ each time. So a
//!   closing that is repeated is replayed; a second closing of the same place is not explored. If somebody takes the id of a
//!   closing, that closing is lost for good. Take-overs and closings have no deadline and nothing acknowledges them, so a late
//!   repetition finds its record.

use crate::database::{Database, Fate};
use crate::effect_judge::EffectJudge;
use crate::effect_scopes::EffectScope;
use crate::effect_state::{Awaited, Letter, Network, Over, Side, State, TAKE_OVER, outbox_of, take_overs};
use crate::ledger::MOOD;
use crate::payer::{KNOWS_NONE, Payer, RECEIVER};
use crate::properties::{Never, Sometimes};
use crate::session_tables::SessionTables;
use crate::tables::Tables;
use semel_core::header::{quoted, unquoted};
use semel_core::message::{Headers, Method, Request};
use semel_core::path::Path;
use semel_core::rules::{self, Rule};
use semel_core::server::Engine;
use semel_core::server::effects::{Heard, RESEND_MS, Sending};
use serde_json::json;
use stateright::{Model, Property};
use std::sync::Arc;

/// The time between two starts, in ms. It is larger than the number of tokens.
const BETWEEN_MS: i64 = 1_000_000;

/// How the names of closings begin.
const CLOSING: &str = "the closing of ";

/// A scope, and a rule that is switched off, if any.
#[derive(Debug, Clone)]
pub struct Effects {
    /// What the checker explores.
    pub scope: EffectScope,
    /// The rule that is switched off.
    pub without: Option<Rule>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The sender gets a request to pay.
    Pays(&'static str),
    /// The sender's host sends what there is to send.
    Sends,
    /// A request arrives, and its answer is lost. The flag: whether the receiver knows no credits.
    Arrives(Arc<str>, bool),
    /// Somebody takes the id of a closing at the receiver.
    IsTaken(Arc<str>),
    /// A request that the sender waits for arrives, and its answer is under way. The flag: whether the receiver knows no credits.
    Reaches(usize, bool),
    /// An answer comes back.
    ComesBack(usize),
    /// The sender's object ends before a statement, while it takes an answer.
    EndsAt(usize, u16),
    /// An answer is lost.
    IsLost(usize),
    /// The sender's object ends, and starts again.
    Ends,
    /// A copy is made of what the sender has committed.
    IsBackedUp,
    /// The sender is put back to that copy.
    IsPutBack,
    /// An administrator has the receiver forget its sessions.
    IsForgotten,
}

fn request(method: &str, url: &str, headers: Headers, body: Vec<u8>) -> Request {
    let path = Path::new(url, "").expect("a path of this crate");
    Request { method: Method::new(method), path, headers, body }
}

impl Effects {
    fn engine(&self) -> Engine<Payer> {
        Engine::new(Payer, self.scope.config.clone())
    }

    fn side(&self) -> Side {
        Side { engine: self.engine(), tables: Tables::default() }
    }

    /// The sender's clock.
    fn now_ms(state: &State) -> i64 {
        BETWEEN_MS * (1 + i64::from(state.start))
    }

    fn starts(&self, state: &mut State) {
        state.start += 1;
        state.sender.engine = self.engine();
    }

    fn sends(&self, state: &mut State) {
        let database = Database::open(std::mem::take(&mut state.sender.tables));
        let sending = state.sender.engine.send_next(&database, Self::now_ms(state), i64::from(state.start));
        state.sender.tables = database.close();
        let Some(sending) = sending.expect("tables that don't fail") else {
            let waits = state.sender.tables.sent.waiting().next().is_some();
            let is_under_way = state.awaited.iter().any(|awaited| awaited.start == state.start);
            state.judge.oracle.broken.extend((waits && !is_under_way).then_some(Never::Stuck));
            return;
        };
        let (name, letter) = self.letter(state, &sending);
        if let Some((place, body)) = &letter.credit {
            let same = state.network.0.values().filter_map(|other| other.credit.as_ref());
            let others: Vec<&str> = same.filter(|(at, _)| at == place).map(|(_, body)| body.as_str()).collect();
            state.judge.leaves(body, &others);
            let elsewhere = state.network.0.values().filter_map(|other| other.credit.as_ref());
            let has_moved = elsewhere.into_iter().any(|(at, other)| other == body && at != place);
            state.judge.oracle.seen.extend(has_moved.then_some(Sometimes::Renumbered));
        }
        let Sending { lane, token, .. } = sending;
        state.awaited.push(Awaited {
            start: state.start,
            name: name.clone(),
            lane,
            token,
            is_over: false,
            answer: None,
        });
        state.network.0.entry(name).or_insert_with(|| Arc::new(letter));
    }

    fn letter(&self, state: &mut State, sending: &Sending) -> (Arc<str>, Letter) {
        let mut request = request(&sending.method, &sending.url, sending.headers.clone(), sending.body.clone());
        let body = String::from_utf8_lossy(&sending.body).into_owned();
        let session = sending.headers.get("semel-session").map(str::to_owned);
        let name = match &session {
            Some(session) => format!("the credit {body} at {session}"),
            None if sending.url.ends_with("/sessions") => {
                let number = take_overs(state) + 1;
                state.judge.oracle.seen.extend((number > 1).then_some(Sometimes::TakenOver));
                format!("{TAKE_OVER}{number}")
            }
            None => format!("{CLOSING}{body}"),
        };
        request.headers.retain(|name| !matches!(name, "semel-ack" | "semel-deadline"));
        if session.is_none() {
            request.headers.retain(|name| name != "idempotency-key");
            request.headers.append("idempotency-key", quoted(&name));
        }
        let place = session.map(|session| session.split(";ack=").next().unwrap_or_default().to_owned());
        (name.into(), Letter { request, credit: place.map(|place| (place, body)) })
    }

    fn arrives(state: &mut State, name: &str, knows_none: bool) -> (u16, String, Vec<u8>) {
        let letter = state.network.0[name].clone();
        let mut request = letter.request.clone();
        if knows_none {
            request.headers.append(MOOD, KNOWS_NONE);
        }
        let principal = request.headers.get("semel-principal").and_then(unquoted).unwrap_or_default();
        let answer = state.receiver.asks((RECEIVER, &principal), &request, BETWEEN_MS);
        if letter.credit.is_some() {
            state.judge.answers(&answer.1);
        }
        answer
    }

    fn hears(&self, state: &mut State, at: usize, heard: Heard, fate: Fate) {
        let Awaited { lane, token, .. } = state.awaited.remove(at);
        let told_ms = Self::now_ms(state) - RESEND_MS;
        let database = Database::open(std::mem::take(&mut state.sender.tables)).bound_to(fate);
        let told = state.sender.engine.sent(&database, told_ms, (lane, token), heard);
        let has_ended = database.crash().is_some();
        state.sender.tables = database.close();
        assert!(told.is_ok() || has_ended, "tables that don't fail: {told:?}");
        if fate != Fate::Fine {
            state.ends += 1;
            self.starts(state);
        }
    }

    /// The receiver's sessions and their places are deleted, and its object starts again without them.
    fn forgets(&self, state: &mut State) {
        state.receiver.tables.sessions = SessionTables::default();
        state.receiver.engine = self.engine();
        let over = Over { take_overs: take_overs(state), epoch: state.receiver.tables.epoch() };
        state.over = Some(over);
        let has_run = |body: &str| state.receiver.tables.effects.iter().any(|effect| effect.payload == body);
        for awaited in state.awaited.iter_mut().filter(|awaited| awaited.answer.is_none()) {
            let credit = state.network.0.get(&awaited.name).and_then(|letter| letter.credit.as_ref());
            awaited.is_over = credit.is_none_or(|(_, body)| has_run(body));
        }
    }

    fn step(&self, state: &mut State, step: Step) {
        let is_of_receiver =
            matches!(step, Step::Arrives(..) | Step::IsTaken(..) | Step::Reaches(..) | Step::IsForgotten);
        match step {
            Step::Pays(name) => {
                let headers = Headers::from_iter([("idempotency-key", quoted(name))]);
                let request = request("POST", "/pay", headers, name.as_bytes().to_vec());
                state.sender.asks(("key", "ann"), &request, Self::now_ms(state));
            }
            Step::Sends => self.sends(state),
            Step::Arrives(name, knows_none) => {
                Self::arrives(state, &name, knows_none);
            }
            Step::IsTaken(name) => {
                let headers = Headers::from_iter([("idempotency-key", quoted(&format!("taken {name}")))]);
                let body = json!({ "id": *name }).to_string().into_bytes();
                let request = request("POST", state.network.0[&name].request.path.with_query(), headers, body);
                state.receiver.asks((RECEIVER, "mallory"), &request, BETWEEN_MS);
            }
            Step::Reaches(at, knows_none) => {
                let answer = Self::arrives(state, &state.awaited[at].name.clone(), knows_none);
                state.awaited[at].answer = Some(answer);
            }
            Step::ComesBack(at) => self.comes_back(state, at, Fate::Fine),
            Step::EndsAt(at, statement) => self.comes_back(state, at, Fate::Ends(statement)),
            Step::IsLost(at) => self.hears(state, at, Heard::Nothing("lost".to_owned()), Fate::Fine),
            Step::Ends => {
                state.ends += 1;
                self.starts(state);
            }
            Step::IsBackedUp => state.backup = Some(state.sender.tables.clone()),
            Step::IsPutBack => {
                let backup = state.backup.take().unwrap_or_default();
                state.judge.is_put_back(&state.sender.tables, &backup);
                state.sender.tables = backup;
                state.was_put_back = true;
                self.starts(state);
            }
            Step::IsForgotten => self.forgets(state),
        }
        // The order of the answers that are waited for doesn't matter.
        state.awaited.sort_by(|a, b| (a.start, &a.name, &a.answer).cmp(&(b.start, &b.name, &b.answer)));
        if !is_of_receiver {
            state.outbox = outbox_of(&state.sender.engine);
        }
        let has_forgotten = !state.sender.engine.has_to_send() && state.sender.tables.sent.waiting().next().is_some();
        state.judge.oracle.broken.extend(has_forgotten.then_some(Never::Stuck));
        if state.over.is_some_and(|over| state.sender.tables.sent.knows_none_beyond(over.epoch)) {
            state.judge.may_be_forgotten(state.sender.tables.sent.waiting());
        }
        state.judge.watch(&state.sender.tables, &state.receiver.tables);
    }

    fn comes_back(&self, state: &mut State, at: usize, fate: Fate) {
        if let Some((status, semel, body)) = state.awaited[at].answer.clone() {
            self.hears(state, at, Heard::Answered { status, semel, body }, fate);
        }
    }
}

impl Model for Effects {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let sender = self.side();
        vec![State {
            start: 0,
            ends: 0,
            outbox: outbox_of(&sender.engine),
            sender,
            receiver: self.side(),
            backup: None,
            was_put_back: false,
            over: None,
            network: Network::default(),
            awaited: Vec::new(),
            judge: EffectJudge::default(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let scope = &self.scope;
        if !state.judge.oracle.broken.is_empty() {
            return;
        }
        let is_paid = |name: &str| state.sender.tables.effects.iter().any(|effect| effect.id == name);
        steps.extend(scope.payments.iter().find(|name| !is_paid(name)).map(|name| Step::Pays(name)));
        if state.sender.engine.has_to_send() {
            steps.push(Step::Sends);
        }
        let moods: &[bool] = if scope.refuses { &[false, true] } else { &[false] };
        for knows_none in moods {
            let names = state.network.0.keys().filter(|name| state.may_arrive(name));
            steps.extend(names.map(|name| Step::Arrives(name.clone(), *knows_none)));
            let is_unanswered = |awaited: &Awaited| awaited.answer.is_none() && !awaited.is_over;
            let unanswered = state.awaited.iter().enumerate().filter(|(_, awaited)| is_unanswered(awaited));
            steps.extend(unanswered.map(|(at, _)| Step::Reaches(at, *knows_none)));
        }
        if scope.takes_ids {
            let closings = state.network.0.keys().filter(|name| name.starts_with(CLOSING));
            steps.extend(closings.map(|name| Step::IsTaken(name.clone())));
        }
        let may_end = state.ends < scope.ends_max;
        for (at, awaited) in state.awaited.iter().enumerate() {
            if awaited.answer.is_some() {
                steps.push(Step::ComesBack(at));
                let statements = if may_end { scope.statements_max } else { 0 };
                steps.extend((0..statements).map(|statement| Step::EndsAt(at, statement)));
            }
            steps.push(Step::IsLost(at));
        }
        steps.extend(may_end.then_some(Step::Ends));
        let may_forget = scope.forgets && state.over.is_none() && state.receiver.tables.sessions.sessions() > 0;
        steps.extend(may_forget.then_some(Step::IsForgotten));
        if scope.is_put_back && !state.was_put_back {
            // No copy is made between the start of an object and its take-over: an effect of that time may be sent under a place
            // that the copy doesn't know to be sent.
            let may_be_copied = state.backup.is_none() && !state.sender.tables.sent.is_unsure();
            steps.extend((may_be_copied && state.sender.tables.is_used()).then_some(Step::IsBackedUp));
            steps.extend(state.backup.is_some().then_some(Step::IsPutBack));
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        rules::without(self.without, || self.step(&mut state, step));
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        take_overs(state) <= self.scope.take_overs_max
    }

    fn format_action(&self, step: &Step) -> String {
        let refused = |knows_none: &bool| if *knows_none { ", where nobody knows credits" } else { "" };
        match step {
            Step::Pays(name) => format!("the sender pays {name}"),
            Step::Sends => "the sender's host sends what there is to send".to_owned(),
            Step::Arrives(name, knows_none) => {
                format!("{name} arrives{}, and nobody hears of it", refused(knows_none))
            }
            Step::IsTaken(name) => format!("somebody takes the id of {name}"),
            Step::Reaches(at, knows_none) => format!("what is awaited ({at}) arrives{}", refused(knows_none)),
            Step::ComesBack(at) => format!("its answer ({at}) comes back"),
            Step::EndsAt(at, statement) => {
                format!("its answer ({at}) comes back, and the object ends before statement {statement}")
            }
            Step::IsLost(at) => format!("no answer ({at}) comes back"),
            Step::Ends => "the sender's object ends, and starts again".to_owned(),
            Step::IsBackedUp => "a copy is made of the sender".to_owned(),
            Step::IsPutBack => "the sender is put back to it".to_owned(),
            Step::IsForgotten => "an administrator has the receiver forget its sessions".to_owned(),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let never = Never::ALL.iter().map(|property| property.property());
        never.chain(self.scope.sometimes.iter().map(|property| property.property())).collect()
    }
}
