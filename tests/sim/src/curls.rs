//! What is sent by hand: requests of clients other than the SDK, of strangers and readers, and malformed ones.
//!
//! Invariant: a stranger asks only about ids that exist, and at once. An id that nobody has used belongs to whoever
//! uses it first.

use crate::curl::{self, Acknowledges, Curl, Errand};
use crate::letter::{Letter, Message, Sender};
use crate::oracle::{Got, Violation, Wish};
use crate::sim::{Event, Sim};
use crate::wire::Cut;
use semel_core::header::quoted;
use semel_core::problem::Executed;
use semel_support::Reply;

/// The numbers of requests made by hand begin here.
const NUMBERS: usize = 1_000;
/// The most attempts of a request during the faults.
const ATTEMPTS_MAX: u32 = 40;
/// What may be sent besides attempts, each at a random time.
const ERRANDS: [Errand; 7] =
    [Errand::Again, Errand::Again, Errand::Again, Errand::OtherBody, Errand::LookUp, Errand::LookUp, Errand::Cancel];
/// The numbers of reads begin here.
const READS: usize = 2_000_000;
/// A principal who owns nothing here.
const STRANGER: &str = "mallory";

impl Sim {
    pub fn set_up_curls(&mut self) {
        for n in 0..self.plan.curls {
            let (number, account) = (NUMBERS + n, self.rng.usize(0..self.plan.keys));
            let principal = crate::tab::USERS[self.rng.usize(0..2)];
            let curl = Curl::any(&mut self.rng, number, account, principal);
            self.decide_trouble(number);
            let (key, id) = (curl.key.clone(), curl.id.clone());
            let at_ms = self.rng.i64(0..self.plan.busy_ms);
            self.curls.push(curl);
            self.oracle.wish(number, Wish { key, id, principal: principal.to_owned(), ..Wish::default() });
            self.push(at_ms, Event::Errand(n, Errand::Attempt));
            if self.rng.u32(0..100) < self.plan.give_up {
                // This may be before it was ever sent.
                let later_ms = self.rng.i64(-self.plan.busy_ms..=self.plan.busy_ms);
                self.push(at_ms + later_ms, Event::GiveUpCurl(n));
            }
            for errand in ERRANDS {
                let later_ms = self.rng.i64(0..=self.plan.busy_ms * 2);
                if self.rng.bool() {
                    self.push(at_ms + later_ms, Event::Errand(n, errand));
                }
            }
        }
    }

    /// Requests without an answer are sent until they have one.
    pub fn calm_curls(&mut self) {
        for n in 0..self.curls.len() {
            let now_ms = self.now_ms;
            let curl = &mut self.curls[n];
            curl.interval_ms = 1_000;
            curl.cut = Cut::default();
            curl.down_until_ms = curl.down_until_ms.min(now_ms);
            if !self.curls[n].is_done {
                self.push(self.now_ms, Event::Errand(n, Errand::Attempt));
            }
        }
    }

    pub fn run_errand(&mut self, n: usize, errand: Errand) -> Result<(), Violation> {
        let Curl { is_done, is_acked, has_outcome, is_cancelling, is_poisoned, down_until_ms, .. } = self.curls[n];
        if down_until_ms > self.now_ms {
            self.push(down_until_ms, Event::Errand(n, errand));
            return Ok(());
        }
        let is_wanted = match errand {
            Errand::Attempt => !is_done,
            Errand::Again => is_done && !is_acked,
            // Before there is an outcome, the other body might be the one that is executed. And so it might be if the
            // outcome is undone.
            Errand::OtherBody => (has_outcome || is_poisoned) && !is_acked && !is_cancelling && self.plan.restores == 0,
            Errand::LookUp => true,
            // This is an attempt like any other: none leaves after the acknowledgement.
            Errand::Cancel => !is_acked,
            Errand::Acknowledge => has_outcome && !is_acked,
        };
        if !is_wanted {
            return Ok(());
        }
        if errand == Errand::Attempt {
            let interval_ms = self.curls[n].interval_ms;
            self.curls[n].attempts += 1;
            if self.is_calm || self.curls[n].attempts < ATTEMPTS_MAX {
                self.push(self.now_ms + interval_ms, Event::Errand(n, Errand::Attempt));
            }
        }
        if errand == Errand::Cancel {
            let number = self.curls[n].number;
            self.oracle.of(number).is_given_up = true;
        }
        let clock_ms = self.server.clock_ms(&self.curls[n].key, self.now_ms);
        let message = self.curls[n].message(&mut self.rng, errand, clock_ms);
        if errand == Errand::OtherBody {
            let number = self.curls[n].number + 1_000_000;
            self.oracle.history.deposits(number, &self.curls[n].key);
            self.oracle.of(self.curls[n].number).is_disputed = true;
        }
        let is_awaited = matches!(errand, Errand::Attempt | Errand::Again);
        let from = if is_awaited { Sender::Curl { curl: n, life: self.curls[n].life } } else { Sender::Nobody };
        if !self.curls[n].cut.stops_requests(self.now_ms) {
            self.post(Letter { from, message });
        }
        Ok(())
    }

    pub fn give_up_curl(&mut self, n: usize) {
        let curl = &mut self.curls[n];
        if !curl.is_done {
            curl.is_cancelling = true;
            let number = curl.number;
            self.oracle.of(number).is_given_up = true;
            self.note(|| format!("{number} is given up by hand"));
        }
    }

