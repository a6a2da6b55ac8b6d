//! The oracle of requests that are committed together: checks what must hold for effects and answers.
//!
//! Invariants:
//! - Its judgement depends on what is committed, on what was answered, and on the order in which requests arrived.
//! - Requests that arrived at the same object and need no turn of their own take effect in the order of their arrival,
//!   whatever became of the others. An answer leaves once its effect is durable.
//! - What is promised of an id ends when the fence has passed its first-sent, or without first-sent after a retention.
//!   If a backup is restored, everything promised since the backup is void.

use super::asked::{Asked, Errand};
use super::deletion::Deleted;
use super::options::Options;
use super::room::Room;
use super::run::{KEY, STRANGER};
use crate::deposits::outcome;
use crate::oracle::history::History;
use crate::oracle::{Violation, violation};
use crate::snapshot::Effect;
use semel_support::Reply;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A request that crashed so often never runs again.
const CRASHES: u32 = 3;

/// A request that the object has answered.
#[derive(Debug)]
pub struct Dealt {
    pub asked: Rc<Asked>,
    pub reply: Reply,
    /// Whether it had the object to itself.
    pub is_alone: bool,
}

impl Dealt {
    pub(super) fn is(&self, errand: Errand, code: &str) -> bool {
        self.asked.errand == errand && self.reply.only("semel-status") == code
    }

    fn count(&self) -> i64 {
        self.reply.json()["count"].as_i64().unwrap_or(-1)
    }
}

/// A request whose effect is durable.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    pub number: usize,
    pub first_sent_s: Option<i64>,
    pub at_ms: i64,
}

/// What the oracle knows of what is durable.
#[derive(Debug, Clone, Default)]
pub struct Durable {
    /// The requests that ran, in the order of their effects.
    pub(super) ran: Vec<Ran>,
    /// The requests that will not run from now on, as was said.
    never: BTreeSet<usize>,
    /// The requests whose start is counted, and not that it has ended.
    started: BTreeSet<usize>,
    pub(super) fence_s: i64,
    pub(super) room: Room,
}

/// The oracle.
pub struct Oracle {
    pub(super) durable: Durable,
    /// The last request that this object has handled, of those that did not have it to themselves.
    latest: u64,
    /// The requests that a caller has begun to acknowledge, and until when attempts of each may arrive.
    pub(super) acknowledged: BTreeMap<usize, Option<i64>>,
    /// The requests that a caller has given up.
    given_up: BTreeSet<usize>,
    /// How often a request may be counted to have ended its process, at most.
    blamed: BTreeMap<usize, u32>,
    /// The latest time that the key was told, in Unix ms.
    pub latest_ms: i64,
    /// The current retention and the shortest so far, in seconds.
    retention_s: i64,
    pub(super) retention_s_min: i64,
    /// The fence is no further than this, in Unix seconds.
    pub(super) reaches_s: i64,
    /// Whether requests without first-sent may be forgotten.
    forgets: bool,
    pub(super) deleted: Deleted,
    pub(super) records_max: u64,
    pub(super) tombstones_max: u64,
    history: History,
    pub seen: BTreeSet<String>,
}

impl Oracle {
    pub fn new(options: &Options) -> Self {
        let retentions_s = options.retentions_s;
        Self {
            durable: Durable::default(),
            latest: 0,
            acknowledged: BTreeMap::new(),
            given_up: BTreeSet::new(),
            blamed: BTreeMap::new(),
            latest_ms: 0,
            retention_s: retentions_s[0],
            retention_s_min: retentions_s[0].min(retentions_s[1]),
            reaches_s: 0,
            forgets: options.is_forgetful(),
            deleted: Deleted::default(),
            records_max: options.records_max,
            tombstones_max: options.tombstones_max,
            history: History::default(),
            seen: BTreeSet::new(),
        }
    }

    /// Takes note that the key is told the time.
    pub fn passes(&mut self, wall_ms: i64) {
        self.latest_ms = self.latest_ms.max(wall_ms);
        self.reaches_s = self.reaches_s.max(self.latest_ms.div_euclid(1000) - self.retention_s);
    }

    /// Takes note that the key has another retention.
    pub fn is_deployed(&mut self, retention_s: i64) {
        self.retention_s = retention_s;
    }

