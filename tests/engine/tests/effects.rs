//! Requests that a handler emits to other keys.

use semel_core::server::effects::{EFFECTS_PER_KEY_MAX, Heard};
use semel_support::carrying::{account, delivered, drained, heard, mended, sent, told, transfer, two};
use semel_support::{Bank, Call, World, get, post};
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
fn an_effect_is_recognised_by_its_number_after_a_lost_answer_and_a_restart_of_its_sender() {
    let (mut alice, mut bob) = two();
    for n in 1..=2 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 5));
    }
    let take_over = alice.send_next().expect("a take-over");
    let reply = delivered(&mut bob, &take_over);
    alice.sent(&take_over, heard(&reply));
    let first = alice.send_next().expect("a credit");
    assert!(alice.send_next().is_none(), "one at a time");
    assert_eq!(delivered(&mut bob, &first).only("semel-status"), "executed");
    alice.restart();
    assert_eq!(drained(&mut alice, &mut bob), 3, "a take-over, the first once more under its epoch, the second");
    assert_eq!(bob.balance(), 10);
    assert_eq!(delivered(&mut bob, &first).only("semel-status"), "acknowledged");
    assert_eq!(bob.balance(), 10);
}

#[test]
fn an_effect_that_an_earlier_object_had_under_way_is_fenced() {
    let (mut alice, mut bob, late) = sent();
    alice.restart();
    assert_eq!(drained(&mut alice, &mut bob), 2);
    assert_eq!(delivered(&mut bob, &late).only("semel-status"), "fenced");
    assert_eq!(bob.balance(), 5);
}

#[test]
fn the_answer_to_a_take_over_of_an_earlier_object_does_not_count_for_the_next_object() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    let late = alice.send_next().expect("a take-over");
    alice.pass_ms(1);
    alice.restart();
    let again = alice.send_next().expect("a take-over");
    assert_eq!(again.lane, late.lane);
    let reply = delivered(&mut bob, &late);
    alice.sent(&late, heard(&reply));
    assert_eq!(alice.send_next(), None, "its own is under way");
    let reply = delivered(&mut bob, &again);
    alice.sent(&again, heard(&reply));
    assert_eq!((drained(&mut alice, &mut bob), bob.balance()), (1, 5));
}

#[test]
fn a_sending_without_an_answer_is_repeated_each_second_and_without_a_report_after_a_minute() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    let first = told(&mut alice)["lanes"][0].clone();
    assert_eq!((first["attempts"].clone(), first["next"].clone()), (json!(0), json!(null)), "nobody has looked yet");
    for attempts in 1..=3 {
        let sending = alice.send_next().expect("something");
        let under_way = told(&mut alice)["lanes"][0].clone();
        assert_eq!((under_way["attempts"].clone(), under_way["next"].clone()), (json!(attempts), json!(null)));
        alice.sent(&sending, Heard::Nothing("lost".to_owned()));
        assert!(alice.send_next().is_none());
        let waiting = told(&mut alice)["lanes"][0].clone();
        assert_eq!((waiting["reason"].clone(), waiting["attempts"].clone()), (json!("lost"), json!(attempts)));
        assert_eq!(waiting["next"], json!(alice.wall_ms + 1_000), "at a constant interval");
        alice.pass_ms(1_000);
    }
    // A request that is never reported on is given up after a minute.
    assert!(alice.send_next().is_some());
    alice.pass_ms(59_999);
    assert!(alice.send_next().is_none());
    alice.pass_ms(1);
    bob.wall_ms = alice.wall_ms;
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 5);
    // The clock of the machine goes back. Nobody has to wait for it to catch up.
    alice.send(&transfer("t2", &["bob"], 5));
    let sending = alice.send_next().expect("a credit");
    alice.sent(&sending, Heard::Nothing("lost".to_owned()));
    alice.pass_ms(-3_600_000);
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 10);
}

