//! When the machine wants to be woken, and what it does when time passes, or the network comes or goes.
//!
//! Invariant: each attempt, each interval and each caller's patience ends at an instant here, even if nothing is
//! reported.

use super::in_hand::Stage;
use super::machine::{Client, Purpose};
use super::verdict::DOUBTED;

impl Client {
    /// The client's clock may have stood still, or jumped. The server's clock is asked for anew before anything is
    /// sent.
    pub fn doubt_clock(&mut self) {
        self.clock.forget();
        // What is under way, or whose answer is on its way in, may be from before. So its answer must tell nothing of a
        // clock, whether or not the worker tells its own first.
        for (_, attempt) in self.attempts.iter_mut() {
            match &mut attempt.purpose {
                Purpose::Request { sent, .. } => *sent = DOUBTED,
                purpose => *purpose = Purpose::Acknowledge,
            }
        }
    }

    /// The network is gone, or back. Without it nothing is sent, and requests that are due wait.
    pub fn set_offline(&mut self, now_ms: i64, is_offline: bool) {
        self.is_offline = is_offline;
        self.hurry(now_ms);
    }

    /// Requests that wait for their interval go on now, because the network is back, or the user looks at the page
    /// again.
    pub fn hurry(&mut self, now_ms: i64) {
        for (_, request) in self.requests.iter_mut() {
            if let Stage::Waiting { due_ms } = &mut request.stage {
                *due_ms = request.not_before_ms.max(now_ms).min(*due_ms);
            }
        }
        self.health_due_ms = now_ms;
        self.advance(now_ms);
    }

    /// When [`Client::wake`] has to be called.
    pub fn wakes_at(&self) -> Option<i64> {
        let mut earliest_ms = i64::MAX;
        let mut consider = |due_ms: i64| earliest_ms = earliest_ms.min(due_ms);
        // A due request without a free place waits for an attempt to end, and one that lacks the clock waits for the
        // worker's answer.
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

    /// Time has passed: ends attempts that took too long and the waiting of callers, and starts what is due.
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
