//! The client's machine. Its host does what it is asked, while the server, the store and other tabs do anything.
//!
//! Invariants:
//! - An attempt leaves only while its row is stored and pending, with a deadline that is not past the row's `until`.
//! - A row is settled only after its answer was taken, and only settled rows are removed.
//! - While somebody waits for an answer, the machine has the request in hand. A caller that gives up waiting is told once.
//! - Offline, nothing leaves. A request in order leaves only after those before it, at its key or at its path, are answered.
//! - After a wake-up nothing is due at once: otherwise its host would loop for ever.

use crate::client::{answer, change, row, settings};
use crate::source::Source;
use semel_core::client::{
    ATTEMPTS_MAX, Action, Answer, Change, Client, Draft, POSTS_MAX, Receiver, Row, Settings, Ticket, Transmission,
    codec,
    row::{Write, is_done},
};
use semel_core::header::{quoted, unquoted};
use semel_core::message::Headers;
use std::collections::{BTreeMap, BTreeSet};

const STEPS_MAX: usize = 64;
const ROWS_MAX: usize = 4;
const GIVE_UP_AFTER_MS: i64 = 5_000;
const START_MS: i64 = 1_800_000_000_000;
/// The ids of stored rows, and of rows that other tabs add.
const IDS: &[&str] = &["s0", "s1", "s2", "s3"];

struct Host {
    client: Client,
    settings: Settings,
    now_ms: i64,
    rows: BTreeMap<String, Vec<u8>>,
    /// The changes that the store has not made yet, oldest first.
    changes: Vec<(Ticket, String, Change)>,
    attempts: Vec<u64>,
    /// The answers that were handed over and not taken yet.
    handed: Vec<(Ticket, String)>,
    taken: BTreeSet<String>,
    /// The ids for whose answers somebody waits.
    waiting: BTreeSet<String>,
    tickets: Vec<Ticket>,
    requests: usize,
    is_offline: bool,
    /// The requests in order of this client: the id, the key that it names, and the path.
    in_order: Vec<(String, Option<String>, String)>,
    /// The ids to which the client has an answer.
    answered: BTreeSet<String>,
}

/// Tells the machine what the bytes stand for.
pub fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let settings = Settings { give_up_after_ms: source.optional(|_| GIVE_UP_AFTER_MS), ..settings() };
    let mut host = Host {
        client: Client::new(settings.clone()),
        settings,
        now_ms: START_MS,
        rows: BTreeMap::new(),
        changes: Vec::new(),
        attempts: Vec::new(),
        handed: Vec::new(),
        taken: BTreeSet::new(),
        waiting: BTreeSet::new(),
        tickets: Vec::new(),
        requests: 0,
        is_offline: false,
        in_order: Vec::new(),
        answered: BTreeSet::new(),
    };
    // Usually few rows, because they use up bytes that the steps need.
    let rows = source.below(ROWS_MAX + 1).saturating_sub(2);
    for id in &IDS[..rows] {
        host.rows.insert((*id).to_owned(), codec::encode(&row(&mut source)));
    }
    host.take_over(&mut source);
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        host.step(&mut source);
        host.act();
    }
}

impl Host {
    fn step(&mut self, source: &mut Source<'_>) {
        match source.below(16) {
            0..=2 => self.store(source),
            3 => {
                if let Some(attempt) = taken_out(&mut self.attempts, source) {
                    self.client.answered(self.now_ms, attempt, answer(source));
                }
            }
            4 | 5 => {
                if let Some(attempt) = taken_out(&mut self.attempts, source) {
                    let answer = self.usual(source);
                    self.client.answered(self.now_ms, attempt, answer);
                }
            }
            6 => {
                if let Some(attempt) = taken_out(&mut self.attempts, source) {
                    self.client.lost(self.now_ms, attempt);
                }
            }
            7 | 8 => {
                if let Some((ticket, id)) = taken_out(&mut self.handed, source) {
                    self.taken.insert(id);
                    self.client.delivered(self.now_ms, ticket);
                }
            }
            9 => self.request(source),
            10 => self.tell(source),
            11 => self.other_tab(source),
            12 => self.restart(source),
            // The answer to an attempt that is no longer in hand changes nothing.
            13 => self.client.answered(self.now_ms, u64::from(source.byte()) + 1_000, answer(source)),
            _ => self.wake(source),
        }
    }

    /// The store makes the oldest change; or it fails to; or it makes the change twice and reports the second time.
    fn store(&mut self, source: &mut Source<'_>) {
        if self.changes.is_empty() {
            return;
        }
        let (ticket, id, change) = self.changes.remove(0);
        let maker = self.client.maker_of(ticket).to_owned();
        let fault = source.below(6);
        if fault == 4 {
            self.apply(&maker, &id, &change);
        }
        let changed = (fault != 5).then(|| self.apply(&maker, &id, &change));
        self.client.changed(self.now_ms, ticket, changed);
    }

