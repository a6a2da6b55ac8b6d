//! What the tabs do. Each is a host that drives the SDK's machine.
//!
//! Invariant: whatever is under way when a tab closes is lost, except what the network or the store has already taken.

use crate::letter::{Letter, Message, Sender};
use crate::mutant::Twin;
use crate::oracle::{Got, OTHER_PAYLOAD, Violation, Wish, violation};
use crate::sim::{Event, Happening, Sim};
use crate::tab::{Caller, Login, Tab, USERS};
use semel_core::client::{Action, Answered, Change, Changed, Draft, Failure, Receiver, Ticket, Transmission};
use semel_core::message::Headers;
use semel_core::problem::Executed;
use std::rc::Rc;

/// The longest that a transaction of the store takes, and the longest that its report takes, in ms.
const STORE_MS_MAX: i64 = 20;
/// The longest until an application resumes a paused request, in ms.
const RESUME_MS_MAX: i64 = 60_000;

impl Sim {
    pub fn some_tab(&mut self) -> usize {
        let open: Vec<usize> = (0..self.tabs.len()).filter(|&tab| self.tabs[tab].is_open).collect();
        open[self.rng.usize(0..open.len())]
    }

    pub fn open_tab(&mut self, browser: usize, user: usize) {
        let ahead_ms = self.rng.i64(-86_400_000..=86_400_000);
        self.tabs.push(Tab::new(self.tabs.len(), (browser, user), &self.plan, ahead_ms));
        let tab = self.tabs.len() - 1;
        self.push(self.now_ms, Event::In(tab, Happening::Network));
        self.push(self.now_ms, Event::In(tab, Happening::OwnerGone));
    }

    pub fn close_tab(&mut self, tab: usize) {
        self.tabs[tab].is_open = false;
        self.tabs[tab].callers.clear();
        if self.plan.has_locks {
            let browser = self.tabs[tab].browser;
            let others =
                (0..self.tabs.len()).filter(|&other| self.tabs[other].is_open && self.tabs[other].browser == browser);
            for other in others.collect::<Vec<_>>() {
                self.later(STORE_MS_MAX, Event::In(other, Happening::OwnerGone));
            }
        }
    }

    fn look_at_store(&mut self, tab: usize) {
        let open = self.tabs.iter().filter(|tab| tab.is_open).map(|tab| tab.owner.clone());
        let open: Vec<String> = open.collect();
        let lives = |owner: &str| open.iter().any(|each| each == owner);
        let lives: Option<&dyn Fn(&str) -> bool> = if self.plan.has_locks { Some(&lives) } else { None };
        let rows = self.browsers[self.tabs[tab].browser].store.load();
        let now_ms = self.local_ms(tab);
        self.tabs[tab].client.stored(now_ms, &rows, lives).expect("readable rows");
    }

    pub fn local_ms(&self, tab: usize) -> i64 {
        self.now_ms + self.tabs[tab].ahead_ms
    }

