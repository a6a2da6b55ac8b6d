//! The run: a queue of events in the order of time, and the callers.
//!
//! Invariants:
//! - There is no wall clock, no sleeping, and no randomness except from the seed.
//! - Each attempt of a request has the same id, body and first-sent. A caller who has acknowledged asks no more.
//! - After the busy time the faults end, and each caller must get a definitive answer.

use super::asked::{Ack, Asked, Come, Errand, Event, Wish};
use super::host::Object;
use super::midst::Backup;
use super::options::Options;
use super::oracle::Oracle;
use crate::deposits::Trouble;
use crate::lies;
use crate::mutant::{Mutant, Twin};
use crate::oracle::{Violation, violation};
use crate::plan::Plan;
use crate::snapshot::effects_after;
use crate::stored::{self, When};
use fastrand::Rng;
use semel_support::{Call, Reply, START_S, get, post};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The key.
pub const KEY: &str = "keys/0";
/// A principal who has made none of the requests.
pub const STRANGER: &str = "mallory";
const PATH: &str = "/keys/0/deposits";
const CANCEL: &str = "/semel/v1/keys/keys%2F0/cancel";
/// The numbers of reads begin here.
const READS: usize = 1_000;
/// The longest that a message is under way, in ms.
pub(super) const WAY_MS_MAX: i64 = 50;
/// The longest that an attempt with a deadline may wait for its turn, in ms; a quarter of that while there are faults.
const DATED_MS_MAX: i64 = 4_000;
/// How often the pause between two attempts is doubled.
const DOUBLED_MAX: u32 = 4;
/// A run that has not settled this long after the faults ended never will, in ms.
const SETTLES_MS_MAX: i64 = 600_000;

/// The run.
pub struct Run {
    pub(super) options: Options,
    pub(super) mutant: Option<Mutant>,
    pub(super) rng: Rng,
    pub(super) now_ms: i64,
    queue: BTreeMap<(i64, u64), Event>,
    pushed: u64,
    pub(super) object: Object,
    arrived: u64,
    wishes: Vec<Wish>,
    /// The ids that the next message acknowledges.
    acks: Vec<Ack>,
    /// The requests that came to the key's Worker and go on together.
    gathered: Vec<Rc<Asked>>,
    /// Decides about those: another stream, so that runs without them are as they were.
    gathers: Rng,
    /// Decides about deadlines, and ids that are used again.
    dates: Rng,
    /// The requests of the next batch.
    pub(super) batched: Come,
    /// Decides about batches, and about what happens without a request.
    pub(super) midst: Rng,
    /// Decides when the key's counts are checked.
    pub(super) counts: Rng,
    /// Decides when the key is deleted.
    pub(super) deleting: Rng,
    /// The deletions of which the administrator has an answer.
    pub(super) deleted: BTreeSet<usize>,
    /// How far the clock of the key's machine is ahead, in ms.
    pub(super) ahead_ms: i64,
    /// The latest clock that the object may have told, in Unix ms.
    pub(super) object_ms: i64,
    pub(super) backup: Option<Backup>,
    pub(super) is_calm: bool,
    pub(super) oracle: Oracle,
    pub trace: Option<Vec<String>>,
}

