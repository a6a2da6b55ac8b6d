//! Batches: in order, in one commit, each element as if it had come alone.

use semel_core::header::quoted;
use semel_core::id::Key;
use semel_core::message::Headers;
use semel_core::problem::Code;
use semel_core::server::auth::Asker;
use semel_core::server::batch::{self, ANSWERS_BYTES_MAX, Batch, ELEMENTS_MAX, answer_text};
use semel_core::server::{Answer, Sql};
use semel_support::batches::{asker, limited};
use semel_support::call::control;
use semel_support::{Call, KEY, Reply, START_MS, START_S, World, look_up, post};
use serde_json::{Value, json};

fn count(id: &str) -> Value {
    json!({ "id": id, "method": "POST", "path": "/count" })
}

fn at(id: &str, path: &str) -> Value {
    json!({ "id": id, "method": "POST", "path": path })
}

fn statuses(replies: &[Reply]) -> Vec<&str> {
    replies.iter().map(|reply| reply.only("semel-status")).collect()
}

fn texts(replies: &[Reply]) -> Vec<&str> {
    replies.iter().map(Reply::text).collect()
}

/// Runs a batch of which every element has an answer.
#[track_caller]
fn run(world: &mut World, elements: &Value) -> Vec<Reply> {
    world.batch(elements).expect("a batch that can be read")
}

#[test]
fn elements_run_in_order_and_reads_see_what_came_before_them() {
    let mut world = World::new();
    let read = json!({ "method": "GET", "path": "/count" });
    let replies = run(&mut world, &json!([read, count("a"), count("b"), read, count("c")]));
    assert_eq!(statuses(&replies), ["read", "executed", "executed", "read", "executed"]);
    // A read writes an effect of its own, which is undone.
    assert_eq!(texts(&replies), ["{\"count\":1}", "{\"count\":1}", "{\"count\":2}", "{\"count\":3}", "{\"count\":3}"]);
    assert_eq!(world.effects(), 3);
    world.send(&post("/count").id("b")).replays(&replies[2]);
}

#[test]
fn an_id_that_is_there_twice_runs_once_and_its_second_element_is_a_replay() {
    let mut world = World::new();
    let replies = run(&mut world, &json!([count("a"), count("a"), at("a", "/count/other"), count("b")]));
    assert_eq!(statuses(&replies), ["executed", "replayed", "fingerprint-mismatch", "executed"]);
    replies[1].replays(&replies[0]);
    assert_eq!(world.effects(), 2);
    let again = run(&mut world, &json!([count("b"), count("a")]));
    assert_eq!(statuses(&again), ["replayed", "replayed"]);
}

#[test]
fn an_element_that_fails_is_undone_alone() {
    let mut world = World::new();
    let failing = [
        at("x", "/not-found"),
        at("y", "/status/500"),
        at("z", "/bad-header-value"),
        json!({ "method": "POST", "path": "/count" }),
    ];
    for failing in failing {
        let elements = vec![count("before"), failing, count("after")];
        let replies = run(&mut world, &Value::Array(elements));
        assert!(matches!(statuses(&replies)[..], ["executed" | "replayed", _, "executed" | "replayed"]), "{replies:?}");
        assert!(matches!(statuses(&replies)[1], "not-found" | "rolled-back" | "key-missing"), "{replies:?}");
    }
    assert_eq!((world.effects(), world.effects_of("before"), world.effects_of("after")), (2, 1, 1));
}

#[test]
fn a_batch_is_one_commit() {
    let mut world = World::new();
    world.send(&post("/count").id("first")).is_executed(200);
    let elements: Vec<Value> = (0..20).map(|n| count(&format!("{n}"))).collect();
    world.database.crash_at("COMMIT");
    let replies = run(&mut world, &json!(elements));
    assert!(statuses(&replies).iter().all(|status| *status == "unavailable"), "{replies:?}");
    assert_eq!(world.calls(), 21, "all have run before it");
    world.restart();
    assert_eq!(world.effects(), 1, "nothing of it");
    assert!(statuses(&run(&mut world, &json!(elements))).iter().all(|status| *status == "executed"));
    assert_eq!(world.effects(), 21);
}

