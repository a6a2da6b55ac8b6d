//! What must hold for what a key keeps of its sessions.

use super::{Aim, Dealt, Oracle, Place, Story, Taken, Violation, What, violation};
use crate::sessions::asked::Asked;
use crate::sessions::view::{Row, State};

/// The outcomes that are kept of a session.
const WINDOW: usize = 64;

impl Oracle {
    /// Checks that a session leaves only if an administrator deletes it, or at a full key if no place of it was ever
    /// taken.
    pub(super) fn check_departures(&mut self, dealt: &Dealt) -> Result<(), Violation> {
        let gone: Vec<_> =
            dealt.before.sessions.keys().filter(|name| !dealt.after.sessions.contains_key(*name)).collect();
        // The sessions as the request found them, with those that it added.
        let all: std::collections::BTreeSet<_> =
            dealt.before.sessions.keys().chain(dealt.after.sessions.keys()).collect();
        let is_full = all.len().max(dealt.before.count) as u64 >= self.plan.sessions.sessions_max;
        let is_unused = |row: &Row| row.places.is_empty() && row.closed_seq == 0;
        let may_leave = |name: &str| is_full && dealt.before.sessions.get(name).is_some_and(is_unused);
        if let Some(name) = gone.iter().find(|name| !dealt.is_administered && !may_leave(name)) {
            return violation("left", format!("the session {name} has left"));
        }
        for name in gone.into_iter().filter(|_| dealt.is_administered) {
            self.see("session: one is deleted with its key");
            self.stories.remove(&(dealt.key.clone(), name.clone()));
        }
        if dealt.is_administered && dealt.after.ids.effects == 0 {
            self.ids.retain(|(key, _), _| *key != dealt.key);
        }
        Ok(())
    }

    /// Checks that what is stored is what happened.
    pub(super) fn check_tables(&mut self, dealt: &Dealt) -> Result<(), Violation> {
        let sessions_max = self.plan.sessions.sessions_max as usize;
        if dealt.after.count > sessions_max {
            return violation("bounded", format!("{} has {} sessions", dealt.key, dealt.after.count));
        }
        for (name, row) in &dealt.after.sessions {
            if dealt.before.sessions.get(name) == Some(row) && self.story(&dealt.key, name).is_some() {
                continue;
            }
            self.adopt(dealt, name, row)?;
            let idle_ms = dealt
                .before
                .sessions
                .get(name)
                .map_or(i64::MAX, |row| row.used_ms + dealt.retention_s.saturating_mul(1000));
            let idle_seq = if idle_ms <= dealt.now_ms { row.closed_seq } else { 0 };
            let Some(story) = self.story(&dealt.key, name) else { continue };
            if (row.current(), &row.principal) != (story.current, &story.principal) {
                return violation("epoch", format!("{name} is at {}, and {story:?}", row.current()));
            }
            if row.last() != story.last {
                return violation("number", format!("the last number of {name} is {}, not {}", row.last(), story.last));
            }
            check_places(name, row, story, idle_seq)?;
            if row.places.is_empty() && idle_seq > 0 {
                self.see("session: an idle one is a stub");
            }
        }
        Ok(())
    }

    /// If a take-over was not answered, the tables tell whether it happened.
    fn adopt(&mut self, dealt: &Dealt, name: &str, row: &Row) -> Result<(), Violation> {
        let is_unsaid = dealt.replies.is_empty() || dealt.replies.iter().any(|reply| reply.status() == 503);
        let takes_over = |asked: &Asked| matches!(&asked.aim, Aim::TakeOver(of, _) if of == name);
        let current = self.story(&dealt.key, name).map_or(0, |story| story.current);
        if let Some(asked) = dealt.asked.iter().rfind(|asked| takes_over(asked))
            && row.current() != current
            && is_unsaid
        {
            self.new_epoch(dealt, name, row.current(), None)?;
            let last = self.story(&dealt.key, name).map_or(0, |story| story.last);
            self.given.insert((dealt.key.clone(), asked.own.clone()), (row.current(), last));
        }
        Ok(())
    }

