//! The model of a key whose clients may be anybody: a few letters, each of which may arrive at any time, again and again.
//!
//! This is the network at its worst. A letter that never arrives was lost, one that arrives twice was repeated, and one that
//! arrives after a later one was overtaken. A client that crashed still has letters on their way. An answer that nobody waits for
//! is judged like any other.
//!
//! How it models the rest:
//! - Time is a list of instants. The wall clock steps from one to the next; with a restart of the process it may fall back by
//!   one.
//! - A handler is synchronous, so nothing waits inside the engine. If a scope has turns, an execution takes two steps: an attempt
//!   begins, and its writes are not committed yet; then it commits, or the process ends. An attempt of the same id that arrives
//!   in between waits for its turn at the object, and is then decided from storage.
//! - "Forget", by which an administrator moves the fence ahead of retention, is what the registry tells the object to do. An
//!   administrator's request to the key itself is a letter like any other.

use crate::ledger::{MOOD, Mood};
use crate::oracle::{ADMINISTRATOR, Aim, Asked, Oracle};
use crate::properties::{Never, Sometimes, Watched};
use crate::server::Server;
use crate::session_judge::{Numbers, SESSION};
use semel_core::message::{Headers, Method, Request};
use semel_core::path::Path;
use semel_core::rules::{self, Rule};
use semel_core::server::Config;
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// The possible owners of a session.
const OWNERS: [&str; 2] = ["ann", "bob"];

/// A letter: one attempt, however often it arrives.
#[derive(Debug, Clone)]
pub struct Letter {
    /// Its name in a trace.
    pub name: &'static str,
    pub(crate) request: Request,
    pub(crate) asked: Asked,
    /// How its execution may go.
    pub moods: &'static [Mood],
    /// The latest instant of its first arrival, if it has one. It is for a careless client: only an attempt that the key has seen
    /// protects such a client.
    first_by_s: Option<i64>,
}

/// What the checker explores.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Its name.
    pub name: &'static str,
    /// The letters that have arrived before, in order.
    pub before: Vec<Letter>,
    /// The letters that may arrive.
    pub letters: Vec<Letter>,
    /// The instants of the wall clock, in s.
    pub instants_s: &'static [i64],
    /// Whether the clock may fall back over a restart.
    pub may_fall_back: bool,
    /// The instant before which an administrator may have requests forgotten.
    pub forgets_before_s: Option<i64>,
    /// Whether an execution takes two steps.
    pub has_turns: bool,
    /// Whether the host counts starts.
    pub counts_starts: bool,
    /// Whether in every state the session's owner must be able to take it over and have a new request executed.
    pub goes_on: bool,
    /// The settings of the server.
    pub config: Config,
    /// What must happen in some state.
    pub sometimes: &'static [Sometimes],
}

/// A scope, and a rule that is switched off, if any.
#[derive(Debug, Clone)]
pub struct Letters {
    /// What the checker explores.
    pub scope: Scope,
    /// The rule that is switched off.
    pub without: Option<Rule>,
}

/// An execution that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Turn {
    begun: usize,
    waits: Option<usize>,
}

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    instant: usize,
    has_fallen_back: bool,
    server: Server,
    turn: Option<Turn>,
    /// The letters with a latest first arrival that have arrived.
    arrived: BTreeSet<usize>,
    oracle: Oracle,
}

impl Watched for State {
    fn oracle(&self) -> &Oracle {
        &self.oracle
    }
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A letter arrives and is answered.
    Arrives(usize, Mood),
    /// A letter arrives and begins to execute.
    Begins(usize),
    /// A letter arrives and waits for the one that executes.
    Waits(usize),
    /// The execution commits and is answered, and then the letter that waits.
    Commits,
    /// The process ends and starts again.
    Crashes,
    /// The process ends and starts again with a clock that has fallen back.
    CrashesAndFallsBack,
    /// Time passes until this instant, in s.
    Passes(i64),
    /// An administrator has the key forget requests.
    Forgets(i64),
}

impl Letter {
    /// A letter with an id, executed with this payload.
    pub fn change(name: &'static str, by: &str, id: &str, payload: &str) -> Self {
        Self::new(name, Aim::Execute, by, id, (Method::Post, "/k"), payload.to_owned()).with("idempotency-key", id)
    }

    /// A letter that reads.
    pub fn read(name: &'static str, by: &str) -> Self {
        Self::new(name, Aim::Read, by, "", (Method::Get, "/k"), String::new())
    }