    pub fn happen_in(&mut self, tab: usize, happening: Happening) -> Result<(), Violation> {
        if !self.tabs[tab].is_open {
            // The application asks in another tab. Everything else is lost with this one.
            if let wish @ (Happening::Wish(_) | Happening::GiveUp(_)) = happening {
                self.push(self.now_ms, Event::In(usize::MAX, wish));
            }
            return Ok(());
        }
        let thaws_ms = self.tabs[tab].frozen_until_ms;
        if thaws_ms > self.now_ms {
            self.oracle.see("tab: frozen");
            self.push(thaws_ms, Event::In(tab, happening));
            return Ok(());
        }
        self.tabs[tab].thaw();
        let now_ms = self.local_ms(tab);
        let client = &mut self.tabs[tab].client;
        match happening {
            Happening::Wish(number) => self.wish(tab, number),
            Happening::Share(number, sharing) => self.share_in(tab, number, sharing)?,
            Happening::GiveUp(number) => {
                let is_caller = |caller: &Caller| caller.payload.is_some();
                let has_caller = self.tabs[tab].callers.get(&number).is_some_and(|all| all.iter().any(is_caller));
                let id = has_caller.then(|| self.oracle.of(number).id.clone());
                if let Some(ticket) = id.and_then(|id| self.tabs[tab].client.ticket_of(&id)) {
                    self.note(|| format!("tab-{tab}: the application gives {number} up"));
                    self.oracle.of(number).is_given_up = true;
                    self.tabs[tab].client.give_up(now_ms, ticket);
                }
            }
            Happening::Changed(ticket, changed) => client.changed(now_ms, ticket, changed),
            Happening::Answered(attempt, answer) => client.answered(now_ms, attempt, *answer),
            Happening::Lost(attempt) => client.lost(now_ms, attempt),
            Happening::HandedOver { number, to, answered } => self.hand_over(tab, (number, to), &answered)?,
            Happening::Delivered(ticket) => client.delivered(now_ms, ticket),
            Happening::Resume(ticket) => client.resume(now_ms, ticket),
            Happening::Overdue(number) => self.look_for_overdue(tab, number)?,
            Happening::OwnerGone => self.look_at_store(tab),
            Happening::Network => {
                let is_offline = self.browsers[self.tabs[tab].browser].offline_until_ms > self.now_ms;
                if is_offline != self.tabs[tab].is_offline {
                    self.oracle.see(if is_offline { "tab: offline" } else { "tab: online again" });
                    self.note(|| format!("tab-{tab}: is offline: {is_offline}"));
                    self.tabs[tab].is_offline = is_offline;
                    self.tabs[tab].client.set_offline(now_ms, is_offline);
                }
            }
            Happening::Hurry => {
                self.oracle.see("tab: looked at again");
                client.hurry(now_ms);
            }
            Happening::Jump(ms) => {
                self.tabs[tab].jump(ms);
                let now_ms = self.local_ms(tab);
                self.tabs[tab].client.wake(now_ms);
            }
            Happening::Wake => {
                client.wake(now_ms);
                self.tabs[tab].wakes_ms = None;
            }
        }
        self.drive(tab)
    }

    fn wish(&mut self, tab: usize, number: usize) {
        let id = format!("{:016x}-{number}", self.rng.u64(..));
        let account = number % self.plan.keys;
        self.note(|| format!("tab-{tab}: the application wants {number} at keys/{account}, as {id}"));
        let is_shared = self.decide_sharing(number);
        // Another tab may have stored a shared id before, so it has no place in this tab's order.
        let is_ordered = self.rng.u32(0..100) < self.plan.ordered && !is_shared;
        let Tab { browser, user, is_offline, .. } = self.tabs[tab];
        if is_offline {
            self.oracle.see("tab: asked for something offline");
        }
        self.oracle.wish(
            number,
            Wish {
                key: format!("keys/{account}"),
                id: id.clone(),
                principal: USERS[user].to_owned(),
                browser: Some(browser),
                in_order_of: is_ordered.then_some(tab),
                is_shared,
                ..Wish::default()
            },
        );
        self.call(tab, id, number, is_ordered).expect("a new id");
        self.wait_for(tab, number, (number, true));
    }

    fn hand_over(&mut self, tab: usize, (number, to): (usize, Receiver), answered: &Answered) -> Result<(), Violation> {
        let Wish { is_shared, principal: ref owner, .. } = *self.oracle.of(number);
        let principal = USERS[self.tabs[tab].user];
        let is_owner = owner == principal;
        let mut got = Got::from(answered);
        if let (true, Got::Failure(code, executed)) = (is_shared, &mut got)
            && code == "store-failed"
        {
            // For an id that the application chose, the host does not know whether another tab has it.
            *executed = Executed::Unknown;
        }
        self.note(|| format!("tab-{tab}: {to:?} of {number} gets {}", got.line()));
        let is_awaited = to == Receiver::Caller;
        let callers = if is_awaited { self.tabs[tab].callers.remove(&number).unwrap_or_default() } else { Vec::new() };
        if is_awaited && callers.is_empty() && !is_shared {
            return violation("answer", format!("{number} was answered to nobody"));
        }
        if callers.is_empty() {
            // The caller may have left.
            self.oracle.see("delivered: recovered");
            self.oracle.recovered(number, &got);
            // Another identity has no such request.
            if is_owner {
                self.oracle.check_lost(number, tab, &got)?;
            }
            self.oracle.deliver(number, got);
            return Ok(());
        }
        let has_sent_it = is_shared && !self.oracle.of(number).joined.contains(&tab);
        let is_lost = has_sent_it && matches!(got, Got::Outcome(..)) && self.is_twin(Twin::SharedAnswerLost);
        for caller in callers {
            let got = if is_lost && caller.is_first { lost() } else { got.clone() };
            self.oracle.tell(number, tab, principal, caller, got)?;
        }
        Ok(())
    }

