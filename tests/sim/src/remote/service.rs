//! The service where requests are executed, and the network on the way there.
//!
//! Invariants:
//! - A request that has left may arrive at any time until it has been under way for as long as the options say, whether
//!   or not anybody still waits for it, or never.
//! - If the key is told that nothing has left, nothing has.
//! - The service knows the ids of one route, for as long as the options say. It does not make anything again for an id
//!   that it knows or works at.

use super::asked::{Asked, MADE, Route};
use super::host::Flight;
use super::run::{Event, Run};
use crate::mutant::Twin;
use crate::oracle::Violation;
use semel_core::message::{Headers, Response};
use semel_core::server::engine::remote::{Call as Sent, Ended};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The longest that a message is under way if it is not slow, in ms.
const WAY_MS_MAX: i64 = 50;
/// The share of requests at which a service that knows ids works for the longest time, in percent.
const WORKS_LONG_PERCENT: u32 = 30;
/// Answers of something in front of the service, like a login, a limit, or a proxy that does not find it.
const REFUSALS: [u16; 8] = [401, 403, 404, 405, 408, 410, 421, 429];
/// Answers that are no outcome of anything.
const FAILURES: [u16; 4] = [500, 503, 302, 599];
/// Answers to a probe that say nothing.
const UNCLEAR: [u16; 4] = [500, 204, 403, 302];

/// A message that is under way, or that the service works at.
#[derive(Debug, Clone)]
struct Message {
    asked: Rc<Asked>,
    sent: Sent,
    /// By this instant it has had its effect, or never will.
    ends_ms: i64,
    life: u32,
}

/// The service.
#[derive(Debug, Default)]
pub struct Service {
    /// Until then the service is gone.
    pub gone_until_ms: i64,
    messages: BTreeMap<usize, Message>,
    /// For each wish, the messages that made it, and when.
    made: BTreeMap<usize, Vec<(usize, i64)>>,
    /// The wishes that the service works at.
    working: BTreeSet<usize>,
    sent: usize,
}

impl Run {
    /// Sends the call that the engine decided on.
    pub(super) fn send(&mut self, flight: Flight) -> Result<(), Violation> {
        self.service.sent += 1;
        let (number, life, soon_ms) = (self.service.sent, self.object.life, self.now_ms + WAY_MS_MAX);
        let is_gone = self.service.gone_until_ms > self.now_ms;
        let late = Event::Ended(life, number, Ended::Unknown("no answer in time".to_owned()));
        let times = self.times();
        self.push(self.now_ms + times.timeout_ms, late);
        let Flight { asked, sent, decided_ms, decided_at_ms, .. } = &flight;
        let (asked, sent, decided) = (asked.clone(), sent.clone(), (*decided_ms, *decided_at_ms));
        self.object.flights.insert(number, flight);
        if self.happens_often(self.plan.remote.unreachable) || (is_gone && self.rng.bool()) {
            self.note(|| format!("{number}: {sent:?} for {} does not leave", asked.wish));
            self.push(soon_ms, Event::Ended(life, number, Ended::Unreachable("refused".to_owned())));
            return Ok(());
        }
        self.note(|| format!("{number}: {sent:?} for {} leaves", asked.wish));
        self.oracle.left(number, &asked, &sent, (decided, self.now_ms, times), &self.object.durable)?;
        self.may_jump_amid();
        if is_gone || self.happens_often(self.plan.remote.lose) {
            self.note(|| format!("{number}: is lost"));
            self.cut(number, life);
            return Ok(());
        }
        let ends_ms = self.now_ms + times.transit_ms;
        let at_ms = self.some_time(ends_ms);
        self.service.messages.insert(number, Message { asked, sent, ends_ms, life });
        self.push(at_ms, Event::Reached(number));
        Ok(())
    }

    /// An instant until `ends_ms`. Most are soon.
    fn some_time(&mut self, ends_ms: i64) -> i64 {
        let is_slow = self.happens_often(self.plan.remote.slow);
        let most_ms = if is_slow { ends_ms - self.now_ms } else { (ends_ms - self.now_ms).min(WAY_MS_MAX) };
        self.now_ms + self.rng.i64(0..=most_ms.max(0))
    }

    /// Loses a message. A broken connection is noticed; a message that vanishes is not.
    fn cut(&mut self, number: usize, life: u32) {
        if self.rng.bool() {
            let reason = "the connection was lost".to_owned();
            let is_taken = self.is_twin(Twin::BrokenIsUnsent);
            let ended = if is_taken { Ended::Unreachable(reason) } else { Ended::Unknown(reason) };
            self.later(WAY_MS_MAX, Event::Ended(life, number, ended));
        }
    }

