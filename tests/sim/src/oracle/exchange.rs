//! What must hold for a message and its answer.

use super::{Oracle, Violation, violation};
use crate::deposits::outcome;
use crate::letter::{Exchange, Message, Sender};
use crate::snapshot::Effect;

/// The codes that a stranger may get about somebody else's record.
const TO_STRANGERS: [&str; 4] = ["fingerprint-mismatch", "not-seen", "unavailable", "capacity"];

/// The principal of an administrator's cancellation of an id that nobody has used. It applies to anybody who sends the
/// id.
const ADMINISTRATOR: &str = "semel:admin";

/// What an answer says.
struct Said {
    code: String,
    is_no: bool,
    is_never: bool,
    is_yes: bool,
    now_ms: i64,
}

impl Said {
    fn by(exchange: &Exchange) -> Self {
        let reply = &exchange.reply;
        let code = reply.only("semel-status").to_owned();
        let is_problem = !matches!(code.as_str(), "executed" | "replayed" | "read") && !reply.body().is_empty();
        let field = |name: &str| if is_problem { reply.field(name) } else { String::new() };
        Self {
            is_no: field("executed") == "no",
            is_yes: field("executed") == "yes",
            is_never: field("retry") == "never",
            now_ms: reply.now_ms(),
            code,
        }
    }

    fn is_outcome(&self) -> bool {
        self.code == "executed" || self.code == "replayed"
    }
}

impl Oracle {
    /// Checks that the SDK says the same of a request in each attempt and cancellation: when it was first sent.
    fn check_first_sent(&mut self, key: &str, target: &str, exchange: &Exchange) -> Result<(), Violation> {
        let message = &exchange.letter.message;
        let is_of_request = message.is_deposit() || message.control() == Some("cancel");
        let is_of_sdk = matches!(exchange.letter.from, Sender::Tab { .. });
        if !is_of_request || !is_of_sdk || self.is_used_again(target) {
            return Ok(());
        }
        let said_s = message.target_id().1;
        let before_s = *self.id(key, target).said_sent_s.get_or_insert(said_s);
        if before_s != said_s {
            let what = format!("{target} was first sent at {before_s:?}, and then at {said_s:?}");
            return violation("first-sent", what);
        }
        Ok(())
    }

