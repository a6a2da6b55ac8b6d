//! How long packed tombstones live, and that they leave when they have lapsed.

use semel_core::server::storage::tombstones::CHUNK_MIN;
use semel_support::packed::{acknowledge_all, acknowledge_until, change, change_by, everywhere, places};
use semel_support::*;

/// Lets this many seconds pass, and makes a new object that has swept.
fn later(world: &mut World, seconds: i64) {
    world.pass_s(seconds);
    world.restart();
    world.send(&get("/count"));
}

#[test]
fn a_packed_tombstone_lives_until_60_s_after_the_latest_deadline() {
    everywhere(|place, world| {
        let late = |world: &World| change_by("a", world.wall_ms);
        later(world, 59);
        world.send(&look_up("a")).is_problem(410, "acknowledged", "yes", "never");
        later(world, 1);
        world.send(&look_up("a")).is_problem(404, "not-seen", "unknown", "same-id");
        assert_eq!(world.send(&late(world)).only("semel-status"), "executed", "{place}");
    });
}

#[test]
fn a_packed_tombstone_lapses_without_a_restart_of_the_object() {
    everywhere(|_, world| {
        world.pass_ms(59_999);
        world.send(&look_up("a")).is_problem(410, "acknowledged", "yes", "never");
        world.pass_ms(1);
        world.send(&look_up("a")).is_problem(404, "not-seen", "unknown", "same-id");
        world.send(&get("/count"));
        assert_eq!(places(world).2, 0, "chunks leave");
    });
}

#[test]
fn a_packed_tombstone_outlives_a_late_attempt_with_a_later_deadline_or_with_none() {
    everywhere(|place, world| {
        let late = change_by("a", START_MS + 50_000);
        world.send(&late).is_problem(410, "acknowledged", "yes", "never");
        later(world, 109);
        world.send(&late).is_problem(410, "acknowledged", "yes", "never");
        later(world, 1);
        world.send(&late).is_problem(408, "attempt-expired", "no", "same-id");
        assert_eq!(world.effects_of("a"), 1, "{place}");
    });
    everywhere(|place, world| {
        let late = post("/count").id("a").first_sent_s(START_S + 100);
        world.pass_s(50);
        world.send(&late).is_problem(410, "acknowledged", "yes", "never");
        world.restart_with(|config| config.retention_s = 86_400);
        later(world, 86_400);
        world.send(&late).is_problem(410, "acknowledged", "yes", "never");
        later(world, 51);
        world.send(&late).is_problem(412, "outside-window", "unknown", "never");
        assert_eq!(world.effects_of("a"), 1, "{place}");
    });
}

#[test]
fn a_packed_tombstone_counts_as_a_tombstone_until_it_lapses() {
    everywhere(|place, world| {
        let tombstones = |world: &mut World| world.count().expect("a count").tombstones;
        let before = tombstones(world);
        world.restart();
        assert_eq!(tombstones(world), before, "{place}: a fresh object counts the same");
        let own = places(world).0;
        world.pass_s(60);
        assert_eq!(tombstones(world), own, "{place}: only rows are left");
    });
}

#[test]
fn the_clock_of_a_key_does_not_go_back_when_its_records_were_packed_and_swept() {
    let mut world = World::new();
    let ids: Vec<String> = (0..CHUNK_MIN).map(|n| format!("id-{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for id in &ids {
        world.send(&change(id)).is_executed(200);
    }
    world.pass_s(30);
    world.send(&acknowledge_all(&ids));
    assert_eq!((world.rows(), places(&world)), (0, (0, 0, 1)));
    let acknowledged_ms = world.wall_ms;
    world.wall_ms = START_MS;
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), acknowledged_ms.to_string());
    world.pass_s(1_000);
    let swept_ms = world.wall_ms;
    world.send(&get("/count"));
    assert_eq!(places(&world), (0, 0, 0));
    world.wall_ms = START_MS;
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), swept_ms.to_string());
}

#[test]
fn the_key_is_woken_to_sweep_lapsed_tombstones_that_a_forgotten_record_had_carried() {
    let mut world = World::new();
    world.send(&change("a")).is_executed(200);
    world.send(&change("b").ack_until("a", START_MS)).is_executed(200);
    world.pass_s(1);
    world.forget(START_S + 1).expect("storage");
    world.wake().expect("storage");
    assert_eq!((world.rows(), places(&world)), (0, (0, 0, 1)));
    // No earlier than a minute after it was woken.
    let due_ms = START_MS + 61_000;
    assert_eq!(world.wakes_at_without_registry(), Some(due_ms));
    world.wall_ms = due_ms;
    world.wake().expect("storage");
    assert_eq!(places(&world), (0, 0, 0));
}

