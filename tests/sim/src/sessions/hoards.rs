//! Situations that need many requests: a session full of outcomes, one that had many holders, and a key with many
//! sessions.

use super::asked::{Dealt, Place};
use super::hands::{at_place, take_over};
use super::run::Run;
use crate::letter::Message;
use crate::oracle::Violation;
use serde_json::{Value, json};

/// The numbers of these requests begin here.
const NUMBERS: usize = 100_000;
/// How often a request without an answer is sent at most.
const ATTEMPTS_MAX: usize = 4;
/// The principal of these requests.
const HOARDER: &str = "alice";

impl Run {
    /// Makes one of these situations, all at once.
    pub(super) fn hoard(&mut self, n: usize) -> Result<(), Violation> {
        let account = self.rng.usize(0..self.plan.keys);
        match self.rng.u32(0..3) {
            0 => self.hoard_outcomes(n, account),
            1 => self.hoard_epochs(n, account),
            _ => self.hoard_sessions(n, account),
        }
    }

    /// Sends a message until there is an answer, a few times at most.
    fn insist(&mut self, message: &Message) -> Result<Option<Dealt>, Violation> {
        for _ in 0..ATTEMPTS_MAX {
            let dealt = self.deal(message)?.ok();
            let is_done = |dealt: &&Dealt| dealt.replies.iter().all(|reply| reply.status() < 500);
            if let Some(dealt) = dealt.filter(|dealt| !dealt.replies.is_empty() && is_done(&dealt)) {
                return Ok(Some(dealt));
            }
        }
        Ok(None)
    }

    /// Takes over a new session. Returns its epoch and last number.
    fn begin(&mut self, account: usize, own: &str, name: &str) -> Result<Option<(i64, i64)>, Violation> {
        let dealt = self.insist(&take_over(account, HOARDER, own, name, None))?;
        let json = dealt.filter(|dealt| dealt.replies[0].status() == 200).map(|dealt| dealt.replies[0].json());
        Ok(json.and_then(|json| Some((json["epoch"].as_i64()?, json["lastSeq"].as_i64()?))))
    }

    fn hoard_outcomes(&mut self, n: usize, account: usize) -> Result<(), Violation> {
        let name = format!("h{n}");
        let Some((epoch, _)) = self.begin(account, &format!("hoard-{n}"), &name)? else { return Ok(()) };
        let elements: Vec<Value> = (1..=66)
            .map(|seq: i64| {
                json!({
                    "session": { "name": name, "epoch": epoch, "seq": seq },
                    "method": "POST",
                    "path": format!("/keys/{account}/deposits"),
                    "body": (NUMBERS + n * 1_000 + seq as usize).to_string(),
                })
            })
            .collect();
        let target = format!("/semel/v1/keys/keys%2F{account}/batch");
        let body = Value::Array(elements).to_string().into_bytes();
        let headers = crate::curl::bearer(HOARDER);
        let batch = Message { method: "POST".to_owned(), target, headers, body, is_too_large: false };
        self.insist(&batch)?;
        self.sent.push(batch);
        Ok(())
    }

    fn hoard_epochs(&mut self, n: usize, account: usize) -> Result<(), Violation> {
        let name = format!("h{n}");
        let Some((epoch, _)) = self.begin(account, &format!("hoard-{n}"), &name)? else { return Ok(()) };
        let place = |epoch: i64, seq: i64, ack: i64| Place { name: name.clone(), epoch, seq, ack };
        let number = |seq: usize| (NUMBERS + n * 1_000 + seq).to_string();
        let (first, second) = (at_place(account, HOARDER, &place(epoch, 1, 0), &number(1)), place(epoch, 2, 1));
        self.insist(&first)?;
        self.insist(&at_place(account, HOARDER, &second, &number(2)))?;
        for m in 0..65 {
            self.deal(&take_over(account, HOARDER, &format!("hoard-{n}-{m}"), &name, None))?.ok();
        }
        self.insist(&first)?;
        self.insist(&at_place(account, HOARDER, &place(epoch, 3, 0), &number(3)))?;
        Ok(())
    }

    fn hoard_sessions(&mut self, n: usize, account: usize) -> Result<(), Violation> {
        for m in 0..=self.plan.sessions.sessions_max.min(8) {
            self.begin(account, &format!("hoard-{n}-{m}"), &format!("m{n}-{m}"))?;
        }
        Ok(())
    }
}
