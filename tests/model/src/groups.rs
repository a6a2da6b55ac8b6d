//! The model of a key whose commits take time, and whose host commits in one turn everything that arrives meanwhile
//! (`worker/turns.js`).
//!
//! How it models the host and the runtime:
//! - The runtime commits a turn of an object as a whole, and lets no answer out before. So the state has the durable tables, and
//!   the tables on which the object works. When a commit is done, the latter become the durable ones, and the requests of the turn
//!   are answered.
//! - A request that arrives during a commit waits. Afterwards all that wait are executed in one turn, in the order in which they
//!   arrived. If there are more than a turn takes, the rest wait for the next turn.
//! - Several that wait are first executed together, in one transaction of the engine within that of the turn. If that is not
//!   possible, each is executed by itself. A statement may fail in any of them; its mood says how a handler goes.
//! - A commit that fails ends the object, and so does a full disk, which undoes the whole turn. Both are as if the process had
//!   ended: what was not durable is gone, and neither its requests nor the waiting ones are answered. If the process ends during
//!   a turn, the result is the same.
//! - A suspect, which may have ended the process before, runs alone. What was under way is made durable first, and so is the
//!   suspect's start; the waiting requests are executed after it. This is one step, because the object does nothing else in
//!   between.
//!
//! The host is JavaScript and is modelled here, not run. So a [`Flaw`] is a fault of the host, and no rule of the core.

use crate::database::{Fate, Undo};
use crate::group_state::{State, Step, Worked, semel_status};
use crate::ledger::{MOOD, Mood};
use crate::letters::Letter;
use crate::oracle::{Aim, Oracle, own_effects};
use crate::properties::{Never, Sometimes};
use crate::server::{Arrived, Server};
use semel_core::message::Request;
use semel_core::rules;
use semel_core::server::Config;
use stateright::{Model, Property};

/// A fault of a host that commits requests together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flaw {
    /// Rolling back one request also rolls back those before it in the turn.
    Isolation,
    /// What a failed request did is not rolled back, because the turn goes on.
    Kept,
    /// Waiting requests are executed in another order than they arrived.
    Order,
    /// Answers leave before the commit is done.
    EarlyAnswer,
    /// A suspect is executed together with other requests.
    SuspectTogether,
}

impl Flaw {
    /// All flaws.
    pub const ALL: &[Self] = &[Self::Isolation, Self::Kept, Self::Order, Self::EarlyAnswer, Self::SuspectTogether];

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Isolation => "group-isolation",
            Self::Kept => "group-kept",
            Self::Order => "group-order",
            Self::EarlyAnswer => "group-early-answer",
            Self::SuspectTogether => "suspect-together",
        }
    }
}

/// What the checker explores.
#[derive(Debug, Clone)]
pub struct GroupScope {
    /// Its name.
    pub name: &'static str,
    /// The letters that have arrived before, in order.
    pub before: Vec<Letter>,
    /// The letters that may arrive.
    pub letters: Vec<Letter>,
    /// The instants of the wall clock, in s.
    pub instants_s: &'static [i64],
    /// Whether the host counts starts.
    pub counts_starts: bool,
    /// The most requests in one commit.
    pub group_max: usize,
    /// The most requests under way at once: those in a commit, and those that wait.
    pub under_way_max: usize,
    /// An upper bound of the statements of a request, and of a turn that is executed together. 0: no statement fails.
    pub statements_max: u16,
    /// The settings of the server.
    pub config: Config,
    /// What must happen in some state.
    pub sometimes: &'static [Sometimes],
}

/// A scope, and the host's flaw, if it has one.
#[derive(Debug, Clone)]
pub struct Groups {
    /// What the checker explores.
    pub scope: GroupScope,
    /// The host's flaw.
    pub flaw: Option<Flaw>,
}

impl Groups {
    fn wall_ms(&self, state: &State) -> i64 {
        self.scope.instants_s[state.instant] * 1000
    }

    fn request(&self, letter: usize, mood: Mood) -> Request {
        let mut request = self.scope.letters[letter].request.clone();
        request.headers.append(MOOD, mood.as_str());
        request
    }