#[test]
fn an_effect_whose_answer_can_not_be_stored_is_sent_again_at_the_interval() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    alice.database.fail_at("DELETE FROM semel_effects ", 3);
    let (started_ms, mut credits) = (alice.wall_ms, Vec::new());
    for _ in 0..50 {
        while let Some(sending) = alice.send_next() {
            if sending.url.ends_with("/credit") {
                credits.push(alice.wall_ms - started_ms);
            }
            let reply = delivered(&mut bob, &sending);
            alice.sent(&sending, heard(&reply));
        }
        alice.pass_ms(100);
    }
    assert_eq!(credits, [0, 1_000, 2_000, 3_000], "and not as fast as the other side answers");
    assert_eq!(bob.balance(), 5);
}

#[test]
fn an_effect_whose_answer_comes_while_all_storage_fails_is_sent_again_at_the_interval() {
    let (mut alice, mut bob, credit) = sent();
    let reply = delivered(&mut bob, &credit);
    // All of the storage fails, and the first request that notices makes the object forget what it knew.
    alice.database.fail_at("", u32::MAX);
    assert_eq!(alice.send(&transfer("t2", &["bob"], 1)).status(), 503);
    alice.sent(&credit, heard(&reply));
    alice.database.calm();
    assert_eq!(alice.send_next(), None, "it is not its time yet");
    alice.pass_ms(1_000);
    assert_eq!(drained(&mut alice, &mut bob), 2, "a take-over, and what it had no answer to");
    assert_eq!(bob.balance(), 5);
}

#[test]
fn a_refused_effect_is_parked_those_behind_it_go_on_and_an_administrator_retries_or_drops_it() {
    let (mut alice, mut bob) = two();
    for n in 1..=2 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 5));
    }
    bob.handler.refuses.set(true);
    drained(&mut alice, &mut bob);
    bob.handler.refuses.set(false);
    alice.send(&transfer("t3", &["bob"], 7));
    drained(&mut alice, &mut bob);
    assert_eq!((alice.balance(), bob.balance()), (83, 7));
    let effects = told(&mut alice);
    assert_eq!((effects["count"].clone(), effects["lanes"].clone()), (json!(2), json!([])));
    let parked = &effects["parked"][0];
    assert_eq!(parked["reason"], "answered 403: {\"error\":\"refused\"}");
    assert_eq!((parked["executed"].clone(), parked["to"].clone()), (json!("yes"), json!("key accounts/bob")));
    let id = |at: usize| effects["parked"][at]["id"].as_str().expect("an id");
    assert_eq!(mended(&mut alice, "m1", &format!("{}/retry", id(0))).json()["state"], "waiting");
    assert_eq!(mended(&mut alice, "m1", &format!("{}/retry", id(0))).only("semel-status"), "replayed");
    assert_eq!(mended(&mut alice, "m2", &format!("{}/drop", id(1))).json()["state"], "dropped");
    mended(&mut alice, "m3", &format!("{}/drop", id(1))).is_problem(404, "not-seen", "unknown", "same-id");
    drained(&mut alice, &mut bob);
    assert_eq!((bob.balance(), told(&mut alice)["count"].clone()), (12, json!(0)));
}

#[test]
fn an_effect_answered_not_found_is_cancelled_at_its_target_before_the_next_leaves() {
    let (mut alice, mut bob, late) = sent();
    bob.handler.knows_no_credits.set(true);
    let reply = delivered(&mut bob, &late);
    assert_eq!(reply.only("semel-status"), "not-found");
    alice.sent(&late, heard(&reply));
    drained(&mut alice, &mut bob);
    bob.handler.knows_no_credits.set(false);
    assert_eq!(told(&mut alice)["parked"][0]["executed"], "no");
    assert_eq!(delivered(&mut bob, &late).only("semel-status"), "cancelled", "however late it comes");
    alice.send(&transfer("t2", &["bob"], 7));
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 7);
}

