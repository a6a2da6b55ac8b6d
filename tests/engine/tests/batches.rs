//! Batches: executed in order, in one commit, each element as if it had come alone.

use semel_core::problem::Code;
use semel_core::server::Sql;
use semel_core::server::storage::retention::SWEEP_ROWS;
use semel_support::batches::{asker, at, count, limited, run, statuses};
use semel_support::call::control;
use semel_support::{Call, KEY, Reply, START_MS, START_S, World, look_up, post};
use serde_json::{Value, json};

fn texts(replies: &[Reply]) -> Vec<&str> {
    replies.iter().map(Reply::text).collect()
}

#[test]
fn elements_run_in_order_and_reads_see_what_came_before_them() {
    let mut world = World::new();
    let read = json!({ "method": "GET", "path": "/count" });
    let replies = run(&mut world, &json!([read, count("a"), count("b"), read, count("c")]));
    assert_eq!(statuses(&replies), ["read", "executed", "executed", "read", "executed"]);
    // A read writes an effect too, which is rolled back.
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
    assert_eq!(world.batch(&json!(elements)).expect_err("it has died").code, Code::Unavailable);
    assert_eq!(world.calls(), 21, "all have run before it");
    world.restart();
    assert_eq!(world.effects(), 1, "nothing of it");
    assert!(statuses(&run(&mut world, &json!(elements))).iter().all(|status| *status == "executed"));
    assert_eq!(world.effects(), 21);
}

/// What is kept of the elements of [`mixed`].
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

/// The outcomes, without what distinguishes a replay from an execution.
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

/// Lets a fault come at each statement of a batch in turn. What is answered as done must be kept, and nothing may be done twice.
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
                // An element that has to run alone after the fault has passed is executed, so only a crash may leave it
                // unavailable.
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
fn a_batch_with_a_failing_statement_keeps_what_it_answered_as_executed() {
    at_each_statement(|world, n| world.database.fail(n));
}

#[test]
fn a_batch_on_a_full_disk_keeps_what_it_answered_as_executed() {
    at_each_statement(|world, n| world.database.full(n));
}

#[test]
fn on_a_full_disk_the_neighbours_of_an_element_without_room_are_executed() {
    let mut world = used();
    let pages = world.database.number("PRAGMA page_count") + 4;
    world.database.exec(&format!("PRAGMA max_page_count = {pages}"), &[]).expect("a pragma");
    let replies = run(&mut world, &json!([count("a"), at("large", "/large/100000"), count("b")]));
    assert_eq!(statuses(&replies), ["executed", "unavailable", "executed"]);
    assert_eq!(["a", "large", "b"].map(|id| world.effects_of(id)), [1, 0, 1]);
}

#[test]
fn after_failures_and_a_crash_the_elements_of_a_batch_have_run_in_order_and_once() {
    for times in 1..=5 {
        let mut world = used();
        // Writing a record fails this many times; and the last element panics each time.
        world.database.fail_at("INSERT OR REPLACE INTO semel_records", times);
        let elements = json!([count("a"), count("b"), count("c"), at("crashing", "/panics")]);
        let got = world.batch(&elements);
        world.database.calm();
        let ran = world.database.query("SELECT id FROM effects WHERE id <> 'earlier' ORDER BY rowid");
        let ran: Vec<String> = ran.into_iter().flatten().filter_map(|id| id.into_text()).collect();
        let mut in_order = ran.clone();
        in_order.sort();
        assert_eq!(ran, in_order, "{times} records fail");
        let Ok(replies) = got else { continue };
        let told = statuses(&replies).iter().filter(|status| **status == "executed").count();
        assert_eq!((told, statuses(&replies).contains(&"replayed")), (ran.len(), false), "{times} records fail");
    }
}

#[test]
fn a_batch_whose_commit_crashes_takes_no_places() {
    let mut world = World::with(|config| config.records_max = 3);
    world.send(&post("/count").id("first")).is_executed(200);
    // These fill the key. If the failed commit had been counted, the second attempt would be refused.
    let elements = json!([count("a"), count("b")]);
    world.database.crash_at("COMMIT");
    assert_eq!(world.batch(&elements).expect_err("it has died").code, Code::Unavailable);
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
    // The same ids one by one: the fingerprint of method, path and body is the same.
    many.send(&post("/echo?x=1").id("c").body([0, 255])).is_replayed(200);
}