    /// Whether the letter's request is a suspect, which runs alone.
    fn is_alone(&self, state: &State, letter: usize) -> bool {
        let request = &self.scope.letters[letter].request;
        self.flaw != Some(Flaw::SuspectTogether) && state.server.suspects(request, self.wall_ms(state))
    }

    fn work_alone(&self, state: &mut State, letter: usize, mood: Mood) -> bool {
        let wall_ms = self.wall_ms(state);
        self.commit(state);
        let known = state.durable.effects.len();
        let arrived = state.server.arrive(&self.request(letter, mood), wall_ms);
        // Even if the process ended, the counted start is durable.
        state.durable = state.server.tables.clone();
        state.oracle.watch(&self.scope.letters[letter].asked, known, &state.server, &arrived, wall_ms);
        if arrived.has_ended {
            let waiting = state.waiting.drain(..).map(|(letter, _)| letter).collect();
            self.lose(state, waiting, 0);
            return true;
        }
        self.go_on(state, None)
    }

    /// The commit that is under way is done.
    fn commit(&self, state: &mut State) {
        let worked = state.committing.take().unwrap_or_default();
        if self.flaw != Some(Flaw::EarlyAnswer) {
            self.answer(state, &worked);
        }
        state.durable = state.server.tables.clone();
    }

    /// Executes the waiting requests.
    fn go_on(&self, state: &mut State, fails: Option<(Option<usize>, u16)>) -> bool {
        let count = state.waiting.len().min(self.scope.group_max);
        let group: Vec<_> = state.waiting.drain(..count).collect();
        group.is_empty() || self.work(state, group, fails)
    }

    /// Executes these requests in one turn. Returns whether the fault that was asked for came.
    fn work(&self, state: &mut State, group: Vec<(usize, Mood)>, fails: Option<(Option<usize>, u16)>) -> bool {
        let wall_ms = self.wall_ms(state);
        let order: Vec<usize> = match self.flaw {
            Some(Flaw::Order) => (0..group.len()).rev().collect(),
            _ => (0..group.len()).collect(),
        };
        let (together, is_fated) = self.work_together(state, &group, &order, fails);
        if !is_fated {
            return false;
        }
        let mut together = together.map(Vec::into_iter);
        let mut worked = Vec::new();
        for at in order {
            let (letter, mood) = group[at];
            let arrived = match &mut together {
                Some(together) => together.next().expect("an answer to each, unless the process ended"),
                None => {
                    let statement = fails.filter(|(of, _)| *of == Some(at)).map(|(_, statement)| statement);
                    let fate = statement.map_or(Fate::Fine, Fate::Fails);
                    let request = self.request(letter, mood);
                    let (arrived, is_fated) = state.server.arrive_within(&request, wall_ms, self.undo(state), fate);
                    if !self.is_fated(fate, is_fated) {
                        return false;
                    }
                    arrived
                }
            };
            if arrived.has_ended {
                // The other requests of the turn are lost too, and so are those that wait for the next turn.
                let others =
                    group.iter().map(|(letter, _)| *letter).chain(state.waiting.drain(..).map(|(letter, _)| letter));
                let others = others.collect();
                self.lose(state, others, group.len());
                let known = state.durable.effects.len();
                let asked = &self.scope.letters[letter].asked;
                state.oracle.watch_one(asked, known..known, &state.server, &arrived, wall_ms);
                return true;
            }
            worked.push((at, Worked::new(letter, wall_ms, arrived)));
        }
        worked.sort_by_key(|(at, _)| *at);
        let worked: Vec<Worked> = worked.into_iter().map(|(_, worked)| worked).collect();
        if self.flaw == Some(Flaw::EarlyAnswer) {
            self.answer(state, &worked);
        }
        state.committing = Some(worked);
        true
    }

