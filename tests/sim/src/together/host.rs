//! The object of the key: whose turn it is, what is committed together, and when answers leave.
//!
//! Invariants:
//! - As in `turns.js`, nothing waits while no commit is under way. Requests that arrive during a commit are in the next
//!   one, in the order of their arrival. The host asks for each commit when it is over. Requests that arrive during a
//!   commit for which it does not ask run at once, as in the other runs while commits are held back. The engine is
//!   asked about the whole group at once, and if that is not possible, about one request after the other.
//! - As in `gathering.js`, requests that came to a Worker together arrive in one call, and stay together. If one of
//!   them is a suspect, each is asked for by itself.
//! - As in `host.js`, a suspect runs alone: its start is durable before it runs, which takes time, and no other request
//!   is in its commit.
//! - As in the runtime, no answer leaves before its commit, and a turn is committed as a whole or not at all. The
//!   object may end between any two statements. Everything that is not committed ends with it, and everything that
//!   waits.

use super::alone::Alone;
use super::asked::{Asked, Come, Event};
use super::batches::Batched;
use super::options::Options;
use super::oracle::Dealt;
use super::room::config_of;
use super::run::{KEY, Run};
use crate::deposits::{Deposits, END, Trouble};
use crate::mutant::{Mutant, Twin};
use crate::oracle::Violation;
use crate::snapshot::{Snapshot, effects_after};
use crate::stored::{self, When};
use semel_core::server::attempt::suspicion;
use semel_support::{Reply, World};
use std::collections::VecDeque;
use std::rc::Rc;

/// The most statements of a call. A fault happens at one of them.
pub(super) const STATEMENTS_MAX: u64 = 14;

/// How many more statements there are for each further request that is asked for at once.
pub(super) const STATEMENTS_OF_ONE_MORE: u64 = 3;

/// The longest that a commit takes once the faults have ended, in ms.
const COMMIT_MS_MAX: i64 = 100;

/// Whether a request has the object to itself.
#[derive(Debug, Default)]
pub(super) enum Taken {
    #[default]
    Nobody,
    /// These requests will have it, once the commit under way is over.
    Next(Come),
    Now,
}

/// The object of the key.
pub struct Object {
    pub world: World<Deposits>,
    /// How often it has ended. What belongs to an earlier one is ignored.
    pub(super) life: u32,
    /// `None`: it has ended, and nobody has asked since.
    pub(super) started_ms: Option<i64>,
    pub(super) taken: Taken,
    /// The requests that have it to themselves, and how far they are.
    pub(super) alone: Option<Alone>,
    /// The calls that found it taken, and whether each needs it to itself.
    stalled: VecDeque<(Come, bool)>,
    /// The calls that are in the next commit, or the one after it.
    waiting: VecDeque<Come>,
    /// The requests in the commit under way.
    dealt: Vec<Dealt>,
    /// How far it was told to forget in that commit, in Unix seconds.
    pub(super) forgotten: Vec<i64>,
}

