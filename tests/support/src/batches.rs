//! Batches and frames to the key under test.

use crate::reply::Reply;
use crate::world::{Shared, World};
use semel_core::id::Principal;
use semel_core::message::{Headers, Request};
use semel_core::problem::Problem;
use semel_core::server::batch::together::Asked;
use semel_core::server::batch::{Batch, Element};
use semel_core::server::edge::auth::{Asker, Grant};
use semel_core::server::engine::Arrival;
use semel_core::server::{Answer, Engine, Handler, Sql};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Somebody whose token allows everything.
pub fn asker(principal: &str) -> Asker {
    Asker { principal: Principal::new(principal).expect("a principal"), grant: Grant::default(), ends_ms: None }
}

/// Somebody whose token has this claim.
pub fn limited(claim: Value) -> Asker {
    Asker::from_text(&format!("\nalice\n{claim}")).expect("a grant")
}

/// An element that counts one up.
pub fn count(id: &str) -> Value {
    at(id, "/count")
}

/// An element that posts to a path.
pub fn at(id: &str, path: &str) -> Value {
    json!({ "id": id, "method": "POST", "path": path })
}

/// The `Semel-Status` of each answer.
pub fn statuses(replies: &[Reply]) -> Vec<&str> {
    replies.iter().map(|reply| reply.only("semel-status")).collect()
}

/// Runs a batch whose elements all get an answer.
#[track_caller]
pub fn run<H: Handler>(world: &mut World<H>, elements: &Value) -> Vec<Reply> {
    world.batch(elements).expect("a batch that can be read")
}

impl<H: Handler> World<H> {
    /// Sends a batch by alice. Returns the answers to its elements, or why the whole batch is refused.
    #[track_caller]
    pub fn batch(&mut self, elements: &Value) -> Result<Vec<Reply>, Problem> {
        self.batch_by(&asker("alice"), &[], elements)
    }

    /// Sends a batch by anybody, with headers.
    #[track_caller]
    pub fn batch_by(
        &mut self,
        asker: &Asker,
        headers: &[(&str, &str)],
        elements: &Value,
    ) -> Result<Vec<Reply>, Problem> {
        let headers = Headers::from_iter(headers.iter().copied());
        let batch = Batch::parse(&self.key, &headers, Some(elements.to_string().as_bytes()))?;
        self.run_batch(asker, batch)
    }

    /// Runs a batch in one commit. `None`: each element has to run by itself.
    #[track_caller]
    pub fn in_one_commit(&mut self, asker: &Asker, batch: Batch) -> Result<Option<Vec<Reply>>, Problem> {
        let asked = Asked { key: &self.key, asker, wall_ms: self.wall_ms };
        let (_, answers) = self.engine.batch(&self.database, asked, batch);
        Ok(answers?.map(|answers| answers.into_iter().map(|answer: Answer| Reply::checked(answer)).collect()))
    }

    /// Begins a batch by alice as `batches.js` does, even while commits are held back. `None`: nothing of it is done.
    #[track_caller]
    pub fn begin_batch(&mut self, headers: &[(&str, &str)], elements: &Value) -> Option<Vec<Reply>> {
        let headers = Headers::from_iter(headers.iter().copied());
        let batch = Batch::parse(&self.key, &headers, Some(elements.to_string().as_bytes())).expect("a batch");
        let begun = catch_unwind(AssertUnwindSafe(|| self.in_one_commit(&asker("alice"), batch)));
        begun
            .unwrap_or_else(|_| {
                self.database.unwind();
                self.start_engine();
                Ok(None)
            })
            .ok()
            .flatten()
    }

    /// The key's clock, as a batch by alice is told it.
    pub fn clock_of(&mut self, batch: Batch) -> i64 {
        let asked = Asked { key: &self.key, asker: &asker("alice"), wall_ms: self.wall_ms };
        self.engine.batch(&self.database, asked, batch).0
    }

    /// The key's clock, as an answer without the storage tells it.
    pub fn tell_ms(&mut self) -> i64 {
        self.engine.tell_ms(self.wall_ms)
    }

    /// Sends a frame by alice.
    #[track_caller]
    pub fn frame(&mut self, frame: &Value) -> Result<Vec<Reply>, Problem> {
        self.frame_by(&asker("alice"), frame)
    }

    /// Sends a frame by anybody.
    #[track_caller]
    pub fn frame_by(&mut self, asker: &Asker, frame: &Value) -> Result<Vec<Reply>, Problem> {
        let text = frame.to_string();
        let batch = Batch::parse_frame(&self.key, asker, self.wall_ms, Some(text.as_bytes()))?;
        self.run_batch(asker, batch)
    }

