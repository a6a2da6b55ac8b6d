//! The wire: messages that are under way, lost, repeated or made up, and clients that are cut off.
//!
//! Invariant: the oracle hears of every message that was handled, whether or not an answer arrives.

use crate::letter::{Exchange, Letter, Sender};
use crate::oracle::Violation;
use crate::sim::{Event, Happening, Sim};

/// The longest that a message is under way if it is not slow, in ms.
const WAY_MS_MAX: i64 = 50;
/// The share of messages that are slow, in percent.
const SLOW_PERCENT: u32 = 20;
/// The longest that commits are held back, in ms.
const HOLD_MS_MAX: i64 = 3_000;

/// Until when a client is cut off, and from what.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cut {
    /// Until then no answer arrives.
    pub until_ms: i64,
    /// Whether only answers are cut off, and requests arrive.
    pub is_of_answers: bool,
}

impl Cut {
    /// Whether requests are cut off.
    pub fn stops_requests(self, now_ms: i64) -> bool {
        self.until_ms > now_ms && !self.is_of_answers
    }

    fn stops_answers(self, now_ms: i64) -> bool {
        self.until_ms > now_ms
    }
}

impl Sim {
    pub fn arrive(&mut self, letter: Letter) -> Result<(), Violation> {
        let turn = self.server.answer(&mut self.rng, self.now_ms, letter);
        for letter in turn.lost {
            self.note(|| format!("{:?}: its answer died with the object", letter.from));
            self.lose(letter.from);
        }
        if let Some(key) = turn.begins_to_hold {
            self.oracle.see("server: holds commits back");
            self.note(|| format!("{key}: from now on commits are slow"));
            self.later(HOLD_MS_MAX, Event::Release(key));
        }
        self.tell(turn.done)
    }

    /// Tells the oracle of the handled messages, and sends the answers.
    pub fn tell(&mut self, exchanges: Vec<Exchange>) -> Result<(), Violation> {
        for exchange in exchanges {
            self.note(|| exchange.line());
            self.oracle.exchanged(&exchange)?;
            let from = exchange.letter.from;
            let is_cut = self.cut_of(from).stops_answers(self.now_ms);
            if !exchange.is_answered || is_cut || self.happens_often(self.plan.lose_answers) {
                self.note(|| format!("{from:?}: the answer is lost"));
                self.lose(from);
                continue;
            }
            let is_unbounded = exchange.letter.message.deadline_ms().is_none();
            let reply = Box::new(exchange.reply);
            let way_ms = self.way_ms();
            match from {
                Sender::Tab { tab, attempt } => {
                    let answer = if self.happens_often(self.plan.gateway) {
                        self.oracle.see("gateway: made an answer up");
                        crate::tab::made_up(self.rng.bool())
                    } else {
                        crate::tab::answer(&reply)
                    };
                    self.later(way_ms, Event::In(tab, Happening::Answered(attempt, Box::new(answer))));
                }
                Sender::Curl { curl, life } => {
                    self.later(way_ms, Event::CurlAnswered { curl, life, reply, is_unbounded });
                }
                Sender::Reader(n) => self.later(way_ms, Event::ReadAnswered(n, reply)),
                Sender::Nobody => {}
            }
        }
        Ok(())
    }

    /// Sends a message to the server, perhaps twice, or loses it.
    pub fn post(&mut self, letter: Letter) {
        let is_cut = self.cut_of(letter.from).stops_requests(self.now_ms);
        if is_cut || self.happens_often(self.plan.lose_requests) {
            self.note(|| format!("{:?}: the request is lost", letter.from));
            return self.lose(letter.from);
        }
        let way_ms = self.way_ms();
        if self.happens_often(self.plan.repeat) {
            self.later(way_ms, Event::Arrival(Box::new(letter.clone())));
        }
        self.later(way_ms, Event::Arrival(Box::new(letter)));
    }

    fn cut_of(&self, from: Sender) -> Cut {
        match from {
            Sender::Tab { tab, .. } => self.browsers[self.tabs[tab].browser].cut,
            Sender::Curl { curl, .. } => self.curls[curl].cut,
            Sender::Reader(_) | Sender::Nobody => Cut::default(),
        }
    }

    /// Loses a message. A broken connection is noticed by the client; a message that vanishes is not.
    fn lose(&mut self, from: Sender) {
        if let Sender::Tab { tab, attempt } = from
            && self.rng.bool()
        {
            let way_ms = self.way_ms();
            self.later(way_ms, Event::In(tab, Happening::Lost(attempt)));
        }
    }

    /// The longest that the next message is under way, in ms. Most are short, so that long ones are overtaken and
    /// overtake nothing.
    fn way_ms(&mut self) -> i64 {
        let is_slow = self.happens_often(SLOW_PERCENT);
        if is_slow { self.plan.delay_ms_max } else { self.plan.delay_ms_max.min(WAY_MS_MAX) }
    }
}
