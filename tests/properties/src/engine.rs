//! Any requests in any order, with any headers and bodies, at one key.
//!
//! Invariants, whatever a client does:
//! - There are as many effects as answers that say `executed` to the application's changes.
//! - An answer has a 5xx only if the handler failed, the storage failed, or the key is full.
//! - An id runs once if its client keeps the contract: it sends nothing again that it acknowledged, and gives the first-sent or
//!   sends within a retention.

use crate::effects::{Effects, PATHS};
use crate::memory::Memory;
use crate::source::Source;
use semel_core::header::{self, Attempt, quoted};
use semel_core::id::{Key, Principal, RequestId};
use semel_core::message::{Headers, Method, Request};
use semel_core::path::Path;
use semel_core::server::engine::Arrival;
use semel_core::server::storage::packed::Bundle;
use semel_core::server::{Config, Engine, Sql, control};
use semel_support::{Call, KEY, Reply, START_MS};
use std::collections::BTreeMap;

/// How long outcomes are kept. It is short, so that a run can outlast it.
const RETENTION_S: i64 = 600;
/// A small limit, so that the key becomes full soon.
const RECORDS_MAX: u64 = 6;
/// More steps find nothing new.
const STEPS_MAX: usize = 48;

/// An attempt with its principal.
pub struct Sent {
    request: Request,
    principal: Principal,
    is_too_large: bool,
}

/// An attempt of a call, by a principal.
pub fn arrival_at(call: &Call, principal: &str) -> Sent {
    let principal = Principal::new(principal).expect("a principal");
    Sent { request: call.request(), principal, is_too_large: false }
}

/// One key with a clock.
pub struct KeyUnderTest {
    /// The key's database.
    pub sql: Memory,
    engine: Engine<Effects>,
    key: Key,
    wall_ms: i64,
}

impl Default for KeyUnderTest {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyUnderTest {
    /// A key that nobody has used.
    pub fn new() -> Self {
        Self { sql: Memory::new(), engine: Self::engine(), key: Key::new(KEY).expect("a key"), wall_ms: START_MS }
    }

    fn engine() -> Engine<Effects> {
        let config = Config { open: true, retention_s: RETENTION_S, records_max: RECORDS_MAX, ..Config::default() };
        Engine::new(Effects, config)
    }

    /// Ends the object and starts it again.
    pub fn restart(&mut self) {
        self.engine = Self::engine();
    }

    /// Sends a call by alice.
    pub fn ask(&mut self, call: &Call) -> Reply {
        self.handle(&arrival_at(call, "alice"))
    }

    /// Sends an attempt.
    pub fn handle(&mut self, sent: &Sent) -> Reply {
        let Self { engine, sql, key, wall_ms } = self;
        Reply::checked(engine.handle(sql, arrival(key, sent, *wall_ms)))
    }

    /// Tells the engine that an attempt crashed.
    pub fn crashed(&mut self, sent: &Sent) -> Reply {
        let Self { engine, sql, key, wall_ms } = self;
        Reply::checked(engine.crashed(sql, arrival(key, sent, *wall_ms)))
    }

    /// Tells the engine that a suspect is about to run.
    pub fn start(&mut self, sent: &Sent) -> Reply {
        let Self { engine, sql, key, wall_ms } = self;
        Reply::checked(engine.start(sql, arrival(key, sent, *wall_ms)))
    }

    /// How many effects of an id are kept.
    pub fn effects_of(&self, id: &str) -> i64 {
        self.sql.number("SELECT count(*) FROM effects WHERE id = ?1", &[id.into()])
    }

