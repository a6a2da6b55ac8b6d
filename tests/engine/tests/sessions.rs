//! What becomes of a request that names a place in a session: each check, in order.

use semel_support::{
    START_MS, START_S, Trouble, World, cancel, cancel_place, get, numbered, post, take_over, take_over_after,
    take_over_with,
};
use serde_json::json;

fn world() -> World {
    World::new().in_session()
}

#[test]
fn a_take_over_tells_the_epoch_and_the_last_number_and_is_replayed() {
    let mut world = World::new();
    let first = world.send(&take_over("a"));
    assert_eq!(first.is_executed(200).json(), json!({ "name": "s", "epoch": 1, "lastSeq": 0 }));
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&take_over("a")).replays(&first);
    world.send(&take_over("b")).is_taken_over(2, 1);
    world.restart();
    world.send(&take_over("a")).replays(&first);
    world.send(&take_over_with("c", "{\"name\":\"other\"}")).is_taken_over(3, 0);
    world.send(&take_over("d")).is_taken_over(4, 1);
}

#[test]
fn the_next_number_is_executed_and_a_taken_one_is_replayed() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    first.is_executed(200);
    assert_eq!(first.expires_s(), START_S + 86_400);
    world.send(&numbered(1, 1)).replays(&first);
    world.send(&numbered(1, 2)).is_executed(200);
    world.restart();
    world.send(&numbered(1, 1)).replays(&first);
    assert_eq!((world.effects_of("s;epoch=1;seq=1"), world.effects()), (1, 2));
    assert_eq!(world.places(), [(1, 1, 1, true), (2, 1, 1, true)]);
}

#[test]
fn a_number_beyond_the_next_is_a_sequence_gap_that_names_the_next_and_changes_nothing() {
    let mut world = world();
    world.send(&numbered(1, 2)).is_gap(1);
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&numbered(1, 900)).is_gap(2);
    world.send(&numbered(1, 2)).is_executed(200);
    assert_eq!(world.effects(), 2);
}

#[test]
fn another_payload_at_a_taken_place_is_a_fingerprint_mismatch() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    let other = numbered(1, 1).body("other");
    world.send(&other).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    world.send(&numbered(1, 1)).replays(&first);
}

#[test]
fn an_earlier_epoch_is_fenced_and_the_places_that_it_took_are_replayed() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    world.send(&take_over("b")).is_taken_over(2, 1);
    world.send(&numbered(1, 2)).is_fenced("no", 2);
    world.send(&numbered(1, 9)).is_fenced("no", 2);
    world.send(&numbered(1, 1)).replays(&first);
    world.send(&numbered(2, 2)).is_executed(200);
    world.send(&numbered(1, 2)).is_fenced("no", 2);
    assert_eq!(world.effects(), 2);
}

#[test]
fn an_epoch_owns_only_the_numbers_after_its_predecessors_last() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    world.send(&take_over("b")).is_taken_over(2, 1);
    world.send(&numbered(2, 1)).is_problem(400, "key-invalid", "no", "after-fix");
    assert_eq!(world.effects(), 1);
}

#[test]
fn an_epoch_that_never_was_of_this_session_is_unknown_or_fenced() {
    let mut world = world();
    world.send(&numbered(2, 1)).is_problem(410, "session-unknown", "unknown", "never");
    world.send(&take_over_with("b", "{\"name\":\"other\"}")).is_taken_over(2, 0);
    world.send(&numbered(2, 1)).is_problem(410, "session-unknown", "unknown", "never");
    world.send(&take_over("c")).is_taken_over(3, 0);
    world.send(&numbered(2, 1)).is_fenced("no", 3);
    assert_eq!(world.calls(), 0);
}

#[test]
fn an_epoch_before_the_last_64_is_fenced_with_executed_unknown_unless_its_place_is_there() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    for epoch in 2..=65 {
        world.send(&take_over(&format!("{epoch}"))).is_taken_over(epoch, 1);
    }
    world.send(&numbered(1, 2)).is_fenced("unknown", 65);
    world.send(&numbered(2, 2)).is_fenced("no", 65);
    // The place is still there, so it still answers.
    world.send(&numbered(1, 1)).replays(&first);
    world.send(&post("/count").place_acking(65, 2, 1)).is_executed(200);
    world.send(&numbered(1, 1)).is_fenced("unknown", 65);
    assert_eq!(world.database.number("SELECT max(length(epochs)) FROM semel_sessions"), 64 * 16);
}

#[test]
fn a_session_that_was_never_taken_over_is_session_unknown() {
    let mut world = World::new();
    world.send(&numbered(1, 1)).is_problem(410, "session-unknown", "unknown", "never");
    world.send(&post("/count").id("a")).is_executed(200);
    world.send(&numbered(1, 1)).is_problem(410, "session-unknown", "unknown", "never");
    assert_eq!(world.effects(), 1);
}

