//! Outcomes, reads, cancellations and look-ups.

use semel_support::call::control;
use semel_support::*;

fn change(id: &str) -> Call {
    post("/count").id(id)
}

#[test]
fn every_attempt_gets_the_first_outcome_byte_for_byte() {
    let mut world = World::new();
    for path in ["/count", "/headers", "/status/404", "/status/204", "/large/1048576"] {
        let call = post(path).id(path).header("x-answer-x-own", "1");
        let first = world.send(&call);
        assert_eq!(first.only("semel-status"), "executed");
        world.pass_s(5);
        world.restart();
        world.send(&call).replays(&first);
    }
    let binary: Vec<u8> = (0..=255).collect();
    let echo = post("/echo").id("binary").body(binary.clone());
    assert_eq!(world.send(&echo).body(), binary);
    assert_eq!(world.send(&echo).body(), binary);
    assert_eq!(world.effects(), 6);
}

#[test]
fn only_the_handlers_own_headers_are_recorded() {
    let mut call = post("/headers").id("a");
    for (name, value) in [
        ("x-twice", "one"),
        ("x-twice", "two"),
        ("x-empty", ""),
        ("connection", "x-hop"),
        ("connection", "X-Hop-Too, close"),
        ("x-hop", "1"),
        ("x-hop-too", "1"),
        ("set-cookie", "a=b"),
        ("date", "now"),
        ("server-timing", "x"),
        ("semel-status", "forged"),
        ("idempotent-replayed", "forged"),
        ("access-control-allow-origin", "evil"),
        ("keep-alive", "1"),
        ("proxy-authenticate", "Basic"),
        ("proxy-authorization", "Basic YTpi"),
        ("proxy-connection", "close"),
        ("te", "trailers"),
        ("trailer", "x-own"),
        ("upgrade", "h2c"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("cache-control", "max-age=1"),
    ] {
        call = call.header(&format!("x-answer-{name}"), value);
    }
    let got = World::new().send(&call);
    let own = [("x-twice", "one"), ("x-twice", "two"), ("x-empty", ""), ("cache-control", "max-age=1")];
    assert_eq!(got.recorded_headers(), own);
    assert_eq!(got.only("semel-status"), "executed");
    assert_eq!(got.only("access-control-allow-origin"), "*");
    let layer = "Semel-Status, Semel-Now, Idempotent-Replayed, Semel-Key, Semel-Expires, Semel-Offset, Retry-After";
    assert_eq!(
        got.only("access-control-expose-headers"),
        format!("{layer}, x-twice, x-twice, x-empty, cache-control"),
        "each header of the answer is named, and none twice that is the layer's"
    );
}

#[test]
fn an_outcome_has_cache_control_no_store_if_the_handler_sets_none() {
    assert_eq!(World::new().send(&change("a")).only("cache-control"), "no-store");
}

#[test]
fn a_read_sees_what_is_committed_and_what_it_writes_is_undone() {
    let mut world = World::new();
    world.send(&change("a"));
    let got = world.send(&get("/count"));
    assert_eq!((got.only("semel-status"), got.header("semel-expires")), ("read", None));
    assert_eq!(world.effects(), 1);
    assert_eq!(world.rows(), 1);
    let head = world.send(&head("/count"));
    assert_eq!((head.status(), head.only("semel-status"), head.body().len()), (200, "read", 0));
    for none in [503, 0, 101, 199, 600, 999] {
        assert_eq!(world.send(&get(&format!("/status/{none}"))).only("semel-status"), "rolled-back", "{none}");
    }
    assert_eq!(world.send(&get("/status/304")).status(), 304);
    assert_eq!(world.send(&get("/not-found")).only("semel-status"), "not-found");
}

#[test]
fn a_handlers_header_that_can_not_be_sent_rolls_the_request_back() {
    let mut world = World::new();
    for (n, (name, value, is_sent)) in [
        ("x-own", "a\tb", true),
        ("x-own", "\u{e9}", true),
        ("x-own", "a\u{7f}", false),
        ("x-own", "\u{20ac}", false),
        ("x-own", "a\u{1}", false),
        ("", "a", false),
        ("x own", "a", false),
    ]
    .into_iter()
    .enumerate()
    {
        let got = world.send(&post("/headers").id(&n.to_string()).header(&format!("x-answer-{name}"), value));
        let status = if is_sent { "executed" } else { "rolled-back" };
        assert_eq!(got.only("semel-status"), status, "{name:?} {value:?}");
    }
}

#[test]
fn requests_that_record_nothing_create_no_tables_at_an_unused_key() {
    let mut world = World::new();
    for request in [
        get("/count").ack("a"),
        look_up("a"),
        post(&control("acks")).body("{\"ids\":[\"a\"]}"),
        post("/count"),
        change("a").deadline_ms(1),
        post("/not-found").id("a"),
    ] {
        world.send(&request);
        assert!(world.database.tables().is_empty());
    }
}

#[test]
fn a_read_that_crashes_is_rolled_back_and_recorded_nowhere() {
    let mut world = World::new();
    for _ in 0..5 {
        world.crashed(&get("/count")).is_problem(500, "rolled-back", "no", "same-id");
    }
    assert_eq!(world.rows(), 0);
}

#[test]
fn a_look_up_replays_the_outcome_and_runs_nothing() {
    let mut world = World::new();
    let first = world.send(&post("/headers").id("a/b"));
    let found = world.send(&look_up("a%2Fb"));
    assert_eq!((found.only("semel-status"), found.only("idempotent-replayed")), ("replayed", "true"));
    found.replays(&first);
    assert_eq!(world.effects(), 1);
}

#[test]
fn a_look_up_by_another_principal_is_not_seen_whether_the_id_exists_or_not() {
    let mut world = World::new();
    let unknown = world.send(&look_up("a").by("mallory"));
    world.send(&change("a"));
    assert_eq!(world.send(&look_up("a").by("mallory")), unknown);
    assert_eq!(unknown.only("semel-status"), "not-seen");
}

#[test]
fn a_look_up_of_an_id_without_an_outcome_gets_its_problem() {
    let mut world = World::new();
    world.send(&change("acknowledged"));
    world.send(&cancel("own", "cancelled").ack("acknowledged"));
    (0..3).for_each(|_| drop(world.crashed(&change("poisoned"))));
    for code in ["acknowledged", "cancelled", "poisoned"] {
        assert_eq!(world.send(&look_up(code)).only("semel-status"), code);
    }
    world.crashed(&change("crashed-once"));
    assert_eq!(world.send(&look_up("crashed-once")).only("semel-status"), "not-seen");
}

#[test]
fn a_cancellation_is_recorded_like_any_change() {
    let mut world = World::new();
    let first = world.send(&cancel("own", "a"));
    assert_eq!((first.status(), first.only("semel-status")), (200, "executed"));
    let again = world.send(&cancel("own", "a"));
    assert_eq!(again.only("semel-status"), "replayed");
    again.replays(&first);
    assert_eq!(world.send(&cancel("own", "b")).only("semel-status"), "fingerprint-mismatch");
    assert_eq!(world.send(&cancel("another", "a")).text(), "{\"state\":\"cancelled\"}");
    assert_eq!(world.send(&change("a")).only("semel-status"), "cancelled");
    assert_eq!(world.send(&change("b")).only("semel-status"), "executed");
}

#[test]
fn a_cancellation_that_comes_too_late_gets_the_outcome_and_that_answer_is_replayed() {
    let mut world = World::new();
    let outcome = world.send(&change("a"));
    let late = world.send(&cancel("own", "a").deadline_ms(world.wall_ms));
    let body: Vec<_> = ["\"state\":\"executed\"", "\"status\":200", "\"cache-control\":\"no-store\""].to_vec();
    assert!(body.iter().all(|part| late.text().contains(part)), "{}", late.text());
    assert_eq!(late.json()["outcome"]["body"], outcome.text());
    world.send(&get("/count").ack("a"));
    world.send(&cancel("own", "a")).replays(&late);
    world.send(&cancel("another", "a")).is_problem(410, "acknowledged", "yes", "never");
    assert_eq!(world.effects(), 1);
}

#[test]
fn the_largest_outcome_fits_into_the_answer_to_its_cancellation() {
    let mut world = World::new();
    let mut echo = post("/headers").id("headers");
    for n in 0..250 {
        echo = echo.header(&format!("x-answer-x-{n}"), "\"".repeat(25));
    }
    for (id, call, part) in [
        ("bytes", post("/echo").id("bytes").body(vec![0xff; 1 << 20]), "{\"base64\":\"////"),
        ("controls", post("/echo").id("controls").body(vec![1; 1 << 20]), "{\"base64\":\"AQEB"),
        ("quotes", post("/echo").id("quotes").body(vec![b'"'; 1 << 20]), "{\"base64\":\"IiIi"),
        ("slashes", post("/echo").id("slashes").body(vec![b'\\'; 1 << 20]), "{\"base64\":\"XFxc"),
        ("spaces", post("/echo").id("spaces").body(vec![b' '; 1 << 20]), "\"body\":\"    "),
        ("text", post("/large/1048576").id("text"), "\"body\":\"xxxx"),
        ("headers", echo, "\"x-249\":"),
    ] {
        world.send(&call);
        let late = world.send(&cancel(&format!("cancel-{id}"), id));
        late.is_executed(200);
        assert!(late.text().contains(part), "{id}");
    }
}

#[test]
fn a_cancellation_is_refused_like_a_change_and_a_refused_one_leaves_its_own_id_free() {
    let mut world = World::new();
    world.send(&cancel("one", "a").deadline_ms(START_MS - 1)).is_problem(408, "attempt-expired", "no", "same-id");
    let before_fence = cancel("two", "a").body("{\"id\":\"a\",\"firstSent\":1}");
    world.send(&before_fence).is_problem(412, "outside-window", "unknown", "never");
    assert_eq!(world.send(&change("a")).only("semel-status"), "executed", "neither has cancelled");
    assert_eq!(world.send(&cancel("three", "a").by("mallory")).only("semel-status"), "fingerprint-mismatch");
    (0..3).for_each(|_| drop(world.crashed(&change("p"))));
    world.send(&cancel("four", "p")).is_problem(410, "poisoned", "no", "never");
    assert_eq!(world.send(&cancel("five", "a").body("{\"id\":\"five\"}")).only("semel-status"), "body-invalid");
    // A problem is not recorded, so the cancellation can still be made under the same id.
    assert_eq!(world.send(&cancel("one", "b")).only("semel-status"), "executed");
}
