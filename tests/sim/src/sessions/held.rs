//! Messages that a key has handled and of which nobody hears yet, because the commit is slow.
//!
//! Invariants:
//! - Until the commit is durable, no answer leaves and the oracle does not know of it. If the object dies before,
//!   nobody ever hears of it.
//! - Everything that a key holds back becomes durable at once, and is told in order.

use super::asked::Dealt;
use super::run::{Event, Run, Sender};
use crate::letter::Message;
use crate::oracle::Violation;

/// The longest that commits are held back, in ms.
const HOLD_MS_MAX: i64 = 3_000;

/// How an answer returns.
#[derive(Debug, Clone, Copy)]
pub enum Waiting {
    Alone(Sender),
    /// On the socket of this number.
    OnSocket(Sender, usize),
}

impl Waiting {
    fn sender(self) -> Sender {
        match self {
            Self::Alone(from) | Self::OnSocket(from, _) => from,
        }
    }
}

/// A message that was handled.
#[derive(Debug)]
pub struct Held {
    pub waiting: Waiting,
    pub message: Box<Message>,
    pub dealt: Dealt,
}

impl Run {
    /// Tells of a message that was handled, or holds it back.
    pub(super) fn dealt(&mut self, held: Held) -> Result<(), Violation> {
        let key = held.dealt.key.clone();
        if held.dealt.has_released {
            self.tell_held(&key)?;
        }
        if held.dealt.is_held {
            self.oracle.see("session: commits are held back");
            let waiting = self.held.entry(key.clone()).or_default();
            waiting.push(held);
            if waiting.len() == 1 {
                let releases_ms = self.now_ms + self.apart.i64(0..=HOLD_MS_MAX);
                self.note(|| format!("{key}: from now on commits are slow"));
                self.push(releases_ms, Event::Release(key));
            }
            return Ok(());
        }
        if held.dealt.has_crashed {
            for lost in self.held.remove(&key).unwrap_or_default() {
                self.oracle.see("session: what was held back is lost with its object");
                self.note(|| format!("{:?}: its answer died with the object", lost.waiting));
                self.lose(lost.waiting.sender());
            }
        }
        self.tell(held)
    }

    /// Makes durable what a key holds back, and tells of it.
    pub(super) fn release(&mut self, key: &str) -> Result<(), Violation> {
        self.server.release(key);
        self.tell_held(key)
    }

    /// Tells of what was held back and is durable.
    pub(super) fn tell_held(&mut self, key: &str) -> Result<(), Violation> {
        for held in self.held.remove(key).unwrap_or_default() {
            self.tell(held)?;
        }
        Ok(())
    }

    /// Tells the oracle of a message, and sends the answer.
    fn tell(&mut self, Held { waiting, message, dealt }: Held) -> Result<(), Violation> {
        self.note(|| dealt.line());
        self.oracle.dealt(&dealt)?;
        match waiting {
            Waiting::Alone(from) => self.answer(from, &message, &Ok(dealt)),
            Waiting::OnSocket(from, number) => self.answer_on_socket(from, number, &message, dealt),
        }
        Ok(())
    }
}
