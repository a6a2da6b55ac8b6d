//! The state of two keys, one of which emits credits to the other, and of everything between them.
//!
//! Invariant: values that differ each time and decide nothing are not compared: tokens, instants in the past, and the reasons why
//! something is sent again.

use crate::database::Database;
use crate::effect_judge::EffectJudge;
use crate::history::Digest;
use crate::oracle::Oracle;
use crate::payer::Payer;
use crate::properties::Watched;
use crate::tables::Tables;
use semel_core::id::{Key, Principal};
use semel_core::message::Request;
use semel_core::server::{Engine, engine::Arrival};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// How the name of a take-over begins; its number follows.
pub(crate) const TAKE_OVER: &str = "take-over ";

/// A key: its object, and what it has committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Side {
    pub(crate) engine: Engine<Payer>,
    pub(crate) tables: Tables,
}

/// A request that has left.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) request: Request,
    /// For a credit: its place and its body.
    pub(crate) credit: Option<(String, String)>,
}

/// An answer that the sender waits for. The token is not compared, because it is different for each object.
#[derive(Debug, Clone)]
pub(crate) struct Awaited {
    pub(crate) start: u8,
    pub(crate) name: Arc<str>,
    pub(crate) lane: i64,
    pub(crate) token: i64,
    /// No answer will come: the request arrived before the receiver forgot its sessions, or can no longer arrive.
    pub(crate) is_over: bool,
    /// The answer that is under way: the status, the `Semel-Status`, and the body.
    pub(crate) answer: Option<(u16, String, Vec<u8>)>,
}

impl PartialEq for Awaited {
    fn eq(&self, other: &Self) -> bool {
        let of = |Self { start, name, lane, is_over, answer, .. }: &Self| {
            (*start, name.clone(), *lane, *is_over, answer.clone())
        };
        of(self) == of(other)
    }
}

impl Eq for Awaited {}

impl Hash for Awaited {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.start, &self.name, self.lane, self.is_over, &self.answer).hash(state);
    }
}

/// The requests that have left, by their names. Requests with the same name are equal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Network(pub(crate) BTreeMap<Arc<str>, Arc<Letter>>);

impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys().eq(other.0.keys())
    }
}

impl Eq for Network {}

impl Hash for Network {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.keys().for_each(|name| name.hash(state));
    }
}

/// The state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// How often the sender's object has started again.
    pub(crate) start: u8,
    pub(crate) ends: u8,
    pub(crate) sender: Side,
    /// A digest of what the sender's object knows of its lanes, because comparing engines leaves that out.
    pub(crate) outbox: u64,
    pub(crate) receiver: Side,
    /// The copy to which the sender may be put back.
    pub(crate) backup: Option<Tables>,
    pub(crate) was_put_back: bool,
    /// What can no longer arrive since the receiver forgot its sessions.
    pub(crate) over: Option<Over>,
    pub(crate) network: Network,
    pub(crate) awaited: Vec<Awaited>,
    pub(crate) judge: EffectJudge,
}

impl Watched for State {
    fn oracle(&self) -> &Oracle {
        &self.judge.oracle
    }
}

impl Side {
    pub(crate) fn asks(
        &mut self,
        (key, principal): (&str, &str),
        request: &Request,
        wall_ms: i64,
    ) -> (u16, String, Vec<u8>) {
        let (key, principal) =
            (Key::new(key).expect("a key"), Principal::new(principal).expect("a principal of this crate"));
        let arrival = Arrival { key: &key, principal: &principal, request, body_too_large: false, wall_ms };
        let database = Database::open(std::mem::take(&mut self.tables));
        let answer = self.engine.handle(&database, arrival);
        self.tables = database.close();
        let semel = answer.headers.get("semel-status").unwrap_or_default().to_owned();
        (answer.status, semel, answer.body)
    }
}

/// What can no longer arrive after sessions were forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Over {
    /// The take-overs up to this number no longer arrive.
    pub(crate) take_overs: usize,
    /// The last epoch.
    pub(crate) epoch: i64,
}

impl State {
    /// Whether the request with that name may still arrive.
    pub(crate) fn may_arrive(&self, name: &str) -> bool {
        let number = name.strip_prefix(TAKE_OVER).and_then(|number| number.parse::<usize>().ok());
        number.is_none_or(|number| self.over.is_none_or(|over| number > over.take_overs))
    }
}

/// How often the session was taken over, including take-overs that are under way.
pub(crate) fn take_overs(state: &State) -> usize {
    state.network.0.keys().filter(|name| name.starts_with(TAKE_OVER)).count()
}

/// A digest of what an engine shows of its outbox. It leaves out the tokens, instants in the past, what is to be acknowledged,
/// and what is only shown: reasons, and how often something was sent.
pub(crate) fn outbox_of(engine: &Engine<Payer>) -> u64 {
    let shown = format!("{engine:?}");
    let (_, mut rest) = shown.split_once("outbox: ").expect("an engine shows its outbox");
    let mut digest = Digest::default();
    let left_out = ["token: ", "until_ms: ", "not_before_ms: ", "reason: \"", "tried_seq: ", "attempts: ", "acks: \""];
    while let Some((at, name)) =
        left_out.iter().filter_map(|name| rest.find(name).map(|at| (at, *name))).min_by_key(|(at, _)| *at)
    {
        let (before, found) = rest.split_at(at);
        digest.write_str(before).expect("a digest takes everything");
        let value = &found[name.len()..];
        // A text may contain escaped quotes.
        let is_end = |at: &usize| !value[..*at].ends_with('\\');
        let end = match name.ends_with('"') {
            true => value.match_indices('"').map(|(at, _)| at).find(is_end),
            false => value.find([',', ' ', '}']),
        };
        rest = end.map_or("", |at| &value[at..]);
    }
    digest.write_str(rest).expect("a digest takes everything");
    digest.finish()
}
