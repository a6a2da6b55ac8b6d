//! Cumulative acknowledgements: what they free, and what they never do.

use semel_support::{START_MS, World, acknowledge, cancel_place, get, numbered, post, take_over};

fn world() -> World {
    World::new().in_session()
}

/// Takes the places with these seqs, without acknowledging any.
fn take_all(world: &mut World, epoch: i64, numbers: std::ops::RangeInclusive<i64>) {
    for seq in numbers {
        world.send(&numbered(epoch, seq)).is_executed(200);
    }
}

#[test]
fn acknowledged_places_are_freed_and_their_numbers_are_refused_as_acknowledged() {
    let mut world = world();
    take_all(&mut world, 1, 1..=3);
    let third = world.send(&numbered(1, 3));
    world.send(&post("/count").place_acking(1, 4, 2)).is_executed(200);
    assert_eq!(world.places(), [(3, 1, 1, true), (4, 1, 1, true)]);
    for seq in [1, 2] {
        world.send(&numbered(1, seq)).is_problem(410, "acknowledged", "unknown", "never");
    }
    world.send(&numbered(1, 3)).replays(&third);
    assert_eq!(world.effects(), 4);
}

#[test]
fn the_last_place_keeps_its_row_without_the_outcome_and_the_session_goes_on_after_it() {
    let mut world = world();
    take_all(&mut world, 1, 1..=2);
    // They are acknowledged by a request that takes no place.
    world.send(&post("/count").place_acking(1, 9, 8)).is_gap(3);
    assert_eq!(world.places(), [(2, 1, 5, false)]);
    world.restart();
    for seq in [1, 2] {
        world.send(&numbered(1, seq)).is_problem(410, "acknowledged", "unknown", "never");
    }
    world.send(&take_over("b")).is_taken_over(2, 2);
    world.send(&numbered(2, 3)).is_executed(200);
    assert_eq!(world.places(), [(3, 2, 1, true)]);
    world.send(&numbered(1, 2)).is_problem(410, "acknowledged", "unknown", "never");
    assert_eq!(world.effects(), 3);
}

#[test]
fn the_ack_of_a_session_is_applied_with_refusals_and_replays_too() {
    for (seq, ack, with) in [(9, 2, "a gap"), (3, 2, "a replay")] {
        let mut world = world();
        take_all(&mut world, 1, 1..=3);
        world.send(&post("/count").place_acking(1, seq, ack));
        assert_eq!(world.places(), [(3, 1, 1, true)], "{with}");
    }
    let mut world = world();
    take_all(&mut world, 1, 1..=3);
    let mismatch = post("/count").body("other").place_acking(1, 3, 1);
    world.send(&mismatch).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
    assert_eq!(world.places().len(), 2);
    let late = post("/count").place_acking(1, 4, 2).deadline_ms(0);
    world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
    assert_eq!(world.places().len(), 1);
    let mut world = self::world();
    take_all(&mut world, 1, 1..=3);
    let ahead = post("/count").place_acking(1, 4, 2).deadline_ms(START_MS + 600_000);
    world.send(&ahead).is_problem(400, "key-invalid", "no", "after-fix");
    assert_eq!(world.places().len(), 1, "a clock that is wrong keeps no outcomes");
    world.handler.trouble.set(semel_support::Trouble::Fails);
    world.send(&post("/count").place_acking(1, 4, 3)).is_problem(500, "rolled-back", "no", "same-id");
    assert_eq!(world.places(), [(3, 1, 5, false)]);
}

#[test]
fn the_ack_of_a_session_never_goes_back_and_not_beyond_the_places_taken() {
    let mut world = world();
    take_all(&mut world, 1, 1..=3);
    world.send(&post("/count").place_acking(1, 500, 499)).is_gap(4);
    take_all(&mut world, 1, 4..=5);
    assert_eq!(world.places(), [(4, 1, 1, true), (5, 1, 1, true)], "nothing was acknowledged ahead");
    world.send(&post("/count").place_acking(1, 5, 1)).is_replayed(200);
    world.send(&numbered(1, 3)).is_problem(410, "acknowledged", "unknown", "never");
    let rows = world.database.rows_written();
    world.send(&post("/count").place_acking(1, 5, 3)).is_replayed(200);
    assert_eq!(world.database.rows_written(), rows, "again it changes nothing");
}

#[test]
fn the_ack_of_an_earlier_epoch_changes_nothing() {
    let mut world = world();
    take_all(&mut world, 1, 1..=2);
    world.send(&take_over("b")).is_taken_over(2, 2);
    world.send(&post("/count").place_acking(1, 2, 1)).is_replayed(200);
    world.send(&post("/count").place_acking(1, 3, 2)).is_fenced("no", 2);
    assert_eq!(world.places().len(), 2);
    world.send(&post("/count").place_acking(2, 3, 2)).is_executed(200);
    assert_eq!(world.places(), [(3, 2, 1, true)]);
}

