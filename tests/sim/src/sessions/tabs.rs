//! What the tabs do. Each is a host that drives the machine of its session, as `session.js` does.
//!
//! Invariant: whatever is under way when a tab closes is lost, except what the network or the store has already taken.

use super::asked::Dealt;
use super::frame;
use super::holder::{Holder, Which};
use super::run::{Event, Happening, REOPENS_MS, Run, Sender};
use crate::letter::Message;
use crate::mutant::Twin;
use crate::oracle::{Got, Violation, violation};
use semel_core::client::session::{Action, Change, TAKE_OVER};
use semel_core::client::{Answer, Answered, Draft, Receiver, Ticket};
use semel_core::message::Headers;
use semel_core::problem::Executed;
use semel_support::Reply;

/// The longest that a transaction of the store takes, and the longest that its report takes, in ms.
const STORE_MS_MAX: i64 = 20;
/// How often a holder looks for rows that others have left, in ms.
const LOOK_MS: i64 = 5_000;
/// How long an application waits for a session, in ms.
const WAITS_MS: i64 = 60_000;
/// Codes of refusals that may come again and again although the request did not run. The last is a gateway's.
const TOLD_OF: [&str; 4] = ["rolled-back", "sequence-gap", "capacity", "overloaded"];

impl Run {
    pub(super) fn some_tab(&mut self) -> Option<usize> {
        let open: Vec<usize> = (0..self.tabs.len()).filter(|&tab| self.tabs[tab].is_open).collect();
        if open.is_empty() { None } else { Some(open[self.rng.usize(0..open.len())]) }
    }

    /// Opens a tab, which takes the session over. `expects`: whether it names the epoch that it expects to be current.
    pub(super) fn open(&mut self, which: Which, expects: bool) {
        let seen = self.server.seen(&which.key()).and_then(|seen| seen.sessions.get(&which.name));
        let after = expects.then(|| seen.map_or(0, |row| row.current()));
        let (n, is_framed) = (self.tabs.len(), self.rng.u32(0..4) == 0);
        self.note(|| format!("holder-{n} opens {which:?}, after {after:?}"));
        let holder = Holder::new(n, which, &self.plan, after, is_framed);
        self.tabs.push(Holder { opened_ms: self.now_ms, ..holder });
        self.push(self.now_ms, Event::In(n, Happening::Wake));
    }

    pub(super) fn close(&mut self, tab: usize) {
        self.tabs[tab].is_open = false;
        self.tabs[tab].callers.clear();
        if self.plan.has_locks {
            let browser = self.tabs[tab].which.browser;
            for other in 0..self.tabs.len() {
                if self.tabs[other].is_open && self.tabs[other].which.browser == browser {
                    self.later(STORE_MS_MAX, Event::In(other, Happening::Look));
                }
            }
        }
    }

    /// Finds a tab with a session for a wish of the application.
    pub(super) fn find_tab(&mut self, number: usize) {
        let holds = |tab: &&Holder| tab.is_open && tab.has_taken;
        let held: Vec<usize> = self.tabs.iter().enumerate().filter(|(_, tab)| holds(tab)).map(|(tab, _)| tab).collect();
        match held.len() {
            0 if self.is_calm => {}
            0 => self.push(self.now_ms + 1_000, Event::Wish(number)),
            // Wishes with neighbouring numbers go to the same session, so that they leave together.
            all => {
                let tab = held[number / 4 % all];
                self.push(self.now_ms, Event::In(tab, Happening::Wish(number)));
                if self.rng.u32(0..100) < self.plan.give_up {
                    let later_ms = self.rng.i64(0..=2_000);
                    self.push(self.now_ms + later_ms, Event::In(tab, Happening::GiveUp(number)));
                }
            }
        }
    }

