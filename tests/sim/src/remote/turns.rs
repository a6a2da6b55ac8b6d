//! The turns of the requests of the key: one has its turn, and the others wait or are told what is known.

use super::asked::{Asked, Errand};
use super::host::Then;
use super::run::{Event, Run};
use crate::oracle::Violation;
use semel_core::server::edge::router;
use std::rc::Rc;

/// How many requests may wait for a turn.
const WAITING_MAX: usize = 256;
/// How long before the client gives up it is told what is known, in ms.
const BEFORE_MS_MAX: i64 = 2_000;
/// How long an administrator waits, in ms.
const RESOLVE_WAIT_MS: i64 = 5_000;

impl Run {
    /// A request arrives at the key.
    pub(super) fn arrive(&mut self, asked: Rc<Asked>) -> Result<(), Violation> {
        match asked.errand {
            Errand::Resolve(_) => self.resolve(asked, None),
            errand if errand.takes_turns() => self.take_turn(asked, None),
            _ => self.follow(asked, false),
        }
    }

    /// An administrator's settlement takes no turn. The engine says whether it has to wait for what is under way.
    /// `until_ms`: it has waited before.
    fn resolve(&mut self, asked: Rc<Asked>, until_ms: Option<i64>) -> Result<(), Violation> {
        let Some(reply) = self.ask(&asked, Some(None))? else { return Ok(()) };
        let until_ms = until_ms.unwrap_or_else(|| self.waits_until(&asked, RESOLVE_WAIT_MS));
        let is_locked = reply.only("semel-status") == "locked";
        if !is_locked || !self.object.has_turn || self.object.waiting.len() >= WAITING_MAX || self.now_ms >= until_ms {
            self.check_along(&asked, &reply)?;
            return self.once_durable(Then::Tell(asked, Box::new(reply)));
        }
        self.oracle.see("elsewhere: a resolution waits for what is under way");
        self.wait(asked, until_ms)
    }

    fn waits_until(&self, asked: &Asked, most_ms: i64) -> i64 {
        let wait_ms = router::wait_ms(&asked.call.headers(), self.wall_ms()).min(most_ms);
        self.now_ms + wait_ms - (wait_ms / 4).min(BEFORE_MS_MAX)
    }

    fn wait(&mut self, asked: Rc<Asked>, until_ms: i64) -> Result<(), Violation> {
        self.push(until_ms, Event::WaitOver(self.object.life, asked.number));
        self.object.waiting.push_back((asked, until_ms));
        Ok(())
    }

    /// A request has waited, and what it waited for is over, or its own time is.
    pub(super) fn go_on_after(&mut self, asked: Rc<Asked>, until_ms: i64) -> Result<(), Violation> {
        match asked.errand {
            Errand::Resolve(_) => self.resolve(asked, Some(until_ms)),
            _ => self.take_turn(asked, Some(until_ms)),
        }
    }

    /// `until_ms`: the request has waited before, and waits no longer than this.
    fn take_turn(&mut self, asked: Rc<Asked>, until_ms: Option<i64>) -> Result<(), Violation> {
        if !self.object.has_turn {
            self.object.has_turn = true;
            return self.follow(asked, true);
        }
        let until_ms = match until_ms {
            Some(until_ms) if self.now_ms < until_ms => until_ms,
            _ => {
                let Some(reply) = self.ask(&asked, None)? else { return Ok(()) };
                let is_open = matches!(reply.only("semel-status"), "in-flight" | "locked");
                if until_ms.is_some() || !is_open || self.object.waiting.len() >= WAITING_MAX {
                    self.check_along(&asked, &reply)?;
                    return self.once_durable(Then::Tell(asked, Box::new(reply)));
                }
                self.oracle.see("elsewhere: waits for its turn");
                self.waits_until(&asked, i64::MAX)
            }
        };
        self.wait(asked, until_ms)
    }

    pub(super) fn wait_over(&mut self, life: u32, number: usize) -> Result<(), Violation> {
        if life != self.object.life {
            return Ok(());
        }
        let at = self.object.waiting.iter().position(|(asked, until_ms)| {
            // A request that waits anew, behind another, is told when that is over.
            asked.number == number && *until_ms <= self.now_ms
        });
        match at.and_then(|at| self.object.waiting.remove(at)) {
            Some((asked, until_ms)) => self.go_on_after(asked, until_ms),
            None => Ok(()),
        }
    }
}