#[test]
fn an_effect_that_always_fails_holds_up_its_lane_until_an_administrator_parks_it() {
    let (mut alice, mut bob) = two();
    let mut carol = account("carol");
    alice.send(&transfer("t1", &["bob"], 5));
    alice.send(&transfer("t2", &["bob"], 7));
    bob.handler.fails.set(true);
    for _ in 0..5 {
        drained(&mut alice, &mut bob);
        alice.pass_ms(1_000);
    }
    bob.handler.fails.set(false);
    alice.send(&transfer("t3", &["carol"], 1));
    let first = told(&mut alice)["lanes"][0].clone();
    assert_eq!(first["waiting"], 2);
    let id = first["id"].as_str().expect("an id");
    assert_eq!(mended(&mut alice, "m", &format!("{id}/park")).json()["state"], "closing");
    while let Some(sending) = alice.send_next() {
        let to = if sending.url.contains("carol") { &mut carol } else { &mut bob };
        let reply = delivered(to, &sending);
        alice.sent(&sending, heard(&reply));
    }
    assert_eq!((bob.balance(), carol.balance()), (7, 1));
    let parked = &told(&mut alice)["parked"][0];
    assert_eq!(
        (parked["reason"].clone(), parked["executed"].clone()),
        (json!("an administrator gave it up"), json!("no"))
    );
}

#[test]
fn an_administrator_changes_exactly_the_effect_that_was_shown_or_gets_not_seen() {
    let (mut alice, mut bob) = two();
    let seen = |alice: &mut World<Bank>, list: &str| {
        let told = told(alice);
        told[list][0]["id"].as_str().expect("an id").to_owned()
    };
    // The administrator sees the first effect, which arrives before it is given up.
    alice.send(&transfer("t1", &["bob"], 1));
    alice.send(&transfer("t2", &["bob"], 2));
    let first = seen(&mut alice, "lanes");
    for _ in ["take-over", "t1"] {
        let sending = alice.send_next().expect("one that waits");
        let reply = delivered(&mut bob, &sending);
        alice.sent(&sending, heard(&reply));
    }
    mended(&mut alice, "m1", &format!("{first}/park")).is_problem(404, "not-seen", "unknown", "same-id");
    assert_eq!(told(&mut alice)["lanes"][0]["closing"], json!(null), "the second was not given up");
    // An effect that waits behind another one is not given up either.
    alice.send(&transfer("t3", &["bob"], 4));
    let second = alice.database.query("SELECT id FROM semel_effects ORDER BY seq DESC LIMIT 1");
    let second = second[0][0].clone().into_text().expect("an id");
    mended(&mut alice, "m2", &format!("{second}/park")).is_problem(404, "not-seen", "unknown", "same-id");
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 7);

    // Two administrators look at a parked effect. One drops it, and another effect takes its number.
    bob.handler.refuses.set(true);
    alice.send(&transfer("t4", &["bob"], 8));
    drained(&mut alice, &mut bob);
    let parked = seen(&mut alice, "parked");
    assert_eq!(mended(&mut alice, "m3", &format!("{parked}/drop")).json()["state"], "dropped");
    alice.send(&transfer("t5", &["bob"], 16));
    drained(&mut alice, &mut bob);
    mended(&mut alice, "m4", &format!("{parked}/drop")).is_problem(404, "not-seen", "unknown", "same-id");
    let next = seen(&mut alice, "parked");
    assert_ne!(next, parked);
    bob.handler.refuses.set(false);
    assert_eq!(mended(&mut alice, "m5", &format!("{next}/retry")).json()["state"], "waiting");
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 23, "the other one was not dropped");
}