    pub(super) fn happen_in(&mut self, tab: usize, happening: Happening) -> Result<(), Violation> {
        if !self.tabs[tab].is_open {
            if let Happening::Wish(number) = happening {
                self.push(self.now_ms, Event::Wish(number));
            }
            return Ok(());
        }
        let thaws_ms = self.tabs[tab].frozen_until_ms;
        if thaws_ms > self.now_ms {
            self.oracle.see("session: a holder is frozen");
            self.push(thaws_ms, Event::In(tab, happening));
            return Ok(());
        }
        if self.is_without_room(tab) {
            self.oracle.see("session: a key has no room for it");
            self.close(tab);
            return Ok(());
        }
        let now_ms = self.now_ms;
        let holder = &mut self.tabs[tab];
        match happening {
            Happening::Wish(number) => self.wish(tab, number),
            Happening::GiveUp(number) => {
                if let Some(ticket) = holder.tickets.get(&number) {
                    holder.machine.give_up(now_ms, *ticket);
                    self.oracle.given_up(number);
                    self.note(|| format!("holder-{tab}: the application gives {number} up"));
                }
            }
            Happening::Changed(ticket, changed) => holder.machine.changed(now_ms, ticket, changed),
            Happening::Answered(attempt, answer) => holder.machine.answered(now_ms, attempt, *answer),
            Happening::Lost(attempt) => holder.machine.lost(now_ms, attempt),
            Happening::Delivered(ticket) => holder.machine.delivered(now_ms, ticket),
            Happening::Look => self.look(tab),
            Happening::Resume => holder.machine.resume(now_ms),
            Happening::Wake => {
                holder.wakes_ms = None;
                holder.machine.wake(now_ms);
            }
        }
        self.drive(tab)
    }

    /// Whether the application gives up waiting for a session, because its key has as many sessions as it may.
    fn is_without_room(&self, tab: usize) -> bool {
        let Holder { has_taken, which, opened_ms, .. } = &self.tabs[tab];
        let seen = self.server.seen(&which.key());
        let is_full = seen.is_some_and(|seen| seen.count as u64 >= self.plan.sessions.sessions_max);
        self.is_calm && !has_taken && is_full && self.now_ms > self.calm_ms.max(*opened_ms) + WAITS_MS
    }

    fn wish(&mut self, tab: usize, number: usize) {
        let holder = &mut self.tabs[tab];
        let id = format!("n{number}");
        let draft = Draft {
            method: "POST".to_owned(),
            target: format!("/keys/{}/deposits", holder.which.account),
            key: None,
            headers: Headers::from_iter([("content-type", "text/plain")]),
            body: number.to_string().into_bytes(),
        };
        holder.callers.insert(id.clone(), number);
        // The caller need not wait any longer than this.
        let patience_ms = self.plan.patience_ms(number);
        holder.machine.give_up_after(patience_ms);
        let ticket = holder.machine.request(self.now_ms, id, draft);
        holder.tickets.insert(number, ticket);
        holder.asked.push(number);
        let (key, name) = (holder.which.key(), holder.which.name.clone());
        self.oracle.wish(number, &holder.which, tab, patience_ms.is_some());
        self.note(|| format!("holder-{tab}: the application wants {number} of {name} at {key}"));
    }

    fn look(&mut self, tab: usize) {
        if !self.tabs[tab].has_taken {
            return;
        }
        let open: Vec<String> = self.tabs.iter().filter(|tab| tab.is_open).map(|tab| tab.owner.clone()).collect();
        let lives = |owner: &str| open.iter().any(|each| each == owner);
        let lives: Option<&dyn Fn(&str) -> bool> = if self.plan.has_locks { Some(&lives) } else { None };
        let holder = &mut self.tabs[tab];
        let rows = self.rows[holder.which.browser].load();
        holder.machine.stored(self.now_ms, &rows, lives).expect("readable rows");
    }

