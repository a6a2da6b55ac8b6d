//! Sockets: which clients send batches as frames of a socket, and what becomes of the frames when it closes.
//!
//! Invariants:
//! - The frames of a socket arrive in order, each once or never. If the socket breaks, frames under way may still
//!   arrive, but their answers never do.
//! - The principal of a socket, and when its token ends, is what its first frame said, even after the object was
//!   reloaded. After the server has closed a socket, it takes no more frames from it.

use super::asked::Dealt;
use super::held::{Held, Waiting};
use super::run::{Event, Run, Sender};
use crate::letter::Message;
use crate::oracle::Violation;
use semel_core::server::edge::auth::Asker;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The longest that a token is valid, in ms.
const TOKEN_MS_MAX: i64 = 20_000;
/// The latest that the object wakes to close a socket whose token has ended, in ms.
const ALARM_MS_MAX: i64 = 3_000;

/// The user of a socket: a tab (`true`), or a client that sends batches.
type Who = (bool, usize);

#[derive(Debug)]
struct Socket {
    number: usize,
    key: String,
    frames: i64,
    /// When the last frame arrives.
    last_ms: i64,
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    /// For each client that might use a socket, whether it does.
    users: BTreeMap<Who, bool>,
    open: BTreeMap<Who, Socket>,
    opened: usize,
    /// For each socket, whether or not it is still open: the principal, and how many objects had lived when its last
    /// frame arrived.
    askers: BTreeMap<usize, (Asker, u32)>,
    /// The sockets that the server has closed.
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
    /// Whether a message is sent as a frame. A batch that can't be read is not.
    pub(super) fn is_on_a_socket(&mut self, from: Sender, message: &Message) -> bool {
        let share = self.plan.sessions.sockets;
        let Some(who) = who(from).filter(|_| share > 0 && message.target.ends_with("/batch")) else { return false };
        let apart = &mut self.apart;
        let uses = *self.sockets.users.entry(who).or_insert_with(|| apart.u32(0..100) < share);
        uses && serde_json::from_slice::<Vec<Value>>(&message.body).is_ok()
    }

    /// Sends a frame, on the client's socket, or on one that is opened for it.
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

    /// Opens a socket. Returns whether it was accepted.
    fn open_socket(&mut self, from: Sender, who: Who, message: &Message) -> bool {
        let key = message.target.trim_start_matches("/semel/v1/keys/").trim_end_matches("/batch").replace("%2F", "/");
        let credentials = message.headers.get("authorization").unwrap_or_default();
        let user = credentials.trim_start_matches("Bearer ");
        let is_other = !self.is_calm && self.plan.logins > 0 && self.apart.u32(0..4) == 0;
        // Another user has logged in meanwhile.
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
            // All connections of an object end with it.
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

    /// Sends the answers to a frame back on its socket.
    pub(super) fn answer_on_socket(&mut self, from: Sender, number: usize, message: &Message, dealt: Dealt) {
        let is_open = who(from).is_some_and(|who| self.sockets.is_open(who, number));
        if !is_open || self.happens_often(self.plan.lose_answers) {
            self.oracle.see("socket: an answer is lost with it");
            self.sockets.open.retain(|_, socket| socket.number != number);
            return self.lose(from);
        }
        // A refusal of a frame is the answer to each request in it.
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