    /// Tells the callers of a request that they need not wait any longer.
    fn release(&mut self, tab: usize, id: &str, mut failure: Failure) -> Result<(), Violation> {
        if self.is_twin(Twin::ReleasedWithNo) {
            failure.executed = Executed::No;
        }
        let number = self.oracle.number_of(id);
        self.note(|| format!("tab-{tab}: who waits for {number} is told {}", failure.code));
        let callers = self.tabs[tab].callers.remove(&number).unwrap_or_default();
        self.oracle.released(number, &callers, &failure, self.local_ms(tab))
    }

    /// Checks that no caller waits longer than it wants to. By then there is an answer, or the caller was told that
    /// there is none yet.
    fn look_for_overdue(&mut self, tab: usize, number: usize) -> Result<(), Violation> {
        let callers = self.tabs[tab].callers.get(&number).into_iter().flatten();
        let Some(until_ms) = callers.filter_map(|caller| caller.until_ms).min() else { return Ok(()) };
        let Tab { wakes_ms, frozen_until_ms, .. } = self.tabs[tab];
        if frozen_until_ms == self.now_ms || wakes_ms.is_some_and(|wakes_ms| wakes_ms <= self.now_ms) {
            // The tab has just thawed, and the event that wakes it, or hands the answer over, happens in this very
            // moment.
            self.push(self.now_ms + 1, Event::In(tab, Happening::Overdue(number)));
            return Ok(());
        }
        if until_ms < self.local_ms(tab) {
            return violation("patience", format!("tab-{tab}: who waits for {number} does so for too long"));
        }
        // The clock stood still meanwhile, or this caller came later.
        self.push(until_ms - self.tabs[tab].ahead_ms + 1, Event::In(tab, Happening::Overdue(number)));
        Ok(())
    }

    /// Does what a client asks for, until there is nothing left.
    pub fn drive(&mut self, tab: usize) -> Result<(), Violation> {
        while let Some(action) = self.tabs[tab].client.poll() {
            match action {
                Action::Change { ticket, id, change } => self.change(tab, ticket, id, change),
                Action::Remove(ids) => {
                    self.remove(self.tabs[tab].browser, &ids)?;
                    ids.iter().try_for_each(|id| self.use_once_more(tab, id))?;
                }
                Action::Transmit(_) if self.tabs[tab].is_offline => {
                    return violation("offline", format!("{} sent something without a network", self.tabs[tab].owner));
                }
                Action::Transmit(transmission) => self.transmit(tab, transmission),
                Action::Abort(_) => {}
                Action::Deliver { ticket, to, answered } => self.deliver(tab, ticket, to, answered),
                Action::GiveUp { .. } if self.is_twin(Twin::ReleasedNever) => {}
                Action::GiveUp { id, failure } => self.release(tab, &id, failure)?,
                Action::Pause { ticket, failure } => {
                    self.oracle.see("tab: paused");
                    let number = self.number_of(tab, ticket);
                    self.note(|| format!("tab-{tab}: {number} pauses, {}", failure.code));
                    self.oracle.paused(number, failure.executed)?;
                    let Wish { is_disputed, is_lost, .. } = *self.oracle.of(number);
                    if failure.code == "fingerprint-mismatch" && is_disputed && is_lost {
                        // The store was lost between the call and its row, and with it the row that would have refused
                        // another payload.
                        self.oracle.see("id: another payload is refused by the key, and given up");
                        self.push(self.now_ms, Event::In(tab, Happening::GiveUp(number)));
                        continue;
                    }
                    if !matches!(failure.code.as_str(), "unauthorized" | "forbidden") {
                        return violation("answer", format!("{number} paused: {failure:?}"));
                    }
                    self.later(RESUME_MS_MAX, Event::In(tab, Happening::Resume(ticket)));
                }
            }
        }
        let Some(wakes_ms) = self.tabs[tab].client.wakes_at() else { return Ok(()) };
        let wakes_ms = wakes_ms.saturating_sub(self.tabs[tab].ahead_ms).max(self.now_ms);
        if self.tabs[tab].wakes_ms.is_none_or(|before_ms| wakes_ms < before_ms) {
            self.tabs[tab].wakes_ms = Some(wakes_ms);
            self.push(wakes_ms, Event::In(tab, Happening::Wake));
        }
        Ok(())
    }

