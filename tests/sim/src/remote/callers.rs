//! Who asks: callers who ask until they have a definitive answer, others who ask besides, and an administrator.
//!
//! Invariants:
//! - Each attempt of a request has the same id, body and first-sent. A caller who has acknowledged asks no more.
//! - What an administrator says of a request in doubt is chosen at random. Whatever it is, it holds from then on.

use super::asked::{Asked, BY_HAND, Errand, Route, State, id_of};
use super::routes::path_of;
use super::run::{Event, Run};
use crate::mutant::Twin;
use crate::oracle::Violation;
use semel_support::{Call, Reply, START_MS, START_S, acknowledge, admin, get, look_up, post};
use std::rc::Rc;

/// The longest that a message is under way, if it is not slow and if it is, in ms.
const WAY_MS_MAX: i64 = 50;
const SLOW_WAY_MS_MAX: i64 = 20_000;
/// The share of messages that are slow, in percent.
const SLOW_PERCENT: u32 = 10;

/// A wish: something that a caller wants once.
#[derive(Debug, Clone)]
pub struct Wish {
    pub route: Route,
    pub first_sent_s: Option<i64>,
    /// How long after it is sent an attempt is too late, in ms, for attempts with a deadline.
    lives_ms: Option<i64>,
    /// Whether all attempts have a deadline.
    is_bounded: bool,
    waits_s: Option<u32>,
    is_asked: bool,
    pub is_done: bool,
    has_outcome: bool,
    is_acked: bool,
    /// The latest deadline of its attempts, in Unix ms.
    until_ms: i64,
}

impl Run {
    pub(super) fn any_wish(&mut self, at_ms: i64) -> Wish {
        let lives_ms = (self.rng.u32(0..3) > 0).then(|| [2_000, 15_000, 60_000][self.rng.usize(0..3)]);
        Wish {
            route: Route::ALL[self.rng.usize(0..3)],
            first_sent_s: (self.rng.u32(0..4) > 0).then_some(START_S + at_ms.div_euclid(1000)),
            lives_ms,
            is_bounded: lives_ms.is_some() && self.rng.u32(0..4) > 0,
            waits_s: self.rng.bool().then(|| [1, 4, 20][self.rng.usize(0..3)]),
            is_asked: false,
            is_done: false,
            has_outcome: false,
            is_acked: false,
            until_ms: 0,
        }
    }

    /// Sends an attempt for a wish, until there is an answer.
    pub(super) fn ask_for(&mut self, wish: usize) {
        if self.wishes[wish].is_done {
            return;
        }
        let call = self.attempt_of(wish);
        self.post(wish, Errand::Request, call);
        let pause_ms = self.plan.remote.interval_ms + self.rng.i64(0..=self.plan.remote.interval_ms);
        self.push(self.now_ms + pause_ms, Event::Ask(wish));
    }

    fn attempt_of(&mut self, wish: usize) -> Call {
        if !self.wishes[wish].is_asked {
            self.first_sent(wish);
        }
        let now_ms = START_MS + self.caller_ms();
        let has_deadline = self.wishes[wish].is_bounded || self.rng.bool();
        let Wish { route, first_sent_s, lives_ms, waits_s, until_ms, is_asked, .. } = &mut self.wishes[wish];
        *is_asked = true;
        let mut call = post(&path_of(*route, wish)).id(&id_of(wish)).body(wish.to_string());
        if let Some(first_sent_s) = first_sent_s {
            call = call.first_sent_s(*first_sent_s);
        }
        if let Some(lives_ms) = lives_ms.filter(|_| has_deadline) {
            *until_ms = (*until_ms).max(now_ms + lives_ms);
            call = call.deadline_ms(now_ms + lives_ms);
        }
        if let Some(waits_s) = waits_s {
            call = call.header("prefer", format!("wait={waits_s}"));
        }
        call
    }

    pub(super) fn made_of(&mut self, wish: usize, errand: Errand, call: Call) -> Rc<Asked> {
        self.asked += 1;
        Rc::new(Asked { number: self.asked, wish, errand, call, along: Vec::new() })
    }

    /// Puts acknowledgements of some of what has an answer along with a message.
    fn along_with(&mut self, mut asked: Asked) -> Asked {
        if self.room.u32(0..100) >= self.plan.remote.along || !asked.errand.carries() {
            return asked;
        }
        for n in 0..self.wishes.len() {
            let wish = &mut self.wishes[n];
            if n == asked.wish || !wish.has_outcome || self.room.bool() {
                continue;
            }
            wish.is_acked = true;
            let Wish { is_bounded, until_ms, .. } = *wish;
            self.oracle.acknowledged(n);
            asked.along.push(n);
            if self.is_twin(Twin::AlongForgotten) {
                continue;
            }
            let (id, call) = (id_of(n), asked.call);
            asked.call = if is_bounded { call.ack_until(&id, until_ms) } else { call.ack(&id) };
        }
        asked
    }

    /// Sends a message to the key, perhaps twice, or loses it.
    fn post(&mut self, wish: usize, errand: Errand, call: Call) {
        let asked = self.made_of(wish, errand, call);
        let asked = Rc::new(self.along_with((*asked).clone()));
        if self.happens_often(self.plan.lose_requests) {
            self.note(|| format!("{errand:?} of {wish}, attempt {}, is lost", asked.number));
            return;
        }
        let way_ms = self.way_ms();
        if self.happens_often(self.plan.repeat) {
            // Each message that arrives is an attempt of its own.
            let again = self.made_of(wish, errand, asked.call.clone());
            let again = Rc::new(Asked { along: asked.along.clone(), ..(*again).clone() });
            self.later(way_ms, Event::Arrival(again));
        }
        self.later(way_ms, Event::Arrival(asked));
    }

