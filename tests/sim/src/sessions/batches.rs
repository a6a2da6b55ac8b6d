//! Ordinary requests, many in a frame: sent again, all that are not answered for good, until all are.
//!
//! Invariant: a request is the same in each of its attempts, whatever stands beside it.

use super::run::{Event, Run, Sender};
use crate::letter::Message;
use crate::oracle::Violation;
use semel_core::message::Headers;
use serde_json::{Value, json};

/// The numbers of what is wanted in batches begin here.
const NUMBERS: usize = 10_000;
/// The pause between two attempts.
const INTERVAL_MS: i64 = 1_000;

/// A request of one.
#[derive(Debug, Clone)]
struct Wanted {
    number: usize,
    id: String,
    /// Where it goes: not always where the batch does.
    account: usize,
    first_sent_s: Option<i64>,
    is_done: bool,
}

/// Who sends batches to one key.
#[derive(Debug)]
pub struct Batcher {
    user: usize,
    account: usize,
    wanted: Vec<Wanted>,
    /// Those of which it has the outcome, and has not said so.
    held: Vec<String>,
    /// Those of which the last attempt said so.
    acking: Vec<String>,
    /// Which requests were in the last attempt.
    last: Vec<usize>,
    is_through: bool,
}

impl Batcher {
    /// What is not done.
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
            // Twice in one frame.
            wanted.push(wanted[0].clone());
        }
        let user = self.rng.usize(0..2);
        Batcher { user, account, wanted, held: Vec::new(), acking: Vec::new(), last: Vec::new(), is_through: false }
    }

    pub(super) fn send_batch(&mut self, n: usize) {
        let now_ms = self.now_ms;
        if self.batchers[n].is_through {
            return;
        }
        let key = format!("keys/{}", self.batchers[n].account);
        let clock_s = self.server.clock_ms(&key, now_ms).div_euclid(1000);
        let batcher = &mut self.batchers[n];
        let (mut elements, mut last) = (Vec::new(), Vec::new());
        for (at, wanted) in batcher.wanted.iter_mut().enumerate().filter(|(_, wanted)| !wanted.is_done) {
            let first_sent_s = *wanted.first_sent_s.get_or_insert(clock_s);
            elements.push(json!({
                "id": wanted.id,
                "firstSent": first_sent_s,
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
                // What is not for a request of a batch: nothing of it may run.
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
        self.post(Sender::Batcher(n), message);
        self.push(now_ms + INTERVAL_MS, Event::Batch(n));
    }

    /// Each answer in its place: status, code, and how to go on.
    pub(super) fn batch_answered(&mut self, n: usize, answers: &[(u16, String, String)]) -> Result<(), Violation> {
        let batcher = &mut self.batchers[n];
        // An answer to an attempt before may be there as well: then it says nothing of this one.
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
