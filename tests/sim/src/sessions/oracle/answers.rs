//! Checks that what is said is true.

use super::{Aim, Asked, Dealt, Oracle, Place, Violation, What, violation};
use semel_support::Reply;

/// The codes that say nothing about a place or an id.
const SAY_NOTHING: [&str; 5] = ["unavailable", "rolled-back", "rate-limited", "body-invalid", "not-found"];

impl Oracle {
    /// Checks an answer.
    pub(super) fn said(&mut self, dealt: &Dealt, asked: &Asked, reply: &Reply) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        let is_outcome = matches!(code, "executed" | "replayed");
        if !is_outcome && code != "read" && reply.field("executed") == "no" && reply.field("retry") == "never" {
            let named = (dealt.key.clone(), asked.name());
            let is_deposit = matches!(asked.aim, Aim::AtPlace(_) | Aim::ById(_));
            if is_deposit && self.ran.contains(&named) {
                return violation("lie", format!("{} ran, and it is said to be {code}", asked.name()));
            }
            if is_deposit {
                self.never.insert(named);
            }
            // A place that is refused to be closed because it is fenced does not run either.
            if let (Aim::Close(place), "fenced") = (&asked.aim, code) {
                self.never.insert((dealt.key.clone(), place.named()));
            }
        }
        match &asked.aim {
            Aim::AtPlace(place) => self.said_of_place(dealt, asked, place, reply),
            Aim::ById(id) => self.said_of_id(dealt, asked, id, reply),
            Aim::Close(place) => self.said_of_closing(dealt, place, reply),
            Aim::TakeOver(name, after) => self.said_of_take_over(dealt, asked, (name, *after), reply),
            Aim::Other => Ok(()),
        }
    }

    fn said_of_place(&mut self, dealt: &Dealt, asked: &Asked, place: &Place, reply: &Reply) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        let Place { name, epoch, seq, .. } = place;
        if SAY_NOTHING.contains(&code) {
            return Ok(());
        }
        let lie = |what: String| violation("lie", format!("{name} {epoch}/{seq} is said to be {code}: {what}"));
        let crashed = code == "poisoned";
        let is_known =
            dealt.after.sessions.get(name).is_some_and(|row| row.epochs.iter().any(|(each, _)| each == epoch));
        let own_after = dealt
            .after
            .sessions
            .get(name)
            .and_then(|row| row.epochs.iter().find(|(each, _)| each == epoch).map(|(_, after)| *after));
        let Some(story) = self.stories.get(&(dealt.key.clone(), name.clone())) else {
            return if code == "session-unknown" { Ok(()) } else { lie("there is no such session".to_owned()) };
        };
        if story.principal != dealt.principal {
            let what = || violation("stranger", format!("{} is told {code} of {name}", dealt.principal));
            // A session that nobody used for long enough has left, for everybody.
            let has_left = code == "session-unknown" && !dealt.after.sessions.contains_key(name);
            return if code == "forbidden" || has_left { Ok(()) } else { what() };
        }
        let next = story.last + 1;
        let current = story.current;
        let acked = story.acked;
        let is_next = *epoch == current && *seq == next;
        let taken = story.places.get(seq).filter(|taken| taken.epoch == *epoch);
        match (code, taken) {
            ("executed" | "replayed", Some(taken)) => {
                let told = (reply.status(), reply.body().to_vec());
                let is_its = self.outcomes.get(&asked.number) == Some(&told);
                if taken.what == What::Ran(asked.number.clone()) && is_its {
                    return Ok(());
                }
                violation("outcome", format!("{} at {name} {epoch}/{seq} gets {}", asked.number, reply.text()))
            }
            ("executed" | "replayed", None) => {
                violation("outcome", format!("{name} {epoch}/{seq} was never taken, or is freed, and is {code}"))
            }
            ("fenced", _) if *epoch >= current => lie(format!("the epoch is {current}")),
            ("fenced", _) if reply.field("executed") == "unknown" && is_known => lie("that is known".to_owned()),
            ("fenced", _) => Ok(()),
            ("acknowledged", _) if *seq <= acked => Ok(()),
            ("acknowledged", taken) => {
                violation("freed", format!("{name} {epoch}/{seq} is acknowledged, and {taken:?}"))
            }
            ("outcome-expired", _) => {
                let closed_seq = dealt.after.sessions.get(name).map_or(0, |row| row.closed_seq);
                if *seq <= closed_seq { Ok(()) } else { lie("the session was in use".to_owned()) }
            }
            ("sequence-gap", _) => {
                let told = reply.json()["expectedSeq"].as_i64();
                let is_true = *epoch == current && *seq > next && told == Some(next);
                if is_true { Ok(()) } else { lie(format!("the next is {next}, and {told:?} is said")) }
            }
            ("cancelled", Some(taken)) if taken.what == What::Cancelled => Ok(()),
            ("poisoned", Some(taken)) if taken.what == What::Poisoned => Ok(()),
            ("poisoned", None) if crashed && is_next => {
                self.took_place(dealt, place, What::Poisoned)?;
                self.check_blame(dealt, place, &What::Poisoned)
            }
            ("session-unknown", _) if *epoch > current => Ok(()),
            // It was never used, and was removed in this very batch.
            ("session-unknown", None) if !dealt.after.sessions.contains_key(name) && story.last == 0 => Ok(()),
            ("fingerprint-mismatch", Some(taken)) if taken.what != What::Ran(asked.number.clone()) => Ok(()),
            ("key-invalid", _) if own_after.is_some_and(|after| *seq <= after) => Ok(()),
            ("key-mismatch", _) if !asked.target.starts_with(&format!("/{}/", dealt.key)) => Ok(()),
            ("capacity" | "attempt-expired", _) => Ok(()),
            (_, taken) => {
                let what = format!("{taken:?}, the epoch is {current}, the next {next}");
                lie(what)
            }
        }
    }

    fn said_of_id(&mut self, dealt: &Dealt, asked: &Asked, id: &str, reply: &Reply) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        let named = (dealt.key.clone(), id.to_owned());
        let lie = |what: &str| violation("lie", format!("{id} is said to be {code}: {what}"));
        match (code, self.ids.get(&named)) {
            ("executed" | "replayed", Some(number)) => {
                let told = (reply.status(), reply.body().to_vec());
                if *number == asked.number && self.outcomes.get(number) == Some(&told) {
                    return Ok(());
                }
                violation("outcome", format!("{id} with {} gets {}", asked.number, reply.text()))
            }
            ("executed" | "replayed", None) => violation("outcome", format!("{id} never ran, and is {code}")),
            ("acknowledged", _) if !self.acked.contains(&named) => lie("nobody has acknowledged it"),
            ("poisoned", _) if self.crashes.get(&named).copied().unwrap_or(0) < 3 => {
                violation("blamed", format!("{id} is poisoned after {:?} crashes", self.crashes.get(&named)))
            }
            _ => Ok(()),
        }
    }

    fn said_of_closing(&mut self, dealt: &Dealt, place: &Place, reply: &Reply) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        let Place { name, epoch, seq, .. } = place;
        let Some(story) = self.stories.get(&(dealt.key.clone(), name.clone())) else { return Ok(()) };
        // What was recorded of it before may be replayed, whatever is true now.
        if story.principal != dealt.principal && code != "replayed" {
            let is_told = !matches!(code, "forbidden" | "unavailable");
            let told = || violation("stranger", format!("{} is told {code} of {name}", dealt.principal));
            return if is_told { told() } else { Ok(()) };
        }
        if code != "executed" {
            return Ok(());
        }
        let is_next = *epoch == story.current && *seq == story.last + 1;
        let what = story.places.get(seq).filter(|taken| taken.epoch == *epoch).map(|taken| &taken.what);
        match (reply.field("state").as_str(), what) {
            ("cancelled", Some(What::Cancelled)) | ("executed", Some(What::Ran(_))) => Ok(()),
            ("cancelled", None) if is_next => self.took_place(dealt, place, What::Cancelled),
            (state, what) => violation("lie", format!("{name} {epoch}/{seq} is closed as {state}, and was {what:?}")),
        }
    }

    fn said_of_take_over(
        &mut self,
        dealt: &Dealt,
        asked: &Asked,
        (name, after): (&str, Option<i64>),
        reply: &Reply,
    ) -> Result<(), Violation> {
        let code = reply.only("semel-status");
        let before = self.stories.get(&(dealt.key.clone(), name.to_owned()));
        let current = before.map_or(0, |story| story.current);
        if before.is_some_and(|story| story.principal != dealt.principal)
            && !matches!(code, "forbidden" | "unavailable")
        {
            return violation("stranger", format!("{} is told {code} of {name}", dealt.principal));
        }
        let named = (dealt.key.clone(), asked.own.clone());
        let json = reply.json();
        let told = (json["epoch"].as_i64().unwrap_or(0), json["lastSeq"].as_i64().unwrap_or(-1));
        match code {
            "executed" => {
                if after.is_some_and(|after| after < current) {
                    return violation("usurped", format!("{name} is at {current}, and is taken over after {after:?}"));
                }
                self.new_epoch(dealt, name, told.0, Some(told.1))?;
                self.given.insert(named, told);
                Ok(())
            }
            "replayed" if self.given.get(&named) != Some(&told) => {
                violation("outcome", format!("the take-over {} gets {told:?}", asked.own))
            }
            "fenced" if after.is_none_or(|after| after >= current) => {
                violation("lie", format!("a take-over after {after:?} is fenced, and the epoch is {current}"))
            }
            _ => Ok(()),
        }
    }
}