#[test]
fn a_session_with_64_unacknowledged_places_refuses_the_next_as_capacity() {
    let mut world = world();
    take_all(&mut world, 1, 1..=64);
    for call in [numbered(1, 65), cancel_place("a", 1, 65)] {
        world.send(&call).is_problem(503, "capacity", "no", "same-id");
    }
    world.send(&numbered(1, 66)).is_gap(65);
    // The request acknowledges, and so makes room for itself.
    world.send(&post("/count").place_acking(1, 65, 1)).is_executed(200);
    world.send(&numbered(1, 66)).is_problem(503, "capacity", "no", "same-id");
    assert_eq!(world.places().len(), 64);
}

/// The test follows RIFL's tracker of what a client has: the client names its first incomplete request, and everything below is
/// done. It was written from the paper (Lee et al., SOSP 2015, 4.4 "Garbage collection").
#[test]
fn rifl_the_first_incomplete_number_frees_all_below_and_none_above() {
    // Answers come in another order than requests. For requests 1 to 6: the answers that the client has by then, and its first
    // incomplete request.
    for (in_hand, first_incomplete) in
        [(&[][..], 1), (&[2, 3], 1), (&[1, 3], 2), (&[1, 2, 4, 6], 3), (&[1, 2, 3, 4, 5], 6), (&[1, 2, 3, 4, 5, 6], 7)]
    {
        let found = (1..).find(|seq| !in_hand.contains(seq)).expect("a number");
        assert_eq!(found, first_incomplete);
        let mut world = world();
        take_all(&mut world, 1, 1..=6);
        world.send(&post("/count").place_acking(1, 7, first_incomplete - 1)).is_executed(200);
        for seq in 1..=6 {
            let reply = world.send(&numbered(1, seq));
            if seq < first_incomplete {
                reply.is_problem(410, "acknowledged", "unknown", "never");
            } else {
                reply.is_replayed(200);
            }
        }
        assert_eq!(world.effects(), 7);
    }
}

#[test]
fn rifl_a_request_that_comes_after_its_acknowledgement_does_not_run() {
    let mut world = world();
    take_all(&mut world, 1, 1..=2);
    world.send(&post("/count").place_acking(1, 3, 2)).is_executed(200);
    world.restart();
    // Both were sent before; one acknowledges less than is known by now.
    world.send(&post("/count").place_acking(1, 2, 1)).is_problem(410, "acknowledged", "unknown", "never");
    world.send(&numbered(1, 1)).is_problem(410, "acknowledged", "unknown", "never");
    assert_eq!((world.effects(), world.places().len()), (3, 1));
}

#[test]
fn the_ack_of_a_session_is_applied_though_the_body_is_too_large() {
    let mut world = World::new();
    let too_large = |epoch: i64, principal: &str| post("/count").place_acking(epoch, 4, 2).by(principal).too_large();
    world.send(&too_large(1, "alice")).is_problem(413, "too-large", "no", "after-fix");
    assert_eq!(world.database.tables(), Vec::<String>::new(), "an untouched key stays untouched");
    let mut world = World::new().in_session();
    for seq in 1..=3 {
        world.send(&numbered(1, seq)).is_executed(200);
    }
    for (epoch, principal, kept) in [(1, "mallory", 3), (2, "alice", 3), (1, "alice", 1)] {
        world.send(&too_large(epoch, principal)).is_problem(413, "too-large", "no", "after-fix");
        assert_eq!(world.places().len(), kept, "{epoch} {principal}");
    }
    world.send(&numbered(1, 2)).is_problem(410, "acknowledged", "unknown", "never");
    world.send(&numbered(1, 4)).is_executed(200);
}

#[test]
fn a_cancelled_place_replaces_the_row_of_the_last_acknowledged_one() {
    let mut world = world();
    take_all(&mut world, 1, 1..=2);
    world.send(&post("/count").place_acking(1, 3, 2).deadline_ms(0)).is_problem(
        408,
        "attempt-expired",
        "no",
        "same-id",
    );
    assert_eq!(world.send(&cancel_place("a", 1, 3)).json()["state"], "cancelled");
    let places: Vec<_> = world.places().into_iter().map(|place| place.0).collect();
    assert_eq!(places, [3]);
    world.send(&numbered(1, 2)).is_problem(410, "acknowledged", "unknown", "never");
}

#[test]
fn a_refused_read_or_control_request_with_a_session_header_acknowledges_no_place() {
    let calls = [
        ("a control request that is too large", acknowledge("[]").too_large()),
        ("a control request that is malformed", acknowledge("[]").header("semel-first-sent", "soon")),
        ("a read that is malformed", get("/count").header("semel-first-sent", "soon")),
        ("a read that is too large", get("/count").too_large()),
    ];
    for (with, call) in calls {
        let mut world = world();
        take_all(&mut world, 1, 1..=3);
        let reply = world.send(&call.place_acking(1, 4, 2));
        assert!([400, 413].contains(&reply.status()), "{with}: {}", reply.status());
        assert_eq!(world.places().len(), 3, "{with}");
    }
}
