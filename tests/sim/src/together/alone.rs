//! Requests that have the object to themselves: suspects, and batches that run one by one.
//!
//! Invariants, as in `host.js` and `batches.js`:
//! - Before a suspect runs, its start is durable, and so is everything that ran before it. In a batch, what follows it
//!   is not in its commit either. If the start can't be counted, the suspect does not run.
//! - The answers to a batch leave together, once all of it is durable. If the object ends before, no answer ever
//!   leaves.

use super::asked::{Asked, Come, Event};
use super::host::{STATEMENTS_MAX, Taken};
use super::oracle::Dealt;
use super::run::Run;
use crate::oracle::Violation;
use std::rc::Rc;

/// The requests that have the object to themselves, and how far they are.
#[derive(Debug, Default)]
pub struct Alone {
    come: Come,
    /// The next request.
    next: usize,
    /// Whether the start of the next request was counted.
    is_started: bool,
    /// The requests that are durable and not answered yet.
    pub(super) dealt: Vec<Dealt>,
}

impl Run {
    /// Begins with these requests.
    pub(super) fn work_alone(&mut self, come: Come) -> Result<(), Violation> {
        self.object.taken = Taken::Now;
        self.tell_time();
        if come.is_batch {
            self.see("a batch goes one by one");
            self.object.world.database.hold();
            if !self.acknowledge_ahead(&come)? {
                return Ok(());
            }
        } else {
            self.object.world.database.hold();
        }
        self.object.alone = Some(Alone { come, ..Alone::default() });
        self.go_on_alone()
    }

    fn go_on_alone(&mut self) -> Result<(), Violation> {
        while let Some(Alone { come, next, is_started, .. }) = &mut self.object.alone {
            let Some(asked) = come.all.get(*next).cloned() else { break };
            let (is_batch, n, is_started) = (come.is_batch, *next, *is_started);
            // A request that is not in a batch is here because it is a suspect.
            if !is_started && (!is_batch || self.is_suspect(&asked)) {
                return self.count_start(&asked);
            }
            if let Some(alone) = &mut self.object.alone {
                (alone.next, alone.is_started) = (n + 1, false);
            }
            if is_started {
                self.object.world.started(&asked.call);
            }
            asked.turn_ms.set((self.object.world.wall_ms, self.latest_ms()));
            if !self.deal(asked, (0, 1), None)? {
                return Ok(());
            }
            if is_batch && is_started {
                return self.await_part();
            }
        }
        let (life, most_ms) = (self.object.life, self.commit_ms_max());
        self.later(most_ms, Event::Durable(life));
        Ok(())
    }

    fn await_part(&mut self) -> Result<(), Violation> {
        let (life, most_ms) = (self.object.life, self.commit_ms_max());
        self.later(most_ms, Event::Part(life));
        Ok(())
    }

    fn count_start(&mut self, asked: &Rc<Asked>) -> Result<(), Violation> {
        if let Some(alone) = &mut self.object.alone {
            alone.is_started = true;
        }
        self.oracle.starts(asked.number);
        self.break_database(STATEMENTS_MAX);
        let started = self.object.world.start(&asked.call);
        if self.object.world.database.has_crashed() {
            return self.end_object("as it counts a start");
        }
        self.object.world.database.calm();
        if started.only("semel-status") != "unavailable" {
            return self.await_part();
        }
        self.see("a start can't be counted");
        if let Some(alone) = &mut self.object.alone {
            (alone.next, alone.is_started) = (alone.next + 1, false);
        }
        asked.turn_ms.set((self.object.world.wall_ms, self.latest_ms()));
        self.deal(asked.clone(), (0, 1), Some(started))?;
        self.go_on_alone()
    }

    /// What they did so far is durable, or a start that was counted.
    pub(super) fn part(&mut self, life: u32) -> Result<(), Violation> {
        if life != self.object.life {
            return Ok(());
        }
        if self.happens_often(self.options.fail_commits) {
            self.survive()?;
            return self.end_object("as the commit of a start fails");
        }
        let dealt = self.commit()?;
        if let Some(alone) = &mut self.object.alone {
            alone.dealt.extend(dealt);
        }
        self.tell_time();
        self.object.world.database.hold();
        self.go_on_alone()
    }
}
