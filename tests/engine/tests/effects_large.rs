//! Large effects: they are listed without their bodies, and a refused effect leaves room for smaller ones.

use semel_core::server::effects::{EFFECTS_BYTES_MAX, Heard};
use semel_support::carrying::{account, drained, mended, told, two};
use semel_support::{Bank, World, post};
use serde_json::json;

/// The size of a body.
const BYTES: usize = 100_000;

/// Makes a call with a large body and a large header.
fn call(world: &mut World<Bank>, n: usize) {
    let body = json!({"method": "POST", "url": "https://example.com/a", "amount": BYTES, "header": "x-a", "value": "b".repeat(BYTES)});
    let call = post("/accounts/alice/odd").id(&format!("call {n}")).body(body.to_string());
    assert_eq!(world.send(&call).status(), 200);
}

#[test]
fn listing_effects_reads_no_bodies_and_retrying_one_sends_its_whole_body() {
    let mut alice = account("alice");
    for n in 0..20 {
        call(&mut alice, n);
        let sending = alice.send_next().expect("a call");
        alice.sent(&sending, Heard::Answered { status: 404, semel: String::new(), body: Vec::new() });
    }
    call(&mut alice, 20);
    let before = alice.database.bytes_read();
    let told_of = told(&mut alice);
    let read = alice.database.bytes_read() - before;
    assert!(read < BYTES / 2, "{read} bytes were read");
    let parked = told_of["parked"].as_array().expect("a list");
    assert_eq!((parked.len(), told_of["lanes"].as_array().map(Vec::len)), (20, Some(1)));
    assert!(parked.iter().chain([&told_of["lanes"][0]]).all(|each| each["bytes"] == json!(BYTES)));
    assert_eq!(parked[19]["url"], json!("https://example.com/a"));
    // It goes behind those that wait.
    let id = parked[0]["id"].as_str().expect("an id");
    assert_eq!(mended(&mut alice, "again", &format!("{id}/retry")).status(), 200);
    for _ in 0..2 {
        let sending = alice.send_next().expect("a call");
        assert_eq!((sending.body.len(), sending.headers.get("x-a").map(str::len)), (BYTES, Some(BYTES)));
        alice.sent(&sending, Heard::Answered { status: 204, semel: String::new(), body: Vec::new() });
    }
    assert_eq!((alice.send_next(), told(&mut alice)["count"].clone()), (None, json!(19)));
}

#[test]
fn a_refused_effect_uses_up_no_limit_and_a_handler_that_catches_the_error_can_emit_others() {
    let (mut alice, mut bob) = two();
    let call = post("/accounts/alice/smaller").id("a").body(json!({"amount": EFFECTS_BYTES_MAX}).to_string());
    assert_eq!(alice.send(&call).status(), 200);
    assert_eq!(drained(&mut alice, &mut bob), 65, "a take-over, and as many as a request may have sent");
    assert_eq!((alice.balance(), bob.balance()), (36, 64));
}
