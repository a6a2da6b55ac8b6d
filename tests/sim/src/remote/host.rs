//! The key, as `remote.js` drives its engine.
//!
//! Invariants:
//! - One request of the key is under way at a time, from its recorded start to its recorded outcome. A request that
//!   waits for its turn waits no longer than its client does, and then hears what is known.
//! - While commits are held back, nothing is sent and no answer leaves. If the object ends meanwhile, nothing ever
//!   does.
//! - The object may end between any two statements, and between any two steps. Everything that waits ends with it.

use super::asked::{Asked, Dealt, Errand, Settles, State, View};
use super::options::{HOLD_MS_MAX, Options, Times};
use super::routes::Routes;
use super::run::{Event, Run};
use crate::lies;
use crate::mutant::{Mutant, Twin};
use crate::oracle::{Violation, violation};
use crate::snapshot::Snapshot;
use semel_core::server::Config;
use semel_core::server::engine::remote::{Call as Sent, Ended};
use semel_support::{Database, KEY, Reply, START_MS, World};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The most statements of a call. A fault happens at one of them.
const STATEMENTS_MAX: u64 = 10;

/// An attempt that waits for the result of its call.
#[derive(Debug, Clone)]
pub struct Flight {
    pub asked: Rc<Asked>,
    pub sent: Sent,
    /// When the engine decided on the call, by the key's clock.
    pub decided_ms: i64,
    /// The same, in ms of the run.
    pub decided_at_ms: i64,
    has_turn: bool,
}

/// What happens once everything that was committed before is durable.
#[derive(Debug)]
pub(super) enum Then {
    See(Dealt),
    Send(Flight),
    Tell(Rc<Asked>, Box<Reply>),
}

/// The object of the key.
pub struct Object {
    pub(super) world: World<Routes>,
    /// How often it has ended. What belongs to an earlier one is ignored.
    pub life: u32,
    pub(super) has_turn: bool,
    pub(super) waiting: VecDeque<(Rc<Asked>, i64)>,
    pub flights: BTreeMap<usize, Flight>,
    /// Calls that are no longer under way, and whose late answers still count: a mutant.
    late: BTreeMap<usize, Flight>,
    held: Vec<Then>,
    pub(super) seen: Rc<View>,
    /// What is committed.
    pub durable: Rc<View>,
    /// The latest time that this object may have told, in Unix ms.
    pub(super) clock_ms: i64,
    /// The latest that its clock may be, in Unix ms: as far as it has looked at its machine's, or as is stored.
    pub(super) reaches_ms: i64,
}

impl Object {
    pub fn new(options: &Options, mutant: Option<Mutant>) -> Self {
        let is = |twin| u64::from(mutant == Some(Mutant::Twin(twin)));
        let Options { retention_s, records_max, tombstones_max, .. } = *options;
        let config = Config {
            open: true,
            retention_s: if is(Twin::ElsewhereHalved) > 0 { retention_s / 2 } else { retention_s },
            records_max: (records_max - is(Twin::ElsewhereTooSmall)).max(1) + is(Twin::ElsewhereTooLarge),
            tombstones_max: tombstones_max + is(Twin::ElsewhereTombstones),
            ..Config::default()
        };
        let routes = Routes { dedup_s: options.dedup_s, times: Cell::new(options.times()) };
        Self {
            world: World::in_memory(KEY, routes, config),
            life: 0,
            has_turn: false,
            waiting: VecDeque::new(),
            flights: BTreeMap::new(),
            late: BTreeMap::new(),
            held: Vec::new(),
            seen: Rc::default(),
            durable: Rc::default(),
            clock_ms: 0,
            reaches_ms: 0,
        }
    }

    pub(super) fn is_holding(&self) -> bool {
        self.world.database.is_holding()
    }

    /// A copy of what is committed.
    pub(super) fn copy(&self) -> Database {
        self.world.database.copy()
    }

