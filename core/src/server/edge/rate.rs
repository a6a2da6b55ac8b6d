//! Limits how many requests somebody may make: a generic cell rate algorithm, with the clock as an argument.
//!
//! Invariants:
//! - For each caller one instant is kept: when everything taken will have been given back. Nothing else is kept, and
//!   nothing once that instant has passed. The instants are in a table of the host, so a crash of the module gives nobody
//!   anything back.
//! - The table is bounded. All callers for whom it has no room share one entry. So a full table lets nobody exceed the
//!   limit, and a caller over the limit stays in it.
//! - Whatever is admitted is paid for in full: many requests at once may begin if a burst has room for them, and their
//!   caller owes the rest.
//! - A refusal takes nothing. The wait that it names is exact: a caller that waits so long, and makes no other request, is admitted.

use crate::server::config::ELEMENTS_MAX;
use std::collections::BTreeMap;
use std::fmt;

/// How many callers are told apart. An entry lapses once its burst is given back.
pub const TABLE_MAX: usize = 10_000;
/// The most requests that may be taken in addition to one.
pub const MORE_MAX: i64 = ELEMENTS_MAX as i64 - 1;
const SWEEP_MS: i64 = 1_000;
const NS_PER_MS: i64 = 1_000_000;
const NS_PER_S: i64 = 1_000_000_000;

/// The entry shared by all callers for whom there was no room. No principal and no address has this name.
const OTHERS: &str = "\n";

/// For each caller, when everything taken will have been given back, in Unix ns. The limit lasts as long as this table,
/// whatever happens to the rest.
pub trait Table: fmt::Debug {
    /// The instant of a caller; 0 if there is none.
    fn get(&self, who: &str) -> i64;
    /// Sets the instant of a caller.
    fn put(&mut self, who: &str, free_ns: i64);
    /// How many callers it has.
    fn count(&self) -> usize;
    /// Deletes the callers whose instant has passed.
    fn sweep(&mut self, now_ns: i64);
}

impl Table for BTreeMap<String, i64> {
    fn get(&self, who: &str) -> i64 {
        self.get(who).copied().unwrap_or_default()
    }

    fn put(&mut self, who: &str, free_ns: i64) {
        match self.get_mut(who) {
            Some(free) => *free = free_ns,
            None => drop(self.insert(who.to_owned(), free_ns)),
        }
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn sweep(&mut self, now_ns: i64) {
        self.retain(|_, free_ns| *free_ns > now_ns);
    }
}

/// A limit, with the state of every caller.
#[derive(Debug)]
pub struct Rate {
    /// The time from one request to the next, in ns.
    interval_ns: i64,
    /// How far ahead of the clock an instant may be if one more request is to be admitted, in ns.
    tolerance_ns: i64,
    table: Box<dyn Table>,
    swept_ms: i64,
}

impl Rate {
    /// `per_second` requests in the long run, and `burst` at once.
    pub fn new(per_second: u32, burst: u32, table: Box<dyn Table>) -> Self {
        let interval_ns = NS_PER_S / i64::from(per_second.max(1));
        let tolerance_ns = interval_ns.saturating_mul(i64::from(burst.max(1)) - 1);
        Self { interval_ns, tolerance_ns, table, swept_ms: i64::MIN }
    }

    /// Takes one request of a caller. If that is over the limit, takes nothing, and the error is how many ms to wait.
    pub fn take(&mut self, who: &str, now_ms: i64) -> Result<(), i64> {
        // The table belongs to the host and every request needs it, so each value is asked for only once.
        let place = if self.makes_room(who, now_ms) { who } else { OTHERS };
        let ahead_ns = self.ahead_at(place, now_ms);
        let looked = self.looked(ahead_ns);
        self.put(place, ahead_ns.saturating_add(if looked.is_ok() { self.interval_ns } else { 0 }), now_ms);
        looked
    }

    /// Takes more requests of a caller, up to [`MORE_MAX`], for whom one was taken just now.
    ///
    /// They are admitted if that many are free, or all that a burst has in addition to that one; any more are owed. If
    /// they are refused, that one is given back. Otherwise a caller that asks for all of it again and again would never
    /// be admitted. The error is how many ms to wait until they would be admitted, with another first request.
    pub fn take_more(&mut self, who: &str, more: usize, now_ms: i64) -> Result<(), i64> {
        let more_ns = self.interval_ns.saturating_mul(i64::try_from(more).unwrap_or(MORE_MAX).min(MORE_MAX));
        let free_ns = more_ns.min(self.tolerance_ns);
        let place = self.place(who);
        let ahead_ns = self.ahead_at(place, now_ms);
        let over_ns = ahead_ns + free_ns - self.interval_ns - self.tolerance_ns;
        if more > 0 && over_ns > 0 {
            self.put(place, (ahead_ns - self.interval_ns).max(0), now_ms);
            return Err(wait_ms(over_ns));
        }
        self.put(place, ahead_ns.saturating_add(more_ns), now_ms);
        Ok(())
    }

