//! The ids whose answers were delivered, until their key has taken the acknowledgement.
//!
//! Invariants:
//! - An acknowledgement is done only when the object of its key has answered the request that carried it.
//! - It carries the latest deadline that any attempt of its id may have.
//! - It rides on the next request to its key. Without one it is sent by itself, at a constant interval.
//! - Once that is refused until something is mended, it goes by itself again only after something may have been: the
//!   application has resumed what is paused, or a key has taken a request.

use super::ACKS_WAITING_MAX;
use super::in_hand::{Seen, hash};
use super::request::cancellation_of;
use super::row::Settled;
use crate::header::{ACK_BYTES_MAX, ACKS_MAX, quoted};
use crate::rules::{Rule, holds};
use crate::text::{decimal, joined};

/// The ids that one request carries at most if it only acknowledges.
const POSTED_IDS_MAX: usize = 256;

/// A hash of a row's id and its `until`. If an id is used again, its row has a later `until`, and so another mark.
pub(super) fn mark(row: &str, until_ms: i64) -> u64 {
    // The shift keeps the lowest bit, which [`Seen`] needs set.
    hash(row.as_bytes()) ^ (until_ms as u64) << 1
}

/// An acknowledgement that waits for its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Waiting {
    row: String,
    key: String,
    until_ms: i64,
    was_cancelled: bool,
    /// Whether the row stays because it keeps an answer.
    is_kept: bool,
    /// When it is sent by itself, or [`REFUSED`].
    due_ms: i64,
    /// The attempt that carries it.
    riding: Option<u64>,
}

impl Waiting {
    /// Writes its ids, quoted, each with its `until`: the request's, and the cancellation's if there was one.
    fn write(&self, text: &mut String, (before, between, after): (&str, &str, &str)) {
        let until_ms = decimal(if holds(Rule::UntilTold) { self.until_ms } else { (self.until_ms - 170_000).max(0) });
        for id in [quoted(&self.row), quoted(&cancellation_of(&self.row))].iter().take(self.count()) {
            if !text.is_empty() {
                text.push_str(", ");
            }
            for part in [before, id, between, &until_ms, after] {
                text.push_str(part);
            }
        }
    }

    fn count(&self) -> usize {
        1 + usize::from(self.was_cancelled)
    }
}

/// Sent by itself only once it is resumed.
pub const REFUSED: i64 = i64::MAX;

/// All acknowledgements that wait, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Acknowledgements {
    waiting: Vec<Waiting>,
}

impl Acknowledgements {
    /// Drops those whose rows are gone, unless they are riding: another tab has acknowledged them, and their ids may be
    /// used again. `rows` has the marks of all rows; the marks of those that stay are removed from it.
    pub(super) fn keep(&mut self, rows: &mut Seen) {
        self.waiting.retain(|waiting| rows.take(mark(&waiting.row, waiting.until_ms)) | waiting.riding.is_some());
    }

    /// Adds the acknowledgement of a settled row, unless the row has no key or was acknowledged. If it waits already,
    /// its key is told twice, which does no harm.
    pub(super) fn add(&mut self, row: &str, settled: Settled, due_ms: i64) {
        let Some(key) = settled.key.filter(|_| !settled.is_acknowledged) else { return };
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

    /// Lets the acknowledgements of a key ride on an attempt. Returns the value of `Semel-Ack`; `None` if there are
    /// none.
    pub fn ride(&mut self, key: &str, attempt: u64) -> Option<String> {
        let value = self.load(key, attempt, ("", ";until=", ""), ACKS_MAX, ACK_BYTES_MAX);
        Some(value).filter(|value| !value.is_empty())
    }

    /// Lets due acknowledgements of one key go by themselves. Returns the key, and the body of `POST acks`.
    pub fn post(&mut self, attempt: u64, now_ms: i64) -> Option<(String, String)> {
        let is_due = |waiting: &&Waiting| waiting.riding.is_none() && waiting.due_ms <= now_ms;
        let key = self.waiting.iter().find(is_due)?.key.clone();
        // Ids are printable ASCII, of which structured-field strings and JSON escape the same characters.
        let ids = self.load(&key, attempt, ("{\"id\":", ",\"until\":", "}"), POSTED_IDS_MAX, usize::MAX);
        Some((key, joined(&["{\"ids\":[", &ids, "]}"])))
    }

    /// Writes the acknowledgements of a key that ride on no attempt yet, up to the limits, and lets them ride on this
    /// one.
    fn load(&mut self, key: &str, attempt: u64, words: (&str, &str, &str), ids: usize, bytes: usize) -> String {
        let mut text = String::new();
        let mut count = 0;
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.riding.is_none() && waiting.key == key) {
            let length = text.len();
            count += waiting.count();
            waiting.write(&mut text, words);
            if count > ids || text.len() > bytes {
                text.truncate(length);
                break;
            }
            waiting.riding = Some(attempt);
        }
        text
    }

