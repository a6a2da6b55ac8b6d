//! What time and the network bring: when the machine wants to be woken, and what it does then.
//!
//! Invariant: whatever is waited for ends by its instant here, though nothing else is heard: an attempt, a caller's patience, an interval.

use super::in_hand::Stage;
use super::machine::{Client, Purpose};

impl Client {
    /// The client's clock may have stood still, or jumped: the server's is asked for anew before anything is sent.
    pub fn doubt_clock(&mut self) {
        self.clock.forget();
        // What was asked before tells of a time that may have passed: its answer, which may have come already, tells nothing.
        for (_, attempt) in self.attempts.iter_mut() {
            if matches!(attempt.purpose, Purpose::Health) {
                attempt.purpose = Purpose::Acknowledge;
            }
        }
    }

    /// The network is gone, or there again. Without it nothing is sent: what is due waits.
    pub fn set_offline(&mut self, now_ms: i64, is_offline: bool) {
        self.is_offline = is_offline;
        self.hurry(now_ms);
    }

    /// What waits for its interval goes on now: the network is there again, or the page is looked at again.
    pub fn hurry(&mut self, now_ms: i64) {
        for (_, request) in self.requests.iter_mut() {
            if let Stage::Waiting { due_ms } = &mut request.stage {
                *due_ms = request.not_before_ms.max(now_ms).min(*due_ms);
            }
        }
        self.health_due_ms = now_ms;
        self.advance(now_ms);
    }

    /// When [`Client::wake`] is to be called.
    pub fn wakes_at(&self) -> Option<i64> {
        let mut earliest_ms = i64::MAX;
        let mut consider = |due_ms: i64| earliest_ms = earliest_ms.min(due_ms);
        // What is due and has no place waits for an attempt to end, and what lacks the clock for health.
        if self.places() > 0 {
            self.waiting().into_iter().for_each(|(due_ms, _)| consider(due_ms));
        }
        for (_, attempt) in self.attempts.iter() {
            consider(attempt.ends_ms);
        }
        for (_, request) in self.requests.iter() {
            request.again_ms().into_iter().for_each(&mut consider);
            if let (true, Some(gives_up_ms)) = (request.may_give_up(), request.gives_up_ms) {
                consider(gives_up_ms);
            }
        }
        if self.needs_health() {
            consider(self.health_due_ms);
        }
        if let (true, Some(due_ms)) = (self.may_post(), self.acks.due_ms()) {
            consider(due_ms);
        }
        (earliest_ms != i64::MAX).then_some(earliest_ms)
    }

    /// Time has passed.
    pub fn wake(&mut self, now_ms: i64) {
        loop {
            let over = self.attempts.iter().find(|(_, in_flight)| in_flight.ends_ms <= now_ms);
            let Some(attempt) = over.map(|(attempt, _)| *attempt) else { break };
            self.abort(now_ms, attempt);
        }
        for (_, request) in self.requests.iter_mut() {
            if request.may_give_up() && request.gives_up_ms.is_some_and(|gives_up_ms| gives_up_ms <= now_ms) {
                request.has_caller = false;
                request.gives_up_ms = None;
                request.release(&mut self.actions);
            }
        }
        self.advance(now_ms);
    }
}