#[test]
fn a_restored_sender_numbers_new_effects_after_those_that_the_receiver_has() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    // The copy has one effect that waits. By the time the copy is used, that effect has arrived.
    alice.send(&transfer("t2", &["bob"], 1));
    let mut copy = alice.copy();
    drained(&mut alice, &mut bob);
    for n in 3..=5 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
    }
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 5);
    // t6 is the same request as one that is lost, and comes before the object has taken the session over.
    copy.send(&transfer("t6", &["bob"], 1));
    copy.send(&transfer("t7", &["bob"], 1));
    drained(&mut copy, &mut bob);
    assert_eq!(bob.balance(), 7, "t2 is known by its number, t6 and t7 are new");
    // The outcome of t2 was acknowledged after the copy, so only an administrator can tell what became of it.
    let parked = &told(&mut copy)["parked"];
    assert_eq!((parked.as_array().map(Vec::len), parked[0]["executed"].clone()), (Some(1), json!("unknown")));
    assert_eq!(parked[0]["reason"].as_str().map(|reason| reason.starts_with("410 acknowledged")), Some(true));
}

/// Nothing is known by then of what the other key has.
#[test]
fn an_effect_made_by_a_restored_sender_during_its_take_over_is_new_to_the_receiver() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    alice.send(&transfer("t2", &["bob"], 1));
    let mut copy = alice.copy();
    for n in 3..=5 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
    }
    drained(&mut alice, &mut bob);
    let take_over = copy.send_next().expect("a take-over");
    copy.send(&transfer("t6", &["bob"], 1));
    copy.send(&transfer("t7", &["bob"], 1));
    let reply = delivered(&mut bob, &take_over);
    copy.sent(&take_over, heard(&reply));
    drained(&mut copy, &mut bob);
    assert_eq!(bob.balance(), 7);
}

#[test]
fn a_parked_effect_that_a_restored_sender_retries_is_new_to_the_receiver() {
    let (mut alice, mut bob) = two();
    bob.handler.refuses.set(true);
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    bob.handler.refuses.set(false);
    // The copy is older than what the other key gets next.
    let mut copy = alice.copy();
    for n in 2..=3 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 10));
    }
    drained(&mut alice, &mut bob);
    let parked = told(&mut copy)["parked"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(mended(&mut copy, "m", &format!("{parked}/retry")).json()["state"], "waiting");
    drained(&mut copy, &mut bob);
    assert_eq!((bob.balance(), told(&mut copy)["parked"].clone()), (21, json!([])));
}

#[test]
fn a_restored_or_deleted_receiver_gets_the_effects_that_come_later() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    let mut copy = bob.copy();
    for n in 2..=4 {
        alice.send(&transfer(&format!("t{n}"), &["bob"], 1));
    }
    drained(&mut alice, &mut bob);
    alice.send(&transfer("t5", &["bob"], 10));
    let (mut other, mut other_copy) = (alice.copy(), copy.copy());
    for _ in 0..4 {
        drained(&mut alice, &mut copy);
        alice.pass_ms(1_000);
    }
    assert_eq!((copy.balance(), told(&mut alice)["parked"].clone()), (11, json!([])));
    // An object that starts does not know whether it had sent t5 before the other key was put back.
    drained(&mut other, &mut other_copy);
    assert_eq!(told(&mut other)["parked"][0]["executed"], "unknown");
    other.send(&transfer("t6", &["bob"], 20));
    drained(&mut other, &mut other_copy);
    assert_eq!(other_copy.balance(), 21);
    copy.send(&delete_key("bob"));
    alice.send(&transfer("t7", &["bob"], 30));
    for _ in 0..4 {
        drained(&mut alice, &mut copy);
        alice.pass_ms(1_000);
    }
    assert_eq!(copy.balance(), 30, "surely it was not sent before");
}

#[test]
fn the_next_object_removes_lanes_on_which_nothing_waits() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 1));
    drained(&mut alice, &mut bob);
    let lanes = |alice: &World<Bank>| alice.database.number("SELECT count(*) FROM semel_effect_lanes");
    assert_eq!(lanes(&alice), 1, "its session is held");
    alice.restart();
    assert_eq!(alice.send_next(), None);
    assert_eq!(lanes(&alice), 0);
    alice.send(&transfer("t2", &["bob"], 1));
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 2);
}