impl Run {
    /// Makes the run of a plan.
    pub fn new(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Self {
        Self {
            options: plan.together.clone(),
            mutant,
            rng: Rng::with_seed(!crate::plan::of_together(plan.seed)),
            now_ms: 0,
            queue: BTreeMap::new(),
            pushed: 0,
            object: Object::new(&plan.together, mutant),
            arrived: 0,
            wishes: Vec::new(),
            acks: Vec::new(),
            gathered: Vec::new(),
            gathers: Rng::with_seed(crate::plan::of_together(!plan.seed)),
            dates: Rng::with_seed(!crate::plan::of_deadlines(plan.seed)),
            batched: Come::default(),
            midst: Rng::with_seed(!crate::plan::of_midst(plan.seed)),
            counts: Rng::with_seed(crate::plan::of_midst(!plan.seed)),
            deleting: Rng::with_seed(!crate::plan::of_together_deleting(plan.seed)),
            deleted: BTreeSet::new(),
            ahead_ms: 0,
            object_ms: 0,
            backup: None,
            is_calm: false,
            oracle: Oracle::new(&plan.together),
            trace: is_traced.then(Vec::new),
        }
    }

    /// Runs the plan. Returns what happened, by name.
    pub fn run(&mut self) -> Result<BTreeSet<String>, Violation> {
        self.set_up();
        let ends_ms = self.options.busy_ms * 2 + SETTLES_MS_MAX + self.options.room_ms_max();
        while let Some(((at_ms, _), event)) = self.queue.pop_first() {
            if at_ms > ends_ms {
                return violation("unsettled", format!("it does not come to rest: {event:?}"));
            }
            self.now_ms = at_ms;
            self.happen(event)?;
        }
        stored::change(self.mutant, When::Together, &self.object.world.database);
        self.oracle.check_end(&effects_after(&self.object.world.database, None, 0))?;
        Ok(std::mem::take(&mut self.oracle.seen))
    }

    fn set_up(&mut self) {
        let Options { busy_ms, wishes, reads, ends, deadlines, others, restores, .. } = self.options;
        for number in 0..wishes {
            let at_ms = self.rng.i64(0..busy_ms);
            let first_sent_s = (self.rng.u32(0..4) > 0).then_some(START_S + at_ms.div_euclid(1000));
            let is_dated = self.dates.u32(0..100) < deadlines;
            self.wishes.push(Wish { first_sent_s, acknowledges: self.rng.bool(), is_dated, ..Wish::default() });
            self.decide_trouble(number);
            self.push(at_ms, Event::Ask(number));
            if self.rng.u32(0..100) < self.options.give_up {
                let later_ms = self.rng.i64(0..busy_ms);
                self.push(at_ms + later_ms, Event::GiveUp(number));
            }
        }
        for read in 0..reads {
            let at_ms = self.rng.i64(0..busy_ms);
            self.push(at_ms, Event::Read(READS + read));
        }
        for _ in 0..ends {
            let at_ms = self.rng.i64(0..busy_ms * 2);
            self.push(at_ms, Event::End);
        }
        for _ in 0..if wishes > 0 && restores == 0 { others } else { 0 } {
            let at_ms = self.dates.i64(0..busy_ms * 2);
            self.push(at_ms, Event::Other);
        }
        self.set_up_midst();
        self.set_up_deletions();
        self.push(busy_ms * 2 + 1, Event::Calm);
    }

    fn decide_trouble(&mut self, number: usize) {
        if self.rng.u32(0..100) >= self.options.troubles {
            return;
        }
        let all = [Trouble::Fails, Trouble::BadSql, Trouble::Answers500, Trouble::Panics, Trouble::Kills];
        let trouble = all[self.rng.usize(0..all.len())];
        let times = if self.rng.u32(0..4) == 0 { u32::MAX } else { self.rng.u32(1..=3) };
        self.object.world.handler.troubles.borrow_mut().insert(number.to_string(), (trouble, times));
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Ask(number) => self.ask(number),
            Event::GiveUp(number) => self.wishes[number].is_given_up = true,
            Event::Read(number) => {
                self.oracle.wished(number, Errand::Read);
                self.post((number, Errand::Read, None), get(PATH));
            }
            Event::Gathered => {
                let all = std::mem::take(&mut self.gathered);
                self.later(WAY_MS_MAX, Event::Arrival(Come::of(all)));
            }
            Event::Batched => self.send_batch(),
            Event::Arrival(come) => {
                for asked in &come.all {
                    self.arrived += 1;
                    asked.arrived.set(self.arrived);
                }
                self.arrive(come)?;
            }
            Event::Told(asked, reply) => self.hear(&asked, &reply),
            Event::Durable(life) => self.durable(life)?,
            Event::Part(life) => self.part(life)?,
            Event::Midst(midst) => self.come_about(midst)?,
            Event::Other => self.use_again(),
            Event::Delete(number) => self.delete(number),
            Event::End => self.end()?,
            Event::Calm => {
                self.note(|| "the faults end".to_owned());
                self.is_calm = true;
                let mut troubles = self.object.world.handler.troubles.borrow_mut();
                troubles.retain(|_, (trouble, _)| matches!(trouble, Trouble::Panics | Trouble::Kills));
            }
        }
        Ok(())
    }