    /// Does what the machine asks for, until there is nothing left.
    fn drive(&mut self, tab: usize) -> Result<(), Violation> {
        while let Some(action) = self.tabs[tab].machine.poll() {
            match action {
                Action::Change { ticket, id, change } => {
                    // The store makes changes in the order in which they were asked for.
                    let done_ms = self.tabs[tab].stored_ms.max(self.now_ms + self.rng.i64(0..=STORE_MS_MAX));
                    self.tabs[tab].stored_ms = done_ms;
                    self.push(done_ms, Event::Transaction { tab, ticket, id, change });
                }
                Action::Transmit(made) => {
                    let user = crate::tab::USERS[self.tabs[tab].which.user];
                    let (message, paths) = frame::message(&made, &format!("Bearer {user}"));
                    if paths.as_ref().is_some_and(|paths| paths.len() > 1) {
                        self.oracle.see("session: requests go together");
                    }
                    self.tabs[tab].paths.insert(made.attempt, paths);
                    self.sent.push(message.clone());
                    self.post(Sender::Tab(tab, made.attempt), message);
                }
                Action::Abort(_) => {}
                Action::Deliver { ticket: TAKE_OVER, answered, .. } => self.taken_over(tab, &answered),
                Action::Deliver { ticket, to, answered } => self.deliver(tab, ticket, to, &answered)?,
                Action::Pause { ticket: TAKE_OVER, failure } => {
                    self.note(|| format!("holder-{tab}: is over, {failure:?}"));
                    self.tabs[tab].is_over = true;
                    // The holder may have had requests that were made before.
                    self.push(self.now_ms + REOPENS_MS, Event::Reopen);
                }
                Action::Pause { ticket, failure } => {
                    let number = self.number_of(tab, ticket);
                    self.note(|| format!("holder-{tab}: pauses at {number:?}, {failure:?}"));
                    let which = self.tabs[tab].which.clone();
                    if failure.code == "sequence-gap" && self.oracle.was_put_back(&which.key()) {
                        // This holder has numbers that its key does not know any more. The next one goes on.
                        self.close(tab);
                        self.open(which, false);
                        return Ok(());
                    }
                    // The application is told, and the request is still sent.
                    if TOLD_OF.contains(&failure.code.as_str()) {
                        continue;
                    }
                    return violation("answer", format!("{number:?} pauses: {failure:?}"));
                }
            }
        }
        let wakes_ms = self.tabs[tab].machine.wakes_at().map(|wakes_ms| wakes_ms.max(self.now_ms));
        if let Some(wakes_ms) = wakes_ms
            && self.tabs[tab].wakes_ms.is_none_or(|before_ms| wakes_ms < before_ms)
        {
            self.tabs[tab].wakes_ms = Some(wakes_ms);
            self.push(wakes_ms, Event::In(tab, Happening::Wake));
        }
        Ok(())
    }

    fn taken_over(&mut self, tab: usize, answered: &Answered) {
        match answered {
            Answered::Outcome(_) => {
                self.tabs[tab].has_taken = true;
                self.push(self.now_ms, Event::In(tab, Happening::Look));
            }
            Answered::Failure(failure) => {
                self.oracle.see(format!("session: a take-over is {}", failure.code));
                self.note(|| format!("holder-{tab}: its take-over is {}", failure.code));
                self.tabs[tab].is_refused = true;
                // Another holder has the session, or nobody may.
                self.close(tab);
            }
        }
    }

    fn number_of(&self, tab: usize, ticket: Ticket) -> Option<usize> {
        let (id, ..) = self.tabs[tab].machine.describe(ticket)?;
        id.trim_start_matches('n').parse().ok()
    }