/// All that is kept of the elements of [`mixed`].
fn kept(world: &World) -> Vec<String> {
    let queries = ["SELECT id FROM effects ORDER BY id", "SELECT id, state FROM semel_records ORDER BY id"];
    queries.iter().flat_map(|query| world.database.query(query)).map(|row| format!("{row:?}")).collect()
}

/// Changes, a failure, an acknowledgement, a cancellation, a read and a replay.
fn mixed() -> Value {
    json!([
        count("a"),
        at("failing", "/not-found"),
        { "method": "POST", "path": control("acks"), "body": "{\"ids\":[\"earlier\"]}" },
        { "id": "own", "method": "POST", "path": control("cancel"), "body": "{\"id\":\"never\"}" },
        { "method": "GET", "path": "/count" },
        count("a"),
        count("b"),
    ])
}

fn used() -> World {
    let mut world = World::new();
    world.send(&post("/count").id("earlier").first_sent_s(START_S)).is_executed(200);
    world
}

/// Without what tells a replay from an execution.
fn outcomes(replies: &[Reply]) -> Vec<(u16, Vec<u8>)> {
    replies.iter().map(|reply| (reply.status(), reply.body().to_vec())).collect()
}

#[test]
fn a_crash_between_any_two_statements_leaves_all_of_a_batch_or_nothing() {
    let mut whole = used();
    let before = kept(&whole);
    let expected = outcomes(&run(&mut whole, &mixed()));
    let after = kept(&whole);
    assert_ne!(before, after);
    let mut crashes = 0;
    loop {
        let mut world = used();
        world.restart();
        world.database.crash_before(crashes);
        let got = world.batch(&mixed());
        if !world.database.has_crashed() {
            assert_eq!(outcomes(&got.expect("answers")), expected);
            break;
        }
        world.restart();
        let found = kept(&world);
        assert!(found == before || found == after, "crash {crashes} left a part: {found:?}");
        let again = run(&mut world, &mixed());
        assert_eq!(kept(&world), after, "crash {crashes}");
        if found == before {
            assert_eq!(outcomes(&again), expected, "crash {crashes}");
        }
        crashes += 1;
    }
    assert!(crashes > 30, "only {crashes} places to crash");
}

/// Lets a fault come at each statement of a batch in turn: what is answered as done is kept, and nothing is done twice.
fn at_each_statement(fault: fn(&World, u64)) {
    let elements = json!([count("a"), count("b"), at("failing", "/not-found"), count("c")]);
    for n in 0.. {
        let mut world = used();
        world.restart();
        fault(&world, n);
        let got = world.batch(&elements);
        let has_come = !world.database.awaits_fault();
        world.database.calm();
        let has_crashed = world.database.has_crashed();
        if has_crashed {
            world.restart();
        }
        for (reply, id) in got.iter().flatten().zip(["a", "b", "failing", "c"]) {
            let status = reply.only("semel-status");
            let effects = world.effects_of(id);
            match status {
                "executed" | "replayed" => assert_eq!(effects, 1, "statement {n}: {id} was told as {status}"),
                "rolled-back" | "not-found" => assert_eq!(effects, 0, "statement {n}: {id} was told as {status}"),
                // Who is left alone with a fault that has passed is executed.
                other => assert!(other == "unavailable" && has_crashed, "statement {n}: {id} was told as {other}"),
            }
        }
        if !has_come {
            assert!(n > 20, "only {n} statements");
            break;
        }
        let again = run(&mut world, &elements);
        assert_eq!(again.len(), 4);
        assert_eq!(["a", "b", "failing", "c"].map(|id| world.effects_of(id)), [1, 1, 0, 1], "statement {n}");
        assert_eq!(
            world.count().map(|count| count.records),
            Ok(4),
            "statement {n}: what is in memory is what is stored"
        );
    }
}

#[test]
fn a_statement_that_fails_undoes_nothing_that_was_told_as_done() {
    at_each_statement(|world, n| world.database.fail(n));
}

#[test]
fn a_full_disk_undoes_all_and_each_element_runs_in_a_commit_of_its_own() {
    at_each_statement(|world, n| world.database.full(n));
}

#[test]
fn on_a_disk_that_is_really_full_the_neighbours_of_what_has_no_room_are_executed() {
    let mut world = used();
    let pages = world.database.number("PRAGMA page_count") + 4;
    world.database.exec(&format!("PRAGMA max_page_count = {pages}"), &[]).expect("a pragma");
    let replies = run(&mut world, &json!([count("a"), at("large", "/large/100000"), count("b")]));
    assert_eq!(statuses(&replies), ["executed", "unavailable", "executed"]);
    assert_eq!(["a", "large", "b"].map(|id| world.effects_of(id)), [1, 0, 1]);
}

