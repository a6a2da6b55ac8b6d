//! Sending: what leaves next, and what its answer changes.
//!
//! Invariants:
//! - Before anything is sent to a key, its session is taken over: an object that starts holds no session.
//! - A take-over or a closing has no place in the session of its key; each has its own id.
//! - An answer counts only for what was sent last on its lane. All others are late, and are ignored.

use super::lane::{self, Heard, Known, Lane, Step, Target, Verdict};
use super::outbox::{Outbox, Running, UnderWay};
use super::store::{self, Head};
use super::{RESEND_MS, UNDER_WAY_MS, WAKE_MS};
use crate::header::quoted;
use crate::id::{Key, Principal};
use crate::message::Headers;
use crate::problem::Executed;
use crate::rules::{Rule, holds};
use crate::server::json::write::Object;
use crate::server::storage::schema;
use crate::server::storage::sql::{Sql, SqlError, atomically};
use crate::session::SESSION_NAME_CHARS_MAX;
use sha2::{Digest, Sha256};

/// For how many lanes an object remembers that it holds their sessions. Others are taken over again.
const KEPT_LANES_MAX: usize = 1_000;

/// A request that the host has to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sending {
    /// Identifies it, together with `token`, when the host reports on it.
    pub lane: i64,
    /// See `lane`.
    pub token: i64,
    /// The key to send it to; `None`: send it by `fetch`.
    pub key: Option<Key>,
    /// The method.
    pub method: String,
    /// Path and query; for an outside address, the whole URL.
    pub url: String,
    /// All headers.
    pub headers: Headers,
    /// The body.
    pub body: Vec<u8>,
}

impl Outbox {
    /// What to send now; `None` if there is nothing. `is_touched`: whether the key has tables. `chance`: a random number
    /// that was never given before, not even to an object whose key was restored since.
    pub(in crate::server) fn send_next(
        &mut self,
        sql: &dyn Sql,
        wall_ms: i64,
        chance: i64,
        is_touched: bool,
    ) -> Result<Option<Sending>, SqlError> {
        let has_looked = self.waits.get().is_some();
        // What was new may have been undone, along with the tables if it was the key's first.
        if (!has_looked || self.waits.is_new()) && !store::has_tables(sql)? {
            self.waits.set(Some(false));
            return Ok(None);
        }
        if self.own.is_none() && is_touched {
            self.own = schema::key(sql)?;
        }
        let Some(own) = self.own.clone() else { return Ok(None) };
        if !has_looked {
            store::sweep(sql)?;
        }
        if self.waits.is_new() {
            self.waits.set(Some(true));
            self.looks_again(false, 0);
        }
        // Silent lanes come first. Few of them may be under way, so they get their turn and leave room for the others.
        let (has_room, mut is_silent) = self.room(wall_ms);
        if !has_room {
            return Ok(None);
        }
        let (next, is_any) = loop {
            let due = self.due(sql, wall_ms, is_silent)?;
            if due.0.is_some() || !is_silent {
                break due;
            }
            is_silent = false;
        };
        // Even if nothing is due, effects may wait: they are all under way, or their time has not come.
        self.waits.set(Some(is_any));
        let Some((number, seq)) = next else { return Ok(None) };
        let (lane, head) = store::lane(sql, number)?.zip(store::head(sql, number)?).ok_or_else(|| missing(number))?;
        let running = self.lanes.entry(number).or_default();
        let is_first = running.sent.is_some_and(|sent| sent < seq);
        let known = Known { is_open: running.is_open, is_first, told: running.told_epoch };
        let step = lane::next(&lane, head.seq, head.closing.is_some(), known);
        self.token = (self.token + 1).max(wall_ms);
        let (token, until_ms) = (self.token, wall_ms + UNDER_WAY_MS);
        running.under_way = Some(UnderWay { token, step, seq, is_first, until_ms });
        running.attempts = if running.tried_seq == seq { running.attempts.saturating_add(1) } else { 1 };
        running.tried_seq = seq;
        if matches!(step, Step::Send(_)) {
            running.sent = running.sent.map(|sent| sent.max(seq));
        }
        Ok(Some(sending(&own, &lane, head, step, (token, chance, until_ms), running)))
    }