    /// A letter that cancels an id.
    pub fn cancel(name: &'static str, by: &str, id: &str, first_sent_s: Option<i64>) -> Self {
        let body = match first_sent_s {
            Some(first_sent_s) => format!("{{\"id\":\"{id}\",\"firstSent\":{first_sent_s}}}"),
            None => format!("{{\"id\":\"{id}\"}}"),
        };
        let letter = Self::new(name, Aim::Cancel, by, id, (Method::Post, "/semel/v1/keys/k/cancel"), body);
        let mut letter = letter.with("idempotency-key", name.replace(' ', "-"));
        letter.asked.first_sent_s = first_sent_s;
        letter
    }

    /// A letter that looks up an outcome.
    pub fn look_up(name: &'static str, by: &str, id: &str) -> Self {
        Self::new(name, Aim::LookUp, by, id, (Method::Get, &format!("/semel/v1/keys/k/outcomes/{id}")), String::new())
    }

    /// A letter that only acknowledges.
    pub fn acknowledge(name: &'static str, by: &str) -> Self {
        let body = "{\"ids\":[]}".to_owned();
        Self::new(name, Aim::Acknowledge, by, "", (Method::Post, "/semel/v1/keys/k/acks"), body)
    }

    /// A letter to an administrator's path for the record of an id. `by` says who sends it.
    pub fn record(name: &'static str, by: &str, aim: Aim, id: &str) -> Self {
        let path = format!("/semel/v1/admin/keys/k/records/{id}");
        let method = if aim == Aim::DeleteRecord { Method::Delete } else { Method::Get };
        Self::new(name, aim, by, id, (method, &path), String::new()).with("idempotency-key", name.replace(' ', "-"))
    }

    /// A letter by which an administrator cancels an id.
    pub fn admin_cancel(name: &'static str, id: &str, first_sent_s: i64) -> Self {
        let body = format!("{{\"id\":\"{id}\",\"firstSent\":{first_sent_s}}}");
        let to = (Method::Post, "/semel/v1/admin/keys/k/cancel");
        let letter = Self::new(name, Aim::Cancel, ADMINISTRATOR, id, to, body);
        let mut letter = letter.with("idempotency-key", name.replace(' ', "-"));
        letter.asked.first_sent_s = Some(first_sent_s);
        letter
    }

    /// A letter at a place of the session: its epoch, its seq, and up to where it acknowledges.
    pub fn place(name: &'static str, by: &str, (epoch, seq, ack): (i64, i64, i64), payload: &str) -> Self {
        let numbers = Numbers { epoch, seq, ack };
        let letter = Self::new(name, Aim::Execute, by, &numbers.id(), (Method::Post, "/k"), payload.to_owned());
        let mut letter = letter.with("semel-session", format!("\"{SESSION}\";epoch={epoch};seq={seq};ack={ack}"));
        letter.asked.place = Some(numbers);
        letter
    }

    /// A letter that closes a place of the session.
    pub fn close(name: &'static str, by: &str, (epoch, seq): (i64, i64)) -> Self {
        let numbers = Numbers { epoch, seq, ack: 0 };
        let body = format!("{{\"session\":{{\"name\":\"{SESSION}\",\"epoch\":{epoch},\"seq\":{seq}}}}}");
        let to = (Method::Post, "/semel/v1/keys/k/cancel");
        let letter = Self::new(name, Aim::Cancel, by, &numbers.id(), to, body);
        let mut letter = letter.with("idempotency-key", format!("closes-{epoch}-{seq}"));
        letter.asked.place = Some(numbers);
        letter
    }

    /// A letter that takes the session over.
    pub fn take_over(name: &'static str, by: &str, own: &str, after: Option<i64>) -> Self {
        Self::take_over_of(name, SESSION, by, own, after)
    }

    /// A letter that takes over the session with this name.
    pub fn take_over_of(name: &'static str, session: &str, by: &str, own: &str, after: Option<i64>) -> Self {
        let after_member = after.map_or(String::new(), |after| format!(",\"after\":{after}"));
        let body = format!("{{\"name\":\"{session}\"{after_member}}}");
        let to = (Method::Post, "/semel/v1/keys/k/sessions");
        Self::new(name, Aim::TakeOver(after), by, session, to, body).with("idempotency-key", own)
    }