    fn apply(&mut self, maker: &str, id: &str, change: &Change) -> semel_core::client::Changed {
        let (write, changed) = change.apply(maker, self.rows.get(id).map(Vec::as_slice)).expect("readable");
        match write {
            Write::Nothing => {}
            Write::Put(bytes) => drop(self.rows.insert(id.to_owned(), bytes)),
            Write::Delete => drop(self.rows.remove(id)),
        }
        changed
    }

    fn request(&mut self, source: &mut Source<'_>) {
        let id = self.id(source);
        if self.client.ticket_of(&id).is_none() {
            // A request whose answer was given, or one of another tab. It has no place among the earlier requests in order.
            self.in_order.retain(|(each, ..)| *each != id);
        }
        let key = source.pick(&[None, None, Some("k"), Some("l")]).map(str::to_owned);
        let target = source.pick(&["/a", "/b?c"]).to_owned();
        let is_ordered = source.flag();
        let is_new = self.client.ticket_of(&id).is_none() && !self.rows.contains_key(&id);
        if is_new {
            self.answered.remove(&id);
        }
        if is_ordered && is_new {
            self.in_order.push((id.clone(), key.clone(), target.clone()));
        }
        let draft = Draft { method: "POST".to_owned(), target, key, ..Draft::default() };
        if let Some(ticket) = self.client.request(self.now_ms, id.clone(), draft, is_ordered) {
            self.tickets.push(ticket);
            self.waiting.insert(id);
        }
    }

    /// Usually a new id; sometimes one that is already used, here or in another tab.
    fn id(&mut self, source: &mut Source<'_>) -> String {
        match source.below(4) {
            0 => source.pick(IDS).to_owned(),
            1 => format!("r{}", source.below(self.requests + 1)),
            _ => {
                self.requests += 1;
                format!("r{}", self.requests)
            }
        }
    }

    /// The usual answers of a server, by its own clock.
    fn usual(&self, source: &mut Source<'_>) -> Answer {
        let mut headers = Headers::new();
        let (status, word) =
            source.pick(&[(200, "executed"), (200, "read"), (409, "in-flight"), (401, "unauthorized")]);
        headers.append("semel-status", word);
        headers.append("semel-key", quoted(source.pick(&["k", "l"])));
        headers.append("semel-now", (self.now_ms + i64::from(source.byte() as i8) * 1000).to_string());
        let state = source.pick(&["cancelled", "executed"]);
        Answer { status, headers, body: Vec::new(), members: Headers::from_iter([("state", state)]) }
    }

    /// The application does something, with one of its requests or with none.
    fn tell(&mut self, source: &mut Source<'_>) {
        let ticket = taken_out(&mut self.tickets.clone(), source).unwrap_or_default();
        match source.below(9) {
            6 | 7 => {
                let id = self.id(source);
                self.tickets.push(self.client.watch(id.clone()));
                self.waiting.insert(id);
            }
            8 => {
                if let Some((id, ..)) = self.client.describe(ticket) {
                    self.waiting.remove(id);
                }
                self.client.leave(ticket);
            }
            0 => self.client.give_up(self.now_ms, ticket),
            1 => self.client.resume(self.now_ms, ticket),
            2 => self.client.resume_all(self.now_ms),
            3 => {
                self.is_offline = source.flag();
                self.client.set_offline(self.now_ms, self.is_offline);
            }
            4 => self.client.hurry(self.now_ms),
            _ => self.client.doubt_clock(),
        }
    }

    /// Another tab changes a stored row, or adds one.
    fn other_tab(&mut self, source: &mut Source<'_>) {
        let mut ids: Vec<String> = self.rows.keys().cloned().collect();
        ids.push(source.pick(IDS).to_owned());
        if let Some(id) = taken_out(&mut ids, source) {
            self.apply("", &id, &change(source));
        }
    }

    /// The tab dies and another goes on, or the tab looks at the store again.
    fn restart(&mut self, source: &mut Source<'_>) {
        if source.flag() {
            self.client = Client::new(self.settings.clone());
            self.handed.clear();
            self.changes.clear();
            self.attempts.clear();
            self.tickets.clear();
            self.waiting.clear();
            self.in_order.clear();
            self.is_offline = false;
        }
        self.take_over(source);
    }

    fn take_over(&mut self, source: &mut Source<'_>) {
        let rows: Vec<_> = self.rows.clone().into_iter().collect();
        let living = source.below(4);
        let lives = |owner: &str| owner.bytes().all(|byte| usize::from(byte - b'a') < living);
        let lives: Option<&dyn Fn(&str) -> bool> = if source.flag() { Some(&lives) } else { None };
        self.client.stored(self.now_ms, &rows, lives).expect("readable");
        self.client.overview(&rows).expect("readable");
        self.act();
    }

