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

    /// Learns the clock of a key from its `Semel-Now`. Without a key it is the worker's, and what was known of keys is
    /// forgotten, because the worker may have refused a deadline that was made of that.
    pub fn learn(&mut self, key: Option<&str>, semel_now_ms: i64, now_ms: i64) {
        let ahead_ms = semel_now_ms.saturating_sub(now_ms);
        let Some(key) = key else {
            self.worker_ms = Some(ahead_ms);
            return self.keys_ms.clear();
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
        clock.learn(None, 1_000, 10);
        assert_eq!((clock.at(None, 20), clock.at(Some("a"), 20)), (Some(1_010), Some(1_010)));
        clock.learn(Some("a"), 9_000, 20);
        assert_eq!((clock.at(Some("b"), 30), clock.at(Some("a"), 30)), (Some(1_020), Some(9_010)));
    }

    #[test]
    fn the_number_of_clocks_of_keys_that_are_remembered_is_bounded() {
        let mut clock = ServerClock::default();
        for key in 0..KEYS_KNOWN_MAX {
            clock.learn(Some(&key.to_string()), 1, 0);
        }
        assert_eq!(clock.keys_ms.len(), KEYS_KNOWN_MAX);
        clock.learn(Some("one more"), 1, 0);
        assert!(clock.keys_ms.len() <= KEYS_KNOWN_MAX);
        assert_eq!(clock.at(Some("one more"), 0), Some(1));
    }
}