    /// Takes the report on what was sent, and returns whether something was parked. `clock_ms`: the key's clock, unless the storage fails.
    pub(in crate::server) fn sent(
        &mut self,
        sql: &dyn Sql,
        (clock_ms, wall_ms): (Result<i64, SqlError>, i64),
        (number, token): (i64, i64),
        mut heard: Heard,
    ) -> Result<bool, SqlError> {
        let Some(running) = self.lanes.get_mut(&number) else { return Ok(false) };
        let is_last = |last: &mut UnderWay| last.token == token || !holds(Rule::AnswerOfLast);
        let Some(under_way) = running.under_way.take_if(is_last) else { return Ok(false) };
        running.is_silent = matches!(heard, Heard::Nothing(_));
        if let Heard::Answered { semel, .. } = &heard
            && running.learns(under_way.step.is_control(), semel)
        {
            heard = Heard::Nothing("its deadline was refused".to_owned());
        }
        let settled = clock_ms.and_then(|now_ms| settle(sql, (now_ms, wall_ms), (number, under_way), running, heard));
        if settled.is_err() {
            // Whether the change was committed is unknown. So what is stored is asked for once more, at the interval, for
            // as long as the storage fails.
            let acks = std::mem::take(&mut running.acks);
            *running = Running { not_before_ms: wall_ms + RESEND_MS, acks, ..Running::default() };
        }
        let (is_silent, at_ms) = (running.is_silent, running.not_before_ms);
        self.looks_again(is_silent, at_ms);
        let Settled { is_empty, is_parked } = settled?;
        if is_empty && self.lanes.len() > KEPT_LANES_MAX {
            store::delete_lane(sql, number)?;
            self.lanes.remove(&number);
        }
        Ok(is_parked)
    }

    /// Whether there may be an effect to send, now or later.
    pub(in crate::server) fn has_to_send(&self) -> bool {
        self.waits.get() != Some(false)
    }

    /// When the object must be awake to send, in Unix ms, in case it dies; `None` if no effect is known to wait.
    pub(in crate::server) fn wakes_at(&self, wall_ms: i64) -> Option<i64> {
        (self.waits.get() == Some(true)).then_some(wall_ms + WAKE_MS)
    }
}

fn missing(lane: i64) -> SqlError {
    SqlError(format!("the lane {lane} of the effects is not there"))
}

/// What an answer has changed on a lane.
#[derive(Default)]
struct Settled {
    /// Nothing waits on the lane any more.
    is_empty: bool,
    is_parked: bool,
}

fn settle(
    sql: &dyn Sql,
    (now_ms, wall_ms): (i64, i64),
    (number, UnderWay { step, seq, is_first, .. }): (i64, UnderWay),
    running: &mut Running,
    heard: Heard,
) -> Result<Settled, SqlError> {
    let mut settled = Settled::default();
    let Some((lane, head)) = store::lane(sql, number)?.zip(store::head(sql, number)?) else {
        return Ok(Settled { is_empty: true, ..settled });
    };
    if head.seq != seq {
        // An administrator has parked it meanwhile.
        return Ok(settled);
    }
    let verdict = lane::judge(&lane, seq, step, is_first, heard);
    running.not_before_ms = 0;
    running.reason.clear();
    match verdict {
        Verdict::Done => {
            store::delete(sql, number, head.seq)?;
            settled.is_empty = store::head(sql, number)?.is_none();
        }
        Verdict::Park(executed, reason) => {
            let reason = head.closing.as_deref().filter(|_| reason.is_empty()).unwrap_or(&reason);
            atomically(sql, || park(sql, &lane, &head, now_ms, executed, reason))?;
            settled = Settled { is_empty: store::head(sql, number)?.is_none(), is_parked: true };
        }
        Verdict::Close(reason) => store::close(sql, number, head.seq, &reason)?,
        Verdict::TakeOver(reason) => {
            // What is refused in this way has not run.
            if is_first {
                running.sent = Some(seq - 1);
            }
            running.is_open = false;
            running.again(wall_ms, reason);
        }
        Verdict::Expect(epoch, reason) => {
            running.told_epoch = Some(epoch);
            running.again(wall_ms, reason);
        }
        Verdict::Forgotten => {
            atomically(sql, || forgotten(sql, now_ms, &lane, &head))?;
            running.told_epoch = None;
            settled = Settled { is_empty: store::head(sql, number)?.is_none(), is_parked: true };
        }
        Verdict::Again(reason) => running.again(wall_ms, reason),
        Verdict::Opened(epoch, last) => {
            let is_surely_new = lane::is_new(&lane, head.seq, is_first);
            settled.is_parked = atomically(sql, || open(sql, now_ms, (&lane, &head), (epoch, last), is_surely_new))?;
            running.is_open = true;
            running.told_epoch = None;
            running.sent = Some(last);
        }
    }
    Ok(settled)
}

fn park(
    sql: &dyn Sql,
    lane: &Lane,
    head: &Head,
    now_ms: i64,
    executed: Executed,
    reason: &str,
) -> Result<(), SqlError> {
    store::park(sql, &lane.target, &head.stored, now_ms, executed, reason)?;
    store::delete(sql, lane.number, head.seq)
}