    fn number_of(&self, tab: usize, ticket: Ticket) -> usize {
        let id = self.tabs[tab].client.describe(ticket).map(|(id, ..)| id.to_owned()).unwrap_or_default();
        self.oracle.number_of(&id)
    }

    fn change(&mut self, tab: usize, ticket: Ticket, id: String, change: Change) {
        if self.is_twin(Twin::SendBeforePersisting)
            && let Change::Add(entry) = &change
        {
            let changed = Some(Changed::Pending(entry.clone()));
            self.push(self.now_ms, Event::In(tab, Happening::Changed(ticket, changed)));
            // The report was already made, so this one has the ticket 0.
            return self.later(1_000, Event::Transaction { tab, ticket: 0, id, change: Box::new(change) });
        }
        // The store makes changes in the order in which they were asked for, like IndexedDB.
        let done_ms = self.tabs[tab].stored_ms.max(self.now_ms + self.rng.i64(0..=STORE_MS_MAX));
        self.tabs[tab].stored_ms = done_ms;
        self.push(done_ms, Event::Transaction { tab, ticket, id, change: Box::new(change) });
    }

    pub fn transact(&mut self, tab: usize, ticket: Ticket, id: &str, change: &Change) {
        // The change of a tab that closed meanwhile may have reached the store or not.
        let is_lost = !self.tabs[tab].is_open && (self.is_twin(Twin::SendBeforePersisting) || self.rng.bool());
        if is_lost {
            return;
        }
        if self.happens_often(self.plan.fail_store) {
            self.note(|| format!("tab-{tab}: the store fails to change {id}"));
            return self.later(STORE_MS_MAX, Event::In(tab, Happening::Changed(ticket, None)));
        }
        let had_row = self.browsers[self.tabs[tab].browser].store.has(id);
        let joins = matches!(change, Change::Join { .. });
        let is_forgotten = joins && self.is_twin(Twin::JoinForgotten);
        let asked = if is_forgotten { &Change::Look } else { change };
        let Tab { browser, client, .. } = &self.tabs[tab];
        let changed = self.browsers[*browser].store.change(client.maker_of(ticket), id, asked);
        self.note(|| format!("tab-{tab}: {}", changed_line(id, change, &changed)));
        match (change, &changed) {
            (Change::Settle { .. }, Changed::Settled(settled)) if settled.kept.is_some() => {
                self.oracle.see("row: kept")
            }
            (Change::Adopt { by, .. }, Changed::Pending(entry)) => {
                self.oracle.see("row: adopted");
                if entry.owner == *by && self.tabs[tab].callers.contains_key(&self.oracle.number_of(id)) {
                    self.oracle.see("id: its owner is gone, and who waited sees to it");
                }
            }
            (Change::Join { outbox }, Changed::Pending(entry)) if entry.outbox == *outbox => {
                self.oracle.see("id: joined across tabs");
                self.oracle.joined(self.oracle.number_of(id), tab);
            }
            (Change::Join { outbox }, Changed::Settled(settled))
                if settled.outbox == *outbox && settled.kept.is_some() =>
            {
                self.oracle.see("id: a kept answer is there for who waits");
            }
            (Change::Join { .. }, Changed::Gone) => {
                self.oracle.looked_in_vain(self.oracle.number_of(id), tab);
            }
            (Change::Withdraw, Changed::Withdrawn) => {
                self.oracle.see("row: taken back");
                let number = self.oracle.number_of(id);
                // The caller is told so, if its tab still exists.
                self.oracle.of(number).is_stored = false;
            }
            (Change::Raise { .. } | Change::Look, Changed::Settled(settled)) if settled.kept.is_some() => {
                self.oracle.see("row: taken from another tab");
            }
            _ => {}
        }
        if matches!(change, Change::Add(_)) {
            let number = self.oracle.number_of(id);
            self.oracle.of(number).is_stored = true;
            if !had_row {
                self.oracle.stored_anew(number);
            }
        }
        self.later(STORE_MS_MAX, Event::In(tab, Happening::Changed(ticket, Some(changed))));
    }

