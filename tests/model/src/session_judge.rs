//! What the judge knows of the session: who holds it, and which seqs were taken. It knows this from effects and answers alone.
//!
//! Invariant: a take-over counts from the moment its answer is given. A place that is taken after that under an older epoch is
//! wrong.

use crate::oracle::{Aim, Asked};
use crate::properties::Never;
use crate::tables::Effect;
use semel_core::server::Answer;

/// The session that is judged. Take-overs of other sessions only give epochs.
pub const SESSION: &str = "s";

/// The place of an attempt, and what it acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Numbers {
    /// The epoch.
    pub epoch: i64,
    /// The seq.
    pub seq: i64,
    /// The seq up to which it acknowledges.
    pub ack: i64,
}

impl Numbers {
    /// The name of the place, as the handler writes it.
    pub fn id(&self) -> String {
        format!("{SESSION};epoch={};seq={}", self.epoch, self.seq)
    }
}

/// What the judge knows of the session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SessionJudge {
    held: i64,
    /// The highest epoch that anybody was given.
    highest: i64,
    /// The places that were taken, in the order of their seqs.
    taken: Vec<String>,
    /// Whether the session may be gone, because something was forgotten or deleted.
    may_be_gone: bool,
}

impl SessionJudge {
    /// Something was forgotten, or deleted.
    pub fn may_be_gone(&mut self) {
        self.may_be_gone = true;
    }

    /// Whether an epoch is over.
    pub fn is_over(&self, epoch: i64) -> bool {
        epoch < self.held
    }

    /// The places that an attempt acknowledges, if it may.
    pub fn acknowledges(&self, asked: &Asked, answer: &Answer) -> Vec<String> {
        let Some(Numbers { epoch, ack, .. }) = asked.place else { return Vec::new() };
        let is_heard = answer.headers.get("semel-status") != Some("forbidden") && epoch == self.held;
        let count = if is_heard { usize::try_from(ack).unwrap_or(0) } else { 0 };
        self.taken.iter().take(count).cloned().collect()
    }

    /// An attempt was answered, with these effects. Returns the properties that it breaks.
    pub fn watch(&mut self, asked: &Asked, effects: &[Effect], answer: &Answer) -> Vec<Never> {
        let mut broken = Vec::new();
        let status = answer.headers.get("semel-status").unwrap_or_default();
        if let Some(Numbers { epoch, seq, .. }) = asked.place {
            let is_next = usize::try_from(seq).is_ok_and(|seq| seq == self.taken.len() + 1);
            let is_closed = match asked.aim {
                Aim::Cancel => status == "executed" && answer.body == b"{\"state\":\"cancelled\"}",
                _ => status == "poisoned",
            };
            if !effects.is_empty() && epoch != self.held {
                broken.push(Never::Unheld);
            }
            if !effects.is_empty() && !is_next {
                broken.push(Never::OutOfNumber);
            }
            if is_next && (is_closed || !effects.is_empty()) {
                self.taken.push(asked.id.clone());
            }
        }
        if let (Aim::TakeOver(after), "executed") = (&asked.aim, status) {
            broken.extend(self.taken_over(asked, *after, answer));
        }
        broken
    }

    fn taken_over(&mut self, asked: &Asked, after: Option<i64>, answer: &Answer) -> Vec<Never> {
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let (epoch, last_seq) = (body["epoch"].as_i64().unwrap_or(0), body["lastSeq"].as_u64().unwrap_or(0));
        let is_twice = epoch <= self.highest;
        self.highest = self.highest.max(epoch);
        let mut broken = Vec::from_iter(is_twice.then_some(Never::EpochTwice));
        if asked.id != SESSION {
            return broken;
        }
        let is_anew = self.may_be_gone && last_seq == 0;
        if after.is_some_and(|after| after < self.held) && !is_anew {
            broken.push(Never::Usurped);
        }
        if is_anew {
            self.taken.clear();
        }
        if usize::try_from(last_seq) != Ok(self.taken.len()) {
            broken.push(Never::Misled);
        }
        (self.held, self.may_be_gone) = (epoch, false);
        broken
    }
}