    fn wake(&mut self, source: &mut Source<'_>) {
        self.now_ms = match (source.below(4), self.client.wakes_at()) {
            (0, _) => self.now_ms + i64::from(source.byte()) * 100,
            (1, _) => self.now_ms + i64::from(source.byte()) * 3_600_000,
            (_, wakes_ms) => wakes_ms.map_or(self.now_ms, |wakes_ms| wakes_ms.max(self.now_ms)),
        };
        self.client.wake(self.now_ms);
        self.act();
        let wakes_ms = self.client.wakes_at();
        assert!(wakes_ms.is_none_or(|wakes_ms| wakes_ms > self.now_ms), "{wakes_ms:?} at {}", self.now_ms);
    }

    fn act(&mut self) {
        while let Some(action) = self.client.poll() {
            match action {
                Action::Change { ticket, id, change } => {
                    let is_settling = matches!(change, Change::Settle { .. });
                    assert!(!is_settling || self.taken.contains(&id), "{id} is settled before its answer was taken");
                    self.changes.push((ticket, id, change));
                }
                Action::Remove(ids) => ids.iter().for_each(|id| self.remove(id)),
                Action::Transmit(made) => self.transmit(&made),
                Action::Abort(attempt) => self.attempts.retain(|each| *each != attempt),
                Action::Deliver { ticket, to, .. } => {
                    let id = self.client.describe(ticket).expect("a request in hand").0.to_owned();
                    // A request that could not be stored has no place in the order any more: a later call may use its id.
                    self.in_order.retain(|(each, ..)| *each != id);
                    self.answered.insert(id.clone());
                    if to == Receiver::Caller {
                        self.waiting.remove(&id);
                    }
                    self.handed.push((ticket, id));
                }
                Action::GiveUp { id, .. } => assert!(self.waiting.remove(&id), "nobody waits for {id}"),
                Action::Pause { ticket, .. } => assert!(self.client.describe(ticket).is_some()),
            }
        }
        for id in &self.waiting {
            assert!(self.client.ticket_of(id).is_some(), "nothing is in hand for who waits for {id}");
        }
    }

    fn remove(&mut self, id: &str) {
        if self.rows.get(id).is_some_and(|row| is_done(row)) {
            self.rows.remove(id);
        }
    }

    /// Whether a request in order has no answer yet, neither here nor from another tab.
    fn is_waited_for(&self, id: &str) -> bool {
        let is_pending = |bytes: &Vec<u8>| matches!(codec::decode(bytes), Ok(Row::Pending(_)));
        let is_on_its_way =
            |(_, each, change): &(Ticket, String, Change)| each == id && matches!(change, Change::Add(_));
        let is_open = self.rows.get(id).is_some_and(is_pending) || self.changes.iter().any(is_on_its_way);
        is_open && !self.answered.contains(id)
    }

    /// An attempt leaves that may execute. No earlier request may still be waited for.
    fn check_turn(&self, id: &str) {
        let Some(at) = self.in_order.iter().position(|(each, ..)| each == id) else { return };
        let (_, key, target) = &self.in_order[at];
        for (before, other_key, other_target) in &self.in_order[..at] {
            let is_same = key == other_key && (key.is_some() || target == other_target);
            assert!(!is_same || !self.is_waited_for(before), "{id} leaves before {before} is answered");
        }
    }

    fn transmit(&mut self, made: &Transmission) {
        assert!(!self.is_offline, "{made:?} leaves offline");
        self.attempts.push(made.attempt);
        assert!(self.attempts.len() <= ATTEMPTS_MAX + POSTS_MAX + 1);
        let Some(id) = made.headers.get("idempotency-key").and_then(unquoted) else {
            assert!(made.request.target.starts_with("/semel/v1/"), "{made:?} has no id");
            return;
        };
        let is_cancelling = id.starts_with("cancel-");
        let stored = self.rows.get(id.strip_prefix("cancel-").unwrap_or(&id)).map(|bytes| codec::decode(bytes));
        let Some(Ok(Row::Pending(entry))) = stored else { panic!("{id} is sent, and its row is {stored:?}") };
        let deadline_ms = made.headers.get("semel-deadline").and_then(|value| value.parse().ok());
        assert!(deadline_ms.is_some() && deadline_ms <= entry.until_ms, "{id} until {deadline_ms:?}, {entry:?}");
        let first_sent = made.headers.get("semel-first-sent").map(str::to_owned);
        assert_eq!(first_sent, entry.first_sent_s.map(|seconds| format!("@{seconds}")), "{id}");
        assert!(!is_cancelling || entry.is_cancelling, "{id} is cancelled, and its row does not say so");
        assert!(is_cancelling || made.request == entry.draft, "{id} is another request");
        if !entry.is_cancelling {
            self.check_turn(&id);
        }
    }
}

/// Takes out one of several.
fn taken_out<T>(from: &mut Vec<T>, source: &mut Source<'_>) -> Option<T> {
    let at = source.byte();
    (!from.is_empty()).then(|| from.remove(usize::from(at) % from.len()))
}