    /// Checks a message that was handled.
    pub fn exchanged(&mut self, exchange: &Exchange) -> Result<(), Violation> {
        let said = Said::by(exchange);
        let message = &exchange.letter.message;
        self.see(format!("code: {}", said.code));
        let Some(key) = exchange.key.clone() else { return Ok(()) };
        if message.is_administration() {
            return self.administered(&key, exchange, &said.code);
        }
        self.mark(exchange, &said);
        self.check_rows(&key, exchange, said.now_ms)?;
        let exchange = &*exchange.at(said.now_ms);
        let (target, first_sent_s) = match message.own_id() {
            // A cancellation that was sent before may be refused for its own id.
            Some(own) if !said.is_outcome() && exchange.before.rows.contains_key(&own) => {
                (Some(own), message.first_sent_s())
            }
            _ => message.target_id(),
        };
        if let Some(target) = &target {
            // A record that leaves with this message has still answered it.
            let is_new = self.is_used_again(target) && exchange.before.state_of(target) == "none";
            let id = self.id(&key, target);
            if is_new && id.has_left {
                id.begin_anew();
            }
            id.first_seen_ms.get_or_insert(said.now_ms);
            id.first_sent_s = id.first_sent_s.or(first_sent_s);
            self.check_first_sent(&key, target, exchange)?;
            let is_strange = exchange.before.rows.get(target).is_some_and(|row| {
                let is_for_all = row.state == "cancelled" && row.principal == ADMINISTRATOR;
                row.principal != exchange.principal && !is_for_all
            });
            if is_strange && !TO_STRANGERS.contains(&said.code.as_str()) {
                return violation("stranger", format!("{} was told {} of {target}", exchange.principal, said.code));
            }
        }
        self.check_count(exchange, &said)?;
        for effect in &exchange.effects {
            self.check_effect(&key, exchange, effect)?;
        }
        if exchange.is_uncounted {
            self.see("server: a start can't be counted");
            if exchange.calls > 0 {
                return violation("uncounted", format!("{} ran, and its start was not counted", message.text()));
            }
        }
        if exchange.calls > 0 && message.is_deposit() {
            self.check_panics(&key, exchange, &said)?;
        }
        match target {
            Some(target) if exchange.is_answered && !exchange.has_crashed => {
                self.check_said(&key, &target, exchange, &said)?;
                self.guard(&key, &target, message, &said);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn mark(&mut self, exchange: &Exchange, said: &Said) {
        let message = &exchange.letter.message;
        let what = match message.control() {
            Some("cancel") => "cancel",
            Some(control) if control.starts_with("outcomes/") => "look-up",
            Some(_) => "acks",
            None if message.is_deposit() => "request",
            None => "read",
        };
        let is_again = what == "cancel" && message.own_id().is_some_and(|own| exchange.before.rows.contains_key(&own));
        let (what, target) = if is_again { ("cancel again", message.own_id()) } else { (what, message.target_id().0) };
        let state = target.map_or("no id", |target| state_for(exchange, &target));
        let cancelled = exchange.reply.body().starts_with(b"{\"state\":\"cancelled\"");
        let code = match said.code.as_str() {
            "executed" if cancelled => "done",
            // If an id was cancelled without first-sent, nobody knows whether it ran before.
            "cancelled" if what == "look-up" && !said.is_no => "cancelled, perhaps ran",
            code => code,
        };
        self.see(format!("{what} on {state}: {code}"));
        self.mark_acks(exchange);
        if message.headers.get("semel-ack").is_some() {
            self.see("ack: ridden");
        }
        if exchange.has_crashed {
            self.see("server: crashed");
        }
    }

    fn mark_acks(&mut self, exchange: &Exchange) {
        let own = exchange.letter.message.own_id();
        if exchange.reply.header("semel-key").is_none() {
            return;
        }
        for (id, until_ms) in exchange.letter.message.acks() {
            let state = if own.as_ref() == Some(&id) { "itself" } else { state_for(exchange, &id) };
            let is_taken = matches!(state, "executed" | "poisoned");
            let until = if until_ms.is_some() { "with" } else { "without" };
            let bounded = exchange.before.rows.get(&id).is_some_and(|row| row.is_bounded);
            let bounded = if bounded { "bounded" } else { "unbounded" };
            self.see(if is_taken {
                format!("ack {until} until on {bounded} {state}")
            } else {
                format!("ack on {state}")
            });
        }
    }

    /// Checks how many effects there may be.
    fn check_count(&self, exchange: &Exchange, said: &Said) -> Result<(), Violation> {
        let is_unknown = exchange.has_crashed || said.code == "unavailable";
        let runs = said.code == "executed" && exchange.letter.message.is_deposit();
        let count = exchange.effects.len();
        let is_right = if is_unknown { count <= 1 } else { count == usize::from(runs) };
        if !is_right {
            return violation("effects", format!("an answer {} came with {count} effects", said.code));
        }
        let status = exchange.reply.status();
        if runs && !is_unknown && !matches!(status, 200..=299 | 400..=499) {
            return violation("outcome", format!("{status} was recorded"));
        }
        let (before, plan) = (&exchange.before, &self.plan);
        let count = |records| before.count(records, said.now_ms);
        let is_full = count(true) >= plan.records_max || count(false) >= plan.tombstones_max;
        let is_known = exchange.letter.message.own_id().is_some_and(|id| before.rows.contains_key(&id));
        if runs && is_full && !is_known {
            return violation("capacity", "a full key took a new request");
        }
        if said.code == "capacity" && (!is_full || is_known) {
            return violation("capacity", "a key that was not full, or knew the request, refused it");
        }
        Ok(())
    }

    fn check_effect(&mut self, key: &str, exchange: &Exchange, effect: &Effect) -> Result<(), Violation> {
        let message = &exchange.letter.message;
        let Effect { number, id, principal, at_ms } = effect;
        if !message.is_deposit() || message.text() != *number || *principal != exchange.principal {
            return violation("effects", format!("{effect:?} came of {} {}", message.method, message.target));
        }
        let wish = number.parse().ok().and_then(|number: usize| self.wishes.get(&number));
        if wish.is_some_and(|wish| wish.principal != *principal) {
            return violation("principal", format!("{number} ran as {principal}"));
        }
        self.check_payload(key, effect)?;
        let clock_ms = exchange.before.latest_ms();
        if *at_ms < clock_ms {
            return violation("clock", format!("{number} ran at {at_ms}, after {clock_ms}"));
        }
        if message.deadline_ms().is_some_and(|deadline_ms| deadline_ms < *at_ms) {
            return violation("deadline", format!("{number} ran after its deadline"));
        }
        let fence_s = exchange.before.fence_s.max(self.fences_s.get(key).copied().unwrap_or(0));
        if message.first_sent_s().is_some_and(|first_sent_s| first_sent_s < fence_s) {
            return violation("fence", format!("{number} ran behind the fence"));
        }
        let state = exchange.before.state_of(id);
        if !matches!(state, "none" | "suspect") {
            let kind = if matches!(state, "cancelled" | "poisoned") { "never" } else { "twice" };
            return violation(kind, format!("{id} ran though its key knew it as {state}"));
        }
        let retention_ms = self.retention_ms_min();
        let story = self.id(key, id);
        let is_fenced = story.first_sent_s.is_some();
        let kept_ms = match story.kept_ms {
            Some(kept_ms) => kept_ms,
            None => story.effects().last().map_or(0, |ran_ms| ran_ms + 2 * retention_ms),
        };
        let kept_ms = kept_ms.min(story.free_ms.unwrap_or(i64::MAX));
        if !story.effects().is_empty() && (is_fenced || *at_ms < kept_ms) {
            return violation("twice", format!("{id} ran again"));
        }
        if let (Some(first_ms), Some(never_ms)) = (story.first_seen_ms, story.never_ran_ms) {
            // If nothing was stored, the clock may have gone back since the id first arrived.
            let is_soon = *at_ms < first_ms.min(never_ms) + retention_ms;
            if is_fenced || is_soon {
                return violation("never", format!("{id} ran, of which it was said that it never will"));
            }
        }
        if !story.effects_ms.is_empty() || story.never_ran_ms.is_some() {
            self.history.is_no_longer_promised(key);
        }
        let story = self.id(key, id);
        let is_once_more = story.is_void && story.effects_ms.is_empty() && !story.undone.is_empty();
        story.effects_ms.push(*at_ms);
        story.outcomes.push(outcome(number, exchange.before.effects + 1));
        *self.effects.entry(key.to_owned()).or_default() += 1;
        if is_once_more {
            self.see("put back: what was undone runs once more");
        }
        if let (false, Ok(wanted)) = (self.happened.contains_key(number), number.parse()) {
            self.check_order(wanted, exchange.letter.from)?;
        }
        match self.happened.insert(number.clone(), id.clone()) {
            Some(other) if other != *id => violation("twice", format!("{number} ran as {other} and as {id}")),
            _ => Ok(()),
        }
    }

    /// A request that crashed too often must not run again.
    fn check_panics(&mut self, key: &str, exchange: &Exchange, said: &Said) -> Result<(), Violation> {
        let id = exchange.letter.message.own_id().unwrap_or_default();
        let story = self.id(key, &id);
        if story.panics >= 3 {
            return violation("poisoned", format!("{id} ran after {} panics", story.panics));
        }
        // After the machine's clock went back, and everything that knew better was lost with the instance, the attempt
        // is from the future.
        let is_refused = matches!(said.code.as_str(), "unavailable" | "key-invalid");
        let is_counted = exchange.has_panicked && !exchange.has_crashed && !is_refused;
        story.panics += u32::from(is_counted);
        Ok(())
    }

    /// Checks that what is said of an id is true.
    fn check_said(&mut self, key: &str, target: &str, exchange: &Exchange, said: &Said) -> Result<(), Violation> {
        let message = &exchange.letter.message;
        let retention_ms = self.retention_ms_min();
        let story = self.ids.entry((key.to_owned(), target.to_owned())).or_default();
        // An attempt without first-sent may come too late to be known, whatever earlier attempts said: for instance
        // after the last instant that its acknowledgement named.
        let is_fenced = story.first_sent_s.is_some() && !(message.is_deposit() && message.first_sent_s().is_none());
        let until_ms = story.kept_ms.filter(|_| !story.is_unbounded).map(|_| story.until_ms);
        let free_ms = [story.free_ms, until_ms].into_iter().flatten().min().unwrap_or(i64::MAX);
        let ran_lately = story
            .effects()
            .last()
            .is_some_and(|ran_ms| is_fenced || said.now_ms < (ran_ms + retention_ms).min(free_ms));
        let body = exchange.reply.body();
        let is_cancelled = said.is_outcome() && body.starts_with(b"{\"state\":\"cancelled\"");
        if is_cancelled || (said.is_no && said.is_never) {
            // Without first-sent, it says only that the id won't run from now on.
            let is_exact = !is_cancelled || message.target_id().1.is_some();
            if is_exact && ran_lately {
                return violation("lie", format!("{target} ran, and its key says {}", said.code));
            }
            let is_new = said.code == "executed" && exchange.before.state_of(target) == "none";
            if is_new && message.target_id().1.is_some_and(|first_sent_s| first_sent_s < exchange.before.fence_s) {
                return violation("fence", format!("{target} was cancelled behind the fence"));
            }
            story.never_ran_ms.get_or_insert(said.now_ms);
        }
        // A cancellation runs nothing of the application, whatever its own id is.
        let is_itself = message.own_id().as_deref() == Some(target) || target.starts_with("cancel-");
        let is_application = message.control().is_none() || !is_itself;
        if said.is_yes && story.effects().is_empty() && is_application {
            return violation("lie", format!("{target} never ran, and its key says {}", said.code));
        }
        if is_cancelled {
            story.told.insert("cancelled".to_owned());
        }
        if said.is_never {
            story.told.insert(said.code.clone());
        }
        if said.code == "replayed" && !story.undone.is_empty() && !story.effects_ms.is_empty() {
            self.seen.insert("put back: what has run is replayed".to_owned());
        }
        if said.is_outcome() && message.control() != Some("cancel") {
            let told = (exchange.reply.status(), body.to_vec());
            if story.outcomes.last() != Some(&told) {
                let had = story.outcomes.last().map(|(status, body)| (status, String::from_utf8_lossy(body)));
                let (status, text) = (told.0, exchange.reply.text());
                return violation("outcome", format!("{target} gets {status} {text}, and had {had:?}"));
            }
            let number = format!("{{\"number\":\"{}\"", message.text());
            if message.is_deposit() && !body.starts_with(number.as_bytes()) {
                return violation("outcome", format!("{target} got the answer to something else"));
            }
        }
        let is_true = match (said.code.as_str(), exchange.before.state_of(target)) {
            ("not-seen", state) => {
                matches!(state, "none" | "suspect") || exchange.before.rows[target].principal != exchange.principal
            }
            ("cancelled" | "acknowledged", state) => state == said.code,
            ("outcome-expired", state) => state == "expired",
            ("attempt-expired", _) => message.deadline_ms().is_some_and(|deadline_ms| deadline_ms < said.now_ms),
            _ => true,
        };
        if !is_true {
            let state = exchange.before.state_of(target);
            return violation("lie", format!("{target} is {state}, and its key says {}", said.code));
        }
        if matches!(said.code.as_str(), "outside-window" | "forgotten") {
            let told_s = [message.first_sent_s(), message.target_id().1].into_iter().flatten().min();
            let Some(first_sent_s) = told_s.filter(|first_sent_s| *first_sent_s < exchange.after.fence_s) else {
                return violation("fence", format!("{target} was refused by a fence that is not durable"));
            };
            let fence_s = self.fences_s.entry(key.to_owned()).or_default();
            *fence_s = (*fence_s).max(first_sent_s + 1);
        }
        Ok(())
    }

    /// Remembers how long the id must be protected.
    fn guard(&mut self, key: &str, target: &str, message: &Message, said: &Said) {
        let is_kept = matches!(said.code.as_str(), "executed" | "replayed" | "acknowledged" | "outcome-expired");
        if message.is_deposit() && is_kept {
            let story = self.id(key, target);
            story.until_ms = story.until_ms.max(message.deadline_ms().unwrap_or(0));
            story.is_unbounded |= message.deadline_ms().is_none();
        }
    }
}

/// The state of an id, as the sender sees it.
fn state_for(exchange: &Exchange, id: &str) -> &'static str {
    match exchange.before.rows.get(id) {
        Some(row) if row.principal != exchange.principal => "another's",
        _ => exchange.before.state_of(id),
    }
}