    fn way_ms(&mut self) -> i64 {
        if self.happens_often(SLOW_PERCENT) { SLOW_WAY_MS_MAX } else { WAY_MS_MAX }
    }

    /// Checks an answer that leaves the key, and sends or loses it.
    pub(super) fn tell(&mut self, asked: Rc<Asked>, reply: Box<Reply>) -> Result<(), Violation> {
        self.oracle.told(&asked, &reply, self.now_ms)?;
        if !self.happens_often(self.plan.lose_answers) {
            let way_ms = self.way_ms();
            self.later(way_ms, Event::Told(asked, reply));
        }
        Ok(())
    }

    /// A caller gets an answer.
    pub(super) fn told(&mut self, asked: &Asked, reply: &Reply) {
        self.hears(reply);
        if asked.errand != Errand::Request {
            return;
        }
        let is_outcome = matches!(reply.only("semel-status"), "executed" | "replayed");
        let wish = &mut self.wishes[asked.wish];
        wish.has_outcome |= is_outcome;
        wish.is_done |= is_outcome || reply.field("retry") == "never";
    }

    /// Asks for something besides, though there may be an answer.
    pub(super) fn ask_besides(&mut self) -> Result<(), Violation> {
        let n = self.rng.usize(0..self.wishes.len());
        let Wish { is_asked, is_acked, has_outcome, is_done, until_ms, is_bounded, first_sent_s, .. } = self.wishes[n];
        if !is_asked {
            return Ok(());
        }
        let id = id_of(n);
        match self.rng.u32(0..8) {
            0 | 1 if !is_acked => {
                let call = self.attempt_of(n);
                self.post(n, Errand::Request, call);
            }
            2 => {
                // About a request that is under way, if there is one: that is when the answer matters.
                let n = self.object.flights.values().next().map_or(n, |flight| flight.asked.wish);
                self.post(n, Errand::LookUp, look_up(&id_of(n)));
            }
            3 if !is_acked => {
                let first_sent =
                    first_sent_s.map_or(String::new(), |first_sent_s| format!(",\"firstSent\":{first_sent_s}"));
                let own = format!("cancel-{}", self.asked);
                let call = post(&semel_support::call::control("cancel")).id(&own);
                self.post(n, Errand::Cancel, call.body(format!("{{\"id\":\"{id}\"{first_sent}}}")));
            }
            // An acknowledgement of a request that stays in doubt has no effect.
            4 | 5 if has_outcome || is_done => {
                self.wishes[n].is_acked = true;
                self.oracle.acknowledged(n);
                let until = if is_bounded { format!(",\"until\":{until_ms}") } else { String::new() };
                self.post(n, Errand::Acknowledge, acknowledge(&format!("[{{\"id\":\"{id}\"{until}}}]")));
            }
            6 => self.post(n, Errand::Read, get(&path_of(self.wishes[n].route, n))),
            _ => return self.be_strange(n),
        }
        Ok(())
    }

    /// Somebody asks under an id that belongs to another principal, or to another body.
    fn be_strange(&mut self, n: usize) -> Result<(), Violation> {
        if !matches!(self.seen().state_of(n), State::InDoubt | State::Executed) {
            return Ok(());
        }
        let call = post(&path_of(self.wishes[n].route, n)).id(&id_of(n));
        let call = if self.rng.bool() { call.body(n.to_string()).by("mallory") } else { call.body("another") };
        let asked = self.made_of(n, Errand::Strange, call);
        self.arrive(asked)
    }

    /// Lets an administrator act on a request, usually one in doubt.
    pub(super) fn administer(&mut self, n: usize) -> Result<(), Violation> {
        let seen = self.seen();
        let in_doubt: Vec<usize> =
            seen.0.keys().copied().filter(|wish| seen.state_of(*wish) == State::InDoubt).collect();
        let wish = match in_doubt.as_slice() {
            [] => self.rng.usize(0..self.wishes.len()),
            in_doubt => in_doubt[self.rng.usize(0..in_doubt.len())],
        };
        let (id, own) = (id_of(wish), format!("admin-{n}"));
        let (errand, call) = match self.rng.u32(0..10) {
            0..=2 => {
                let word = if self.is_twin(Twin::ResolvedOtherwise) { "another" } else { BY_HAND };
                let body = format!("{{\"executed\":\"yes\",\"outcome\":{{\"status\":200,\"body\":\"{word}\"}}}}");
                (Errand::Resolve(true), admin::resolve(&own, &id, &body))
            }
            3 | 4 => (Errand::Resolve(false), admin::resolve(&own, &id, "{\"executed\":\"no\"}")),
            5..=7 => (Errand::DeleteRecord, admin::delete_record(&own, &id)),
            8 => (Errand::DeleteKey, admin::delete_key(&own)),
            _ => {
                let asked = self.made_of(wish, Errand::Forget, admin::ask(""));
                let before_s = START_S + self.key_ms(None).div_euclid(1000) - self.rng.i64(0..=5);
                self.note(|| format!("the key forgets what was first sent before {before_s}"));
                return self.forget(&asked, before_s);
            }
        };
        let asked = self.made_of(wish, errand, call);
        self.arrive(asked)
    }
}
