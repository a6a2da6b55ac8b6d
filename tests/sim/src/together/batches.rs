//! Batches: requests of about the same time, in one message.
//!
//! Invariants:
//! - As in `batches.js`, a batch begins in the turn of all that waited with it. If that crashes or is not possible, or
//!   if the batch contains a suspect, nothing of it was done, and it runs one by one while nothing else runs.
//! - Each request of a batch takes effect as if it had come alone, in order.

use super::asked::{Ack, Asked, Come, Event};
use super::host::{STATEMENTS_MAX, STATEMENTS_OF_ONE_MORE};
use super::run::{Run, WAY_MS_MAX};
use crate::deposits::Trouble;
use crate::mutant::Twin;
use crate::oracle::Violation;
use semel_core::header::unquoted;
use semel_support::Reply;
use serde_json::{Value, json};
use std::rc::Rc;

/// The result of a batch.
pub(super) enum Batched {
    /// It is handled.
    Done,
    /// Each request has to run by itself.
    OneByOne(Come),
    /// The object has ended.
    Ended,
}

impl Run {
    /// Decides whether a message goes in the next batch.
    pub(super) fn goes_in_batch(&mut self) -> bool {
        self.options.batches > 0 && self.midst.u32(0..100) < self.options.batches
    }

    /// Puts a request in the next batch.
    pub(super) fn put_in_batch(&mut self, asked: Rc<Asked>, acks: Vec<Ack>) {
        if self.batched.all.is_empty() {
            self.later(WAY_MS_MAX, Event::Batched);
        }
        self.batched.is_batch = true;
        self.batched.all.push(asked);
        self.batched.acks.extend(acks);
    }

    /// Sends the batch.
    pub(super) fn send_batch(&mut self) {
        let come = std::mem::take(&mut self.batched);
        self.later(WAY_MS_MAX, Event::Arrival(come));
    }

    /// Handles the batch whose first request is the `n`th of a group.
    pub(super) fn deal_batch(&mut self, come: Come, (n, many): (usize, usize)) -> Result<Batched, Violation> {
        if come.all.iter().any(|asked| self.is_suspect(asked)) {
            return Ok(Batched::OneByOne(come));
        }
        let kills = come.all.iter().any(|asked| self.trouble_of(asked) == Some(Trouble::Kills));
        let more = u64::try_from(come.all.len()).expect("a few");
        self.prepare(STATEMENTS_MAX + more * STATEMENTS_OF_ONE_MORE, kills);
        let replies = self.ask_for_batch(&come.acks, &come.all);
        self.blame_panics();
        if self.object.world.database.has_crashed() {
            self.end_object("in the middle of a batch")?;
            return Ok(Batched::Ended);
        }
        self.object.world.database.calm();
        let Some(mut replies) = replies else { return Ok(Batched::OneByOne(come)) };
        self.see(if many > come.all.len() { "a batch among others of a commit" } else { "a batch in one commit" });
        if self.is_twin(Twin::BatchAnswersMixed) {
            replies.reverse();
        }
        for (at, (asked, reply)) in come.all.into_iter().zip(replies).enumerate() {
            if !self.deal(asked, (n + at, many), Some(reply))? {
                return Ok(Batched::Ended);
            }
        }
        Ok(Batched::Done)
    }

    /// Makes the acknowledgements of a batch whose requests then run one by one. Returns whether these may go on.
    pub(super) fn acknowledge_ahead(&mut self, come: &Come) -> Result<bool, Violation> {
        self.prepare(STATEMENTS_MAX, false);
        let done = self.ask_for_batch(&come.acks, &[]);
        if self.object.world.database.has_crashed() {
            self.end_object("as it acknowledges ahead of a batch")?;
            return Ok(false);
        }
        self.object.world.database.calm();
        if done.is_none() {
            // Nobody is told anything besides.
            self.see("what goes along with a batch can't be done, and nothing of it is");
            let (life, most_ms) = (self.object.life, self.commit_ms_max());
            self.later(most_ms, Event::Durable(life));
        }
        Ok(done.is_some())
    }

    /// The engine's answers in one commit; `None`: nothing of it is done.
    fn ask_for_batch(&mut self, acks: &[Ack], all: &[Rc<Asked>]) -> Option<Vec<Reply>> {
        let acks = acks.iter().map(|(id, until_ms)| match until_ms {
            Some(until_ms) => format!("\"{id}\";until={until_ms}"),
            None => format!("\"{id}\""),
        });
        let acks = acks.collect::<Vec<_>>().join(", ");
        let headers = [("semel-ack", acks.as_str())];
        let headers = if acks.is_empty() { &headers[..0] } else { &headers[..] };
        let elements = all.iter().map(|asked| element_of(asked)).collect();
        self.object.world.begin_batch(headers, &Value::Array(elements))
    }
}

/// The request as an element of a batch.
fn element_of(asked: &Asked) -> Value {
    let request = asked.call.request();
    let id = request.headers.get("idempotency-key").and_then(unquoted);
    let body = String::from_utf8_lossy(&request.body);
    let mut element = json!({ "id": id, "method": "POST", "path": request.path.with_query(), "body": body });
    if let Some(first_sent_s) = asked.first_sent_s {
        element["firstSent"] = first_sent_s.into();
    }
    if let Some(deadline_ms) = asked.deadline_ms {
        element["deadline"] = deadline_ms.into();
    }
    element
}
