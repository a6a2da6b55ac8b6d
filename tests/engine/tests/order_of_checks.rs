//! *Order of checks*: parse, record, fingerprint and principal, fence, deadline. What comes before these is the router's.

use semel_support::{Req, World};

#[test]
fn an_executed_id_replays_however_late_the_attempt() {
    let mut world = World::default();
    let first = world.send(&Req::change("a").first_sent(world.now_s()));
    world.pass_s(world.config.retention_s);
    // Past its deadline, and first sent before the fence.
    let late =
        Req::change("a").deadline(world.now_ms - 50_000).first_sent(world.now_s() - world.config.retention_s - 100);
    let again = world.send(&late);
    assert_eq!(again.semel(), "replayed");
    assert_eq!(again.outcome(), first.outcome());
    assert_eq!(world.effects(), 1);
}

#[test]
fn parsing_comes_before_the_record() {
    let mut world = World::default();
    world.send(&Req::change("a"));
    assert_eq!(world.send(&Req::change("a").header("semel-deadline", "soon")).semel(), "key-invalid");
    assert_eq!(world.send(&Req::change("a").too_large()).semel(), "too-large");
}

#[test]
fn the_body_of_a_cancellation_is_parsed_before_its_deadline_is_checked() {
    let mut world = World::default();
    let request = Req::cancel("own", "a").body("nonsense").deadline(world.now_ms - 1);
    assert_eq!(world.send(&request).semel(), "body-invalid");
}

#[test]
fn a_mismatch_comes_before_the_fence_and_the_deadline() {
    let mut world = World::default();
    world.send(&Req::change("a"));
    let request = Req::change("a").body("other").first_sent(1).deadline(1);
    assert_eq!(world.send(&request).semel(), "fingerprint-mismatch");
}

#[test]
fn the_fence_comes_before_the_deadline() {
    let mut world = World::default();
    assert_eq!(world.send(&Req::change("a").first_sent(1).deadline(1)).semel(), "outside-window");
}

#[test]
fn the_deadline_comes_before_the_capacity() {
    let mut world = World::default();
    world.config.records_max = 1;
    world.restart();
    world.send(&Req::change("a"));
    assert_eq!(world.send(&Req::change("b").deadline(1)).semel(), "attempt-expired");
    assert_eq!(world.send(&Req::change("b")).semel(), "capacity");
}

#[test]
fn a_refused_attempt_leaves_the_id_free_for_the_next() {
    let mut world = World::default();
    world.send(&Req::change("a").deadline(1));
    assert_eq!(world.send(&Req::change("a").body("mended")).semel(), "executed");
}
