//! What happens to an id that the application chose, besides the call that made it: other calls use it at about the
//! same time, somebody asks for its answer, and stops waiting.
//!
//! Invariants:
//! - The decisions come from another stream of random numbers, so a run without them is as if this module did not
//!   exist.
//! - An id is not used again by a caller who could know that it has its answer, or that it went with its store, since
//!   nothing is promised then. In rare cases a caller who could not know uses it after its row is gone.

use crate::mutant::Twin;
use crate::oracle::{OTHER_PAYLOAD, Violation, Wish, violation};
use crate::sim::{Event, Happening, Sim};
use crate::tab::{Caller, Tab, USERS};
use semel_core::client::{Draft, Ticket};
use semel_core::message::Headers;

/// How far apart the calls with one id are at most, in ms.
const CALLS_MS_MAX: i64 = 200;

/// One in so many acknowledged ids is used once more.
const USED_ONCE_MORE_OF: usize = 8;

/// If so many tabs of an identity are open in a browser, no more are opened beside them.
const TABS_MAX: usize = 4;

/// What happens to the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The same request is made again.
    Again,
    /// Another request is made under the id.
    OtherPayload,
    /// Its answer is asked for, perhaps by another user.
    Ask,
    /// A caller who asked for the answer leaves.
    Leave,
    /// Another tab is opened in the same browser.
    Beside,
    /// The tab that made it dies, if there is another.
    Crash,
}

impl Sim {
    /// Decides whether the application chooses the id of a new request, and what happens to such an id.
    pub fn decide_sharing(&mut self, number: usize) -> bool {
        if self.sharing.u32(0..100) >= self.plan.share {
            return false;
        }
        if self.sharing.bool() {
            self.push(self.now_ms, Event::Share(number, Sharing::Beside));
        }
        for _ in 0..self.sharing.u32(1..=4) {
            let all =
                [Sharing::Again, Sharing::Again, Sharing::OtherPayload, Sharing::Ask, Sharing::Ask, Sharing::Leave];
            let sharing = all[self.sharing.usize(0..all.len())];
            let later_ms_max = match sharing {
                Sharing::Again | Sharing::OtherPayload => CALLS_MS_MAX,
                Sharing::Ask if self.sharing.bool() => CALLS_MS_MAX,
                _ => self.plan.busy_ms,
            };
            let later_ms = self.sharing.i64(0..=later_ms_max);
            self.push(self.now_ms + later_ms, Event::Share(number, sharing));
        }
        if self.sharing.u32(0..3) == 0 {
            let later_ms = self.sharing.i64(CALLS_MS_MAX..=self.plan.busy_ms);
            self.push(self.now_ms + later_ms, Event::Share(number, Sharing::Crash));
        }
        true
    }

    /// Chooses a tab of the browser, with the same identity if a request is made.
    pub fn share(&mut self, number: usize, sharing: Sharing) {
        let Wish { browser, principal, .. } = self.oracle.of(number).clone();
        let may = |tab: usize| {
            let tab = &self.tabs[tab];
            tab.is_open
                && Some(tab.browser) == browser
                && (sharing == Sharing::Ask || USERS[tab.user] == principal)
                && (sharing != Sharing::Leave || tab.callers.contains_key(&number))
        };
        let tabs: Vec<usize> = (0..self.tabs.len()).filter(|&tab| may(tab)).collect();
        let Some(&first) = tabs.first() else { return };
        match sharing {
            Sharing::Beside if tabs.len() < TABS_MAX => self.open_tab(self.tabs[first].browser, self.tabs[first].user),
            Sharing::Crash if !self.is_calm => {
                let made_it = |tab: &&usize| {
                    let callers = self.tabs[**tab].callers.get(&number);
                    callers.is_some_and(|callers| callers.iter().any(|caller| caller.is_first))
                };
                if let Some(&maker) = tabs.iter().find(made_it).filter(|_| tabs.len() > 1) {
                    self.note(|| format!("tab-{maker}: dies"));
                    self.close_tab(maker);
                }
            }
            // There are enough tabs, or the time of faults is over.
            Sharing::Beside | Sharing::Crash => {}
            _ => {
                let tab = tabs[self.sharing.usize(0..tabs.len())];
                self.push(self.now_ms, Event::In(tab, Happening::Share(number, sharing)));
            }
        }
    }

    pub fn share_in(&mut self, tab: usize, number: usize, sharing: Sharing) -> Result<(), Violation> {
        self.note(|| format!("tab-{tab}: {sharing:?} of {number}"));
        match sharing {
            Sharing::Again => self.call_again(tab, number, number),
            Sharing::OtherPayload => self.call_again(tab, number, number + OTHER_PAYLOAD),
            Sharing::Ask => {
                let id = self.oracle.of(number).id.clone();
                self.tabs[tab].client.watch(id);
                self.wait(tab, number, Caller { payload: None, is_first: false, until_ms: None });
                Ok(())
            }
            Sharing::Leave => {
                self.leave(tab, number);
                Ok(())
            }
            // These happen to a tab, not in it.
            Sharing::Beside | Sharing::Crash => Ok(()),
        }
    }

