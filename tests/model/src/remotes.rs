//! The model of a key whose requests are executed elsewhere: attempts of one id, again and again, an object that may end between
//! any two steps, and a service behind a network that delays, loses and fails.
//!
//! How it models them:
//! - Committing the start, sending, answering, and recording the answer are separate steps, and the process may end before each
//!   of them.
//! - A request that never arrives was lost. A request whose answer the object no longer waits for may still arrive, until
//!   [`RemoteScope::transit_s`] is over.
//! - The host has one request of the key under way. Duplicates wait, which is the same as arriving later. What an administrator
//!   or a client asks the key itself does not wait.
//! - A request whose start was recorded leaves in the same instant or never: that is up to the host.

use crate::database::Database;
use crate::elsewhere::{Elsewhere, Forwarder, There};
use crate::letters::Letter;
use crate::oracle::{Aim, Oracle};
use crate::properties::{Never, Sometimes, Watched};
use crate::remote_judge::RemoteJudge;
use crate::server::Server;
use crate::tables::Tables;
use semel_core::message::Response;
use semel_core::rules::{self, Rule};
use semel_core::server::engine::remote::{Call, Ended};
use semel_core::server::handler::Policy;
use semel_core::server::{Config, Engine, engine::Arrival};
use stateright::{Model, Property};

/// What the checker explores.
#[derive(Debug, Clone)]
pub struct RemoteScope {
    /// Its name.
    pub name: &'static str,
    /// The policy for requests that are in doubt.
    pub policy: Policy,
    /// The letters that may arrive. All are about one id.
    pub letters: Vec<Letter>,
    /// The instants of the wall clock, in s.
    pub instants_s: &'static [i64],
    /// How long a request may be under way, in s.
    pub transit_s: i64,
    /// How long the service remembers an id, in s; `None` if it knows no ids.
    pub knows_s: Option<i64>,
    /// The most times that the id is dispatched.
    pub dispatches_max: u8,
    /// The settings of the server.
    pub config: Config,
    /// What must happen in some state.
    pub sometimes: &'static [Sometimes],
}

/// A scope, and a rule that is switched off, if any.
#[derive(Debug, Clone)]
pub struct Remotes {
    /// What the checker explores.
    pub scope: RemoteScope,
    /// The rule that is switched off.
    pub without: Option<Rule>,
}

/// How far a call has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// What must be committed before the call is committed.
    Ready,
    /// The call has left.
    Sent,
    /// The service has answered.
    Answered(u16, Vec<u8>),
}

/// An attempt that waits for the result of its call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct UnderWay {
    letter: usize,
    call: Call,
    phase: Phase,
}

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    instant: usize,
    engine: Engine<Forwarder>,
    tables: Tables,
    waits: Option<UnderWay>,
    /// How often the id was to be dispatched. This is also the number of the last request.
    dispatches: u8,
    elsewhere: Elsewhere,
    judge: RemoteJudge,
}

impl Watched for State {
    fn oracle(&self) -> &Oracle {
        &self.judge.oracle
    }
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A letter arrives.
    Arrives(usize),
    /// The call leaves.
    Leaves,
    /// The service can't be reached, so the call certainly did not leave.
    IsUnreachable,
    /// A request arrives at the service.
    Reaches(u8, There),
    /// A probe arrives at the service.
    IsProbed(There),
    /// The answer comes back.
    ComesBack,
    /// The object no longer waits for the answer.
    GivesUp,
    /// The object ends, and starts again.
    Crashes,
    /// Time passes until this instant, in s.
    Passes(i64),
}

impl Remotes {
    fn now_s(&self, state: &State) -> i64 {
        self.scope.instants_s[state.instant]
    }

    /// Hands a letter to the engine, or the result of its call. If the engine has something to send, the attempt waits; otherwise
    /// its answer is judged.
    fn asks(&self, state: &mut State, letter: usize, settles: Option<(Call, Ended)>) {
        let now_s = self.now_s(state);
        let (wall_ms, Letter { request, asked, .. }) = (now_s * 1000, &self.scope.letters[letter]);
        let (key, principal) =
            Server::object_of(&self.scope.config, request, wall_ms).expect("a letter that reaches its object");
        let arrival = Arrival { key: &key, principal: &principal, request, body_too_large: false, wall_ms };
        let database = Database::open(std::mem::take(&mut state.tables));
        let answer = match &settles {
            None => state.engine.handle(&database, arrival),
            Some((call, ended)) => state.engine.settle(&database, arrival, call, ended.clone()),
        };
        state.tables = database.close();
        let settled = settles.as_ref().map(|(call, _)| call);
        if let Some(call) = state.engine.take_call() {
            if let Call::Dispatch { times } = &call {
                state.dispatches += 1;
                let seen = &mut state.judge.oracle.seen;
                seen.extend((settled.is_none() && *times > 1).then_some(Sometimes::Resent));
                seen.extend(settled.map(|_| Sometimes::ProvenAbsent));
                let is_late = self.scope.letters[letter].deadline_s().is_some_and(|deadline_s| deadline_s < now_s);
                let broken = &mut state.judge.oracle.broken;
                broken.extend(is_late.then_some(Never::TooLate));
                broken.extend((!state.tables.is_dispatched(&asked.id)).then_some(Never::Unrecorded));
            }
            state.waits = Some(UnderWay { letter, call, phase: Phase::Ready });
            return;
        }
        let is_found =
            matches!(settled, Some(Call::Probe { .. })) && answer.headers.get("semel-status") == Some("executed");
        state.judge.oracle.seen.extend(is_found.then_some(Sometimes::Found));
        let sent = matches!(settled, Some(Call::Dispatch { .. })).then_some(state.dispatches);
        let effects: Vec<u8> = state.elsewhere.effects().collect();
        state.judge.watch(asked, &answer, sent, &effects);
    }

