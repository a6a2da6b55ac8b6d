//! Calls to addresses outside that a handler makes.

use semel_core::id::Key;
use semel_core::server::effects::{EFFECTS_PER_REQUEST_MAX, Heard, SILENT_MAX, Sending, UNDER_WAY_MAX};
use semel_core::server::log;
use semel_support::carrying::{account, delivered, drained, heard, mended, told, transfer, two};
use semel_support::{Bank, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[test]
fn a_call_keeps_its_id_over_lost_answers_503_429_and_restarts_and_a_404_parks_it() {
    let (mut alice, _) = two();
    alice.send(&transfer("t1", &["call:https://example.com/a"], 1));
    alice.send(&transfer("t2", &["call:https://example.com/a"], 1));
    let answered = |status| Heard::Answered { status, semel: String::new(), body: b"no".to_vec() };
    let mut ids = Vec::new();
    for ended in [Heard::Nothing("lost".to_owned()), answered(503), answered(429), answered(404)] {
        let sending = alice.send_next().expect("a call");
        assert_eq!((sending.key.clone(), sending.url.as_str()), (None, "https://example.com/a"));
        ids.push(sending.headers.get("idempotency-key").map(str::to_owned));
        let is_for_good = ended == answered(404);
        let line = alice.sent(&sending, ended);
        assert_eq!(line.is_some(), is_for_good, "only what was refused for good is in the log");
        let line: Value = line.map_or(Value::Null, |line| serde_json::from_str(&line).expect("JSON"));
        let key = log::key_hash(&Key::new("accounts/alice").expect("a key"));
        let expected = json!({"time": line["time"], "level": "warn", "by": "object", "key": key, "message": "what the key has sent was refused for good, and is parked"});
        assert_eq!(line, if is_for_good { expected } else { Value::Null }, "neither the address nor the answer");
        alice.pass_ms(1_000);
        alice.restart();
    }
    assert!(ids.iter().all(|id| id.is_some() && *id == ids[0]), "{ids:?}");
    let next = alice.send_next().expect("the second");
    assert_ne!(next.headers.get("idempotency-key").map(str::to_owned), ids[0]);
    alice.sent(&next, answered(204));
    let parked = told(&mut alice)["parked"][0].clone();
    assert_eq!((parked["reason"].clone(), parked["executed"].clone()), (json!("answered 404: no"), json!("unknown")));
    let id = parked["id"].as_str().expect("an id");
    mended(&mut alice, "m", &format!("{id}/retry"));
    let again = alice.send_next().expect("a call");
    assert_eq!(again.headers.get("idempotency-key").map(str::to_owned), ids[0]);
    mended(&mut alice, "n", &format!("{id}/park"));
    alice.sent(&again, answered(204));
    assert_eq!(told(&mut alice)["parked"].as_array().map(Vec::len), Some(1), "it was given up before its answer came");
}

#[test]
fn a_call_that_an_administrator_parks_under_way_is_not_sent_again_and_the_next_one_is() {
    let (mut alice, _) = two();
    for id in ["t1", "t2"] {
        alice.send(&transfer(id, &["call:https://example.com/a"], 1));
    }
    let first = alice.send_next().expect("a call");
    let id = told(&mut alice)["lanes"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(mended(&mut alice, "m", &format!("{id}/park")).json()["state"], "parked");
    alice.sent(&first, Heard::Nothing("lost".to_owned()));
    alice.pass_ms(60_000);
    alice.restart();
    let next = alice.send_next().expect("the second");
    assert_ne!(next.headers.get("idempotency-key"), first.headers.get("idempotency-key"));
    alice.sent(&next, Heard::Answered { status: 204, semel: String::new(), body: Vec::new() });
    let left = told(&mut alice);
    assert_eq!((left["lanes"].clone(), left["parked"].as_array().map(Vec::len)), (json!([]), Some(1)));
    assert_eq!(
        (left["parked"][0]["id"].as_str(), left["parked"][0]["executed"].clone()),
        (Some(&*id), json!("unknown"))
    );
}

#[test]
fn a_parked_call_has_the_beginning_of_the_answer_as_its_reason() {
    let (mut alice, _) = two();
    alice.send(&transfer("t1", &["call:https://example.com/a"], 1));
    let sending = alice.send_next().expect("a call");
    let body = "\u{e9}\n".repeat(5_000).into_bytes();
    alice.sent(&sending, Heard::Answered { status: 404, semel: String::new(), body });
    assert_eq!(told(&mut alice)["parked"][0]["reason"], format!("answered 404: {}", "\u{e9}".repeat(200)));
}

#[test]
fn two_equal_calls_have_different_ids_even_at_one_instant_and_on_a_new_lane() {
    let (mut alice, _) = two();
    let mut ids = Vec::new();
    for id in ["t1", "t2"] {
        alice.send(&transfer(id, &["call:https://example.com/a"], 1));
        let sending = alice.send_next().expect("a call");
        ids.push((
            sending.headers.get("idempotency-key").map(str::to_owned),
            sending.url.clone(),
            sending.body.clone(),
        ));
        alice.sent(&sending, Heard::Answered { status: 204, semel: String::new(), body: Vec::new() });
        // Nothing waits, so the object that starts removes the lane; and the handler's count begins anew.
        alice.restart();
        assert_eq!(alice.send_next(), None);
        alice.database.tamper("DELETE FROM transfers");
    }
    assert_eq!((&ids[0].1, &ids[0].2), (&ids[1].1, &ids[1].2), "they are alike");
    assert_ne!(ids[0].0, ids[1].0);
}

/// With the same id, the other side would do nothing, because it knows the first call.
#[test]
fn a_key_restored_from_a_copy_gives_a_repeated_call_an_id_of_its_own() {
    let (mut alice, _) = two();
    let mut copy = alice.copy();
    copy.pass_ms(1);
    let id = |world: &mut World<Bank>| {
        world.send(&transfer("t1", &["call:https://example.com/a"], 1)).is_executed(200);
        let sending = world.send_next().expect("a call");
        (sending.body, sending.headers.get("idempotency-key").map(str::to_owned))
    };
    let (first, second) = (id(&mut alice), id(&mut copy));
    assert_eq!(first.0, second.0, "they are alike");
    assert_ne!(first.1, second.1);
}

/// How long the host waits for the answer of a call that hangs.
const HANGS_MS: i64 = 30_000;

#[test]
fn calls_known_to_hang_delay_no_effect_to_another_target_and_each_is_tried_in_turn() {
    let (mut alice, mut bob) = two();
    let origins: Vec<String> = (0..20).map(|n| format!("call:https://hangs-{n}.example/")).collect();
    let origins: Vec<&str> = origins.iter().map(String::as_str).collect();
    alice.send(&transfer("calls", &origins, 1));
    let (mut hanging, mut tries, mut credits) = (Vec::<(i64, Sending)>::new(), BTreeMap::<String, Vec<i64>>::new(), 0);
    let (started_ms, mut waited_ms) = (alice.wall_ms, Vec::new());
    for second in 0..600 {
        alice.send(&transfer(&format!("t{second}"), &["bob"], 0));
        let made_ms = alice.wall_ms;
        loop {
            while let Some(sending) = alice.send_next() {
                if sending.key.is_none() {
                    tries.entry(sending.url.clone()).or_default().push(alice.wall_ms - started_ms);
                    hanging.push((alice.wall_ms + HANGS_MS, sending));
                    assert!(hanging.len() <= UNDER_WAY_MAX);
                    continue;
                }
                let reply = delivered(&mut bob, &sending);
                credits += u64::from(sending.url.ends_with("/credit"));
                alice.sent(&sending, heard(&reply));
            }
            if credits > second || alice.wall_ms - made_ms > HANGS_MS * 2 {
                break;
            }
            alice.pass_ms(100);
            time_out(&mut alice, &mut hanging);
        }
        waited_ms.push(alice.wall_ms - made_ms);
        alice.pass_ms(1_000);
        time_out(&mut alice, &mut hanging);
    }
    // A target that was not asked before may hang; this is known only once its time is over.
    assert!(waited_ms.first().is_some_and(|first_ms| *first_ms <= HANGS_MS));
    assert_eq!(waited_ms.iter().skip(1).max(), Some(&0));
    let rounds = i64::try_from(origins.len() / SILENT_MAX).expect("few") + 1;
    for (url, tries) in &tries {
        let between = tries.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(between.is_some_and(|most_ms| most_ms <= rounds * (HANGS_MS + 1_000)), "{url}: {tries:?}");
    }
    assert_eq!(tries.len(), origins.len());
}

/// Reports that there is no answer to the calls whose time is over.
fn time_out(from: &mut World<Bank>, hanging: &mut Vec<(i64, Sending)>) {
    let over: Vec<_> = hanging.extract_if(.., |(until_ms, _)| *until_ms <= from.wall_ms).collect();
    for (_, sending) in over {
        from.sent(&sending, Heard::Nothing("no answer in 30000 ms".to_owned()));
    }
}

/// A key with a call for each of this many addresses.
fn calling(count: usize) -> World<Bank> {
    let (mut alice, _) = two();
    let origins: Vec<String> = (0..count).map(|n| format!("call:https://hangs-{n}.example/")).collect();
    let origins: Vec<&str> = origins.iter().map(String::as_str).collect();
    for (n, origins) in origins.chunks(EFFECTS_PER_REQUEST_MAX).enumerate() {
        alice.send(&transfer(&format!("calls-{n}"), origins, 0)).is_executed(200);
    }
    alice
}

fn under_way(alice: &mut World<Bank>) -> Vec<Sending> {
    std::iter::from_fn(|| alice.send_next()).collect()
}

#[test]
fn a_target_that_answers_again_no_longer_counts_as_silent() {
    let mut alice = calling(10);
    for sending in under_way(&mut alice) {
        alice.sent(&sending, Heard::Nothing("lost".to_owned()));
    }
    alice.pass_ms(1_000);
    let again = under_way(&mut alice);
    assert_eq!(again.len(), SILENT_MAX);
    for sending in again {
        alice.sent(&sending, Heard::Answered { status: 503, semel: String::new(), body: Vec::new() });
    }
    alice.pass_ms(1_000);
    assert_eq!(under_way(&mut alice).len(), 2 * SILENT_MAX);
}

#[test]
fn after_a_minute_without_a_report_calls_under_way_no_longer_count_against_their_limits() {
    let mut alice = calling(UNDER_WAY_MAX);
    assert_eq!(under_way(&mut alice).len(), UNDER_WAY_MAX);
    alice.pass_ms(60_000);
    let again = under_way(&mut alice);
    assert_eq!(again.len(), UNDER_WAY_MAX);
    // Those that had no answer have a limit of their own, and are given up after a minute too.
    again.iter().for_each(|sending| drop(alice.sent(sending, Heard::Nothing("lost".to_owned()))));
    alice.pass_ms(1_000);
    for _ in 0..2 {
        assert_eq!(under_way(&mut alice).len(), SILENT_MAX);
        alice.pass_ms(60_000);
    }
}

#[test]
fn asking_for_the_next_of_many_calls_takes_few_statements_and_none_while_none_is_due() {
    let (count, mut bob) = (640, account("bob"));
    let mut alice = calling(count);
    let statements = alice.database.statements();
    let first = alice.send_next().expect("a call");
    assert!(alice.database.statements() - statements < 16, "nobody is silent yet, and none is looked for");
    alice.sent(&first, Heard::Nothing("refused".to_owned()));
    for _ in 1..count {
        let sending = alice.send_next().expect("a call");
        alice.sent(&sending, Heard::Nothing("refused".to_owned()));
    }
    assert!(alice.send_next().is_none());
    let each = (alice.database.statements() - statements) / count as u64;
    assert!(each < 16, "{each} statements for each");
    alice.pass_ms(1_000);
    assert_eq!(under_way(&mut alice).len(), SILENT_MAX);
    let statements = alice.database.statements();
    for n in 0..100 {
        assert!(alice.send_next().is_none(), "{n}");
    }
    assert_eq!(alice.database.statements(), statements);
    // What comes meanwhile is sent at once.
    alice.send(&transfer("t", &["bob"], 1));
    assert_eq!(drained(&mut alice, &mut bob), 2, "a take-over, and a credit");
}

#[test]
fn an_object_that_has_sent_to_1_100_targets_keeps_1_000_lanes() {
    let mut alice = calling(1_100);
    let mut count = 0;
    while let Some(sending) = alice.send_next() {
        alice.sent(&sending, Heard::Answered { status: 204, semel: String::new(), body: Vec::new() });
        count += 1;
    }
    assert_eq!((count, alice.database.number("SELECT count(*) FROM semel_effect_lanes")), (1_100, 1_000));
}

#[test]
fn a_lane_with_a_waiting_effect_is_kept_even_beyond_the_limit_of_lanes() {
    let mut alice = calling(1_001);
    let last = "call:https://hangs-1000.example/";
    alice.send(&transfer("again", &[last], 0)).is_executed(200);
    let done = || Heard::Answered { status: 204, semel: String::new(), body: Vec::new() };
    let mut urls = Vec::new();
    while let Some(sending) = alice.send_next() {
        alice.sent(&sending, done());
        urls.push(sending.url);
    }
    assert_eq!(urls.len(), 1_002);
    assert_eq!(urls.iter().filter(|url| last.ends_with(url.as_str())).count(), 2);
}

#[test]
fn an_answer_to_a_parked_call_does_not_count_for_the_next_call_of_its_lane() {
    let (mut alice, _) = two();
    for id in ["t1", "t2"] {
        alice.send(&transfer(id, &["call:https://example.com/a"], 1));
    }
    let answered = || Heard::Answered { status: 204, semel: String::new(), body: Vec::new() };
    let first = alice.send_next().expect("a call");
    let id = told(&mut alice)["lanes"][0]["id"].as_str().expect("an id").to_owned();
    mended(&mut alice, "m", &format!("{id}/park")).is_executed(200);
    alice.sent(&first, answered());
    let left = told(&mut alice);
    assert_eq!((left["lanes"][0]["waiting"].clone(), left["lanes"][0]["reason"].clone()), (json!(1), Value::Null));
    assert_eq!(left["lanes"][0]["next"], Value::Null, "it waits for no instant");
    assert_eq!(left["next"], Value::Null, "no more are parked than are told");
    let next = alice.send_next().expect("the second");
    assert_ne!(next.headers.get("idempotency-key"), first.headers.get("idempotency-key"));
    alice.sent(&next, answered());
    assert_eq!(told(&mut alice)["lanes"], json!([]));
}

#[test]
fn the_call_behind_a_parked_one_leaves_as_soon_as_that_one_ends_without_an_answer() {
    let (mut alice, _) = two();
    for id in ["t1", "t2"] {
        alice.send(&transfer(id, &["call:https://example.com/a"], 1));
    }
    let lost = || Heard::Nothing("lost".to_owned());
    let first = alice.send_next().expect("a call");
    alice.sent(&first, lost());
    alice.pass_ms(1_000);
    let again = alice.send_next().expect("the same call");
    assert_eq!(alice.send_next(), None, "nothing is to be done on any silent lane");
    let id = told(&mut alice)["lanes"][0]["id"].as_str().expect("an id").to_owned();
    mended(&mut alice, "m", &format!("{id}/park")).is_executed(200);
    alice.sent(&again, lost());
    let next = alice.send_next().expect("the second");
    assert_ne!(next.headers.get("idempotency-key"), first.headers.get("idempotency-key"));
}

#[test]
fn the_answer_of_one_target_does_not_delay_another_target_that_is_due_earlier() {
    let (mut alice, _) = two();
    alice.send(&transfer("t1", &["call:https://a.example/x", "call:https://b.example/x"], 2));
    let busy = || Heard::Answered { status: 503, semel: String::new(), body: Vec::new() };
    let (one, other) = (alice.send_next().expect("a call"), alice.send_next().expect("another"));
    alice.sent(&one, busy());
    assert_eq!(alice.send_next(), None, "one waits, the other is under way");
    alice.pass_ms(500);
    alice.sent(&other, busy());
    for (passed_ms, due) in [(500, &one), (500, &other)] {
        assert_eq!(alice.send_next(), None);
        alice.pass_ms(passed_ms);
        assert_eq!(alice.send_next().map(|sending| sending.url).as_ref(), Some(&due.url));
    }
}
