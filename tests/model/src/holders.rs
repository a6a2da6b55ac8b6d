//! The model of the tabs of one client that contend for a session, of the store that they share, and of the key that they send
//! to.
//!
//! The machine is the real one ([`crate::holder`]). This module is its host, and the network between it and the key.
//!
//! How it models them:
//! - A message stays on its way for good: it may arrive at any time, and again. An answer arrives at once or never, as for the
//!   tabs without a session ([`crate::tabs`]).
//! - Each transaction is a step of its own, in the order in which the tab asks for it, and its report comes in the same step. A
//!   reported transaction is durable, as in the strict stores of sessions. If a tab crashes, the store has made none, the first
//!   ones, or all of the transactions that it asked for.
//! - A tab may crash between any two steps, and loses everything but the store. A tab that loses the session lives on until it
//!   crashes, and doesn't know of its loss before the key tells it: the zombie.
//! - The application makes requests in a tab after the tab took the session over and looked at what others left, as
//!   `semel.session` does it.
//! - Either all tabs know at once, by locks, which tabs live, or none does. In the second case several may have the same request
//!   in hand, and the only promises are that nothing happens twice and that every answer is true.

use crate::frames::Frame;
use crate::holder::{Attempt, Holder, Report, Told};
use crate::holder_scopes::HolderScope;
use crate::holder_state::State;
use crate::oracle::Oracle;
use crate::properties::{Never, Sometimes};
use crate::server::Server;
use semel_core::client::row::Write;
use semel_core::client::session::{Action, Change, TAKE_OVER};
use semel_core::client::{Answer, Answered, Receiver, Ticket};
use semel_core::rules::{self, Rule};
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A scope, and a rule that is switched off, if any.
#[derive(Debug, Clone)]
pub struct Holders {
    /// What the checker explores.
    pub scope: HolderScope,
    /// The rule that is switched off.
    pub without: Option<Rule>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A tab opens, and takes the session over.
    Opens(usize),
    /// A tab crashes.
    Crashes(usize),
    /// A tab looks at the stored rows, and at which tabs live.
    Looks(usize),
    /// The application makes a request in a tab.
    Calls(usize, &'static str),
    /// The application gives a request up.
    GivesUp(usize, String),
    /// The store makes the oldest transaction that a tab has asked for.
    Stores(usize, Arc<str>),
    /// The store fails to make it.
    StoreFails(usize, Arc<str>),
    /// A tab is woken.
    Wakes(usize),
    /// A message arrives, and its answer is lost.
    Arrives(Arc<Frame>),
    /// A frame that a tab has under way arrives, and so does its answer.
    Answers(usize, Arc<Frame>),
    /// A tab gets no answer to a frame.
    Loses(usize, Arc<Frame>),
    /// The key's process ends and starts again.
    KeyCrashes,
    /// Time passes until this instant, in s.
    Passes(i64),
}

impl Holders {
    fn now_ms(&self, state: &State) -> i64 {
        self.scope.instants_s[state.instant] * 1000
    }

    fn opens(&self, state: &mut State, at: usize) {
        state.opened[at] += 1;
        let again = if state.opened[at] > 1 { " again" } else { "" };
        let owner = format!("tab {}{again}", at + 1);
        state.holders[at] = Some(Holder::new(owner, self.scope.give_up_after_ms, self.scope.ahead));
        self.tell(state, at, Told::Wakes);
    }

    fn looks(&self, state: &mut State, at: usize) {
        let rows = state.rows.iter().map(|(id, row)| (id.clone(), row.clone())).collect();
        let alive: BTreeSet<String> = state.holders.iter().flatten().map(|holder| holder.owner.clone()).collect();
        let alive = self.scope.knows_who_lives.then_some(alive);
        if let Some(holder) = &mut state.holders[at] {
            holder.has_looked = true;
        }
        state.finds(at);
        self.tell(state, at, Told::Stored(rows, alive));
        state.may_rest(at);
    }

    fn calls(&self, state: &mut State, at: usize, id: &'static str) {
        state.called[at] += 1;
        if let Some(holder) = &mut state.holders[at] {
            state.before.insert(id.to_owned(), holder.before.clone());
            holder.before.push(id.to_owned());
            holder.callers.insert(id.to_owned());
        }
        self.tell(state, at, Told::Calls(id));
    }

