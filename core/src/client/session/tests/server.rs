//! A key with one session, as PROTOCOL.md describes it.

use super::super::super::bytes::{Reader, Writer};
use super::*;
use crate::message::Headers;

/// What happened at a place.
#[derive(Debug, Clone)]
enum Taken {
    Ran(String),
    Cancelled,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    take_overs: BTreeMap<String, (i64, i64)>,
    /// Each epoch, with the last number that was taken when it began.
    epochs: Vec<(i64, i64)>,
    last_seq: i64,
    pub(super) ack: i64,
    taken: BTreeMap<i64, (i64, Taken)>,
    /// The cancellations that were executed, by their own ids.
    cancellations: BTreeMap<String, String>,
    /// The requests that ran, in order.
    pub(super) effects: Vec<String>,
    /// The problems that the next attempts of a request get instead: status, code, `executed`, `retry`.
    pub(super) says: BTreeMap<String, Vec<(u16, &'static str, &'static str, &'static str)>>,
}

impl Server {
    pub(super) fn serve(&mut self, made: &Transmission) -> Answer {
        let target = made.request.target.as_str();
        let body = &made.request.body;
        let answer = if target.ends_with("/sessions") {
            self.take_over(made)
        } else if target.ends_with("/batch") {
            let mut input = Reader::new(body);
            let count = input.integer();
            let mut out = Writer::default();
            for _ in 0..count {
                let (named, _, target) = (input.text(), input.text(), input.text());
                let (_, body) = (input.text(), input.bytes());
                let id = named.strip_prefix("\"id\":").unwrap_or_default();
                let Answer { status, headers, body, members } = self.request((id, &named), &target, body);
                out.integer(status.into());
                out.text(&headers.to_lines());
                out.bytes(&body);
                out.text(&members.to_lines());
            }
            assert_eq!(input.end(), Some(()));
            Answer { body: out.done(), ..outcome("", &[]) }
        } else {
            let named = made.headers.get("semel-session").unwrap_or_default().replace('=', "\":").replace(';', ",\"");
            self.request((made.headers.get("idempotency-key").unwrap_or_default(), &named), target, body)
        };
        assert!(made.headers.get("semel-principal").is_some(), "{made:?}");
        answer
    }

    /// Restores the storage, except the epochs, to when this was the last number.
    pub(super) fn restore_to(&mut self, last_seq: i64) {
        self.last_seq = last_seq;
        self.ack = self.ack.min(last_seq);
        self.taken.retain(|seq, _| *seq <= last_seq);
    }

    fn take_over(&mut self, made: &Transmission) -> Answer {
        let body = String::from_utf8_lossy(&made.request.body).into_owned();
        let current = self.epochs.last().map_or(0, |(epoch, _)| *epoch);
        let id = made.headers.get("idempotency-key").expect("an id of its own").to_owned();
        if member(&body, "after").is_some_and(|after| after < current) && !self.take_overs.contains_key(&id) {
            return problem(409, "fenced", "no", "never");
        }
        let (epoch, last_seq) = *self.take_overs.entry(id).or_insert((current + 1, self.last_seq));
        if epoch > current {
            self.epochs.push((epoch, last_seq));
        }
        outcome("{}", &[("epoch", &epoch.to_string()), ("lastseq", &last_seq.to_string())])
    }

    /// Serves one request. A cancellation has an id of its own, and is recorded if it is executed.
    fn request(&mut self, (id, named): (&str, &str), target: &str, body: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(body).into_owned();
        let is_cancel = target.ends_with("/cancel");
        if is_cancel && self.cancellations.get(id).is_some_and(|other| *other != text) {
            return problem(422, "fingerprint-mismatch", "no", "after-fix");
        }
        let answer = self.element(named, target, body);
        if is_cancel && answer.status == 200 {
            self.cancellations.insert(id.to_owned(), text);
        }
        answer
    }