fn delete_key(name: &str) -> Call {
    Call::new("DELETE", &format!("/semel/v1/admin/keys/accounts%2F{name}")).id("delete").by("semel:admin")
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
fn effects_made_after_the_deletion_of_a_key_are_independent_of_those_sent_before() {
    let ((mut alice, mut bob), mut carol) = (two(), account("carol"));
    alice.send(&transfer("t1", &["bob"], 5));
    let take_over = alice.send_next().expect("a take-over");
    let reply = delivered(&mut bob, &take_over);
    alice.sent(&take_over, heard(&reply));
    // The credit is under way when the key is deleted.
    let late = alice.send_next().expect("a credit");
    alice.send(&delete_key("alice")).is_executed(200);
    assert!(alice.send_next().is_none());
    assert_eq!((alice.has_to_send(), alice.wakes_to_send_at()), (false, None), "nobody asks in vain for ever");
    alice.send(&post("/accounts/alice/deposit").id("again").body(json!({"amount": 100}).to_string()));
    alice.send(&transfer("t2", &["carol"], 3));
    let take_over = alice.send_next().expect("it is not known to hold a session");
    assert!(take_over.url.ends_with("/keys/accounts%2Fcarol/sessions"), "{}", take_over.url);
    let reply = delivered(&mut bob, &late);
    alice.sent(&late, heard(&reply));
    assert_eq!(alice.database.number("SELECT count(*) FROM semel_effects"), 1, "the answer was to another");
    let reply = delivered(&mut carol, &take_over);
    alice.sent(&take_over, heard(&reply));
    assert_eq!(drained(&mut alice, &mut carol), 1);
    assert_eq!((alice.balance(), bob.balance(), carol.balance()), (97, 5, 3));
    assert_eq!(told(&mut alice)["parked"], json!([]));
}

#[test]
fn an_answer_from_before_the_deletion_of_a_key_does_not_count_for_its_next_effect() {
    let ((mut alice, mut bob), mut carol) = (two(), account("carol"));
    alice.send(&transfer("t1", &["bob"], 5));
    let late = alice.send_next().expect("a take-over");
    alice.send(&delete_key("alice")).is_executed(200);
    alice.send(&post("/accounts/alice/deposit").id("again").body(json!({"amount": 100}).to_string()));
    alice.send(&transfer("t2", &["carol"], 3));
    let take_over = alice.send_next().expect("a take-over");
    assert_eq!(take_over.lane, late.lane, "the lane is another's by now");
    let reply = delivered(&mut bob, &late);
    alice.sent(&late, heard(&reply));
    assert_eq!(alice.send_next(), None, "of its own nothing was heard");
    let reply = delivered(&mut carol, &take_over);
    alice.sent(&take_over, heard(&reply));
    assert_eq!((drained(&mut alice, &mut carol), carol.balance()), (1, 3));
}

#[test]
fn a_deleted_key_drops_its_waiting_effects_and_sends_only_new_ones() {
    let (mut alice, mut bob) = two();
    alice.send(&transfer("t1", &["bob"], 5));
    alice.send(&delete_key("alice"));
    assert_eq!(drained(&mut alice, &mut bob), 0);
    alice.send(&post("/accounts/alice/deposit").id("again").body("{\"amount\":10}"));
    alice.send(&transfer("t2", &["bob"], 5));
    drained(&mut alice, &mut bob);
    assert_eq!(bob.balance(), 5);
}

#[test]
fn a_key_sends_its_effects_in_a_session_named_after_it() {
    let (_, _, credit) = sent();
    assert_eq!(credit.headers.get("semel-session"), Some("\"semel:accounts/alice\";epoch=1;seq=1"));
}