    /// The same for a place that was closed without an effect: by its cancellation, or because it crashed too often.
    pub(super) fn adopt_place(&mut self, dealt: &Dealt, asked: &Asked, code: Option<&str>) -> Result<(), Violation> {
        let is_unsaid = dealt.refusal.is_none() && matches!(code, None | Some("unavailable"));
        let (place, what, state) = match &asked.aim {
            Aim::AtPlace(place) => (place, What::Poisoned, State::Poisoned),
            Aim::Close(place) => (place, What::Cancelled, State::Cancelled),
            _ => return Ok(()),
        };
        let found = dealt.after.sessions.get(&place.name).and_then(|row| row.places.get(&place.seq));
        let last = self.story(&dealt.key, &place.name).map_or(0, |story| story.last);
        if !is_unsaid || place.seq <= last || found != Some(&(place.epoch, state)) {
            return Ok(());
        }
        self.took_place(dealt, place, what.clone())?;
        self.check_blame(dealt, place, &what)
    }

    pub(super) fn check_blame(&self, dealt: &Dealt, place: &Place, what: &What) -> Result<(), Violation> {
        if *what != What::Poisoned {
            return Ok(());
        }
        let own = self.crashes.get(&(dealt.key.clone(), place.named())).copied().unwrap_or(0);
        // A holder that takes over after a crash continues the count, so that it comes to an end, and is refused only
        // after a crash of its own.
        let (name, seq) = (format!("{};epoch=", place.name), format!(";seq={}", place.seq));
        let is_number = |named: &str| named.starts_with(&name) && named.ends_with(&seq);
        let of_number = self.crashes.iter().filter(|((key, named), _)| *key == dealt.key && is_number(named));
        let crashes: u32 = of_number.map(|(_, crashes)| crashes).sum();
        if own < 1 || crashes < 3 {
            return violation("blamed", format!("{} is poisoned after {own} of {crashes} crashes", place.named()));
        }
        Ok(())
    }

    /// Checks that a session has a new holder. `told`: the last number that the holder was told.
    pub(super) fn new_epoch(
        &mut self,
        dealt: &Dealt,
        name: &str,
        epoch: i64,
        told: Option<i64>,
    ) -> Result<(), Violation> {
        let highest = self.highest.entry(dealt.key.clone()).or_default();
        if epoch <= *highest {
            return violation("epoch", format!("{name} gets epoch {epoch}, and {} gave {highest} before", dealt.key));
        }
        *highest = epoch;
        let story = self.stories.entry((dealt.key.clone(), name.to_owned())).or_default();
        if !story.principal.is_empty() && story.principal != dealt.principal {
            return violation("stranger", format!("{} takes {name} over", dealt.principal));
        }
        if told.is_some_and(|told| told != story.last) {
            return violation("misled", format!("who takes {name} over is told {told:?}, and it is at {}", story.last));
        }
        story.principal.clone_from(&dealt.principal);
        story.current = epoch;
        Ok(())
    }
}

/// Checks that a taken place is freed only if it was acknowledged, or the session was idle for the retention.
fn check_places(name: &str, row: &Row, story: &mut Story, idle_seq: i64) -> Result<(), Violation> {
    let kept = row.places.values().filter(|(_, state)| *state != State::Acknowledged).count();
    if kept > WINDOW {
        return violation("window", format!("{name} keeps {kept} outcomes"));
    }
    let mut freed = Vec::new();
    for (seq, Taken { epoch, what, .. }) in &story.places {
        let state = match what {
            What::Ran(_) => State::Executed,
            What::Cancelled => State::Cancelled,
            What::Poisoned => State::Poisoned,
        };
        match row.places.get(seq) {
            Some(found) if *found == (*epoch, state) => continue,
            Some((_, State::Acknowledged)) | None if *seq <= story.acked.max(idle_seq) => freed.push(*seq),
            found => return violation("freed", format!("{epoch}/{seq} of {name} was {what:?}, and is {found:?}")),
        }
    }
    story.places.retain(|seq, _| !freed.contains(seq));
    Ok(())
}
