//! Sockets: who sends what goes together as frames of one, and what becomes of these when it closes.
//!
//! Invariants:
//! - The frames of a socket arrive in their order, each once or never. What is under way on one that breaks may still arrive; its answer never does.
//! - Who is on a socket, and until when, is what its first frame said: it stays though the object is reloaded. One that was closed from the
//!   server has no more frames.

use super::asked::Dealt;
use super::held::{Held, Waiting};
use super::run::{Event, Run, Sender};
use crate::letter::Message;
use crate::oracle::Violation;
use semel_core::server::edge::auth::Asker;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A token lasts so long, at most.
const TOKEN_MS_MAX: i64 = 20_000;
/// The object wakes so late, at most, to close a socket whose token has ended.
const ALARM_MS_MAX: i64 = 3_000;

/// Who has a socket: a tab, or who sends batches.
type Who = (bool, usize);

#[derive(Debug)]
struct Socket {
    number: usize,
    key: String,
    frames: i64,
    /// When the last of them arrives.
    last_ms: i64,
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Of each who uses one, or might: whether they do.
    users: BTreeMap<Who, bool>,
    open: BTreeMap<Who, Socket>,
    opened: usize,
    /// Who is on each, whether it is still open or not, and how many objects had lived when its last frame arrived.
    askers: BTreeMap<usize, (Asker, u32)>,
    /// Those that the server has closed.
    closed: BTreeSet<usize>,
}

impl Sockets {
    fn is_open(&self, who: Who, number: usize) -> bool {
        self.open.get(&who).is_some_and(|socket| socket.number == number)
    }
}

fn who(from: Sender) -> Option<Who> {
    match from {
        Sender::Tab(tab, _) => Some((true, tab)),
        Sender::Batcher(n) => Some((false, n)),
        Sender::Nobody => None,
    }
}

impl Run {
    /// Whether a message goes as a frame. What is no batch that could be read does not.
    pub(super) fn is_on_a_socket(&mut self, from: Sender, message: &Message) -> bool {
        let share = self.plan.sessions.sockets;
        let Some(who) = who(from).filter(|_| share > 0 && message.target.ends_with("/batch")) else { return false };
        let apart = &mut self.apart;
        let uses = *self.sockets.users.entry(who).or_insert_with(|| apart.u32(0..100) < share);
        uses && serde_json::from_slice::<Vec<Value>>(&message.body).is_ok()
    }

    /// A frame goes on its way, on the socket that there is, or on one that is opened for it.
    pub(super) fn post_frame(&mut self, from: Sender, message: Message) {
        let Some(who) = who(from) else { return };
        if !self.sockets.open.contains_key(&who) && !self.open_socket(from, who, &message) {
            return self.lose(from);
        }
        let way_ms = self.way_ms();
        let arrives_ms = self.now_ms + self.rng.i64(0..=way_ms);
        let Some(socket) = self.sockets.open.get_mut(&who) else { return };
        socket.frames += 1;
        socket.last_ms = socket.last_ms.max(arrives_ms);
        let (at_ms, at) = (socket.last_ms, (socket.number, socket.frames));
        if self.happens_often(self.plan.lose_requests / 2) {
            self.oracle.see("socket: it breaks");
            self.note(|| format!("{from:?}: socket {} breaks", at.0));
            self.sockets.open.remove(&who);
            self.lose(from);
            if self.apart.bool() {
                return;
            }
        }
        self.push(at_ms, Event::Frame(from, at, Box::new(message)));
    }