    fn settles(&self, state: &mut State, ended: Ended) {
        if let Some(UnderWay { letter, call, .. }) = state.waits.take() {
            self.asks(state, letter, Some((call, ended)));
        }
    }

    fn step(&self, state: &mut State, step: Step) {
        let now_s = self.now_s(state);
        match step {
            Step::Arrives(letter) => self.asks(state, letter, None),
            Step::Leaves => {
                if let Some(UnderWay { call, phase, .. }) = &mut state.waits {
                    *phase = Phase::Sent;
                    if matches!(call, Call::Dispatch { .. }) {
                        state.elsewhere.leaves(state.dispatches, now_s);
                    }
                }
            }
            Step::IsUnreachable => self.settles(state, Ended::Unreachable("refused".to_owned())),
            Step::Reaches(number, there) => {
                let earlier = state.elsewhere.effects().count();
                let response = state.elsewhere.takes(number, there, now_s, self.scope.knows_s);
                if state.elsewhere.effects().count() > earlier {
                    state.judge.watch_effect(number, earlier);
                }
                if let Some(UnderWay { call: Call::Dispatch { .. }, phase, .. }) = &mut state.waits
                    && *phase == Phase::Sent
                    && number == state.dispatches
                {
                    *phase = Phase::Answered(response.status, response.body);
                }
            }
            Step::IsProbed(there) => {
                let Response { status, body, .. } = state.elsewhere.reads(there);
                if let Some(under_way) = &mut state.waits {
                    under_way.phase = Phase::Answered(status, body);
                }
            }
            Step::ComesBack => {
                if let Some(UnderWay { phase: Phase::Answered(status, body), .. }) = &state.waits {
                    let response = Response { status: *status, headers: Default::default(), body: body.clone() };
                    self.settles(state, Ended::Answered(response));
                }
            }
            Step::GivesUp => self.settles(state, Ended::Unknown("no answer".to_owned())),
            Step::Crashes => {
                state.waits = None;
                state.engine = self.engine();
            }
            Step::Passes(instant_s) => {
                state.instant += 1;
                state.elsewhere.passes(instant_s, self.scope.transit_s);
            }
        }
    }

    fn engine(&self) -> Engine<Forwarder> {
        Engine::new(Forwarder(self.scope.policy.clone()), self.scope.config.clone())
    }
}

impl Model for Remotes {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            instant: 0,
            engine: self.engine(),
            tables: Tables::default(),
            waits: None,
            dispatches: 0,
            elsewhere: Elsewhere::default(),
            judge: RemoteJudge::default(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.judge.oracle.broken.is_empty() {
            return;
        }
        let may_arrive =
            |letter: &usize| state.waits.is_none() || self.scope.letters[*letter].asked.aim != Aim::Execute;
        steps.extend((0..self.scope.letters.len()).filter(may_arrive).map(Step::Arrives));
        for number in state.elsewhere.under_way() {
            steps.extend(There::ALL.map(|there| Step::Reaches(number, there)));
        }
        match &state.waits {
            None => {}
            Some(UnderWay { phase: Phase::Ready, .. }) => steps.extend([Step::Leaves, Step::IsUnreachable]),
            Some(UnderWay { phase: Phase::Sent, call, .. }) => {
                steps.push(Step::GivesUp);
                if matches!(call, Call::Probe { .. }) {
                    steps.extend([There::Works, There::FailsBefore, There::Refuses].map(Step::IsProbed));
                }
            }
            Some(UnderWay { phase: Phase::Answered(..), .. }) => steps.extend([Step::ComesBack, Step::GivesUp]),
        }
        steps.push(Step::Crashes);
        if !matches!(&state.waits, Some(UnderWay { phase: Phase::Ready, .. })) {
            steps.extend(self.scope.instants_s.get(state.instant + 1).map(|instant_s| Step::Passes(*instant_s)));
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        rules::without(self.without, || self.step(&mut state, step));
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.dispatches <= self.scope.dispatches_max
    }

    fn format_action(&self, step: &Step) -> String {
        match step {
            Step::Arrives(letter) => format!("{} arrives", self.scope.letters[*letter].name),
            Step::Leaves => "what is to be sent leaves".to_owned(),
            Step::IsUnreachable => "the other side can't be reached, and nothing has left".to_owned(),
            Step::Reaches(number, there) => {
                format!("request {number} arrives at the other side, and {}", there.as_str())
            }
            Step::IsProbed(there) => format!("a probe arrives at the other side, and {}", there.as_str()),
            Step::ComesBack => "the answer comes back".to_owned(),
            Step::GivesUp => "the object waits for it no longer".to_owned(),
            Step::Crashes => "the object crashes".to_owned(),
            Step::Passes(instant_s) => format!("time passes, until {instant_s} s"),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let never = Never::ALL.iter().map(|property| property.property());
        never.chain(self.scope.sometimes.iter().map(|property| property.property())).collect()
    }
}
