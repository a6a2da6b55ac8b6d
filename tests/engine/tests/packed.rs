//! Packed tombstones, which have no row of their own, keep every rule of those that have one.

use semel_support::admin::{ask, cancel_for, delete_key, delete_record};
use semel_support::packed::{acknowledge_all, acknowledge_until, change, change_by, everywhere, packed, places};
use semel_support::*;
use serde_json::json;

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

#[test]
fn tombstones_that_no_record_carries_share_a_row_once_there_are_three() {
    for count in 1..=5 {
        let mut world = World::new();
        let ids: Vec<String> = (0..count).map(|n| format!("id-{n}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        for id in &ids {
            world.send(&change(id)).is_executed(200);
        }
        world.send(&acknowledge_all(&ids));
        assert_eq!(places(&world), if count < 3 { (count, 0, 0) } else { (0, 0, 1) }, "{count}");
    }
}

#[test]
fn after_a_group_that_was_undone_tombstones_are_counted_as_a_new_object_counts_them() {
    everywhere(|place, world| {
        let (ids, more, late_ms) = (["u", "v", "w"], ["x", "y", "z"], START_MS + 100_000);
        for id in ids.iter().chain(&more) {
            world.send(&change_by(id, late_ms)).is_executed(200);
        }
        world.pass_ms(59_999);
        let before = world.count();
        // `a` and what came with it lapse with the second of these. The last one undoes all, and packs more before that.
        let acknowledges = acknowledge_until(&ids.map(|id| (id.to_owned(), late_ms)));
        let undoes = more.iter().fold(post("/not-found").id("undoes"), |call, id| call.ack_until(id, late_ms));
        let group = [acknowledges.clone(), change_by("new", late_ms), undoes];
        assert!(world.group_over(&group, 1).is_none(), "{place}: nothing of it is done");
        assert_eq!(world.count(), before, "{place}");
        world.send(&acknowledges);
        world.pass_ms(1);
        let known = world.count();
        world.restart();
        assert_eq!(world.count(), known, "{place}");
    });
}
