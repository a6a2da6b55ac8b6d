//! Requests that are committed together, and the same requests one by one at another object of the same key: nobody can tell the
//! two apart.
//!
//! Invariants, whatever is sent and however it is divided:
//! - Each request has the same answer, and the tables are the same in the end.
//! - The objects have the same in memory, and so would objects that start anew.
//! - A fault among many requests leaves nothing of them. Executed again one by one, they end as if the fault had not come.

use crate::desk_calls::{Calls, RETENTION_S, TOGETHER_MAX, batch_of, element};
use crate::desk_faults::{Fault, may_be_undone, panics, undoes, with_fault};
use crate::desk_handler::Book;
use crate::desk_sent::{SENT, heard};
use crate::source::Source;
use semel_core::problem::Code;
use semel_core::server::Config;
use semel_core::server::registry::Report;
use semel_support::batches::asker;
use semel_support::{Call, KEY, RECORDS, Reply, World};
use serde_json::Value;

/// More steps find nothing new.
const STEPS_MAX: usize = 40;
/// The number of rows to fill in: a few pages of the sweep, and some more.
const FILLED_ROWS: i64 = 150;

/// Everything that is kept.
const KEPT: &[&str] = &[
    RECORDS,
    "SELECT * FROM semel_places ORDER BY session, seq",
    "SELECT * FROM semel_sessions ORDER BY number",
    "SELECT * FROM semel_tombstones ORDER BY chunk",
    "SELECT * FROM semel_totals",
    "SELECT * FROM semel_meta",
    "SELECT * FROM effects ORDER BY number",
    "SELECT * FROM tally",
];

/// Texts in more than two rows that have no number though they could have one. Rows that were written before a text could get its
/// number hold the text itself.
const UNNUMBERED: &str = "SELECT text, count(*) FROM (SELECT principal AS text FROM semel_records WHERE typeof(principal) = 'text' \
     UNION ALL SELECT headers FROM semel_records WHERE typeof(headers) = 'text') \
     WHERE length(text) <= 256 AND (SELECT count(*) FROM semel_texts) < 128 GROUP BY text HAVING count(*) > 2";

/// Sends what the bytes stand for.
pub fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let config = config(&mut source);
    let world = || World::in_memory(KEY, Book, config.clone());
    let mut run = Run { one: world(), many: world(), calls: Calls::default(), latest_ms: 0, chance: 0 };
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        run.step(&mut source);
        run.compare();
    }
    run.end();
}

/// A key that becomes full soon, or never.
fn config(source: &mut Source<'_>) -> Config {
    let default = Config { open: true, retention_s: RETENTION_S, ..Config::default() };
    match source.below(3) {
        0 => Config { records_max: 8, tombstones_max: 6, sessions_max: 2, ..default },
        _ => default,
    }
}

struct Run {
    /// The key at which each request goes by itself.
    one: World<Book>,
    /// The key at which many requests go together.
    many: World<Book>,
    calls: Calls,
    /// The latest that their clocks have been since they started.
    latest_ms: i64,
    /// How often they were asked for what is to be sent.
    chance: i64,
}

impl Run {
    fn step(&mut self, source: &mut Source<'_>) {
        match source.below(20) {
            0 => self.pass_ms(i64::from(source.byte()) * 100),
            1 => self.pass_ms(source.pick(&[60_000, 120_000, RETENTION_S * 500, RETENTION_S * 1_000])),
            2 => self.pass_ms(-5_000),
            3 => self.restart(),
            4 => {
                let woken = [&mut self.one, &mut self.many].map(|world| world.wake());
                assert_eq!(woken, [Ok(()), Ok(())]);
            }
            5 => {
                let before_s = self.one.wall_s() - i64::from(source.byte());
                self.report(before_s);
            }
            6 if source.flag() => self.fill(),
            6 => self.suspect(source),
            7 => self.burst(source),
            8..=11 => self.batch(source, None),
            12 => {
                let fault = Fault::of(source);
                self.restart();
                self.batch(source, Some(fault));
            }
            13 | 14 => {
                let fault = Fault::of(source);
                self.restart();
                self.group(source, Some(fault));
            }
            15 | 16 => self.carry(source),
            _ => self.group(source, None),
        }
    }