    /// Takes note that the key is told to forget, which it may or may not do.
    pub fn asked_to_forget(&mut self, before_s: i64) {
        self.reaches_s = self.reaches_s.max(before_s);
    }

    /// Checks that a key that confirmed that it has forgotten has done so.
    pub fn forgotten(&self, before_s: i64) -> Result<(), Violation> {
        // A key that nobody has used has nothing to forget.
        if self.durable.ran.is_empty() || self.durable.fence_s >= before_s {
            return Ok(());
        }
        let fence_s = self.durable.fence_s;
        violation(
            "early",
            format!("what was first sent before {before_s} is said to be forgotten, and the fence is at {fence_s}"),
        )
    }

    /// Takes note that a caller acknowledges, and sends nothing more. `until_ms`: the latest deadline, if all attempts
    /// had one.
    pub fn acknowledges(&mut self, number: usize, until_ms: Option<i64>) {
        self.acknowledged.insert(number, until_ms);
    }

    /// Takes note that a caller gives up.
    pub fn gives_up(&mut self, number: usize) {
        self.given_up.insert(number);
    }

    /// Takes note that a start is counted.
    pub fn starts(&mut self, number: usize) {
        self.durable.started.insert(number);
    }

    /// Takes note that a request crashed.
    pub fn crashes(&mut self, number: usize) {
        self.durable.started.remove(&number);
        *self.blamed.entry(number).or_default() += 1;
        self.forgets_starts();
    }

    /// Takes note that the key was deleted, and nothing else done in that commit: its crashes count no more.
    pub(super) fn forgets_crashes(&mut self) {
        self.durable.started.clear();
        self.blamed.clear();
    }

    /// Takes note that nobody can tell any more in which order everything happened.
    pub(super) fn history_is_void(&mut self) {
        self.history.is_no_longer_promised(KEY);
    }

    /// Takes note that the object ended: nobody knows any more of which starts the end could not be written.
    pub fn forgets_starts(&mut self) {
        for number in std::mem::take(&mut self.durable.started) {
            *self.blamed.entry(number).or_default() += 1;
        }
    }

    /// What a backup contains.
    pub fn backup(&self) -> Durable {
        self.durable.clone()
    }

    /// Takes note that a backup is restored. Answers since the backup are to requests that no longer exist.
    pub fn put_back(&mut self, durable: Durable) {
        self.durable = durable;
        self.forgets_starts();
        self.history.is_no_longer_promised(KEY);
    }

    /// Whether a definitive answer to a request holds for all time.
    fn is_promised(&self, asked: &Asked) -> bool {
        asked.first_sent_s.is_some() || !self.forgets
    }

    /// Takes note of a wish.
    pub fn wished(&mut self, number: usize, errand: Errand) {
        match errand {
            Errand::Deposit | Errand::Cancel => self.history.deposits(number, KEY),
            Errand::Read => self.history.reads(number, KEY),
            Errand::Other | Errand::Delete => {}
        }
    }

    /// How many effects are durable.
    pub fn durable(&self) -> i64 {
        self.durable.ran.len() as i64
    }

    /// Checks a commit that is durable, with these effects.
    pub fn committed(&mut self, dealt: &[Dealt], effects: Vec<Effect>) -> Result<(), Violation> {
        let is_late =
            |Asked { deadline_ms, turn_ms, .. }: &Asked| deadline_ms.is_some_and(|by_ms| by_ms < turn_ms.get().0);
        if let Some(late) = dealt.iter().find(|dealt| dealt.is(Errand::Deposit, "executed") && is_late(&dealt.asked)) {
            return violation("late", format!("{} ran past its deadline", late.asked.line()));
        }
        let mut in_order: Vec<&Dealt> = dealt.iter().collect();
        in_order.sort_by_key(|dealt| dealt.asked.arrived.get());
        let kept_from = in_order.iter().rposition(|dealt| dealt.deletes()).map_or(0, |at| at + 1);
        let (undone, since) = in_order.split_at(kept_from);
        self.undone(undone)?;
        let executed: Vec<_> = since.iter().filter(|dealt| dealt.is(Errand::Deposit, "executed")).collect();
        let expected: Vec<String> = executed.iter().map(|dealt| dealt.asked.number.to_string()).collect();
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
        for dealt in in_order.iter().filter(|dealt| dealt.is_alone && dealt.reply.only("semel-status") != "unavailable")
        {
            self.durable.started.remove(&dealt.asked.number);
        }
        let before = self.durable();
        for (dealt, effect) in executed.iter().zip(&effects) {
            self.runs(&dealt.asked, effect)?;
        }
        for dealt in in_order.iter().filter(|dealt| !dealt.is_alone) {
            if dealt.asked.arrived.get() < self.latest {
                let line = dealt.asked.line();
                return violation("order", format!("{line} was worked after arrival {}", self.latest));
            }
            self.latest = dealt.asked.arrived.get();
        }
        let mut count = before;
        for dealt in since {
            count += i64::from(dealt.is(Errand::Deposit, "executed"));
            self.check_count(dealt, count)?;
        }
        Ok(())
    }