    /// Puts the key back. Its object has ended before.
    pub(super) fn replace(&mut self, database: Database, wall_ms: i64) {
        self.world.database = database;
        self.look(wall_ms);
        self.durable = self.seen.clone();
    }

    /// Looks at what is stored, and at the latest time in it.
    fn look(&mut self, wall_ms: i64) {
        self.clock_ms = Snapshot::of(&self.world.database, None).latest_ms();
        self.reaches_ms = self.clock_ms;
        self.seen = Rc::new(View::of(&self.world.database, wall_ms.max(self.clock_ms)));
    }
}

impl Run {
    pub(super) fn follow(&mut self, asked: Rc<Asked>, has_turn: bool) -> Result<(), Violation> {
        let reply = self.ask(&asked, Some(None))?;
        self.go_on(asked, has_turn, reply)
    }

    /// The result of a call has arrived.
    pub(super) fn ended(&mut self, life: u32, number: usize, ended: Ended) -> Result<(), Violation> {
        if life != self.object.life {
            return Ok(());
        }
        let flight = self.object.flights.remove(&number).or_else(|| self.object.late.remove(&number));
        let Some(flight) = flight else { return Ok(()) };
        let Flight { asked, sent, decided_ms, decided_at_ms, has_turn } = flight.clone();
        if self.is_twin(Twin::LateAnswerTaken) && matches!(ended, Ended::Unknown(_)) {
            self.object.late.insert(number, Flight { has_turn: false, ..flight });
        }
        if self.dies("with what came of it in hand") {
            return Ok(());
        }
        let reply = self.ask(&asked, Some(Some((sent, ended, (decided_ms, decided_at_ms)))))?;
        self.go_on(asked, has_turn, reply)
    }

    /// The engine has answered. There may be a call to send first. `reply` is `None` if the object has ended.
    fn go_on(&mut self, asked: Rc<Asked>, has_turn: bool, reply: Option<Reply>) -> Result<(), Violation> {
        let Some(reply) = reply else { return Ok(()) };
        if let Some(sent) = self.object.world.take_call() {
            let (decided_ms, decided_at_ms) = (self.key_ms(Some(&reply)), self.now_ms);
            let flight = Flight { asked, sent, decided_ms, decided_at_ms, has_turn };
            let is_early = self.is_twin(Twin::SentBeforeDurable);
            return if is_early { self.send(flight) } else { self.once_durable(Then::Send(flight)) };
        }
        self.check_along(&asked, &reply)?;
        if has_turn && !self.is_twin(Twin::TurnKept) {
            self.object.has_turn = false;
        }
        self.once_durable(Then::Tell(asked, Box::new(reply)))?;
        while has_turn && !self.object.has_turn {
            let Some((next, until_ms)) = self.object.waiting.pop_front() else { break };
            self.go_on_after(next, until_ms)?;
        }
        Ok(())
    }

    /// Checks that an answer that confirms acknowledgements is right: what was acknowledged along with it is no outcome
    /// any more.
    pub(super) fn check_along(&mut self, asked: &Asked, reply: &Reply) -> Result<(), Violation> {
        if reply.header("semel-key").is_none() {
            return Ok(());
        }
        let kept = asked.along.iter().find(|wish| self.object.seen.state_of(**wish) == State::Executed);
        if !asked.along.is_empty() {
            self.oracle.see(format!("elsewhere: acknowledged along with {}", reply.only("semel-status")));
        }
        match kept.filter(|wish| **wish != asked.wish) {
            Some(wish) => {
                violation("unacknowledged", format!("{wish} was acknowledged along with {asked:?}: {reply:?}"))
            }
            None => Ok(()),
        }
    }