    /// Opens one; whether whoever opens it is let in.
    fn open_socket(&mut self, from: Sender, who: Who, message: &Message) -> bool {
        let key = message.target.trim_start_matches("/semel/v1/keys/").trim_end_matches("/batch").replace("%2F", "/");
        let credentials = message.headers.get("authorization").unwrap_or_default();
        let user = credentials.trim_start_matches("Bearer ");
        let is_other = !self.is_calm && self.plan.logins > 0 && self.apart.u32(0..4) == 0;
        // Somebody else has logged in meanwhile.
        let credentials = if is_other { "Bearer mallory" } else { credentials };
        let first = json!({ "authorization": credentials, "principal": user }).to_string();
        let Some(mut asker) = self.server.admit(&key, &first, self.now_ms) else {
            self.oracle.see("socket: somebody else's token is refused");
            return false;
        };
        let lasts_ms = self.apart.i64(0..=TOKEN_MS_MAX);
        asker.ends_ms = Some(self.server.wall_ms(&key, self.now_ms) + lasts_ms);
        let number = self.sockets.opened;
        self.sockets.opened += 1;
        self.note(|| format!("{from:?}: opens socket {number} as {user}, for {lasts_ms} ms"));
        let ends_ms = self.now_ms + lasts_ms + self.apart.i64(0..=ALARM_MS_MAX);
        self.push(ends_ms, Event::TokenEnds(from, number));
        self.sockets.askers.insert(number, (asker, 0));
        self.sockets.open.insert(who, Socket { number, key, frames: 0, last_ms: self.now_ms });
        true
    }

    pub(super) fn frame_arrives(
        &mut self,
        from: Sender,
        (number, frame): (usize, i64),
        message: Box<Message>,
    ) -> Result<(), Violation> {
        let Some(who) = who(from).filter(|_| !self.sockets.closed.contains(&number)) else {
            self.lose(from);
            return Ok(());
        };
        let Some((asker, starts)) = self.sockets.askers.get(&number).cloned() else { return Ok(()) };
        self.server.may_hold = !self.is_calm;
        let dealt = self.server.deal_frame(&mut self.rng, self.now_ms, &message, (&asker, frame));
        self.server.may_hold = false;
        let lived = self.server.starts(&dealt.key);
        if starts > 0 && lived > starts {
            self.oracle.see("socket: it stays while its object is reloaded");
        }
        self.sockets.askers.insert(number, (asker, lived));
        if dealt.has_crashed {
            // With the object, all of its connections end.
            self.sockets.open.retain(|_, socket| socket.key != dealt.key);
        }
        if dealt.is_closing {
            if dealt.is_past_token {
                self.oracle.see("socket: a frame comes when its token has ended");
            }
            self.close_socket(who, number);
        }
        self.dealt(Held { waiting: Waiting::OnSocket(from, number), message, dealt })
    }

    /// A frame has been dealt with, and what comes of it goes back on its socket.
    pub(super) fn answer_on_socket(&mut self, from: Sender, number: usize, message: &Message, dealt: Dealt) {
        let is_open = who(from).is_some_and(|who| self.sockets.is_open(who, number));
        if !is_open || self.happens_often(self.plan.lose_answers) {
            self.oracle.see("socket: an answer is lost with it");
            self.sockets.open.retain(|_, socket| socket.number != number);
            return self.lose(from);
        }
        // What refuses a frame is the answer to each request in it.
        let replies = match &dealt.refusal {
            Some(refusal) => vec![refusal.clone(); dealt.asked.len()],
            None => dealt.replies.clone(),
        };
        let way_ms = self.way_ms();
        let dealt = Ok(Dealt { replies, refusal: None, ..dealt });
        if let Some(told) = self.told(from, message, &dealt, false) {
            self.later(way_ms, Event::OnSocket(from, number, Box::new(told)));
        }
    }

    pub(super) fn comes_back(&mut self, from: Sender, number: usize, event: Event) -> Result<(), Violation> {
        if who(from).is_some_and(|who| self.sockets.is_open(who, number)) {
            return self.happen(event);
        }
        self.oracle.see("socket: an answer is lost with it");
        self.lose(from);
        Ok(())
    }

    /// The object wakes, and closes a socket whose token has ended.
    pub(super) fn token_ends(&mut self, from: Sender, number: usize) {
        if let Some(who) = who(from).filter(|who| self.sockets.is_open(*who, number)) {
            self.oracle.see("socket: it is closed when its token has ended");
            self.note(|| format!("socket {number} is closed: its token has ended"));
            self.close_socket(who, number);
        }
    }

    fn close_socket(&mut self, who: Who, number: usize) {
        self.sockets.closed.insert(number);
        if self.sockets.is_open(who, number) {
            self.sockets.open.remove(&who);
        }
    }
}