#[test]
fn another_principal_is_forbidden_in_every_request_to_a_session() {
    let mut world = world();
    world.send(&numbered(1, 1)).is_executed(200);
    for call in [
        numbered(1, 1),
        numbered(1, 2),
        numbered(1, 9),
        post("/count").place_acking(1, 2, 1),
        cancel_place("a", 1, 2),
        take_over("b"),
        take_over_after("c", 1),
        take_over_after("d", 0),
    ] {
        let reply = world.send(&call.by("mallory"));
        reply.is_problem(403, "forbidden", "no", "after-fix");
        assert_eq!(reply.json().get("currentEpoch"), None);
    }
    assert_eq!((world.effects(), world.places()), (1, vec![(1, 1, 1, true)]));
    world.send(&numbered(1, 2)).is_executed(200);
}

#[test]
fn a_place_beside_an_id_malformed_or_on_a_read_or_control_request_is_key_invalid() {
    let mut world = world();
    let session = "\"s\";epoch=1;seq=1";
    for call in [
        numbered(1, 1).id("a"),
        post("/count").header("semel-session", "\"s\";epoch=1;seq=1;ack=1"),
        post("/count").header("semel-session", "\"s\";epoch=0;seq=1"),
        post("/count").header("semel-session", "\"s\";epoch=1"),
        get("/count").header("semel-session", session),
        post(&semel_support::call::control("acks")).header("semel-session", session).body("{\"ids\":[]}"),
        post(&semel_support::call::control("cancel")).header("semel-session", session).body("{\"id\":\"a\"}"),
    ] {
        world.send(&call).is_problem(400, "key-invalid", "no", "after-fix");
    }
    world.send(&post("/count")).is_problem(400, "key-missing", "no", "after-fix");
    assert_eq!(world.calls(), 0);
}

#[test]
fn a_place_runs_though_its_first_sent_is_before_the_fence_but_not_past_its_deadline() {
    let mut world = World::with(|config| config.retention_s = 100).in_session();
    world.pass_s(90);
    world.send(&numbered(1, 1).first_sent_s(START_S - 500)).is_executed(200);
    world.forget(START_S - 200).expect("storage");
    world.send(&numbered(1, 2).first_sent_s(START_S - 500)).is_executed(200);
    let late = numbered(1, 3).deadline_ms(START_MS);
    world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    world.send(&numbered(1, 3)).is_executed(200);
    world.send(&late).is_replayed(200);
}

#[test]
fn a_request_that_fails_takes_no_place_and_does_not_wedge_the_next() {
    for trouble in [Trouble::Fails, Trouble::BadSql, Trouble::Answers500, Trouble::Panics] {
        let mut world = world();
        world.handler.trouble.set(trouble);
        world.send(&numbered(1, 1)).is_problem(500, "rolled-back", "no", "same-id");
        world.send(&numbered(1, 2)).is_gap(1);
        world.handler.trouble.set(Trouble::None);
        // Another request may have the seq, because none has it.
        world.send(&numbered(1, 1).body("other")).is_executed(200);
        world.send(&numbered(1, 2)).is_executed(200);
        assert_eq!(world.effects(), 2);
    }
}

#[test]
fn a_cancellation_of_the_next_number_closes_it_and_of_a_taken_one_gets_its_outcome() {
    let mut world = world();
    assert_eq!(world.send(&cancel_place("a", 1, 1)).is_executed(200).json(), json!({ "state": "cancelled" }));
    world.send(&numbered(1, 1)).is_problem(410, "cancelled", "no", "never");
    assert_eq!(world.send(&cancel_place("b", 1, 1)).is_executed(200).json()["state"], "cancelled");
    world.send(&cancel_place("c", 1, 3)).is_gap(2);
    let second = world.send(&numbered(1, 2));
    let ran = world.send(&cancel_place("d", 1, 2)).is_executed(200).json();
    assert_eq!((&ran["state"], &ran["outcome"]["body"]), (&json!("executed"), &json!(second.text())));
    world.send(&take_over("e")).is_taken_over(2, 2);
    world.send(&cancel_place("f", 1, 3)).is_fenced("no", 2);
    world.send(&cancel_place("a", 1, 1)).is_replayed(200);
    world.send(&numbered(2, 3)).is_executed(200);
    assert_eq!(world.effects(), 2);
}

