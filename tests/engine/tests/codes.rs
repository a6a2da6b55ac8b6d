//! The table of codes: a test for each row. The router's answers are in `router.rs`.

use semel_support::call::control;
use semel_support::{
    Call, KEY, Reply, START_MS, START_S, Trouble, World, acknowledge, cancel, delete, get, look_up, patch, post, put,
};

type Row = (u16, &'static str, &'static str, &'static str);

const KEY_INVALID: Row = (400, "key-invalid", "no", "after-fix");
const BODY_INVALID: Row = (400, "body-invalid", "no", "after-fix");
const MISMATCH: Row = (422, "fingerprint-mismatch", "no", "after-fix");
const ROLLED_BACK: Row = (500, "rolled-back", "no", "same-id");
const POISONED: Row = (410, "poisoned", "no", "never");
const CAPACITY: Row = (503, "capacity", "no", "same-id");
const UNAVAILABLE: Row = (503, "unavailable", "unknown", "same-id");

fn change(id: &str) -> Call {
    post("/count").id(id)
}

/// Sends a call that the object must refuse without running the handler, and asserts that nothing else happened.
#[track_caller]
fn refuses(world: &mut World, call: &Call, row: Row) -> Reply {
    let before = (world.calls(), world.effects());
    let reply = undoes(world, call, row);
    assert_eq!((world.calls(), world.effects()), before, "the handler ran");
    reply
}

/// Sends a call for which the handler may run, but which must leave no effect and no record of its id.
#[track_caller]
fn undoes(world: &mut World, call: &Call, (status, code, executed, retry): Row) -> Reply {
    let before = (world.effects(), world.rows());
    let reply = world.send(call);
    reply.is_problem(status, code, executed, retry);
    assert_eq!((world.effects(), world.rows()), before, "something is left");
    assert_eq!(reply.only("semel-key"), format!("\"{KEY}\""));
    assert_eq!(reply.now_ms(), world.wall_ms);
    reply
}

#[test]
fn a_change_without_an_id_is_key_missing() {
    for call in [post("/count"), put("/count"), patch("/count"), delete("/count"), post(&control("cancel"))] {
        refuses(&mut World::new(), &call, (400, "key-missing", "no", "after-fix"));
    }
}

#[test]
fn a_malformed_header_is_key_invalid() {
    let mut world = World::new();
    for call in [
        post("/count").header("idempotency-key", "two, ids"),
        post("/count").header("idempotency-key", "\"\""),
        change("a").header("semel-first-sent", START_S.to_string()),
        change("a").first_sent_s(START_S + 121),
        change("a").header("semel-deadline", "soon"),
        change("a").deadline_ms(START_MS + 120_001),
        change("a").header("semel-session", "\"s\";epoch=1;seq=1"),
        get("/count").header("semel-deadline", "-1"),
        get(&control(&format!("outcomes/{}", "x".repeat(256)))),
        cancel("own", "a").header("semel-deadline", "1.5"),
        acknowledge("[]").header("semel-deadline", "soon"),
    ] {
        refuses(&mut world, &call, KEY_INVALID);
    }
    world.send(&change("a").first_sent_s(START_S + 120).deadline_ms(START_MS + 120_000)).is_executed(200);
}

#[test]
fn a_malformed_body_of_acks_is_body_invalid() {
    let as_many_as_may_be = format!("[{}]", vec!["\"a\""; 256].join(","));
    assert_eq!(World::new().send(&acknowledge(&as_many_as_may_be)).status(), 204);
    let too_many = vec!["\"a\""; 257].join(",");
    let mut world = World::new();
    world.send(&change("a"));
    for ids in [
        "1",
        "\"a\"",
        "[1]",
        "[null]",
        "[\"\"]",
        "[\"\u{e9}\"]",
        "[[\"a\"]]",
        "[{}]",
        "[{\"id\":\"a\",\"until\":-1}]",
        "[{\"id\":\"a\",\"until\":1000000000000000}]",
        "[{\"id\":\"a\",\"until\":1.5}]",
        "[{\"id\":\"a\",\"until\":\"1\"}]",
        "[{\"id\":\"a\",\"other\":1}]",
        "[{\"id\":\"a\",\"id\":\"b\"}]",
        "[\"a\"],\"other\":1",
        "[\"a\"],\"ids\":[]",
        &format!("[{too_many}]"),
    ] {
        refuses(&mut world, &acknowledge(ids), BODY_INVALID);
    }
    for body in ["", "{}", "[]", "[[\"a\"]]", "\"a\"", "{\"ids\":[\"a\"]} x", "{\"ids\":[\"a\"", "\u{ff}"] {
        refuses(&mut world, &post(&control("acks")).body(body), BODY_INVALID);
    }
    assert_eq!(world.send(&change("a")).only("semel-status"), "replayed", "none was applied in part");
}

#[test]
fn a_malformed_body_of_a_cancellation_is_body_invalid() {
    let ahead = format!("{{\"id\":\"a\",\"firstSent\":{}}}", START_S + 121);
    for body in [
        "",
        "{}",
        "[\"a\"]",
        "{\"id\":\"\"}",
        "{\"id\":\"own\"}",
        "{\"id\":\"a\",\"firstSent\":1.5}",
        "{\"id\":\"a\",\"firstSent\":-1}",
        "{\"id\":\"a\",\"first_sent\":1}",
        "{\"session\":{\"name\":\"s\",\"epoch\":1}}",
        ahead.as_str(),
    ] {
        let mut world = World::new();
        world.send(&cancel("own", "a").body(body)).is_problem(400, "body-invalid", "no", "after-fix");
        assert!(world.database.tables().is_empty(), "{body}");
    }
}

#[test]
fn a_rolled_back_answer_says_that_the_reason_is_in_the_log() {
    let mut world = World::new();
    let reply = world.send(&post("/status/500").id("a"));
    reply.is_problem(500, "rolled-back", "no", "same-id");
    assert!(reply.field("detail").ends_with("the log of the Worker says why"), "{}", reply.field("detail"));
    assert!(reply.log().is_some_and(|log| log.starts_with("rolled back: ")), "{:?}", reply.log());
}

#[test]
fn an_outcome_with_too_many_headers_or_one_that_would_be_trimmed_is_rolled_back() {
    let many = |count: usize| {
        (0..count).fold(post("/headers").id("a"), |call, n| call.header(&format!("x-answer-x-{n}"), "1"))
    };
    let mut world = World::new();
    world.send(&many(257)).is_problem(500, "rolled-back", "no", "same-id");
    world.send(&post("/headers").id("a").header("x-answer-x", "a ")).is_problem(500, "rolled-back", "no", "same-id");
    assert_eq!(world.effects(), 0);
    world.send(&many(256)).is_executed(201);
    // Names and values together may have 8 KiB, and not one byte more.
    world.send(&post("/large-header/8185").id("b")).is_executed(200);
    world.send(&post("/large-header/8186").id("c")).is_problem(500, "rolled-back", "no", "same-id");
}

#[test]
fn a_path_that_the_handler_does_not_know_is_not_found_and_not_recorded() {
    let mut world = World::new();
    undoes(&mut world, &post("/not-found").id("a"), (404, "not-found", "no", "after-fix"));
    undoes(&mut world, &get("/not-found"), (404, "not-found", "no", "after-fix"));
    world.send(&change("a")).is_executed(200);
}

#[test]
fn a_look_up_of_an_unknown_id_is_not_seen() {
    refuses(&mut World::new(), &look_up("a"), (404, "not-seen", "unknown", "same-id"));
}

#[test]
fn an_attempt_past_its_deadline_is_attempt_expired_and_the_id_stays_free() {
    let mut world = World::new();
    refuses(&mut world, &change("a").deadline_ms(START_MS - 1), (408, "attempt-expired", "no", "same-id"));
    world.send(&change("a").deadline_ms(START_MS)).is_executed(200);
}

#[test]
fn a_cancelled_id_is_cancelled_for_every_attempt() {
    let mut world = World::new();
    world.send(&cancel("own", "a")).is_executed(200);
    for call in [change("a"), change("a").body("other"), put("/count").id("a")] {
        refuses(&mut world, &call, (410, "cancelled", "no", "never"));
    }
}

#[test]
fn an_acknowledged_id_tells_whether_it_ran() {
    let mut world = World::new();
    world.send(&change("ran")).is_executed(200);
    (0..3).for_each(|_| drop(world.crashed(&change("poison"))));
    world.send(&acknowledge("[\"ran\",\"poison\"]"));
    refuses(&mut world, &change("ran"), (410, "acknowledged", "yes", "never"));
    refuses(&mut world, &change("poison"), (410, "acknowledged", "no", "never"));
}

#[test]
fn an_id_whose_outcome_is_no_longer_kept_tells_whether_it_ran() {
    let mut world = World::with(|config| config.retention_s = 1000);
    world.send(&change("ran")).is_executed(200);
    (0..3).for_each(|_| drop(world.crashed(&change("poison"))));
    world.pass_s(1001);
    world.send(&get("/count"));
    refuses(&mut world, &change("ran"), (410, "outcome-expired", "yes", "never"));
    refuses(&mut world, &change("poison"), (410, "outcome-expired", "no", "never"));
}

#[test]
fn a_request_first_sent_before_the_fence_and_without_a_record_is_outside_the_window() {
    let mut world = World::with(|config| config.retention_s = 1000);
    let fence_s = START_S - 1000;
    refuses(&mut world, &change("a").first_sent_s(fence_s - 1), (412, "outside-window", "unknown", "never"));
    world.send(&change("b").first_sent_s(fence_s)).is_executed(200);
}

#[test]
fn a_body_that_was_too_large_to_read_is_too_large() {
    let mut world = World::new();
    for call in [change("a"), cancel("own", "a"), acknowledge("[\"a\"]"), put("/count").id("a")] {
        refuses(&mut world, &call.too_large(), (413, "too-large", "no", "after-fix"));
    }
    world.send(&change("a")).is_executed(200);
}

#[test]
fn the_same_id_with_another_fingerprint_or_principal_is_a_mismatch_that_tells_nothing() {
    let first = post("/count?x=1").id("a").body("body").header("content-type", "text/plain");
    let mut world = World::new();
    let outcome = world.send(&first);
    let at =
        |method: &str, path: &str, of: &str| Call::new(method, path).id("a").body("body").header("content-type", of);
    let others = [
        first.clone().body("Body"),
        first.clone().body(""),
        at("PUT", "/count?x=1", "text/plain"),
        at("POST", "/count?x=2", "text/plain"),
        at("POST", "/count", "text/plain"),
        at("POST", "/%63ount?x=1", "text/plain"),
        at("POST", "/count?x=1", "text/html"),
        at("POST", "/count?x=1", "text/plain; charset=utf-8"),
        first.clone().header("content-encoding", "gzip"),
        first.clone().by("mallory"),
        first.clone().by(""),
        cancel("a", "b"),
    ];
    let bodies: Vec<Vec<u8>> =
        others.iter().map(|other| refuses(&mut world, other, MISMATCH).body().to_vec()).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "which part it is stays a secret");
    // Parts that the fingerprint doesn't cover may change.
    world.send(&at("POST", "/count?x=1", "Text/PLAIN").header("user-agent", "other")).replays(&outcome);
}

