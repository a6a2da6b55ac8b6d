//! The server's clock, as far as the client knows it.
//!
//! Invariant: it is learned only from `Semel-Now`. After a key has refused a deadline, that key's own clock is used for
//! it, since it may be ahead of the worker's.

use super::KEYS_KNOWN_MAX;

/// How far the server's clocks are ahead of the client's, in ms.
#[derive(Debug, Default)]
pub struct ServerClock {
    worker_ms: Option<i64>,
    keys_ms: Vec<(String, i64)>,
}

impl ServerClock {
    /// Forgets all clocks.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether the worker's clock is known.
    pub fn is_known(&self) -> bool {
        self.worker_ms.is_some()
    }

    /// The instant at a key, in Unix ms. Uses the worker's clock if the key's own is not known; `None` if neither is.
    pub fn at(&self, key: Option<&str>, now_ms: i64) -> Option<i64> {
        let own = self.keys_ms.iter().find(|(each, _)| Some(each.as_str()) == key).map(|(_, ahead_ms)| *ahead_ms);
        own.or(self.worker_ms).map(|ahead_ms| now_ms.saturating_add(ahead_ms))
    }

    /// Learns the worker's clock from the `Semel-Now` of its health.
    pub fn learn(&mut self, semel_now_ms: i64, now_ms: i64) {
        self.worker_ms = Some(semel_now_ms.saturating_sub(now_ms));
    }

    /// Learns the clock of a key, or of the worker, from the `Semel-Now` with which it refused a request.
    pub fn learn_of(&mut self, key: Option<&str>, semel_now_ms: i64, now_ms: i64) {
        let ahead_ms = semel_now_ms.saturating_sub(now_ms);
        // A request is sent only while the worker's clock is known. If it is not, this request was sent before a sleep,
        // and its answer may be as old.
        let Some(worker_ms) = &mut self.worker_ms else { return };
        let Some(key) = key else {
            *worker_ms = ahead_ms;
            return;
        };
        if let Some((_, known_ms)) = self.keys_ms.iter_mut().find(|(each, _)| each == key) {
            *known_ms = ahead_ms;
            return;
        }
        if self.keys_ms.len() >= KEYS_KNOWN_MAX {
            // A forgotten clock is learned again from the first refusal.
            self.keys_ms.clear();
        }
        self.keys_ms.push((key.to_owned(), ahead_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_uses_the_general_clock_until_its_own_is_known() {
        let mut clock = ServerClock::default();
        assert_eq!(clock.at(None, 10), None);
        clock.learn(1_000, 10);
        assert_eq!((clock.at(None, 20), clock.at(Some("a"), 20)), (Some(1_010), Some(1_010)));
        clock.learn_of(Some("a"), 9_000, 20);
        assert_eq!((clock.at(Some("b"), 30), clock.at(Some("a"), 30)), (Some(1_020), Some(9_010)));
    }

    #[test]
    fn the_number_of_clocks_of_keys_that_are_remembered_is_bounded() {
        let mut clock = ServerClock::default();
        clock.learn(0, 0);
        for key in 0..=KEYS_KNOWN_MAX {
            clock.learn_of(Some(&key.to_string()), 1, 0);
        }
        assert!((1..=KEYS_KNOWN_MAX).contains(&clock.keys_ms.len()));
    }
}