    fn pass_ms(&mut self, ms: i64) {
        self.one.pass_ms(ms);
        self.many.pass_ms(ms);
    }

    /// Ends the objects and starts them again. What they count then must be what they counted before, unless the clock has gone
    /// back.
    fn restart(&mut self) {
        let counted = [&mut self.one, &mut self.many].map(|world| world.count());
        let is_ahead = self.latest_ms > self.one.wall_ms;
        self.restart_anew();
        let found = [&mut self.one, &mut self.many].map(|world| world.count());
        assert!(is_ahead || found == counted, "{counted:?} were known, {found:?} are there");
    }

    fn restart_anew(&mut self) {
        self.one.restart();
        self.many.restart();
        self.latest_ms = 0;
    }

    /// Fills in more rows than a page of the sweep has, of all ages, and between the ids of all others.
    fn fill(&mut self) {
        for world in [&self.one, &self.many] {
            if world.rows() == 0 || world.rows() > FILLED_ROWS {
                continue;
            }
            let now_ms = world.wall_ms;
            world.database.fill(&format!(
                "INSERT OR IGNORE INTO semel_texts (text) VALUES ('alice'), ('a:b' || char(10)); \
                 WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {FILLED_ROWS}), \
                 aged AS (SELECT n, {now_ms} - n * 7919 % 1200 * 1000 AS at_ms FROM numbers) \
                 INSERT OR IGNORE INTO semel_records \
                 (id, state, at_ms, first_sent_s, lapses_ms, executed, principal, fingerprint, status, headers, body) \
                 SELECT char(48 + n % 75) || n, iif(n % 5 = 0, 5, 1), at_ms, iif(n % 3 = 0, NULL, at_ms / 1000), \
                 iif(n % 5 = 0, at_ms + {RETENTION_S}000, NULL), iif(n % 5 = 0, 1, NULL), \
                 (SELECT number FROM semel_texts WHERE text = 'alice'), zeroblob(32), 200, \
                 (SELECT number FROM semel_texts WHERE text = 'a:b' || char(10)), x'' FROM aged"
            ));
        }
        self.restart_anew();
    }

    /// Both keys report to the registry, which answers with what is to be forgotten.
    fn report(&mut self, before_s: i64) {
        let told = [&mut self.one, &mut self.many].map(|world| {
            let report = world.report().expect("storage works");
            report.iter().for_each(|report| world.reported(report, before_s).expect("storage works"));
            report.map(|report| Report { changes: 0, ..report })
        });
        assert_eq!(told[0], told[1]);
    }

    /// A suspect runs by itself at both keys: it is never together with anything. Or it ends the object once more, or
    /// crashes, and comes again together with others.
    fn suspect(&mut self, source: &mut Source<'_>) {
        let call = self.calls.suspect(source, &self.one);
        let (is_lost, comes_again, crashes) = (source.flag(), source.flag(), source.flag());
        let replies = [&mut self.one, &mut self.many].map(|world| {
            world.start(&call);
            if is_lost {
                world.restart();
            }
            match (comes_again, crashes) {
                (false, _) => Some(world.send(&call)),
                (true, true) => Some(world.crashed(&call)),
                (true, false) => None,
            }
        });
        assert_eq!(replies[0], replies[1]);
        if comes_again {
            let mut calls = self.calls.some(source, &self.one);
            calls.insert(source.below(calls.len() + 1), call);
            self.all(&calls, 0, None);
        }
    }

