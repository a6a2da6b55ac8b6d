//! Requests of all kinds to one key, with few names, so that they meet.
//!
//! Invariant: the requests depend on the bytes and on what is committed by then, so that a place is usually the next one.

use crate::desk_handler::{Book, PATHS, UNDOING};
use crate::desk_sent;
use crate::source::Source;
use semel_core::header::{self, AHEAD_MS_MAX, quoted};
use semel_core::id::{Key, Principal};
use semel_core::message::Headers;
use semel_core::server::batch::Batch;
use semel_core::session::{Numbered, Place};
use semel_support::batches::asker;
use semel_support::call::control;
use semel_support::{
    Call, KEY, World, acknowledge, admin, call::post, cancel, get, head, look_up, take_over_with, uuid,
};
use serde_json::{Value, json};

/// How long outcomes are kept.
pub const RETENTION_S: i64 = 600;
/// The most requests that go together, except for a burst.
pub const TOGETHER_MAX: usize = 7;
/// The most unacknowledged places, and the most holders that a key remembers of a session.
const WINDOW: i64 = 64;
const SESSIONS: [&str; 3] = ["s", "t", "u"];

/// The maker of the requests.
#[derive(Default)]
pub struct Calls {
    /// How many requests had a new id.
    own: i64,
}

impl Calls {
    /// Any request.
    pub fn any(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Call {
        let call = match source.below(32) {
            0..=13 => self.change(source, world),
            14..=21 => self.place(source, world),
            22 => self.take_over(source, world),
            23 => self.cancel(source, world),
            24 => self.close(source, world),
            25 | 26 => look_up(&id(source)),
            27 => acknowledge(&Value::Array(self.acks(source, world)).to_string()),
            28 => self.administrators(source, world),
            29 => post("/count"),
            30 => source.pick(&[get as fn(&str) -> Call, head])(source.pick(PATHS)),
            _ => self.change(source, world).too_large(),
        };
        let by = self.principal(source);
        if is_by_administrator(&call) { call } else { call.by(by) }
    }

    /// Requests that go together.
    pub fn some(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for _ in 0..=source.below(TOGETHER_MAX) {
            // A request that is sent twice at once is a duplicate in the same commit.
            let call = match source.below(6) {
                0 if !calls.is_empty() => calls[source.below(calls.len())].clone(),
                _ => self.any(source, world),
            };
            calls.push(call);
        }
        calls
    }

    /// A request that may have ended the object before: with an id or with a place.
    pub fn suspect(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Call {
        if source.flag() { self.place(source, world) } else { self.change(source, world) }
    }

    /// Take-overs of one session, up to as many holders as a key remembers or beyond.
    pub fn take_overs(&mut self, source: &mut Source<'_>) -> Vec<Call> {
        let session = source.pick(&SESSIONS);
        let count = WINDOW + source.below(3) as i64 - 1;
        (0..count).map(|_| take_over_with(&self.own(), &format!("{{\"name\":\"{session}\"}}"))).collect()
    }

    /// Usually alice.
    pub fn principal(&self, source: &mut Source<'_>) -> &'static str {
        source.pick(&["alice", "alice", "alice", "alice", "alice", "alice", "alice", "bob"])
    }

    /// A change of the application.
    pub fn change(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Call {
        let id = match source.below(3) {
            0 => self.own(),
            _ => id(source),
        };
        let call = post(path(source)).id(&id).body(source.pick(&["", "", "", "other"]));
        let call = self.acking(source, world, call);
        timed(source, world, call)
    }

    fn acking(&mut self, source: &mut Source<'_>, world: &World<Book>, call: Call) -> Call {
        let acks = source.optional(|source| self.acks(source, world)).unwrap_or_default();
        acks.iter().fold(call, |call, ack| match (ack["id"].as_str(), ack["until"].as_i64()) {
            (Some(id), Some(until_ms)) => call.ack_until(id, until_ms),
            _ => call.ack(ack.as_str().unwrap_or_default()),
        })
    }

    /// Acknowledgements, as JSON.
    pub fn acks(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Vec<Value> {
        let count = match source.below(16) {
            15 => 30,
            few => few as i64 % 5,
        };
        let until = |source: &mut Source<'_>| {
            let ahead_ms = source.pick(&[0, 0, 60_000, AHEAD_MS_MAX, 540_000, 540_001, -60_000, 10_000_000_000]);
            (source.below(4) > 0).then_some(world.wall_ms + ahead_ms)
        };
        let ids: Vec<_> =
            (0..count).map(|n| if count > 5 { own_id(self.own - n) } else { self.known(source) }).collect();
        let each = ids.into_iter().map(|id| match until(source) {
            Some(until_ms) => json!({ "id": id, "until": until_ms }),
            None => json!(id),
        });
        each.collect()
    }

    fn place(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Call {
        let session = source.pick(&SESSIONS);
        let (epoch, last_seq) = position(world, session);
        let epoch = if source.below(8) == 0 { epoch + i64::from(source.byte() % 4) - 2 } else { epoch };
        // Of places that go together, all but the first lie beyond what is committed.
        let ahead = [1, 1, 2, 3, 4, 5, 0, -1, WINDOW, WINDOW + 1];
        let seq = (last_seq + source.pick(&ahead)).max(1);
        let ack = match source.below(4) {
            0 => 0,
            1 => seq - 1,
            _ => last_seq - i64::from(source.byte() % 4),
        };
        let call = numbered(path(source), session, epoch.max(1), seq, ack.clamp(0, seq - 1));
        let call = if source.below(4) == 0 { self.acking(source, world, call) } else { call };
        let call = if source.below(16) == 0 { call.too_large() } else { call };
        if source.below(4) == 0 { timed(source, world, call) } else { call }
    }

    /// Places of a session, one after the other, up to the end of the window or beyond.
    pub fn burst(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Vec<Call> {
        let session = source.pick(&SESSIONS);
        let (epoch, last_seq) = position(world, session);
        let ack = (last_seq - i64::from(source.byte() % 2)).max(0);
        let count = source.pick(&[5, WINDOW - 1, WINDOW + 2]);
        let fails_at = source.optional(|source| i64::from(source.byte()));
        let path = |n| if Some(n) == fails_at { "/fails" } else { "/count" };
        (1..=count).map(|n| numbered(path(n), session, epoch.max(1), last_seq + n, ack)).collect()
    }

    fn take_over(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Call {
        let session = source.pick(&SESSIONS);
        let after = match source.below(3) {
            0 => format!(",\"after\":{}", position(world, session).0 + i64::from(source.byte() % 3) - 1),
            _ => String::new(),
        };
        take_over_with(&self.own(), &format!("{{\"name\":\"{session}\"{after}}}"))
    }

    fn cancel(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Call {
        let id = id(source);
        let own = self.own();
        if source.flag() {
            return cancel(&own, &id);
        }
        let first_sent_s = world.wall_s() - i64::from(source.byte()) * 4;
        let call = post(&control("cancel")).id(&own).body(json!({ "id": id, "firstSent": first_sent_s }).to_string());
        timed(source, world, call)
    }

    fn close(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Call {
        let name = source.pick(&SESSIONS);
        let (epoch, last_seq) = position(world, name);
        let seq = (last_seq + source.pick(&[1, 1, 2, 0])).max(1);
        let body = json!({ "session": { "name": name, "epoch": epoch.max(1), "seq": seq } });
        post(&control("cancel")).id(&self.own()).body(body.to_string())
    }

    fn administrators(&mut self, source: &mut Source<'_>, world: &World<Book>) -> Call {
        match source.below(9) {
            6 => admin::ask("/effects"),
            7 | 8 => {
                admin::mend(&self.own(), &desk_sent::id(source, world), source.pick(&["retry", "drop", "park", "park"]))
            }
            0 => admin::delete_key(&self.own()),
            1 | 2 => admin::delete_record(&self.own(), &id(source)),
            3 => admin::cancel_for(&self.own(), &json!({ "id": id(source) }).to_string()),
            4 => admin::ask("/records"),
            _ => admin::ask(&format!("/records/{}", id(source))),
        }
    }

    fn own(&mut self) -> String {
        self.own += 1;
        own_id(self.own)
    }

    /// Usually an id that was used.
    fn known(&self, source: &mut Source<'_>) -> String {
        if source.flag() { id(source) } else { own_id(self.own - i64::from(source.byte() % 8)) }
    }
}

/// Some new ids are UUIDs; the others begin with the same letters.
fn own_id(n: i64) -> String {
    if n % 2 == 0 { uuid(n.max(0)) } else { format!("own-{n}") }
}

fn id(source: &mut Source<'_>) -> String {
    match source.below(10) {
        n @ 0..=3 => uuid(1_000 + n as i64),
        4 => "quoted \"id\" \\".to_owned(),
        n => ["a", "b", "c", "d", "e"][n - 5].to_owned(),
    }
}

fn path(source: &mut Source<'_>) -> &'static str {
    match source.below(32) {
        0 => "/panics",
        1 | 2 => source.pick(UNDOING),
        _ => source.pick(PATHS),
    }
}

/// The same request with a first-sent and a deadline, or without.
fn timed(source: &mut Source<'_>, world: &World<Book>, call: Call) -> Call {
    let (now_s, now_ms) = (world.wall_s(), world.wall_ms);
    let call = match source.below(6) {
        0 | 1 => call,
        2 => call.first_sent_s(now_s - i64::from(source.byte()) * 4),
        3 => call.first_sent_s(now_s - RETENTION_S - i64::from(source.byte() % 3) + 1),
        4 => call.first_sent_s(now_s + 100),
        _ => call.first_sent_s(now_s),
    };
    match source.below(6) {
        0 => call,
        1 => call.deadline_ms(now_ms),
        2 => call.deadline_ms(now_ms - 1),
        3 => call.deadline_ms(now_ms + AHEAD_MS_MAX),
        _ => call.deadline_ms(now_ms + 30_000),
    }
}

fn numbered(path: &str, session: &str, epoch: i64, seq: i64, ack: i64) -> Call {
    post(path).header("semel-session", format!("{};epoch={epoch};seq={seq};ack={ack}", quoted(session)))
}

/// The committed current epoch and last seq of a session; 0 if there is none.
fn position(world: &World<Book>, session: &str) -> (i64, i64) {
    let number =
        |column: &str| world.database.number(&format!("SELECT {column} FROM semel_sessions WHERE name = '{session}'"));
    let last = "coalesce((SELECT max(seq) FROM semel_places WHERE session = semel_sessions.number), closed_seq)";
    let epochs = world.database.query(&format!("SELECT epochs FROM semel_sessions WHERE name = '{session}'"));
    let epochs = epochs.into_iter().flatten().next().and_then(semel_core::server::Value::into_blob);
    let current = epochs.and_then(|epochs| epochs.last_chunk::<16>().map(|held| held[..8].try_into()));
    let epoch = current.and_then(Result::ok).map_or(0, i64::from_be_bytes);
    (epoch, number(last))
}

fn is_by_administrator(call: &Call) -> bool {
    call.principal() == Principal::administrator().as_str()
}

/// A call as an element of a batch, without its acknowledgements.
pub fn element(call: &Call) -> Value {
    let headers = call.headers();
    let (pathname, search) = call.url();
    let request = call.request();
    let method = if request.method.reads() { "GET" } else { "POST" };
    let method = if request.path.is_control() && pathname.contains("/outcomes/") { "GET" } else { method };
    let mut element = json!({ "method": method, "path": format!("{pathname}{search}") });
    if let Ok(Some(id)) = header::own_id(&headers) {
        element["id"] = json!(id.as_str());
    }
    let digits = |name| headers.get(name).and_then(|value: &str| value.trim_start_matches('@').parse::<i64>().ok());
    for (member, name) in [("firstSent", "semel-first-sent"), ("deadline", "semel-deadline")] {
        if let Some(number) = digits(name) {
            element[member] = json!(number);
        }
    }
    if let Some(Ok(Numbered { place, ack })) = headers.get("semel-session").map(Numbered::parse) {
        let Place { session, epoch, seq } = place;
        element["session"] = json!({ "name": session.as_str(), "epoch": epoch, "seq": seq, "ack": ack });
    }
    if !request.body.is_empty() {
        element["body"] = json!(String::from_utf8_lossy(&request.body));
    }
    element
}

/// A batch, or a frame, of some elements.
pub fn batch_of(is_frame: bool, acks: Option<&[Value]>, elements: &[Value], wall_ms: i64) -> Batch {
    let key = Key::new(KEY).expect("a key");
    if is_frame {
        let mut frame = json!({ "frame": 1, "requests": elements });
        if let Some(acks) = acks {
            frame["acks"] = json!(acks);
        }
        let text = frame.to_string();
        return Batch::parse_frame(&key, &asker("alice"), wall_ms, Some(text.as_bytes())).expect("a frame");
    }
    let header = acks.map(|acks| {
        let each = acks.iter().map(|ack| match &ack["until"] {
            Value::Number(until) => format!("{};until={until}", ack["id"]),
            _ => ack.to_string(),
        });
        ("semel-ack", each.collect::<Vec<_>>().join(", "))
    });
    Batch::parse(&key, &Headers::from_iter(header), Some(json!(elements).to_string().as_bytes())).expect("a batch")
}