#[test]
fn what_is_in_memory_goes_with_a_commit_that_fails() {
    let mut world = World::with(|config| config.records_max = 3);
    world.send(&post("/count").id("first")).is_executed(200);
    // As many as there is room for: were they counted twice, the second time would be refused.
    let elements = json!([count("a"), count("b")]);
    world.database.crash_at("COMMIT");
    assert_eq!(statuses(&run(&mut world, &elements)), ["unavailable", "unavailable"]);
    assert_eq!(world.count().ok(), None, "the object has died");
    world.restart();
    assert_eq!(statuses(&run(&mut world, &elements)), ["executed", "executed"]);
    assert_eq!(statuses(&run(&mut world, &json!([count("c"), count("a")]))), ["capacity", "replayed"]);
}

#[test]
fn each_element_has_the_answer_of_a_single_request() {
    let (mut one, mut many) = (World::new(), World::new());
    let calls: [(Call, Value); 7] = [
        (
            post("/count").id("a").first_sent_s(START_S),
            json!({ "id": "a", "firstSent": START_S, "method": "POST", "path": "/count" }),
        ),
        (
            post("/echo").id("b").body("h\u{e9}llo"),
            json!({ "id": "b", "method": "POST", "path": "/echo", "body": "h\u{e9}llo" }),
        ),
        (
            post("/echo?x=1").id("c").body([0, 255]),
            json!({ "id": "c", "method": "POST", "path": "/echo?x=1", "body": { "base64": "AP8=" } }),
        ),
        (
            post("/headers").id("d").header("x-answer-x-a", "1"),
            json!({ "id": "d", "method": "POST", "path": "/headers", "headers": { "x-answer-x-a": "1" } }),
        ),
        (
            post("/count").id("e").deadline_ms(START_MS - 1),
            json!({ "id": "e", "deadline": START_MS - 1, "method": "POST", "path": "/count" }),
        ),
        (post("/count"), json!({ "method": "POST", "path": "/count" })),
        (look_up("a"), json!({ "method": "GET", "path": control("outcomes/a") })),
    ];
    for (call, element) in calls {
        let expected = one.send(&call);
        let got = run(&mut many, &json!([element]));
        let answer = |reply: &Reply| (reply.status(), reply.body().to_vec(), reply.only("semel-status").to_owned());
        assert_eq!(got.iter().map(answer).collect::<Vec<_>>(), [answer(&expected)], "{element}");
        let headers: Vec<_> = got.iter().flat_map(Reply::recorded_headers).collect();
        assert_eq!(headers, expected.recorded_headers(), "{element}");
    }
    // The same ids one by one: method, path and body have the same fingerprint.
    many.send(&post("/echo?x=1").id("c").body([0, 255])).is_replayed(200);
}

#[test]
fn the_key_rule_and_the_grant_are_those_of_a_single_request() {
    let mut world = World::new();
    let elements = json!([
        at("a", "/keyed/another"),
        at("b", "/unhandled"),
        { "id": "c", "method": "POST", "path": control("acks").replace("counters%2F1", "another") },
        { "method": "GET", "path": control("socket") },
        { "id": "d", "method": "POST", "path": control("batch") },
        { "id": "e", "method": "DELETE", "path": "/semel/v1/admin/keys/counters%2F1" },
        { "id": "f", "method": "DELETE", "path": "/semel/v1/%61dmin/keys/counters%2F1" },
        { "id": "g", "method": "DELETE", "path": "/%73emel/v1/admin/keys" },
        { "method": "OPTIONS", "path": "/count" },
        { "method": "GET", "path": "/semel/v1/health" },
        at("h", "/a b"),
        at("i", "/\u{e9}"),
        at("j", "/a#b"),
        at("k", "count"),
        at("l", "/a/../count"),
        at("", "/count"),
    ]);
    let replies = run(&mut world, &elements);
    let mismatch = ["key-mismatch", "not-found", "key-mismatch", "not-found", "not-found"];
    let forbidden = ["forbidden", "forbidden", "forbidden", "not-found", "not-found"];
    let invalid = ["key-invalid"; 6];
    assert_eq!(statuses(&replies), [&mismatch[..], &forbidden, &invalid].concat());
    assert_eq!(world.calls(), 0);

    let elements = json!([
        count("a"),
        { "id": "b", "method": "DELETE", "path": "/counters" },
        { "method": "GET", "path": "/count" },
        { "method": "POST", "path": control("acks"), "body": "{\"ids\":[\"a\"]}" },
        { "method": "GET", "path": control("outcomes/a") },
    ]);
    let mut allowed = |claim: Value| {
        let replies = world.batch_by(&limited(claim), &[], &elements).expect("answers");
        statuses(&replies).iter().map(|status| *status != "forbidden").collect::<Vec<_>>()
    };
    assert_eq!(allowed(json!({ "methods": ["GET"] })), [false, false, true, false, true]);
    assert_eq!(allowed(json!({ "methods": ["POST", "GET"], "keys": ["counters/*"] })), [true, false, true, true, true]);
    assert_eq!(allowed(json!({ "keys": ["another"] })), [false; 5]);
}