    /// The store makes the oldest transaction that a tab has asked for, or fails to.
    fn stores(&self, state: &mut State, at: usize, fails: bool) {
        let Some((ticket, id, change)) = state.holders[at].as_ref().and_then(|tab| tab.machine().asked.pop_front())
        else {
            return;
        };
        if fails {
            state.failed += 1;
            return self.tell(state, at, Told::Changed(ticket, Report::Failed));
        }
        let (write, changed) = change.apply(state.rows.get(&id).map(Vec::as_slice)).expect("a row of this version");
        state.oracle.seen.extend(match (&change, &write) {
            (Change::Take { .. }, Write::Delete) => Some(Sometimes::Withdrawn),
            (Change::Leave { .. }, Write::Put(_)) => Some(Sometimes::LeftBehind),
            _ => None,
        });
        match write {
            Write::Nothing => {}
            Write::Put(row) => drop(state.rows.insert(id, row)),
            Write::Delete => drop(state.rows.remove(&id)),
        }
        self.tell(state, at, Told::Changed(ticket, Report::of(&changed)));
    }

    /// Tells a tab's machine something, and does what it asks for, except for its transactions.
    fn tell(&self, state: &mut State, at: usize, told: Told) {
        let Some(mut holder) = state.holders[at].take() else { return };
        let mut machine = holder.machine();
        let mut all_told = VecDeque::from([told]);
        while let Some(told) = all_told.pop_front() {
            for action in holder.tell(&mut machine, self.now_ms(state), told) {
                let id = |ticket: Ticket| machine.session.describe(ticket).map_or("", |(id, ..)| id).to_owned();
                all_told.extend(self.act(state, &mut holder, action, id));
            }
        }
        holder.settles(&machine);
        state.holders[at] = Some(holder);
    }

    /// Does what a machine asks for. Returns what the machine is told about it at once.
    fn act(
        &self,
        state: &mut State,
        holder: &mut Holder,
        action: Action,
        id: impl Fn(Ticket) -> String,
    ) -> Option<Told> {
        match action {
            // Each transaction is a step of its own.
            Action::Change { .. } => None,
            Action::Transmit(made) => {
                let frame = Frame::new(&made);
                state.sends(&frame);
                let frame = Arc::new(frame);
                state.frames.insert(frame.clone());
                holder.under_way.push(Attempt { number: made.attempt, frame });
                None
            }
            Action::Abort(attempt) => {
                holder.under_way.retain(|each| each.number != attempt);
                None
            }
            Action::Deliver { ticket: TAKE_OVER, answered, .. } => {
                holder.has_taken = matches!(*answered, Answered::Outcome(_));
                None
            }
            Action::Deliver { ticket, to, answered } => {
                let id = id(ticket);
                let is_told_later = matches!(&*answered, Answered::Failure(failure) if failure.code == "gave-up");
                state.tells(&id, &answered);
                if holder.callers.remove(&id) != (to == Receiver::Caller) {
                    state.oracle.broken.insert(Never::ToldTwice);
                }
                (!is_told_later).then_some(Told::Delivered(ticket))
            }
            Action::Pause { ticket: TAKE_OVER, .. } => {
                holder.is_over = true;
                None
            }
            // The request waits for the application, which never repairs anything in this model.
            Action::Pause { .. } => None,
        }
    }

    fn arrives(&self, state: &mut State, frame: &Frame) -> Answer {
        let known = state.server.tables.effects.len();
        let now_ms = self.now_ms(state);
        state.acknowledges(frame);
        let (answers, told) = frame.arrives(&mut state.server, now_ms);
        let parts = || frame.parts.iter().zip(&answers);
        parts().for_each(|(part, answer)| state.closes(part, answer));
        state.takes_effect(known);
        parts().for_each(|(part, answer)| state.answers(part, answer));
        told
    }

    fn step(&self, state: &mut State, step: Step) {
        // Only what happens in this step is noted.
        state.oracle.seen.clear();
        match step {
            Step::Opens(at) => self.opens(state, at),
            Step::Crashes(at) => state.holders[at] = None,
            Step::Looks(at) => self.looks(state, at),
            Step::Calls(at, id) => self.calls(state, at, id),
            Step::GivesUp(at, id) => {
                state.has_given_up = true;
                let ticket = state.holders[at].as_ref().and_then(|holder| holder.tickets.get(&id).copied());
                if let Some(ticket) = ticket {
                    self.tell(state, at, Told::GivesUp(ticket));
                }
            }
            Step::Stores(at, _) => self.stores(state, at, false),
            Step::StoreFails(at, _) => self.stores(state, at, true),
            Step::Wakes(at) => self.tell(state, at, Told::Wakes),
            Step::Arrives(frame) => drop(self.arrives(state, &frame)),
            Step::Answers(at, frame) => {
                let answer = self.arrives(state, &frame);
                self.hears(state, at, &frame, |number| Told::Answered(number, answer));
            }
            Step::Loses(at, frame) => self.hears(state, at, &frame, Told::Lost),
            Step::KeyCrashes => {
                let now_ms = self.now_ms(state);
                state.server.crash(now_ms);
            }
            Step::Passes(_) => state.instant += 1,
        }
    }

