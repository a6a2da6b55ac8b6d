//! The rows of the code table, as the engine of a key answers them.

use semel_core::server::Config;
use semel_support::world::{Got, KEY};
use semel_support::{Req, World};

/// Sends a request that must be refused, and checks that nothing happened but the refusal.
fn refused(world: &mut World, request: &Req) -> String {
    let before = world.effects();
    let got = world.send(request);
    assert_eq!(world.effects(), before, "the handler left something");
    assert_eq!(got.header("semel-key"), format!("\"{KEY}\""));
    assert_eq!(got.header("semel-now"), world.now_ms.to_string());
    got.problem()
}

fn executed(world: &mut World, request: &Req) -> Got {
    let before = world.effects();
    let got = world.send(request);
    assert_eq!(got.semel(), "executed", "{}", got.text());
    assert_eq!(world.effects(), before + 1);
    got
}

#[test]
fn a_change_without_an_id_is_key_missing() {
    assert_eq!(refused(&mut World::default(), &Req::new("POST", "/tally")), "400 key-missing no after-fix");
}

#[test]
fn a_malformed_header_is_key_invalid() {
    let mut world = World::default();
    let now_s = world.now_s();
    for request in [
        Req::change("two, ids"),
        Req::change("a").header("semel-deadline", "soon"),
        Req::change("a").deadline(world.now_ms + 120_001),
        Req::change("a").first_sent(now_s + 121),
        Req::change("a").header("semel-session", "\"s\";epoch=1;seq=1"),
    ] {
        assert_eq!(refused(&mut world, &request), "400 key-invalid no after-fix");
    }
}

#[test]
fn a_malformed_acknowledgement_is_key_invalid_and_tells_of_no_key() {
    let got = World::default().send(&Req::change("a").ack("unquoted"));
    assert_eq!(got.problem(), "400 key-invalid no after-fix");
    assert_eq!(got.header("semel-key"), "", "the client must not take its acknowledgements as done");
}

#[test]
fn a_malformed_control_body_is_body_invalid() {
    let mut world = World::default();
    for body in [
        "",
        "[]",
        "{}",
        "{\"ids\":[1]}",
        "{\"ids\":[\"\"]}",
        "{\"ids\":[{\"id\":\"a\",\"until\":-1}]}",
        "{\"ids\":[],\"x\":1}",
    ] {
        assert_eq!(
            refused(&mut world, &Req::control("POST", "acks").body(body)),
            "400 body-invalid no after-fix",
            "{body}"
        );
    }
    let too_many = format!("{{\"ids\":[{}]}}", vec!["\"a\""; 257].join(","));
    assert_eq!(refused(&mut world, &Req::control("POST", "acks").body(too_many)), "400 body-invalid no after-fix");
    for body in [
        "",
        "{}",
        "[\"a\"]",
        "{\"id\":\"own\"}",
        "{\"id\":\"a\",\"firstSent\":1.5}",
        "{\"session\":{}}",
        "{\"id\":\"a\",\"firstSent\":1800000121}",
    ] {
        let request = Req::cancel("own", "a").body(body);
        assert_eq!(refused(&mut world, &request), "400 body-invalid no after-fix", "{body}");
    }
}

#[test]
fn a_path_that_the_handler_does_not_know_is_not_found_and_not_recorded() {
    let mut world = World::default();
    assert_eq!(refused(&mut world, &Req::at("a", "/nowhere")), "404 not-found no after-fix");
    executed(&mut world, &Req::change("a"));
}

#[test]
fn an_id_that_was_never_seen_is_not_seen() {
    assert_eq!(refused(&mut World::default(), &Req::control("GET", "outcomes/a")), "404 not-seen unknown same-id");
}

#[test]
fn a_deadline_in_the_past_is_attempt_expired() {
    let mut world = World::default();
    let past = Req::change("a").deadline(world.now_ms - 1);
    assert_eq!(refused(&mut world, &past), "408 attempt-expired no same-id");
    let now = world.now_ms;
    executed(&mut world, &Req::change("a").deadline(now));
}

#[test]
fn a_cancelled_id_never_runs() {
    let mut world = World::default();
    assert_eq!(world.send(&Req::cancel("own", "a")).text(), "{\"state\":\"cancelled\"}");
    assert_eq!(refused(&mut world, &Req::change("a")), "410 cancelled no never");
}

#[test]
fn an_acknowledged_id_never_runs_and_says_whether_it_ran() {
    let mut world = World::default();
    executed(&mut world, &Req::change("a"));
    world.send(&Req::read("/tally").ack("\"a\""));
    assert_eq!(refused(&mut world, &Req::change("a")), "410 acknowledged yes never");
    for _ in 0..3 {
        world.crashed(&Req::change("p"));
    }
    world.send(&Req::read("/tally").ack("\"p\""));
    assert_eq!(refused(&mut world, &Req::change("p")), "410 acknowledged no never");
}

#[test]
fn an_outcome_that_is_no_longer_kept_is_outcome_expired() {
    let mut world = World::default();
    executed(&mut world, &Req::change("a"));
    world.pass_s(world.config.retention_s + 1);
    executed(&mut world, &Req::change("b"));
    assert_eq!(refused(&mut world, &Req::change("a")), "410 outcome-expired yes never");
}