#[test]
fn the_key_rule_and_the_grant_apply_to_an_element_as_to_a_single_request() {
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
    let head = run(
        &mut world,
        &json!([{ "method": "HEAD", "path": "/keyed/another" }, { "method": "GET", "path": "/keyed/another" }]),
    );
    assert_eq!(statuses(&head), ["key-mismatch"; 2]);
    assert_eq!(texts(&head).iter().map(|text| text.is_empty()).collect::<Vec<_>>(), [true, false]);
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

/// What was allowed for one element is not asked again for the next, if that is alike.
#[test]
fn an_element_is_allowed_by_its_own_method_and_path_whatever_the_one_before_it_was_allowed() {
    let read = json!({ "method": "GET", "path": "/count" });
    let elsewhere = |id: &str| json!({ "id": id, "method": "POST", "path": "/keyed/another" });
    let elements =
        json!([read, count("a"), read, read, count("b"), count("c"), elsewhere("d"), count("e"), elsewhere("f")]);
    let told = |claim: Value| {
        let replies = World::new().batch_by(&limited(claim), &[], &elements).expect("answers");
        statuses(&replies).join(" ")
    };
    let (reads, changes) = (json!({ "methods": ["GET"] }), json!({ "methods": ["POST"] }));
    let mismatch = "key-mismatch";
    assert_eq!(told(reads), format!("read forbidden read read forbidden forbidden {mismatch} forbidden {mismatch}"));
    let expected = format!("forbidden executed forbidden forbidden executed executed {mismatch} executed {mismatch}");
    assert_eq!(told(changes), expected);
}

#[test]
fn a_batch_runs_under_its_own_principal_only() {
    let mut world = World::new();
    assert_eq!(statuses(&run(&mut world, &json!([count("a")]))), ["executed"]);
    let elements = json!([
        count("a"),
        { "method": "GET", "path": control("outcomes/a") },
        { "id": "own", "method": "POST", "path": control("cancel"), "body": "{\"id\":\"a\"}" },
        { "method": "POST", "path": control("acks"), "body": "{\"ids\":[\"a\"]}" },
        at("who", "/who"),
        at("told", "/told"),
    ]);
    let replies = world.batch_by(&asker("mallory"), &[], &elements).expect("answers");
    assert_eq!(
        statuses(&replies),
        ["fingerprint-mismatch", "not-seen", "fingerprint-mismatch", "executed", "executed", "executed"]
    );
    assert_eq!([replies[4].text(), replies[5].text()], [format!("{KEY} mallory"), "\"mallory\"".to_owned()]);
    world.send(&post("/count").id("a")).is_replayed(200);
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
fn a_batch_may_take_over_a_session_and_take_several_of_its_places() {
    let mut world = World::new();
    let place =
        |seq: i64| json!({ "session": { "name": "s", "epoch": 1, "seq": seq }, "method": "POST", "path": "/count" });
    let take_over = json!({ "id": "own", "method": "POST", "path": control("sessions"), "body": "{\"name\":\"s\"}" });
    let replies = run(&mut world, &json!([take_over, place(1), place(2), place(4), place(1)]));
    assert_eq!(statuses(&replies), ["executed", "executed", "executed", "sequence-gap", "replayed"]);
    assert_eq!(world.effects(), 2);
}

#[test]
fn reads_and_refusals_in_a_batch_leave_an_untouched_key_without_tables() {
    let mut world = World::new();
    let elements =
        json!([{ "method": "GET", "path": "/count" }, { "method": "POST", "path": "/count" }, look_up_element("a")]);
    assert_eq!(statuses(&run(&mut world, &elements)), ["read", "key-missing", "not-seen"]);
    assert_eq!(world.database.tables(), Vec::<String>::new());
}

fn look_up_element(id: &str) -> Value {
    json!({ "method": "GET", "path": control(&format!("outcomes/{id}")) })
}

/// A key at which three pages of records are due.
fn much_due() -> World {
    const RETENTION_S: i64 = 1_000;
    let mut world = World::with(|config| config.retention_s = RETENTION_S);
    world.send(&post("/count").id("first").first_sent_s(START_S)).is_executed(200);
    world.database.fill(&format!(
        "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < {}) \
         INSERT INTO semel_records (id, state, at_ms, first_sent_s, principal, fingerprint, status, headers, body) \
         SELECT 'n' || n, 1, {START_MS}, {START_S}, 'alice', randomblob(32), 200, '', x'' FROM numbers",
        3 * SWEEP_ROWS
    ));
    world.restart();
    world.pass_s(RETENTION_S + 2);
    world
}

#[test]
fn a_batch_sweeps_one_page_however_many_requests_are_in_it() {
    // The walk goes from the last id to the first, so it reaches these ids last.
    let elements: Vec<Value> = (0..5).map(|n| count(&format!("a{n}"))).collect();
    let mut world = much_due();
    assert_eq!(statuses(&run(&mut world, &json!(elements))), ["executed"; 5]);
    assert_eq!(world.rows(), 2 * SWEEP_ROWS + 5);
    // It sweeps no more if each element has its own commit, after a commit that failed.
    let mut world = much_due();
    world.database.full(12);
    assert_eq!(statuses(&run(&mut world, &json!(elements))), ["executed"; 5]);
    assert!(!world.database.awaits_fault());
    assert_eq!(world.rows(), 2 * SWEEP_ROWS + 5);
    // The next turn sweeps the next page.
    assert_eq!(
        statuses(&run(&mut world, &json!([{ "method": "GET", "path": "/count" }, count("a5")]))),
        ["read", "executed"]
    );
    assert_eq!(world.rows(), SWEEP_ROWS + 6);
}

#[test]
fn a_full_key_sweeps_once_in_a_batch_of_refusals() {
    let mut world = much_due();
    world.restart_with(|config| config.records_max = 3);
    let elements: Vec<Value> = (0..5).map(|n| count(&format!("{n}"))).collect();
    assert_eq!(statuses(&run(&mut world, &json!(elements))), ["capacity"; 5]);
    assert_eq!(world.rows(), 2 * SWEEP_ROWS);
}