    /// How many ids have a row or a packed tombstone. Packed ones count, because the refusal of a full key also applies
    /// acknowledgements.
    fn kept(&self) -> u64 {
        if self.sql.number("SELECT count(*) FROM sqlite_master WHERE name = 'semel_records'", &[]) == 0 {
            return 0;
        }
        let statement = "SELECT entries FROM semel_tombstones UNION ALL SELECT carried FROM semel_records WHERE carried IS NOT NULL";
        let packed = self.sql.exec(statement, &[]).expect("rows").into_iter().flatten();
        let packed = packed.filter_map(|bytes| Bundle::from_bytes(bytes.into_blob()?));
        let packed: usize = packed.map(|each| each.len()).sum();
        self.sql.number("SELECT count(*) FROM semel_records", &[]) as u64 + packed as u64
    }
}

fn arrival<'a>(key: &'a Key, sent: &'a Sent, wall_ms: i64) -> Arrival<'a> {
    let Sent { request, principal, is_too_large } = sent;
    Arrival { key, principal, request, body_too_large: *is_too_large, wall_ms }
}

/// What is known of an id from what was sent and answered.
#[derive(Default)]
struct Known {
    /// The first-sent of each attempt.
    first_sents: Vec<Option<i64>>,
    is_acknowledged: bool,
    outcome: Option<Reply>,
}

struct Run {
    key: KeyUnderTest,
    /// How many answers said `executed` to changes of the application.
    executed: i64,
    known: BTreeMap<RequestId, Known>,
    latest_ms: i64,
    /// The earliest and the latest that the wall clock has been. The key's clock doesn't go back with it.
    walls_ms: (i64, i64),
}

/// Sends what the bytes stand for.
pub fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let mut run = Run {
        key: KeyUnderTest::new(),
        executed: 0,
        known: BTreeMap::new(),
        latest_ms: 0,
        walls_ms: (START_MS, START_MS),
    };
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        run.step(&mut source);
        let (first_ms, last_ms) = run.walls_ms;
        run.walls_ms = (first_ms.min(run.key.wall_ms), last_ms.max(run.key.wall_ms));
        assert_eq!(run.key.sql.number("SELECT count(*) FROM effects", &[]), run.executed);
    }
    let counted = run.key.engine.count(&run.key.sql, run.key.wall_ms).expect("storage works");
    run.key.restart();
    assert_eq!(run.key.engine.count(&run.key.sql, run.key.wall_ms), Ok(counted), "what is counted is what is there");
}

impl Run {
    fn step(&mut self, source: &mut Source<'_>) {
        match source.below(16) {
            0 => self.key.wall_ms += i64::from(source.byte()) * 1000,
            1 => self.key.wall_ms += RETENTION_S * 500,
            2 => self.key.wall_ms -= 5_000,
            3 => {
                self.key.restart();
                self.latest_ms = 0;
            }
            kind @ (4 | 5) => {
                let sent = self.sent(source);
                self.learn_acks(&sent.request);
                if kind == 4 {
                    self.key.start(&sent)
                } else {
                    self.key.crashed(&sent)
                };
            }
            _ => self.send(source),
        }
    }

    fn send(&mut self, source: &mut Source<'_>) {
        let sent = self.sent(source);
        let kept = self.key.kept();
        if source.below(8) == 0 {
            self.key.sql.fail(Some(u64::from(source.byte() % 24)));
        }
        let was_to_fail = self.key.sql.is_to_fail();
        let reply = self.key.handle(&sent);
        let has_failed = was_to_fail && !self.key.sql.is_to_fail();
        self.key.sql.fail(None);
        // After a failure of the storage, the engine's clock is the committed one, as after a restart.
        if has_failed {
            self.latest_ms = 0;
        }
        if reply.header("semel-key").is_some() {
            assert!(reply.now_ms() >= self.latest_ms, "the clock went back");
            self.latest_ms = reply.now_ms();
        }
        // The refusal of a full key sweeps, and so may make room for later requests.
        let is_full = kept.max(self.key.kept()) >= RECORDS_MAX;
        self.check_status(&sent.request, &reply, (has_failed, is_full));
        self.learn(&sent, reply);
    }

    fn check_status(&self, request: &Request, reply: &Reply, (has_failed, is_full): (bool, bool)) {
        let is_failing = request.path.segments().first().is_some_and(|first| matches!(*first, "fail" | "five-hundred"));
        match reply.only("semel-status") {
            "unavailable" => assert!(has_failed, "{reply:?}"),
            "rolled-back" => assert!(is_failing || has_failed, "{reply:?}"),
            "capacity" => assert!(is_full),
            _ => assert!(reply.status() < 500, "{reply:?}"),
        }
    }