    /// An acknowledged id has left the store. In rare cases a tab that was not told of its answer uses it once more.
    /// What the key was asked for before is not covered by any promise then.
    pub fn use_once_more(&mut self, tab: usize, id: &str) -> Result<(), Violation> {
        let number = self.oracle.number_of(id);
        let Wish { is_shared, is_lost, rows, principal, browser, .. } = self.oracle.of(number).clone();
        if !is_shared || is_lost || rows > 1 || number % USED_ONCE_MORE_OF != USED_ONCE_MORE_OF - 1 {
            return Ok(());
        }
        let may = |other: &usize| {
            let Tab { is_open, browser: of, user, .. } = &self.tabs[*other];
            *other != tab && *is_open && Some(*of) == browser && USERS[*user] == principal
        };
        let Some(other) = (0..self.tabs.len()).find(may) else { return Ok(()) };
        self.note(|| format!("tab-{other}: uses {number} once more"));
        if self.call(other, id.to_owned(), number, false).is_some() {
            self.wait_for(other, number, (number, false));
        }
        self.drive(other)
    }

    fn call_again(&mut self, tab: usize, number: usize, payload: usize) -> Result<(), Violation> {
        let wish = self.oracle.of(number);
        if wish.is_answered || wish.is_lost {
            return Ok(());
        }
        let is_other = payload != number;
        wish.is_disputed |= is_other;
        let (id, is_disputed) = (wish.id.clone(), wish.is_disputed);
        let is_in_hand = self.tabs[tab].client.ticket_of(&id).is_some();
        let ticket = self.call(tab, id, payload, false);
        match ticket {
            Some(_) => {
                if is_in_hand && !is_other {
                    self.oracle.see("id: joined in one tab");
                }
                self.wait_for(tab, number, (payload, false));
            }
            None if is_disputed => self.oracle.see("id: another payload is refused in one tab"),
            None => return violation("answer", format!("{number} was refused, called again")),
        }
        Ok(())
    }

    /// The application makes a request.
    pub fn call(&mut self, tab: usize, id: String, payload: usize, is_ordered: bool) -> Option<Ticket> {
        let now_ms = self.local_ms(tab);
        let is_twin = self.is_twin(Twin::OtherPayloadJoined);
        let account = payload % OTHER_PAYLOAD % self.plan.keys;
        let client = &mut self.tabs[tab].client;
        if is_twin && client.ticket_of(&id).is_some() {
            return Some(client.watch(id));
        }
        let (method, path) = if self.plan.is_elsewhere(payload) { ("PUT", account ^ 1) } else { ("POST", account) };
        let draft = Draft {
            method: method.to_owned(),
            target: format!("/keys/{path}/deposits"),
            key: None,
            headers: Headers::from_iter([("content-type", "text/plain")]),
            body: payload.to_string().into_bytes(),
        };
        client.request(now_ms, id, draft, is_ordered)
    }

    pub fn wait(&mut self, tab: usize, number: usize, caller: Caller) {
        self.tabs[tab].callers.entry(number).or_default().push(caller);
    }

    /// Lets a caller wait, for no longer than the tab says.
    pub fn wait_for(&mut self, tab: usize, number: usize, (payload, is_first): (usize, bool)) {
        let times = if self.is_twin(Twin::ReleasedEarly) { 2 } else { 1 };
        let until_ms = self.tabs[tab].gives_up_after_ms.map(|after_ms| self.local_ms(tab) + after_ms * times);
        self.wait(tab, number, Caller { payload: Some(payload), is_first, until_ms });
        if let Some(until_ms) = until_ms {
            self.push(until_ms - self.tabs[tab].ahead_ms + 1, Event::In(tab, Happening::Overdue(number)));
        }
    }

    /// Only a caller who asked for the answer may leave. The one who made the request gives it up instead.
    fn leave(&mut self, tab: usize, number: usize) {
        let id = self.oracle.of(number).id.clone();
        let Some(callers) = self.tabs[tab].callers.get_mut(&number) else { return };
        let Some(at) = callers.iter().position(|caller| caller.payload.is_none()) else { return };
        callers.remove(at);
        self.oracle.see("id: who asked left");
        if callers.is_empty() {
            self.tabs[tab].callers.remove(&number);
            if let Some(ticket) = self.tabs[tab].client.ticket_of(&id) {
                self.tabs[tab].client.leave(ticket);
            }
        }
    }
}
