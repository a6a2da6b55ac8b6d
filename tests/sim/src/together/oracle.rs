//! What must hold of what is committed together.
//!
//! Invariants:
//! - It rests on what is committed, on what was answered and on the order in which requests came.
//! - Of what came to the same object, what has no turn of its own takes effect in the order in which it came, whatever became of the others.
//!   An answer leaves once its effect is durable.

use super::run::{Asked, Errand, KEY, STRANGER};
use crate::deposits::outcome;
use crate::oracle::history::History;
use crate::oracle::{Violation, violation};
use crate::snapshot::Effect;
use semel_support::Reply;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A request that the object has answered.
#[derive(Debug)]
pub struct Dealt {
    pub asked: Rc<Asked>,
    pub reply: Reply,
    /// Whether it had the object to itself.
    pub is_alone: bool,
}

impl Dealt {
    fn is(&self, errand: Errand, code: &str) -> bool {
        self.asked.errand == errand && self.reply.only("semel-status") == code
    }

    fn count(&self) -> i64 {
        self.reply.json()["count"].as_i64().unwrap_or(-1)
    }
}

/// What it remembers.
#[derive(Default)]
pub struct Oracle {
    /// The effects that are durable, in their order.
    durable: Vec<String>,
    /// The last that this object has worked of what had it not to itself.
    latest: u64,
    /// Of these it was said that they never run.
    never: BTreeSet<usize>,
    history: History,
    pub seen: BTreeSet<String>,
}

impl Oracle {
    /// Somebody begins to want something.
    pub fn wished(&mut self, number: usize, errand: Errand) {
        match errand {
            Errand::Deposit | Errand::Cancel => self.history.deposits(number, KEY),
            Errand::Read => self.history.reads(number, KEY),
            Errand::Other => {}
        }
    }

    /// How many effects are durable.
    pub fn durable(&self) -> i64 {
        self.durable.len() as i64
    }

    /// A commit is durable, and these effects with it.
    pub fn committed(&mut self, dealt: &[Dealt], effects: &[Effect]) -> Result<(), Violation> {
        let is_late =
            |Asked { deadline_ms, turn_ms, .. }: &Asked| deadline_ms.is_some_and(|by_ms| by_ms < turn_ms.get());
        if let Some(late) = dealt.iter().find(|dealt| dealt.is(Errand::Deposit, "executed") && is_late(&dealt.asked)) {
            return violation("late", format!("{} ran past its deadline", late.asked.line()));
        }
        let mut in_order: Vec<&Dealt> = dealt.iter().collect();
        in_order.sort_by_key(|dealt| dealt.asked.arrived.get());
        let executed = in_order.iter().filter(|dealt| dealt.is(Errand::Deposit, "executed"));
        let expected: Vec<String> = executed.map(|dealt| dealt.asked.number.to_string()).collect();
        let found: Vec<&String> = effects.iter().map(|effect| &effect.number).collect();
        if !expected.iter().eq(found.iter().copied()) {
            let is_order = expected.iter().collect::<BTreeSet<_>>() == found.iter().copied().collect()
                && expected.len() == found.len();
            let kind = if is_order { "order" } else { "effects" };
            return violation(
                kind,
                format!("{expected:?} ran in this order by what was answered, and {found:?} is there"),
            );
        }
        if let Some(again) = expected.iter().find(|number| self.durable.contains(number)) {
            return violation("twice", format!("{again} ran again"));
        }
        if let Some(never) = self.never.iter().find(|number| expected.contains(&number.to_string())) {
            return violation("never", format!("{never} ran, of which it was said that it never will"));
        }
        for dealt in in_order.iter().filter(|dealt| !dealt.is_alone) {
            if dealt.asked.arrived.get() < self.latest {
                let line = dealt.asked.line();
                return violation("order", format!("{line} was worked after arrival {}", self.latest));
            }
            self.latest = dealt.asked.arrived.get();
        }
        let mut count = self.durable();
        for dealt in in_order {
            count += i64::from(dealt.is(Errand::Deposit, "executed"));
            let counts = dealt.is(Errand::Deposit, "executed") || dealt.is(Errand::Read, "read");
            if counts && dealt.count() != count {
                let (said, line) = (dealt.count(), dealt.asked.line());
                let kind = if dealt.asked.errand == Errand::Read { "order" } else { "outcome" };
                return violation(kind, format!("{line} was answered {said} where there were {count}"));
            }
        }
        self.durable.extend(expected);
        Ok(())
    }

