//! The JSON of control requests: what a stranger sends, and what the client writes.
//!
//! Invariant: a body that is accepted says what any other reader of JSON finds in it.

use semel_core::header::{INSTANT_MAX, quoted};
use semel_core::id::RequestId;
use semel_core::problem::Code;
use semel_core::server::config::CONTROL_IDS_MAX;
use semel_core::server::control::{self, ToCancel};
use serde_json::Value;

use crate::headers::NOW_MS;

/// The id of the control request itself.
const OWN: &str = "own";

/// Reads a body as each control request does.
pub fn check(body: &[u8]) {
    let read = serde_json::from_slice::<Value>(body).ok();
    match control::acks(body) {
        Err(problem) => assert_eq!(problem.code, Code::BodyInvalid),
        Ok(acks) => {
            assert!(acks.len() <= CONTROL_IDS_MAX);
            let value = read.clone().expect("JSON");
            let ids = value["ids"].as_array().expect("a list");
            assert_eq!((value.as_object().map(|members| members.len()), ids.len()), (Some(1), acks.len()));
            for (ack, entry) in acks.iter().zip(ids) {
                let (id, until) =
                    if entry.is_string() { (entry, &Value::Null) } else { (&entry["id"], &entry["until"]) };
                assert_eq!(id.as_str(), Some(ack.id.as_str()));
                assert_eq!(until.as_i64(), ack.until_ms);
                assert!(ack.until_ms.is_none_or(|until_ms| (0..=INSTANT_MAX).contains(&until_ms)));
                RequestId::new(ack.id.as_str()).expect("an id");
            }
        }
    }
    let own = RequestId::new(OWN).expect("an id");
    match control::cancellation(body, &own, NOW_MS, false) {
        Err(problem) => assert_eq!(problem.code, Code::BodyInvalid),
        Ok(ToCancel::Place(place)) => {
            let session = &read.expect("JSON")["session"];
            assert_eq!(session["name"].as_str(), Some(place.session.as_str()));
            assert_eq!((session["epoch"].as_i64(), session["seq"].as_i64()), (Some(place.epoch), Some(place.seq)));
        }
        Ok(ToCancel::Request(cancellation)) => {
            let value = read.expect("JSON");
            assert_eq!(value["id"].as_str(), Some(cancellation.id.as_str()));
            assert_ne!(cancellation.id, own);
            assert_eq!(value["firstSent"].as_i64(), cancellation.first_sent_s);
        }
    }
}

/// The server must read what the client writes about an id.
pub fn check_written(id: &RequestId, until_ms: Option<i64>) {
    let until = until_ms.map_or(String::new(), |until_ms| format!(",\"until\":{until_ms}"));
    let body = format!("{{\"ids\":[{{\"id\":{}{until}}}]}}", quoted(id.as_str()));
    let is_valid = until_ms.is_none_or(|until_ms| (0..=INSTANT_MAX).contains(&until_ms));
    let acks = control::acks(body.as_bytes()).ok();
    let read = acks.as_deref().and_then(|acks| acks.first()).map(|ack| (&ack.id, ack.until_ms));
    assert_eq!(read, is_valid.then_some((id, until_ms)), "{body}");
    check(body.as_bytes());
}