    /// Removes rows that are done from the store of a browser.
    pub fn remove(&mut self, browser: usize, ids: &[String]) -> Result<(), Violation> {
        let store = &mut self.browsers[browser].store;
        let kept = store.keeping();
        store.remove(ids);
        for id in kept.iter().filter(|id| ids.contains(id)) {
            self.note(|| format!("browser {browser}: the answer to {id} is kept no longer"));
            self.oracle.dropped(self.oracle.number_of(id), self.now_ms)?;
        }
        Ok(())
    }

    fn deliver(&mut self, tab: usize, ticket: Ticket, to: Receiver, answered: Rc<Answered>) {
        let number = self.number_of(tab, ticket);
        self.oracle.of(number).is_answered = true;
        let handed_over = Happening::HandedOver { number, to, answered };
        if self.is_twin(Twin::ForgetBeforeDelivery) {
            self.push(self.now_ms, Event::In(tab, Happening::Delivered(ticket)));
            return self.later(1_000, Event::In(tab, handed_over));
        }
        self.push(self.now_ms, Event::In(tab, handed_over));
        self.later(STORE_MS_MAX, Event::In(tab, Happening::Delivered(ticket)));
    }

    fn transmit(&mut self, tab: usize, transmission: Transmission) {
        let Transmission { attempt, request, headers: own } = transmission;
        let Draft { method, target, headers, body, .. } = (*request).clone();
        let mut headers: Headers = headers.iter().chain(own.iter()).collect();
        let credentials = match self.browsers[self.tabs[tab].browser].login {
            Login::Own => format!("Bearer {}", USERS[self.tabs[tab].user]),
            Login::As(user) => format!("Bearer {}", USERS[user]),
            Login::Out => "None".to_owned(),
        };
        headers.append("authorization", credentials);
        if self.is_twin(Twin::NewIdPerAttempt) {
            self.renew_id(tab, &mut headers);
        }
        if self.is_twin(Twin::FirstSentPerAttempt) {
            self.renew_first_sent(tab, &mut headers);
        }
        let message = Message { method, target, headers, body, is_too_large: false };
        if let (true, Some(deadline_ms)) = (message.is_deposit(), message.deadline_ms()) {
            let payload: usize = message.text().parse().expect("a number");
            if deadline_ms == 0 && self.plan.is_elsewhere(payload) {
                self.oracle.see("tab: the key of what is given up is asked for, which its path does not tell");
            }
            self.oracle.sent(payload % OTHER_PAYLOAD, deadline_ms);
        }
        self.post(Letter { from: Sender::Tab { tab, attempt }, message });
    }

    fn renew_id(&mut self, tab: usize, headers: &mut Headers) {
        let Some(id) = headers.get("idempotency-key").map(|id| id.replace('"', "")) else { return };
        let count = self.tabs[tab].sent.entry(id.clone()).or_default();
        *count += 1;
        if *count > 1 {
            let renewed = format!("\"{id}-{count}\"");
            headers.retain(|name| name != "idempotency-key");
            headers.append("idempotency-key", renewed);
        }
    }

    fn renew_first_sent(&mut self, tab: usize, headers: &mut Headers) {
        let id = headers.get("idempotency-key").map(str::to_owned);
        let first_sent_s = headers.get("semel-first-sent").and_then(|date| date.strip_prefix('@')?.parse::<i64>().ok());
        let (Some(id), Some(first_sent_s)) = (id, first_sent_s) else { return };
        let count = self.tabs[tab].sent.entry(id).or_default();
        let renewed = format!("@{}", first_sent_s + i64::from(*count));
        *count += 1;
        headers.retain(|name| name != "semel-first-sent");
        headers.append("semel-first-sent", renewed);
    }
}

fn lost() -> Got {
    Got::Failure("outcome-lost".to_owned(), Executed::Unknown)
}

fn changed_line(id: &str, change: &Change, changed: &Changed) -> String {
    let change = match change {
        Change::Add(_) => "adds",
        Change::Raise { .. } => "raises",
        Change::Look => "looks at",
        Change::Join { .. } => "waits for",
        Change::Adopt { .. } => "adopts",
        Change::Withdraw => "takes back",
        Change::Settle { .. } => "settles",
        Change::Acknowledged => "is done with",
    };
    let changed = match changed {
        Changed::Pending(entry) => format!("pending, until {:?}", entry.until_ms),
        Changed::Settled(settled) => format!("settled, until {}", settled.until_ms),
        Changed::Gone => "gone".to_owned(),
        Changed::Withdrawn => "taken back".to_owned(),
    };
    format!("{change} the row of {id}: {changed}")
}
