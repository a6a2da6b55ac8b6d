//! Lies: untrue answers of a key, in front of a service, for deposits, and for sessions and batches. The oracle must
//! find each.
//!
//! Invariants:
//! - A lie is told in each answer in which it can be told, and only in answers: everything that is done and stored is
//!   right.
//! - An answer that the lie is not about stays as it is.

use crate::mutant::Mutant;
use semel_support::Reply;

/// What an answer says instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Other words in the body, if it contains all of these.
    Words(&'static [(&'static str, &'static str)]),
    /// The same, in replays only.
    Again(&'static [(&'static str, &'static str)]),
    /// Another code; the rest stays.
    Code(&'static str, &'static str),
    /// Another status instead of this one.
    Status(u16, u16),
    /// For a refusal with this code, or any code: that it is done, with this code and body.
    Done(&'static str, &'static str, &'static str),
    /// For an answer that it is done: only that nobody knows, with this code.
    Nothing(&'static str),
}

/// A lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lie {
    /// Its name.
    pub name: &'static str,
    /// The beginning of the names of the requests that it is about.
    about: &'static str,
    told: Told,
}

const fn lie(name: &'static str, about: &'static str, told: Told) -> Lie {
    Lie { name, about, told }
}

const NO: Told = Told::Words(&[("\"executed\":\"unknown\"", "\"executed\":\"no\"")]);
const YES: Told = Told::Words(&[("\"executed\":\"unknown\"", "\"executed\":\"yes\"")]);
const NEVER: Told = Told::Words(&[
    ("\"executed\":\"unknown\"", "\"executed\":\"no\""),
    ("\"retry\":\"same-id\"", "\"retry\":\"never\""),
]);
const NOT_AGAIN: Told = Told::Words(&[("\"retry\":\"same-id\"", "\"retry\":\"never\"")]);
const OTHER_COUNT: Told = Told::Words(&[("\"count\":", "\"count\":1")]);
const MADE: Told = Told::Done("", "replayed", "made 0");
const DONE: Told = Told::Done("", "executed", "made 0");
const UNKNOWN: Told = Told::Nothing("outcome-unknown");

/// All lies.
pub const LIES: &[Lie] = &[
    lie("elsewhere-no", "Request", NO),
    lie("elsewhere-yes", "Request", YES),
    lie("elsewhere-never", "Request", NEVER),
    lie("elsewhere-made", "Request", MADE),
    lie("elsewhere-acknowledged-made", "Request", Told::Done("acknowledged", "replayed", "made 0")),
    lie("elsewhere-cancelled-made", "Request", Told::Done("cancelled", "replayed", "made 0")),
    lie("elsewhere-unseen-cancelled", "LookUp", Told::Code("not-seen", "cancelled")),
    lie("elsewhere-unseen-acknowledged", "LookUp", Told::Code("not-seen", "acknowledged")),
    lie("elsewhere-other-outcome", "Request", Told::Words(&[("made ", "made 10")])),
    lie("elsewhere-no-outcome", "Request", Told::Nothing("unavailable")),
    lie("elsewhere-given-up", "Request", Told::Code("in-flight", "outcome-unknown")),
    lie("elsewhere-look-up-made", "LookUp", MADE),
    lie("elsewhere-look-up-unseen", "LookUp", Told::Nothing("not-seen")),
    lie("elsewhere-look-up-not-cancelled", "LookUp", Told::Code("cancelled", "not-seen")),
    lie("elsewhere-look-up-hopes", "LookUp", Told::Code("outcome-unknown", "in-flight")),
    lie("elsewhere-look-up-given-up", "LookUp", Told::Code("in-flight", "outcome-unknown")),
    lie("elsewhere-cancelled", "Cancel", Told::Done("in-flight", "executed", "{\"state\":\"cancelled\"}")),
    lie("elsewhere-cancel-replayed", "Cancel", Told::Done("in-flight", "replayed", "{\"state\":\"cancelled\"}")),
    lie("elsewhere-cancel-ran", "Cancel", Told::Words(&[("\"state\":\"cancelled\"", "\"state\":\"executed\"")])),
    lie("elsewhere-cancel-unstored", "Cancel", Told::Done("forgotten", "executed", "{\"state\":\"cancelled\"}")),
    lie("elsewhere-cancel-other-outcome", "Cancel", Told::Words(&[("made ", "made 10")])),
    lie("elsewhere-cancel-given-up", "Cancel", UNKNOWN),
    lie("elsewhere-resolved", "Resolve", DONE),
    lie("elsewhere-record-deleted", "DeleteRecord", DONE),
    lie("elsewhere-key-deleted", "DeleteKey", DONE),
    lie("elsewhere-read", "Read", Told::Done("", "read", "nothing")),
    lie("elsewhere-stranger-told", "Strange", MADE),
    lie("deposit-other-outcome", "Deposit", OTHER_COUNT),
    lie("deposit-other-status", "Deposit", Told::Status(201, 200)),
    lie("together-other-outcome", "TogetherDeposit", OTHER_COUNT),
    lie("together-other-status", "TogetherDeposit", Told::Status(201, 200)),
    lie("place-other-outcome", "AtPlace", OTHER_COUNT),
    lie("place-other-status", "AtPlace", Told::Status(201, 200)),
    lie("id-other-outcome", "ById", OTHER_COUNT),
    lie("take-over-other-last", "TakeOver", Told::Again(&[("\"lastSeq\":", "\"lastSeq\":1")])),
    lie("take-over-misled", "TakeOver", Told::Words(&[("\"lastSeq\":", "\"lastSeq\":1")])),
    lie("take-over-old-epoch", "TakeOver", Told::Words(&[("\"epoch\":", "\"epoch\":0,\"was\":")])),
    lie("take-over-fenced", "TakeOver", Told::Nothing("fenced")),
    lie("closed-otherwise", "Close", Told::Words(&[("\"state\":\"cancelled\"", "\"state\":\"executed\"")])),
    lie("id-acknowledged", "ById", Told::Nothing("acknowledged")),
    lie("id-poisoned", "ById", Told::Nothing("poisoned")),
    lie("id-never", "ById", NOT_AGAIN),
    lie("place-never", "AtPlace", NOT_AGAIN),
    lie("deposit-server-error", "Deposit", Told::Status(201, 500)),
    lie("together-poisoned", "TogetherDeposit", Told::Nothing("poisoned")),
    lie("together-not-run", "TogetherCancel", Told::Words(&[("\"state\":\"executed\"", "\"state\":\"cancelled\"")])),
    lie("together-read-ahead", "TogetherRead", OTHER_COUNT),
    lie("together-yes", "TogetherDeposit", Told::Words(&[("\"executed\":\"no\"", "\"executed\":\"yes\"")])),
    lie("together-no", "TogetherDeposit", Told::Words(&[("\"executed\":\"yes\"", "\"executed\":\"no\"")])),
    lie("together-expired", "TogetherDeposit", Told::Code("rolled-back", "attempt-expired")),
    lie("together-never", "TogetherDeposit", NOT_AGAIN),
    lie("together-blamed", "TogetherDeposit", Told::Code("rolled-back", "poisoned")),
    lie("together-fenced", "TogetherDeposit", Told::Code("rolled-back", "outside-window")),
    lie("together-given-up", "TogetherDeposit", Told::Code("rolled-back", "cancelled")),
    lie("together-outcome-expired", "TogetherDeposit", Told::Code("rolled-back", "outcome-expired")),
    lie("together-acknowledged", "TogetherDeposit", Told::Nothing("acknowledged")),
    lie("together-stranger-told", "TogetherOther", Told::Done("", "replayed", "{}")),
];

impl Lie {
    /// The lie about this answer; `None` if it is not about it.
    fn of(&self, about: &str, reply: &Reply) -> Option<Reply> {
        if !about.starts_with(self.about) {
            return None;
        }
        let code = reply.only("semel-status").to_owned();
        let is_done = matches!(code.as_str(), "executed" | "replayed" | "read");
        let body = String::from_utf8_lossy(reply.body()).into_owned();
        match self.told {
            Told::Words(words) | Told::Again(words) => {
                let is_meant = code == "replayed" || matches!(self.told, Told::Words(_));
                let is_there = is_meant && words.iter().all(|(from, _)| body.contains(from));
                let told = words.iter().fold(body, |body, (from, to)| body.replacen(from, to, 1));
                is_there.then(|| reply.falsified(reply.status(), &code, &told))
            }
            Told::Status(from, to) => (is_done && reply.status() == from).then(|| reply.falsified(to, &code, &body)),
            Told::Code(from, to) => (code == from).then(|| {
                let told = body.replacen(&format!("\"code\":\"{from}\""), &format!("\"code\":\"{to}\""), 1);
                reply.falsified(reply.status(), to, &told)
            }),
            Told::Done(from, to, told) => {
                (!is_done && (from.is_empty() || from == code)).then(|| reply.falsified(200, to, told))
            }
            Told::Nothing(to) => is_done.then(|| {
                let told = format!("{{\"code\":\"{to}\",\"executed\":\"unknown\",\"retry\":\"same-id\"}}");
                reply.falsified(503, to, &told)
            }),
        }
    }
}

/// What the key says: the truth, or a lie.
pub fn told(mutant: Option<Mutant>, about: &str, reply: Reply) -> Reply {
    match mutant {
        Some(Mutant::Lie(lie)) => lie.of(about, &reply).unwrap_or(reply),
        _ => reply,
    }
}