    /// Asks the engine to answer, to settle a call, or (`follows` is `None`) for what is known while another request
    /// has the turn. Returns `None` if the object ended.
    pub(super) fn ask(
        &mut self,
        asked: &Rc<Asked>,
        follows: Option<Option<Settles>>,
    ) -> Result<Option<Reply>, Violation> {
        self.tell_time();
        if !self.object.world.database.is_holding() && self.happens_often(self.plan.slow_commits) {
            self.oracle.see("elsewhere: commits are held back");
            self.object.world.database.hold();
            self.later(HOLD_MS_MAX, Event::Release(self.object.life));
        }
        let is_troubled = self.break_database();
        let is_under_way = self.object.flights.values().any(|flight| flight.asked.wish == asked.wish);
        let is_lost = self.is_twin(Twin::AnswerLost);
        if let (Errand::LookUp, Some(writes)) = (asked.errand, self.look_up_writes()) {
            self.object.world.database.query(writes);
        }
        let is_unknown = matches!(follows, Some(Some((_, Ended::Unknown(_), _))));
        let mistimed = self.mistime(asked, is_unknown);
        let refused = self.too_early_by_machine(asked);
        let call = refused.as_ref().unwrap_or(&asked.call);
        let world = &mut self.object.world;
        let reply = match &follows {
            None => world.wait(call),
            Some(None) => world.send(call),
            Some(Some((sent, Ended::Answered(_), _))) if is_lost => {
                world.settle(&asked.call, sent, Ended::Unknown("lost".to_owned()))
            }
            Some(Some((sent, ended, _))) => world.settle(&asked.call, sent, ended.clone()),
        };
        if let Some(statement) = mistimed {
            world.database.query(&statement);
        }
        let reply = lies::told(self.mutant, &format!("{:?}", asked.errand), reply);
        let has_crashed = world.database.has_crashed();
        world.database.calm();
        let settles = follows.flatten();
        self.note(|| {
            let how = settles.as_ref().map_or(String::new(), |(sent, ended, _)| format!(", {sent:?} has {ended:?}"));
            let code = if has_crashed { "the object ends" } else { reply.only("semel-status") };
            format!("{:?} of {}, attempt {}{how} -> {code}", asked.errand, asked.wish, asked.number)
        });
        if !has_crashed {
            self.check_clock(&reply)?;
        }
        let now_ms = self.key_ms(Some(&reply).filter(|_| !has_crashed));
        let before = if has_crashed { self.object.durable.clone() } else { self.object.seen.clone() };
        if has_crashed {
            self.oracle.see("elsewhere: the object ends between two statements");
            self.end_object();
        } else {
            self.object.seen = Rc::new(View::of(&self.object.world.database, START_MS + now_ms));
        }
        let after = self.object.seen.clone();
        let reply = Some(reply).filter(|_| !has_crashed);
        self.once_durable(Then::See(Dealt {
            asked: asked.clone(),
            settles,
            reply: reply.clone(),
            is_troubled,
            is_under_way,
            before,
            after,
            now_ms,
            forgotten_s: None,
        }))?;
        Ok(reply)
    }