#[test]
fn a_batch_is_under_its_principal_alone() {
    let mut world = World::new();
    assert_eq!(statuses(&run(&mut world, &json!([count("a")]))), ["executed"]);
    let elements = json!([
        count("a"),
        { "method": "GET", "path": control("outcomes/a") },
        { "id": "own", "method": "POST", "path": control("cancel"), "body": "{\"id\":\"a\"}" },
        { "method": "POST", "path": control("acks"), "body": "{\"ids\":[\"a\"]}" },
        at("who", "/who"),
    ]);
    let replies = world.batch_by(&asker("mallory"), &[], &elements).expect("answers");
    assert_eq!(
        statuses(&replies),
        ["fingerprint-mismatch", "not-seen", "fingerprint-mismatch", "executed", "executed"]
    );
    assert_eq!(replies[4].text(), format!("{KEY} mallory"));
    world.send(&post("/count").id("a")).is_replayed(200);
}

#[test]
fn of_a_batch_that_cannot_be_read_nothing_runs() {
    let mut world = World::new();
    let good = count("good");
    let bad = [
        json!({ "id": "a" }),
        json!({ "id": "a", "method": "POST" }),
        json!({ "id": 1, "method": "POST", "path": "/count" }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "X-A": "1" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "": "1" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "x-a": "1\nsemel-principal:\"bob\"" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "x-a": " 1" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "x-a": "\u{2028}" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "semel-principal": "\"bob\"" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "semel-key": "\"b\"" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "idempotency-key": "b" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "authorization": "Bearer b" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "cf-connecting-ip": "1.1.1.1" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "body": 5 }),
        json!({ "id": "a", "method": "POST", "path": "/count", "body": { "base64": "?" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "body": { "base64": "AA==", "more": 1 } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "session": ["name", 1, 1, 0] }),
        json!({ "id": "a", "method": "POST", "path": "/count", "session": { "epoch": 1 } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "session": { "name": "s", "more": 1 } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "more": 1 }),
        json!(["a", null, null, null, "POST", "/count", {}, null]),
        json!("a"),
        json!(null),
    ];
    for bad in bad {
        let refused = world.batch(&json!([good, bad])).expect_err("it can't be read");
        assert_eq!(refused.code, Code::BodyInvalid, "{bad}");
    }
    for bad in [json!({}), json!(5), json!([[good]])] {
        assert_eq!(world.batch(&bad).expect_err("no batch").code, Code::BodyInvalid, "{bad}");
    }
    for bad in ["", "[", "[]]", "[\"\\ud800\"]", "\u{feff}[]"] {
        let refused = Batch::parse(&key(), &Headers::new(), Some(bad.as_bytes())).expect_err(bad);
        assert_eq!(refused.code, Code::BodyInvalid, "{bad}");
    }
    assert_eq!((world.calls(), world.database.tables()), (0, Vec::new()));
}

fn key() -> semel_core::id::Key {
    semel_core::id::Key::new(KEY).expect("a key")
}

