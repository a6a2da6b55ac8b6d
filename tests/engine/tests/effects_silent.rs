//! A build whose handler declares no effects, at a key where another build has stored some.

use semel_core::message::{Method, Request, Response};
use semel_core::path::Path;
use semel_core::server::{Context, Failure, Handler, KeyRule, Sql, SqlError};
use semel_support::carrying::{drained, transfer, two};
use semel_support::{Bank, post};
use serde_json::json;

/// The handler of the accounts, without effects.
#[derive(Default)]
struct Silent(Bank);

impl Handler for Silent {
    const SCHEMA_VERSION: i64 = Bank::SCHEMA_VERSION;

    fn key(&self, method: &Method, path: &Path) -> KeyRule {
        self.0.key(method, path)
    }

    fn migrate(&self, sql: &dyn Sql, from: i64) -> Result<(), SqlError> {
        self.0.migrate(sql, from)
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        self.0.handle(context, request)
    }
}

#[test]
fn a_build_without_effects_sends_none_and_leaves_waiting_ones_to_a_build_with_effects() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5)).is_executed(200);
    let mut silent = alice.copy_for(Silent::default());
    assert!(!silent.has_to_send());
    assert_eq!(silent.send_next(), None);
    silent.send(&transfer("t2", &["bob"], 5)).is_problem(500, "rolled-back", "no", "same-id");
    let deposit = post("/accounts/alice/deposit").id("again").body(json!({ "amount": 1 }).to_string());
    silent.send(&deposit).is_executed(200);
    assert_eq!((silent.send_next(), silent.wakes_to_send_at()), (None, None));
    let mut alice = silent.copy_for(Bank::default());
    assert_eq!(drained(&mut alice, &mut bob), 2, "a take-over, and what has waited");
    assert_eq!((alice.balance(), bob.balance()), (96, 5));
}