    /// Sends an attempt for a wish, until there is an answer.
    fn ask(&mut self, number: usize) {
        let (wall_ms, latest_ms) = (self.wall_ms(), self.latest_ms());
        let Wish { first_sent_s, attempts, is_given_up, is_done, is_dated, until_ms, .. } = &mut self.wishes[number];
        if *is_done {
            return;
        }
        if *attempts == 0 {
            self.oracle.wished(number, Errand::Deposit);
            // By the caller's clock, or by the clock that the key has told.
            let told_ms = if self.options.jumps > 0 && self.midst.bool() { latest_ms } else { wall_ms };
            *first_sent_s = first_sent_s.map(|_| told_ms.div_euclid(1000));
        }
        // The pauses grow, so that nobody floods a slow key.
        let pause_ms = self.options.interval_ms << (*attempts).min(DOUBLED_MAX);
        *attempts += 1;
        let (errand, mut call) = if *is_given_up {
            self.oracle.gives_up(number);
            let first_sent =
                first_sent_s.map_or(String::new(), |first_sent_s| format!(",\"firstSent\":{first_sent_s}"));
            let body = format!("{{\"id\":\"{}\"{first_sent}}}", id_of(number));
            (Errand::Cancel, post(CANCEL).id(&format!("cancel-{number}")).body(body))
        } else {
            (Errand::Deposit, post(PATH).id(&id_of(number)).body(number.to_string()))
        };
        let mut deadline_ms = None;
        if *is_dated && errand == Errand::Deposit {
            let most_ms = if self.is_calm { DATED_MS_MAX } else { self.dates.i64(1..=DATED_MS_MAX / 4) };
            let at_ms = *deadline_ms.insert(latest_ms + most_ms);
            call = call.deadline_ms(at_ms);
            *until_ms = (*until_ms).max(Some(at_ms));
        }
        if let Some(first_sent_s) = first_sent_s {
            call = call.first_sent_s(*first_sent_s);
        }
        self.post((number, errand, deadline_ms), call);
        let pause_ms = pause_ms + self.rng.i64(0..=pause_ms);
        self.push(self.now_ms + pause_ms, Event::Ask(number));
    }

    /// Uses an id that has its outcome for something else, or as another principal.
    fn use_again(&mut self) {
        // Not an id of which nobody may know any more that it was used.
        let options = &self.options;
        let is_known = |wish: &Wish| wish.has_outcome && (wish.first_sent_s.is_some() || !options.is_forgetful());
        let used: Vec<_> = (0..self.wishes.len()).filter(|number| is_known(&self.wishes[*number])).collect();
        if used.is_empty() {
            return;
        }
        let number = used[self.dates.usize(0..used.len())];
        let call = post(PATH).id(&id_of(number));
        let is_stranger = self.dates.bool();
        let call = if is_stranger { call.by(STRANGER).body(number.to_string()) } else { call.body("something else") };
        let first_sent_s = self.wishes[number].first_sent_s;
        let call = first_sent_s.map_or_else(|| call.clone(), |first_sent_s| call.clone().first_sent_s(first_sent_s));
        self.send((number, Errand::Other, None), call);
    }