    fn put(&mut self, place: &str, ahead_ns: i64, now_ms: i64) {
        self.table.put(place, now_ns(now_ms).saturating_add(ahead_ns));
    }

    /// Checks that an instant this far ahead is within the limit. The error is how many ms to wait.
    fn looked(&self, ahead_ns: i64) -> Result<(), i64> {
        let over_ns = ahead_ns - self.tolerance_ns;
        if over_ns <= 0 { Ok(()) } else { Err(wait_ms(over_ns)) }
    }

    /// How far ahead of the clock the instant of an entry is, in ns.
    fn ahead_at(&self, place: &str, now_ms: i64) -> i64 {
        let free_ns = self.table.get(place);
        let ahead_ns = free_ns.saturating_sub(now_ns(now_ms)).max(0);
        let over_ns = self.tolerance_ns.saturating_add(self.interval_ns);
        // No instant is further ahead than what may be owed, unless the clock went back. In that case, nobody has to wait
        // until the clock has caught up.
        if ahead_ns > over_ns.saturating_add(self.interval_ns.saturating_mul(MORE_MAX)) { over_ns } else { ahead_ns }
    }

    fn place<'a>(&self, who: &'a str) -> &'a str {
        if self.has_room(who) { who } else { OTHERS }
    }

    fn has_room(&self, who: &str) -> bool {
        self.table.count() < TABLE_MAX || self.table.get(who) != 0
    }

    /// Whether there is room for a caller, if necessary after a sweep.
    fn makes_room(&mut self, who: &str, now_ms: i64) -> bool {
        if self.has_room(who) {
            return true;
        }
        // A sweep reads the whole table, so there is at most one a second.
        if now_ms.saturating_sub(self.swept_ms).saturating_abs() < SWEEP_MS {
            return false;
        }
        self.swept_ms = now_ms;
        self.table.sweep(now_ns(now_ms));
        self.has_room(who)
    }
}

fn wait_ms(ns: i64) -> i64 {
    (ns + NS_PER_MS - 1) / NS_PER_MS
}