    /// Checks what a request says of how many effects there are.
    pub(super) fn check_count(&self, dealt: &Dealt, count: i64) -> Result<(), Violation> {
        let counts = dealt.is(Errand::Deposit, "executed") || dealt.is(Errand::Read, "read");
        if counts && dealt.count() != count {
            let (said, line) = (dealt.count(), dealt.asked.line());
            let kind = if dealt.asked.errand == Errand::Read { "order" } else { "outcome" };
            return violation(kind, format!("{line} was answered {said} where there were {count}"));
        }
        Ok(())
    }

    /// Checks that a request might run that has run.
    pub(super) fn may_run(&mut self, asked: &Asked) -> Result<(), Violation> {
        let (number, line) = (asked.number, asked.line());
        if self.ran_before(number) {
            return violation("twice", format!("{number} ran again, after its key was deleted"));
        }
        if self.durable.never.contains(&number) {
            return violation("never", format!("{number} ran, of which it was said that it never will"));
        }
        if asked.first_sent_s.is_some_and(|first_sent_s| first_sent_s < self.durable.fence_s) {
            return violation("fence", format!("{line} ran, and was first sent before {}", self.durable.fence_s));
        }
        Ok(())
    }

    /// Checks an effect that is durable.
    fn runs(&mut self, asked: &Asked, effect: &Effect) -> Result<(), Violation> {
        let (number, line) = (asked.number, asked.line());
        let Effect { at_ms, .. } = *effect;
        if let Some(ran) = self.durable.ran.iter().rfind(|ran| ran.number == number) {
            if self.is_promised(asked) || at_ms < ran.at_ms + self.retention_s_min * 1000 {
                return violation("twice", format!("{number} ran again"));
            }
            // Nothing could tell any more that it was not new.
            self.history.is_no_longer_promised(KEY);
        }
        self.may_run(asked)?;
        let (wall_ms, latest_ms) = asked.turn_ms.get();
        let last_ms = self.durable.ran.last().map_or(0, |ran| ran.at_ms);
        if at_ms < wall_ms.max(last_ms) || at_ms > latest_ms {
            let told = format!("told {wall_ms} and before {latest_ms}, after an effect of {last_ms}");
            return violation("clock", format!("{line} ran at {at_ms}, and the key was {told}"));
        }
        self.durable.ran.push(Ran { number, first_sent_s: asked.first_sent_s, at_ms });
        Ok(())
    }

    /// Takes note that the object has ended, with these effects besides those that were durable before.
    pub fn ended(&mut self, effects: &[Effect]) -> Result<(), Violation> {
        self.latest = 0;
        match effects {
            [] => Ok(()),
            effects => violation("effects", format!("of an object that ended {effects:?} stays")),
        }
    }

    /// Checks an answer that leaves.
    pub fn told(&mut self, asked: &Asked, reply: &Reply) -> Result<(), Violation> {
        self.check_told(asked, reply)?;
        self.check_reason(asked, reply.only("semel-status"))
    }