impl Object {
    pub fn new(options: &Options, mutant: Option<Mutant>) -> Self {
        Self {
            world: World::in_memory(KEY, Deposits::default(), config_of(options, mutant)),
            life: 0,
            started_ms: None,
            taken: Taken::Nobody,
            alone: None,
            stalled: VecDeque::new(),
            waiting: VecDeque::new(),
            dealt: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    pub(super) fn is_taken(&self) -> bool {
        !matches!(self.taken, Taken::Nobody)
    }

    pub(super) fn is_committing(&self) -> bool {
        self.world.database.is_holding()
    }
}

impl Run {
    /// A call arrives at the key.
    pub(super) fn arrive(&mut self, come: Come) -> Result<(), Violation> {
        let now_ms = self.wall_ms();
        self.object.started_ms.get_or_insert(now_ms);
        if come.is_batch {
            // Whether a batch contains a suspect is asked when its turn has come.
            return self.admit(come, false);
        }
        let has_suspect = come.all.iter().any(|asked| self.is_suspect(asked));
        if come.all.len() > 1 {
            self.see(if has_suspect { "a call for many is taken to pieces" } else { "a call for many" });
        }
        if has_suspect && come.all.len() > 1 {
            come.all.into_iter().for_each(|asked| self.send_alone(asked));
            return Ok(());
        }
        self.admit(come, has_suspect)
    }

    /// Whether a request may have ended the object before.
    pub(super) fn is_suspect(&self, asked: &Asked) -> bool {
        let (now_ms, call, headers) = (self.wall_ms(), &asked.call, asked.call.headers());
        let started_ms = self.object.started_ms.unwrap_or(now_ms);
        suspicion::is_suspect(call.method(), call.url().0, &headers, started_ms, now_ms)
            && !self.object.world.has_outcome(&headers)
    }

    fn admit(&mut self, come: Come, is_suspect: bool) -> Result<(), Violation> {
        if self.object.is_taken() {
            self.see("who comes while somebody has the object to itself waits");
            self.object.stalled.push_back((come, is_suspect));
        } else if is_suspect && self.object.is_committing() {
            self.see("who is to be alone waits for the commit");
            self.object.taken = Taken::Next(come);
        } else if is_suspect {
            return self.work_alone(come);
        } else if self.object.is_committing() || !self.object.waiting.is_empty() {
            self.object.waiting.push_back(come);
        } else {
            return self.work(vec![come]);
        }
        Ok(())
    }

    pub(super) fn commit_ms_max(&self) -> i64 {
        if self.is_calm { COMMIT_MS_MAX } else { self.options.commit_ms_max }
    }

    /// Handles the requests of one turn, and starts their commit, which takes time.
    fn work(&mut self, mut group: Vec<Come>) -> Result<(), Violation> {
        let many = group.iter().map(|come| come.all.len()).sum();
        if many > 1 {
            self.see("a group");
        }
        if self.is_twin(Twin::GroupOrder) {
            group.reverse();
            group.iter_mut().for_each(|come| come.all.reverse());
        }
        if !self.is_twin(Twin::GroupOldClock) || many == 1 {
            self.tell_time();
        }
        let turn_ms = (self.wall_ms(), self.latest_ms());
        group.iter().flat_map(|come| &come.all).for_each(|asked| asked.turn_ms.set(turn_ms));
        self.object.world.database.hold();
        let mut replies = None;
        // As in `turns.js`, a batch is not asked for together with others.
        if many > 1 && !group.iter().any(|come| come.is_batch) {
            let all: Vec<_> = group.iter().flat_map(|come| come.all.iter().cloned()).collect();
            replies = self.ask_at_once(&all).map(Vec::into_iter);
            if self.object.world.database.has_crashed() {
                return self.end_object("in the middle of a group");
            }
        }
        let (mut n, mut one_by_one) = (0, Vec::new());
        for come in group {
            let more = come.all.len();
            if come.is_batch {
                match self.deal_batch(come, (n, many))? {
                    Batched::Ended => return Ok(()),
                    Batched::OneByOne(come) => one_by_one.push(come),
                    Batched::Done => {}
                }
            } else {
                for (at, asked) in come.all.into_iter().enumerate() {
                    let reply = replies.as_mut().and_then(Iterator::next);
                    if !self.deal(asked, (n + at, many), reply)? {
                        return Ok(());
                    }
                }
            }
            n += more;
        }
        for come in one_by_one {
            if self.object.is_taken() {
                self.object.stalled.push_back((come, true));
            } else {
                self.object.taken = Taken::Next(come);
            }
        }
        let (life, most_ms) = (self.object.life, self.commit_ms_max());
        self.later(most_ms, Event::Durable(life));
        Ok(())
    }

    /// The engine's answers to a whole group; `None` if each request has to be asked for by itself, or if the object
    /// has ended.
    fn ask_at_once(&mut self, group: &[Rc<Asked>]) -> Option<Vec<Reply>> {
        let more = u64::try_from(group.len()).expect("a few");
        let kills = group.iter().any(|asked| self.trouble_of(asked) == Some(Trouble::Kills));
        self.prepare(STATEMENTS_MAX + more * STATEMENTS_OF_ONE_MORE, kills);
        let calls: Vec<_> = group.iter().map(|asked| self.call_of(asked)).collect();
        let replies = self.object.world.group(&calls);
        if !self.object.world.database.has_crashed() {
            self.object.world.database.calm();
            self.see(if replies.is_some() {
                "a group is asked for at once"
            } else {
                "a group is asked for one by one"
            });
        }
        replies
    }

    pub(super) fn prepare(&mut self, statements_max: u64, kills: bool) {
        self.break_database(statements_max);
        if kills {
            self.object.world.database.crash_at(END);
        }
        self.object.world.database.keeps_nested.set(self.is_twin(Twin::GroupKept));
    }

    fn ask_for_one(&mut self, asked: &Asked) -> Reply {
        self.prepare(STATEMENTS_MAX, self.trouble_of(asked) == Some(Trouble::Kills));
        let call = self.call_of(asked);
        self.object.world.send(&call)
    }

    /// Handles the `n`th request of a group, which may already have its answer. Returns whether the object lives on.
    pub(super) fn deal(
        &mut self,
        asked: Rc<Asked>,
        (n, many): (usize, usize),
        reply: Option<Reply>,
    ) -> Result<bool, Violation> {
        let panics = self.object.world.handler.panics.get();
        let reply = reply.unwrap_or_else(|| self.ask_for_one(&asked));
        self.blame_panics();
        self.note(|| format!("{} of {many}: {} -> {}", n + 1, asked.line(), reply.only("semel-status")));
        if self.object.world.database.has_crashed() {
            let is_amid = many > 1 && n > 0;
            self.end_object(if is_amid { "in the middle of a group" } else { "between two statements" })?;
            return Ok(false);
        }
        self.object.world.database.calm();
        let has_failed = matches!(reply.only("semel-status"), "rolled-back" | "unavailable");
        if many > 1 && has_failed {
            let what = if reply.only("semel-status") == "unavailable" { "the storage" } else { "the handler" };
            self.see(&format!("{what} fails one of a group"));
        }
        if many > 1 && self.object.world.handler.panics.get() > panics {
            self.see("the handler crashes in one of a group");
        }
        if self.is_twin(Twin::GroupEarlyAnswer) {
            self.tell(&asked, &reply)?;
        }
        let is_alone = self.object.is_taken();
        self.object.dealt.push(Dealt { asked, reply, is_alone });
        if has_failed && self.is_twin(Twin::GroupIsolation) {
            // This is as if the whole group were one transaction.
            self.object.world.database.reopen();
            self.object.world.database.hold();
        }
        Ok(true)
    }

    pub(super) fn trouble_of(&self, asked: &Asked) -> Option<Trouble> {
        let troubles = self.object.world.handler.troubles.borrow();
        let (trouble, times) = troubles.get(&asked.number.to_string())?;
        (*times > 0).then_some(*trouble)
    }

    pub(super) fn break_database(&mut self, statements_max: u64) {
        let n = self.rng.u64(0..statements_max);
        let Options { crash, full, fail, .. } = self.options;
        let (crash, full, fail) = (self.happens_often(crash), self.happens_often(full), self.happens_often(fail));
        let database = &self.object.world.database;
        if crash {
            database.crash_before(n);
        } else if full {
            database.full(n);
        } else if fail {
            database.fail(n);
        }
    }

    /// The commit that was under way is over. Its answers leave, and the next requests have their turn.
    pub(super) fn durable(&mut self, life: u32) -> Result<(), Violation> {
        if life != self.object.life {
            return Ok(());
        }
        if self.happens_often(self.options.fail_commits) {
            let is_group = self.object.dealt.len() > 1;
            self.survive()?;
            return self.end_object(if is_group { "as the commit of a group fails" } else { "as its commit fails" });
        }
        let dealt = self.commit()?;
        let before = self.object.alone.take().map(|alone| alone.dealt).unwrap_or_default();
        if !self.is_twin(Twin::GroupEarlyAnswer) {
            for Dealt { asked, reply, .. } in before.iter().chain(&dealt) {
                self.tell(asked, reply)?;
            }
        }
        match std::mem::take(&mut self.object.taken) {
            Taken::Next(one) => self.work_alone(one),
            Taken::Nobody | Taken::Now => self.go_on(),
        }
    }

    /// Makes durable what was held back. Returns the requests that may now be answered.
    pub(super) fn commit(&mut self) -> Result<Vec<Dealt>, Violation> {
        self.object.world.database.release();
        stored::change(self.mutant, When::Commit, &self.object.world.database);
        let dealt = std::mem::take(&mut self.object.dealt);
        let before = if dealt.iter().any(Dealt::deletes) { 0 } else { self.oracle.durable() };
        let effects = effects_after(&self.object.world.database, None, before);
        self.oracle.committed(&dealt, effects)?;
        if self.options.is_small() {
            self.oracle.check_room(&dealt, &Snapshot::of(&self.object.world.database, None))?;
        }
        self.look()?;
        let mut forgotten = std::mem::take(&mut self.object.forgotten).into_iter();
        forgotten.try_for_each(|before_s| self.oracle.forgotten(before_s))?;
        Ok(dealt)
    }

    fn go_on(&mut self) -> Result<(), Violation> {
        // The requests that wait for the commit came before those that found the object taken.
        while !self.object.is_taken() {
            let Some((come, is_suspect)) = self.object.stalled.pop_front() else { break };
            self.admit(come, is_suspect)?;
        }
        let is_free = !self.object.is_taken() && !self.object.is_committing();
        if !is_free {
            return Ok(());
        }
        let overtakes = self.is_twin(Twin::GroupOvertaken);
        let waiting = &mut self.object.waiting;
        let first = if overtakes { waiting.pop_back() } else { waiting.pop_front() };
        let mut group: Vec<Come> = first.into_iter().collect();
        if group.is_empty() {
            return Ok(());
        }
        let mut count: usize = group.iter().map(Come::count).sum();
        while let Some(next) = self.object.waiting.pop_front_if(|next| count + next.count() <= self.options.group_max) {
            count += next.count();
            group.push(next);
        }
        if !self.object.waiting.is_empty() {
            self.see("a group is full, and who comes beyond it waits for one more commit");
        }
        self.work(group)
    }

    /// Ends the object, with everything that waits in it and is not durable yet. The next request starts it again.
    pub(super) fn end_object(&mut self, when: &str) -> Result<(), Violation> {
        self.end_object_with(when, self.is_twin(Twin::MemoryKept))
    }

    /// `keeps_memory`: whether the next object has in memory what this one had, which is a mutant.
    pub(super) fn end_object_with(&mut self, when: &str, keeps_memory: bool) -> Result<(), Violation> {
        self.see(&format!("the object ends {when}"));
        self.note(|| format!("the object ends {when}"));
        self.leave_object();
        if keeps_memory {
            self.object.world.database.reopen();
        } else {
            self.object.world.restart();
        }
        stored::change(self.mutant, When::Ended, &self.object.world.database);
        self.oracle.ended(&effects_after(&self.object.world.database, None, self.oracle.durable()))
    }

    /// Drops everything that waits in the object or is not durable yet.
    fn leave_object(&mut self) {
        self.oracle.forgets_starts();
        self.object_ms = 0;
        let object = &mut self.object;
        object.life += 1;
        object.started_ms = None;
        object.taken = Taken::Nobody;
        object.alone = None;
        object.stalled.clear();
        object.waiting.clear();
        object.dealt.clear();
        object.forgotten.clear();
    }

    pub(super) fn end(&mut self) -> Result<(), Violation> {
        let when = if self.object.is_committing() { "while a commit is under way" } else { "at rest" };
        self.survive()?;
        self.end_object(when)
    }
}
