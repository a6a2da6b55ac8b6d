//! The ids whose answers are delivered, until their key has taken that.
//!
//! Invariants:
//! - An acknowledgement is done only when an answer of its key's object came back for what carried it.
//! - It carries the latest deadline that any attempt of its id may have.
//! - It rides on the next request to its key; without a ride it goes by itself, at a constant interval.

use super::request::cancellation_of;
use super::row::Settled;
use super::{ACK_RIDE_MS, ACKS_WAITING_MAX};
use crate::header::{ACK_BYTES_MAX, ACKS_MAX, quoted};

/// So many ids go in one request of their own.
const POSTED_IDS_MAX: usize = 256;

/// One id that waits.
#[derive(Debug)]
struct Waiting {
    row: String,
    key: String,
    until_ms: i64,
    was_cancelled: bool,
    /// Whether the row stays for the answer that it keeps.
    is_kept: bool,
    due_ms: i64,
    /// The attempt that carries it.
    riding: Option<u64>,
}

impl Waiting {
    /// Writes the ids that it stands for, quoted, each with its `until`.
    fn write(&self, text: &mut String, (before, between, after): (&str, &str, &str)) {
        let until_ms = self.until_ms.to_string();
        for id in [Some(quoted(&self.row)), self.was_cancelled.then(|| quoted(&cancellation_of(&self.row)))] {
            let Some(id) = id else { continue };
            if !text.is_empty() {
                text.push_str(", ");
            }
            for part in [before, &id, between, &until_ms, after] {
                text.push_str(part);
            }
        }
    }

    fn count(&self) -> usize {
        1 + usize::from(self.was_cancelled)
    }
}

/// An acknowledgement that is done.
#[derive(Debug, PartialEq, Eq)]
pub struct Done {
    /// The row.
    pub row: String,
    /// Whether it stays for the answer that it keeps.
    pub is_kept: bool,
}

/// All that wait, oldest first.
#[derive(Debug, Default)]
pub struct Acknowledgements {
    waiting: Vec<Waiting>,
}

impl Acknowledgements {
    /// Takes a settled row. One without a key has nothing to acknowledge.
    pub fn add(&mut self, row: &str, settled: &Settled, due_ms: i64) {
        let Some(key) = settled.key.clone().filter(|_| settled.is_to_acknowledge()) else { return };
        if self.waiting.iter().any(|waiting| waiting.row == row) {
            return;
        }
        self.waiting.push(Waiting {
            row: row.to_owned(),
            key,
            until_ms: settled.until_ms,
            was_cancelled: settled.was_cancelled,
            is_kept: settled.kept.is_some(),
            due_ms,
            riding: None,
        });
    }

    /// Whether there is no room for more.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= ACKS_WAITING_MAX
    }

    /// Lets what waits for a key ride on an attempt: the value of `Semel-Ack`.
    pub fn ride(&mut self, key: &str, attempt: u64) -> Option<String> {
        let mut value = String::new();
        let mut count = 0;
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.riding.is_none() && waiting.key == key) {
            let length = value.len();
            count += waiting.count();
            waiting.write(&mut value, ("", ";until=", ""));
            if count > ACKS_MAX || value.len() > ACK_BYTES_MAX {
                value.truncate(length);
                break;
            }
            waiting.riding = Some(attempt);
        }
        Some(value).filter(|value| !value.is_empty())
    }

    /// Lets what found no ride in time go by itself: the key, and the body of `POST acks`.
    pub fn post(&mut self, attempt: u64, now_ms: i64) -> Option<(String, String)> {
        let is_due = |waiting: &&Waiting| waiting.riding.is_none() && waiting.due_ms <= now_ms;
        let key = self.waiting.iter().find(is_due)?.key.clone();
        let mut ids = String::new();
        let mut count = 0;
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.riding.is_none() && waiting.key == key) {
            count += waiting.count();
            if count > POSTED_IDS_MAX {
                break;
            }
            // What a structured-field string escapes is what JSON escapes: ids are printable ASCII.
            waiting.write(&mut ids, ("{\"id\":", ",\"until\":", "}"));
            waiting.riding = Some(attempt);
        }
        Some((key, ["{\"ids\":[", &ids, "]}"].concat()))
    }

    /// An attempt has ended; `key`: the object that answered it. What rode on it is done, or looks for another ride.
    pub fn ended(&mut self, attempt: u64, key: Option<&str>, now_ms: i64) -> Vec<Done> {
        let mut done = Vec::new();
        self.waiting.retain_mut(|waiting| {
            if waiting.riding != Some(attempt) {
                return true;
            }
            waiting.riding = None;
            waiting.due_ms = waiting.due_ms.max(now_ms + ACK_RIDE_MS);
            if key == Some(waiting.key.as_str()) {
                done.push(Done { row: waiting.row.clone(), is_kept: waiting.is_kept });
                return false;
            }
            true
        });
        done
    }

    /// When the next one goes by itself.
    pub fn due_ms(&self) -> Option<i64> {
        self.waiting.iter().filter(|waiting| waiting.riding.is_none()).map(|waiting| waiting.due_ms).min()
    }
}