#[test]
fn a_handler_that_fails_is_rolled_back_and_may_be_asked_again_under_the_same_id() {
    for trouble in [Trouble::Fails, Trouble::BadSql, Trouble::Answers500, Trouble::Panics] {
        let mut world = World::new();
        world.send(&change("before"));
        world.handler.trouble.set(trouble);
        let before = world.effects();
        let (status, code, executed, retry) = ROLLED_BACK;
        for call in [change("a"), get("/count")] {
            let reply = world.send(&call);
            reply.is_problem(status, code, executed, retry);
            assert_eq!(world.effects(), before, "{trouble:?}");
            assert!(reply.log().is_some(), "an operator should know");
            assert!(
                !reply.text().contains("nowhere") && !reply.text().contains("told"),
                "that is no client's business"
            );
        }
        world.handler.trouble.set(Trouble::None);
        world.send(&change("a")).is_executed(200);
        assert_eq!(world.effects_of("a"), 1);
    }
}

#[test]
fn an_answer_that_is_no_outcome_is_rolled_back() {
    let mut world = World::new();
    for path in [
        "/status/0",
        "/status/100",
        "/status/199",
        "/status/300",
        "/status/302",
        "/status/304",
        "/status/399",
        "/status/500",
        "/status/503",
        "/status/599",
        "/status/600",
        "/status/999",
        "/status/204/body",
        "/status/205/body",
        "/large/1048577",
        "/large-header/8192",
        "/bad-header-value",
        "/bad-header-name",
    ] {
        undoes(&mut world, &post(path).id("a"), ROLLED_BACK);
    }
    for (id, path, status) in [
        ("200", "/status/200", 200),
        ("299", "/status/299/body", 299),
        ("204", "/status/204", 204),
        ("400", "/status/400", 400),
        ("499", "/status/499/body", 499),
        ("body", "/large/1048576", 200),
    ] {
        world.send(&post(path).id(id)).is_executed(status);
    }
}