fn now_ns(now_ms: i64) -> i64 {
    now_ms.saturating_mul(NS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32, burst: u32) -> Rate {
        Rate::new(per_second, burst, Box::<BTreeMap<_, _>>::default())
    }

    #[test]
    fn a_caller_gets_a_burst_and_then_the_rate() {
        let mut rate = rate(10, 5);
        let granted = |rate: &mut Rate, now_ms| (0..100).filter(|_| rate.take("a", now_ms).is_ok()).count();
        assert_eq!(granted(&mut rate, 1_000), 5);
        assert_eq!(granted(&mut rate, 1_099), 0);
        assert_eq!(granted(&mut rate, 1_100), 1);
        assert_eq!(granted(&mut rate, 1_350), 2);
        assert_eq!(granted(&mut rate, 60_000), 5, "no more than a burst is saved up");
    }

    #[test]
    fn a_refusal_tells_the_shortest_wait_that_is_enough() {
        for (per_second, burst) in [(1, 1), (3, 2), (7, 50), (700_000, 3), (1_000_000, 1_000_000)] {
            let mut rate = rate(per_second, burst);
            let mut now_ms = 5_000;
            let mut refusals = 0;
            for _ in 0..3 * burst.min(1_000) {
                let Err(wait_ms) = rate.take("a", now_ms) else { continue };
                refusals += 1;
                assert!((1..=1_000).contains(&wait_ms), "a second is always enough: {wait_ms}");
                assert!(rate.looked(rate.ahead_at("a", now_ms + wait_ms - 1)).is_err());
                now_ms += wait_ms;
                assert_eq!(rate.take("a", now_ms), Ok(()));
            }
            assert!(refusals > 0 || burst > 1_000);
        }
    }

    #[test]
    fn requests_in_one_call_cost_each_one_and_those_beyond_a_burst_are_owed() {
        for (count, costs) in [(1, 1), (3, 3), (10, 10), (11, 11), (256, 256), (usize::MAX, 256)] {
            let mut rate = rate(10, 10);
            assert_eq!((rate.take("a", 0), rate.take_more("a", count - 1, 0)), (Ok(()), Ok(())), "{count}");
            let left = (0..100).filter(|_| rate.take("a", 0).is_ok()).count();
            assert_eq!(left, 10_usize.saturating_sub(costs), "{count}");
            // However the requests come, in the long run they do not exceed the rate.
            let paid_ms = 100 * i64::try_from(costs).expect("few");
            assert_eq!((0..100).filter(|_| rate.take("a", paid_ms).is_ok()).count(), 10 - left, "{count}");
        }
        let mut owing = rate(10, 10);
        assert_eq!((owing.take("a", 0), owing.take_more("a", 19, 0)), (Ok(()), Ok(())));
        let wait_ms = owing.take("a", 0).expect_err("ten are owed, and one more");
        assert_eq!((wait_ms, owing.take("a", wait_ms - 1), owing.take("a", wait_ms)), (1_100, Err(1), Ok(())));
        let over = || {
            let mut rate = rate(10, 10);
            assert_eq!((rate.take("a", 0), rate.take_more("a", 4, 0), rate.take("a", 0)), (Ok(()), Ok(()), Ok(())));
            let wait_ms = rate.take_more("a", 7, 0).expect_err("four are left");
            (rate, wait_ms)
        };
        let (mut early, wait_ms) = over();
        assert!(early.take("a", wait_ms - 1).is_ok() && early.take_more("a", 7, wait_ms - 1).is_err());
        let mut due = over().0;
        assert_eq!((due.take("a", wait_ms), due.take_more("a", 7, wait_ms)), (Ok(()), Ok(())));
        // A caller that asks again each second, as told, is admitted once it is due, and no sooner.
        let mut patient = rate(1, 200);
        assert_eq!((patient.take("a", 0), patient.take_more("a", 199, 0)), (Ok(()), Ok(())));
        let asks = |rate: &mut Rate, now_ms| rate.take("a", now_ms).is_ok() && rate.take_more("a", 63, now_ms).is_ok();
        assert_eq!((1..1_000).find(|second| asks(&mut patient, second * 1_000)), Some(64));
        let mut single = rate(1, 1);
        assert_eq!((single.take("a", 0), single.take_more("a", 5, 0)), (Ok(()), Ok(())), "there is no room for more");
        // If the first request was admitted in another isolate, nothing was taken here just now.
        let mut apart = rate(10, 1);
        assert_eq!((apart.take_more("a", 255, 0), apart.take_more("a", 255, 100)), (Ok(()), Err(25_300)));
        assert_eq!(apart.take_more("a", 0, 100), Ok(()), "the only request was admitted there");
    }

    #[test]
    fn each_caller_has_its_own_limit_and_a_refusal_costs_nothing() {
        let mut rate = rate(1, 1);
        assert!(rate.take("a", 0).is_ok() && rate.take("b", 0).is_ok());
        for now_ms in 0..1_000 {
            assert!(rate.take("a", now_ms).is_err());
        }
        assert!(rate.take("a", 1_000).is_ok());
    }

    #[test]
    fn a_clock_that_goes_back_makes_a_caller_wait_only_once() {
        let mut rate = rate(2, 4);
        while rate.take("a", 10_000_000).is_ok() {}
        assert_eq!(rate.take("a", 0), Err(500));
        assert_eq!(rate.take("a", 499), Err(1), "the wait is told once");
        assert_eq!(rate.take("a", 500), Ok(()));
    }

    #[test]
    fn a_full_table_makes_new_callers_share_one_entry_and_keeps_those_over_the_limit() {
        let mut rate = rate(1, 2);
        assert!(rate.take("over", 0).is_ok() && rate.take("over", 0).is_ok() && rate.take("over", 0).is_err());
        assert!(rate.take("within", 0).is_ok());
        for n in 0..3 * TABLE_MAX {
            rate.take(&format!("stranger {n}"), 1).ok();
            assert!(rate.table.count() <= TABLE_MAX + 1, "and the place of the others");
        }
        assert!(rate.take("over", 1).is_err(), "still over");
        assert!(rate.take("within", 1).is_ok(), "a caller that has an entry does not share one");
        let granted = (0..1_000).filter(|n| rate.take(&format!("another {n}"), 1).is_ok()).count();
        assert_eq!(granted, 0, "those without room share one place, and it is taken");
        // Once everything taken is given back, the entries are free.
        assert!((0..1_000).all(|n| rate.take(&format!("late {n}"), 10_000).is_ok()));
    }

    /// A table that counts the calls to it.
    #[derive(Debug, Default)]
    struct Counted(BTreeMap<String, i64>, std::rc::Rc<std::cell::Cell<[u32; 3]>>);

    impl Counted {
        fn count(&self, which: usize) {
            let mut counts = self.1.get();
            counts[which] += 1;
            self.1.set(counts);
        }
    }

    impl Table for Counted {
        fn get(&self, who: &str) -> i64 {
            self.count(0);
            Table::get(&self.0, who)
        }

        fn put(&mut self, who: &str, free_ns: i64) {
            self.count(1);
            self.0.put(who, free_ns);
        }

        fn count(&self) -> usize {
            self.count(2);
            self.0.len()
        }

        fn sweep(&mut self, now_ns: i64) {
            self.0.sweep(now_ns);
        }
    }

    #[test]
    fn a_request_reads_writes_and_counts_the_table_once() {
        let counts = std::rc::Rc::default();
        let mut rate = Rate::new(1, 1, Box::new(Counted(BTreeMap::new(), std::rc::Rc::clone(&counts))));
        assert!(rate.take("a", 0).is_ok() && rate.take("a", 0).is_err());
        assert_eq!(counts.get(), [2, 2, 2]);
    }
}
