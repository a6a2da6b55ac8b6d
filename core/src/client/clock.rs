//! The server's clock, as far as it is known.
//!
//! Invariant: it is learned from `Semel-Now` alone. Where a key refused a deadline, its own clock counts from then on: it
//! may be ahead of the worker's.

use super::KEYS_KNOWN_MAX;

/// How far the server's clocks are from the client's.
#[derive(Debug, Default)]
pub struct ServerClock {
    worker_ms: Option<i64>,
    keys_ms: Vec<(String, i64)>,
}

impl ServerClock {
    /// Forgets all of it.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        self.worker_ms.is_some()
    }

    /// The instant at a key, or at the worker where the key's clock isn't known apart.
    pub fn at(&self, key: Option<&str>, now_ms: i64) -> Option<i64> {
        let own = self.keys_ms.iter().find(|(each, _)| Some(each.as_str()) == key).map(|(_, ahead_ms)| *ahead_ms);
        own.or(self.worker_ms).map(|ahead_ms| now_ms.saturating_add(ahead_ms))
    }

    /// Takes over the worker's clock.
    pub fn learn(&mut self, semel_now_ms: i64, now_ms: i64) {
        self.worker_ms = Some(semel_now_ms.saturating_sub(now_ms));
    }

    /// Takes over the clock of a key.
    pub fn learn_of(&mut self, key: &str, semel_now_ms: i64, now_ms: i64) {
        let ahead_ms = semel_now_ms.saturating_sub(now_ms);
        if let Some((_, known_ms)) = self.keys_ms.iter_mut().find(|(each, _)| each == key) {
            *known_ms = ahead_ms;
            return;
        }
        if self.keys_ms.len() >= KEYS_KNOWN_MAX {
            // What is forgotten is learned again from the first refusal.
            self.keys_ms.clear();
        }
        self.keys_ms.push((key.to_owned(), ahead_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_clock_of_its_own_once_it_is_known() {
        let mut clock = ServerClock::default();
        assert_eq!(clock.at(None, 10), None);
        clock.learn(1_000, 10);
        assert_eq!((clock.at(None, 20), clock.at(Some("a"), 20)), (Some(1_010), Some(1_010)));
        clock.learn_of("a", 9_000, 20);
        assert_eq!((clock.at(Some("b"), 30), clock.at(Some("a"), 30)), (Some(1_020), Some(9_010)));
    }

    #[test]
    fn the_clocks_that_are_remembered_are_bounded() {
        let mut clock = ServerClock::default();
        for key in 0..=KEYS_KNOWN_MAX {
            clock.learn_of(&key.to_string(), 1, 0);
        }
        assert!(clock.keys_ms.len() <= KEYS_KNOWN_MAX);
    }
}
