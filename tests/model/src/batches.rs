//! The model of a key that takes batches and frames: many letters at once, each as often as it likes, beside letters that come
//! alone.
//!
//! How it models them:
//! - A batch that never arrives was lost, and one that arrives twice was repeated. An answer that nobody waits for is judged like
//!   any other.
//! - A fault of a commit is a [`Fate`]: a statement fails, a commit or two in a row fail, or the process ends between any two
//!   statements. Requests that are executed one by one have no fate: the scopes of letters cover those.
//! - A frame differs from a batch by its socket: it acknowledges in a member of its own, and its token may have expired
//!   meanwhile.
//! - A mood applies to the first letter of a batch.

use crate::database::Fate;
use crate::ledger::{MOOD, Mood};
use crate::letters::Letter;
use crate::oracle::{Aim, Asked, Oracle, own_effects};
use crate::properties::{Never, Sometimes, Watched};
use crate::server::{Arrived, Server, Together};
use semel_core::id::{Key, Principal};
use semel_core::message::Method;
use semel_core::problem::Problem;
use semel_core::rules::{self, Rule};
use semel_core::server::batch::Batch;
use semel_core::server::edge::auth::{Asker, Grant};
use semel_core::server::{Answer, Config, batch::together};
use serde_json::{Value, json};
use stateright::{Model, Property};

/// Letters that arrive together.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// Its name in a trace.
    pub name: &'static str,
    by: &'static str,
    letters: Vec<Letter>,
    /// The acknowledgements of the whole bundle: ids, and until when attempts of them may arrive, in s.
    acknowledges: Vec<(&'static str, i64)>,
    /// For a frame: when the token of its socket expires, in s.
    ends_s: Option<i64>,
    /// How the execution of its first letter may go.
    moods: &'static [Mood],
    /// Whether its commit may go wrong, at any statement.
    has_fates: bool,
}

/// What the checker explores.
#[derive(Debug, Clone)]
pub struct BatchScope {
    /// Its name.
    pub name: &'static str,
    /// The letters that may arrive alone.
    pub letters: Vec<Letter>,
    /// The bundles that may arrive.
    pub bundles: Vec<Bundle>,
    /// The instants of the wall clock, in s.
    pub instants_s: &'static [i64],
    /// Whether the host counts starts.
    pub counts_starts: bool,
    /// An upper bound of the statements of a batch.
    pub statements_max: u16,
    /// The settings of the server.
    pub config: Config,
    /// What must happen in some state.
    pub sometimes: &'static [Sometimes],
}

/// A scope, and a rule that is switched off, if any.
#[derive(Debug, Clone)]
pub struct Batches {
    /// What the checker explores.
    pub scope: BatchScope,
    /// The rule that is switched off.
    pub without: Option<Rule>,
}

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    instant: usize,
    server: Server,
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
    /// A letter arrives alone, and is answered.
    Arrives(usize, Mood),
    /// A bundle arrives.
    ArriveTogether(usize, Mood, Fate),
    /// The process ends and starts again.
    Crashes,
    /// Time passes until this instant, in s.
    Passes(i64),
}

impl Bundle {
    /// A batch of letters of one principal.
    pub fn batch(name: &'static str, by: &'static str, letters: Vec<Letter>) -> Self {
        Self { name, by, letters, acknowledges: Vec::new(), ends_s: None, moods: &[Mood::Works], has_fates: true }
    }

    /// The same letters as a frame, on a socket whose token expires at this instant, in s.
    pub fn on_a_socket(self, ends_s: i64) -> Self {
        Self { ends_s: Some(ends_s), ..self }
    }

    /// The same bundle with an acknowledgement.
    pub fn acknowledging(mut self, id: &'static str, until_s: i64) -> Self {
        self.acknowledges.push((id, until_s));
        self
    }

    /// The same bundle; the execution of its first letter may go in any of these ways.
    pub fn going(self, moods: &'static [Mood]) -> Self {
        Self { moods, ..self }
    }

    /// The same bundle with a commit that never goes wrong.
    pub fn unharmed(self) -> Self {
        Self { has_fates: false, ..self }
    }

    fn asker(&self) -> Asker {
        let principal = Principal::new(self.by).expect("a principal of this crate");
        Asker { principal, grant: Grant::default(), ends_ms: self.ends_s.map(|ends_s| ends_s * 1000) }
    }

    /// Writes the bundle as it is on the wire, and parses it as the host does.
    fn read(&self, key: &Key, asker: &Asker, mood: Mood, wall_ms: i64) -> Result<Batch, Problem> {
        let moods = [mood].into_iter().chain(std::iter::repeat(Mood::Works));
        let requests: Vec<Value> = self.letters.iter().zip(moods).map(|(letter, mood)| element(letter, mood)).collect();
        if self.ends_s.is_some() {
            let acks: Vec<Value> =
                self.acknowledges.iter().map(|(id, until_s)| json!({ "id": id, "until": until_s * 1000 })).collect();
            let frame = json!({ "frame": 1, "requests": requests, "acks": acks }).to_string();
            return Batch::parse_frame(key, asker, wall_ms, Some(frame.as_bytes()));
        }
        let acks: Vec<String> =
            self.acknowledges.iter().map(|(id, until_s)| format!("\"{id}\";until={}", until_s * 1000)).collect();
        let headers = (!acks.is_empty()).then(|| ("semel-ack", acks.join(", ")));
        Batch::parse(key, &headers.into_iter().collect(), Some(Value::Array(requests).to_string().as_bytes()))
    }

