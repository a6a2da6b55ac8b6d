//! The ledger's rules, through the engine. A mistake of the client is an outcome too.

use semel_core::server::Config;
use semel_core::server::edge::router::Route;
use semel_ledger::Ledger;
use semel_ledger::ledger::BALANCE_MAX;
use semel_support::{Call, Reply, World, delete, get, head, post, put};
use serde_json::json;

fn ledger() -> World<Ledger> {
    World::of(Ledger, Config { open: true, ..Config::default() })
}

fn deposit(id: &str, body: &str) -> Call {
    post("/accounts/alice/deposit").id(id).body(body)
}

fn withdraw(id: &str, amount: i64) -> Call {
    post("/accounts/alice/withdraw").id(id).body(amount_of(amount))
}

fn amount_of(amount: i64) -> String {
    format!("{{\"amount\":{amount}}}")
}

/// The committed balance and number of entries.
#[track_caller]
fn account(world: &mut World<Ledger>) -> (i64, i64) {
    let reply = world.send(&get("/accounts/alice"));
    reply.is_read(200);
    let body = reply.json();
    assert_eq!(body["id"], "alice");
    let committed =
        (world.database.number("SELECT balance FROM account"), world.database.number("SELECT entries FROM account"));
    assert_eq!((body["balance"].as_i64(), body["entries"].as_i64()), (Some(committed.0), Some(committed.1)));
    committed
}

/// Sends twice what the ledger must refuse: the refusal is an outcome, and no money moved.
#[track_caller]
fn refuses(world: &mut World<Ledger>, call: &Call, status: u16, error: &str) -> Reply {
    let before = account(world);
    let first = world.send(call);
    first.is_executed(status);
    assert_eq!(first.json(), json!({ "error": error }));
    world.send(call).replays(&first);
    assert_eq!(account(world), before);
    first
}

#[test]
fn an_unused_account_reads_as_zero_and_gets_no_tables() {
    let mut world = ledger();
    assert_eq!(world.send(&get("/accounts/alice")).json(), json!({ "id": "alice", "balance": 0, "entries": 0 }));
    assert_eq!(world.database.tables(), Vec::<String>::new(), "and leaves no trace");
    let reply = world.send(&head("/accounts/alice"));
    reply.is_read(200);
    assert_eq!(reply.body(), b"");
}

#[test]
fn a_deposit_or_withdrawal_happens_once_and_is_replayed_with_the_balance_it_left() {
    let mut world = ledger();
    let five = deposit("a", "{\"amount\":5}");
    let first = world.send(&five);
    first.is_executed(200);
    assert_eq!(first.json(), json!({ "id": "alice", "balance": 5, "entries": 1 }));
    assert_eq!(first.only("content-type"), "application/json");
    let second = world.send(&withdraw("b", 2));
    assert_eq!(second.json(), json!({ "id": "alice", "balance": 3, "entries": 2 }));
    world.restart();
    world.send(&five).replays(&first);
    world.send(&withdraw("b", 2)).replays(&second);
    assert_eq!(account(&mut world), (3, 2));
}

#[test]
fn an_amount_that_is_no_positive_safe_integer_is_refused_as_an_outcome() {
    let mut world = ledger();
    world.send(&deposit("first", "{\"amount\":7}"));
    let past_safe = amount_of(BALANCE_MAX + 1);
    for body in [
        "{\"amount\":0}",
        "{\"amount\":-1}",
        "{\"amount\":-0}",
        "{\"amount\":5.0}",
        "{\"amount\":1.5}",
        "{\"amount\":1e3}",
        "{\"amount\":1E0}",
        &past_safe,
        "{\"amount\":9223372036854775808}",
        "{\"amount\":18446744073709551616}",
        "{\"amount\":1e400}",
        "{\"amount\":\"5\"}",
        "{\"amount\":null}",
        "{\"amount\":true}",
        "{\"amount\":[5]}",
        "{\"amount\":05}",
        "{\"amount\":+5}",
        "{\"amount\":0x5}",
        "{}",
        "{\"Amount\":5}",
        "{\"amount\":5,\"amount\":5}",
        "[5]",
        "[{\"amount\":5}]",
        "5",
        "",
        "null",
        "{\"amount\":5}{\"amount\":5}",
        "{\"amount\":5",
    ] {
        for path in ["/accounts/alice/deposit", "/accounts/alice/withdraw"] {
            let id = format!("{path} {body}");
            refuses(
                &mut world,
                &post(path).header("idempotency-key", semel_core::header::quoted(&id)).body(body),
                400,
                "invalid-amount",
            );
        }
    }
    let not_text = post("/accounts/alice/deposit").id("bytes").body(vec![0xff, 0xfe]);
    refuses(&mut world, &not_text, 400, "invalid-amount");
}

#[test]
fn a_balance_may_reach_and_not_exceed_the_largest_safe_integer() {
    assert_eq!(BALANCE_MAX, 9_007_199_254_740_991);
    let mut world = ledger();
    world.send(&deposit("a", &amount_of(BALANCE_MAX - 1))).is_executed(200);
    refuses(&mut world, &deposit("two", "{\"amount\":2}"), 400, "balance-too-large");
    refuses(&mut world, &deposit("all", &amount_of(BALANCE_MAX)), 400, "balance-too-large");
    world.send(&deposit("one", "{\"amount\":1}")).is_executed(200);
    refuses(&mut world, &deposit("three", "{\"amount\":1}"), 400, "balance-too-large");
    assert_eq!(account(&mut world), (BALANCE_MAX, 2));
    world.send(&withdraw("all back", BALANCE_MAX)).is_executed(200);
    assert_eq!(account(&mut world), (0, 3));
}

#[test]
fn the_outcome_insufficient_funds_is_replayed_even_after_money_has_come() {
    let mut world = ledger();
    world.send(&deposit("a", "{\"amount\":5}"));
    let refused = refuses(&mut world, &withdraw("b", 6), 409, "insufficient-funds");
    world.send(&deposit("c", "{\"amount\":5}")).is_executed(200);
    world.send(&withdraw("b", 6)).replays(&refused);
    assert_eq!(account(&mut world), (10, 2));
    world.send(&withdraw("d", 6)).is_executed(200);
    world.send(&withdraw("e", 4)).is_executed(200);
    refuses(&mut world, &withdraw("f", 1), 409, "insufficient-funds");
    assert_eq!(account(&mut world), (0, 4));
}

#[test]
fn an_account_has_its_own_key_and_any_other_path_or_method_is_not_found() {
    let world = ledger();
    for call in [deposit("a", ""), withdraw("b", 1), get("/accounts/alice"), head("/accounts/alice")] {
        match world.route(&call) {
            Route::Object { key, .. } => assert_eq!(key.as_str(), "accounts/alice"),
            answer => panic!("{answer:?}"),
        }
    }
    for call in [
        post("/accounts/alice").id("a"),
        put("/accounts/alice/deposit").id("a"),
        delete("/accounts/alice").id("a"),
        get("/accounts/alice/deposit"),
        get("/accounts"),
        post("/accounts/alice/deposit/x").id("a"),
        get("/"),
    ] {
        match world.route(&call) {
            Route::Answer(answer) => {
                Reply::checked(answer).is_problem(404, "not-found", "no", "after-fix");
            }
            object => panic!("{object:?}"),
        }
    }
}
