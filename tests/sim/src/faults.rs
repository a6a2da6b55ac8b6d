//! Faults that happen at an instant, and how the faults end.
//!
//! Invariant: after [`Sim::calm`] nothing goes wrong any more, and no clock is behind where it, or another clock, has
//! been.

use crate::mutant::Twin;
use crate::oracle::Violation;
use crate::sim::{Event, Happening, Sim};
use crate::tab::Login;
use crate::wire::Cut;
use semel_core::client::KEPT_S_MAX;

impl Sim {
    pub fn fault(&mut self, fault: &Event) -> Result<(), Violation> {
        let tab = self.some_tab();
        let browser = self.tabs[tab].browser;
        self.note(|| format!("tab-{tab} of browser {browser}: {fault:?}"));
        match fault {
            Event::Reload => {
                let user = self.tabs[tab].user;
                self.close_tab(tab);
                self.open_tab(browser, user);
            }
            Event::Freeze => {
                // Events in a tab that is already frozen wait until then.
                let until_ms = self.now_ms + self.rng.i64(0..=self.plan.freeze_ms_max);
                self.tabs[tab].frozen_until_ms = self.tabs[tab].frozen_until_ms.max(until_ms);
                self.tabs[tab].sleeps_since_ms = self.rng.bool().then_some(self.now_ms);
            }
            Event::OpenOne => self.open_tab(browser, self.tabs[tab].user),
            Event::LoseStorage => {
                self.browsers[browser].store.clear();
                self.oracle.lose(browser);
            }
            Event::Login => {
                let user = self.rng.usize(0..2);
                let is_out = self.rng.u32(0..4) == 0;
                self.browsers[browser].login = if is_out { Login::Out } else { Login::As(user) };
                self.open_tab(browser, user);
            }
            Event::Partition => self.cut_off(),
            Event::Offline => {
                let until_ms = self.now_ms + self.rng.i64(0..=self.plan.busy_ms);
                self.browsers[browser].cut = Cut { until_ms, is_of_answers: false };
                self.browsers[browser].offline_until_ms = until_ms;
                self.tell_of_network(browser);
                self.push(until_ms, Event::Online(browser));
            }
            Event::Hurry => self.push(self.now_ms, Event::In(tab, Happening::Hurry)),
            Event::CrashCurl => self.crash_curl(),
            Event::Jump => self.jump()?,
            Event::Restart => {
                let key = format!("keys/{}", self.rng.usize(0..self.plan.keys));
                let jump_ms = self.rng.i64(-self.plan.jump_ms_max..=self.plan.jump_ms_max);
                let retention_s = self.plan.retentions_s[self.rng.usize(0..2)];
                self.note(|| format!("{key}: restarts, its clock jumps by {jump_ms} ms, retention {retention_s} s"));
                let released = self.server.restart(&key, jump_ms, retention_s);
                self.tell(released)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub fn calm(&mut self) -> Result<(), Violation> {
        self.note(|| "the faults end".to_owned());
        self.is_calm = true;
        self.server.calm();
        self.oracle.worker_is_at(self.server.worker_ahead_ms);
        for tab in 0..self.tabs.len() {
            self.tabs[tab].frozen_until_ms = self.tabs[tab].frozen_until_ms.min(self.now_ms);
            // The event that was to wake it waits until it had thawed.
            self.tabs[tab].wakes_ms = None;
        }
        for browser in 0..self.browsers.len() {
            self.browsers[browser].login = Login::Own;
            self.browsers[browser].cut = Cut::default();
            self.browsers[browser].offline_until_ms = 0;
            self.tell_of_network(browser);
            // If nobody can tell who lives, the rows of closed tabs are taken over by the next tab that opens.
            for user in 0..crate::tab::USERS.len() {
                self.open_tab(browser, user);
            }
        }
        for tab in (0..self.tabs.len()).filter(|&tab| self.tabs[tab].is_open).collect::<Vec<_>>() {
            let now_ms = self.local_ms(tab);
            self.tabs[tab].client.resume_all(now_ms);
            self.drive(tab)?;
        }
        self.calm_curls();
        Ok(())
    }

    /// Tells the tabs of a browser whether there is a network.
    pub fn tell_of_network(&mut self, browser: usize) {
        let tabs = (0..self.tabs.len()).filter(|&tab| self.tabs[tab].is_open && self.tabs[tab].browser == browser);
        for tab in tabs.collect::<Vec<_>>() {
            self.push(self.now_ms, Event::In(tab, Happening::Network));
        }
    }

    /// Cuts off a browser or a client of requests made by hand, or only its answers.
    fn cut_off(&mut self) {
        let until_ms = self.now_ms + self.rng.i64(0..=self.plan.busy_ms);
        let cut = Cut { until_ms, is_of_answers: self.rng.bool() };
        let n = self.rng.usize(0..self.browsers.len() + self.curls.len());
        let (who, number) = match n.checked_sub(self.browsers.len()) {
            None => ("a browser", n),
            Some(curl) => ("somebody by hand", curl),
        };
        let what = if cut.is_of_answers { "gets no answers" } else { "is cut off" };
        self.oracle.see(format!("cut: {who} {what}"));
        self.note(|| format!("{who}, {number}, {what} until {until_ms} ms"));
        match n.checked_sub(self.browsers.len()) {
            None => self.browsers[n].cut = cut,
            Some(curl) => self.curls[curl].cut = cut,
        }
    }

    /// Lets the clock of a key, of the worker or of a tab jump while everything goes on.
    fn jump(&mut self) -> Result<(), Violation> {
        let jump_ms = self.rng.i64(-self.plan.jump_ms_max..=self.plan.jump_ms_max);
        let way = if jump_ms < 0 { "back" } else { "forward" };
        let n = self.rng.usize(0..=self.plan.keys + self.browsers.len());
        let who = if n < self.plan.keys {
            self.server.jump(&format!("keys/{n}"), jump_ms);
            self.keys_jumped_ms += jump_ms.abs();
            "a key's"
        } else if n == self.plan.keys {
            self.server.jump_worker(jump_ms);
            self.oracle.worker_is_at(self.server.worker_ahead_ms);
            "the worker's"
        } else {
            let tab = self.some_tab();
            self.push(self.now_ms, Event::In(tab, Happening::Jump(jump_ms)));
            "a tab's"
        };
        self.oracle.see(format!("clock: {who} jumps {way}"));
        self.note(|| format!("the clock of {n}, {who}, jumps by {jump_ms} ms"));
        if !self.is_twin(Twin::KeptByKeysClock) || self.keys_jumped_ms <= KEPT_S_MAX * 1000 {
            return Ok(());
        }
        (0..self.browsers.len()).try_for_each(|browser| {
            let kept = self.browsers[browser].store.keeping();
            self.remove(browser, &kept)
        })
    }
}
