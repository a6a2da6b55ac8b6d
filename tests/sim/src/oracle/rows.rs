//! What must hold of what a key keeps.

use super::{Oracle, Violation, violation};
use crate::letter::Exchange;
use crate::snapshot::Row;

/// How long a tombstone outlives the latest deadline.
const GRACE_MS: i64 = 60_000;
/// The furthest that a deadline, or a first-sent, may lie ahead of the key's clock.
pub const AHEAD_MS: i64 = 120_000;

impl Oracle {
    pub(super) fn check_rows(&mut self, key: &str, exchange: &Exchange, now_ms: i64) -> Result<(), Violation> {
        let (before, after) = (&exchange.before, &exchange.after);
        if after.fence_s < before.fence_s {
            return violation("fence", "the fence moved back");
        }
        let has_clock = exchange.reply.header("semel-key").is_some();
        if has_clock && !exchange.has_crashed && after.latest_ms() > before.latest_ms() && now_ms < before.latest_ms() {
            return violation("clock", "the clock of the key went back");
        }
        let retention_ms = exchange.retention_s * 1000;
        if after.fence_s > before.fence_s && after.fence_s * 1000 > now_ms.max(before.latest_ms()) - retention_ms {
            return violation("fence", "the fence is nearer than the retention");
        }
        let acks = exchange.letter.message.acks();
        let own = exchange.letter.message.own_id().unwrap_or_default();
        let is_acked = |id: &String, row: &Row| {
            exchange.principal == row.principal && *id != own && matches!(row.state, "executed" | "poisoned")
        };
        for (id, until_ms) in &acks {
            let is_gone = after.rows.get(id).is_none_or(|row| row.state == "acknowledged");
            if is_gone && before.rows.get(id).is_some_and(|row| is_acked(id, row)) {
                self.acknowledged((key, id), *until_ms, now_ms, retention_ms);
            }
        }
        for (id, row) in &before.rows {
            match after.rows.get(id) {
                None => {
                    let kind = if row.first_sent_s.is_some() { "with" } else { "without" };
                    self.see(format!("fate: {} {kind} first-sent leaves", row.state));
                    self.check_departure(key, id, row, exchange, now_ms)?;
                }
                // The packed tombstone had lapsed, though it was still stored, and the id is new.
                Some(next) if next.state != row.state && row.has_lapsed(now_ms) => {
                    self.check_departure(key, id, row, exchange, now_ms)?;
                }
                Some(next) if next.principal != row.principal => {
                    return violation("stranger", format!("{id} went from {} to {}", row.principal, next.principal));
                }
                Some(next) if next.state != row.state => {
                    self.see(format!("fate: {} becomes {}", row.state, next.state));
                    if next.state == "expired" {
                        check_lapse(id, (row, next), after.fence_s, now_ms + retention_ms)?;
                    }
                    let is_named = acks.iter().any(|(acked, _)| acked == id);
                    if next.state == "acknowledged" && !(is_named && is_acked(id, row)) {
                        return violation("acknowledged", format!("{id} was acknowledged, but not by its principal"));
                    }
                }
                Some(next) if next.lapses_ms.is_some() && row.lapses_ms.is_none() => {
                    self.see(format!("fate: {} begins to lapse", row.state));
                    check_lapse(id, (row, next), after.fence_s, now_ms + retention_ms)?;
                }
                Some(_) => {}
            }
        }
        let state = after.state_of(&own);
        if matches!(state, "acknowledged" | "expired") && !before.rows.contains_key(&own) {
            return violation("left", format!("{own} is {state} from the beginning"));
        }
        Ok(())
    }

    fn acknowledged(&mut self, (key, id): (&str, &str), until_ms: Option<i64>, now_ms: i64, retention_ms: i64) {
        let latest_ms = now_ms + 2 * retention_ms + AHEAD_MS;
        let story = self.id(key, id);
        story.kept_ms.get_or_insert(now_ms + retention_ms);
        story.acked = story.effects_ms.len();
        story.is_unbounded |= until_ms.is_none();
        story.until_ms = story.until_ms.max(until_ms.unwrap_or(0).min(latest_ms));
    }

    /// A row has left, or was overwritten because its id is new.
    fn check_departure(
        &mut self,
        key: &str,
        id: &str,
        row: &Row,
        exchange: &Exchange,
        now_ms: i64,
    ) -> Result<(), Violation> {
        let fence_s = exchange.after.fence_s;
        let first_sent_s = row.first_sent_s;
        let is_passed = first_sent_s.unwrap_or(0).max(row.at_ms.div_euclid(1000)) < fence_s;
        let is_used_again = self.is_used_again(id);
        let story = self.id(key, id);
        if first_sent_s.is_none() || is_passed {
            // An attempt that still comes is refused or counts as new, for the handler as well.
            story.panics = 0;
        }
        // An acknowledged row may leave at once. An expired row was not acknowledged itself: the acknowledgement belongs to an
        // earlier row, after which the id was new.
        let is_acked = story.kept_ms.is_some() && story.acked == story.effects_ms.len() && row.state != "expired";
        let state = if is_acked { "acknowledged" } else { row.state };
        let is_right = match state {
            "suspect" => is_passed || exchange.letter.message.own_id().as_deref() == Some(id),
            "cancelled" if first_sent_s.is_none() => row.lapses_ms.is_some_and(|lapses_ms| lapses_ms <= now_ms),
            "acknowledged" if first_sent_s.is_none() && story.is_unbounded => {
                story.kept_ms.is_none_or(|kept_ms| kept_ms <= now_ms)
            }
            "acknowledged" if story.is_unbounded => first_sent_s.is_some_and(|first_sent_s| first_sent_s < fence_s),
            // Such a row must not leave while an attempt may still arrive and run, whatever the client said.
            "acknowledged" => {
                // A packed row has no first-sent, but every attempt of its id had one.
                let told_s = first_sent_s.or(story.first_sent_s);
                let is_refused = told_s.is_some_and(|told_s| told_s < fence_s);
                // Attempts of an id that was used again may arrive for longer than its acknowledgement said.
                let is_over = story.sent_ms < now_ms || is_refused || is_used_again;
                // A packed tombstone below a row that outlived it lapses by itself if that row went with the whole key.
                let is_left_over = is_used_again && row.is_packed && is_refused && row.has_lapsed(now_ms);
                story.until_ms + GRACE_MS <= now_ms && is_over || is_left_over
            }
            "expired" => row.lapses_ms.is_some_and(|lapses_ms| lapses_ms <= now_ms),
            _ => first_sent_s.is_some() && is_passed,
        };
        if first_sent_s.is_none() {
            // What was said of the request that left doesn't count for the new one.
            (story.until_ms, story.is_unbounded) = (0, false);
        }
        if is_right {
            story.has_left |= state != "suspect" || is_passed;
            return Ok(());
        }
        violation("left", format!("{id} left too early: {row:?}"))
    }
}

/// A row that no fence can refuse stays for one retention from when the fence has passed it.
fn check_lapse(id: &str, (row, next): (&Row, &Row), fence_s: i64, at_least_ms: i64) -> Result<(), Violation> {
    let is_passed = next.first_sent_s.is_none() && row.at_ms.div_euclid(1000) < fence_s;
    if is_passed && next.lapses_ms.is_some_and(|lapses_ms| lapses_ms >= at_least_ms) {
        return Ok(());
    }
    violation("left", format!("{id} begins to leave too early, or leaves too soon: {row:?}, then {next:?}"))
}