    /// A message arrives at the service.
    pub(super) fn reached(&mut self, number: usize) -> Result<(), Violation> {
        let Some(message) = self.service.messages.get(&number).cloned() else { return Ok(()) };
        let Message { asked, sent, ends_ms, .. } = &message;
        let made = self.service.made.get(&asked.wish).filter(|_| !self.forgets(asked.wish));
        let made = made.cloned().unwrap_or_default();
        let fails = self.happens_often(self.plan.remote.fail);
        match sent {
            Sent::Probe { .. } if fails => {
                let status = UNCLEAR[self.rng.usize(0..UNCLEAR.len())];
                self.answer(number, status, String::new())
            }
            Sent::Probe { .. } => match made.first() {
                Some((by, _)) => self.answer(number, 200, body_of(*by)),
                None => self.answer(number, 404, String::new()),
            },
            Sent::Dispatch { .. } if self.happens_often(self.plan.remote.refuse) => {
                let status = REFUSALS[self.rng.usize(0..REFUSALS.len())];
                let status = if self.is_twin(Twin::ServiceRefuses) { 422 } else { status };
                self.oracle.see("elsewhere: refused in front of the service");
                self.answer(number, status, format!("refused {number}"))
            }
            Sent::Dispatch { .. } if fails && self.rng.bool() => self.fail(number),
            Sent::Dispatch { .. } => {
                let route = self.wishes[asked.wish].route;
                let knows_ms = self.plan.remote.knows_ms();
                let known = made.iter().rfind(|(_, at_ms)| route == Route::Resend && self.now_ms < at_ms + knows_ms);
                if let Some((by, _)) = known {
                    self.oracle.see("elsewhere: the service knows the id");
                    return self.answer(number, status_of(asked.wish), body_of(*by));
                }
                if route == Route::Resend && !self.service.working.insert(asked.wish) {
                    self.oracle.see("elsewhere: the service works at the id");
                    return self.answer(number, 409, format!("refused {number}"));
                }
                // Often it is sent again while the service works at it.
                let takes_long = route == Route::Resend && self.happens_often(WORKS_LONG_PERCENT);
                let at_ms = if takes_long { *ends_ms } else { self.some_time(*ends_ms) };
                self.push(at_ms, Event::Made(number));
                Ok(())
            }
        }
    }

    /// Whether a mutant of the service forgets what it made for a wish.
    fn forgets(&self, wish: usize) -> bool {
        let is_mistimed = self.is_twin(Twin::ServiceForgetsMistimed) && self.oracle.is_mistimed(wish);
        is_mistimed || self.is_twin(Twin::ServiceForgets)
    }

    /// The service has done what a message asks for.
    pub(super) fn made(&mut self, number: usize) -> Result<(), Violation> {
        let Some(Message { asked, .. }) = self.service.messages.get(&number).cloned() else { return Ok(()) };
        self.service.working.remove(&asked.wish);
        self.service.made.entry(asked.wish).or_default().push((number, self.now_ms));
        self.note(|| format!("{number}: makes {} at the service", asked.wish));
        self.oracle.made(number, asked.wish)?;
        if self.happens_often(self.plan.remote.fail) {
            self.fail(number)
        } else {
            self.answer(number, status_of(asked.wish), body_of(number))
        }
    }

    fn fail(&mut self, number: usize) -> Result<(), Violation> {
        let status = FAILURES[self.rng.usize(0..FAILURES.len())];
        self.answer(number, status, String::new())
    }

    fn answer(&mut self, number: usize, status: u16, body: String) -> Result<(), Violation> {
        let Some(Message { asked, sent, life, .. }) = self.service.messages.remove(&number) else { return Ok(()) };
        self.note(|| format!("{number}: {} is answered {status} {body}", asked.wish));
        self.oracle.service_says(number, &asked, &sent, (status, &body));
        if self.happens_often(self.plan.remote.lose_answers) {
            self.cut(number, life);
            return Ok(());
        }
        let response = Response { status, headers: Headers::new(), body: body.into_bytes() };
        self.later(WAY_MS_MAX, Event::Ended(life, number, Ended::Answered(response)));
        Ok(())
    }
}

/// What the service says of what a message made.
pub fn body_of(number: usize) -> String {
    format!("{MADE}{number}")
}

/// The status of the outcome, which may also be an error of the application.
fn status_of(wish: usize) -> u16 {
    if wish % 5 == 4 { 422 } else { 201 }
}