#[test]
fn an_id_on_which_the_handler_crashed_three_times_is_poisoned_over_restarts() {
    let mut world = World::new();
    world.handler.trouble.set(Trouble::Panics);
    for _ in 0..2 {
        world.send(&change("a")).is_problem(ROLLED_BACK.0, ROLLED_BACK.1, ROLLED_BACK.2, ROLLED_BACK.3);
        world.restart();
    }
    world.send(&change("a")).is_problem(POISONED.0, POISONED.1, POISONED.2, POISONED.3);
    assert_eq!((world.calls(), world.effects()), (3, 0));
    world.restart();
    world.handler.trouble.set(Trouble::None);
    refuses(&mut world, &change("a"), POISONED);
    refuses(&mut world, &change("a").body("other"), MISMATCH);
    refuses(&mut world, &look_up("a"), POISONED);
    world.send(&change("b")).is_executed(200);
}

#[test]
fn a_key_full_of_unacknowledged_records_refuses_new_work_and_loses_nothing() {
    let mut world = World::with(|config| config.records_max = 2);
    let first = world.send(&change("a"));
    world.send(&change("b")).is_executed(200);
    for call in [change("c"), cancel("own", "c")] {
        refuses(&mut world, &call, CAPACITY);
    }
    world.restart();
    refuses(&mut world, &change("c"), CAPACITY);
    world.send(&change("a")).replays(&first);
    world.send(&get("/count")).is_read(200);
    // The refused request brings the acknowledgement that makes room.
    refuses(&mut world, &change("c").ack("b"), CAPACITY);
    world.send(&change("c")).is_executed(200);
    refuses(&mut world, &change("d"), CAPACITY);
}

