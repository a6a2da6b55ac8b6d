//! Packed tombstones, which have no row of their own, keep every rule of those that have one.

use semel_core::server::storage::tombstones::{CARRIED_MAX, CHUNK_MIN};
use semel_support::admin::{ask, cancel_for, delete_key, delete_record};
use semel_support::*;
use serde_json::json;

fn change_by(id: &str, deadline_ms: i64) -> Call {
    post("/count").id(id).first_sent_s(START_S).deadline_ms(deadline_ms)
}

fn change(id: &str) -> Call {
    change_by(id, START_MS)
}

/// Acknowledges all of these ids, in a separate request.
fn acknowledge_all(ids: &[&str]) -> Call {
    let ids: Vec<String> = ids.iter().map(|id| format!("{{\"id\":\"{id}\",\"until\":{START_MS}}}")).collect();
    acknowledge(&format!("[{}]", ids.join(",")))
}

/// Where the tombstones are: the number of their own rows, of records that carry some, and of chunks.
fn places(world: &World) -> (i64, i64, i64) {
    let number = |statement: &str| world.database.number(statement);
    (
        number("SELECT count(*) FROM semel_records WHERE state = 5"),
        number("SELECT count(*) FROM semel_records WHERE carried IS NOT NULL"),
        number("SELECT count(*) FROM semel_tombstones"),
    )
}

/// Keys with a packed tombstone of `a`: in a record, in a record that took it over, in the row of another tombstone, and in a
/// chunk.
fn packed() -> Vec<(&'static str, World)> {
    let mut worlds = Vec::new();
    for place in ["carried", "carried on", "carried by a tombstone", "in a chunk"] {
        let mut world = World::new();
        world.send(&change("a")).is_executed(200);
        if place == "in a chunk" {
            world.send(&change("b")).is_executed(200);
            world.send(&change("c")).is_executed(200);
            world.send(&acknowledge_all(&["a", "b", "c"]));
            assert_eq!(places(&world), (0, 0, 1));
        } else {
            world.send(&change("b").ack_until("a", START_MS)).is_executed(200);
            assert_eq!(places(&world), (0, 1, 0));
        }
        if place == "carried on" {
            world.send(&change("c").ack_until("b", START_MS)).is_executed(200);
            assert_eq!(places(&world), (0, 1, 0));
        }
        if place == "carried by a tombstone" {
            world.send(&get("/count").ack("b"));
            assert_eq!(places(&world), (1, 1, 0));
        }
        assert_eq!(world.row("a", "id"), None);
        worlds.push((place, world));
    }
    worlds
}

/// Runs a test at each of these keys, in the object that packed the tombstone and in the next one.
fn everywhere(test: impl Fn(&str, &mut World)) {
    for restarts in [false, true] {
        for (place, mut world) in packed() {
            if restarts {
                world.restart();
            }
            test(place, &mut world);
        }
    }
}

#[test]
fn a_packed_tombstone_answers_acknowledged_and_nothing_runs() {
    everywhere(|place, world| {
        let effects = world.effects();
        for call in [change("a"), change("a").body("other"), change_by("a", 1)] {
            world.send(&call).is_problem(410, "acknowledged", "yes", "never");
        }
        world.send(&look_up("a")).is_problem(410, "acknowledged", "yes", "never");
        world.send(&cancel("own", "a")).is_problem(410, "acknowledged", "yes", "never");
        assert_eq!(world.effects(), effects, "{place}");
    });
}

