//! Ordinary requests, many in a frame. Requests without a definitive answer are sent again until all have one.
//!
//! Invariant: a request is the same in each attempt, whatever else is in the frame.

use super::run::{Event, Run, Sender};
use crate::letter::Message;
use crate::oracle::Violation;
use semel_core::message::Headers;
use serde_json::{Value, json};

/// The numbers of requests in batches begin here.
const NUMBERS: usize = 10_000;
/// The pauses between two attempts, in ms. A long pause may exceed the time for which an object suspects requests of
/// having ended the one before.
const INTERVALS_MS: [i64; 3] = [1_000, 3_000, 7_000];
/// How long after its deadline the copy of an attempt arrives at most, in ms.
const LATE_MS_MAX: i64 = 4_000;
/// The longest time until an attempt is too late, in ms.
const LIFE_MS_MAX: i64 = 15_000;

/// A request of a batch.
#[derive(Debug, Clone)]
struct Wanted {
    number: usize,
    id: String,
    /// Its account, which is not always that of the batch.
    account: usize,
    first_sent_s: Option<i64>,
    is_done: bool,
}

/// A client that sends batches to one key.
#[derive(Debug)]
pub struct Batcher {
    user: usize,
    account: usize,
    wanted: Vec<Wanted>,
    /// The ids whose outcome it has, and which it has not acknowledged.
    held: Vec<String>,
    /// The ids that the last attempt acknowledged.
    acking: Vec<String>,
    /// The requests in the last attempt.
    last: Vec<usize>,
    is_through: bool,
    /// How long after it is sent an attempt is too late, in ms.
    life_ms: Option<i64>,
    /// The pause between two attempts, in ms.
    interval_ms: i64,
}

impl Batcher {
    /// What is not done yet.
    pub fn pending(&self) -> Option<String> {
        let left: Vec<usize> =
            self.wanted.iter().filter(|wanted| !wanted.is_done).map(|wanted| wanted.number).collect();
        (!left.is_empty() || !self.is_through).then(|| format!("of a batch: {left:?}, unacknowledged {:?}", self.held))
    }
}

impl Run {
    pub(super) fn any_batcher(&mut self, n: usize) -> Batcher {
        let account = self.rng.usize(0..self.plan.keys);
        let mut wanted = Vec::new();
        for m in 0..self.rng.usize(2..=6) {
            let number = NUMBERS + n * 100 + m;
            self.decide_trouble(number);
            let is_astray = self.rng.u32(0..12) == 0;
            let account = if is_astray { account + 1 } else { account };
            wanted.push(Wanted { number, id: format!("b{number}"), account, first_sent_s: None, is_done: false });
        }
        if self.rng.u32(0..3) == 0 {
            // The same request twice in one frame.
            wanted.push(wanted[0].clone());
        }
        let user = self.rng.usize(0..2);
        let has_deadlines = self.apart.u32(0..100) < self.plan.sessions.deadlines;
        let life_ms = has_deadlines.then(|| self.apart.i64(500..=LIFE_MS_MAX));
        let interval_ms = INTERVALS_MS[if has_deadlines { self.apart.usize(0..INTERVALS_MS.len()) } else { 0 }];
        Batcher {
            user,
            account,
            wanted,
            held: Vec::new(),
            acking: Vec::new(),
            last: Vec::new(),
            is_through: false,
            life_ms,
            interval_ms,
        }
    }

    pub(super) fn send_batch(&mut self, n: usize) {
        let now_ms = self.now_ms;
        if self.batchers[n].is_through {
            return;
        }
        let key = format!("keys/{}", self.batchers[n].account);
        let clock_ms = self.server.clock_ms(&key, now_ms);
        let clock_s = clock_ms.div_euclid(1000);
        let batcher = &mut self.batchers[n];
        let (mut elements, mut last) = (Vec::new(), Vec::new());
        for (at, wanted) in batcher.wanted.iter_mut().enumerate().filter(|(_, wanted)| !wanted.is_done) {
            let first_sent_s = *wanted.first_sent_s.get_or_insert(clock_s);
            elements.push(json!({
                "id": wanted.id,
                "firstSent": first_sent_s,
                "deadline": batcher.life_ms.map(|life_ms| clock_ms + life_ms),
                "method": "POST",
                "path": format!("/keys/{}/deposits", wanted.account),
                "body": wanted.number.to_string(),
            }));
            last.push(at);
        }
        batcher.last = last;
        batcher.acking = batcher.held.clone();
        let mut headers =
            Headers::from_iter([("authorization", format!("Bearer {}", crate::tab::USERS[batcher.user]))]);
        if !batcher.acking.is_empty() {
            let acks: Vec<String> = batcher.acking.iter().map(|id| format!("\"{id}\"")).collect();
            headers.append("semel-ack", acks.join(", "));
        }
        let target = format!("/semel/v1/keys/keys%2F{}/batch", batcher.account);
        let mut body = Value::Array(elements.clone()).to_string();
        if self.happens_often(self.plan.gateway) {
            if let (Some(first), true) = (elements.first().cloned(), self.rng.bool()) {
                // A header that is not allowed in a batch. Nothing of the batch may run.
                let mut reserved = first;
                reserved["headers"] = json!({ "semel-ack": "\"nobody\"" });
                body = json!([elements[0], reserved]).to_string();
                self.oracle.see("batch: with a header that is not for it");
            } else {
                body.truncate(body.len() / 2);
                self.oracle.see("batch: cut");
            }
        }
        let message =
            Message { method: "POST".to_owned(), target, headers, body: body.into_bytes(), is_too_large: false };
        let late_ms = self.batchers[n].life_ms.filter(|_| !self.is_calm && self.apart.bool());
        if let Some(life_ms) = late_ms {
            let at_ms = now_ms + life_ms + self.apart.i64(1..=LATE_MS_MAX);
            self.push(at_ms, Event::Arrival(Sender::Nobody, Box::new(message.clone())));
        }
        self.post(Sender::Batcher(n), message);
        self.push(now_ms + self.batchers[n].interval_ms, Event::Batch(n));
    }

    /// Takes the answers, in the order of the requests: status, code, and how to go on.
    pub(super) fn batch_answered(&mut self, n: usize, answers: &[(u16, String, String)]) -> Result<(), Violation> {
        let batcher = &mut self.batchers[n];
        // This may be the answer to an earlier attempt, which says nothing of this one.
        if answers.len() != batcher.last.len() || batcher.is_through {
            return Ok(());
        }
        let acked = std::mem::take(&mut batcher.acking);
        batcher.held.retain(|id| !acked.contains(id));
        for (at, (_, code, retry)) in std::mem::take(&mut batcher.last).into_iter().zip(answers) {
            let wanted = &mut batcher.wanted[at];
            if matches!(code.as_str(), "executed" | "replayed") {
                wanted.is_done = true;
                batcher.held.push(wanted.id.clone());
            } else if retry == "never" || matches!(code.as_str(), "key-mismatch" | "fingerprint-mismatch") {
                wanted.is_done = true;
            }
        }
        batcher.is_through = batcher.held.is_empty() && batcher.wanted.iter().all(|wanted| wanted.is_done);
        Ok(())
    }
}