    /// As many places as may be unacknowledged, or some more; or as many take-overs as a key remembers holders.
    fn burst(&mut self, source: &mut Source<'_>) {
        let calls = match source.below(3) {
            0 => self.calls.take_overs(source),
            _ => self.calls.burst(source, &self.one),
        };
        if source.flag() {
            return self.batch_of_all(source, calls.iter().map(element).collect(), None);
        }
        self.together(&calls, 0, None);
    }

    /// Both keys send what is due, and get the same answer.
    fn carry(&mut self, source: &mut Source<'_>) {
        for _ in 0..=source.below(4) {
            self.chance += 1;
            let Self { one, many, chance, .. } = self;
            let sendings = [&mut *one, &mut *many].map(|world| world.send_next_by(*chance));
            assert_eq!(sendings[0], sendings[1]);
            let Some(sending) = &sendings[0] else { return };
            let heard = heard(source, sending);
            let told = [one, many].map(|world| world.sent(sending, heard.clone()));
            assert_eq!(told[0], told[1]);
        }
    }

    fn group(&mut self, source: &mut Source<'_>, fault: Option<Fault>) {
        // After a failure of the storage, the clock is that of the group's last request; the same holds if a request is rolled
        // back with the tables that it made. The times of the requests must then be equal.
        let has_tables = self.one.database.number("SELECT count(*) FROM semel_meta") == 1;
        let between_ms = if fault.is_some() || !has_tables { 0 } else { source.pick(&[0, 0, 0, 1, 700, 20_000]) };
        let calls = self.calls.some(source, &self.one);
        self.all(&calls, between_ms, fault);
    }

    fn all(&mut self, calls: &[Call], between_ms: i64, fault: Option<Fault>) {
        // In a group, a panic ends the object with its memory before any request has run; one by one, only when its turn comes.
        // So both start with an empty memory.
        if calls.iter().any(panics) {
            self.restart();
        }
        self.together(calls, between_ms, fault);
    }

    fn together(&mut self, calls: &[Call], between_ms: i64, fault: Option<Fault>) {
        let since_ms = self.one.wall_ms;
        let each = one_by_one(&mut self.one, calls, between_ms);
        let Self { many, .. } = self;
        let all = with_fault(many, fault, |many| many.group_over(calls, between_ms));
        let all = all.flatten().unwrap_or_else(|| {
            let may_fail = fault.is_some() || calls.iter().zip(&each).any(|(call, reply)| undoes(call, reply));
            assert!(may_fail, "nothing was undone of {calls:#?}");
            many.wall_ms = since_ms;
            one_by_one(many, calls, between_ms)
        });
        many.wall_ms = self.one.wall_ms;
        is_same(&all, &each, calls);
    }

    fn batch(&mut self, source: &mut Source<'_>, fault: Option<Fault>) {
        let count = source.below(TOGETHER_MAX + 1);
        let mut elements: Vec<Value> = Vec::new();
        for _ in 0..count {
            let element = match source.below(6) {
                0 if !elements.is_empty() => elements[source.below(elements.len())].clone(),
                _ => element(&self.calls.any(source, &self.one)),
            };
            elements.push(element);
        }
        self.batch_of_all(source, elements, fault);
    }