    /// Executes the requests of a turn together, if there are several. Returns the answers, or `None` if each has to be executed
    /// by itself; and whether the fault that was asked for came.
    fn work_together(
        &self,
        state: &mut State,
        group: &[(usize, Mood)],
        order: &[usize],
        fails: Option<(Option<usize>, u16)>,
    ) -> (Option<Vec<Arrived>>, bool) {
        if group.len() < 2 {
            return (None, !matches!(fails, Some((None, _))));
        }
        let statement = fails.map(|(of, statement)| if of.is_some() { 0 } else { statement });
        let requests: Vec<_> = order.iter().map(|at| self.request(group[*at].0, group[*at].1)).collect();
        let (wall_ms, undo, fate) = (self.wall_ms(state), self.undo(state), statement.map_or(Fate::Fine, Fate::Fails));
        let (arrived, is_fated) = state.server.arrive_together(&requests, wall_ms, undo, fate);
        // Requests that are never executed together have no statement that could fail there.
        (arrived, self.is_fated(fate, is_fated) || matches!(fails, Some((Some(_), _))))
    }

    fn undo(&self, state: &State) -> Undo {
        match self.flaw {
            Some(Flaw::Isolation) => Undo::Since(Box::new(state.durable.clone())),
            Some(Flaw::Kept) => Undo::Nothing,
            _ => Undo::Own,
        }
    }

    /// Whether the fault came. The last statement number that is tried must be beyond the statements that there are.
    fn is_fated(&self, fate: Fate, is_fated: bool) -> bool {
        let is_last = fate == Fate::Fails(self.scope.statements_max.saturating_sub(1));
        assert!(!is_last || !is_fated || self.flaw.is_some(), "{} has more statements", self.scope.name);
        is_fated
    }

    /// Answers the requests of a turn. What the tables hold is what their callers are told.
    fn answer(&self, state: &mut State, worked: &[Worked]) {
        let (server, oracle) = (&state.server, &mut state.oracle);
        let (effects, known) = (&server.tables.effects, state.durable.effects.len());
        let arrived: Vec<Arrived> = worked.iter().map(Worked::arrived).collect();
        let asked = |one: &Worked| &self.scope.letters[one.letter].asked;
        let came: Vec<_> =
            worked.iter().zip(&arrived).map(|(one, arrived)| (asked(one).id.as_str(), &arrived.answer)).collect();
        let (own, is_in_order) = own_effects(effects, known, &came);
        oracle.broken.extend((!is_in_order).then_some(Never::OutOfOrder));
        for ((one, arrived), own) in worked.iter().zip(&arrived).zip(&own) {
            let asked = asked(one);
            if asked.aim == Aim::Execute && semel_status(arrived) == "executed" && own.is_empty() {
                oracle.broken.insert(Never::Entangled);
            }
            let is_in_group = effects[known.min(effects.len())..].iter().any(|effect| effect.id == asked.id);
            if semel_status(arrived) == "replayed" && is_in_group {
                oracle.seen.insert(Sometimes::GroupReplay);
            }
            oracle.watch_one(asked, own.clone(), server, arrived, one.at_ms);
        }
        let has_failed = |arrived: &Arrived| matches!(semel_status(arrived), "rolled-back" | "unavailable");
        if own.iter().any(|own| !own.is_empty()) && arrived.iter().any(has_failed) {
            oracle.seen.insert(Sometimes::GroupedBeside);
        }
        oracle.seen.extend((worked.len() > 1).then_some(Sometimes::Grouped));
    }

    /// The object ends. `in_turn`: how many of the letters were in its turn. Nobody is answered.
    fn lose(&self, state: &mut State, letters: Vec<usize>, in_turn: usize) {
        let wall_ms = self.wall_ms(state);
        state.oracle.seen.extend((in_turn > 1).then_some(Sometimes::GroupLost));
        state.committing = None;
        state.server.tables = state.durable.clone();
        state.server.crash(wall_ms);
        let nobody = Arrived::ended(wall_ms, false);
        let known = state.durable.effects.len();
        for letter in letters {
            state.oracle.watch_one(&self.scope.letters[letter].asked, known..known, &state.server, &nobody, wall_ms);
        }
    }

