//! Faults that happen at an instant, what an administrator does, and how the faults end.

use super::run::{Event, Happening, Run};
use crate::letter::Message;
use crate::oracle::Violation;
use semel_core::header::quoted;
use semel_core::message::Headers;

impl Run {
    pub(super) fn fault(&mut self, fault: &Event) -> Result<(), Violation> {
        match fault {
            Event::Reload => {
                if let Some(tab) = self.some_tab() {
                    let which = self.tabs[tab].which.clone();
                    self.note(|| format!("holder-{tab}: is reloaded"));
                    self.close(tab);
                    self.open(which, false);
                }
            }
            Event::Freeze => {
                if let Some(tab) = self.some_tab() {
                    self.tabs[tab].frozen_until_ms = self.now_ms + self.rng.i64(0..=self.plan.freeze_ms_max);
                    self.note(|| format!("holder-{tab}: freezes"));
                    let which = self.tabs[tab].which.clone();
                    if self.rng.bool() {
                        // While it is frozen, another holder takes over.
                        self.open(which, false);
                    }
                }
            }
            Event::Contend => {
                let which = self.any_session();
                let expects = self.rng.bool();
                self.open(which, expects);
            }
            Event::LoseStorage => {
                let browser = self.rng.usize(0..self.rows.len());
                self.note(|| format!("browser {browser} loses its storage"));
                let lost = std::mem::take(&mut self.rows[browser].0);
                self.oracle.lose_storage(lost.keys());
            }
            Event::Restart => {
                let key = format!("keys/{}", self.rng.usize(0..self.plan.keys));
                self.release(&key)?;
                let retention_s = self.plan.sessions.retentions_s[self.idling.usize(0..2)];
                self.note(|| format!("{key}: restarts, with the retention {retention_s} s"));
                if let Some(seen) = self.server.seen(&key) {
                    self.oracle.dies(&key, seen);
                }
                self.server.restart(&key, retention_s);
                if self.rng.bool() {
                    self.jump(&key);
                }
            }
            Event::Jump => {
                let key = format!("keys/{}", self.rng.usize(0..self.plan.keys));
                self.jump(&key);
            }
            Event::Administer(n) => self.administer(*n)?,
            _ => {}
        }
        Ok(())
    }

    fn jump(&mut self, key: &str) {
        let jump_ms = self.rng.i64(-self.plan.jump_ms_max..=self.plan.jump_ms_max);
        if self.server.jump(key, jump_ms) {
            self.oracle.see("session: the clock of a key's machine goes back");
        }
        self.note(|| format!("{key}: the clock of its machine jumps by {jump_ms} ms"));
    }

    fn administer(&mut self, n: usize) -> Result<(), Violation> {
        let account = self.rng.usize(0..self.plan.keys);
        let key = format!("keys/{account}");
        if self.server.seen(&key).is_none() {
            return Ok(());
        }
        let now_ms = self.server.clock_ms(&key, self.now_ms);
        if self.rng.bool() {
            let before_s = now_ms.div_euclid(1000) - self.rng.i64(0..=10);
            return self.forget(&key, before_s);
        }
        let headers = Headers::from_iter([
            ("authorization", "Bearer semel:admin".to_owned()),
            ("idempotency-key", quoted(&format!("admin-{n}"))),
            ("semel-first-sent", format!("@{}", now_ms.div_euclid(1000))),
        ]);
        let target = format!("/semel/v1/admin/keys/keys%2F{account}");
        drop(self.deal(&Message { method: "DELETE".to_owned(), target, headers, ..Message::default() })?);
        Ok(())
    }

    pub(super) fn forget(&mut self, key: &str, before_s: i64) -> Result<(), Violation> {
        self.release(key)?;
        self.note(|| format!("{key} forgets what was last used before {before_s}"));
        if let Some((before, after)) = self.server.forget(key, before_s, self.now_ms) {
            self.oracle.forgot(key, &before, &after);
        }
        Ok(())
    }

    pub(super) fn calm(&mut self) {
        self.note(|| "the faults end".to_owned());
        (self.is_calm, self.calm_ms) = (true, self.now_ms);
        self.server.calm();
        for tab in 0..self.tabs.len() {
            self.tabs[tab].frozen_until_ms = self.tabs[tab].frozen_until_ms.min(self.now_ms);
            self.push(self.now_ms, Event::In(tab, Happening::Resume));
        }
        for n in 0..self.batchers.len() {
            self.push(self.now_ms, Event::Batch(n));
        }
        self.push(self.now_ms + 60_000, Event::Reopen);
    }
}