    /// Sends a message to the key, perhaps twice.
    fn post(&mut self, which: (usize, Errand, Option<i64>), call: Call) {
        let acks: Vec<Ack> = self.acks.drain(..).collect();
        let is_repeated = self.happens_often(self.options.repeat);
        if which.1 != Errand::Read && self.goes_in_batch() {
            if is_repeated {
                self.put_in_batch(self.asked(which, call.clone()), acks.clone());
            }
            self.put_in_batch(self.asked(which, call), acks);
            return;
        }
        let call = acks.iter().fold(call, |call, (id, until_ms)| match until_ms {
            Some(until_ms) => call.ack_until(id, *until_ms),
            None => call.ack(id),
        });
        if is_repeated {
            self.send(which, call.clone());
        }
        self.send(which, call);
    }

    pub(super) fn asked(&self, (number, errand, deadline_ms): (usize, Errand, Option<i64>), call: Call) -> Rc<Asked> {
        let first_sent_s = self.wishes.get(number).and_then(|wish| wish.first_sent_s);
        Rc::new(Asked {
            number,
            errand,
            call,
            first_sent_s,
            deadline_ms,
            arrived: Cell::new(0),
            turn_ms: Cell::default(),
        })
    }

    fn send(&mut self, which: (usize, Errand, Option<i64>), call: Call) {
        let asked = self.asked(which, call);
        // A read goes by itself.
        if asked.errand == Errand::Read || self.gathers.u32(0..100) >= self.options.gather {
            return self.send_alone(asked);
        }
        if self.gathered.is_empty() {
            self.later(WAY_MS_MAX, Event::Gathered);
        }
        self.gathered.push(asked);
    }

    pub(super) fn send_alone(&mut self, asked: Rc<Asked>) {
        self.later(WAY_MS_MAX, Event::Arrival(Come::of(vec![asked])));
    }

    /// Checks an answer that leaves, and sends or loses it.
    pub(super) fn tell(&mut self, asked: &Rc<Asked>, reply: &Reply) -> Result<(), Violation> {
        let reply = lies::told(self.mutant, &format!("Together{:?}", asked.errand), reply.clone());
        self.oracle.told(asked, &reply)?;
        if !self.happens_often(self.options.lose_answers) {
            self.later(WAY_MS_MAX, Event::Told(asked.clone(), Box::new(reply)));
        }
        Ok(())
    }

    /// A caller gets an answer.
    fn hear(&mut self, asked: &Asked, reply: &Reply) {
        let is_outcome = matches!(reply.only("semel-status"), "executed" | "replayed" | "read");
        match asked.errand {
            Errand::Other => return,
            Errand::Delete => return self.hear_deletion(asked, reply),
            _ => {}
        }
        if is_outcome && asked.errand != Errand::Cancel {
            self.oracle.heard(asked.number, reply);
        }
        let Some(wish) = self.wishes.get_mut(asked.number) else { return };
        wish.has_outcome |= is_outcome && asked.errand == Errand::Deposit;
        if (is_outcome || reply.field("retry") == "never")
            && !std::mem::replace(&mut wish.is_done, true)
            && wish.acknowledges
        {
            let until_ms = wish.until_ms.filter(|_| wish.is_dated);
            self.oracle.acknowledges(asked.number, until_ms);
            self.acks.push((id_of(asked.number), until_ms));
        }
    }

    pub(super) fn is_twin(&self, twin: Twin) -> bool {
        self.mutant == Some(Mutant::Twin(twin))
    }

    pub(super) fn push(&mut self, at_ms: i64, event: Event) {
        self.pushed += 1;
        self.queue.insert((at_ms.max(self.now_ms), self.pushed), event);
    }

    pub(super) fn later(&mut self, ms_max: i64, event: Event) {
        let delay_ms = self.rng.i64(0..=ms_max);
        self.push(self.now_ms + delay_ms, event);
    }

    pub(super) fn happens_often(&mut self, percent: u32) -> bool {
        !self.is_calm && self.rng.u32(0..100) < percent
    }

    pub(super) fn see(&mut self, what: &str) {
        self.oracle.seen.insert(format!("together: {what}"));
    }

    /// Adds a line to the trace.
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now_ms = self.now_ms;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} s  {}", now_ms as f64 / 1000.0, line()));
        }
    }
}

pub(super) fn id_of(number: usize) -> String {
    format!("w{number}")
}