#[test]
fn what_was_first_sent_before_the_fence_is_outside_the_window() {
    let mut world = World::default();
    let fence_s = world.now_s() - world.config.retention_s;
    assert_eq!(refused(&mut world, &Req::change("a").first_sent(fence_s - 1)), "412 outside-window unknown never");
    executed(&mut world, &Req::change("b").first_sent(fence_s));
}

#[test]
fn a_body_that_is_too_large_is_too_large() {
    assert_eq!(refused(&mut World::default(), &Req::change("a").too_large()), "413 too-large no after-fix");
}

#[test]
fn the_same_id_with_anything_else_is_a_mismatch() {
    let mut world = World::default();
    let request = Req::change("a").header("content-type", "text/plain").body("body");
    executed(&mut world, &request);
    for other in [
        request.clone().body("other"),
        request.clone().path("/tally?x"),
        request.clone().method("PUT"),
        Req::change("a").header("content-type", "text/html").body("body"),
        request.clone().header("content-encoding", "gzip"),
        request.clone().by("mallory"),
    ] {
        assert_eq!(refused(&mut world, &other), "422 fingerprint-mismatch no after-fix");
    }
    assert_eq!(world.send(&request).semel(), "replayed");
}

#[test]
fn what_fails_or_is_no_outcome_is_rolled_back_and_runs_again() {
    let mut world = World::default();
    for path in [
        "/fail",
        "/bad-sql",
        "/status/500",
        "/status/302",
        "/status/199",
        "/body-and-status/204",
        "/body-and-status/205",
        "/large/1048577",
        "/large-header/65530",
        "/many-headers/257",
        "/header/x/a%20",
        "/header/bad%20name/x",
    ] {
        assert_eq!(refused(&mut world, &Req::at("a", path)), "500 rolled-back no same-id", "{path}");
    }
    executed(&mut world, &Req::change("a"));
    assert_eq!(world.rows(), 1);
}

#[test]
fn the_reason_of_a_rollback_is_in_the_log_and_not_in_the_answer() {
    let got = World::default().send(&Req::at("a", "/bad-sql"));
    assert!(got.0.log.as_deref().is_some_and(|log| log.contains("nowhere")));
    assert!(!got.text().contains("nowhere"));
}

#[test]
fn the_third_crash_of_an_id_is_poisoned_for_good() {
    let mut world = World::default();
    for _ in 0..2 {
        assert_eq!(world.crashed(&Req::change("a")).problem(), "500 rolled-back no same-id");
        world.restart();
    }
    assert_eq!(world.crashed(&Req::change("a")).problem(), "410 poisoned no never");
    assert_eq!(refused(&mut world, &Req::change("a")), "410 poisoned no never");
    assert_eq!(refused(&mut world, &Req::change("a").body("other")), "422 fingerprint-mismatch no after-fix");
    executed(&mut world, &Req::change("b"));
}

#[test]
fn a_key_full_of_unacknowledged_records_refuses_new_work_and_keeps_all_it_has() {
    let mut world = World::with(Config { open: true, records_max: 2, ..Config::default() });
    executed(&mut world, &Req::change("a"));
    executed(&mut world, &Req::change("b"));
    let full = world.send(&Req::change("c"));
    assert_eq!(full.problem(), "503 capacity no same-id");
    assert_eq!(full.header("retry-after"), "1");
    assert_eq!(world.effects(), 2);
    assert_eq!(world.send(&Req::change("a")).semel(), "replayed");
    world.restart();
    assert_eq!(refused(&mut world, &Req::change("c")), "503 capacity no same-id", "counts are rebuilt");
    // The refusal brings the acknowledgement that makes room.
    assert_eq!(refused(&mut world, &Req::change("c").ack("\"a\"")), "503 capacity no same-id");
    executed(&mut world, &Req::change("c"));
}

#[test]
fn a_key_full_of_tombstones_refuses_new_work() {
    let mut world = World::with(Config { open: true, tombstones_max: 1, ..Config::default() });
    world.send(&Req::cancel("own", "x"));
    assert_eq!(refused(&mut world, &Req::change("a")), "503 capacity no same-id");
}

#[test]
fn storage_that_fails_is_unavailable_and_nothing_is_kept_in_memory() {
    let mut world = World::default();
    executed(&mut world, &Req::change("a"));
    world.database.crash_before(1);
    let got = world.send(&Req::change("b"));
    assert_eq!(got.problem(), "503 unavailable unknown same-id");
    assert_eq!(got.header("semel-key"), "", "nothing is known of the acknowledgements");
    assert_eq!(got.header("retry-after"), "1");
    world.database.reopen();
    assert_eq!(world.send(&Req::change("a")).semel(), "replayed");
    executed(&mut world, &Req::change("b"));
}

#[test]
fn a_database_of_a_newer_version_is_refused_with_a_clear_line_in_the_log() {
    for column in ["engine_version", "handler_version"] {
        let mut world = World::default();
        executed(&mut world, &Req::change("a"));
        world.database.number(&format!("UPDATE semel_meta SET {column} = 99 RETURNING 1"));
        world.restart();
        let got = world.send(&Req::change("b"));
        assert_eq!(got.problem(), "503 unavailable unknown same-id");
        assert!(got.0.log.is_some_and(|log| log.contains("have version 99")));
        assert_eq!(world.effects(), 1);
    }
}