    fn hears(&self, state: &mut State, at: usize, frame: &Arc<Frame>, told: impl FnOnce(u64) -> Told) {
        let Some(holder) = state.holders[at].as_mut() else { return };
        let Some(heard) = holder.under_way.iter().position(|each| each.frame == *frame) else { return };
        let Attempt { number, .. } = holder.under_way.remove(heard);
        self.tell(state, at, told(number));
    }

    fn holder_actions(&self, state: &State, at: usize, holder: &Holder, steps: &mut Vec<Step>) {
        steps.push(Step::Crashes(at));
        for Attempt { frame, .. } in &holder.under_way {
            steps.push(Step::Answers(at, frame.clone()));
            steps.push(Step::Loses(at, frame.clone()));
        }
        if let Some(next) = &holder.next {
            steps.push(Step::Stores(at, next.clone()));
            let may_fail = state.failed < self.scope.failures_max;
            steps.extend(may_fail.then(|| Step::StoreFails(at, next.clone())));
        }
        if holder.has_taken && !holder.is_over {
            steps.push(Step::Looks(at));
        }
        let next = self.scope.calls[at].get(state.called[at]).filter(|_| holder.has_looked);
        steps.extend(next.map(|id| Step::Calls(at, id)));
        if self.scope.gives_up && !state.has_given_up {
            steps.extend(holder.callers.iter().map(|id| Step::GivesUp(at, id.clone())));
        }
        if holder.wakes_ms.is_some_and(|wakes_ms| wakes_ms <= self.now_ms(state)) {
            steps.push(Step::Wakes(at));
        }
    }
}

impl Model for Holders {
    type State = State;
    type Action = Step;

    /// The first tab holds the session, and the requests that come at once are made in it.
    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            instant: 0,
            opened: vec![0; self.scope.opens_max.len()],
            called: vec![0; self.scope.opens_max.len()],
            has_given_up: false,
            failed: 0,
            rows: BTreeMap::new(),
            holders: vec![None; self.scope.opens_max.len()],
            frames: BTreeSet::new(),
            server: Server::new(self.scope.config.clone()),
            knows_who_lives: self.scope.knows_who_lives,
            before: BTreeMap::new(),
            told: BTreeMap::new(),
            oracle: Oracle::default(),
        };
        rules::without(self.without, || {
            for letter in &self.scope.before {
                state.server.arrive(&letter.request, 0);
            }
            // The effects of `before` are not judged.
            state.server.tables.effects.clear();
            self.opens(&mut state, 0);
            let frame = state.frames.first().cloned().expect("a take-over");
            self.step(&mut state, Step::Answers(0, frame));
            self.step(&mut state, Step::Looks(0));
            for id in self.scope.calls[0].iter().take(self.scope.calls_at_once) {
                self.step(&mut state, Step::Calls(0, id));
            }
        });
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if !state.oracle.broken.is_empty() {
            return;
        }
        for (at, holder) in state.holders.iter().enumerate() {
            match holder {
                Some(holder) => self.holder_actions(state, at, holder, steps),
                None if state.opened[at] < self.scope.opens_max[at] => steps.push(Step::Opens(at)),
                None => {}
            }
        }
        steps.extend(state.frames.iter().cloned().map(Step::Arrives));
        steps.extend(self.scope.key_crashes.then_some(Step::KeyCrashes));
        steps.extend(self.scope.instants_s.get(state.instant + 1).map(|instant_s| Step::Passes(*instant_s)));
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        rules::without(self.without, || self.step(&mut state, step));
        Some(state)
    }

    fn format_action(&self, step: &Step) -> String {
        match step {
            Step::Opens(at) => format!("tab {} opens", at + 1),
            Step::Crashes(at) => format!("tab {} crashes", at + 1),
            Step::Looks(at) => format!("tab {} looks at what is stored", at + 1),
            Step::Calls(at, id) => format!("the application wants {id} of tab {}", at + 1),
            Step::GivesUp(at, id) => format!("the application gives {id} up in tab {}", at + 1),
            Step::Stores(at, what) => format!("tab {} {what}", at + 1),
            Step::StoreFails(at, what) => format!("the store fails as tab {} {what}", at + 1),
            Step::Wakes(at) => format!("tab {} is woken", at + 1),
            Step::Arrives(frame) => format!("{} arrives, its answer is lost", frame.name()),
            Step::Answers(at, frame) => format!("{} arrives, and its answer too, at tab {}", frame.name(), at + 1),
            Step::Loses(at, frame) => format!("tab {} gets no answer to {}", at + 1, frame.name()),
            Step::KeyCrashes => "the server crashes".to_owned(),
            Step::Passes(instant_s) => format!("time passes, until {instant_s} s"),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let never = Never::ALL.iter().map(|property| property.property());
        never.chain(self.scope.sometimes.iter().map(|property| property.property())).collect()
    }
}