    /// The object has ended; these effects are there beyond those that were durable.
    pub fn ended(&mut self, effects: &[Effect]) -> Result<(), Violation> {
        self.latest = 0;
        match effects {
            [] => Ok(()),
            effects => violation("effects", format!("of an object that ended {effects:?} stays")),
        }
    }

    /// An answer leaves.
    pub fn told(&mut self, asked: &Asked, reply: &Reply) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        self.seen.insert(format!("together, {:?}: {code}", asked.errand));
        let number = asked.number.to_string();
        let ran = self.durable.iter().position(|ran| *ran == number);
        let has_run = ran.is_some();
        match (asked.errand, code) {
            (Errand::Deposit, "executed" | "replayed") => {
                let Some(before) = ran else {
                    return violation("early", format!("{} was told before its effect was durable", asked.line()));
                };
                if (reply.status(), reply.body().to_vec()) == outcome(&number, before as i64 + 1) {
                    return Ok(());
                }
                violation(
                    "outcome",
                    format!("{} was told {}, and is number {}", asked.line(), reply.text(), before + 1),
                )
            }
            (Errand::Cancel, "executed" | "replayed") if reply.body().starts_with(b"{\"state\":\"cancelled\"") => {
                self.never.insert(asked.number);
                if has_run { violation("lie", format!("{} ran", asked.line())) } else { Ok(()) }
            }
            (Errand::Deposit, "poisoned") if has_run => violation("lie", format!("{} ran", asked.line())),
            (Errand::Deposit, "attempt-expired")
                if asked.deadline_ms.is_none_or(|by_ms| by_ms >= asked.turn_ms.get()) =>
            {
                violation("late", format!("{} was in time, and was told {code}", asked.line()))
            }
            (Errand::Deposit, _) if reply.field("retry") == "never" => self.told_for_good(asked, reply, has_run),
            (Errand::Other, "fingerprint-mismatch" | "unavailable") => Ok(()),
            (Errand::Other, "acknowledged") if asked.call.principal() != STRANGER => Ok(()),
            (Errand::Other, _) => violation("stranger", format!("{} was told {code}", asked.line())),
            (Errand::Read, "read") if reply.json()["count"].as_i64() > Some(self.durable()) => {
                violation("early", format!("{} was told of what was not durable", asked.line()))
            }
            _ => Ok(()),
        }
    }

    /// Somebody is told that there will be no outcome, and whether there was one.
    fn told_for_good(&mut self, asked: &Asked, reply: &Reply, has_run: bool) -> Result<(), Violation> {
        let executed = reply.field("executed");
        let is_so = match executed.as_str() {
            "no" => {
                self.never.insert(asked.number);
                !has_run
            }
            "yes" => has_run,
            _ => true,
        };
        if is_so {
            return Ok(());
        }
        let code = reply.only("semel-status");
        violation("lie", format!("{} was told {code}, {executed}, and has run: {has_run}", asked.line()))
    }

    /// Somebody has an answer.
    pub fn heard(&mut self, number: usize, reply: &Reply) {
        self.history.returned(number, reply.body());
    }

    /// All is over, and these effects are there.
    pub fn check_end(&self, effects: &[Effect]) -> Result<(), Violation> {
        if !effects.iter().map(|effect| &effect.number).eq(&self.durable) {
            return violation("lost", format!("{:?} was durable, and {effects:?} is there", self.durable));
        }
        self.history.check(|number| self.durable.contains(&number.to_string()))
    }
}