    /// Takes note of what was sent and answered.
    fn learn(&mut self, sent: &Sent, reply: Reply) {
        let Sent { request, .. } = sent;
        let control = control::parse(&request.method, &request.path).ok().flatten();
        self.learn_acks(request);
        let Ok(Attempt { id: Some(id), first_sent_s, .. }) = Attempt::parse(&request.headers, self.latest_ms) else {
            assert!(reply.only("semel-status") != "executed" || control.is_some(), "{reply:?}");
            return;
        };
        if !request.method.changes()
            || control.as_ref().is_some_and(|(_, control)| *control != control::Control::Cancel)
        {
            return;
        }
        let known = self.known.entry(id.clone()).or_default();
        known.first_sents.push(first_sent_s);
        let is_young = self.walls_ms.1 - self.walls_ms.0 < RETENTION_S * 1000;
        let says_first_sent = known.first_sents.iter().all(|each| each.is_some() && *each == first_sent_s);
        let is_protected = !known.is_acknowledged && (is_young || says_first_sent);
        match reply.only("semel-status") {
            "executed" => {
                assert!(known.outcome.is_none() || !is_protected, "{id:?} ran again");
                known.outcome = Some(reply);
                self.executed += i64::from(control.is_none());
            }
            "replayed" => {
                let outcome = known.outcome.as_ref().expect("what is replayed was executed");
                reply.replays(outcome);
            }
            _ => {}
        }
        if control.is_none() && is_protected {
            assert!(self.key.effects_of(id.as_str()) <= 1, "{id:?} has two effects");
        }
    }

    fn learn_acks(&mut self, request: &Request) {
        let in_body = control::acks(&request.body).unwrap_or_default();
        for ack in header::acks(&request.headers).unwrap_or_default().into_iter().chain(in_body) {
            self.known.entry(ack.id).or_default().is_acknowledged = true;
        }
    }

    fn sent(&self, source: &mut Source<'_>) -> Sent {
        let ids = ["a", "b", "c", "d", "e", "f", "g", "cancel-a"];
        let mut headers = Headers::new();
        let mut body = source.optional(|source| source.pick(&[&b""[..], b"x", b"{}"]).to_vec()).unwrap_or_default();
        if source.below(8) > 0 {
            headers.append("idempotency-key", quoted(source.pick(&ids)));
        }
        let now_ms = self.key.wall_ms;
        match source.below(6) {
            0 => {}
            1 => headers.append("semel-first-sent", format!("@{}", now_ms / 1000 - i64::from(source.byte()) * 8)),
            2 => headers.append("semel-deadline", (now_ms + i64::from(source.byte() as i8) * 1000).to_string()),
            3 => headers.append("semel-ack", format!("{};until={}", quoted(source.pick(&ids)), now_ms + 9_000)),
            4 => headers.append(source.pick(&HEADERS), source.header_text()),
            _ => headers.append("semel-first-sent", format!("@{}", START_MS / 1000)),
        }
        let mut method = source.pick(&["POST", "PUT", "DELETE", "PATCH", "GET", "HEAD"]);
        let path = match source.below(10) {
            0 => format!("/semel/v1/keys/counters%2F1/outcomes/{}", source.pick(&ids)),
            number @ (1 | 2) => {
                method = "POST";
                let id = source.pick(&ids);
                body = if source.flag() { source.bytes().to_vec() } else { control_body(number == 1, id).into() };
                format!("/semel/v1/keys/counters%2F1/{}", if number == 1 { "acks" } else { "cancel" })
            }
            _ => source.pick(PATHS).to_owned(),
        };
        let request =
            Request { method: Method::new(method), path: Path::new(&path, "").expect("a path"), headers, body };
        let principal = Principal::new(if source.below(8) == 0 { "bob" } else { "alice" }).expect("a principal");
        let is_too_large = source.below(32) == 31;
        Sent { request, principal, is_too_large }
    }
}

/// Headers that may have any text as their value.
const HEADERS: [&str; 6] =
    ["idempotency-key", "semel-first-sent", "semel-deadline", "semel-ack", "semel-session", "content-type"];

fn control_body(is_acks: bool, id: &str) -> String {
    if is_acks { format!("{{\"ids\":[{id:?}]}}") } else { format!("{{\"id\":{id:?}}}") }
}