#[test]
fn a_batch_has_its_limits() {
    let mut world = World::new();
    let many = |count: usize| Value::Array((0..count).map(|n| at(&format!("{n}"), "/echo")).collect());
    assert_eq!(run(&mut world, &many(ELEMENTS_MAX)).len(), ELEMENTS_MAX);
    assert_eq!(world.batch(&many(ELEMENTS_MAX + 1)).expect_err("too many").code, Code::TooLarge);
    assert_eq!(Batch::parse(&key(), &Headers::new(), None).expect_err("too large").code, Code::TooLarge);
    let bytes = |length: usize| format!("[{}]", " ".repeat(length - 2)).into_bytes();
    assert!(Batch::parse(&key(), &Headers::new(), Some(&bytes(1 << 20))).is_ok());
    let refused = Batch::parse(&key(), &Headers::new(), Some(&bytes((1 << 20) + 1))).expect_err("too large");
    assert_eq!(refused.code, Code::TooLarge);
    assert_eq!(run(&mut world, &json!([])), []);
    // A head is as large as any other may be.
    let replies = run(&mut world, &json!([at("long", &format!("/{}", "x".repeat(9_000))), count("short")]));
    assert_eq!(statuses(&replies), ["too-large", "executed"]);
}

#[test]
fn answers_without_room_are_unavailable_and_their_commit_stands() {
    let mut world = World::new();
    let elements: Vec<Value> = (0..8).map(|n| at(&format!("{n}"), "/large/1000000")).collect();
    let mut elements = Value::Array(elements);
    elements.as_array_mut().expect("an array").push(count("small"));
    let key = key();
    let alice = asker("alice");
    let batch = Batch::parse(&key, &Headers::new(), Some(elements.to_string().as_bytes())).expect("a batch");
    let replies = run(&mut world, &elements);
    assert_eq!(batch.elements.len(), replies.len());
    assert_eq!(world.effects(), 9);
    // As the object writes them.
    let mut room = batch::ROOM;
    let answers = world.answers(&alice, batch);
    let kept: usize = answers.iter().map(|answer| answer.body.len()).sum();
    assert!(kept <= ANSWERS_BYTES_MAX, "{kept} bytes were in memory at once");
    let answers: Vec<String> =
        answers.into_iter().map(|answer: Answer| answer_text(answer, START_MS, &mut room)).collect();
    let text = batch::text(None, START_MS, &answers);
    assert!(text.len() <= ANSWERS_BYTES_MAX, "{}", text.len());
    let answers: Vec<Value> = serde_json::from_str(&text).expect("an array");
    let told: Vec<&str> =
        answers.iter().map(|answer| answer["headers"]["semel-status"].as_str().expect("a status")).collect();
    assert_eq!(told[..4], ["replayed"; 4]);
    assert_eq!(told[4..8], ["unavailable"; 4]);
    assert_eq!(told[8], "replayed", "a small one has room");
    let problem: Value = serde_json::from_str(answers[4]["body"].as_str().expect("text")).expect("a problem");
    assert_eq!((&problem["executed"], &problem["retry"]), (&json!("unknown"), &json!("same-id")));
}

#[test]
fn a_batch_acknowledges_before_it_runs() {
    let mut world = World::with(|config| config.records_max = 2);
    assert_eq!(
        statuses(&run(&mut world, &json!([count("a"), count("b"), count("c")]))),
        ["executed", "executed", "capacity"]
    );
    let acks = [("semel-ack", "\"a\"")];
    let replies = world.batch_by(&asker("alice"), &acks, &json!([count("c")])).expect("answers");
    assert_eq!(statuses(&replies), ["executed"]);
    world.send(&post("/count").id("a")).is_problem(410, "acknowledged", "yes", "never");
    let replies = world.frame(&json!({ "frame": 1, "requests": [count("d")], "acks": ["b", { "id": "c" }] }));
    assert_eq!(statuses(&replies.expect("answers")), ["executed"]);
    assert_eq!(world.count().map(|count| count.records), Ok(1));
}