#[test]
fn a_key_full_of_tombstones_refuses_new_work() {
    let mut world = World::with(|config| config.tombstones_max = 2);
    world.send(&change("a"));
    world.send(&cancel("own", "x").ack("a")).is_executed(200);
    for _ in 0..2 {
        refuses(&mut world, &change("b"), CAPACITY);
        world.restart();
    }
}

#[test]
fn a_request_that_is_rolled_back_takes_no_place() {
    let mut world = World::with(|config| config.records_max = 1);
    for trouble in [Trouble::Fails, Trouble::BadSql, Trouble::Answers500] {
        world.handler.trouble.set(trouble);
        undoes(&mut world, &change("a"), ROLLED_BACK);
    }
    world.handler.trouble.set(Trouble::None);
    world.send(&change("b")).is_executed(200);
    refuses(&mut world, &change("a"), CAPACITY);
}

#[test]
fn a_request_whose_storage_fails_is_unavailable_and_its_answer_has_no_semel_key() {
    let mut world = World::new();
    let first = world.send(&change("a"));
    for call in [change("a"), change("b"), get("/count"), look_up("a"), acknowledge("[\"a\"]"), cancel("own", "b")] {
        world.database.fail(0);
        let reply = world.send(&call);
        reply.is_problem(UNAVAILABLE.0, UNAVAILABLE.1, UNAVAILABLE.2, UNAVAILABLE.3);
        assert_eq!(reply.header("semel-key"), None, "of acknowledgements nothing is known");
        assert_eq!((world.calls(), world.effects()), (1, 1));
    }
    world.send(&change("a")).replays(&first);
}

#[test]
fn a_database_that_a_newer_build_has_written_is_unavailable_and_left_alone() {
    for column in ["engine_version", "handler_version"] {
        let mut world = World::new();
        world.send(&change("a"));
        let version = world.database.number(&format!("SELECT {column} FROM semel_meta"));
        world.database.tamper(&format!("UPDATE semel_meta SET {column} = 99"));
        world.restart();
        for call in [change("a"), change("b").ack("a"), get("/count")] {
            let reply = world.send(&call);
            reply.is_problem(UNAVAILABLE.0, UNAVAILABLE.1, UNAVAILABLE.2, UNAVAILABLE.3);
            let says = format!("have version 99, this build knows {version}");
            assert!(reply.log().is_some_and(|log| log.contains(&says)), "an operator should know both");
            assert_eq!((world.calls(), world.effects(), world.rows()), (1, 1, 1));
        }
        world.database.tamper(&format!("UPDATE semel_meta SET {column} = {version}"));
        world.restart();
        assert_eq!(world.send(&change("a")).only("semel-status"), "replayed");
    }
}