    fn check_told(&mut self, asked: &Asked, reply: &Reply) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        self.seen.insert(format!("together, {:?}: {code}", asked.errand));
        let number = asked.number.to_string();
        let ran = self.durable.ran.iter().rposition(|ran| ran.number == asked.number);
        let has_run = ran.is_some() || self.ran_before(asked.number);
        let before = self.count_before(asked);
        match (asked.errand, code) {
            (Errand::Delete, "executed" | "replayed") if !self.is_done(asked.number) => {
                violation("early", format!("{} was told before it was durable", asked.line()))
            }
            (Errand::Deposit, "executed" | "replayed") => {
                let Some(count) = before.unwrap_or(ran.map(|before| before as i64 + 1)) else {
                    return violation("early", format!("{} was told before its effect was durable", asked.line()));
                };
                if (reply.status(), reply.body().to_vec()) == outcome(&number, count) {
                    return Ok(());
                }
                violation("outcome", format!("{} was told {}, and is number {count}", asked.line(), reply.text()))
            }
            (Errand::Cancel, "executed" | "replayed") if reply.body().starts_with(b"{\"state\":\"cancelled\"") => {
                if !self.is_promised(asked) {
                    return Ok(());
                }
                self.durable.never.insert(asked.number);
                if has_run { violation("lie", format!("{} ran", asked.line())) } else { Ok(()) }
            }
            (Errand::Deposit, "poisoned") if has_run && self.is_promised(asked) => {
                violation("lie", format!("{} ran", asked.line()))
            }
            (Errand::Deposit, "attempt-expired")
                if asked.deadline_ms.is_none_or(|by_ms| by_ms >= asked.turn_ms.get().1) =>
            {
                violation("late", format!("{} was in time, and was told {code}", asked.line()))
            }
            (Errand::Deposit, _) if reply.field("retry") == "never" => self.told_for_good(asked, reply, has_run),
            (Errand::Other, "fingerprint-mismatch" | "unavailable" | "outside-window" | "forgotten") => Ok(()),
            (Errand::Other, "acknowledged") if asked.call.principal() != STRANGER => Ok(()),
            (Errand::Other, _) => violation("stranger", format!("{} was told {code}", asked.line())),
            (Errand::Read, "read")
                if reply.json()["count"].as_i64() > Some(before.flatten().unwrap_or(self.durable())) =>
            {
                violation("early", format!("{} was told of what was not durable", asked.line()))
            }
            _ => Ok(()),
        }
    }

    /// Checks that an answer has a reason in what was sent and in what became of it.
    fn check_reason(&self, asked: &Asked, code: &str) -> Result<(), Violation> {
        if !matches!(asked.errand, Errand::Deposit | Errand::Other) {
            return Ok(());
        }
        let number = &asked.number;
        let (is_so, kind) = match code {
            "outside-window" | "forgotten" => {
                (asked.first_sent_s.is_some_and(|first_sent_s| first_sent_s < self.refuses_s()), "fence")
            }
            "outcome-expired" => (!self.is_promised(asked), "expired"),
            "acknowledged" => (self.acknowledged.contains_key(number), "acknowledged"),
            "cancelled" => (self.given_up.contains(number), "cancelled"),
            // What counts no more counted before.
            "poisoned" if self.count_before(asked).is_some() => (true, ""),
            "poisoned" => (self.blamed.get(number).is_some_and(|times| *times >= CRASHES), "blamed"),
            _ => (true, ""),
        };
        if is_so { Ok(()) } else { violation(kind, format!("{} was told {code}", asked.line())) }
    }

    /// Checks an answer that there will be no outcome, and what it says about whether there was one.
    fn told_for_good(&mut self, asked: &Asked, reply: &Reply, has_run: bool) -> Result<(), Violation> {
        if !self.is_promised(asked) {
            return Ok(());
        }
        let executed = reply.field("executed");
        let is_so = match executed.as_str() {
            "no" => !has_run,
            "yes" => has_run,
            _ => true,
        };
        // A request that has run is known not to run again.
        if is_so {
            self.durable.never.extend((!has_run).then_some(asked.number));
            return Ok(());
        }
        let code = reply.only("semel-status");
        violation("lie", format!("{} was told {code}, {executed}, and has run: {has_run}", asked.line()))
    }

    /// Takes note that a caller has an answer.
    pub fn heard(&mut self, number: usize, reply: &Reply) {
        self.history.returned(number, reply.body());
    }

    /// Checks that at the end of the run there are exactly these effects.
    pub fn check_end(&self, effects: &[Effect]) -> Result<(), Violation> {
        let durable: Vec<String> = self.durable.ran.iter().map(|ran| ran.number.to_string()).collect();
        if !effects.iter().map(|effect| &effect.number).eq(&durable) {
            return violation("lost", format!("{durable:?} was durable, and {effects:?} is there"));
        }
        self.history.check(|number| self.durable.ran.iter().any(|ran| ran.number == number))
    }
}
