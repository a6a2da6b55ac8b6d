//! *Order of checks* in the protocol: authenticate, parse, key rule, record, fingerprint and principal, fence, deadline.

use semel_core::server::edge::router::Route;
use semel_support::call::control;
use semel_support::{Call, Reply, START_MS, START_S, World, acknowledge, cancel, get, post};

const RETENTION_S: i64 = 1000;

fn world() -> World {
    World::with(|config| config.retention_s = RETENTION_S)
}

fn change(id: &str) -> Call {
    post("/count").id(id)
}

/// The same request, past its deadline and first sent before any fence.
fn late(call: Call) -> Call {
    call.first_sent_s(1).deadline_ms(1)
}

#[track_caller]
fn asked(world: &mut World, call: &Call) -> String {
    world.send(call).only("semel-status").to_owned()
}

#[track_caller]
fn refused_by_router(world: &World, call: &Call) -> String {
    match world.route(call) {
        Route::Answer(answer) => Reply::checked(answer).only("semel-status").to_owned(),
        object => panic!("{object:?}"),
    }
}

#[test]
fn authentication_comes_before_parsing() {
    let closed = World::with(|config| config.open = false);
    let malformed = post("/a//b").header("idempotency-key", "a, b").header("semel-key", "k");
    assert_eq!(refused_by_router(&closed, &malformed), "unauthorized");
    assert_eq!(refused_by_router(&World::new(), &malformed.header("semel-principal", "\"bob\"")), "forbidden");
}

#[test]
fn parsing_comes_before_the_key_rule() {
    let world = World::new();
    let ruled = post("/keyed/k1").header("semel-key", "\"k2\"");
    assert_eq!(refused_by_router(&world, &ruled), "key-missing");
    assert_eq!(refused_by_router(&world, &ruled.clone().id("a").header("semel-deadline", "soon")), "key-invalid");
    assert_eq!(refused_by_router(&world, &ruled.clone().id("a").header("semel-ack", "a")), "key-invalid");
    assert_eq!(refused_by_router(&world, &ruled.id("a")), "key-mismatch");
    assert_eq!(refused_by_router(&world, &post("/unhandled").id("a").header("semel-deadline", "soon")), "key-invalid");
}

#[test]
fn parsing_comes_before_the_record() {
    let mut world = world();
    world.send(&change("a")).is_executed(200);
    assert_eq!(asked(&mut world, &change("a").header("semel-deadline", "soon")), "key-invalid");
    assert_eq!(asked(&mut world, &change("a").header("semel-first-sent", "1")), "key-invalid");
    assert_eq!(asked(&mut world, &change("a").header("semel-ack", "a")), "key-invalid");
    assert_eq!(asked(&mut world, &change("a").too_large()), "too-large");
    assert_eq!(asked(&mut world, &post(&control("cancel")).id("a").body("{}")), "body-invalid");
}

#[test]
fn headers_are_parsed_before_the_body() {
    let mut world = world();
    let malformed = change("a").header("semel-deadline", "soon").too_large();
    assert_eq!(asked(&mut world, &malformed), "key-invalid");
    assert_eq!(asked(&mut world, &acknowledge("1").header("semel-deadline", "soon")), "key-invalid");
}

#[test]
fn an_executed_id_is_replayed_even_past_its_deadline_and_the_fence() {
    let mut world = world();
    let first = world.send(&change("a").first_sent_s(START_S).deadline_ms(START_MS));
    world.pass_s(RETENTION_S);
    world.send(&late(change("a"))).replays(&first);
    assert_eq!((world.calls(), world.effects()), (1, 1));
}

#[test]
fn acknowledged_cancelled_and_poisoned_are_answered_before_the_fence_and_the_deadline() {
    let mut world = world();
    world.send(&change("acknowledged"));
    world.send(&acknowledge("[\"acknowledged\"]"));
    world.send(&cancel("own", "cancelled").body(format!("{{\"id\":\"cancelled\",\"firstSent\":{START_S}}}")));
    (0..3).for_each(|_| drop(world.crashed(&change("poisoned"))));
    for id in ["acknowledged", "cancelled", "poisoned"] {
        assert_eq!(asked(&mut world, &late(change(id))), id);
    }
}

#[test]
fn a_mismatch_comes_before_the_fence_and_the_deadline() {
    let mut world = world();
    world.send(&change("a"));
    assert_eq!(asked(&mut world, &late(change("a").body("other"))), "fingerprint-mismatch");
    assert_eq!(asked(&mut world, &late(change("a").by("mallory"))), "fingerprint-mismatch");
}

#[test]
fn another_principal_gets_fingerprint_mismatch_whatever_became_of_an_id() {
    let mut world = world();
    world.send(&change("acknowledged"));
    world.send(&acknowledge("[\"acknowledged\"]"));
    world.send(&cancel("own", "cancelled").body(format!("{{\"id\":\"cancelled\",\"firstSent\":{START_S}}}")));
    (0..3).for_each(|_| drop(world.crashed(&change("poisoned"))));
    for id in ["acknowledged", "cancelled", "poisoned"] {
        assert_eq!(asked(&mut world, &change(id).by("mallory")), "fingerprint-mismatch", "{id}");
    }
}

#[test]
fn the_fence_comes_before_the_deadline() {
    let mut world = world();
    assert_eq!(asked(&mut world, &late(change("a"))), "outside-window");
    assert_eq!(asked(&mut world, &late(cancel("own", "a"))), "outside-window");
}

#[test]
fn the_deadline_comes_before_the_capacity_and_the_handler() {
    let mut world = World::with(|config| config.records_max = 1);
    world.send(&change("a"));
    assert_eq!(asked(&mut world, &change("b").deadline_ms(1)), "attempt-expired");
    assert_eq!(asked(&mut world, &change("b")), "capacity");
    assert_eq!(asked(&mut world, &post("/not-found").id("b").deadline_ms(1)), "attempt-expired");
    assert_eq!(world.calls(), 1);
}

#[test]
fn a_read_needs_no_id_and_runs_even_past_its_deadline_and_the_fence() {
    let mut world = world();
    world.send(&late(get("/count"))).is_read(200);
}

#[test]
fn a_malformed_acknowledgement_refuses_the_request_applies_nothing_and_names_no_key() {
    let mut world = world();
    world.send(&change("a"));
    for acks in ["a", "\"a\", b", "\"a\";until=x", "\"a\";other=1", "(\"a\")", &vec!["\"a\""; 65].join(", ")] {
        let reply = world.send(&change("b").header("semel-ack", acks));
        reply.is_problem(400, "key-invalid", "no", "after-fix");
        assert_eq!(reply.header("semel-key"), None, "the client must not take {acks} as done");
    }
    assert_eq!(asked(&mut world, &change("a")), "replayed", "none was applied in part");
    assert_eq!(asked(&mut world, &change("b")), "executed");
    let sixty_four = (0..64).fold(get("/count"), |call, n| call.ack(&format!("unknown-{n}")));
    assert!(world.send(&sixty_four).header("semel-key").is_some());
}
