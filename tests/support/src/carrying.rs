//! Accounts, and carrying the effects of one to the other.

use crate::bank::Bank;
use crate::call::{Call, get, post};
use crate::reply::Reply;
use crate::world::World;
use semel_core::header::unquoted;
use semel_core::server::Config;
use semel_core::server::effects::{Heard, Sending};
use serde_json::{Value, json};

/// The key of an account.
pub fn account(name: &str) -> World<Bank> {
    World::at(&format!("accounts/{name}"), Bank::default(), Config { open: true, ..Config::default() })
}

/// Two accounts: one with money, and one without.
pub fn two() -> (World<Bank>, World<Bank>) {
    let (mut alice, bob) = (account("alice"), account("bob"));
    alice.send(&post("/accounts/alice/deposit").id("first").body(json!({"amount": 100}).to_string()));
    (alice, bob)
}

/// A transfer from the account with money.
pub fn transfer(id: &str, to: &[&str], amount: i64) -> Call {
    post("/accounts/alice/transfer").id(id).body(json!({"to": to, "amount": amount}).to_string())
}

/// An effect, as its target key gets it.
pub fn carried(sending: &Sending) -> Call {
    let mut call = Call::new(&sending.method, &sending.url).body(sending.body.clone());
    for (name, value) in sending.headers.iter() {
        call = call.header(name, value);
    }
    let principal = sending.headers.get("semel-principal").and_then(unquoted).expect("a principal");
    call.by(&principal)
}

/// Gives an effect to its target key.
pub fn delivered(to: &mut World<Bank>, sending: &Sending) -> Reply {
    to.send(&carried(sending))
}

/// An answer, as the sender hears it.
pub fn heard(reply: &Reply) -> Heard {
    let semel = reply.only("semel-status").to_owned();
    Heard::Answered { status: reply.status(), semel, body: reply.body().to_vec() }
}

/// Gives an effect to its target key, and the answer to the sender.
pub fn told_of(from: &mut World<Bank>, to: &mut World<Bank>, sending: &Sending) -> Reply {
    let reply = delivered(to, sending);
    from.sent(sending, heard(&reply));
    reply
}

/// Two accounts of which one has sent 5 to the other and holds the session there, and the credit that it sends next.
pub fn sent() -> (World<Bank>, World<Bank>, Sending) {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    let take_over = alice.send_next().expect("a take-over");
    told_of(&mut alice, &mut bob, &take_over);
    let credit = alice.send_next().expect("a credit");
    (alice, bob, credit)
}

/// Sends effects until there are none. Returns how many were sent.
pub fn drained(from: &mut World<Bank>, to: &mut World<Bank>) -> usize {
    let mut count = 0;
    while let Some(sending) = from.send_next() {
        told_of(from, to, &sending);
        count += 1;
        assert!(count < 1_000, "it does not end");
    }
    count
}

/// The account's effects: those to be sent, and those that are parked.
pub fn told(world: &mut World<Bank>) -> Value {
    let reply = world.send(&get("/semel/v1/admin/keys/accounts%2Falice/effects").by("semel:admin"));
    assert_eq!(reply.status(), 200);
    reply.json()
}

/// An administrator's decision about the effects.
pub fn mended(world: &mut World<Bank>, id: &str, what: &str) -> Reply {
    world.send(&post(&format!("/semel/v1/admin/keys/accounts%2Falice/effects/{what}")).id(id).by("semel:admin"))
}

/// An administrator's deletion of an account.
pub fn delete_key(name: &str) -> Call {
    Call::new("DELETE", &format!("/semel/v1/admin/keys/accounts%2F{name}")).id("delete").by("semel:admin")
}
