//! Mutants that tell the time by a wrong clock. Only where clocks jump does it make a difference.
//!
//! Invariants:
//! - What is wrong is what the engine finds when it is asked. Afterwards a row is as the engine has left it, or has the
//!   time that it had before.
//! - While commits are held back, nothing is wrong: what is written here would be lost with them.

use super::asked::{Asked, Errand, Route, State, id_of};
use super::run::Run;
use crate::mutant::{Mutant, Twin};
use crate::oracle::AHEAD_MS;
use semel_support::Call;

/// Which row a mutant changes.
const THAT: &str = "WHERE state = 7 AND id =";

impl Run {
    /// Has a mutant get the time wrong for what is asked now. Returns a statement for afterwards. `is_unknown`: nobody
    /// knows what became of a call.
    pub(super) fn mistime(&mut self, asked: &Asked, is_unknown: bool) -> Option<String> {
        if self.object.is_holding() {
            return None;
        }
        let Some(Mutant::Twin(twin)) = self.mutant else { return None };
        let (id, ahead_ms) = (id_of(asked.wish), self.object.clock_ms - self.wall_ms());
        let world = &mut self.object.world;
        match twin {
            Twin::ElsewhereClockForgotten if self.object.flights.is_empty() => {
                world.restart();
                None
            }
            Twin::ElsewhereDedupByMachine if ahead_ms > 0 && self.wishes[asked.wish].route == Route::Resend => {
                // A request that is not in doubt yet is judged as it should be.
                (self.object.seen.state_of(asked.wish) == State::InDoubt).then(|| {
                    let shifted = |by_ms: i64| {
                        let columns = format!("executed = executed + {by_ms}, is_started = is_started + {by_ms}");
                        format!("UPDATE semel_records SET {columns} {THAT} '{id}'")
                    };
                    world.database.query(&shifted(ahead_ms));
                    shifted(-ahead_ms)
                })
            }
            Twin::ElsewhereLateUndated | Twin::ElsewhereLateUntilJump if is_unknown => {
                let columns = "at_ms, executed, crashes";
                let rows = world.database.peek(&format!("SELECT {columns} FROM semel_records {THAT} '{id}'"));
                let number = |column: usize| rows.first().and_then(|row| row[column].as_integer());
                let (at_ms, executed, times) = (number(0)?, number(1)?, number(2)?);
                let set = format!("SET at_ms = {at_ms}, executed = {executed}");
                let undated = format!("UPDATE semel_records {set} {THAT} '{id}' AND crashes = {times}");
                if twin == Twin::ElsewhereLateUndated {
                    return Some(undated);
                }
                self.undated.push(undated);
                None
            }
            _ => None,
        }
    }

    /// Has a mutant forget what it knew of calls when the clock jumped.
    pub(super) fn undate(&mut self) {
        if !self.object.is_holding() {
            let undated = std::mem::take(&mut self.undated);
            for statement in undated {
                self.object.world.database.query(&statement);
            }
        }
    }

    /// What a mutant takes for this attempt if it is from the future by the clock of the machine.
    pub(super) fn too_early_by_machine(&self, asked: &Asked) -> Option<Call> {
        let is_ahead = |first_sent_s: i64| first_sent_s * 1000 > self.wall_ms() + AHEAD_MS;
        let first_sent_s = self.wishes[asked.wish].first_sent_s.filter(|first_sent_s| is_ahead(*first_sent_s))?;
        let is_wrong = self.is_twin(Twin::ElsewhereAheadByMachine) && asked.errand == Errand::Request;
        let from_s = self.object.clock_ms.div_euclid(1000).max(first_sent_s);
        is_wrong.then(|| asked.call.clone().without("semel-first-sent").first_sent_s(from_s + AHEAD_MS / 1000 + 1))
    }
}