/// Applies a take-over of the session. Returns whether the first effect was parked.
fn open(
    sql: &dyn Sql,
    now_ms: i64,
    (lane, head): (&Lane, &Head),
    (epoch, last): (i64, i64),
    is_surely_new: bool,
) -> Result<bool, SqlError> {
    // All numbers before the first were taken. If the other key knows fewer, it may have forgotten this one as well.
    let is_forgotten = last < head.seq - 1 && !is_surely_new;
    if is_forgotten {
        let reason = format!("the other key has forgotten numbers: it knows of {last}, and this is {}", head.seq);
        park(sql, lane, head, now_ms, Executed::Unknown, &reason)?;
    }
    let first = store::first_beyond(sql, lane.number, lane::kept(lane, last))?;
    store::open(sql, &lane::opened(lane, epoch, last, first))?;
    Ok(is_forgotten)
}

/// The other key has forgotten the session in which the first effect was sent, so nobody knows whether that ran. The
/// effects behind it were not sent, and begin a new session with the next take-over.
fn forgotten(sql: &dyn Sql, now_ms: i64, lane: &Lane, head: &Head) -> Result<(), SqlError> {
    let reason = format!("the other key has forgotten the session, of epoch {}", lane.epoch);
    park(sql, lane, head, now_ms, Executed::Unknown, &reason)?;
    let first = store::first_beyond(sql, lane.number, head.seq)?;
    store::open(sql, &lane::opened(lane, 0, 0, first))
}

fn sending(
    own: &Key,
    lane: &Lane,
    head: Head,
    step: Step,
    (token, chance, until_ms): (i64, i64, i64),
    running: &mut Running,
) -> Sending {
    let stored = head.stored;
    let (key, session) = match &lane.target {
        Target::Key(key) => (Some(key.clone()), session_of(own)),
        Target::Origin(_) => (None, String::new()),
    };
    let mut sending = Sending {
        lane: lane.number,
        token,
        key,
        method: "POST".to_owned(),
        url: String::new(),
        headers: Headers::new(),
        body: Vec::new(),
    };
    let path = |what: &str| {
        let key = sending.key.as_ref().map(Key::encoded).unwrap_or_default().replace('/', "%2F");
        format!("/semel/v1/keys/{key}/{what}")
    };
    match step {
        Step::Send(_) | Step::Call => {
            sending.method = stored.method;
            sending.url = stored.url;
            sending.headers = Headers::from_lines(&stored.headers);
            sending.body = stored.body;
        }
        Step::TakeOver(after) => {
            sending.url = path("sessions");
            let body = Object::default().with("name", session.as_str()).with_some("after", after);
            sending.body = body.end().into_text().into_bytes();
        }
        Step::Close(epoch) => {
            sending.url = path("cancel");
            let place = Object::default().with("name", session.as_str()).with("epoch", epoch).with("seq", head.seq);
            sending.body = Object::default().with("session", place.end()).end().into_text().into_bytes();
        }
    }
    match (step, &sending.key) {
        (_, Some(key)) => {
            let encoded = quoted(&key.encoded());
            sending.headers.append("semel-key", encoded);
            sending.headers.append("semel-principal", quoted(Principal::emitter().as_str()));
            sending.headers.append("semel-from", quoted(&own.encoded()));
            if !running.acks.is_empty() {
                sending.headers.append("semel-ack", running.acks.as_str());
            }
            if step.is_control() {
                // A new id each time, which nobody can have used before. If the answer to a take-over is lost, the next
                // take-over goes beyond it, and a place may be closed twice.
                let id = quoted(&format!("effects {} {token} {chance}", digest(own)));
                let until = until_ms.to_string();
                running.gives_out(&id, &until);
                sending.headers.append("idempotency-key", id);
                // After its deadline it can't run, so little has to be kept of it once it is acknowledged.
                if !running.is_undated {
                    sending.headers.append("semel-deadline", until);
                }
            }
        }
        (_, None) => sending.headers.append("idempotency-key", quoted(&stored.id)),
    }
    if let Step::Send(epoch) = step {
        // All numbers before it have been answered.
        let ack = if head.seq > 1 { format!(";ack={}", head.seq - 1) } else { String::new() };
        let place = format!("{};epoch={epoch};seq={}{ack}", quoted(&session), head.seq);
        sending.headers.append("semel-session", place);
    }
    sending
}

/// The name of the session in which a key sends. The prefix is reserved.
fn session_of(own: &Key) -> String {
    let name = format!("semel:{}", own.encoded());
    if name.len() <= SESSION_NAME_CHARS_MAX { name } else { format!("semel:#{}", digest(own)) }
}

fn digest(key: &Key) -> String {
    Sha256::digest(key.as_str()).iter().map(|byte| format!("{byte:02x}")).collect()
}
