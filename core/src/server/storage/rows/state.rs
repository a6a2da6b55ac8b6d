//! Converts a record's state to values of its row, and back.
//!
//! Invariants:
//! - Each state has its own number. A state is read with all its values, or not at all.
//! - A state that is read bare has an empty fingerprint and an empty outcome, whatever its row has.

use super::number;
use crate::fingerprint::Fingerprint;
use crate::message::Headers;
use crate::problem::Executed;
use crate::server::storage::record::{Finds, Outcome, State, TombstoneKind};
use crate::server::storage::sql::Value;
use std::sync::Arc;

/// The values of a state, by column. A column that the state doesn't use is `NULL`. [`State::Dispatched`] uses columns of other states:
/// `crashes` for how often it was sent, `is_started` for when it was first sent, `executed` for how an attempt finds out what became
/// of it, and `status` for where it was sent, because it has no outcome yet.
pub(super) struct Values {
    pub state: i64,
    pub lapses_ms: Value,
    pub crashes: Value,
    pub is_started: Value,
    pub executed: Value,
    pub fingerprint: Value,
    pub status: Value,
    pub headers: Value,
    pub body: Value,
}

impl Values {
    /// The values of a state.
    pub fn of(state: &State) -> Self {
        let [mut lapses_ms, mut crashes, mut is_started, mut executed] = [const { Value::Null }; 4];
        let [mut fingerprint, mut status, mut headers, mut body] = [const { Value::Null }; 4];
        let state = match state {
            State::Executed(print, outcome) => {
                fingerprint = print.as_bytes().into();
                [status, headers, body] = outcome_values(outcome);
                number::EXECUTED
            }
            State::Poisoned(print) => {
                fingerprint = print.as_bytes().into();
                number::POISONED
            }
            State::Cancelled { lapses_ms: lapses } => {
                lapses_ms = (*lapses).into();
                number::CANCELLED
            }
            State::Suspect { crashes: count, is_started: started } => {
                crashes = (*count).into();
                is_started = i64::from(*started).into();
                number::SUSPECT
            }
            State::Dispatched { fingerprint: print, times, first_ms, finds, whither } => {
                fingerprint = print.as_bytes().into();
                crashes = (*times).into();
                is_started = (*first_ms).into();
                executed = finds_number(*finds).into();
                status = (*whither).into();
                number::DISPATCHED
            }
            State::Tombstone { kind, executed: ran, lapses_ms: lapses } => {
                lapses_ms = (*lapses).into();
                executed = executed_number(*ran).into();
                match kind {
                    TombstoneKind::Acknowledged => number::ACKNOWLEDGED,
                    TombstoneKind::Expired => number::EXPIRED,
                }
            }
        };
        Self { state, lapses_ms, crashes, is_started, executed, fingerprint, status, headers, body }
    }

    /// The state with these values; `None` if no state has them. With `is_bare`, the values lack fingerprint and outcome. An outcome is
    /// moved out of the values.
    pub fn take_state(&mut self, is_bare: bool) -> Option<State> {
        Some(match self.state {
            number::EXECUTED => {
                let outcome = if is_bare { no_outcome() } else { self.take_outcome()? };
                State::Executed(self.fingerprint(is_bare)?, Arc::new(outcome))
            }
            number::POISONED => State::Poisoned(self.fingerprint(is_bare)?),
            number::CANCELLED => State::Cancelled { lapses_ms: optional(&self.lapses_ms)? },
            number::SUSPECT => State::Suspect {
                crashes: self.crashes.as_integer().filter(|crashes| *crashes >= 0)?,
                is_started: match self.is_started.as_integer()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
            },
            number::DISPATCHED => State::Dispatched {
                fingerprint: self.fingerprint(is_bare)?,
                times: self.crashes.as_integer().filter(|times| *times > 0)?,
                first_ms: self.is_started.as_integer()?,
                finds: finds_of(optional(&self.executed)?),
                whither: optional(&self.status)?,
            },
            state @ (number::ACKNOWLEDGED | number::EXPIRED) => State::Tombstone {
                kind: match state {
                    number::ACKNOWLEDGED => TombstoneKind::Acknowledged,
                    _ => TombstoneKind::Expired,
                },
                executed: executed_of(&self.executed)?,
                lapses_ms: self.lapses_ms.as_integer()?,
            },
            _ => return None,
        })
    }

    fn take_outcome(&mut self) -> Option<Outcome> {
        let [headers, body] = [&mut self.headers, &mut self.body].map(|value| std::mem::replace(value, Value::Null));
        outcome_of(&self.status, headers, body)
    }

    fn fingerprint(&self, is_bare: bool) -> Option<Fingerprint> {
        Fingerprint::from_bytes(if is_bare { &[0; 32] } else { self.fingerprint.as_blob()? })
    }
}

/// The values of an outcome: status, headers and body.
pub(in crate::server::storage) fn outcome_values(outcome: &Outcome) -> [Value; 3] {
    [i64::from(outcome.status).into(), outcome.headers.to_lines().into(), outcome.body.as_slice().into()]
}

/// The outcome with these values. Not inlined, so that the bundle has only one copy of the code.
#[inline(never)]
pub(in crate::server::storage) fn outcome_of(status: &Value, headers: Value, body: Value) -> Option<Outcome> {
    Some(Outcome {
        status: u16::try_from(status.as_integer()?).ok().filter(|status| (200..=599).contains(status))?,
        headers: Headers::from_stored(&headers.into_text()?)?,
        body: body.into_blob()?,
    })
}

fn no_outcome() -> Outcome {
    Outcome { status: 200, headers: Headers::new(), body: Vec::new() }
}

/// How an attempt finds out, as a number: the instant of [`Finds::Until`], or the negated instant of [`Finds::Asked`]. All instants are
/// after 1970.
pub(super) fn finds_number(finds: Finds) -> i64 {
    match finds {
        Finds::Until(until_ms) => until_ms,
        Finds::Asked(proves_ms) => proves_ms.wrapping_neg(),
    }
}

/// Reads a number that [`finds_number`] made. Earlier versions wrote 2, an instant in the past, once an attempt had been told that
/// nobody can know the outcome. For a request whose outcome can be asked for, they wrote `NULL`.
fn finds_of(number: Option<i64>) -> Finds {
    match number.unwrap_or(-1) {
        proves_ms @ ..0 => Finds::Asked(proves_ms.wrapping_neg()),
        until_ms => Finds::Until(until_ms),
    }
}

fn executed_number(executed: Executed) -> i64 {
    match executed {
        Executed::No => 0,
        Executed::Yes => 1,
        Executed::Unknown => 2,
    }
}

/// `None` if the value can't be read. Such a value must not be reported as `no`, because the client would then make a new request.
fn executed_of(value: &Value) -> Option<Executed> {
    [Executed::No, Executed::Yes, Executed::Unknown]
        .into_iter()
        .find(|each| value.as_integer() == Some(executed_number(*each)))
}

/// An integer, or `NULL` as `Some(None)`. The outer `None` means that the value is neither.
pub(super) fn optional(value: &Value) -> Option<Option<i64>> {
    match value {
        Value::Null => Some(None),
        value => value.as_integer().map(Some),
    }
}