    /// What it asks for besides its letters: its acknowledgements.
    fn acknowledgement(&self) -> Asked {
        let acknowledges = self.acknowledges.iter().map(|(id, _)| (*id).to_owned()).collect();
        Asked { acknowledges, ..Letter::acknowledge("what goes along", self.by).asked }
    }
}

/// A letter as an element of a batch.
fn element(letter: &Letter, mood: Mood) -> Value {
    let request = &letter.request;
    let body = String::from_utf8_lossy(&request.body);
    let mut element = json!({ "method": request.method.as_str(), "path": request.path.with_query(), "body": body, "headers": { MOOD: mood.as_str() } });
    for (name, value) in request.headers.iter() {
        let number = || json!(value.trim_start_matches('@').parse::<i64>().expect("an instant of a letter"));
        match name {
            // The principal is that of the whole batch.
            "authorization" => {}
            "idempotency-key" => element["id"] = json!(value),
            "semel-first-sent" => element["firstSent"] = number(),
            "semel-deadline" => element["deadline"] = number(),
            "semel-session" => {
                let place = letter.asked.place.as_ref().expect("a letter at a place");
                element["session"] =
                    json!({ "name": crate::session_judge::SESSION, "epoch": place.epoch, "seq": place.seq });
                if place.ack > 0 {
                    element["session"]["ack"] = json!(place.ack);
                }
            }
            _ => element["headers"][name] = json!(value),
        }
    }
    element
}

/// The key of all letters.
fn key() -> Key {
    Key::new("k").expect("a key")
}

impl Batches {
    fn wall_ms(&self, state: &State) -> i64 {
        self.scope.instants_s[state.instant] * 1000
    }

    fn arrives(&self, state: &mut State, letter: &Letter, mood: Mood) {
        let mut request = letter.request.clone();
        request.headers.append(MOOD, mood.as_str());
        let (wall_ms, known) = (self.wall_ms(state), state.server.tables.effects.len());
        let arrived = state.server.arrive(&request, wall_ms);
        state.oracle.watch(&letter.asked, known, &state.server, &arrived, wall_ms);
    }

    /// Lets a bundle arrive. Returns whether its fate came true.
    fn arrive_together(&self, state: &mut State, bundle: &Bundle, mood: Mood, fate: Fate) -> bool {
        let (key, asker, wall_ms) = (key(), bundle.asker(), self.wall_ms(state));
        let asked = together::Asked { key: &key, asker: &asker, wall_ms };
        let known = state.server.tables.effects.len();
        let ask = |server: &mut Server, fate| server.together(asked, bundle.read(&key, &asker, mood, wall_ms), fate);
        let before = state.server.clone();
        let Together { arrived, refusal, in_one, is_fated } = ask(&mut state.server, fate);
        if !is_fated {
            return false;
        }
        let is_last = fate == Fate::Ends(self.scope.statements_max - 1);
        assert!(!is_last || self.without.is_some(), "{} has more statements", bundle.name);
        let count = state.server.tables.effects.len();
        if matches!(fate, Fate::Ends(_)) && in_one && count > known {
            // Compared with a run without a fault, either all effects are there or none.
            let mut other = before;
            ask(&mut other, Fate::Fine);
            state.oracle.broken.extend((count < other.tables.effects.len()).then_some(Never::Partly));
        }
        state.oracle.broken.extend((asker.has_ended(wall_ms) && count > known).then_some(Never::AfterToken));
        state.oracle.seen.extend((!in_one).then_some(Sometimes::OneByOne));
        self.judge(state, bundle, (arrived, refusal.as_ref()), known, wall_ms);
        true
    }

