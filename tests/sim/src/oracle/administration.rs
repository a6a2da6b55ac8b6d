//! What must hold when an administrator has a key forget, deletes or cancels, and what may be answered and executed afterwards.

use super::{Oracle, Violation, violation};
use crate::letter::Exchange;
use crate::snapshot::Row;
use semel_core::id::Principal;

impl Oracle {
    /// A key was told to forget, and has its fence there now.
    pub fn forgot(&mut self, key: &str, (before_s, fence_s): (i64, i64), now_ms: i64) -> Result<(), Violation> {
        if fence_s < before_s {
            return violation("fence", format!("{key} was told to forget, and its fence is at {fence_s}"));
        }
        self.see("admin: forgets");
        let fence = self.fences_s.entry(key.to_owned()).or_default();
        *fence = (*fence).max(before_s);
        // A request without first-sent that the fence has passed is protected for one more retention.
        self.unprotect(key, now_ms + self.retention_ms_min(), |_| true);
        Ok(())
    }

    /// An administrator's request was answered, or a pretender's.
    pub(super) fn administered(&mut self, key: &str, exchange: &Exchange, code: &str) -> Result<(), Violation> {
        let (message, reply) = (&exchange.letter.message, &exchange.reply);
        let is_administrator = exchange.principal == Principal::administrator().as_str();
        if !is_administrator {
            self.see(format!("admin: somebody else is told {code}"));
            let is_right = matches!(code, "forbidden" | "unavailable" | "key-invalid");
            if !is_right {
                return violation("administrator", format!("{} was told {code}", exchange.principal));
            }
        }
        let own = message.own_id().unwrap_or_default();
        let is_done = exchange.after.rows.contains_key(&own) && !exchange.before.rows.contains_key(&own);
        let mut judged = exchange.clone();
        match (message.method.as_str(), message.administered_id()) {
            ("DELETE", None) if is_done => return self.deleted_key(key, exchange, &own),
            ("DELETE", Some(id)) if is_done => {
                self.see(format!("admin: {} is deleted", exchange.before.state_of(&id)));
                self.unprotect(key, reply.now_ms() + self.retention_ms_min(), |each| each == id);
                let row = exchange.before.rows.get(&id).filter(|row| row.is_record());
                if let Some(row) = row {
                    let next = check_reduced(&id, row, exchange.after.rows.get(&id))?;
                    // The rest is judged as if the record had been reduced before.
                    std::rc::Rc::make_mut(&mut judged.before).rows.insert(id, next);
                }
            }
            ("POST", _) if is_done => {
                self.see("admin: cancels");
                let id = message.administered_id().unwrap_or_default();
                self.id(key, &id).is_administered = true;
            }
            _ => {}
        }
        self.check_rows(key, &judged, reply.now_ms())
    }

    fn deleted_key(&mut self, key: &str, exchange: &Exchange, own: &str) -> Result<(), Violation> {
        let after = &exchange.after;
        let latest_s = exchange.before.rows.values().filter_map(|row| row.first_sent_s).max().unwrap_or(0);
        if after.rows.values().filter(|row| !row.is_packed).count() > 1 || after.effects > 0 {
            return violation("deleted", format!("{key} was deleted and has {after:?}"));
        }
        let at_ms = after.rows.get(own).map_or(0, |row| row.at_ms);
        // The fence doesn't stand in for packed tombstones, so they must stay.
        let mut packed = exchange.before.rows.iter().filter(|(_, row)| row.is_packed && !row.has_lapsed(at_ms));
        if let Some((id, row)) = packed.find(|(id, _)| !after.rows.contains_key(*id)) {
            return violation("left", format!("{id} left with all of {key}: {row:?}"));
        }
        if after.fence_s <= latest_s || after.fence_s * 1000 < at_ms {
            return violation("fence", format!("{key} was deleted at {at_ms}, and its fence is at {}", after.fence_s));
        }
        self.see("admin: a key is deleted");
        self.fences_s.insert(key.to_owned(), after.fence_s);
        self.effects.insert(key.to_owned(), 0);
        self.history.is_no_longer_promised(key);
        self.unprotect(key, at_ms, |_| true);
        for ((at, id), story) in &mut self.ids {
            if at == key && !after.rows.contains_key(id) {
                story.has_left = true;
            }
            if at == key && story.first_sent_s.is_none() {
                // Without first-sent, the id counts as new.
                (story.never_ran_ms, story.first_seen_ms, story.kept_ms) = (None, None, None);
                (story.until_ms, story.is_unbounded, story.panics) = (0, false, 0);
            }
        }
        Ok(())
    }

    fn unprotect(&mut self, key: &str, from_ms: i64, is_meant: impl Fn(&str) -> bool) {
        for ((_, _), story) in self.ids.iter_mut().filter(|((at, id), _)| at == key && is_meant(id)) {
            story.is_administered = true;
            story.free_ms = Some(story.free_ms.map_or(from_ms, |free_ms| free_ms.min(from_ms)));
        }
    }
}

/// A deleted record must look like one that expired. A request that has not run must never run.
fn check_reduced(id: &str, row: &Row, next: Option<&Row>) -> Result<Row, Violation> {
    let state = if row.state == "suspect" { "cancelled" } else { "expired" };
    match next.filter(|next| next.state == state && next.principal == row.principal) {
        Some(next) => Ok(next.clone()),
        None => violation("deleted", format!("{id} was {row:?}, was deleted, and is {next:?}")),
    }
}
