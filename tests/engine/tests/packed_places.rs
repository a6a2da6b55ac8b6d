//! Which tombstones are packed, where they are then, and how much they take up.

use semel_core::server::storage::tombstones::CARRIED_MAX;
use semel_support::packed::{acknowledge_all, acknowledge_until, change, places};
use semel_support::*;

#[test]
fn a_tombstone_with_no_deadline_no_until_or_an_until_far_ahead_keeps_its_own_row() {
    let acked = |first: &Call, ack: &dyn Fn(Call) -> Call| {
        let mut world = World::new();
        world.send(first);
        world.send(&ack(change("b"))).is_executed(200);
        world.row("a", "id").is_some()
    };
    let until = |call: Call| call.ack_until("a", START_MS);
    assert!(!acked(&change("a"), &until));
    assert!(acked(&post("/count").id("a"), &until), "an attempt without a deadline");
    assert!(acked(&change("a"), &|call| call.ack("a")), "no until");
    assert!(acked(&change("a"), &|call| call.ack_until("a", START_MS + 700_000)), "an until that is far ahead");
    let mut world = World::new();
    (0..3).for_each(|_| drop(world.crashed(&change("a"))));
    world.send(&change("b").ack_until("a", START_MS)).is_executed(200);
    world.restart();
    world.send(&change("a")).is_problem(410, "acknowledged", "no", "never");
}

#[test]
fn tombstones_beyond_what_a_record_carries_go_into_a_chunk_and_none_is_lost() {
    let mut world = World::new();
    let id = |n: usize| format!("8e03978e-40d5-43dd-bc93-{n:012}");
    world.send(&change(&id(0))).is_executed(200);
    for n in 1..=CARRIED_MAX + 5 {
        world.send(&change(&id(n)).ack_until(&id(n - 1), START_MS)).is_executed(200);
        let chunks = i64::from(n > CARRIED_MAX);
        assert_eq!(places(&world).2, chunks, "after {n}");
    }
    world.restart();
    for n in 0..CARRIED_MAX + 5 {
        world.send(&change(&id(n))).is_problem(410, "acknowledged", "yes", "never");
    }
    assert_eq!(world.effects() as usize, CARRIED_MAX + 6);
}

#[test]
fn a_lapsed_tombstone_is_not_carried_on_by_the_next_record() {
    let mut world = World::new();
    for (id, acknowledged) in [("a", None), ("b", Some("a")), ("c", Some("b"))] {
        let call = post("/count").id(id).deadline_ms(world.wall_ms);
        let call =
            acknowledged.into_iter().fold(call, |call, acknowledged| call.ack_until(acknowledged, world.wall_ms));
        world.send(&call).is_executed(200);
        assert_eq!(world.row(id, "coalesce(length(carried), 0)"), Some(if id == "a" { 0 } else { 6 }.into()), "{id}");
        world.pass_s(100);
    }
}

/// More chunks than a page has, both of those that are read when an object starts and of those that lapse.
#[test]
fn the_next_object_knows_all_of_140_chunks_and_all_of_them_leave_when_they_lapse() {
    let mut world = World::new();
    let chunks = 140;
    for chunk in 0..chunks {
        let ids: Vec<_> = (0..3).map(|n| (format!("{chunk}-{n}"), START_MS)).collect();
        for (id, _) in &ids {
            world.send(&change(id)).is_executed(200);
        }
        world.send(&acknowledge_until(&ids));
    }
    assert_eq!(places(&world), (0, 0, chunks));
    world.restart();
    for chunk in [0, 127, 128, chunks - 1] {
        world.send(&change(&format!("{chunk}-2"))).is_problem(410, "acknowledged", "yes", "never");
    }
    world.pass_s(60);
    for _ in 0..2 {
        world.sweep_page().expect("storage");
    }
    assert_eq!(places(&world), (0, 0, 0));
}

#[test]
fn an_id_of_16_characters_is_packed_like_any_other_and_not_taken_for_a_uuid() {
    let mut world = World::new();
    let ids = ["abcdefghijklmnop", "b", "c"];
    for id in ids {
        world.send(&change(id)).is_executed(200);
    }
    world.send(&acknowledge_all(&ids));
    assert_eq!(places(&world), (0, 0, 1));
    // An object that starts reads the packed tombstones again.
    world.restart();
    for id in ids {
        assert_eq!(world.send(&change(id)).field("code"), "acknowledged", "{id}");
        assert_eq!(world.effects_of(id), 1, "{id}");
    }
}

#[test]
fn a_packed_uuid_takes_21_bytes() {
    let mut world = World::new();
    let ids = [1, 2, 3].map(|n| format!("0190b5a0-7c1e-7000-8000-00000000000{n}"));
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    for id in &ids {
        world.send(&change(id)).is_executed(200);
    }
    world.send(&acknowledge_all(&ids));
    assert_eq!(world.database.number("SELECT length(entries) FROM semel_tombstones"), 3 * (16 + 5));
}