#[test]
fn a_key_is_woken_when_a_chunk_lapses_and_reports_to_the_registry_that_it_left() {
    everywhere(|place, world| {
        if place != "in a chunk" {
            return;
        }
        world.wake().expect("storage");
        let report = world.report().expect("storage").expect("it is new");
        assert_eq!(report.tombstones, 3);
        world.reported(&report, 0).expect("storage");
        assert_eq!(world.wakes_at(), Some(START_MS + 60_000));
        world.pass_s(60);
        world.wake().expect("storage");
        assert_eq!(places(world), (0, 0, 0));
        let report = world.report().expect("storage").expect("it has changed");
        assert_eq!(report.tombstones, 0);
        world.reported(&report, 0).expect("storage");
        // It is woken at most once more, when the packed records would have left.
        world.wall_ms = world.wakes_at().unwrap_or(world.wall_ms);
        world.wake().expect("storage");
        assert_eq!((world.report(), world.wakes_at()), (Ok(None), None));
    });
}

#[test]
fn an_object_that_starts_knows_when_the_first_chunk_lapses() {
    everywhere(|place, world| {
        world.restart();
        world.count().expect("a count");
        let is_chunk = place == "in a chunk";
        assert_eq!(world.wakes_at_without_registry() == Some(START_MS + 60_000), is_chunk, "{place}");
    });
}

/// An object that starts reads the tombstones in records before those in chunks, so the earlier of two may come last.
#[test]
fn an_id_that_is_used_again_is_protected_by_the_later_of_its_tombstones_in_the_next_object_too() {
    for is_chunk_first in [true, false] {
        let mut world = World::new();
        let at = |s: i64| START_MS + s * 1000;
        let of =
            |id: &str, s: i64, until_s: i64| post("/count").id(id).first_sent_s(START_S + s).deadline_ms(at(until_s));
        let carry = |world: &mut World, by: &str, s: i64, until_s: i64| {
            world.send(&of(by, s, until_s).ack_until("a", at(until_s))).is_executed(200);
        };
        let pack = |world: &mut World, s: i64, until_s: i64| {
            for id in ["p", "q"] {
                world.send(&of(id, s, until_s)).is_executed(200);
            }
            let ids: Vec<String> = [("a", until_s), ("p", 400), ("q", 400)]
                .iter()
                .map(|(id, s)| format!("{{\"id\":\"{id}\",\"until\":{}}}", at(*s)))
                .collect();
            world.send(&acknowledge(&format!("[{}]", ids.join(","))));
        };
        world.send(&of("a", 0, 0)).is_executed(200);
        if is_chunk_first {
            pack(&mut world, 0, 0);
        } else {
            carry(&mut world, "x", 0, 0);
        }
        // The first tombstone lapsed at 60 s.
        world.pass_s(100);
        world.send(&of("a", 100, 200)).is_executed(200);
        if is_chunk_first {
            carry(&mut world, "y", 100, 200);
        } else {
            pack(&mut world, 100, 200);
        }
        for restarts in [false, true] {
            if restarts {
                world.restart();
            }
            world.send(&of("a", 100, 200)).is_problem(410, "acknowledged", "yes", "never");
        }
        world.pass_s(200);
        world.send(&of("a", 300, 400)).is_executed(200);
    }
}

#[test]
fn a_tombstone_does_not_lapse_early_with_others_of_its_chunk_in_the_next_object_either() {
    // The others have lapsed by then; for this one, the later instant is still a second too early.
    for s in [100, 154] {
        let mut world = World::new();
        let ids: Vec<_> =
            ["a", "b", "c"].iter().zip([95, 0, 0]).map(|(id, s)| ((*id).to_owned(), START_MS + s * 1000)).collect();
        for (id, _) in &ids {
            world.send(&post("/count").id(id).deadline_ms(START_MS)).is_executed(200);
        }
        world.send(&acknowledge_until(&ids));
        assert_eq!(places(&world), (0, 0, 1));
        world.pass_s(s);
        world.wake().expect("storage");
        world.restart();
        world.send(&post("/count").id("a").deadline_ms(START_MS)).is_problem(410, "acknowledged", "yes", "never");
    }
}

/// A key with two chunks, the second of which came 20 s later and lapses 20 s later.
fn with_two_chunks() -> World {
    let mut world = World::new();
    for s in [0, 20] {
        world.wall_ms = START_MS + s * 1000;
        let ids = ["a", "b", "c"].map(|id| (format!("{id}{s}"), world.wall_ms));
        for (id, until_ms) in &ids {
            world.send(&change_by(id, *until_ms)).is_executed(200);
        }
        world.send(&acknowledge_until(&ids));
    }
    assert_eq!((world.rows(), places(&world)), (0, (0, 0, 2)));
    world
}

#[test]
fn a_new_object_takes_its_clock_from_the_last_chunk() {
    let mut world = with_two_chunks();
    world.wall_ms = START_MS;
    world.restart();
    assert_eq!(world.send(&get("/count")).only("semel-now"), (START_MS + 20_000).to_string());
}

#[test]
fn a_key_whose_first_chunk_has_left_is_woken_when_the_next_one_lapses() {
    let mut world = with_two_chunks();
    world.wall_ms = START_MS + 60_000;
    world.wake().expect("storage");
    assert_eq!(places(&world), (0, 0, 1));
    world.pass_s(20);
    world.send(&get("/count"));
    assert_eq!(places(&world), (0, 0, 0));
}