    fn deliver(&mut self, tab: usize, ticket: Ticket, to: Receiver, answered: &Answered) -> Result<(), Violation> {
        let Some(number) = self.number_of(tab, ticket) else {
            return violation("answer", format!("holder-{tab} answers what it does not have in hand"));
        };
        let (which, opened_ms) = (self.tabs[tab].which.clone(), self.tabs[tab].opened_ms);
        let is_behind = self.oracle.is_behind(&which.key(), opened_ms);
        let is_next = self.oracle.was_put_back(&which.key()) && !is_behind;
        let is_wrong = is_next && self.server.is_twin(Twin::GapOfNextHolder);
        let got = if is_wrong && self.oracle.is_any_given_up(&which.key()) {
            Got::Failure("sequence-gap".to_owned(), Executed::Unknown)
        } else {
            Got::from(answered)
        };
        self.note(|| format!("holder-{tab}: {to:?} of {number} gets {}", got.line()));
        let is_caller = self.tabs[tab].callers.remove(&format!("n{number}")).is_some();
        if is_caller != (to == Receiver::Caller) {
            return violation("answer", format!("{number} was answered to {to:?}"));
        }
        self.oracle.told(number, (&which, is_behind), got)?;
        self.later(STORE_MS_MAX, Event::In(tab, Happening::Delivered(ticket)));
        Ok(())
    }

    pub(super) fn transact(&mut self, tab: usize, ticket: Ticket, id: &str, change: &Change) {
        // The change of a tab that closed meanwhile may have reached the store or not.
        if !self.tabs[tab].is_open && self.rng.bool() {
            return;
        }
        if self.happens_often(self.plan.fail_store) {
            self.note(|| format!("holder-{tab}: the store fails to change {id}"));
            return self.later(STORE_MS_MAX, Event::In(tab, Happening::Changed(ticket, None)));
        }
        let browser = self.tabs[tab].which.browser;
        let changed = self.rows[browser].change(id, change);
        self.note(|| format!("holder-{tab}: {change:?} of {id}").chars().take(90).collect());
        match change {
            Change::Adopt { .. } => self.oracle.see("session: a row is adopted"),
            Change::Number { .. } => self.oracle.see("session: a row gets another place"),
            Change::Take { .. } => self.oracle.see("session: a row is taken back"),
            Change::Keep { .. } => self.oracle.see("session: an answer is kept"),
            Change::Cancel { .. } => self.oracle.see("session: that a row is given up is stored"),
            Change::Leave { .. } => {
                self.oracle.see("session: a row is left to who holds the session");
                if self.is_calm {
                    // That holder may be refused by then, so the application looks once more.
                    self.push(self.now_ms + REOPENS_MS, Event::Reopen);
                }
                // Each holder looks at the rows again and again.
                let browser = self.tabs[tab].which.browser;
                for other in (0..self.tabs.len()).filter(|other| *other != tab) {
                    if self.tabs[other].is_open && self.tabs[other].which.browser == browser {
                        self.later(LOOK_MS, Event::In(other, Happening::Look));
                    }
                }
            }
            Change::Add(_) => self.oracle.stored(id),
            Change::Remove => {}
        }
        self.later(STORE_MS_MAX, Event::In(tab, Happening::Changed(ticket, Some(changed))));
    }

    /// The answer to a tab's attempt. `is_cut`: the last answer of a batch is missing, or a gateway made something up.
    pub(super) fn answer_to(
        &mut self,
        tab: usize,
        attempt: u64,
        message: &Message,
        dealt: &Result<Dealt, Reply>,
        is_cut: bool,
    ) -> Answer {
        let paths = self.tabs[tab].paths.get(&attempt).cloned().flatten();
        match (dealt, paths) {
            (Ok(Dealt { replies, refusal: None, .. }), Some(paths)) if !replies.is_empty() => {
                if is_cut {
                    self.oracle.see("session: an answer is cut");
                }
                frame::answers(&paths, replies, is_cut)
            }
            _ if is_cut => crate::tab::made_up(self.rng.bool()),
            (Ok(Dealt { refusal: Some(reply), .. }) | Err(reply), _) => frame::answer(&message.target, reply),
            (Ok(dealt), _) => match dealt.replies.first() {
                Some(reply) => frame::answer(&message.target, reply),
                None => Answer::default(),
            },
        }
    }
}