    /// Why an element by alice is refused before it runs, in a commit with others or by itself.
    #[track_caller]
    pub fn refusal(&self, elements: &Value) -> Option<Reply> {
        let batch = Batch::parse(&self.key, &Headers::new(), Some(elements.to_string().as_bytes())).expect("a batch");
        let asked = Asked { key: &self.key, asker: &asker("alice"), wall_ms: self.wall_ms };
        let judged = batch.elements.into_iter().map(|element| self.engine.judged(asked, element, self.wall_ms));
        judged.filter_map(Result::err).map(Reply::checked).next()
    }

    /// Runs the only request of a batch by itself, as `batches.js` does. If it `is_suspect`, it runs only once its
    /// start is counted. If it crashes, that is counted. `n`: how many of its batch have run by themselves before.
    #[track_caller]
    pub fn alone_by(
        &mut self,
        asker: &Asker,
        element: &Value,
        (n, is_suspect): (usize, bool),
    ) -> Result<Reply, Problem> {
        let judged = self.judged(asker, element)?;
        Ok(self.alone(asker, judged, (n, is_suspect)))
    }

    #[track_caller]
    fn alone(&mut self, asker: &Asker, judged: Result<Request, Answer>, (n, is_suspect): (usize, bool)) -> Reply {
        let request = match judged {
            Ok(request) => request,
            Err(refusal) => return Reply::checked(refusal),
        };
        if is_suspect {
            let started = self.ask_engine(asker, &request, Engine::start);
            if started.headers.get("semel-status") == Some("unavailable") {
                return Reply::checked(started);
            }
        }
        let handle = if n == 0 { Engine::handle } else { Engine::handle_next };
        let handled = catch_unwind(AssertUnwindSafe(|| self.ask_engine(asker, &request, handle)));
        Reply::checked(handled.unwrap_or_else(|_| {
            self.restart();
            self.ask_engine(asker, &request, Engine::crashed)
        }))
    }

    /// Tells the object that the handler crashed on the only request of a batch.
    #[track_caller]
    pub fn crashed_by(&mut self, asker: &Asker, element: &Value) -> Reply {
        Reply::checked(match self.judged(asker, element).expect("a batch that can be read") {
            Ok(request) => self.ask_engine(asker, &request, Engine::crashed),
            Err(refusal) => refusal,
        })
    }

    fn judged(&self, asker: &Asker, element: &Value) -> Result<Result<Request, Answer>, Problem> {
        let element = Element::read(&element.to_string(), None, self.wall_ms)?;
        let asked = Asked { key: &self.key, asker, wall_ms: self.wall_ms };
        Ok(self.engine.judged(asked, element, self.wall_ms))
    }

    fn ask_engine(
        &mut self,
        asker: &Asker,
        request: &Request,
        ask: impl Fn(&mut Engine<Shared<H>>, &dyn Sql, Arrival<'_>) -> Answer,
    ) -> Answer {
        let (key, principal, wall_ms) = (&self.key, &asker.principal, self.wall_ms);
        ask(&mut self.engine, &self.database, Arrival { key, principal, request, body_too_large: false, wall_ms })
    }

    /// The answers before they are written as JSON.
    pub fn answers(&mut self, asker: &Asker, batch: Batch) -> Vec<Answer> {
        let asked = Asked { key: &self.key, asker, wall_ms: self.wall_ms };
        self.engine.batch(&self.database, asked, batch).1.expect("no refusal").expect("answers")
    }

    /// Runs a batch in one commit. If that crashes or the storage fails, runs its requests one by one, as `batches.js`
    /// does if none is a suspect.
    #[track_caller]
    fn run_batch(&mut self, asker: &Asker, mut batch: Batch) -> Result<Vec<Reply>, Problem> {
        let all = batch.clone();
        match catch_unwind(AssertUnwindSafe(|| self.in_one_commit(asker, all))) {
            Ok(Ok(None)) => {}
            Ok(answered) => return answered.map(Option::unwrap_or_default),
            Err(_) => self.restart(),
        }
        let elements = std::mem::take(&mut batch.elements);
        self.in_one_commit(asker, batch)?;
        let each = elements.into_iter().enumerate();
        Ok(each
            .map(|(n, element)| {
                let asked = Asked { key: &self.key, asker, wall_ms: self.wall_ms };
                let judged = self.engine.judged(asked, element, self.wall_ms);
                self.alone(asker, judged, (n, false))
            })
            .collect())
    }
}
