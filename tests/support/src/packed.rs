//! Keys with packed tombstones: those that have no row of their own.

use crate::world::{START_MS, START_S};
use crate::{Call, World, acknowledge, get, post};

/// A change with an id and a deadline.
pub fn change_by(id: &str, deadline_ms: i64) -> Call {
    post("/count").id(id).first_sent_s(START_S).deadline_ms(deadline_ms)
}

/// A change whose deadline is the first instant.
pub fn change(id: &str) -> Call {
    change_by(id, START_MS)
}

/// Acknowledges all of these ids, in a separate request.
pub fn acknowledge_all(ids: &[&str]) -> Call {
    let ids: Vec<String> = ids.iter().map(|id| format!("{{\"id\":\"{id}\",\"until\":{START_MS}}}")).collect();
    acknowledge(&format!("[{}]", ids.join(",")))
}

/// Acknowledges each id up to its own deadline, in a separate request.
pub fn acknowledge_until(ids: &[(String, i64)]) -> Call {
    let ids: Vec<String> =
        ids.iter().map(|(id, until_ms)| format!("{{\"id\":\"{id}\",\"until\":{until_ms}}}")).collect();
    acknowledge(&format!("[{}]", ids.join(",")))
}

/// Where the tombstones are: the number of their own rows, of records that carry some, and of chunks.
pub fn places(world: &World) -> (i64, i64, i64) {
    let number = |statement: &str| world.database.number(statement);
    (
        number("SELECT count(*) FROM semel_records WHERE state = 5"),
        number("SELECT count(*) FROM semel_records WHERE carried IS NOT NULL"),
        number("SELECT count(*) FROM semel_tombstones"),
    )
}

/// Keys with a packed tombstone of `a`: in a record, in a record that took it over, in the row of another tombstone, and in a
/// chunk.
pub fn packed() -> Vec<(&'static str, World)> {
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
pub fn everywhere(test: impl Fn(&str, &mut World)) {
    for restarts in [false, true] {
        for (place, mut world) in packed() {
            if restarts {
                world.restart();
            }
            test(place, &mut world);
        }
    }
}