    /// Judges each letter as if it had come alone, with its own effects. The effects are in the order of the letters.
    fn judge(
        &self,
        state: &mut State,
        bundle: &Bundle,
        (arrived, refusal): (Vec<Arrived>, Option<&Problem>),
        known: usize,
        wall_ms: i64,
    ) {
        let (server, oracle) = (&state.server, &mut state.oracle);
        let effects = &server.tables.effects;
        let is_answered = arrived.len() == bundle.letters.len();
        let shell = Arrived::ended(wall_ms, false);
        oracle.watch_one(&bundle.acknowledgement(), known..known, server, &shell, wall_ms);
        // If the whole batch was answered, its acknowledgements were applied.
        let is_kept = |(id, _): &(&str, i64)| {
            let is_own = effects[..known].iter().any(|effect| effect.id == *id && effect.principal == bundle.by);
            is_own && server.tables.keeps_outcome(id)
        };
        if is_answered && refusal.is_none() && bundle.acknowledges.iter().any(is_kept) {
            oracle.broken.insert(Never::Unacknowledged);
        }
        let mut arrived = arrived.into_iter();
        let ones = bundle.letters.iter().map(|_| match refusal {
            Some(problem) => Arrived { answer: Answer::problem(problem), ..Arrived::ended(wall_ms, false) },
            None => arrived.next().unwrap_or_else(|| Arrived::ended(wall_ms, false)),
        });
        let ones: Vec<Arrived> = ones.collect();
        let came = bundle.letters.iter().zip(&ones).map(|(letter, one)| (letter.asked.id.as_str(), &one.answer));
        let (own, is_in_order) = own_effects(effects, known, &came.collect::<Vec<_>>());
        oracle.broken.extend((!is_in_order).then_some(Never::OutOfOrder));
        for ((letter, one), own) in bundle.letters.iter().zip(&ones).zip(own) {
            if letter.request.method == Method::Put && !own.is_empty() {
                oracle.broken.insert(Never::Astray);
            }
            if has_room(letter, one, server) {
                oracle.broken.insert(Never::Needless);
            }
            oracle.watch_one(&letter.asked, own, server, one, wall_ms);
        }
    }
}

/// Whether a letter was refused for lack of room that the key has.
fn has_room(letter: &Letter, arrived: &Arrived, server: &Server) -> bool {
    let is_refused = arrived.answer.headers.get("semel-status") == Some("capacity");
    let config = server.config();
    let has_records = (server.tables.count(true) as u64) < config.records_max;
    let has_sessions = (server.tables.sessions.sessions() as u64) < config.sessions_max;
    is_refused && if matches!(letter.asked.aim, Aim::TakeOver(_)) { has_records && has_sessions } else { has_records }
}

impl Model for Batches {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let server = Server::new(self.scope.config.clone());
        let server = if self.scope.counts_starts { server.counting_starts(0) } else { server };
        vec![State { instant: 0, server, oracle: Oracle::default() }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.oracle.broken.is_empty() {
            return;
        }
        for (letter, Letter { moods, .. }) in self.scope.letters.iter().enumerate() {
            steps.extend(moods.iter().map(|mood| Step::Arrives(letter, *mood)));
        }
        let statements = || 0..self.scope.statements_max;
        for (bundle, Bundle { moods, has_fates, .. }) in self.scope.bundles.iter().enumerate() {
            steps.extend(moods.iter().map(|mood| Step::ArriveTogether(bundle, *mood, Fate::Fine)));
            if !has_fates {
                continue;
            }
            let fates = (1..=2).map(Fate::CommitsFail).chain(statements().map(Fate::Fails));
            // If the handler fails, the elements are executed one by one, and the second fault comes there.
            let fates = fates.chain(statements().map(Fate::FailsAgain)).chain(statements().map(Fate::Ends));
            steps.extend(fates.map(|fate| Step::ArriveTogether(bundle, Mood::Works, fate)));
        }
        steps.push(Step::Crashes);
        steps.extend(self.scope.instants_s.get(state.instant + 1).map(|instant_s| Step::Passes(*instant_s)));
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        let is_possible = rules::without(self.without, || match step {
            Step::Arrives(letter, mood) => {
                self.arrives(&mut state, &self.scope.letters[letter], mood);
                true
            }
            Step::ArriveTogether(bundle, mood, fate) => {
                self.arrive_together(&mut state, &self.scope.bundles[bundle], mood, fate)
            }
            Step::Crashes => {
                let wall_ms = self.wall_ms(&state);
                state.server.crash(wall_ms);
                true
            }
            Step::Passes(_) => {
                state.instant += 1;
                true
            }
        });
        is_possible.then_some(state)
    }

    fn format_action(&self, step: &Step) -> String {
        match step {
            Step::Arrives(letter, Mood::Works) => format!("{} arrives", self.scope.letters[*letter].name),
            Step::Arrives(letter, mood) => {
                format!("{} arrives, and the handler {}", self.scope.letters[*letter].name, mood.as_str())
            }
            Step::ArriveTogether(bundle, mood, fate) => {
                let mut line = format!("{} arrives", self.scope.bundles[*bundle].name);
                if *mood != Mood::Works {
                    line.push_str(&format!(", and the handler {} at its first", mood.as_str()));
                }
                match fate {
                    Fate::Fine => {}
                    Fate::Fails(n) => line.push_str(&format!(", and statement {n} fails")),
                    Fate::FailsAgain(n) => {
                        line.push_str(&format!(", the handler fails once, and statement {n} after that"));
                    }
                    Fate::CommitsFail(n) => line.push_str(&format!(", and {n} commits fail")),
                    Fate::Ends(n) => line.push_str(&format!(", and the server crashes before statement {n}")),
                }
                line
            }
            Step::Crashes => "the server crashes".to_owned(),
            Step::Passes(instant_s) => format!("time passes, until {instant_s} s"),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let never = Never::ALL.iter().map(|property| property.property());
        never.chain(self.scope.sometimes.iter().map(|property| property.property())).collect()
    }
}
