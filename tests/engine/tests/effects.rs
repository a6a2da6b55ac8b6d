//! Requests that a handler emits to other keys: what is stored with a request, what is refused, and in which session it is sent.

use semel_core::server::effects::EFFECTS_PER_KEY_MAX;
use semel_support::carrying::{account, drained, sent, transfer, two};
use semel_support::{get, post};
use serde_json::{Value, json};

#[test]
fn an_effect_is_stored_with_its_request_and_arrives_once_in_order() {
    let (mut alice, mut bob) = two();
    assert!(alice.send_next().is_none());
    assert_eq!(
        alice.database.number("SELECT count(*) FROM sqlite_master WHERE name LIKE 'semel_effect%'"),
        0,
        "no table before"
    );
    for n in 1..=3 {
        let first = alice.send(&transfer(&format!("t{n}"), &["bob"], n));
        alice.send(&transfer(&format!("t{n}"), &["bob"], n)).replays(&first);
    }
    assert!(alice.wakes_to_send_at().is_some());
    assert_eq!(drained(&mut alice, &mut bob), 4, "a take-over, and each once");
    assert_eq!((alice.balance(), bob.balance()), (94, 6));
    assert_eq!(
        bob.database.query("SELECT group_concat(transfer) FROM credits")[0][0].clone().into_text().unwrap(),
        "1,2,3"
    );
    assert_eq!(alice.wakes_to_send_at(), None);
    assert_eq!(alice.database.number("SELECT count(*) FROM semel_effects"), 0);
    // From then on the sender holds the session.
    alice.send(&transfer("t4", &["bob"], 1));
    assert_eq!(drained(&mut alice, &mut bob), 1);
}

#[test]
fn a_change_that_is_rolled_back_and_a_read_send_no_effects() {
    let (mut alice, mut bob) = two();
    let call = transfer("t", &["bob", "no name"], 10);
    alice.send(&call).is_problem(500, "rolled-back", "no", "same-id");
    assert_eq!((drained(&mut alice, &mut bob), alice.balance()), (0, 100));
    // The tables are made with the first effect and rolled back with it. Otherwise the object would look for effects in vain,
    // each second.
    assert_eq!((alice.has_to_send(), alice.wakes_to_send_at()), (false, None));
    let read = get("/accounts/alice/transfer").body(json!({"to": ["bob"], "amount": 1}).to_string());
    assert_eq!(alice.send(&read).status(), 200);
    assert_eq!((drained(&mut alice, &mut bob), alice.balance()), (0, 100));
}

#[test]
fn an_effect_in_a_transaction_that_the_handler_undoes_is_not_sent_and_a_later_one_is() {
    let (mut alice, mut bob) = two();
    // The first emit makes the tables, which are rolled back with it.
    for n in 1..=2 {
        let retry = post("/accounts/alice/retry").id(&format!("t{n}")).body(json!({"amount": 50}).to_string());
        assert_eq!(alice.send(&retry).status(), 200);
    }
    drained(&mut alice, &mut bob);
    assert_eq!((alice.balance(), bob.balance()), (98, 2));
}

#[test]
fn a_request_is_rolled_back_if_storage_fails_on_its_effect_even_if_the_handler_goes_on() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    let careless = post("/accounts/alice/careless").id("t2").body(json!({"amount": 2}).to_string());
    for beginning in ["UPDATE semel_effect_lanes", "INSERT INTO semel_effects (", "SELECT number, seq, sure"] {
        alice.database.fail_at(beginning, 1);
        alice.send(&careless).is_problem(500, "rolled-back", "no", "same-id");
    }
    // No number is left out: the next effect has the number after the first one's.
    alice.send(&careless).is_executed(200);
    drained(&mut alice, &mut bob);
    assert_eq!((alice.balance(), bob.balance()), (97, 3));
}