    /// Lets a client crash, which comes back with what it has noted.
    pub fn crash_curl(&mut self) {
        if self.curls.is_empty() {
            return;
        }
        let n = self.rng.usize(0..self.curls.len());
        let until_ms = self.now_ms + self.rng.i64(0..=self.plan.busy_ms / 2);
        let was_done = self.curls[n].is_done;
        let goes_on = self.curls[n].crash(until_ms);
        let Curl { number, notes, is_done, .. } = self.curls[n];
        self.oracle.see(format!("by hand: crashed with notes of {notes:?}"));
        self.note(|| format!("whoever wants {number} crashes until {until_ms} ms, with notes of {notes:?}"));
        if goes_on && was_done && !is_done {
            self.push(until_ms, Event::Errand(n, Errand::Attempt));
        }
    }

    pub fn curl_answered(&mut self, (n, life): (usize, u32), reply: &Reply, is_unbounded: bool) {
        let curl = &mut self.curls[n];
        if life != curl.life || self.now_ms < curl.down_until_ms {
            return;
        }
        let is_anothers = self.oracle.may_be_anothers(curl.number);
        let status = reply.only("semel-status");
        let body = reply.body().to_vec();
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let got = match status {
            "executed" | "replayed" if json["state"].is_null() => Got::Outcome(reply.status(), body),
            "executed" | "replayed" if json["state"] == "cancelled" => {
                Got::Failure("cancelled".to_owned(), Executed::No)
            }
            "executed" | "replayed" => {
                // It ran. Now its outcome is asked for.
                curl.is_cancelling = false;
                return;
            }
            code if reply.field("retry") == "never" || code == "fingerprint-mismatch" && is_anothers => {
                let executed = Executed::from_wire(&reply.field("executed")).expect("a word of the protocol");
                Got::Failure(code.to_owned(), executed)
            }
            _ => return,
        };
        curl.is_poisoned |= matches!(&got, Got::Failure(code, _) if code == "poisoned");
        curl.has_outcome |= matches!(got, Got::Outcome(..));
        curl.is_unbounded_answered |= is_unbounded && matches!(got, Got::Outcome(..));
        // After the acknowledgement, nobody waits for an answer.
        if curl.is_acked || curl.is_done {
            if let Got::Outcome(..) = got {
                self.oracle.deliver(curl.number, got);
            }
            return;
        }
        curl.is_done = true;
        let (number, acknowledges) = (curl.number, curl.acknowledges);
        self.note(|| format!("{number}, by hand, gets {}", got.line()));
        self.oracle.deliver(number, got);
        if acknowledges != Acknowledges::Never {
            self.later(self.plan.busy_ms, Event::Errand(n, Errand::Acknowledge));
        }
    }

    pub fn read(&mut self, n: usize) {
        let account = n % self.plan.keys;
        let number = READS + n;
        self.oracle.history.reads(number, &format!("keys/{account}"));
        let message = Message {
            method: "GET".to_owned(),
            target: format!("/keys/{account}/deposits"),
            headers: curl::bearer("alice"),
            ..Message::default()
        };
        self.post(Letter { from: Sender::Reader(number), message });
    }

    /// A stranger asks about another's id: for its outcome, by a request of its own, for its cancellation, or for its
    /// acknowledgement.
    pub fn be_strange(&mut self) -> Result<(), Violation> {
        let account = self.rng.usize(0..self.plan.keys);
        let key = format!("keys/{account}");
        let known = self.server.known(&key, self.now_ms);
        let ids: Vec<String> = known.filter(|(_, whose)| *whose != STRANGER).map(|(id, _)| id.to_owned()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = &ids[self.rng.usize(0..ids.len())];
        let number = id.rsplit('-').next().unwrap_or_default();
        let control = format!("/semel/v1/keys/keys%2F{account}");
        let (method, target, own, body) = match self.rng.u32(0..4) {
            0 => ("GET", format!("{control}/outcomes/{id}"), None, String::new()),
            1 => ("POST", format!("/keys/{account}/deposits"), Some(id.clone()), number.to_owned()),
            2 => (
                "POST",
                format!("{control}/cancel"),
                Some(format!("strange-{id}")),
                format!("{{\"id\":{}}}", quoted(id)),
            ),
            _ => (
                "POST",
                format!("{control}/acks"),
                None,
                // Not before the first-sent, or the acknowledgement would be ignored, whoever sends it.
                format!(
                    "{{\"ids\":[{{\"id\":{},\"until\":{}}}]}}",
                    quoted(id),
                    self.server.clock_ms(&key, self.now_ms)
                ),
            ),
        };
        let mut headers = curl::bearer(STRANGER);
        if let Some(own) = own {
            headers.append("idempotency-key", quoted(&own));
        }
        let message =
            Message { method: method.to_owned(), target, headers, body: body.into_bytes(), is_too_large: false };
        self.arrive(Letter { from: Sender::Nobody, message })
    }

    pub fn be_malformed(&mut self, n: usize) -> Result<(), Violation> {
        let account = self.rng.usize(0..self.plan.keys);
        let message = curl::malformed(&mut self.rng, account, &format!("malformed-{n}"));
        self.arrive(Letter { from: Sender::Nobody, message })
    }
}