#[test]
fn a_malformed_take_over_or_cancellation_of_a_place_is_invalid() {
    let mut world = world();
    for body in [
        "",
        "[]",
        "{}",
        "{\"name\":\"\"}",
        "{\"name\":1}",
        "{\"name\":\"\u{e9}\"}",
        "{\"name\":\"s\",\"after\":-1}",
        "{\"name\":\"s\",\"after\":1000000000000000}",
        "{\"name\":\"s\",\"after\":2}",
        "{\"name\":\"new\",\"after\":1}",
        "{\"name\":\"s\",\"x\":1}",
    ] {
        world.send(&take_over_with("a", body)).is_problem(400, "body-invalid", "no", "after-fix");
    }
    let place = |inner: &str| post(&semel_support::call::control("cancel")).id("a").body(inner);
    for body in [
        "{\"session\":{\"name\":\"s\",\"epoch\":1}}",
        "{\"session\":{\"name\":\"s\",\"epoch\":1,\"seq\":0}}",
        "{\"session\":{\"name\":\"s\",\"epoch\":1,\"seq\":1,\"ack\":0}}",
        "{\"session\":{\"name\":\"s\",\"epoch\":1,\"seq\":1},\"id\":\"b\"}",
        "{\"session\":{\"name\":\"s\",\"epoch\":1,\"seq\":1},\"firstSent\":1}",
        "{\"firstSent\":1}",
    ] {
        world.send(&place(body)).is_problem(400, "body-invalid", "no", "after-fix");
    }
    world.send(&take_over("a")).is_taken_over(2, 0);
    world.send(&cancel("c", "b")).is_executed(200);
}

#[test]
fn a_take_over_that_expects_an_older_epoch_fences_nobody() {
    let mut world = World::new();
    world.send(&take_over_after("a", 0)).is_taken_over(1, 0);
    world.send(&take_over_after("b", 1)).is_taken_over(2, 0);
    for (own, after) in [("c", 0), ("d", 1)] {
        world.send(&take_over_after(own, after)).is_fenced("no", 2);
    }
    world.send(&numbered(2, 1)).is_executed(200);
}

#[test]
fn a_key_refuses_sessions_beyond_its_limit_as_capacity_and_the_others_go_on() {
    let mut world = World::with(|config| config.sessions_max = 2);
    let named = |own: &str, name: &str| take_over_with(own, &format!("{{\"name\":\"{name}\"}}"));
    world.send(&named("a", "s")).is_taken_over(1, 0);
    world.send(&named("b", "t")).is_taken_over(2, 0);
    world.restart();
    world.send(&named("c", "u")).is_problem(503, "capacity", "no", "same-id");
    world.send(&named("d", "s")).is_taken_over(3, 0);
    world.send(&numbered(3, 1)).is_executed(200);
}

#[test]
fn a_full_database_refuses_new_places_as_capacity_and_replays_taken_ones() {
    let mut world = world();
    let first = world.send(&numbered(1, 1));
    world.restart_with(|config| config.bytes_max = 4096);
    world.send(&numbered(1, 2)).is_problem(503, "capacity", "no", "same-id");
    world.send(&numbered(1, 1)).replays(&first);
    world.restart_with(|config| config.bytes_max = 1 << 30);
    world.send(&numbered(1, 2)).is_executed(200);
}

#[test]
fn ids_in_the_semel_ack_of_a_place_are_acknowledged_even_with_a_sequence_gap() {
    let mut world = world();
    world.send(&post("/count").id("a")).is_executed(200);
    world.send(&numbered(1, 1).ack("a")).is_executed(200);
    world.send(&post("/count").id("b")).is_executed(200);
    world.send(&numbered(1, 9).ack("b")).is_gap(2);
    for id in ["a", "b"] {
        world.send(&post("/count").id(id)).is_problem(410, "acknowledged", "yes", "never");
    }
}

#[test]
fn a_take_over_beyond_the_highest_epoch_is_body_invalid_and_the_session_goes_on() {
    let mut world = world();
    world.database.tamper("UPDATE semel_meta SET epoch = 999999999999999");
    world.restart();
    world.send(&take_over("b")).is_problem(400, "body-invalid", "no", "after-fix");
    world.send(&numbered(1, 1)).is_executed(200);
}

#[test]
fn a_damaged_row_of_a_session_makes_its_request_unavailable_and_runs_nothing() {
    for (damage, call) in [
        ("UPDATE semel_places SET status = 999", numbered(1, 1)),
        ("UPDATE semel_sessions SET epochs = x'00'", take_over("b")),
    ] {
        let mut world = world();
        world.send(&numbered(1, 1)).is_executed(200);
        world.database.tamper(damage);
        world.send(&call).is_problem(503, "unavailable", "unknown", "same-id");
        assert_eq!(world.effects(), 1);
    }
}