#[test]
fn another_principal_learns_nothing_of_a_packed_tombstone() {
    everywhere(|_, world| {
        world.send(&change("a").by("mallory")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
        world.send(&look_up("a").by("mallory")).is_problem(404, "not-seen", "unknown", "same-id");
        world.send(&cancel("own", "a").by("mallory")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
        // Such an attempt doesn't change anything either.
        let late = change_by("a", START_MS + 100_000).by("mallory");
        world.send(&late).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
        assert_eq!(world.row("a", "id"), None);
    });
}

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

#[test]
fn with_a_damaged_row_of_packed_tombstones_requests_are_unavailable_and_run_nothing() {
    for (place, world) in packed() {
        let mut world = world;
        let effects = world.effects();
        let statement = if place == "in a chunk" {
            "UPDATE semel_tombstones SET entries = substr(entries, 1, 4)"
        } else {
            "UPDATE semel_records SET carried = substr(carried, 1, 4) WHERE carried IS NOT NULL"
        };
        world.database.tamper(statement);
        world.restart();
        for call in [change("a"), change("new"), get("/count")] {
            world.send(&call).is_problem(503, "unavailable", "unknown", "same-id");
        }
        assert_eq!(world.effects(), effects);
    }
}

#[test]
fn an_administrator_sees_a_packed_tombstone_in_counts_and_by_its_id_but_in_no_list() {
    everywhere(|place, world| {
        let plot = ask(&format!("/times?from={START_MS}&step=1000&count=2"));
        let tombstones = world.count().expect("a count").tombstones;
        assert_eq!(world.send(&ask("")).json()["tombstones"], json!(tombstones), "{place}");
        assert_eq!(world.send(&plot).json()["tombstones"], json!([tombstones, 0]), "{place}");
        let later = ask(&format!("/times?from={}&step=1000&count=2", START_MS + 999));
        assert_eq!(world.send(&later).json()["tombstones"], json!([0, 0]), "{place}: they are before all steps");
        let page = world.send(&ask("/records")).json();
        let ids = page["records"].as_array().expect("records").iter().map(|record| record["id"].as_str());
        assert!(ids.into_iter().all(|id| id != Some("a")), "{place}: {page}");
        let one = json!({
            "id": "a", "state": "acknowledged", "principal": null, "firstSent": null, "at": null, "deadline": null,
            "lapses": START_MS + 60_000, "executed": "yes", "status": null, "bytes": null, "crashes": null,
            "outcome": null, "fingerprint": null,
        });
        assert_eq!(world.send(&ask("/records/a")).json(), one, "{place}");
        world.send(&cancel_for("cancel", "{\"id\":\"a\"}")).is_problem(410, "acknowledged", "yes", "never");
        let rows = places(world).0;
        world.pass_s(60);
        assert_eq!(world.send(&plot).json()["tombstones"], json!([rows, 0]), "{place}: what has lapsed is not counted");
        world.send(&ask("/records/a")).is_problem(404, "not-seen", "unknown", "same-id");
        world.send(&delete_record("delete", "a")).is_problem(404, "not-seen", "unknown", "same-id");
    });
}

#[test]
fn deleting_the_record_of_a_packed_tombstone_changes_nothing() {
    everywhere(|place, world| {
        let reply = world.send(&delete_record("own", "a"));
        assert_eq!(reply.json(), json!({ "state": "acknowledged", "executed": "yes" }), "{place}");
        world.send(&change("a")).is_problem(410, "acknowledged", "yes", "never");
    });
}

#[test]
fn a_packed_tombstone_outlives_the_deletion_of_its_key_until_it_lapses() {
    everywhere(|place, world| {
        let tombstones = world.count().expect("a count").tombstones - places(world).0;
        world.send(&delete_key("own")).is_executed(200);
        // Nothing is left of the deleted rows but the tombstones that they carried.
        assert_eq!((world.rows(), places(world)), (1, (0, 0, 1)), "{place}");
        for _ in 0..2 {
            assert_eq!(world.count().expect("a count").tombstones, tombstones, "{place}");
            let stray = post("/count").id("a").deadline_ms(START_MS);
            world.send(&stray).is_problem(410, "acknowledged", "yes", "never");
            world.send(&change("a").by("mallory")).is_problem(422, "fingerprint-mismatch", "no", "after-fix");
            world.restart();
        }
        world.pass_s(60);
        assert_eq!(world.count().expect("a count").tombstones, 0, "{place}");
        world.pass_s(600);
        world.wake().expect("storage");
        assert_eq!(places(world), (0, 0, 0), "{place}");
    });
}

#[test]
fn a_packed_tombstone_outlives_the_record_that_carries_it_when_that_is_forgotten() {
    everywhere(|place, world| {
        world.pass_s(1);
        world.forget(START_S + 1).expect("storage");
        world.wake().expect("storage");
        let is_carried_by_a_tombstone = place == "carried by a tombstone";
        assert_eq!(places(world).2, i64::from(!is_carried_by_a_tombstone), "{place}");
        for _ in 0..2 {
            world.send(&post("/count").id("a").deadline_ms(START_MS)).is_problem(410, "acknowledged", "yes", "never");
            world.restart();
        }
        world.pass_s(60);
        world.send(&change("a")).is_problem(410, "forgotten", "unknown", "never");
        world.wake().expect("storage");
        assert_eq!(places(world).2, 0, "{place}");
    });
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

/// Acknowledges each id up to its own deadline, in a separate request.
fn acknowledge_until(ids: &[(String, i64)]) -> Call {
    let ids: Vec<String> =
        ids.iter().map(|(id, until_ms)| format!("{{\"id\":\"{id}\",\"until\":{until_ms}}}")).collect();
    acknowledge(&format!("[{}]", ids.join(",")))
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

#[test]
fn a_tombstone_whose_commit_was_undone_does_not_shorten_a_later_one_of_the_same_id() {
    let mut world = World::new();
    let ids = ["a", "b", "c"];
    for id in ids {
        world.send(&change(id)).is_executed(200);
    }
    let undone = [acknowledge_all(&ids), post("/not-found").id("undoes")];
    assert!(world.group(&undone).is_none(), "nothing of it is done");
    let later_ms = START_MS + 200_000;
    let acks = ids.map(|id| json!({ "id": id, "until": later_ms }));
    world.send(&acknowledge(&json!(acks).to_string()));
    assert_eq!(places(&world), (0, 0, 1));
    // The first tombstone would have left by now.
    world.wall_ms = later_ms;
    for id in ids {
        assert_eq!(world.send(&change_by(id, later_ms)).field("code"), "acknowledged", "{id}");
        assert_eq!(world.effects_of(id), 1, "{id}");
    }
}