#[test]
fn acknowledgements_that_cannot_be_read_or_are_not_allowed_refuse_all_of_a_batch() {
    let mut world = World::new();
    let elements = json!([count("a")]);
    let refused = |world: &mut World, asker: &Asker, acks: &str| {
        world.batch_by(asker, &[("semel-ack", acks)], &elements).map_err(|problem| problem.code)
    };
    assert_eq!(refused(&mut world, &asker("alice"), "a"), Err(Code::KeyInvalid));
    assert_eq!(refused(&mut world, &limited(json!({ "methods": ["GET"] })), &quoted("a")), Err(Code::Forbidden));
    for acks in [json!("a"), json!([1]), json!([""]), json!({}), json!(vec!["a"; 257])] {
        let refused = world.frame(&json!({ "frame": 1, "requests": [count("a")], "acks": acks }));
        assert_eq!(refused.expect_err("acks").code, Code::BodyInvalid, "{acks}");
    }
    assert_eq!(world.calls(), 0);
    // Nobody is told that what failed was applied.
    world.send(&post("/count").id("b")).is_executed(200);
    world.database.crash_before(0);
    let ended = world.frame(&json!({ "frame": 1, "requests": [], "acks": ["b"] }));
    assert_eq!(ended.expect_err("storage").code, Code::Unavailable);
}

#[test]
fn a_place_in_a_session_is_the_header_of_a_single_request() {
    let element = |session: Value| json!([{ "session": session, "method": "POST", "path": "/count" }]).to_string();
    let header = |session: Value| {
        let batch = Batch::parse(&key(), &Headers::new(), Some(element(session).as_bytes())).expect("a batch");
        batch.elements[0].headers.get("semel-session").expect("a session").to_owned()
    };
    assert_eq!(header(json!({ "name": "a\"b", "epoch": 2, "seq": 3, "ack": 1 })), "\"a\\\"b\";epoch=2;seq=3;ack=1");
    assert_eq!(header(json!({ "seq": 3, "epoch": 2, "name": "s", "ack": null })), "\"s\";epoch=2;seq=3");
}

#[test]
fn places_of_a_session_are_taken_in_one_batch_and_its_take_over_may_be_in_it() {
    let mut world = World::new();
    let place =
        |seq: i64| json!({ "session": { "name": "s", "epoch": 1, "seq": seq }, "method": "POST", "path": "/count" });
    let take_over = json!({ "id": "own", "method": "POST", "path": control("sessions"), "body": "{\"name\":\"s\"}" });
    let replies = run(&mut world, &json!([take_over, place(1), place(2), place(4), place(1)]));
    assert_eq!(statuses(&replies), ["executed", "executed", "executed", "sequence-gap", "replayed"]);
    assert_eq!(world.effects(), 2);
}

#[test]
fn a_frame_has_a_number_and_requests() {
    let mut world = World::new();
    for bad in [
        json!({}),
        json!({ "frame": 1 }),
        json!({ "requests": [] }),
        json!({ "frame": -1, "requests": [] }),
        json!({ "frame": 1_u64 << 53, "requests": [] }),
        json!({ "frame": 1.5, "requests": [] }),
        json!({ "frame": "1", "requests": [] }),
        json!({ "frame": 1, "requests": {} }),
        json!({ "frame": 1, "requests": [], "more": 1 }),
        json!([1, []]),
        json!([]),
    ] {
        assert_eq!(world.frame(&bad).expect_err("no frame").code, Code::BodyInvalid, "{bad}");
    }
    let replies = world.frame(&json!({ "frame": (1_u64 << 53) - 1, "requests": [count("a")] }));
    assert_eq!(statuses(&replies.expect("answers")), ["executed"]);
    assert_eq!(batch::text(Some(7), 5, &["{}".to_owned()]), "{\"frame\":7,\"now\":5,\"answers\":[{}]}");
}

#[test]
fn an_untouched_key_stays_untouched_by_what_only_reads_or_is_refused() {
    let mut world = World::new();
    let elements =
        json!([{ "method": "GET", "path": "/count" }, { "method": "POST", "path": "/count" }, look_up_element("a")]);
    assert_eq!(statuses(&run(&mut world, &elements)), ["read", "key-missing", "not-seen"]);
    assert_eq!(world.database.tables(), Vec::<String>::new());
}

fn look_up_element(id: &str) -> Value {
    json!({ "method": "GET", "path": control(&format!("outcomes/{id}")) })
}

#[test]
fn a_header_that_is_there_twice_is_refused_for_others_may_read_the_other() {
    let text = r#"[{"method":"GET","path":"/count","headers":{"accept":"a","accept":"b"}}]"#;
    let problem = Batch::parse(&Key::new(KEY).expect("a key"), &Headers::new(), Some(text.as_bytes()));
    assert_eq!(problem.expect_err("no batch").code, Code::BodyInvalid);
}