    fn batch_of_all(&mut self, source: &mut Source<'_>, mut elements: Vec<Value>, fault: Option<Fault>) {
        // In a batch, requests that are rolled back still share a transaction with the others, and a fault comes in whichever
        // runs then.
        if fault.is_some() {
            elements.retain(|element| !may_be_undone(element));
        }
        let is_frame = source.flag();
        let acks = source.optional(|source| self.calls.acks(source, &self.one));
        let principal = self.calls.principal(source);
        if elements.iter().any(|element| element["path"] == "/panics") {
            self.restart();
        }
        let batch = |elements: &[Value]| batch_of(is_frame, acks.as_deref(), elements, self.one.wall_ms);
        let (all, none) = (batch(&elements), batch(&[]));
        let asker = asker(principal);
        let each = |world: &mut World<Book>| {
            world.in_one_commit(&asker, none.clone()).expect("no refusal").expect("an empty batch");
            // The empty batch that acknowledges has already swept the page that one turn may sweep.
            let mut have_run = usize::from(acks.is_some());
            let each = elements.iter().map(|element| {
                let reply = world.alone_by(&asker, element, (have_run, false)).expect("a batch that can be read");
                have_run += usize::from(reply.header("semel-key").is_some());
                reply
            });
            each.collect::<Vec<_>>()
        };
        let expected = each(&mut self.one);
        let all = with_fault(&mut self.many, fault, |many| many.in_one_commit(&asker, all));
        let all = match all {
            Some(Ok(Some(all))) => all,
            // If the empty batch fails, its caller is told that it was not done.
            Some(Err(problem)) => {
                assert!(problem.code == Code::Unavailable && fault.is_some(), "{problem:?}");
                each(&mut self.many)
            }
            Some(Ok(None)) | None => {
                let may_fail = fault.is_some() || elements.iter().any(|element| element["path"] == "/panics");
                assert!(may_fail, "nothing has failed with {elements:#?}");
                each(&mut self.many)
            }
        };
        is_same(&all, &expected, &elements);
    }

    #[track_caller]
    fn compare(&mut self) {
        self.latest_ms = self.latest_ms.max(self.one.wall_ms);
        let Self { one, many, .. } = self;
        for query in KEPT {
            assert_eq!(many.database.query(query), one.database.query(query), "{query}");
        }
        let tables = one.database.tables();
        for (table, query) in SENT.iter().filter(|(table, _)| tables.contains(&(*table).to_owned())) {
            assert_eq!(many.database.query(query), one.database.query(query), "{table}");
        }
        assert_eq!(many.count(), one.count());
        assert_eq!(many.wakes_at(), one.wakes_at());
        for (world, which) in [(&*one, "one by one"), (&*many, "together")] {
            assert_eq!(world.database.query(UNNUMBERED), Vec::<Vec<_>>::new(), "{which}");
        }
    }

    /// Once everything that may leave has left, an object that starts anew must find nothing more to remove.
    fn end(&mut self) {
        for _ in 0..3 {
            self.pass_ms(2 * RETENTION_S * 1_000);
            for world in [&mut self.one, &mut self.many] {
                world.wake().expect("storage works");
            }
            self.compare();
        }
        let before = self.many.database.query(KEPT[0]);
        self.restart();
        self.many.wake().expect("storage works");
        assert_eq!(self.many.database.query(KEPT[0]), before);
    }
}

/// Sends requests one after the other, with `between_ms` between two, as in one turn of the object.
fn one_by_one(world: &mut World<Book>, calls: &[Call], between_ms: i64) -> Vec<Reply> {
    let each = calls.iter().enumerate().map(|(n, call)| {
        if n > 0 {
            world.pass_ms(between_ms);
        }
        if n == 0 { world.send(call) } else { world.follow(call) }
    });
    each.collect()
}

#[track_caller]
fn is_same(together: &[Reply], each: &[Reply], asked: &[impl std::fmt::Debug]) {
    assert_eq!((together.len(), each.len()), (asked.len(), asked.len()));
    for (n, (one, other)) in together.iter().zip(each).enumerate() {
        let texts = [one, other].map(|reply| String::from_utf8_lossy(reply.body()));
        assert_ne!(one.only("semel-status"), "unavailable", "{n} of {asked:#?}");
        // A request that is refused before its key is asked may have another clock in its answer.
        let is_refused = [one, other].map(|reply| reply.header("semel-key").is_none()) == [true; 2];
        let is_same = one == other || is_refused && texts[0] == texts[1];
        assert!(is_same, "{n} of {asked:#?}: {one:?}, {other:?}: {texts:?}");
    }
}
