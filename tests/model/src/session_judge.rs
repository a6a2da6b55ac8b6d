//! What the judge knows of the session: who holds it, and which numbers were taken. From effects and answers alone.
//!
//! Invariant: it counts a take-over from the moment at which its answer is given. What takes a place after that under an older
//! epoch is wrong, whoever is right about the order before.

use crate::oracle::{Aim, Asked};
use crate::properties::Never;
use crate::tables::Effect;
use semel_core::server::Answer;

/// The session that is judged; takings-over of others only give epochs.
pub const SESSION: &str = "s";

/// What an attempt of a session says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Numbers {
    /// The epoch.
    pub epoch: i64,
    /// The number.
    pub seq: i64,
    /// Up to which number it acknowledges.
    pub ack: i64,
}

impl Numbers {
    /// What the place is called, as the handler does it.
    pub fn id(&self) -> String {
        format!("{SESSION};epoch={};seq={}", self.epoch, self.seq)
    }
}

/// What is known of the session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SessionJudge {
    held: i64,
    /// The highest epoch that anybody was given.
    highest: i64,
    /// The places that were taken, in the order of their numbers.
    taken: Vec<String>,
    /// Whether the session may have gone with what was forgotten or deleted.
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

    /// An attempt was answered, with these effects.
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