    fn ends(&self, state: &mut State) {
        let committing = state.committing.take().unwrap_or_default();
        if self.flaw == Some(Flaw::EarlyAnswer) {
            let told = committing.iter().filter(|one| semel_status(&one.arrived()) == "executed");
            let is_lost = |one: &Worked| {
                let asked = &self.scope.letters[one.letter].asked;
                asked.aim == Aim::Execute && !state.durable.effects.iter().any(|effect| effect.id == asked.id)
            };
            state.oracle.broken.extend(told.into_iter().any(is_lost).then_some(Never::Early));
        }
        let waiting = std::mem::take(&mut state.waiting);
        let lost = committing.iter().map(|one| one.letter).chain(waiting.iter().map(|(letter, _)| *letter));
        self.lose(state, lost.collect(), committing.len());
    }

    /// Takes a step. Returns whether the step is possible.
    fn step(&self, state: &mut State, step: Step) -> bool {
        match step {
            Step::Arrives(letter, mood) if self.is_alone(state, letter) => return self.work_alone(state, letter, mood),
            Step::Arrives(letter, mood) if state.committing.is_some() => state.waiting.push((letter, mood)),
            Step::Arrives(letter, mood) => return self.work(state, vec![(letter, mood)], None),
            Step::Commits(fails) => {
                self.commit(state);
                return self.go_on(state, fails);
            }
            Step::Ends => self.ends(state),
            Step::Passes(_) => state.instant += 1,
        }
        true
    }
}

impl Model for Groups {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let server = Server::new(self.scope.config.clone());
        let mut server = if self.scope.counts_starts { server.counting_starts(0) } else { server };
        let mut oracle = Oracle::default();
        for letter in &self.scope.before {
            let known = server.tables.effects.len();
            let arrived = server.arrive(&letter.request, 0);
            oracle.watch(&letter.asked, known, &server, &arrived, 0);
        }
        let durable = server.tables.clone();
        vec![State { instant: 0, server, durable, committing: None, waiting: Vec::new(), oracle }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.oracle.broken.is_empty() {
            return;
        }
        if state.committing.iter().flatten().count() + state.waiting.len() < self.scope.under_way_max {
            for (letter, Letter { moods, .. }) in self.scope.letters.iter().enumerate() {
                steps.extend(moods.iter().map(|mood| Step::Arrives(letter, *mood)));
            }
        }
        if state.committing.is_some() {
            steps.push(Step::Commits(None));
            let works = |(_, (_, mood)): &(usize, &(usize, Mood))| *mood == Mood::Works;
            let each = state.waiting.iter().take(self.scope.group_max).enumerate().filter(works);
            let each = each.map(|(at, _)| Some(at)).chain((state.waiting.len() > 1).then_some(None));
            for at in each {
                steps.extend((0..self.scope.statements_max).map(|statement| Step::Commits(Some((at, statement)))));
            }
        }
        steps.push(Step::Ends);
        steps.extend(self.scope.instants_s.get(state.instant + 1).map(|instant_s| Step::Passes(*instant_s)));
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        // Only what happened in this step is noted, so that states that differ in nothing else are one state.
        state.oracle.seen.clear();
        rules::without(None, || self.step(&mut state, step)).then_some(state)
    }

    fn format_action(&self, step: &Step) -> String {
        match step {
            Step::Arrives(letter, Mood::Works) => format!("{} arrives", self.scope.letters[*letter].name),
            Step::Arrives(letter, mood) => {
                format!(
                    "{} arrives, and the handler {} when it is worked",
                    self.scope.letters[*letter].name,
                    mood.as_str()
                )
            }
            Step::Commits(None) => "the commit is done, and what waits is worked in one turn".to_owned(),
            Step::Commits(Some((Some(at), statement))) => {
                format!(
                    "the commit is done, and what waits is worked in one turn, one by one; of its number {} statement {statement} fails",
                    at + 1
                )
            }
            Step::Commits(Some((None, statement))) => {
                format!("the commit is done, and what waits is worked in one turn; its statement {statement} fails")
            }
            Step::Ends => "the commit fails, or the process ends: what is not durable is lost".to_owned(),
            Step::Passes(instant_s) => format!("time passes, until {instant_s} s"),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let never = Never::ALL.iter().map(|property| property.property());
        never.chain(self.scope.sometimes.iter().map(|property| property.property())).collect()
    }
}
