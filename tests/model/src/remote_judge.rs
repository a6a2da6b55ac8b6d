//! The judge of one id whose requests are executed elsewhere: it watches the effects there, and the answers here.
//!
//! Invariant: an administrator's word on the id stands, even if it is wrong; nothing else excuses a wrong answer.

use crate::elsewhere::number_in;
use crate::oracle::{Aim, Asked, Claim, Oracle};
use crate::properties::{Never, Sometimes};
use semel_core::problem::{Executed, Retry};
use semel_core::server::Answer;
use std::collections::BTreeSet;

/// An administrator's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Word {
    /// The request ran, and its outcome was [`BY_HAND`].
    Ran,
    /// The request did not run.
    DidNotRun,
}

/// The outcome that an administrator gives.
pub const BY_HAND: &str = "by hand";

/// The judge's memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RemoteJudge {
    /// The properties that were broken, and what has happened.
    pub oracle: Oracle,
    /// The outcome that somebody was told.
    told: Option<(u16, Vec<u8>)>,
    /// Whether somebody was told that the request never ran and never will.
    is_denied: bool,
    /// Whether somebody was told that nobody will find out.
    is_given_up: bool,
    /// The requests that were sent for attempts whose answer said that they had no effect.
    denied: BTreeSet<u8>,
    word: Option<Word>,
}

impl RemoteJudge {
    fn breaks(&mut self, property: Never, is_broken: bool) {
        if is_broken {
            self.oracle.broken.insert(property);
        }
    }

    /// There was an effect, after `earlier` others.
    pub fn watch_effect(&mut self, number: u8, earlier: usize) {
        self.breaks(Never::Twice, earlier > 0);
        let is_excused = self.word == Some(Word::DidNotRun);
        self.breaks(Never::NoForGood, self.is_denied && !is_excused);
        self.breaks(Never::NoOfEffect, self.denied.contains(&number) && !is_excused);
        let is_other = self.told.as_ref().is_some_and(|(_, body)| number_in(body) != Some(number));
        self.breaks(Never::Different, is_other && self.word.is_none());
    }

    /// An attempt was answered. `sent`: the last request that left for it. `effects`: the requests that had effects.
    pub fn watch(&mut self, asked: &Asked, answer: &Answer, sent: Option<u8>, effects: &[u8]) {
        let status = answer.headers.get("semel-status").unwrap_or_default();
        let has_outcome = matches!(status, "executed" | "replayed");
        match &asked.aim {
            Aim::Resolve(word) if status == "executed" => {
                self.oracle.seen.insert(Sometimes::Resolved);
                self.breaks(Never::Different, self.word.is_some());
                self.word = Some(*word);
                return;
            }
            Aim::Execute | Aim::LookUp if has_outcome => self.watch_outcome(answer, effects),
            // The deleted key no longer knows the id.
            Aim::DeleteKey if status == "executed" => self.is_given_up = false,
            Aim::Cancel if has_outcome && answer.body == br#"{"state":"cancelled"}"# => self.deny(effects),
            _ => {}
        }
        self.is_given_up |= matches!(status, "outcome-unknown" | "outcome-expired");
        self.oracle.seen.extend(match status {
            "replayed" => Some(Sometimes::Replay),
            "outcome-unknown" => Some(Sometimes::OutcomeUnknown),
            "upstream-unreachable" => Some(Sometimes::Unreachable),
            "attempt-expired" => Some(Sometimes::Late),
            "cancelled" => Some(Sometimes::Cancelled),
            "outcome-expired" | "acknowledged" => Some(Sometimes::Tombstone),
            _ => None,
        });
        // A problem that answers a resolution or a cancellation speaks of that command, not of the id.
        let claim = Claim::of(answer).filter(|_| matches!(asked.aim, Aim::Execute | Aim::LookUp));
        let Some(Claim { executed: Executed::No, retry }) = claim else { return };
        if retry == Retry::Never {
            self.deny(effects);
        }
        if let Some(number) = sent {
            self.breaks(Never::NoOfEffect, effects.contains(&number) && self.word != Some(Word::DidNotRun));
            self.denied.insert(number);
        }
    }

    fn deny(&mut self, effects: &[u8]) {
        self.is_denied = true;
        self.breaks(Never::NoForGood, !effects.is_empty() && self.word != Some(Word::DidNotRun));
    }

    /// Somebody was told an outcome. It must be that of the first effect, or the one that an administrator gave.
    fn watch_outcome(&mut self, answer: &Answer, effects: &[u8]) {
        let told = (answer.status, answer.body.clone());
        let is_so = match self.word {
            Some(Word::Ran) => told.1 == BY_HAND.as_bytes(),
            Some(Word::DidNotRun) => false,
            None => number_in(&told.1) == effects.first().copied(),
        };
        self.breaks(Never::Different, !is_so || self.told.as_ref().is_some_and(|before| *before != told));
        self.breaks(Never::Different, self.is_given_up && self.word.is_none());
        self.breaks(Never::NoOutcome, !matches!(told.0, 200..=299 | 400..=499));
        self.told = Some(told);
    }
}