    fn element(&mut self, named: &str, target: &str, body: &[u8]) -> Answer {
        let body = String::from_utf8_lossy(body).into_owned();
        let is_cancel = target.ends_with("/cancel");
        let place = if is_cancel { body.as_str() } else { named };
        let (epoch, seq) = (member(place, "epoch").expect("an epoch"), member(place, "seq").expect("a number"));
        if let Some((status, code, executed, retry)) = self.says.get_mut(&body).and_then(Vec::pop) {
            return problem(status, code, executed, retry);
        }
        let current = self.epochs.last().map_or(0, |(epoch, _)| *epoch);
        if epoch == current
            && let Some(ack) = member(named, "ack")
        {
            assert!(ack < seq, "{named}");
            self.ack = self.ack.max(ack.min(self.last_seq));
            self.taken.retain(|seq, _| *seq > self.ack);
        }
        if let Some((_, taken)) = self.taken.get(&seq).filter(|(by, _)| *by == epoch) {
            return match taken {
                Taken::Ran(_) if is_cancel => outcome("", &[("state", "executed")]),
                Taken::Ran(ran) if *ran == body => outcome(&format!("ran {ran}"), &[]),
                Taken::Ran(_) => problem(422, "fingerprint-mismatch", "no", "after-fix"),
                Taken::Cancelled if is_cancel => outcome("", &[("state", "cancelled")]),
                Taken::Cancelled => problem(410, "cancelled", "no", "never"),
            };
        }
        let Some(at) = self.epochs.iter().position(|(each, _)| *each == epoch) else {
            return problem(410, "session-unknown", "unknown", "never");
        };
        let up_to = self.epochs.get(at + 1).map_or(self.last_seq, |(_, after)| *after);
        if seq <= self.epochs[at].1 {
            return problem(400, "key-invalid", "no", "after-fix");
        }
        if seq <= up_to {
            return problem(410, "acknowledged", "unknown", "never");
        }
        if epoch != current {
            return problem(409, "fenced", "no", "never");
        }
        if seq > self.last_seq + 1 {
            return problem(409, "sequence-gap", "no", "same-id");
        }
        if seq > self.ack + super::super::WINDOW {
            return problem(503, "capacity", "no", "same-id");
        }
        self.last_seq = seq;
        if is_cancel {
            self.taken.insert(seq, (epoch, Taken::Cancelled));
            return outcome("", &[("state", "cancelled")]);
        }
        self.effects.push(body.clone());
        self.taken.insert(seq, (epoch, Taken::Ran(body.clone())));
        outcome(&format!("ran {body}"), &[])
    }
}

/// The value of a number in JSON.
fn member(json: &str, name: &str) -> Option<i64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    rest.split(|each: char| !each.is_ascii_digit()).next()?.parse().ok()
}

pub(super) fn outcome(body: &str, members: &[(&str, &str)]) -> Answer {
    let headers: Headers = [("semel-status", "executed")].into_iter().collect();
    Answer { status: 200, headers, body: body.into(), members: members.iter().copied().collect() }
}

pub(super) fn problem(status: u16, code: &str, executed: &str, retry: &str) -> Answer {
    let headers: Headers = [("semel-status", code)].into_iter().collect();
    let members = [("executed", executed), ("retry", retry), ("detail", "why")].into_iter().collect();
    Answer { status, headers, members, body: b"{}".to_vec() }
}

/// Checks that each attempt that leaves under a place has a row with that place.
pub(super) fn assert_stored(made: &Transmission, rows: &Rows) {
    let is_stored = |epoch: Option<i64>, seq: Option<i64>| {
        let place = |row: &Vec<u8>| row::decode(row).expect("readable").place;
        // An attempt that only acknowledges has a place that nobody takes.
        seq > Some(super::super::BEYOND)
            || rows.values().filter_map(place).any(|place| (Some(place.epoch), Some(place.seq)) == (epoch, seq))
    };
    if let Some(named) = made.headers.get("semel-session") {
        let named = named.replace('=', "\":").replace(';', ",\"");
        assert!(is_stored(member(&named, "epoch"), member(&named, "seq")), "{named} was sent and is not stored");
    } else if made.request.target.ends_with("/batch") {
        let mut input = Reader::new(&made.request.body);
        for _ in 0..input.integer() {
            let (named, _, _, _, _) = (input.text(), input.text(), input.text(), input.text(), input.bytes());
            // A cancellation runs nothing, and may close the place of a request that has lost its row.
            let is_attempt = named.contains("session");
            let is_kept = || is_stored(member(&named, "epoch"), member(&named, "seq"));
            assert!(!is_attempt || is_kept(), "{named} was sent and is not stored");
        }
    }
}

/// The bodies of the requests in a frame.
pub(super) fn bodies(made: &Transmission) -> Vec<String> {
    if !made.request.target.ends_with("/batch") {
        return vec![String::from_utf8_lossy(&made.request.body).into_owned()];
    }
    let mut input = Reader::new(&made.request.body);
    let count = input.integer();
    let mut body = || {
        let _ = (input.text(), input.text(), input.text(), input.text());
        String::from_utf8_lossy(input.bytes()).into_owned()
    };
    (0..count).map(|_| body()).collect()
}