#[test]
fn a_request_whose_effects_exceed_a_limit_is_refused_as_too_large_or_capacity() {
    let (mut alice, _) = two();
    let many = vec!["bob"; 65];
    alice.send(&transfer("many", &many, 65)).is_problem(413, "too-large", "no", "after-fix");
    alice.send(&transfer("most", &many[1..], 64));
    let odd = |id: &str, body: Value| post("/accounts/alice/odd").id(id).body(body.to_string());
    let large = json!({"method": "POST", "key": "accounts/bob", "path": "/accounts/bob/credit", "amount": 1 << 20});
    alice.send(&odd("large", large)).is_problem(413, "too-large", "no", "after-fix");
    let heavy = json!({"method": "POST", "key": "accounts/bob", "path": "/accounts/bob/credit", "header": "x-a", "value": "x".repeat(1 << 20)});
    alice.send(&odd("heavy", heavy)).is_problem(413, "too-large", "no", "after-fix");
    let rows = EFFECTS_PER_KEY_MAX - 65;
    alice.database.tamper(&format!(
        "INSERT INTO semel_effects (lane, seq, at_ms, id, method, url, headers, body) \
         WITH RECURSIVE n(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM n WHERE n < 999 + {rows}) \
         SELECT 9, n, 0, '', 'POST', '/', '', x'' FROM n"
    ));
    alice.send(&transfer("two", &["bob", "bob"], 2)).is_problem(503, "capacity", "no", "same-id");
    alice.send(&transfer("last", &["bob"], 1)).is_executed(200);
    alice.send(&transfer("beyond", &["bob"], 1)).is_problem(503, "capacity", "no", "same-id");
    assert_eq!(alice.balance(), 35);
}

#[test]
fn a_request_with_an_invalid_effect_is_rolled_back_and_the_effect_is_not_stored() {
    let (mut alice, _) = two();
    let good = json!({"method": "POST", "key": "accounts/bob", "path": "/accounts/bob/credit?a=b", "header": "x-a", "value": "b"});
    let odd = |id: &str, changed: &[(&str, Value)]| {
        let mut body = good.clone();
        for (name, value) in changed {
            body[*name] = value.clone();
        }
        post("/accounts/alice/odd").id(id).body(body.to_string())
    };
    assert_eq!(alice.send(&odd("good", &[("value", json!("a\tb"))])).status(), 200);
    let bad = [
        ("method", "GET"),
        ("method", "post"),
        ("key", ""),
        ("key", "accounts/carol"),
        ("path", "/accounts/b b/credit"),
        ("path", "/nowhere"),
        ("path", "accounts/bob/credit"),
        ("path", "/semel/v1/keys/accounts%2Fbob/acks"),
        ("header", "semel-session"),
        ("header", "idempotency-key"),
        ("header", "a b"),
        ("value", "a\u{7f}"),
        ("value", "\u{20ac}"),
        ("url", "ftp://example.com"),
        ("url", "https://"),
        ("url", "https://me:secret@example.com"),
        ("url", "https://example.com/a b"),
        ("url", "https://example.com/#a"),
        ("url", r"https://example.com/a\b"),
        ("url", &format!("https://example.com/{}", "a".repeat(8 << 10))),
        ("path", &format!("/accounts/bob/credit?{}", "a".repeat(8 << 10))),
    ];
    for (n, (name, value)) in bad.into_iter().enumerate() {
        let reply = alice.send(&odd(&format!("bad {n}"), &[(name, json!(value))]));
        assert_eq!(reply.only("semel-status"), "rolled-back", "{name} {value}");
    }
    assert_eq!(alice.send(&odd("call", &[("url", json!("https://Example.com:8443/a?b"))])).status(), 200);
    assert_eq!(alice.database.number("SELECT count(*) FROM semel_effects"), 2);
    assert_eq!(
        alice.database.number("SELECT count(*) FROM semel_effect_lanes WHERE target = 'url https://example.com:8443'"),
        1
    );
}

#[test]
fn a_client_can_neither_take_over_nor_use_the_session_of_a_sending_key() {
    let mut bob = account("bob");
    let take_over = post("/semel/v1/keys/accounts%2Fbob/sessions").id("a").body("{\"name\":\"semel:accounts/alice\"}");
    bob.send(&take_over).is_problem(403, "forbidden", "no", "after-fix");
    let credit = post("/accounts/bob/credit").header("semel-session", "\"semel:accounts/alice\";epoch=1;seq=1");
    assert_eq!(bob.send(&credit.body("{\"amount\":5}")).only("semel-status"), "session-unknown");
}

#[test]
fn keys_with_long_names_have_sessions_of_their_own() {
    let mut bob = account("bob");
    for end in ["x", "y"] {
        let mut sender = account(&format!("{}{end}", "a".repeat(400)));
        sender.send(&post("/accounts/alice/deposit").id("first").body(json!({"amount": 5}).to_string()));
        sender.send(&transfer("t1", &["bob"], 5)).is_executed(200);
        assert_eq!(drained(&mut sender, &mut bob), 2, "a take-over, and a credit");
    }
    assert_eq!((bob.balance(), bob.database.number("SELECT count(*) FROM semel_sessions")), (10, 2));
}

#[test]
fn a_key_sends_its_effects_in_a_session_named_after_it() {
    let (_, _, credit) = sent();
    assert_eq!(credit.headers.get("semel-session"), Some("\"semel:accounts/alice\";epoch=1;seq=1"));
}
