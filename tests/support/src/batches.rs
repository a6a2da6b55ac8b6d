//! Batches to the key under test.

use crate::reply::Reply;
use crate::world::World;
use semel_core::id::Principal;
use semel_core::message::Headers;
use semel_core::problem::Problem;
use semel_core::server::auth::{Asker, Grant};
use semel_core::server::batch::Batch;
use semel_core::server::together::Asked;
use semel_core::server::{Answer, Handler};
use serde_json::Value;

/// Somebody whose token allows all.
pub fn asker(principal: &str) -> Asker {
    Asker { principal: Principal::new(principal).expect("a principal"), grant: Grant::default(), ends_ms: None }
}

/// Somebody whose token has this claim.
pub fn limited(claim: Value) -> Asker {
    Asker::from_text(&format!("\nalice\n{claim}")).expect("a grant")
}

impl<H: Handler> World<H> {
    /// Sends a batch of alice's: the answers of its elements, or why all of it is refused.
    #[track_caller]
    pub fn batch(&mut self, elements: &Value) -> Result<Vec<Reply>, Problem> {
        self.batch_by(&asker("alice"), &[], elements)
    }

    /// Sends somebody's batch with headers.
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

    /// Sends a frame of alice's.
    #[track_caller]
    pub fn frame(&mut self, frame: &Value) -> Result<Vec<Reply>, Problem> {
        let batch = Batch::parse_frame(&self.key, Some(frame.to_string().as_bytes()))?;
        self.run_batch(&asker("alice"), batch)
    }

    /// The answers as they are before they are written down.
    pub fn answers(&mut self, asker: &Asker, batch: Batch) -> Vec<Answer> {
        let asked = Asked { key: &self.key, asker, wall_ms: self.wall_ms };
        self.engine.batch(&self.database, asked, batch).1.expect("answers")
    }

    #[track_caller]
    fn run_batch(&mut self, asker: &Asker, batch: Batch) -> Result<Vec<Reply>, Problem> {
        let asked = Asked { key: &self.key, asker, wall_ms: self.wall_ms };
        let (_, answers) = self.engine.batch(&self.database, asked, batch);
        Ok(answers?.into_iter().map(|answer: Answer| Reply::checked(answer)).collect())
    }
}
