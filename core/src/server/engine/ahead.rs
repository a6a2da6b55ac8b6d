//! The ids whose records a desk reads before anything runs.

use crate::header::{self, Ack};
use crate::id::RequestId;
use crate::message::{Headers, Request};

/// The ids whose records are read before anything runs.
pub(in crate::server) struct Ahead<'a> {
    pub ids: Vec<RequestId>,
    pub acknowledged: Vec<&'a RequestId>,
}

impl<'a> Ahead<'a> {
    /// `acks`: the acknowledgements of all requests.
    pub fn of<'r>(requests: impl Iterator<Item = &'r Request>, acks: &'a [Ack]) -> Self {
        Self {
            ids: requests.filter_map(|request| written_id(&request.headers)).collect(),
            acknowledged: acks.iter().map(|ack| &ack.id).collect(),
        }
    }
}

/// The id of a request, if it is in its usual form. A record with another form of id is read when it is asked for.
fn written_id(headers: &Headers) -> Option<RequestId> {
    RequestId::new(header::plain_id(headers.get("idempotency-key")?)?).ok()
}
