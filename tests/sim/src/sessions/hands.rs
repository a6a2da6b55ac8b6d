//! Messages by hand to sessions of others: late ones, ones about another's request, and ones that nobody should send.
//!
//! Invariant: no message here takes a place that a holder may be about to use.

use super::asked::{Aim, Asked, Place};
use super::run::Run;
use super::view::Row;
use crate::curl::bearer;
use crate::letter::Message;
use crate::oracle::Violation;
use semel_core::header::quoted;

/// The numbers of other requests at a place begin here.
const OTHERS: usize = 1_000_000;
/// A principal who owns nothing here.
const STRANGER: &str = "mallory";

impl Run {
    /// Sends a message to some session, at once.
    pub(super) fn probe(&mut self) -> Result<(), Violation> {
        let account = self.rng.usize(0..self.plan.keys);
        let key = format!("keys/{account}");
        let Some(seen) = self.server.seen(&key) else { return Ok(()) };
        let all: Vec<(String, Row)> = seen.sessions.iter().map(|(name, row)| (name.clone(), row.clone())).collect();
        if all.is_empty() || self.rng.u32(0..4) == 0 {
            return self.send_again();
        }
        let (name, row) = all[self.rng.usize(0..all.len())].clone();
        let (current, last) = (row.current(), row.last());
        let (epoch, after) = row.epochs[self.rng.usize(0..row.epochs.len())];
        self.probes += 1;
        let own = format!("probe-{}", self.probes);
        let other = (OTHERS + self.rng.usize(0..1_000)).to_string();
        let place = |epoch: i64, seq: i64, ack: i64| Place { name: name.clone(), epoch, seq, ack };
        let owner = row.principal.as_str();
        let message = match self.rng.u32(0..12) {
            // A place of another request.
            0 | 1 if last > 0 => {
                let taken = self.rng.i64(1..=last);
                let epoch = row.places.get(&taken).map_or(epoch, |(epoch, _)| *epoch);
                at_place(account, owner, &place(epoch, taken, 0), &other)
            }
            // From a stranger.
            2 => at_place(account, STRANGER, &place(current, last + 1, 0), &other),
            3 => at_place(account, STRANGER, &place(current, last.max(1), last.max(1) - 1), &other),
            4 => close(account, STRANGER, &own, &place(current, last + 1, 0)),
            5 => take_over(account, STRANGER, &own, &name, None),
            // An epoch that does not exist yet.
            6 => at_place(account, owner, &place(current + 1, last + 1, 0), &other),
            // A number that another epoch has or had.
            7 if after > 0 => at_place(account, owner, &place(epoch, self.rng.i64(1..=after), 0), &other),
            // A number beyond the next.
            8 => at_place(account, owner, &place(current, last + self.rng.i64(2..=4), 0), &other),
            // From a former holder, who acknowledges everything.
            9 if epoch < current => at_place(account, owner, &place(epoch, last + 1, last), &other),
            10 if last > 0 => {
                let taken = self.rng.i64(1..=last);
                let epoch = row.places.get(&taken).map_or(epoch, |(epoch, _)| *epoch);
                close(account, owner, &own, &place(epoch, taken, 0))
            }
            11 if current > 1 => take_over(account, owner, &own, &name, Some(self.rng.i64(0..current))),
            _ => return self.send_again(),
        };
        drop(self.deal(&message)?);
        Ok(())
    }

    /// A message that was sent to a session arrives once more, late.
    fn send_again(&mut self) -> Result<(), Violation> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let message = self.sent[self.rng.usize(0..self.sent.len())].clone();
        // If the original never arrived, this would not be late: its sender may be gone, and nothing holds its place.
        let is_place = |asked: &Asked| matches!(asked.aim, Aim::AtPlace(_) | Aim::Close(_) | Aim::TakeOver(..));
        if is_place(&Asked::of_message(&message)) || message.target.ends_with("/batch") {
            self.oracle.see("session: something comes again, late");
            drop(self.deal(&message)?);
        }
        Ok(())
    }
}

/// A message with a deposit at a place.
pub(super) fn at_place(account: usize, by: &str, place: &Place, body: &str) -> Message {
    let Place { name, epoch, seq, ack } = place;
    let mut headers = bearer(by);
    let ack = if *ack > 0 { format!(";ack={ack}") } else { String::new() };
    headers.append("semel-session", format!("{};epoch={epoch};seq={seq}{ack}", quoted(name)));
    headers.append("content-type", "text/plain");
    Message {
        method: "POST".to_owned(),
        target: format!("/keys/{account}/deposits"),
        headers,
        body: body.as_bytes().to_vec(),
        is_too_large: false,
    }
}

fn control(account: usize, by: &str, what: &str, own: &str, body: String) -> Message {
    let mut headers = bearer(by);
    headers.append("idempotency-key", quoted(own));
    let target = format!("/semel/v1/keys/keys%2F{account}/{what}");
    Message { method: "POST".to_owned(), target, headers, body: body.into_bytes(), is_too_large: false }
}

/// A message that closes a place.
pub(super) fn close(account: usize, by: &str, own: &str, Place { name, epoch, seq, .. }: &Place) -> Message {
    let body = format!("{{\"session\":{{\"name\":{},\"epoch\":{epoch},\"seq\":{seq}}}}}", quoted(name));
    control(account, by, "cancel", own, body)
}

/// A message that takes a session over.
pub(super) fn take_over(account: usize, by: &str, own: &str, name: &str, after: Option<i64>) -> Message {
    let after = after.map_or(String::new(), |after| format!(",\"after\":{after}"));
    control(account, by, "sessions", own, format!("{{\"name\":{}{after}}}", quoted(name)))
}