    /// Takes note that an attempt has ended. `key`: the key whose object answered it. If it is their key, the
    /// acknowledgements on it are done: `done` gets the id of each row, and whether the row stays because it keeps an
    /// answer. Otherwise they wait for another ride, and go by themselves at `again_ms` at the earliest.
    pub fn ended(&mut self, attempt: u64, key: Option<&str>, again_ms: i64, mut done: impl FnMut(String, bool)) {
        self.waiting.retain_mut(|waiting| {
            if waiting.riding != Some(attempt) {
                return true;
            }
            waiting.riding = None;
            waiting.due_ms = waiting.due_ms.max(again_ms);
            if key == Some(waiting.key.as_str()) || !holds(Rule::AcknowledgementAnswered) {
                done(waiting.row.clone(), waiting.is_kept);
                return false;
            }
            true
        });
    }

    /// Lets those go by themselves again that were refused.
    pub fn resume(&mut self, at_ms: i64) {
        let refused = self.waiting.iter_mut().filter(|waiting| waiting.due_ms == REFUSED);
        refused.for_each(|waiting| waiting.due_ms = at_ms);
    }

    /// When the next acknowledgement goes by itself.
    pub fn due_ms(&self) -> Option<i64> {
        self.waiting.iter().filter(|waiting| waiting.riding.is_none()).map(|waiting| waiting.due_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Headers;

    fn settled(key: &str) -> Settled {
        let (key, was_cancelled) = (Some(key.to_owned()), false);
        Settled {
            outbox: String::new(),
            maker: String::new(),
            key,
            until_ms: 1_800_000_000_000,
            was_cancelled,
            kept: None,
            at_s: 0,
            is_acknowledged: false,
        }
    }

    fn waiting(count: usize, was_cancelled: bool, digits: usize) -> Acknowledgements {
        let mut acks = Acknowledgements::default();
        for n in 0..count {
            acks.add(&format!("{n:0>digits$}"), Settled { was_cancelled, ..settled("k") }, 0);
        }
        acks
    }

    /// Each ride keeps the limits of the header, and every acknowledgement gets a ride.
    #[test]
    fn acknowledgements_on_a_request_keep_the_header_limits_and_later_requests_take_the_rest() {
        for (was_cancelled, digits) in [(false, 2), (true, 2), (false, 200), (true, 90)] {
            let mut acks = waiting(150, was_cancelled, digits);
            let mut seen = 0;
            for attempt in 1.. {
                let Some(value) = acks.ride("k", attempt) else { break };
                let headers: Headers = [("semel-ack", value)].into_iter().collect();
                seen += crate::header::acks(&headers).expect("within the limits").len();
            }
            assert_eq!(seen, 150 * (1 + usize::from(was_cancelled)), "{was_cancelled} {digits}");
        }
        let value = waiting(65, false, 2).ride("k", 1).expect("a ride");
        assert_eq!(value.split(", ").count(), ACKS_MAX, "as many as may be");
    }

    #[test]
    fn acknowledgements_on_a_request_fill_the_header_to_its_last_byte_and_not_beyond() {
        for (last, rides) in [(114, 16), (115, 15)] {
            let mut acks = Acknowledgements::default();
            for (n, length) in [240; 15].into_iter().chain([last]).enumerate() {
                acks.add(&format!("{n:0>length$}"), settled("k"), 0);
            }
            let value = acks.ride("k", 1).expect("a ride");
            assert_eq!((value.split(", ").count(), value.len() == ACK_BYTES_MAX), (rides, rides == 16));
        }
    }

    #[test]
    fn a_request_for_acknowledgements_alone_has_at_most_the_limit_of_ids() {
        for was_cancelled in [false, true] {
            let mut acks = waiting(300, was_cancelled, 3);
            let (_, body) = acks.post(1, 0).expect("due");
            assert_eq!(body.matches("\"id\"").count(), POSTED_IDS_MAX);
        }
    }

    #[test]
    fn an_acknowledgement_rides_one_request_at_a_time_and_only_to_its_key_whose_answer_ends_it() {
        let mut acks = waiting(1, false, 2);
        assert_eq!(acks.ride("other", 1), None);
        assert!(acks.ride("k", 2).is_some());
        assert_eq!(acks.ride("k", 3), None);
        let mut done = Vec::new();
        acks.ended(2, Some("other"), 10, |row, is_kept| done.push((row, is_kept)));
        assert!(done.is_empty(), "the answer of another key's object proves nothing");
        assert_eq!(acks.due_ms(), Some(10), "and not at once again");
        assert!(acks.ride("k", 4).is_some());
        acks.ended(4, Some("k"), 20, |row, is_kept| done.push((row, is_kept)));
        assert_eq!(done, [("00".to_owned(), false)]);
    }

    #[test]
    fn a_row_that_is_already_acknowledged_is_not_queued_again() {
        let mut acks = waiting(1, false, 2);
        acks.add("01", Settled { is_acknowledged: true, ..settled("k") }, 0);
        assert_eq!(acks.waiting.len(), 1);
    }

    #[test]
    fn the_acknowledgements_are_full_at_the_limit() {
        let mut acks = waiting(1, false, 2);
        assert!(!acks.is_full());
        while acks.waiting.len() < ACKS_WAITING_MAX {
            assert!(!acks.is_full());
            let row = acks.waiting.len().to_string();
            acks.waiting.push(Waiting {
                row,
                key: "k".into(),
                until_ms: 0,
                was_cancelled: false,
                is_kept: false,
                due_ms: 0,
                riding: None,
            });
        }
        assert!(acks.is_full());
    }
}