    /// What a mutant's look-up does to the rows. A right one does nothing.
    fn look_up_writes(&self) -> Option<&'static str> {
        let outcome = "UPDATE semel_records SET body = CAST('another' AS BLOB) WHERE state = 1";
        let count = "UPDATE semel_records SET crashes = crashes + 1 WHERE state = 7";
        let doubt = "UPDATE semel_records SET state = 7 WHERE state = 1";
        let all = [(Twin::LookUpWrites, outcome), (Twin::LookUpCounts, count), (Twin::LookUpDoubts, doubt)];
        all.into_iter().find(|(twin, _)| self.is_twin(*twin)).map(|(_, writes)| writes)
    }

    /// Chooses a fault in the database. Returns whether there is one.
    fn break_database(&mut self) -> bool {
        let n = self.rng.u64(0..STATEMENTS_MAX);
        let (crash, full, fail) = (self.plan.crash_server, self.plan.full_disk, self.plan.fail_statements);
        let (crash, full, fail) = (self.happens_often(crash), self.happens_often(full), self.happens_often(fail));
        let database = &self.object.world.database;
        if crash {
            database.crash_before(n);
        } else if full {
            database.full(n);
        } else if fail {
            database.fail(n);
        }
        crash || full || fail
    }

    pub(super) fn once_durable(&mut self, then: Then) -> Result<(), Violation> {
        if self.object.world.database.is_holding() {
            self.object.held.push(then);
            return Ok(());
        }
        self.durably(then)
    }

    fn durably(&mut self, then: Then) -> Result<(), Violation> {
        match then {
            Then::See(dealt) => {
                self.object.durable = dealt.after.clone();
                self.oracle.dealt(&dealt)
            }
            Then::Send(_) if self.dies("before it sends") => Ok(()),
            Then::Send(flight) => self.send(flight),
            Then::Tell(..) if self.dies("before it answers") => Ok(()),
            Then::Tell(asked, reply) => self.tell(asked, reply),
        }
    }

    /// Makes durable what was held back.
    pub(super) fn release(&mut self, life: u32) -> Result<(), Violation> {
        if life != self.object.life || !self.object.world.database.is_holding() {
            return Ok(());
        }
        self.object.world.database.release();
        for then in std::mem::take(&mut self.object.held) {
            // What was committed stays, even if the object ends before everything is sent and told.
            if self.object.life == life || matches!(then, Then::See(_)) {
                self.durably(then)?;
            }
        }
        Ok(())
    }

    fn dies(&mut self, when: &'static str) -> bool {
        let dies = self.happens_often(self.plan.remote.dies);
        if dies {
            self.oracle.see(format!("elsewhere: the object ends {when}"));
            self.note(|| format!("the object ends {when}"));
            self.end_object();
        }
        dies
    }

    /// Ends the object, with everything that waits in it and is not durable yet. The next request starts it again.
    pub(super) fn end_object(&mut self) {
        let object = &mut self.object;
        object.life += 1;
        object.has_turn = false;
        object.waiting.clear();
        object.flights.clear();
        object.late.clear();
        object.held.clear();
        object.world.restart();
        let wall_ms = self.wall_ms();
        self.object.look(wall_ms);
    }

    /// The times of the current deployment.
    pub(super) fn times(&self) -> Times {
        self.object.world.handler.times.get()
    }

    /// Deploys the key anew with other times, and perhaps with another retention. What is in doubt was sent with the
    /// former times.
    pub(super) fn deploy(&mut self) {
        let times = self.times().others(&mut self.rng);
        let retention_s = self.plan.remote.retentions_s[self.room.usize(0..2)];
        self.oracle.see("elsewhere: other times are set");
        self.note(|| format!("it is deployed anew, with {times:?}, and the retention {retention_s} s"));
        self.end_object();
        let is_halved = self.is_twin(Twin::ElsewhereHalved);
        self.object.world.restart_with(|config| {
            config.retention_s = if is_halved { retention_s / 2 } else { retention_s };
        });
        self.object.world.handler.times.set(times);
        if self.is_twin(Twin::TimesForgotten) {
            self.object
                .world
                .database
                .query("UPDATE semel_records SET executed = NULL WHERE state = 7 AND executed < 0");
        }
    }

    /// Lets an administrator have the key forget.
    pub(super) fn forget(&mut self, asked: &Rc<Asked>, before_s: i64) -> Result<(), Violation> {
        self.tell_time();
        let before = self.object.seen.clone();
        // If this fails, the key is told again some time.
        drop(self.object.world.forget(before_s));
        let now_ms = self.key_ms(None);
        self.object.seen = Rc::new(View::of(&self.object.world.database, START_MS + now_ms));
        let after = self.object.seen.clone();
        let asked = asked.clone();
        self.once_durable(Then::See(Dealt {
            asked,
            settles: None,
            reply: None,
            is_troubled: false,
            is_under_way: false,
            before,
            after,
            now_ms,
            forgotten_s: Some(before_s),
        }))
    }

    /// What the key stores, as its object sees it.
    pub(super) fn seen(&self) -> Rc<View> {
        self.object.seen.clone()
    }
}