    /// A letter that deletes the key.
    pub fn delete_key(name: &'static str, by: &str) -> Self {
        let to = (Method::Delete, "/semel/v1/admin/keys/k");
        Self::new(name, Aim::DeleteKey, by, "", to, String::new()).with("idempotency-key", name.replace(' ', "-"))
    }

    pub(crate) fn new(
        name: &'static str,
        aim: Aim,
        by: &str,
        id: &str,
        (method, path): (Method, &str),
        body: String,
    ) -> Self {
        let path = Path::new(path, "").expect("a path of this file");
        let headers = Headers::from_iter([("authorization", format!("Bearer {by}"))]);
        let asked = Asked {
            aim,
            id: id.to_owned(),
            by: by.to_owned(),
            payload: body.clone(),
            first_sent_s: None,
            place: None,
            acknowledges: Vec::new(),
        };
        Self {
            name,
            request: Request { method, path, headers, body: body.into_bytes() },
            asked,
            moods: &[Mood::Works],
            first_by_s: None,
        }
    }

    pub(crate) fn with(mut self, header: &str, value: impl AsRef<str> + Into<String>) -> Self {
        self.request.headers.append(header, value);
        self
    }

    /// The same letter, whose execution may go in any of these ways.
    pub fn going(self, moods: &'static [Mood]) -> Self {
        Self { moods, ..self }
    }

    /// The same letter; it never arrives for the first time after this instant.
    pub fn first_by(self, instant_s: i64) -> Self {
        Self { first_by_s: Some(instant_s), ..self }
    }

    /// The same letter with a deadline.
    pub fn by(self, deadline_s: i64) -> Self {
        self.with("semel-deadline", (deadline_s * 1000).to_string())
    }

    /// The same letter with a first-sent.
    pub fn first_sent(mut self, first_sent_s: i64) -> Self {
        self.asked.first_sent_s = Some(first_sent_s);
        self.with("semel-first-sent", format!("@{first_sent_s}"))
    }

    /// The same letter with an acknowledgement.
    pub fn acknowledging(mut self, id: &str, until_s: i64) -> Self {
        if self.asked.id != id {
            self.asked.acknowledges.push(id.to_owned());
        }
        self.with("semel-ack", format!("\"{id}\";until={}", until_s * 1000))
    }
}

impl Letters {
    fn wall_ms(&self, state: &State) -> i64 {
        self.scope.instants_s[state.instant] * 1000
    }

    fn arrives(&self, state: &mut State, letter: usize, mood: Mood) {
        let letters = &self.scope.letters;
        state.arrived.extend(letters[letter].first_by_s.map(|_| letter));
        self.takes(state, &letters[letter], mood);
    }

    fn takes(&self, state: &mut State, Letter { request, asked, .. }: &Letter, mood: Mood) {
        let mut request = request.clone();
        request.headers.append(MOOD, mood.as_str());
        let wall_ms = self.wall_ms(state);
        let known = state.server.tables.effects.len();
        let arrived = state.server.arrive(&request, wall_ms);
        state.oracle.watch(asked, known, &state.server, &arrived, wall_ms);
    }

    /// Whether `by` can take the session over from here and have a new request executed at the next seq. These are two new
    /// letters, and nothing that is on its way can keep them from arriving first. They are tried on a copy, so the state stays as
    /// it is.
    fn goes_on(&self, state: &State, by: &str) -> bool {
        let (mut server, wall_ms) = (state.server.clone(), self.wall_ms(state));
        let mut arrives = |letter: Letter| {
            let arrived = server.arrive(&letter.request, wall_ms);
            let is_executed = arrived.answer.headers.get("semel-status") == Some("executed");
            is_executed.then_some((arrived.answer.body, server.tables.effects.len()))
        };
        let Some((told, before)) = arrives(Letter::take_over("a new holder", by, "new-holder", None)) else {
            return false;
        };
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap_or_default();
        let (Some(epoch), Some(last)) = (told["epoch"].as_i64(), told["lastSeq"].as_i64()) else { return false };
        let place = Letter::place("its first request", by, (epoch, last + 1, last), "new");
        arrives(place).is_some_and(|(_, after)| after == before + 1)
    }

    fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Arrives(letter, mood) => self.arrives(state, letter, mood),
            Step::Begins(letter) => state.turn = Some(Turn { begun: letter, waits: None }),
            Step::Waits(letter) => {
                state.oracle.seen.insert(Sometimes::Waits);
                if let Some(turn) = &mut state.turn {
                    turn.waits = Some(letter);
                }
            }
            Step::Commits => {
                if let Some(Turn { begun, waits }) = state.turn.take() {
                    for letter in [Some(begun), waits].into_iter().flatten() {
                        self.arrives(state, letter, Mood::Works);
                    }
                }
            }
            Step::Crashes | Step::CrashesAndFallsBack => {
                state.turn = None;
                if step == Step::CrashesAndFallsBack {
                    state.instant -= 1;
                    state.has_fallen_back = true;
                }
                let wall_ms = self.wall_ms(state);
                state.server.crash(wall_ms);
            }
            Step::Passes(_) => state.instant += 1,
            Step::Forgets(before_s) => {
                let wall_ms = self.wall_ms(state);
                if state.server.forget(before_s, wall_ms).expect("tables in memory") {
                    state.oracle.forgets_before(before_s);
                }
            }
        }
    }
}

impl Model for Letters {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let server = Server::new(self.scope.config.clone());
        let server = if self.scope.counts_starts { server.counting_starts(0) } else { server };
        let mut state = State {
            instant: 0,
            has_fallen_back: false,
            server,
            turn: None,
            arrived: BTreeSet::new(),
            oracle: Oracle::default(),
        };
        rules::without(self.without, || {
            self.scope.before.iter().for_each(|letter| self.takes(&mut state, letter, Mood::Works));
        });
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let letters = &self.scope.letters;
        if !state.oracle.broken.is_empty() {
            return;
        }
        if let Some(Turn { begun, waits }) = state.turn {
            let is_duplicate = |&letter: &usize| letters[letter].asked.id == letters[begun].asked.id && waits.is_none();
            steps.extend((0..letters.len()).filter(is_duplicate).map(Step::Waits));
            steps.extend([Step::Commits, Step::Crashes]);
            return;
        }
        let now_s = self.scope.instants_s[state.instant];
        for (letter, Letter { asked, moods, first_by_s, .. }) in letters.iter().enumerate() {
            if first_by_s.is_some_and(|first_by_s| first_by_s < now_s) && !state.arrived.contains(&letter) {
                continue;
            }
            if self.scope.has_turns && asked.aim == Aim::Execute {
                steps.push(Step::Begins(letter));
            }
            steps.extend(moods.iter().map(|mood| Step::Arrives(letter, *mood)));
        }
        steps.push(Step::Crashes);
        steps.extend(self.scope.instants_s.get(state.instant + 1).map(|instant_s| Step::Passes(*instant_s)));
        if self.scope.may_fall_back && state.instant > 0 && !state.has_fallen_back {
            steps.push(Step::CrashesAndFallsBack);
        }
        steps.extend(self.scope.forgets_before_s.filter(|before_s| *before_s <= now_s).map(Step::Forgets));
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        rules::without(self.without, || self.step(&mut state, step));
        Some(state)
    }

    fn format_action(&self, step: &Step) -> String {
        let name = |letter: &usize| self.scope.letters[*letter].name;
        match step {
            Step::Arrives(letter, Mood::Works) => format!("{} arrives", name(letter)),
            Step::Arrives(letter, mood) => format!("{} arrives, and the handler {}", name(letter), mood.as_str()),
            Step::Begins(letter) => format!("{} begins to execute", name(letter)),
            Step::Waits(letter) => format!("{} waits for it", name(letter)),
            Step::Commits => "it commits".to_owned(),
            Step::Crashes => "the server crashes".to_owned(),
            Step::CrashesAndFallsBack => "the server crashes, and its clock falls back".to_owned(),
            Step::Passes(instant_s) => format!("time passes, until {instant_s} s"),
            Step::Forgets(before_s) => format!("an administrator forgets what is older than {before_s} s"),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let never =
            Never::ALL.iter().filter(|property| **property != Never::Wedged).map(|property| property.property());
        // Checked for each state, and not at each step, so that each state is checked only once.
        let wedged: Property<Self> = Property::always(Never::Wedged.name(), |model: &Self, state: &State| {
            let goes_on = |owner: &&str| rules::without(model.without, || model.goes_on(state, owner));
            !model.scope.goes_on || OWNERS.iter().any(goes_on)
        });
        never.chain([wedged]).chain(self.scope.sometimes.iter().map(|property| property.property())).collect()
    }
}
