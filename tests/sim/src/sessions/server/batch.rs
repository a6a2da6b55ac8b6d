//! Batches and frames of a socket, as the keys take them.

use super::{Keyed, Server, blank};
use crate::letter::Message;
use crate::mutant::Twin;
use crate::sessions::asked::{Asked, Dealt};
use crate::sessions::frame;
use fastrand::Rng;
use semel_core::id::Key;
use semel_core::server::batch::{Batch, first_frame};
use semel_core::server::edge::auth::Asker;
use semel_core::server::{Access, Answer, Gate};
use semel_support::Reply;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a batch's elements: their answers, or the refusal of the whole batch; and whether each ran by itself.
type Together = (Option<Result<Vec<Reply>, Reply>>, bool);

impl Server {
    /// Authenticates the first frame of a socket; `None` if it is refused.
    pub fn admit(&self, key: &str, first: &str, at_ms: i64) -> Option<Asker> {
        let headers = first_frame(first).ok()?;
        Gate::new(Access::open_or_closed(true)).admit(&headers, self.wall_ms(key, at_ms)).ok()
    }

    /// Handles a message that arrives as a frame of a socket.
    pub fn deal_frame(&mut self, rng: &mut Rng, at_ms: i64, message: &Message, on: (&Asker, i64)) -> Dealt {
        let key = message.target.trim_start_matches("/semel/v1/keys/").trim_end_matches("/batch").replace("%2F", "/");
        let key = Key::new(&key).expect("a key");
        self.ask_batch(rng, at_ms, &key, message, (on.0, Some(on.1)))
    }

    /// `frame`: the number of the frame, if it is one.
    pub(super) fn ask_batch(
        &mut self,
        rng: &mut Rng,
        at_ms: i64,
        key: &Key,
        message: &Message,
        (asker, frame): (&Asker, Option<i64>),
    ) -> Dealt {
        let (mut keyed, before) = self.begin(key.as_str(), at_ms);
        let json: Value = serde_json::from_slice(&message.body).unwrap_or_default();
        let elements: Vec<Value> = json.as_array().cloned().unwrap_or_default();
        let asked: Vec<Asked> = elements.iter().map(Asked::of_element).collect();
        let wall_ms = keyed.world.wall_ms;
        let batch = match frame {
            None => Batch::parse(key, &message.headers, Some(&message.body)),
            Some(number) => {
                let text = frame::text(number, &elements, &message.acks());
                Batch::parse_frame(key, asker, wall_ms, Some(text.as_bytes()))
            }
        };
        let is_closing = frame.is_some() && batch.is_err();
        let is_past_token = asker.ends_ms.is_some_and(|ends_ms| ends_ms <= wall_ms);
        let suspects: Vec<bool> = match &batch {
            Ok(Batch { elements, .. }) => elements.iter().map(|element| keyed.is_suspect_element(element)).collect(),
            Err(_) => Vec::new(),
        };
        let has_released = self.settle(&keyed, &asked, suspects.contains(&true));
        let (answered, was_alone) = match batch {
            Ok(batch) => {
                keyed.tell();
                self.run_batch(rng, &mut keyed, (batch, &suspects), (asker, &elements), &asked)
            }
            // The engine is not asked, and its clock stays where it is.
            Err(problem) => {
                let answer = Answer::problem(&problem).stamped(wall_ms, None);
                (Some(Err(Reply::checked(answer))), false)
            }
        };
        let has_crashed = keyed.world.database.has_crashed();
        let (replies, refusal) = match answered.filter(|_| !has_crashed) {
            Some(Ok(replies)) => (replies, None),
            Some(Err(refusal)) => (Vec::new(), Some(refusal)),
            None => (Vec::new(), None),
        };
        let acks = message.acks().into_iter().map(|(id, _)| id).collect();
        let dealt = Dealt {
            asked,
            replies,
            refusal,
            acks,
            is_batch: true,
            was_alone,
            has_released,
            is_closing,
            is_past_token,
            ..blank(key.as_str(), asker.principal.as_str(), &before)
        };
        self.end(keyed, at_ms, dealt)
    }

    fn run_batch(
        &self,
        rng: &mut Rng,
        keyed: &mut Keyed,
        (batch, suspects): (Batch, &[bool]),
        (asker, elements): (&Asker, &[Value]),
        asked: &[Asked],
    ) -> Together {
        let refused = |wall_ms: i64| move |problem| Reply::checked(Answer::problem(&problem).stamped(wall_ms, None));
        let wall_ms = keyed.world.wall_ms;
        if !suspects.contains(&true) || self.is_twin(Twin::SuspectTogether) {
            self.plan.break_key(rng, keyed, asked, elements.len() as u64);
            let (world, all) = (&mut keyed.world, batch.clone());
            match catch_unwind(AssertUnwindSafe(|| world.in_one_commit(asker, all))) {
                Ok(Ok(None)) if !world.database.has_crashed() => {}
                Ok(answers) => return (answers.map_err(refused(wall_ms)).transpose(), false),
                Err(_) => keyed.world.restart(),
            }
        }
        if let (true, Some(first)) = (self.is_twin(Twin::CrashOfFrame), elements.first()) {
            // The first request gets the blame.
            let crashed = |n: usize| if n == 0 { keyed.world.crashed_by(asker, first) } else { unavailable(wall_ms) };
            return (Some(Ok((0..elements.len()).map(crashed).collect())), true);
        }
        keyed.world.database.calm();
        // This has one commit, and whether the acknowledgements count depends on it.
        self.plan.break_key(rng, keyed, &[], 4);
        let mut shell = batch;
        shell.elements.clear();
        match keyed.world.in_one_commit(asker, shell) {
            _ if keyed.world.database.has_crashed() => return (None, true),
            Ok(_) => {}
            Err(problem) => return (Some(Err(refused(wall_ms)(problem))), true),
        }
        let mut replies = Vec::new();
        for (n, element) in elements.iter().enumerate() {
            keyed.world.database.calm();
            self.plan.break_key(rng, keyed, &asked[n..=n], 1);
            let reply =
                keyed.world.alone_by(asker, element, (n, suspects[n])).expect("an element that was read before");
            if keyed.world.database.has_crashed() {
                return (None, true);
            }
            replies.push(reply);
        }
        (Some(Ok(replies)), true)
    }
}

fn unavailable(wall_ms: i64) -> Reply {
    Reply::checked(Answer::unavailable("the object died").stamped(wall_ms, None))
}
